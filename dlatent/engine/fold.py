"""The work on one group of blocks, the same on every engine: read ahead, apply, fold from left to right."""

from __future__ import annotations

import operator
import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from threading import local
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias, cast
from uuid import uuid4

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Block, BlockSource, Exchanged, Features, Rows
from dlatent.blas import pinned
from dlatent.engine.cache import CACHE, measured, owned, read_only, release, stored
from dlatent.engine.group import Part
from dlatent.engine.processes import give_back, keep
from dlatent.errors import DataError, EngineError
from dlatent.order import reduce_tree
from dlatent.passes import Pass


@dataclass(frozen=True, eq=False)
class Work:
    """A pass under way.

    `first` tells that no pass was completed before, so that blocks in memory are counted as read once; `groups` is the
    number of parts; `cache_bytes` the most bytes of blocks that a process keeps; `token` belongs to this attempt alone.
    """

    pass_: Pass[Any, Any]
    first: bool
    groups: int
    cache_bytes: int
    token: str

    @classmethod
    def of(cls, pass_: Pass[Any, Any], *, first: bool, groups: int, cache_bytes: int = 0) -> Work:
        """A new attempt."""
        return cls(pass_, first, groups, cache_bytes, uuid4().hex)


class Tally(NamedTuple):
    """What some work cost: bytes read, blocks seen, those of them that were in memory, seconds in tasks; and what the
    pass counted beside (`Pass.count`)."""

    bytes_read: int = 0
    blocks: int = 0
    cached: int = 0
    busy_seconds: float = 0.0
    counted: int = 0

    def plus(self, other: Tally) -> Tally:
        """Both together."""
        return Tally(*map(operator.add, self, other))

    def since(self, started: float) -> Tally:
        """The same, with the seconds since `started` (of `perf_counter`) on top."""
        return self._replace(busy_seconds=self.busy_seconds + perf_counter() - started)


Share: TypeAlias = tuple[Any, Tally]
"""A statistic and what it cost."""


class _Loaded(NamedTuple):
    features: Features
    size: int
    read: int

    def cost(self, *, first: bool = False) -> Tally:
        """What the block cost; `first` counts one that lies in memory as read."""
        return Tally(self.read or first * self.size, 1, int(self.read == 0))


def ended(keys: Iterable[Hashable]) -> None:
    """Give up what a fit leaves in this process: cached blocks of its sources, and freed memory (run on every worker
    when an engine closes)."""
    release(keys)
    give_back()


_halted: set[str] = set()


def halt(token: str) -> None:
    """Make the tasks of a failed pass in this process stop before their next block."""
    _halted.add(token)


def run_part(work: Work, part: Part, exchanged: Exchanged | None = None) -> Share:
    """Fold the blocks of a part: combine(…combine(f(b₀), f(b₁))…, f(bₙ)), with one BLAS thread.

    `exchanged` are the rows of the part that its blocks carry in the last stage of a pass with neighbour sums.
    """
    started = perf_counter()
    total, tally = None, Tally()
    first = part.in_memory and work.first
    with pinned():
        for block, cost in read_ahead(part, work, first=first, exchanged=exchanged):
            total = folded(work, total, work.pass_.map(block, work.pass_.parameters))
            tally = tally.plus(cost._replace(counted=counted(work, block)))
            del block  # before the next is waited for, so that two blocks are in memory and not three
    return total, tally.since(started)


def fold_parts(work: Work, sizes: Sequence[int], *parts: Part) -> tuple[Share, ...]:
    """Fold several parts, and join so many at a time to a share, as the tree of all groups does."""
    rest = iter(parts)
    return tuple(_branch(work, list(islice(rest, size))) for size in sizes)


def _branch(work: Work, parts: Sequence[Part]) -> Share:
    return reduce_tree(lambda at: run_part(work, parts[at]), lambda shares: joined(work, shares), len(parts))


def block_of(part: Part, position: int, features: Features, exchanged: Exchanged | None = None) -> Block:
    """A loaded block of a part, with its targets, its weights, and its share of the exchanged rows."""
    source = part.blocks[position]
    targets = None if part.targets is None else part.targets(source.start, source.stop)
    rows = slice(source.start - part.start, source.stop - part.start)
    weights = None if part.weights is None else part.weights[rows]
    if exchanged is not None:
        exchanged = Exchanged(_aligned(exchanged.own[rows]), _aligned(exchanged.met[rows]))
    return Block(part.first + position, source.start, features, targets, exchanged, weights)


def _aligned(rows: Rows) -> Rows:
    """The same rows where their memory begins at a multiple of 16 bytes, else a copy.

    Some rows of a group, and rows that a worker took back from its disk, begin anywhere, and numpy then multiplies by
    other kernels, with other bits.
    """
    return rows.copy() if isinstance(rows, np.ndarray) and rows.ctypes.data % 16 else rows


def folded(work: Work, total: Any, value: Any) -> Any:
    """One step of the fold: `total` (None at the first block) combined with the statistic of one block."""
    # The first statistic may alias a cached block or the parameters, and `combine` may update it in place.
    return owned(value) if total is None else work.pass_.combine(total, value)


def counted(work: Work, block: Block) -> int:
    """What the pass counts in a block beside its map."""
    return 0 if work.pass_.count is None else work.pass_.count(block)


def map_block(work: Work, position: int, part: Part) -> Share:
    """The result of one block alone."""
    started = perf_counter()
    loaded = _kept(part, position, work) or _load(part, position, work)
    with pinned():
        value = work.pass_.map(block_of(part, position, loaded.features), work.pass_.parameters)
    return folded(work, None, value), loaded.cost(first=part.in_memory).since(started)


def fold_block(
    work: Work,
    position: int,
    part: Part,
    features: Features,
    share: Share | None = None,
    exchanged: Exchanged | None = None,
) -> Share:
    """One step of the fold as a task of its own: the share so far with one more block; the old one stays as it is."""
    started = perf_counter()
    total, tally = (None, Tally()) if share is None else (owned(share[0]), share[1])
    with pinned():
        block = block_of(part, position, features, exchanged)
        total = folded(work, total, work.pass_.map(block, work.pass_.parameters))
    return total, tally.plus(Tally(measured(features), 1, counted=counted(work, block))).since(started)


def join(work: Work, *shares: Share) -> Share:
    """Fold the shares of neighbouring groups from left to right; the first is given up."""
    return joined(work, shares)


def joined(work: Work, shares: Iterable[Share]) -> Share:
    """The same of shares that are made while they are asked for, so that two are in memory at a time."""
    shares = iter(shares)
    total, tally = next(shares)
    for value, cost in shares:
        total, tally = work.pass_.combine(total, value), tally.plus(cost)
    return total, tally


def settled(source: BlockSource, features: Features) -> Features:
    """Bring loaded features into the one form that all engines hand on: C-contiguous, aligned, and read-only.

    Layout and alignment decide which BLAS kernel or summation order runs; read-only protects the cache and the user's
    own arrays from block functions that write.
    """
    rows = source.stop - source.start
    if features.shape[0] != rows:
        raise DataError(
            f"A block has {features.shape[0]} rows where {rows} were announced (rows {source.start} to {source.stop}); "
            "the data changed after it was opened. Open it again."
        )
    if isinstance(features, np.ndarray):
        return cast(Features, _locked(features))
    matrix = sp.csr_array(tuple(_locked(array) for array in stored(features)), shape=features.shape, copy=False)
    matrix.has_canonical_format = features.has_canonical_format
    return matrix


def _locked(array: Any) -> Any:
    return read_only(np.require(array, requirements=["C_CONTIGUOUS", "ALIGNED"]))


def _load(part: Part, position: int, work: Work) -> _Loaded:
    source = part.blocks[position]
    features = settled(source, source.load())
    size = measured(features)
    if part.in_memory:  # a copy, in the cache or in another form, would only double the memory
        return _Loaded(features, size, 0)
    if work.pass_.form is not None:
        features = _maderead_only(work.pass_.form(features))
    if work.pass_.cached:
        CACHE.admit(part.key, _place(part, position, work), features, work.cache_bytes)
    return _Loaded(features, size, size)


def _kept(part: Part, position: int, work: Work) -> _Loaded | None:
    features = CACHE.get(part.key, _place(part, position, work))
    return None if features is None else _Loaded(features, measured(features), 0)


def _place(part: Part, position: int, work: Work) -> Hashable:
    """What a block in the form of a pass is called in the cache."""
    index = part.first + position
    return index if work.pass_.form is None else (work.pass_.form, index)


def _maderead_only(features: Features) -> Features:
    """The features themselves, which nobody else has yet, protected as those of `settled`."""
    for array in stored(features):
        array.setflags(write=False)
    return features


def read_ahead(
    part: Part, work: Work, *, first: bool = False, exchanged: Exchanged | None = None
) -> Iterator[tuple[Block, Tally]]:
    """The blocks of a part in order, and what each cost; while one is used, the next is read in the background.

    `first` counts those that lie in memory as read.  Errors: EngineError where the pass was stopped meanwhile.
    """

    def begin(position: int) -> _Loaded | Future[_Loaded] | None:
        if position == len(part.blocks):
            return None
        kept = _kept(part, position, work)
        if kept is None and part.in_memory:
            return _load(part, position, work)
        return kept if kept is not None else _reader().submit(_load, part, position, work)

    keep()
    ahead = begin(0)
    try:
        for position in range(len(part.blocks)):
            current = ahead.result() if isinstance(ahead, Future) else ahead
            ahead = begin(position + 1)
            assert current is not None
            if work.token in _halted:
                raise EngineError(f"The pass {work.pass_.name!r} was stopped because another part of it failed.")
            yield block_of(part, position, current.features, exchanged), current.cost(first=first)
            del current
    finally:
        if isinstance(ahead, Future) and not ahead.cancel():  # a failed pass leaves nothing behind that still reads
            wait([ahead])


_of_this_thread = local()
os.register_at_fork(after_in_child=lambda: vars(_of_this_thread).clear())  # a forked process has no such thread


def _reader() -> ThreadPoolExecutor:
    """The thread that reads ahead for the calling one, for as long as that lives.

    A new one for each group would cost more than a small group, and on CPython 3.11 a worker can hang where a thread
    starts or ends while Dask's profiler looks at the threads (python/cpython#106883).
    """
    pool: ThreadPoolExecutor | None = getattr(_of_this_thread, "reader", None)
    if pool is None:
        pool = _of_this_thread.reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-ahead")
    return pool
