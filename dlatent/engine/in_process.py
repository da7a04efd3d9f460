"""The executors within this process, through Dask's schedulers: on its threads, or one task after the other."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

from dask import threaded
from dask.local import get_sync

from dlatent.arrays import DataSource, Graph
from dlatent.engine.cache import release
from dlatent.engine.executor import Build, OnProgress, StepCounter, Take, chosen, layout_of, taken
from dlatent.engine.machine import before_pause, cache_share, memory, processors
from dlatent.engine.nested import own_worker
from dlatent.engine.part import Work, ended, halt, keys_of, parts_of
from dlatent.engine.targets import Targets, as_rows
from dlatent.engine.task_graph import Ref
from dlatent.interrupts import interrupt
from dlatent.passes import Resources

HERE = "here"
"""The home of all groups."""

# Dask keeps its threads for later calls, but a forked process has none of those of its parent, and would wait for them.
os.register_at_fork(after_in_child=threaded.pools.clear)


class InProcess:
    """As many tasks at a time as there are processors; or `serial`, one, the reference that all executors must equal
    to the last bit."""

    def __init__(
        self, source: DataSource, targets: Targets, cache_bytes: int | None, graph: Graph | None, *, serial: bool
    ) -> None:
        limit, threads = memory(), 1 if serial else processors()
        cap = cache_share(limit) if cache_bytes is None else cache_bytes
        self.resources = Resources("serial" if serial else "threads", 1, threads, limit, cap, limit)
        self.parts = parts_of(source, as_rows(targets, source.shape[0]), graph)
        # A task costs next to nothing here: none takes several groups.
        self.layout = layout_of(self.parts, self.homes(), {HERE: threads})
        self._keys = keys_of(source, graph)
        self._get: Callable[..., Any] = get_sync if serial else partial(threaded.get, num_workers=threads)

    def available(self) -> Resources:
        """What a plan may use; Dask pauses the worker whose task this is, too."""
        worker = own_worker()
        return self.resources if worker is None else replace(self.resources, worker_memory=before_pause(worker)[0])

    def execute(
        self, build: Build, work: Work, tell: OnProgress | None = None, take: Take | None = None
    ) -> tuple[list[Any], int]:
        """The results of a graph, and the number of its tasks; a failure stops all threads at their next block."""
        task_graph = build(self.layout)
        progress = StepCounter(task_graph.steps, tell)
        dask_graph = dict[Any, Any]()
        for number, task in enumerate(task_graph.tasks):
            parts = chosen(self.parts.__getitem__, task.groups)
            made = "made" if tell is not None and task.steps else "task"
            dask_graph[made, number] = (partial(task.call, work, *task.values, *parts), *map(_key, task.inputs))
            if made == "made":
                dask_graph["task", number] = (partial(_told, progress, task.steps), (made, number))
            for ref in task.inputs:
                if ref.at is not None:
                    dask_graph[_key(ref)] = (itemgetter(ref.at), ("task", ref.task))
        for number, ref in enumerate(task_graph.results):
            dask_graph["result", number] = (partial(taken, ref.at, take), ("task", ref.task))
        try:
            found = self._get(dask_graph, [("result", number) for number in range(len(task_graph.results))])
        except BaseException as error:
            halt(work.token)
            if not isinstance(error, Exception):
                interrupt()
            raise
        return list(found), len(task_graph.tasks)

    def homes(self) -> list[str]:
        """The worker of each group."""
        return [HERE] * len(self.parts)

    def keep(self, cache_bytes: int) -> None:
        """Keep so many bytes of blocks between passes."""
        self.resources = replace(self.resources, cache_bytes=cache_bytes)
        release(self._keys, cache_bytes)

    def close(self) -> None:
        """Free the cached blocks."""
        ended(self._keys)


def _key(ref: Ref) -> tuple[Any, ...]:
    return ("task", ref.task) if ref.at is None else ("entry", *ref)


def _told(progress: StepCounter, steps: int, result: Any) -> Any:
    progress.done(steps)
    return result
