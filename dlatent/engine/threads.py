"""Passes on the threads of this process, through Dask's threaded scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from dask.delayed import delayed

from dlatent.arrays import DataSource, Links
from dlatent.engine import pairs
from dlatent.engine.base import Progress, Take
from dlatent.engine.exchange import LinkedWork, Traffic, fold, needed, needs_of, project, spread, walk
from dlatent.engine.gather import Resources
from dlatent.engine.machine import cache_share, memory, processors
from dlatent.engine.order import reduce_tree
from dlatent.engine.pairs import PairWork, TileWork, walk_pairs, walk_tiles
from dlatent.engine.part import Part, Share, Work, ended, halt, handed_over, join, keys_of, parts_of, run_part
from dlatent.engine.targets import Targets, as_rows


class ThreadRunner:
    """One task per group and one per node of the tree, on as many threads as there are processors."""

    def __init__(self, source: DataSource, targets: Targets, cache_bytes: int | None, links: Links | None) -> None:
        limit = memory()
        cap = cache_share(limit) if cache_bytes is None else cache_bytes
        self.resources = Resources("threads", 1, processors(), limit, cap)
        self._keys = keys_of(source, links)
        self._parts = parts_of(source, as_rows(targets, source.shape[0]), cap, links)
        self._survey: npt.NDArray[np.int64] | None = None

    @property
    def groups(self) -> int:
        """Number of groups of blocks."""
        return len(self._parts)

    def run(self, work: Work, progress: Progress | None) -> tuple[Share, int]:
        """The joined share of all parts, and the number of tasks; a failure stops all threads at their next block."""
        steps = _Steps(self._parts, work, progress)
        return self._computed(reduce_tree(steps.run, steps.join, self.groups), work), steps.tasks

    def run_apart(self, work: Work, take: Take, progress: Progress | None) -> tuple[Share, int]:
        """The same, but `take` gets what every part makes."""
        steps = _Steps(self._parts, work, progress, take)
        return self._computed(reduce_tree(steps.run, steps.join, self.groups), work), steps.tasks

    def run_linked(self, work: LinkedWork, progress: Progress | None) -> tuple[Share, int]:
        """The same after an exchange between rows."""
        steps = _LinkedSteps(self._parts, work, progress)
        return self._computed(walk(steps, needs_of(self.survey()), work.hops), work), steps.tasks

    def run_pairs(self, work: PairWork, progress: Progress | None) -> tuple[Share, int]:
        """The same after every part has met every part."""
        steps = _PairSteps(self._parts, work, progress)
        return self._computed(walk_pairs(steps, work), work), steps.tasks

    def run_tiles(self, work: TileWork, progress: Progress | None) -> tuple[Share, int]:
        """The same of what every two parts make of each other."""
        steps = _PairSteps(self._parts, work, progress)
        return self._computed(walk_tiles(steps.tile, steps.join, work), work), steps.tasks

    def survey(self) -> npt.NDArray[np.int64]:
        """How many rows of each group the rows of each group have links to."""
        if self._survey is None:
            with ThreadPoolExecutor(self.resources.threads) as pool:
                self._survey = np.array(list(pool.map(needed, self._parts)))
        return self._survey

    def _computed(self, root: Any, work: Work) -> Share:
        try:
            share: Share = root.compute(scheduler="threads", num_workers=self.resources.threads, optimize_graph=False)
        except BaseException:
            halt(work.token)
            raise
        return share

    def traffic(self) -> Traffic:
        """Nothing travels inside one process, which holds all rows."""
        return Traffic(0, self._parts[-1].stop)

    def close(self) -> None:
        """Free the cached blocks."""
        ended(self._keys)


class _Steps:
    """The tasks of a pass."""

    def __init__(self, parts: list[Part], work: Any, progress: Progress | None, take: Take | None = None) -> None:
        self._parts, self._work, self._progress, self._take = parts, work, progress, take
        self.tasks = 0

    def run(self, group: int) -> Any:
        return self._task(self._told(self._folded), self._parts[group], self._work)

    def _folded(self, part: Part, work: Work) -> Share:
        share = run_part(part, work)
        return share if self._take is None else handed_over(share, self._take)

    def join(self, shares: Iterable[Any]) -> Any:
        return self._task(lambda *values: join(values, self._work), inputs=shares)

    def _task(self, function: Callable[..., Any], *values: Any, inputs: Iterable[Any] = ()) -> Any:
        self.tasks += 1
        return delayed(partial(function, *values), pure=False, traverse=False)(*inputs)

    def _told(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which then counts a finished group."""

        def told(*values: Any) -> Any:
            share = function(*values)
            if self._progress is not None:
                self._progress.done()
            return share

        return told


class _LinkedSteps(_Steps):
    """The tasks of a pass over links."""

    def project(self, group: int) -> Any:
        return self._task(project, self._parts[group], self._work)

    def spread(self, group: int, own: Any, near: list[Any]) -> Any:
        return self._task(_spread, self._parts[group], self._work, inputs=[own, *near])

    def fold(self, group: int, first: Any, own: Any, near: list[Any]) -> Any:
        return self._task(self._told(_fold), self._parts[group], self._work, inputs=[first, own, *near])


class _PairSteps(_Steps):
    """The tasks of a pass over pairs."""

    def meet(self, group: int, other: int, share: Any) -> Any:
        values = (self._parts[group], self._parts[other], self._work)
        return self._task(self._told(_meet), *values, inputs=[] if share is None else [share])

    def meet_once(self, group: int, other: int) -> Any:
        return self._task(self._told(pairs.meet_once), self._parts[group], self._parts[other], self._work)

    def tile(self, group: int, other: int) -> Any:
        return self._task(self._told(_tile), self._parts[group], self._parts[other], self._work)

    def gain(self, group: int, sides: tuple[int, ...], inputs: list[Any]) -> Any:
        return self._task(_gain, self._work, sides, inputs=inputs)

    def finish(self, group: int, share: Any) -> Any:
        return self._task(pairs.finish, self._parts[group], self._work, inputs=[share])


def _meet(own: Part, other: Part, work: PairWork, share: Share | None = None) -> Share:
    return pairs.meet(own, other, work, share)


def _tile(own: Part, other: Part, work: TileWork) -> Share:
    (share,) = pairs.tiles(other, [own], work)
    return share


def _gain(work: PairWork, sides: tuple[int, ...], *inputs: Any) -> Share:
    return pairs.gain(work, pairs.gained_shares(sides, inputs))


def _spread(part: Part, work: LinkedWork, own: Share, *near: Share) -> Share:
    return spread(part, work, own, near)


def _fold(part: Part, work: LinkedWork, first: Share, own: Share, *near: Share) -> Share:
    return fold(part, work, first, own, near)
