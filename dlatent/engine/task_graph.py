"""The tasks of a pass: what is done with which groups, where, and what becomes of the results.

A graph is a function of the pass, the groups and the places where they lie.  It does not depend on the clock, and it
knows nothing of Dask: executors run it (`executor`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

from dlatent.engine import exchange, fold, pairs
from dlatent.engine.pairs import meetings
from dlatent.engine.placement import Strip, meeting_places, strips
from dlatent.order import FAN_IN, branches, reduce_tree, stretches
from dlatent.passes import Edges, Pairs, Pass, Tiles

BUNDLE_BYTES = 512_000_000
"""Bytes of blocks that one task works through at most, where it takes several groups: a task costs what a few messages
do, more than the work on a small group."""
MOST_HOSTS = 8
"""Groups with which others meet in one task, where a task has all its groups in memory at once."""


ANYWHERE = ""
"""The home of a task that any worker may run."""


class Ref(NamedTuple):
    """The result of a task, or, where that is a tuple, one entry of it."""

    task: int
    at: int | None = None


@dataclass(frozen=True, eq=False, slots=True)
class TaskNode:
    """`call(work, *values, *parts, [features], *results)`, where `work` is the pass under way.

    Parameters
    ----------
    call : a function of `fold`, `exchange` or `pairs`.
    values : few and small ones.
    groups : the numbers of the groups whose parts it gets; for several numbers it gets a list of parts.
    block : the number of the block within the group that somebody else has computed, whose features it gets.
    inputs : the results that it gets.
    home : the worker that it should run on; a preference.
    steps : what it adds to a display of progress.
    updates : it changes the first of its inputs in place.
    """

    call: Callable[..., Any]
    values: tuple[Any, ...] = ()
    groups: tuple[int | Sequence[int], ...] = ()
    block: int | None = None
    inputs: tuple[Ref, ...] = ()
    home: str = ANYWHERE
    steps: int = 0
    updates: bool = False

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

    def shifted(self, by: int) -> TaskGraph:
        """The same for groups of numbers so much higher."""
        tasks = (
            replace(task, groups=tuple(g + by if isinstance(g, int) else [one + by for one in g] for g in task.groups))
            for task in self.tasks
        )
        return replace(self, tasks=tuple(tasks))

    @property
    def steps(self) -> int:
        """What a display of progress counts to."""
        return sum(task.steps for task in self.tasks)


@dataclass(frozen=True)
class Layout:
    """Where the groups of a source lie.

    Parameters
    ----------
    nbytes : bytes of the blocks of each group.
    blocks : number of blocks of each group.
    homes : the worker whose cache keeps each group; all alike in one process, `ANYWHERE` where nothing is kept.
    threads : of each worker.
    computed : the blocks are computed anew by other tasks in every pass, so that each block is a task of its own.
    bundled : a task may take several groups of its worker.
    heavy : a task has all blocks of its groups in memory at once, as they travel with the descriptions of the groups.
    """

    nbytes: tuple[int, ...]
    blocks: tuple[int, ...]
    homes: tuple[str, ...]
    threads: Mapping[str, int]
    computed: bool = False
    bundled: bool = False
    heavy: bool = False

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.homes)

    def only(self, groups: range) -> Layout:
        """The same of some consecutive groups, which are numbered from 0."""
        own = slice(groups.start, groups.stop)
        return replace(self, nbytes=self.nbytes[own], blocks=self.blocks[own], homes=self.homes[own])


def pass_graph(
    pass_: Pass[Any, Any], layout: Layout, needs: Sequence[Sequence[int]] = (), stage: range | None = None
) -> TaskGraph:
    """The tasks of a pass; `needs[g]` are the groups that group g has edges to, where rows meet their neighbours.

    `stage` are the groups below one node of the tree, where the result of that is asked for, of blocks that do not
    meet.
    """
    if stage is not None:
        return _joined(layout.only(stage)).shifted(stage.start)
    match pass_.meeting:
        case Edges(hops=hops, features=features):
            return _over_edges(layout, needs, hops, features)
        case Pairs(mutual=True):
            return _over_pairs_once(layout)
        case Pairs():
            return _over_pairs(layout)
        case Tiles():
            return _over_tiles(layout)
    return _joined(layout)


def rows_graph(layout: Layout) -> TaskGraph:
    """The tasks of a pass whose results are not joined: one for each group, in any order."""
    draft = _Draft(layout)
    return draft.task_graph(map(draft.fold, range(layout.groups)), singly=True)


def survey_graph(layout: Layout) -> TaskGraph:
    """The tasks that count the neighbours of each group."""
    draft = _Draft(layout)
    return draft.task_graph(
        draft.add(TaskNode(exchange.count_neighbours, groups=(group,), home=home))
        for group, home in enumerate(layout.homes)
    )


def block_graph(layout: Layout, group: int, position: int) -> TaskGraph:
    """The task that gives the result of one block of a group alone."""
    draft, home = _Draft(layout), layout.homes[group]
    if layout.computed:
        return draft.task_graph([draft.add(TaskNode(fold.fold_block, (position,), (group,), position, home=home))])
    return draft.task_graph([draft.add(TaskNode(fold.map_block, (position,), (group,), home=home))])


class _Draft:
    """A graph in the making."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._tasks: list[TaskNode] = []
        self._joins: list[int] = []

    def add(self, task: TaskNode) -> Ref:
        self._tasks.append(task)
        return Ref(len(self._tasks) - 1)

    def join(self, shares: Iterable[Ref]) -> Ref:
        ref = self.add(TaskNode(fold.join, inputs=tuple(shares), updates=True))
        self._joins.append(ref.task)
        return ref

    def tree(self, leaf: Callable[[int], Ref], made: Mapping[range, Ref] | None = None) -> TaskGraph:
        """The graph whose result are the shares of all groups, joined."""
        return self.task_graph([reduce_tree(leaf, self.join, self.layout.groups, made)])

    def task_graph(self, results: Iterable[Ref], *, singly: bool = False) -> TaskGraph:
        wanted = tuple(results)
        return TaskGraph(tuple(self._tasks), wanted, tuple(self._joins), singly)

    def fold(self, group: int) -> Ref:
        """The task that folds a group, or a chain of tasks where each block is computed first."""
        home = self.layout.homes[group]
        if self.layout.computed:
            return self.chain(fold.fold_block, group)
        return self.add(TaskNode(fold.run_part, groups=(group,), home=home, steps=1))

    def chain(self, call: Callable[..., Any], group: int, inputs: tuple[Ref, ...] = ()) -> Ref:
        """A task for each block of a group, which takes the share of those before it along."""
        share, home, last = tuple[Ref, ...](), self.layout.homes[group], self.layout.blocks[group] - 1
        for position in range(last + 1):
            task = TaskNode(call, (position,), (group,), position, (*inputs, *share), home, int(position == last))
            share = (self.add(task),)
        return share[0]


def _joined(layout: Layout) -> TaskGraph:
    draft = _Draft(layout)
    if not layout.bundled:
        return draft.tree(draft.fold)
    made = dict[range, Ref]()
    for home, own in _bundles(layout):
        nodes = branches(own, layout.groups)
        sizes = tuple(map(len, nodes))
        ref = draft.add(TaskNode(fold.fold_parts, (sizes,), tuple(own), home=home, steps=len(own)))
        made.update((node, Ref(ref.task, at)) for at, node in enumerate(nodes))
    return draft.tree(lambda group: made[range(group, group + 1)], made)


def _bundles(layout: Layout) -> list[tuple[str, list[int]]]:
    """The groups of each task and its worker: one task for each thread, more where that would be too many bytes."""
    found = list[tuple[str, list[int]]]()
    for home in dict.fromkeys(layout.homes):
        own = [group for group, at in enumerate(layout.homes) if at == home]
        each = -(-len(own) // layout.threads.get(home, 1))
        room = BUNDLE_BYTES // max(1, *(layout.nbytes[group] for group in own))
        if each > room:  # whole nodes of the tree, where they fit
            each = max(1, room - room % FAN_IN if room > FAN_IN else room)
        found += [(home, own[start : start + each]) for start in range(0, len(own), each)]
    return found


def _over_edges(layout: Layout, needs: Sequence[Sequence[int]], hops: int, features: bool) -> TaskGraph:
    """Every group sends rows to the workers whose groups have edges to them, once or several times, and is folded."""
    draft = _Draft(layout)
    members = defaultdict[str, list[int]](list)
    for group, home in enumerate(layout.homes):
        members[home].append(group)
    wanted = {home: sorted({near for group in own for near in needs[group]}) for home, own in members.items()}

    def packed(rows: Sequence[Ref]) -> dict[str, tuple[Ref, ...]]:
        """For each worker, what it gets from every worker, itself among them."""
        found = defaultdict[str, list[Ref]](list)
        for home, near in wanted.items():
            for sender in members:
                own = tuple(group for group in near if layout.homes[group] == sender)
                if own:
                    inputs = tuple(rows[group] for group in own)
                    found[home].append(draft.add(TaskNode(exchange.pack, (own,), inputs=inputs, home=sender)))
        return {home: tuple(found[home]) for home in members}

    def project(group: int) -> Ref:
        home = layout.homes[group]
        if not layout.computed:
            return draft.add(TaskNode(exchange.project, groups=(group,), home=home))
        blocks = tuple(
            draft.add(TaskNode(exchange.project_block, (position,), (group,), position, home=home))
            for position in range(layout.blocks[group])
        )
        return draft.add(TaskNode(exchange.stack_blocks, groups=(group,), inputs=blocks, home=home))

    first = [project(group) for group in range(layout.groups)]
    last, near = first, packed(first)
    for hop in range(1, hops):
        last = [
            draft.add(TaskNode(exchange.spread, (hop,), (group,), inputs=(own, rows, *near[home]), home=home))
            for group, (home, own, rows) in enumerate(zip(layout.homes, first, last, strict=True))
        ]
        near = packed(last)

    def leaf(group: int) -> Ref:
        home = layout.homes[group]
        inputs = (first[group], last[group], *near[home])
        if not features:
            return draft.add(TaskNode(exchange.fold_rows, groups=(group,), inputs=inputs, home=home, steps=1))
        if not layout.computed:
            return draft.add(TaskNode(exchange.fold, groups=(group,), inputs=inputs, home=home, steps=1))
        met = draft.add(TaskNode(exchange.meet, groups=(group,), inputs=inputs, home=home))
        return draft.chain(exchange.fold_met_block, group, (met,))

    return draft.tree(leaf)


def _over_pairs(layout: Layout) -> TaskGraph:
    """Every group meets the groups in their order, all in one task; or where they are heavy, several at a time meet
    several others, in a chain of tasks that hands their values on."""
    draft = _Draft(layout)
    cut = stretches(layout.groups) if layout.heavy else [range(group, group + 1) for group in range(layout.groups)]
    others = cut if layout.heavy else [range(layout.groups)]

    def values(own: range) -> Ref:
        share, home = tuple[Ref, ...](), layout.homes[own[0]]
        for met in others:
            task = TaskNode(pairs.meet, groups=(own, met), inputs=share, home=home, steps=len(own) * len(met))
            share = (draft.add(task),)
        return share[0]

    return draft.tree(_each(cut, values))


def _over_pairs_once(layout: Layout) -> TaskGraph:
    """Every two groups meet once, and where there are many, several with several; tasks of those add what they gain, a
    few meetings at a time and in order."""
    draft, cut = _Draft(layout), stretches(layout.groups)
    homes = [layout.homes[own[0]] for own in cut]
    place, shares, waiting = meeting_places(homes), dict[range, Ref](), defaultdict[range, list[Ref]](list)

    def collect(own: range, home: str) -> None:
        before = (shares.pop(own),) if own in shares else ()
        inputs = (*before, *waiting.pop(own))
        shares[own] = draft.add(TaskNode(pairs.gain, inputs=inputs, home=home, updates=True))

    def last(own: range) -> Ref:
        home = layout.homes[own[0]]
        if own in waiting:
            collect(own, home)
        return draft.add(TaskNode(pairs.finish, groups=(own,), inputs=(shares.pop(own),), home=home, updates=True))

    for one, other in meetings(len(cut)):
        own, met = cut[one], cut[other]
        steps = len(meetings(len(own))) if one == other else len(own) * len(met)
        ref = draft.add(TaskNode(pairs.meet_once, groups=(own, met), home=place(one, other), steps=steps))
        for side, number in enumerate(sorted({one, other})):
            waiting[cut[number]].append(ref._replace(at=side))
            if len(waiting[cut[number]]) == FAN_IN:  # few, as they wait in memory; several, as each time is a task
                collect(cut[number], homes[number])
    return draft.tree(_each(cut, last))


def _each(cut: Sequence[range], make: Callable[[range], Ref]) -> Callable[[int], Ref]:
    """The share of each group, from tasks that give those of several; asked for in the order of the groups."""
    made = dict[range, Ref]()

    def leaf(group: int) -> Ref:
        own = cut[group // len(cut[0])]
        if own not in made:
            made[own] = make(own)
        return made[own]._replace(at=group - own[0])

    return leaf


def _over_tiles(layout: Layout) -> TaskGraph:
    """Groups meet several of a worker's own groups in one task; the results come to the caller as they are made: joined
    on the way, all of them would lie on one worker."""
    draft, guests, hosts = _Draft(layout), None, None
    if layout.heavy:
        guests, hosts = len(stretches(layout.groups)[0]), MOST_HOSTS

    def task(strip: Strip) -> TaskNode:
        resident = layout.homes[strip.guests[0]] == strip.home
        groups = (strip.guests, strip.hosts)
        return TaskNode(pairs.tiles, (resident,), groups, home=strip.home, steps=strip.meetings)

    cut = strips(layout.homes, layout.threads, guests, hosts)
    return draft.task_graph([draft.add(task(strip)) for strip in cut], singly=True)
