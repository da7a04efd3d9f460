"""The tasks of a pass: what is done with which groups, where, and what becomes of the results.

A task graph is a function of the pass, the groups and the places where they lie.  It does not depend on the clock, and
it knows nothing of Dask: executors run it (`executor`).  Here are the graphs of blocks that do not meet; those of other
exchange patterns stand beside the functions that they call (`edges`, `pairs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from dlatent.engine import fold
from dlatent.order import FAN_IN, branches, reduce_tree

BUNDLE_BYTES = 512_000_000
"""Bytes of blocks that one task works through at most, where it takes several groups: a task costs what a few messages
do, more than the work on a small group."""
ANYWHERE = ""
"""The home of a task that any worker may run."""


class Ref(NamedTuple):
    """The result of a task, or, where that is a tuple, one entry of it."""

    task: int
    at: int | None = None


@dataclass(frozen=True, eq=False, slots=True)
class TaskNode:
    """`call(work, *values, *groups, *results)`, where `work` is the pass under way.

    Parameters
    ----------
    call : a function of `fold`, `edges` or `pairs`.
    values : few and small ones.
    groups : the numbers of the groups that it gets; for several numbers it gets a list of groups.
    inputs : the results that it gets.
    home : the worker that it should run on; a preference.
    steps : what it adds to a display of progress.
    updates : it changes the first of its inputs in place.
    reads : it reads the blocks of its groups.
    """

    call: Callable[..., Any]
    values: tuple[Any, ...] = ()
    groups: tuple[int | Sequence[int], ...] = ()
    inputs: tuple[Ref, ...] = ()
    home: str = ANYWHERE
    steps: int = 0
    updates: bool = False
    reads: bool = True

    @property
    def sources(self) -> list[int]:
        """The tasks whose results it gets, each once."""
        return list(dict.fromkeys(ref.task for ref in self.inputs))

    @property
    def needed(self) -> list[int]:
        """All of its groups, each once."""
        every = ([group] if isinstance(group, int) else group for group in self.groups)
        return list(dict.fromkeys(chain.from_iterable(every)))


@dataclass(frozen=True, eq=False)
class TaskGraph:
    """Tasks, each after those whose results it gets.

    `results` are what the caller wants; `joins` the tasks of the tree in which shares meet, of which the last makes the
    only result (none where the results are not joined); `singly` that the results are large, and come to the caller one
    by one while others are made.
    """

    tasks: tuple[TaskNode, ...]
    results: tuple[Ref, ...]
    joins: tuple[int, ...] = ()
    singly: bool = False

    def without(self, joins: Sequence[int]) -> tuple[Ref, ...]:
        """The results that these joins ask of other tasks; without any, what the caller wants."""
        inside = set(joins)
        return tuple(ref for join in joins for ref in self.tasks[join].inputs if ref.task not in inside) or self.results

    @property
    def steps(self) -> int:
        """The number of steps of a progress bar."""
        return sum(task.steps for task in self.tasks)


@dataclass(frozen=True)
class Layout:
    """Where the groups of a source lie.

    Parameters
    ----------
    nbytes : bytes of the blocks of each group.
    homes : the worker whose cache keeps each group; all alike in one process, `ANYWHERE` where nothing is kept.
    threads : of each worker.
    bundled : a task may take several groups of its worker.
    heavy : a task has all blocks of its groups in memory at once, as they travel with the descriptions of the groups.
    """

    nbytes: tuple[int, ...]
    homes: tuple[str, ...]
    threads: Mapping[str, int]
    bundled: bool = False
    heavy: bool = False


@dataclass
class Draft:
    """A task graph in the making."""

    tasks: list[TaskNode] = field(default_factory=list)
    joins: list[int] = field(default_factory=list)

    def add(self, call: Callable[..., Any], **task: Any) -> Ref:
        """One more task, a `TaskNode`."""
        self.tasks.append(TaskNode(call, **task))
        return Ref(len(self.tasks) - 1)

    def join(self, shares: Iterable[Ref]) -> Ref:
        """The task in which shares meet."""
        ref = self.add(fold.join, inputs=tuple(shares), updates=True)
        self.joins.append(ref.task)
        return ref

    def tree(self, leaf: Callable[[int], Ref], leaves: int, known: Mapping[range, Ref] | None = None) -> TaskGraph:
        """The graph whose result are the shares of so many groups, joined."""
        result = reduce_tree(leaf, self.join, leaves, known)
        return TaskGraph(tuple(self.tasks), (result,), tuple(self.joins))


def joined_graph(layout: Layout, groups: range) -> TaskGraph:
    """The tasks that map and join the blocks of some groups: of all, or of those below one node of the tree."""
    draft, known = Draft(), dict[range, Ref]()
    for home, members in _bundles(layout, groups) if layout.bundled else ():
        nodes = branches([group - groups.start for group in members], len(groups))
        sizes = tuple(map(len, nodes))
        bundle = draft.add(fold.fold_groups, values=(sizes,), groups=tuple(members), home=home, steps=len(members))
        known.update((node, bundle._replace(at=at)) for at, node in enumerate(nodes))
    return draft.tree(
        lambda at: draft.add(fold.run_group, groups=(groups[at],), home=layout.homes[groups[at]], steps=1),
        len(groups),
        known,
    )


def _bundles(layout: Layout, groups: range) -> Iterator[tuple[str, list[int]]]:
    """The groups of each task and its worker: one task for each thread, more where that would be too many bytes."""
    for home in dict.fromkeys(layout.homes[group] for group in groups):
        members = [group for group in groups if layout.homes[group] == home]
        each = -(-len(members) // layout.threads.get(home, 1))
        room = BUNDLE_BYTES // max(1, *(layout.nbytes[group] for group in members))
        if each > room:  # whole nodes of the tree, where they fit
            each = max(1, room - room % FAN_IN if room > FAN_IN else room)
        yield from ((home, members[start : start + each]) for start in range(0, len(members), each))


def rows_graph(layout: Layout) -> TaskGraph:
    """The tasks of a pass whose results are not joined: one for each group, in any order."""
    draft = Draft()
    refs = [draft.add(fold.run_group, groups=(at,), home=home, steps=1) for at, home in enumerate(layout.homes)]
    return TaskGraph(tuple(draft.tasks), tuple(refs), singly=True)
