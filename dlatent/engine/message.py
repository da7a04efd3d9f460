"""The tasks of a pass as one message to a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dlatent.engine.dask_graph import Chunks, DaskGraph, Key
from dlatent.engine.part import Work, sealed
from dlatent.engine.task_graph import TaskGraph, TaskNode
from dlatent.engine.tasks import Package, Step
from dlatent.engine.versions import versions

LIGHT = 2**20
"""Bytes that weigh less than a round between scheduler and workers, some milliseconds."""


class Message:
    """A Dask graph in the making, for one attempt at a pass."""

    def __init__(self, work: Work, task_graph: TaskGraph) -> None:
        self.work, self.task_graph = work, DaskGraph()
        self.names = [self._name(task, number) for number, task in enumerate(task_graph.tasks)]
        self._tasks = task_graph.tasks
        packaged = partial(Package, sealed(vars(work), Work), work.token, versions())
        self._package: Package | None = packaged()
        self._given: list[Key] = []
        if len(self._package.payload) * len(task_graph.tasks) > LIGHT:
            # Each worker gets it once from a task of its own.  Where it is light it comes with each task, which saves a
            # round of messages.
            self._given = [self.task_graph.add(f"parameters-{work.token}", packaged)]
            self._package = None

    def add(self, number: int, bundles: Sequence[Key], chunks: Chunks | None) -> None:
        """Add a task of the graph, with the keys of the bundles that its parts are in, and the chunks of its block
        where it gets one."""
        task, computed = self._tasks[number], list[Key]()
        if chunks is not None:
            self.task_graph.include(chunks.tasks, task.home)
            computed = chunks.keys
        sources = list(dict.fromkeys(ref.task for ref in task.inputs))
        places = {source: at for at, source in enumerate(sources)}
        step = Step(
            call=task.call,
            values=task.values,
            groups=task.groups,
            block=task.block,
            updates=task.updates,
            package=self._package,
            bundles=len(bundles),
            chunks=len(computed),
            picks=tuple((places[ref.task], ref.at) for ref in task.inputs),
        )
        inputs = [*self._given, *bundles, *computed, *(self.names[source] for source in sources)]
        self.task_graph.add(self.names[number], step, inputs, task.home)

    def _name(self, task: TaskNode, number: int) -> Key:
        """Steps that progress counts have the name of the pass on Dask's dashboard, others that of their function."""
        own = "" if task.steps else f"{task.call.__name__}-"
        return (f"{self.work.pass_.name}-{own}{self.work.token}", number)
