"""The work of passes in which blocks meet blocks: over pairs (see `passes.Pairs`) and over tiles (`passes.Tiles`).

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

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations_with_replacement
from time import perf_counter
from typing import Any, cast

from dlatent.arrays import Block
from dlatent.blas import pinned
from dlatent.engine.cache import owned
from dlatent.engine.fold import Share, Tally, Work, read_ahead
from dlatent.engine.group import Part
from dlatent.passes import Pairs


def meetings(groups: int) -> list[tuple[int, int]]:
    """Every two of so many groups, and each with itself."""
    return list(combinations_with_replacement(range(groups), 2))


def _pairs(work: Work) -> Pairs:
    return cast(Pairs, work.pass_.meeting)


def _called(work: Work, own: Any, other: Any) -> Any:
    """What two blocks, or two lists of blocks, make of each other."""
    function: Any = work.pass_.map
    return function(own, other, work.pass_.parameters)


def meet(
    work: Work, owns: Sequence[Part], others: Sequence[Part], shares: tuple[Share, ...] | None = None
) -> tuple[Share, ...]:
    """The share of each of some parts (a value for each of its blocks) after they have met more parts; after the last,
    the results.

    The shares before stay as they are: the scheduler may need them again after a worker is lost.
    """
    before = [None] * len(owns) if shares is None else shares
    return tuple(_meet(work, own, others, share) for own, share in zip(owns, before, strict=True))


def _meet(work: Work, own: Part, others: Sequence[Part], share: Share | None) -> Share:
    started = perf_counter()
    values, tally = ((), Tally()) if share is None else (owned(share[0]), share[1])
    with pinned():
        mine, spent = _taken(own, work, first=own.in_memory and work.first and share is None)
        tally = tally.plus(spent)
        for other in others:
            if other.index == own.index:
                for block in mine:
                    values = _met(mine, block, values, work)
                continue
            for block, cost in read_ahead(other, work):
                values = _met(mine, block, values, work)
                tally = tally.plus(cost)
                del block
        if others[-1].index < work.groups - 1:
            return values, tally.since(started)
        function = _pairs(work).finish
        if function is not None:
            values = tuple(function(block, v, work.pass_.parameters) for block, v in zip(mine, values, strict=True))
    return _result(values, work), tally.since(started)


def meet_once(work: Work, owns: Sequence[Part], others: Sequence[Part]) -> tuple[Share, ...]:
    """What some parts and some others, values for each of their blocks, gain from their meetings: two shares, or one
    where both are the same parts."""
    started, tally = perf_counter(), Tally()
    gained = dict[int, Any]()
    same = others[0].index == owns[0].index

    def give(block: Block, value: Any) -> None:
        known = block.index in gained
        # As in every fold, the first value may alias cached blocks or the parameters.
        gained[block.index] = _pairs(work).along(gained[block.index], value) if known else owned(value)

    def introduce(a: Block, b: Block) -> None:
        left, right = _called(work, a, b)
        give(a, left)
        if a.index != b.index:
            give(b, right)

    with pinned():
        for number, own in enumerate(owns):
            mine, spent = _taken(own, work, first=own.in_memory and work.first and same)
            tally = tally.plus(spent)
            for at, block in enumerate(mine if same else ()):
                for later in mine[at:]:
                    introduce(block, later)
            for other in owns[number + 1 :] if same else others:
                for block, cost in read_ahead(other, work):
                    for one in mine:
                        introduce(one, block)
                    tally = tally.plus(cost)
                    del block
            del mine  # before the blocks of the next part are read
    sides = [owns] if same else [owns, others]
    values = [tuple(gained[part.first + at] for part in side for at in range(len(part.blocks))) for side in sides]
    return tuple(zip(values, (tally.since(started), Tally()), strict=False))


def tiles(work: Work, resident: bool, guests: Sequence[Part], hosts: Sequence[Part]) -> Share:
    """What each of some parts and each of several others, among which it may be itself, give to a pass over tiles: by
    their numbers, what the two make of each other.  The blocks of guests that are not `resident` are not kept."""
    started, tally, found = perf_counter(), Tally(), dict[tuple[int, int], Any]()
    with pinned():
        for guest in guests:
            first = guest.in_memory and work.first and any(host.index == guest.index for host in hosts)
            theirs, spent = _taken(guest, work if resident else _uncached(work), first=first)
            for number, host in enumerate(hosts):
                # The blocks of a guest are in memory when it meets the second host.
                cost = spent if number == 0 else Tally(0, len(guest.blocks), len(guest.blocks))
                same = host.index == guest.index
                mine, more = (theirs, Tally()) if same else _taken(host, work)
                tally = tally.plus(cost).plus(more)
                own, other = (mine, theirs) if host.index < guest.index else (theirs, mine)
                pair = min(host.index, guest.index), max(host.index, guest.index)
                found[pair] = owned(_called(work, own, other))
                del mine, own, other  # before the blocks of the next host are read
            del theirs
    return found, tally.since(started)


def _taken(part: Part, work: Work, *, first: bool = False) -> tuple[list[Block], Tally]:
    """All blocks of a part, and what they cost; `first` counts those that lie in memory as read."""
    blocks, tally = list[Block](), Tally()
    for block, cost in read_ahead(part, work, first=first):
        blocks.append(block)
        tally = tally.plus(cost)
    return blocks, tally


def _uncached(work: Work) -> Work:
    return replace(work, pass_=replace(work.pass_, cached=False))


def gain(work: Work, *shares: Share) -> Share:
    """The share of a part with what it gained in more meetings, in their order; the first, to which the others are
    added, is given up."""
    (values, tally), *others = shares
    for gained, cost in others:
        values = tuple(_pairs(work).along(value, new) for value, new in zip(values, gained, strict=True))
        tally = tally.plus(cost)
    return values, tally


def finish(work: Work, owns: Sequence[Part], share: Share) -> tuple[Share, ...]:
    """What each of some parts gives to the pass, from the values of all their blocks when they have met everybody."""
    (values, tally), found, function = share, list[Share](), _pairs(work).finish
    for own in owns:
        started, made = perf_counter(), list(values[: len(own.blocks)])
        values = values[len(own.blocks) :]
        if function is not None:
            with pinned():
                for position, (block, cost) in enumerate(read_ahead(own, work)):
                    made[position] = function(block, made[position], work.pass_.parameters)
                    tally = tally.plus(cost)
                    del block
        found.append((_result(tuple(made), work), tally.since(started)))
        tally = Tally()
    return tuple(found)


def _met(mine: list[Block], other: Block, values: tuple[Any, ...], work: Work) -> tuple[Any, ...]:
    """The values of a part's blocks after they have met one more block."""
    found = list[Any]()
    for at, block in enumerate(mine):
        value = _called(work, block, other)
        # The first values may alias cached blocks or the parameters, and `along` may update them in place.
        found.append(_pairs(work).along(values[at], value) if values else owned(value))
    return tuple(found)


def _result(values: tuple[Any, ...], work: Work) -> Any:
    """What a part's blocks give to the pass, from their values when they have met everybody."""
    return values if _pairs(work).listed else reduce(work.pass_.combine, values)
