"""The serial executor: a for-loop, the reference that the others must equal to the last bit."""

from __future__ import annotations

from typing import Any

from dlatent.arrays import DataSource, Graph
from dlatent.engine.executor import Build, InProcess, OnProgress, Progress, Take, chosen, entry, taken, users
from dlatent.engine.part import Work
from dlatent.engine.targets import Targets


class SerialExecutor(InProcess):
    """One task after the other, in this thread."""

    kind = "serial"

    def __init__(self, source: DataSource, targets: Targets, cache_bytes: int | None, graph: Graph | None) -> None:
        super().__init__(source, targets, 1, cache_bytes, graph)

    def execute(
        self, build: Build, work: Work, tell: OnProgress | None = None, take: Take | None = None
    ) -> tuple[list[Any], int]:
        """The results of a graph, and the number of its tasks."""
        task_graph = build(self.layout)
        progress, waiting, made = Progress(task_graph.steps, tell), users(task_graph), dict[int, Any]()
        wanted = {ref.task for ref in task_graph.results} if take is not None else set()
        for number, task in enumerate(task_graph.tasks):
            results = []
            for ref in task.inputs:
                results.append(entry(made[ref.task], ref.at))
                waiting[ref.task] -= 1
                if not waiting[ref.task]:
                    del made[ref.task]
            found = task.call(work, *task.values, *chosen(self.parts.__getitem__, task.groups), *results)
            progress.done(task.steps)
            made[number] = taken(found, None, take) if number in wanted else found
            del results, found
        return [entry(made[ref.task], ref.at) for ref in task_graph.results], len(task_graph.tasks)
