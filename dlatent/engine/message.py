"""The tasks of a pass as one message to a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dlatent.engine.dask_graph import Chunks, DaskGraph, Key
from dlatent.engine.part import Sealed, Work, sealed
from dlatent.engine.task_graph import Node, TaskGraph
from dlatent.engine.tasks import Package, Step, together

LIGHT = 2**20
"""Bytes that weigh less than a round between scheduler and workers, some milliseconds."""


class Message:
    """A Dask graph in the making, for one attempt at a pass.

    Parameters
    ----------
    work : the pass under way.
    graph : its tasks.
    carried : the descriptions of all groups, where they come with the tasks; else none.
    pool : the keys of all of them, where every worker needs them all; else none.  A task gets them as one then: a key
        for each of its groups, and a pass over pairs would have as many as there are pairs of groups.
    """

    def __init__(self, work: Work, task_graph: TaskGraph, carried: Sequence[Sealed], pool: Sequence[Key] = ()) -> None:
        self.work, self.task_graph = work, DaskGraph()
        self.prefix = f"{work.pass_.name}-{work.token}"
        self.held = set[int]()
        self.names = [self._name(task, number) for number, task in enumerate(task_graph.tasks)]
        self._tasks, self._carried = task_graph.tasks, carried
        self._package: Package | None = Package(sealed(vars(work), Work), work.token)
        self._given: list[Key] = []
        self._pool = [self.task_graph.add(f"parts-{work.token}", together, pool)] if pool else []
        payload = self._package.payload
        if len(payload) * len(task_graph.tasks) > LIGHT:
            # Each worker gets it once from a task of its own.  Where it is light it comes with each task, which saves a
            # round of messages.
            self._given = [self.task_graph.add(f"parameters-{work.token}", partial(Package, payload, work.token))]
            self._package = None

    def add(self, number: int, parts: Sequence[Key], chunks: Chunks | None) -> None:
        """Add a task of the graph, with the keys of the parts that it needs, where these do not come in another way,
        and the chunks of its block where it gets one."""
        task = self._tasks[number]
        pooled = bool(self._pool and task.groups)
        if chunks is not None:
            self.task_graph.include(chunks.tasks, task.home)
        sources = list(dict.fromkeys(ref.task for ref in task.inputs))
        places = {source: at for at, source in enumerate(sources)}
        step = Step(
            call=task.call,
            values=task.values,
            block=task.block,
            updates=task.updates,
            package=self._package,
            parts=tuple(self._carried[group] for group in task.needed) if self._carried else (),
            groups=task.groups if pooled else _places(task),
            pool=None if pooled else len(parts),
            chunks=0 if chunks is None else len(chunks.keys),
            picks=tuple((places[ref.task], ref.at) for ref in task.inputs),
        )
        computed = [] if chunks is None else chunks.keys
        given = [*self._given, *(self._pool if pooled else parts), *computed]
        inputs = [*given, *(self.names[source] for source in sources)]
        self.task_graph.add(self.names[number], step, inputs, task.home)

    def _name(self, task: Node, number: int) -> Key:
        """Steps that progress counts have the name of the pass on Dask's dashboard, others that of their function."""
        own = "" if task.steps else f"{task.call.__name__}-"
        return (f"{self.work.pass_.name}-{own}{self.work.token}", number)


def _places(task: Node) -> tuple[int | Sequence[int], ...]:
    """Where among the parts that it needs a task finds those of its groups."""
    at = {group: place for place, group in enumerate(task.needed)}
    return tuple(at[own] if isinstance(own, int) else tuple(at[one] for one in own) for own in task.groups)
