"""The serial engine: a for-loop, the reference that the others must equal to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dlatent.arrays import DataSource, Links
from dlatent.engine import pairs
from dlatent.engine.base import OnPass, OnProgress, PassEngine, Progress, Take, require_blocks
from dlatent.engine.exchange import LinkedWork, Traffic, fold, needed, needs_of, project, spread, walk
from dlatent.engine.gather import Resources
from dlatent.engine.machine import cache_share, memory
from dlatent.engine.order import reduce_tree
from dlatent.engine.pairs import PairWork, TileWork, walk_pairs, walk_tiles
from dlatent.engine.part import Part, Share, Work, ended, handed_over, join, keys_of, parts_of, run_part
from dlatent.engine.targets import Targets, as_rows

T = TypeVar("T")


class SerialEngine(PassEngine):
    """Passes over a data source in this thread, one block after the other.

    `targets` are the rows that blocks carry (see `dlatent.engine.targets`); `cache_bytes` caps the blocks kept between
    passes (default: 40 % of the memory); `links` is the graph of passes over links.
    """

    def __init__(
        self,
        source: DataSource,
        *,
        targets: Targets = None,
        cache_bytes: int | None = None,
        links: Links | None = None,
        on_pass: OnPass | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        super().__init__(
            source, _InThisThread(require_blocks(source), targets, cache_bytes, links), on_pass, on_progress
        )


class _InThisThread:
    def __init__(self, source: DataSource, targets: Targets, cache_bytes: int | None, links: Links | None) -> None:
        limit = memory()
        cap = cache_share(limit) if cache_bytes is None else cache_bytes
        self.resources = Resources("serial", 1, 1, limit, cap)
        self._keys = keys_of(source, links)
        self._parts = parts_of(source, as_rows(targets, source.shape[0]), cap, links)
        self._survey: npt.NDArray[np.int64] | None = None

    @property
    def groups(self) -> int:
        return len(self._parts)

    def run(self, work: Work, progress: Progress | None) -> tuple[Share, int]:
        return self._run(work, progress, lambda share: share)

    def run_apart(self, work: Work, take: Take, progress: Progress | None) -> tuple[Share, int]:
        return self._run(work, progress, lambda share: handed_over(share, take))

    def _run(self, work: Work, progress: Progress | None, done: Callable[[Share], Share]) -> tuple[Share, int]:
        def leaf(group: int) -> Share:
            share = done(run_part(self._parts[group], work))
            if progress is not None:
                progress.done()
            return share

        return reduce_tree(leaf, lambda shares: join(shares, work), self.groups), self.groups

    def run_linked(self, work: LinkedWork, progress: Progress | None) -> tuple[Share, int]:
        needs = needs_of(self.survey())
        return walk(_InOrder(self._parts, work, progress), needs, work.hops), self.groups * (work.hops + 1)

    def run_pairs(self, work: PairWork, progress: Progress | None) -> tuple[Share, int]:
        return walk_pairs(_Pairing(self._parts, work, progress), work), work.steps(self.groups)

    def run_tiles(self, work: TileWork, progress: Progress | None) -> tuple[Share, int]:
        steps = _Pairing(self._parts, work, progress)
        return walk_tiles(steps.tile, steps.join, work), work.steps(self.groups)

    def survey(self) -> npt.NDArray[np.int64]:
        if self._survey is None:
            self._survey = np.array([needed(part) for part in self._parts])
        return self._survey

    def traffic(self) -> Traffic:
        """Nothing travels inside one process, which holds all rows."""
        return Traffic(0, self._parts[-1].stop)

    def close(self) -> None:
        ended(self._keys)


class _Pairing:
    """The steps of a pass over pairs, each done at once."""

    def __init__(self, parts: list[Part], work: Any, progress: Progress | None) -> None:
        self._parts, self._work, self._progress = parts, work, progress

    def meet(self, group: int, other: int, share: Share | None) -> Share:
        return self._told(pairs.meet(self._parts[group], self._parts[other], self._work, share))

    def meet_once(self, group: int, other: int) -> Any:
        return self._told(pairs.meet_once(self._parts[group], self._parts[other], self._work))

    def tile(self, group: int, other: int) -> Share:
        (share,) = pairs.tiles(self._parts[other], [self._parts[group]], self._work)
        return self._told(share)

    def _told(self, met: T) -> T:
        if self._progress is not None:
            self._progress.done()
        return met

    def gain(self, group: int, sides: tuple[int, ...], inputs: list[Any]) -> Any:
        return pairs.gain(self._work, pairs.gained_shares(sides, inputs))

    def finish(self, group: int, share: Share) -> Share:
        return pairs.finish(self._parts[group], self._work, share)

    def join(self, shares: Iterable[Share]) -> Share:
        return join(shares, self._work)


class _InOrder:
    """The steps of a pass over links, each done at once."""

    def __init__(self, parts: list[Part], work: LinkedWork, progress: Progress | None) -> None:
        self._parts, self._work, self._progress = parts, work, progress

    def project(self, group: int) -> Share:
        return project(self._parts[group], self._work)

    def spread(self, group: int, own: Share, near: list[Share]) -> Share:
        return spread(self._parts[group], self._work, own, near)

    def fold(self, group: int, first: Share, own: Share, near: list[Share]) -> Share:
        share = fold(self._parts[group], self._work, first, own, near)
        if self._progress is not None:
            self._progress.done()
        return share

    def join(self, shares: Iterable[Share]) -> Share:
        return join(shares, self._work)
