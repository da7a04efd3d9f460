"""What an executor is, and those within this process, through Dask's schedulers: on its threads, or one task after the
other."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from threading import Lock
from typing import Any, Protocol, TypeAlias

from dask import threaded
from dask.local import get_sync

from dlatent.arrays import DataSource, Graph
from dlatent.engine.cache import release
from dlatent.engine.fold import Share, Work, ended, halt
from dlatent.engine.group import Part, Targets, as_rows, keys_of, parts_of
from dlatent.engine.machine import before_pause, cache_share, memory, own_worker, processors
from dlatent.engine.placement import place
from dlatent.engine.records import Workers
from dlatent.engine.task_graph import Layout, Ref, TaskGraph
from dlatent.interrupts import interrupt
from dlatent.passes import Resources

OnProgress: TypeAlias = Callable[[int, int], None]
"""Called with the steps done and all steps, perhaps from another thread."""
Take: TypeAlias = Callable[[Any], None]
"""Gets the values of a result in the place of the caller."""
Build: TypeAlias = Callable[[Layout], TaskGraph]
"""Makes the graph of a pass for the places where the groups lie now."""


class Executor(Protocol):
    """Runs passes over the groups of one data source."""

    @property
    def resources(self) -> Resources:
        """Workers, threads and memory."""
        ...

    def available(self) -> Resources:
        """The same as a plan may use it: of the memory of a worker what is left before Dask pauses it."""
        ...

    @property
    def parts(self) -> Sequence[Part]:
        """The groups of blocks."""
        ...

    def execute(
        self, build: Build, work: Work, tell: OnProgress | None = None, take: Take | None = None
    ) -> tuple[list[Any], int]:
        """The results of a graph, and the number of its tasks; with `take`, which gets the values of each result (a
        share) as soon as it is made, empty shares.

        An exception of a task reaches the caller as it is, stops the others, and leaves the executor usable.
        """
        ...

    def homes(self) -> list[str]:
        """The worker of each group."""
        ...

    def keep(self, cache_bytes: int) -> None:
        """Keep so many bytes of blocks between passes, in each process."""
        ...

    def close(self) -> None:
        """Free what is kept between passes."""
        ...


class StepCounter:
    """Counts finished steps for a progress display; `done` may be called from any thread."""

    def __init__(self, total: int, tell: OnProgress | None) -> None:
        self._total, self._tell = total, tell
        self._done, self._lock = 0, Lock()

    def done(self, steps: int) -> None:
        """So many more steps are finished."""
        if self._tell is not None:
            for _ in range(steps):
                with self._lock:
                    self._done += 1
                    self._tell(self._done, self._total)


def layout_of(parts: Sequence[Part], homes: Sequence[str], threads: Mapping[str, int]) -> Layout:
    """Where the groups lie."""
    sizes = tuple(sum(block.nbytes for block in part.blocks) for part in parts)
    return Layout(sizes, tuple(len(part.blocks) for part in parts), tuple(homes), threads)


def chosen(part: Callable[[int], Part], groups: Sequence[int | Sequence[int]]) -> list[Any]:
    """The parts that a task gets: for a number a part, for several a list of parts."""
    return [part(group) if isinstance(group, int) else list(map(part, group)) for group in groups]


def entry(result: Any, at: int | None) -> Any:
    """What a `Ref` means of the result of its task."""
    return result if at is None else result[at]


def taken(at: int | None, take: Take | None, result: Any) -> Any:
    """The same; with `take`, which gets the values of this share, an empty one with its cost."""
    found: Share = entry(result, at)
    if take is None:
        return found
    values, tally = found
    take(values)
    return (), tally


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


class Planned(InProcess):
    """Has what workers would have that are not there; what a plan must know of a graph is read in this process."""

    def __init__(self, workers: Workers, source: DataSource, targets: Targets, graph: Graph | None) -> None:
        resources = workers.resources()
        self._workers = {f"worker {number:09}": workers.threads for number in range(workers.number)}
        super().__init__(source, targets, None, graph, serial=False)
        self.resources, self._pause = resources, workers.pause

    def available(self) -> Resources:
        """What a plan may use, as nothing lies on the workers."""
        return replace(self.resources, worker_memory=int(self._pause * (self.resources.worker_memory or 0)))

    def homes(self) -> list[str]:
        """The worker that each group would have."""
        return place(len(self.parts), self._workers, ())
