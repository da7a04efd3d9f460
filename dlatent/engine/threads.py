"""The executor on the threads of this process, through Dask's threaded scheduler."""

from __future__ import annotations

from functools import partial
from typing import Any

from dask import threaded

from dlatent.arrays import DataSource, Graph
from dlatent.engine.executor import Build, InProcess, OnProgress, Progress, Take, chosen, entry, taken
from dlatent.engine.machine import processors
from dlatent.engine.part import Work, halt
from dlatent.engine.targets import Targets
from dlatent.engine.task_graph import Node, Ref


class ThreadExecutor(InProcess):
    """As many tasks at a time as there are processors."""

    kind = "threads"

    def __init__(self, source: DataSource, targets: Targets, cache_bytes: int | None, graph: Graph | None) -> None:
        super().__init__(source, targets, processors(), cache_bytes, graph)

    def execute(
        self, build: Build, work: Work, tell: OnProgress | None = None, take: Take | None = None
    ) -> tuple[list[Any], int]:
        """The results of a graph, and the number of its tasks; a failure stops all threads at their next block."""
        task_graph = build(self.layout)
        progress = Progress(task_graph.steps, tell)
        dask_graph = dict[Any, Any]()
        for number, task in enumerate(task_graph.tasks):
            call = partial(self._called, task, work, progress)
            dask_graph[_key(number)] = (call, *(_key(ref.task) for ref in task.inputs))
        for number, ref in enumerate(task_graph.results):
            dask_graph[_result(number)] = (partial(_taken, ref, take), _key(ref.task))
        wanted = [_result(number) for number in range(len(task_graph.results))]
        try:
            found = threaded.get(dask_graph, wanted, num_workers=self.resources.threads)
        except BaseException:
            halt(work.token)
            raise
        return list(found), len(task_graph.tasks)

    def _called(self, task: Node, work: Work, progress: Progress, *results: Any) -> Any:
        inputs = [entry(result, ref.at) for result, ref in zip(results, task.inputs, strict=True)]
        found = task.call(work, *task.values, *chosen(self.parts.__getitem__, task.groups), *inputs)
        progress.done(task.steps)
        return found


def _taken(ref: Ref, take: Take | None, result: Any) -> Any:
    return taken(result, ref.at, take)


def _key(number: int) -> tuple[str, int]:
    return ("task", number)


def _result(number: int) -> tuple[str, int]:
    return ("result", number)
