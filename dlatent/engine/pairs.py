"""Passes in which blocks meet blocks: over pairs (see `passes.Pairs`) and over tiles (`passes.Tiles`).

A task meets several groups of blocks with several others, one pair of groups after the other, so that it holds a group,
two blocks of the other, and the values of its own blocks, which should be thin: as many rows as the block, and few
columns.  Blocks are read through the cache.  Thin rows that belong to the blocks lie in the parameters, which travel
once for each process; a function finds those of a block at `block.start`.

In a mutual pass the values of all groups lie on the workers until the end, where in the other kind they come and go
group by group.  Those of the groups that a task meets join first among themselves (`order.stretches`): with every group
a value of its own, what travels would grow with the number of groups squared.

In a pass over tiles what two groups make of each other is an entry of the result: where the driver wants a symmetric
matrix, half of it travels, and once.

Law: like every pass, the result depends to the last bit on the blocks alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations, combinations_with_replacement
from time import perf_counter
from typing import Any, NamedTuple, cast

from dlatent.arrays import Block
from dlatent.blas import pinned
from dlatent.engine.cache import owned
from dlatent.engine.fold import Share, Tally, Work, read_ahead
from dlatent.engine.group import Group
from dlatent.engine.task_graph import Draft, Layout, Ref, TaskGraph
from dlatent.order import FAN_IN, FEWEST_STRIPS, stretches
from dlatent.passes import Pairs

MOST_HOSTS = 8
"""Groups with which others meet in one task, where a task has all its groups in memory at once."""
ENOUGH_STRIPS = 4096
"""From so many meetings on a strip has several of them, also where a worker has few groups."""


def pairs_graph(layout: Layout) -> TaskGraph:
    """Every group meets the groups in their order, all in one task; or where they are heavy, several at a time meet
    several others, in a chain of tasks that hands their values on."""
    draft, every = Draft(), range(len(layout.homes))
    cut = stretches(len(every)) if layout.heavy else [range(group, group + 1) for group in every]

    def values(groups: range) -> Ref:
        share, home = tuple[Ref, ...](), layout.homes[groups[0]]
        for met in cut if layout.heavy else [every]:
            ref = draft.add(meet, groups=(groups, met), inputs=share, home=home, steps=len(groups) * len(met))
            share = (ref,)
        return share[0]

    return draft.tree(_each(cut, values).__getitem__, len(every))


def mutual_graph(layout: Layout) -> TaskGraph:
    """Every two groups meet once, and where there are many, several with several; tasks of those add what they gain, a
    few meetings at a time and in order."""
    draft, cut, gains = Draft(), stretches(len(layout.homes)), defaultdict[range, list[Ref]](list)
    place = pair_places([layout.homes[groups[0]] for groups in cut])
    for one, other in meetings(len(cut)):
        groups, met = cut[one], cut[other]
        steps = len(meetings(len(groups))) if one == other else len(groups) * len(met)
        ref = draft.add(meet_once, groups=(groups, met), home=place(one, other), steps=steps)
        for side, number in enumerate(sorted({one, other})):
            gains[cut[number]].append(ref._replace(at=side))

    def last(groups: range) -> Ref:
        share, gained, home = tuple[Ref, ...](), gains[groups], layout.homes[groups[0]]
        for at in range(0, len(gained), FAN_IN):  # few, as they wait in memory; several, as each time is a task
            share = (draft.add(gain, inputs=(*share, *gained[at : at + FAN_IN]), home=home, updates=True),)
        return draft.add(finish, groups=(groups,), inputs=share, home=home, updates=True)

    return draft.tree(_each(cut, last).__getitem__, len(layout.homes))


def _each(cut: Sequence[range], make: Callable[[range], Ref]) -> list[Ref]:
    """The share of each group, from tasks that give those of several."""
    shares = list(map(make, cut))
    return [share._replace(at=at) for share, groups in zip(shares, cut, strict=True) for at in range(len(groups))]


def tiles_graph(layout: Layout) -> TaskGraph:
    """Groups meet several of a worker's own groups in one task; the results come to the caller as they are made: joined
    on the way, all of them would lie on one worker."""
    draft, refs, guests, hosts = Draft(), list[Ref](), None, None
    if layout.heavy:
        guests, hosts = len(stretches(len(layout.homes))[0]), MOST_HOSTS
    for strip in strips(layout.homes, layout.threads, guests, hosts):
        resident, groups = layout.homes[strip.guests[0]] == strip.home, (strip.guests, strip.hosts)
        refs.append(draft.add(tiles, values=(resident,), groups=groups, home=strip.home, steps=strip.meetings))
    return TaskGraph(tuple(draft.tasks), tuple(refs), singly=True)


def meetings(groups: int) -> list[tuple[int, int]]:
    """Every two of so many groups, and each with itself."""
    return list(combinations_with_replacement(range(groups), 2))


def _pairs(work: Work) -> Pairs:
    return cast(Pairs, work.pass_.exchange)


def _called(work: Work, one: Any, other: Any) -> Any:
    """The result of the pass function for two blocks, or two lists of blocks."""
    function: Any = work.pass_.map
    return function(one, other, work.pass_.parameters)


def meet(
    work: Work, groups: Sequence[Group], others: Sequence[Group], shares: tuple[Share, ...] | None = None
) -> tuple[Share, ...]:
    """The share of each of some groups (a value for each of its blocks) after they have met more groups; after the
    last, the results.

    The shares before stay as they are: the scheduler may need them again after a worker is lost.
    """
    before = [None] * len(groups) if shares is None else shares
    return tuple(_meet(work, group, others, share) for group, share in zip(groups, before, strict=True))


def _meet(work: Work, group: Group, others: Sequence[Group], share: Share | None) -> Share:
    started = perf_counter()
    values, tally = ((), Tally()) if share is None else (owned(share[0]), share[1])
    with pinned():
        mine, spent = _taken(work, group, first=group.in_memory and work.first and share is None)
        tally = tally.plus(spent)
        for other in others:
            if other.index == group.index:
                for block in mine:
                    values = _met(work, mine, block, values)
                continue
            for block, cost in read_ahead(work, other):
                values = _met(work, mine, block, values)
                tally = tally.plus(cost)
                del block
        if others[-1].index < work.groups - 1:
            return values, tally.since(started)
        function = _pairs(work).finish
        if function is not None:
            values = tuple(function(block, v, work.pass_.parameters) for block, v in zip(mine, values, strict=True))
    return _result(work, values), tally.since(started)


def meet_once(work: Work, groups: Sequence[Group], others: Sequence[Group]) -> tuple[Share, ...]:
    """Shares of some groups and some others, values for each of their blocks, from their meetings: two, or one
    where both are the same groups."""
    started, tally = perf_counter(), Tally()
    gained = dict[int, Any]()
    same = others[0].index == groups[0].index

    function: Any = work.pass_.map

    def introduce(a: Block, b: Block) -> None:
        left, right = function(a, b, work.pass_.parameters)
        for number, value in {b.index: right, a.index: left}.items():  # a block that meets itself takes the first
            # As in every fold, the first value may alias cached blocks or the parameters.
            gained[number] = _pairs(work).along(gained[number], value) if number in gained else owned(value)

    with pinned():
        for number, group in enumerate(groups):
            mine, spent = _taken(work, group, first=group.in_memory and work.first and same)
            tally = tally.plus(spent)
            for at, block in enumerate(mine if same else ()):
                for later in mine[at:]:
                    introduce(block, later)
            for other in groups[number + 1 :] if same else others:
                for block, cost in read_ahead(work, other):
                    for one in mine:
                        introduce(one, block)
                    tally = tally.plus(cost)
                    del block
            del mine  # before the blocks of the next group are read
    sides = [groups] if same else [groups, others]
    values = [tuple(gained[group.first + at] for group in side for at in range(len(group.blocks))) for side in sides]
    return tuple(zip(values, (tally.since(started), Tally()), strict=False))


def tiles(work: Work, resident: bool, guests: Sequence[Group], hosts: Sequence[Group]) -> Share:
    """Results of each of some groups and each of several others, maybe itself, for a pass over tiles: by
    their numbers, what the two make of each other.  The blocks of guests that are not `resident` are not kept."""
    started, tally, entries = perf_counter(), Tally(), dict[tuple[int, int], Any]()
    of_guests = work if resident else replace(work, pass_=replace(work.pass_, cached=False))
    with pinned():
        for guest in guests:
            first = guest.in_memory and work.first and any(host.index == guest.index for host in hosts)
            theirs, spent = _taken(of_guests, guest, first=first)
            for number, host in enumerate(hosts):
                # The blocks of a guest are in memory when it meets the second host.
                cost = spent if number == 0 else Tally(blocks=len(guest.blocks), cached=len(guest.blocks))
                mine, more = (theirs, Tally()) if host.index == guest.index else _taken(work, host)
                tally = tally.plus(cost).plus(more)
                left, right = (mine, theirs) if host.index < guest.index else (theirs, mine)
                pair = min(host.index, guest.index), max(host.index, guest.index)
                entries[pair] = owned(_called(work, left, right))
                del mine, left, right  # before the blocks of the next host are read
            del theirs
    return entries, tally.since(started)


def _taken(work: Work, group: Group, *, first: bool = False) -> tuple[list[Block], Tally]:
    """All blocks of a group, and what they cost; `first` counts those that lie in memory as read."""
    blocks, tally = list[Block](), Tally()
    for block, cost in read_ahead(work, group, first=first):
        blocks.append(block)
        tally = tally.plus(cost)
    return blocks, tally


def gain(work: Work, *shares: Share) -> Share:
    """The share of a group with what it gained in more meetings, in their order; the first, to which the others are
    added, is given up."""
    (values, tally), *others = shares
    for gained, cost in others:
        values = tuple(_pairs(work).along(value, new) for value, new in zip(values, gained, strict=True))
        tally = tally.plus(cost)
    return values, tally


def finish(work: Work, groups: Sequence[Group], share: Share) -> tuple[Share, ...]:
    """Results of each of some groups, from the values of all their blocks when they have met all others."""
    (every, tally), shares, function = share, list[Share](), _pairs(work).finish
    for group in groups:
        started, values = perf_counter(), list(every[: len(group.blocks)])
        every = every[len(group.blocks) :]
        if function is not None:
            with pinned():
                for position, (block, cost) in enumerate(read_ahead(work, group)):
                    values[position] = function(block, values[position], work.pass_.parameters)
                    tally = tally.plus(cost)
                    del block
        shares.append((_result(work, tuple(values)), tally.since(started)))
        tally = Tally()
    return tuple(shares)


def _met(work: Work, mine: list[Block], other: Block, before: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of a group's blocks after they have met one more block."""
    values = list[Any]()
    for at, block in enumerate(mine):
        value = _called(work, block, other)
        # The first values may alias cached blocks or the parameters, and `along` may update them in place.
        values.append(_pairs(work).along(before[at], value) if before else owned(value))
    return tuple(values)


def _result(work: Work, values: tuple[Any, ...]) -> Any:
    """The result of a group, from the values of its blocks when they have met all others."""
    return values if _pairs(work).listed else reduce(work.pass_.combine, values)


def pair_places(homes: Sequence[str]) -> Callable[[int, int], str]:
    """Where two groups meet that meet once, by their numbers: at the home of one of them.

    A worker meets the groups of half of the workers, those that follow it in a ring, so that it reads little more than
    half of the data, and all have equally much to do.  Where the number of workers is even, two that face each other
    share the meetings of their groups.
    """
    number = {home: at for at, home in enumerate(dict.fromkeys(homes))}
    ranks = [homes[:group].count(home) for group, home in enumerate(homes)]

    def place_of(group: int, other: int) -> str:
        if number[homes[group]] > number[homes[other]]:
            group, other = other, group
        steps = number[homes[other]] - number[homes[group]]
        if 2 * steps == len(number):
            return homes[group if ranks[other] % 2 else other]
        return homes[group if 2 * steps < len(number) else other]

    return place_of


class Strip(NamedTuple):
    """Meetings of one group after the other with all hosts, at their home; the guests may be at home there, too."""

    home: str
    guests: tuple[int, ...]
    hosts: tuple[int, ...]

    @property
    def meetings(self) -> int:
        """Their number."""
        return len(self.guests) * len(self.hosts)


def strips(
    homes: Sequence[str], threads: Mapping[str, int], guests: int | None = None, hosts: int | None = None
) -> list[Strip]:
    """All meetings of every two groups, which meet once, in the order in which they should begin: a worker has its own
    groups in memory, and reads one of the others at a time for all that it meets there.

    Parameters: `homes`, of each group; `threads` of each worker; `guests` and `hosts`, the most in a strip.
    """
    wide, loads = list(_wide_strips(homes, hosts or len(homes))), Counter[str]()
    for strip in wide:
        loads[strip.home] += strip.meetings
    enough, cut = -(-loads.total() // ENOUGH_STRIPS), list[Strip]()
    for home, visitors, residents in wide:
        most = -(-loads[home] // (FEWEST_STRIPS * threads.get(home, 1)))
        width = min(most, hosts or most)
        for at in range(0, len(residents), width):
            met = residents[at : at + width]
            each = max(1, min(most, enough) // len(met))
            each = min(each, guests or each)
            cut += [Strip(home, visitors[first : first + each], met) for first in range(0, len(visitors), each)]
    cut.sort(key=lambda strip: -strip.meetings)  # at the end short ones leave threads without work for less long
    return cut


def _wide_strips(homes: Sequence[str], widest: int) -> Iterator[Strip]:
    """All meetings, as few strips: of all groups of two workers at a time, and of those of one worker."""
    place, members = pair_places(homes), defaultdict[str, list[int]](list)
    for group, home in enumerate(homes):
        members[home].append(group)
    for (home, groups), (later, others) in combinations(members.items(), 2):
        guests = tuple(other for other in others if place(groups[0], other) == home)
        hosts = tuple(other for other in others if other not in guests)
        if guests:
            yield Strip(home, guests, tuple(groups))
        if hosts:
            yield Strip(later, tuple(groups), hosts)
    for home, groups in members.items():
        for at in range(0, len(groups), widest):
            hosts, rest = tuple(groups[at : at + widest]), tuple(groups[at + widest :])
            yield from (Strip(home, (guest,), hosts[: number + 1]) for number, guest in enumerate(hosts))
            if rest:
                yield Strip(home, rest, hosts)
