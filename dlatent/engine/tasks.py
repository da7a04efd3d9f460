"""What runs on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from itertools import islice
from threading import Lock
from typing import Any, cast

from dlatent.engine import held, pairs
from dlatent.engine.exchange import (
    LinkedWork,
    fold,
    fold_block,
    meet,
    needed,
    project,
    project_block,
    spread,
    stack_blocks,
)
from dlatent.engine.order import reduce_tree
from dlatent.engine.pairs import PairWork, TileWork
from dlatent.engine.part import Part, Sealed, Share, Work, ended, join, lent, owned, run_part, settled, step, unsealed


class Package:
    """A pass on its way: sealed until a worker needs it, so that scheduler and network only pass it on.

    Two packages are equal when they belong to the same pass.
    """

    def __init__(self, payload: Sealed, token: str) -> None:
        self.payload, self.token = payload, token

    def __hash__(self) -> int:
        return hash(self.token)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Package) and other.token == self.token

    def __sizeof__(self) -> int:
        return len(self.payload)


_opening = Lock()


@lru_cache(maxsize=1)
def _unpacked(package: Package) -> Work:
    work: Work = unsealed(package.payload)
    return work


def opened(package: Package) -> Work:
    """The pass inside a package, unpacked once per process."""
    with _opening:
        return _unpacked(package)


def forget(keys: Iterable[Hashable]) -> None:
    """Give up what a fit leaves in a worker: as `ended`, and its last parameters."""
    _unpacked.cache_clear()
    ended(keys)


def run_group(part: Part, package: Package) -> Share:
    """Fold all blocks of a part."""
    return run_part(part, opened(package))


def run_branches(sizes: Sequence[int], package: Package, *parts: Part) -> tuple[Share, ...]:
    """Fold all blocks of several parts, and join so many at a time to a share, as the tree does."""
    work, rest = opened(package), iter(parts)
    return tuple(_branch(list(islice(rest, size)), work) for size in sizes)


def _branch(parts: list[Part], work: Work) -> Share:
    return reduce_tree(lambda at: run_part(parts[at], work), lambda shares: join(shares, work), len(parts))


def run_sealed(part: Sealed, package: Package) -> Share:
    """Fold all blocks of a part that came with the task."""
    return run_group(unsealed(part), package)


def add_block(position: int, package: Package, part: Part, *inputs: Any) -> Share:
    """Fold one block into the share of those before it.

    `inputs` are that share (where this is not the first block) and the computed chunks of the block.
    """
    share, chunks = (inputs[0], inputs[1:]) if position else (None, inputs)
    source = part.blocks[position]
    return step(part, opened(package), position, settled(source, source.assemble(chunks)), share)


def join_shares(places: Sequence[tuple[int, int | None]], package: Package, *results: Any) -> Share:
    """Join the shares of neighbouring groups; the inputs of a task stay the scheduler's, which may need them again
    after a worker is lost.

    `places`: of each share, which result it is, or has at which position, where that is a tuple of shares.
    """
    shares = [results[result] if at is None else results[result][at] for result, at in places]
    return join(_first_owned(shares), opened(package))


def _first_owned(shares: Sequence[Share]) -> list[Share]:
    """Shares of others, ready to be joined: the first is copied, as those after it are added to it."""
    first, *others = shares
    return [owned(first), *map(lent, others)]


def project_group(part: Part, package: Package) -> Share:
    """The rows that a part sends."""
    return project(part, _linked(package))


def project_one(position: int, part: Part, package: Package, *chunks: Any) -> Share:
    """The rows that a block sends, from its computed chunks."""
    source = part.blocks[position]
    return project_block(part, _linked(package), position, settled(source, source.assemble(chunks)))


def stack(*shares: Share) -> Share:
    """The rows that a part sends, from those of its blocks."""
    return stack_blocks(shares)


def spread_group(part: Part, package: Package, own: Share, *near: Share) -> Share:
    """The rows that a part sends on."""
    return spread(part, _linked(package), own, near)


def fold_group(part: Part, package: Package, first: Share, own: Share, *near: Share) -> Share:
    """The last exchange of a part, and its fold."""
    return fold(part, _linked(package), first, own, near)


def meet_group(part: Part, package: Package, first: Share, own: Share, *near: Share) -> Any:
    """The last exchange of a part whose blocks are folded one by one."""
    return meet(part, _linked(package), first, own, near)


def fold_one(position: int, part: Part, package: Package, met: Any, *inputs: Any) -> Share:
    """Fold one block into the share of those before it, as `add_block`."""
    share, chunks = (inputs[0], inputs[1:]) if position else (None, inputs)
    source = part.blocks[position]
    return fold_block(part, _linked(package), position, settled(source, source.assemble(chunks)), share, met)


def meet_parts(package: Package, own: Part, other: Part, share: Share | None = None) -> Share:
    """The share of a part after it has met one more."""
    return pairs.meet(own, other, _pairs(package), share)


def meet_once(package: Package, own: Part, other: Part) -> tuple[Share, ...]:
    """What two parts make of each other."""
    return pairs.meet_once(own, other, _pairs(package))


def meet_tiles(resident: bool, package: Package, guest: Part, *hosts: Part) -> tuple[Share, ...]:
    """What a part and others give to a pass over tiles."""
    return pairs.tiles(guest, hosts, cast(TileWork, opened(package)), resident=resident)


def gain_share(sides: tuple[int, ...], package: Package, *inputs: Any) -> Share:
    """The share of a part with what it gets from some meetings; all stay the scheduler's, as in `join_shares`."""
    return pairs.gain(_pairs(package), _first_owned(pairs.gained_shares(sides, inputs)))


def finish_part(package: Package, own: Part, share: Share) -> Share:
    """What a part gives to a mutual pass; the share stays the scheduler's, as in `join_shares`."""
    work = _pairs(package)
    return pairs.finish(own, work, owned(share) if work.finish is None else lent(share))


def _pairs(package: Package) -> PairWork:
    return cast(PairWork, opened(package))


def survey_group(part: Part) -> Any:
    """How many rows of each group a part has links to."""
    return needed(part)


def _linked(package: Package) -> LinkedWork:
    """The opened package of a pass over links."""
    return cast(LinkedWork, opened(package))


def hold(cuts: tuple[int, ...], part: Part, *chunks: Any) -> Part:
    """Put the blocks of a part together from computed chunks."""
    return held.hold(part, cuts, *chunks)
