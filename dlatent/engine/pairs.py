"""The work of passes in which blocks meet blocks: over pairs (see `passes.Pairs`) and over tiles (`passes.Tiles`).

A task meets one group of blocks with one other, so that it holds a group, two blocks of the other, and the values of
its own blocks, which should be thin: as many rows as the block, and few columns.  Blocks are read through the cache.
Thin rows that belong to the blocks lie in the parameters, which travel once for each process; a function finds those of
a block at `block.start`.

In a mutual pass the values of all groups lie on the workers until the end, where in the other kind they come and go
group by group.  They join in the same order, those of a group of others first among themselves.

In a pass over tiles what two groups make of each other is an entry of the result: where the driver wants a symmetric
matrix, half of it travels, and once.  One group may meet several others, one after the other, before its blocks are
given up.

Law: like every pass, the result depends to the last bit on the blocks alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from itertools import combinations_with_replacement
from time import perf_counter
from typing import Any, cast

from dlatent.arrays import Block
from dlatent.blas import pinned
from dlatent.engine.malloc import kept
from dlatent.engine.part import Part, Share, Tally, Work, block_of, owned, read_ahead
from dlatent.passes import Pairs


def meetings(groups: int) -> list[tuple[int, int]]:
    """Every two of so many groups, and each with itself, in the order of the entries of a pass over tiles."""
    return list(combinations_with_replacement(range(groups), 2))


def _pairs(work: Work) -> Pairs:
    return cast(Pairs, work.pass_.meeting)


def _called(work: Work, own: Any, other: Any) -> Any:
    """What two blocks, or two lists of blocks, make of each other."""
    function: Any = work.pass_.map
    return function(own, other, work.pass_.parameters)


def meet(work: Work, own: Part, other: Part, share: Share | None = None) -> Share:
    """The share of a part (a value for each of its blocks) after it has met one more part; after the last, the result.

    The share before stays as it is: the scheduler may need it again after a worker is lost.
    """
    started = perf_counter()
    values, tally = ((), Tally()) if share is None else (owned(share[0]), share[1])
    first = own.in_memory and work.first and share is None
    with pinned(), kept():
        mine, spent = _taken(own, work, first=first)
        tally = tally.plus(spent)
        if other.index == own.index:
            for block in mine:
                values = _met(mine, block, values, work)
        else:
            for position, loaded in read_ahead(other, work):
                values = _met(mine, block_of(other, position, loaded.features), values, work)
                tally = tally.plus(loaded.cost())
                del loaded
        if other.index == work.groups - 1:
            values = _result(mine, values, work)
    return values, tally.since(started)


def meet_once(work: Work, own: Part, other: Part) -> tuple[Share, ...]:
    """The shares of two parts, values for each of their blocks, from their meeting; one share where both are one."""
    started = perf_counter()
    gained = dict[int, Any]()
    same = other.index == own.index

    def give(block: Block, value: Any) -> None:
        known = block.index in gained
        # As in every fold, the first value may alias cached blocks or the parameters.
        gained[block.index] = _pairs(work).along(gained[block.index], value) if known else owned(value)

    def introduce(a: Block, b: Block) -> None:
        left, right = _called(work, a, b)
        give(a, left)
        if a.index != b.index:
            give(b, right)

    with pinned(), kept():
        mine, tally = _taken(own, work, first=own.in_memory and work.first and same)
        if same:
            for at, block in enumerate(mine):
                for later in mine[at:]:
                    introduce(block, later)
        else:
            for position, loaded in read_ahead(other, work):
                block = block_of(other, position, loaded.features)
                for one in mine:
                    introduce(one, block)
                tally = tally.plus(loaded.cost())
                del loaded, block
    tally = tally.since(started)
    parts = [own] if same else [own, other]
    values = [tuple(gained[part.first + at] for at in range(len(part.blocks))) for part in parts]
    return tuple(zip(values, (tally, Tally()), strict=False))


def tiles(work: Work, resident: bool, guest: Part, *hosts: Part) -> tuple[Share, ...]:
    """What a part and each of several others, among which it may be itself, give to a pass over tiles: a tuple with
    what the two make of each other.  The blocks of a guest that is not `resident` are not kept after that."""
    started, found = perf_counter(), list[Share]()
    first = guest.in_memory and work.first and any(host.index == guest.index for host in hosts)
    with pinned(), kept():
        theirs, tally = _taken(guest, work if resident else _uncached(work), first=first)
        for host in hosts:
            same = host.index == guest.index
            mine, spent = (theirs, Tally()) if same else _taken(host, work)
            own, other = (mine, theirs) if host.index < guest.index else (theirs, mine)
            value = owned(_called(work, own, other))
            now = perf_counter()
            found.append(((value,), tally.plus(spent)._replace(busy_seconds=now - started)))
            started, tally = now, Tally(0, len(guest.blocks), len(guest.blocks))
            del mine, own, other  # before the blocks of the next host are read
    return tuple(found)


def _taken(part: Part, work: Work, *, first: bool = False) -> tuple[list[Block], Tally]:
    """All blocks of a part, and what they cost; `first` counts those that lie in memory as read."""
    blocks, tally = list[Block](), Tally()
    for position, loaded in read_ahead(part, work):
        blocks.append(block_of(part, position, loaded.features))
        tally = tally.plus(loaded.cost(first=first))
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


def finish(work: Work, own: Part, share: Share) -> Share:
    """What a part gives to the pass, from the values of its blocks when they have met everybody."""
    started = perf_counter()
    (values, tally), found = share, list[Any]()
    function = _pairs(work).finish
    if function is None:
        found = list(values)
    else:
        with pinned(), kept():
            for position, loaded in read_ahead(own, work):
                block = block_of(own, position, loaded.features)
                found.append(function(block, values[position], work.pass_.parameters))
                tally = tally.plus(loaded.cost())
                del loaded, block
    total = tuple(found) if _pairs(work).listed else reduce(work.pass_.combine, found)
    return total, tally.since(started)


def _met(mine: list[Block], other: Block, values: tuple[Any, ...], work: Work) -> tuple[Any, ...]:
    """The values of a part's blocks after they have met one more block."""
    found = (_called(work, block, other) for block in mine)
    if not values:
        # The first values may alias cached blocks or the parameters, and `along` may update them in place.
        return tuple(map(owned, found))
    return tuple(_pairs(work).along(value, new) for value, new in zip(values, found, strict=True))


def _result(mine: list[Block], values: tuple[Any, ...], work: Work) -> Any:
    """What a part's blocks give to the pass, from their values when they have met everybody."""
    found: Iterable[Any] = values
    finish = _pairs(work).finish
    if finish is not None:
        found = [finish(block, value, work.pass_.parameters) for block, value in zip(mine, values, strict=True)]
    return tuple(found) if _pairs(work).listed else reduce(work.pass_.combine, found)
