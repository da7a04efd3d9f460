"""A pass over pairs, in which every block meets every block, itself among them: for neighbours, or for a kernel.

    V_b = along(… along(meet(b, b₀; p), meet(b, b₁; p)) …, meet(b, b_n; p)),   result = finish(b, V_b; p)

A task meets one group of blocks with one other, so that it holds a group, two blocks of the other, and the values of
its own blocks, which should be thin: as many rows as the block, and few columns.  Blocks are read through the cache.
Thin rows that belong to the blocks lie in the parameters, which travel once for each process; a function finds those of
a block at `block.start`.

In a mutual pass two blocks meet once, and `meet` makes a value for each of them: half the products, where what b is to
b' tells what b' is to b.  The values of all groups then lie on the workers until the end, where in the other kind they
come and go group by group.  They join in the same order, those of a group of others first among themselves.

In a pass over tiles two groups meet once, all their blocks in memory at a time, and what they make of each other is an
entry of the result: where the driver wants a symmetric matrix, half of it travels, and once.  One group may meet
several others, one after the other, before its blocks are given up.

Law: like every pass, the result depends to the last bit on the blocks alone.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations_with_replacement
from time import perf_counter
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from dlatent.arrays import Block
from dlatent.blas import pinned
from dlatent.engine.heap import kept
from dlatent.engine.order import FAN_IN, reduce_tree
from dlatent.engine.part import Part, Share, Tally, Work, block_of, owned, read_ahead

Node = TypeVar("Node")


@dataclass(frozen=True, eq=False)
class PairWork(Work):
    """What a pass over pairs does; `function` is `meet`, and `combine` joins the results of different blocks."""

    along: Callable[[Any, Any], Any]
    finish: Callable[[Block, Any, Any], Any] | None
    listed: bool
    mutual: bool
    groups: int

    @classmethod
    def pairs(
        cls,
        name: str,
        meet: Any,
        parameters: Any,
        along: Any,
        finish: Any,
        combine: Any,
        mutual: bool,
        groups: int,
        first: bool,
    ) -> PairWork:
        """A new pass with a token of its own; without `combine` its result is a tuple with an entry for each block."""
        listed = combine is None
        joined, token = operator.add if listed else combine, uuid4().hex
        return cls(name, meet, parameters, joined, first, True, None, token, along, finish, listed, mutual, groups)

    def visits(self) -> int:
        """How often a pass sees each block: with its own group once, and with every other group twice, or once."""
        if self.mutual:
            return self.groups + (self.finish is not None)
        return 2 * self.groups - 1

    def steps(self, groups: int) -> int:
        """Pairs of groups, in both orders or in one."""
        return groups * (groups + 1) // 2 if self.mutual else groups**2


@dataclass(frozen=True, eq=False)
class TileWork(Work):
    """What a pass over tiles does; `function` makes an entry of the result, of all blocks of two groups."""

    groups: int

    @classmethod
    def tiles(cls, name: str, meet: Any, parameters: Any, groups: int, first: bool) -> TileWork:
        """A new pass with a token of its own."""
        return cls(name, meet, parameters, operator.add, first, True, None, uuid4().hex, groups)

    def visits(self) -> int:
        """How often a pass sees each block: with its own group, and with every other group."""
        return self.groups

    def steps(self, groups: int) -> int:
        """Pairs of groups."""
        return groups * (groups + 1) // 2


def meetings(groups: int) -> list[tuple[int, int]]:
    """Every two of so many groups, and each with itself, in the order of the entries of a pass over tiles."""
    return list(combinations_with_replacement(range(groups), 2))


class PairSteps(Protocol[Node]):
    """How a runner makes the nodes of a pass over pairs."""

    def meet(self, group: int, other: int, share: Node | None) -> Node:
        """The share of a group after it has met one more group."""
        ...

    def meet_once(self, group: int, other: int) -> Node:
        """What two groups make of each other: a share for each."""
        ...

    def gain(self, group: int, sides: tuple[int, ...], inputs: list[Node]) -> Node:
        """The share of a group with what it gets from some meetings, as the first (0) or the second (1) of each; the
        `inputs` are the meetings and then, where it has one already, the share."""
        ...

    def finish(self, group: int, share: Node) -> Node:
        """What a group gives to the pass after the last meeting."""
        ...

    def join(self, shares: Iterable[Node]) -> Node:
        """Joined shares."""
        ...


def walk_tiles(tile: Callable[[int, int], Node], join: Callable[[Iterable[Node]], Node], work: TileWork) -> Node:
    """Every two groups meet, in order, and the tuples of one entry that they give become one."""
    met = meetings(work.groups)
    return reduce_tree(lambda number: tile(*met[number]), join, len(met))


def walk_pairs(steps: PairSteps[Node], work: PairWork) -> Node:
    """Every group meets the groups in their order, and their shares join in the fixed tree."""
    groups = work.groups

    def leaf(group: int) -> Node:
        share = steps.meet(group, 0, None)
        for other in range(1, groups):
            share = steps.meet(group, other, share)
        return share

    if not work.mutual:
        return reduce_tree(leaf, steps.join, groups)
    shares: dict[int, Node] = {}
    waiting: defaultdict[int, list[tuple[Node, int]]] = defaultdict(list)

    def collect(group: int) -> None:
        met, sides = zip(*waiting.pop(group), strict=True)
        before = [shares.pop(group)] if group in shares else []
        shares[group] = steps.gain(group, sides, [*met, *before])

    def last(group: int) -> Node:
        if group in waiting:
            collect(group)
        return steps.finish(group, shares.pop(group))

    for group in range(groups):
        for other in range(group, groups):
            met = steps.meet_once(group, other)
            for side, one in enumerate(sorted({group, other})):
                waiting[one].append((met, side))
                if len(waiting[one]) == FAN_IN:  # few, as they wait in memory; several, as each time is a task
                    collect(one)
            del met
    return reduce_tree(last, steps.join, groups)


def meet(own: Part, other: Part, work: PairWork, share: Share | None) -> Share:
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
                tally = tally.plus(Tally(loaded.read, int(loaded.read == 0)))
                del loaded
        if other.index == work.groups - 1:
            values = _result(mine, values, work)
    return values, tally._replace(busy_seconds=tally.busy_seconds + perf_counter() - started)


def meet_once(own: Part, other: Part, work: PairWork) -> tuple[Share, ...]:
    """The shares of two parts, values for each of their blocks, from their meeting; one share where both are one."""
    started = perf_counter()
    gained = dict[int, Any]()
    same = other.index == own.index

    def give(block: Block, value: Any) -> None:
        known = block.index in gained
        # As in every fold, the first value may alias cached blocks or the parameters.
        gained[block.index] = work.along(gained[block.index], value) if known else owned(value)

    def introduce(a: Block, b: Block) -> None:
        left, right = work.function(a, b, work.parameters)
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
                tally = tally.plus(Tally(loaded.read, int(loaded.read == 0)))
                del loaded, block
    tally = tally._replace(busy_seconds=perf_counter() - started)
    parts = [own] if same else [own, other]
    values = [tuple(gained[part.first + at] for at in range(len(part.blocks))) for part in parts]
    return tuple(zip(values, (tally, Tally()), strict=False))


def tiles(guest: Part, hosts: Sequence[Part], work: TileWork, *, resident: bool = True) -> tuple[Share, ...]:
    """What a part and each of several others, among which it may be itself, give to a pass over tiles: a tuple with
    what the two make of each other.  The blocks of a guest that is not `resident` are not kept after that."""
    started, found = perf_counter(), list[Share]()
    first = guest.in_memory and work.first and any(host.index == guest.index for host in hosts)
    with pinned(), kept():
        theirs, tally = _taken(guest, work if resident else replace(work, cached=False), first=first)
        for host in hosts:
            same = host.index == guest.index
            mine, spent = (theirs, Tally()) if same else _taken(host, work)
            own, other = (mine, theirs) if host.index < guest.index else (theirs, mine)
            value = owned(work.function(own, other, work.parameters))
            now = perf_counter()
            found.append(((value,), tally.plus(spent)._replace(busy_seconds=now - started)))
            started, tally = now, Tally(0, len(guest.blocks))
            del mine, own, other  # before the blocks of the next host are read
    return tuple(found)


def _taken(part: Part, work: Work, *, first: bool = False) -> tuple[list[Block], Tally]:
    """All blocks of a part, and what they cost; `first` counts those that lie in memory as read."""
    blocks, tally = list[Block](), Tally()
    for position, loaded in read_ahead(part, work):
        blocks.append(block_of(part, position, loaded.features))
        tally = tally.plus(Tally(loaded.read or first * loaded.size, int(loaded.read == 0)))
    return blocks, tally


def gain(work: PairWork, shares: Sequence[Share]) -> Share:
    """The share of a part with what it gained in more meetings, in their order; the first, to which the others are
    added, is given up."""
    (values, tally), *others = shares
    for gained, cost in others:
        values = tuple(work.along(value, new) for value, new in zip(values, gained, strict=True))
        tally = tally.plus(cost)
    return values, tally


def gained_shares(sides: tuple[int, ...], inputs: Sequence[Any]) -> list[Share]:
    """What a part has, in order, from the inputs of `PairSteps.gain`: its share so far, and its sides of meetings."""
    met, before = inputs[: len(sides)], inputs[len(sides) :]
    return [*before, *(shares[side] for shares, side in zip(met, sides, strict=True))]


def finish(own: Part, work: PairWork, share: Share) -> Share:
    """What a part gives to the pass, from the values of its blocks when they have met everybody."""
    started = perf_counter()
    (values, tally), found = share, list[Any]()
    if work.finish is None:
        found = list(values)
    else:
        with pinned(), kept():
            for position, loaded in read_ahead(own, work):
                block = block_of(own, position, loaded.features)
                found.append(work.finish(block, values[position], work.parameters))
                tally = tally.plus(Tally(loaded.read, int(loaded.read == 0)))
                del loaded, block
    total = tuple(found) if work.listed else reduce(work.combine, found)
    return total, tally._replace(busy_seconds=tally.busy_seconds + perf_counter() - started)


def _met(mine: list[Block], other: Block, values: tuple[Any, ...], work: PairWork) -> tuple[Any, ...]:
    """The values of a part's blocks after they have met one more block."""
    found = (work.function(block, other, work.parameters) for block in mine)
    if not values:
        # The first values may alias cached blocks or the parameters, and `along` may update them in place.
        return tuple(map(owned, found))
    return tuple(work.along(value, new) for value, new in zip(values, found, strict=True))


def _result(mine: list[Block], values: tuple[Any, ...], work: PairWork) -> Any:
    """What a part's blocks give to the pass, from their values when they have met everybody."""
    found: Iterable[Any] = values
    if work.finish is not None:
        found = [work.finish(block, value, work.parameters) for block, value in zip(mine, values, strict=True)]
    return tuple(found) if work.listed else reduce(work.combine, found)
