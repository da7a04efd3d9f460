"""The work on one group of blocks, the same on every engine: read ahead, apply, fold from left to right."""

from __future__ import annotations

import operator
import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from threading import local
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias, cast
from uuid import uuid4

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Block, BlockSource, Exchanged, Features, Rows
from dlatent.blas import pinned
from dlatent.engine.cache import CACHE, measured, owned, read_only, stored
from dlatent.engine.group import Group
from dlatent.engine.machine import keep_freed
from dlatent.errors import DataError, EngineError, interrupt
from dlatent.order import reduce_tree
from dlatent.passes import Pass


@dataclass(frozen=True, eq=False)
class Work:
    """A pass under way.

    `first` tells that no pass was completed before, so that blocks in memory are counted as read once; `groups` is the
    number of groups, `cache_bytes` the most bytes of blocks that a process keeps; `token` is of this attempt alone.
    """

    pass_: Pass[Any, Any]
    first: bool
    groups: int
    cache_bytes: int = 0
    token: str = field(default_factory=lambda: uuid4().hex)


class Tally(NamedTuple):
    """Cost of some work, as a `PassRecord` has it: wall time of a pass, bytes read, blocks seen, those of them that
    were in memory, tasks of a pass, seconds in tasks; and what the pass counted beside (`Pass.count`)."""

    seconds: float = 0.0
    bytes_read: int = 0
    blocks: int = 0
    cached: int = 0
    tasks: int = 0
    busy_seconds: float = 0.0
    counted: int = 0

    def plus(self, other: Tally) -> Tally:
        """Both together."""
        return Tally(*map(operator.add, self, other))

    def since(self, started: float) -> Tally:
        """With the seconds in a task since `started` (of `perf_counter`) on top."""
        return self._replace(busy_seconds=self.busy_seconds + perf_counter() - started)


Share: TypeAlias = tuple[Any, Tally]
"""A statistic and what it cost."""

_halted: set[str] = set()


def halt(token: str) -> None:
    """Make the tasks of a failed pass in this process stop before their next block."""
    _halted.add(token)


def admit(work: Work, key: Hashable, name: Hashable, value: Any, size: int | None = None, over: Any = None) -> None:
    """Keep a block of a source in the cache of this process, as it admits it, unless the pass has failed."""
    CACHE.admit(key, name, value, work.cache_bytes, size, over, halted=lambda: work.token in _halted)


def run_group(
    work: Work, group: Group, exchanged: Exchanged | None = None, positions: Sequence[int] | None = None
) -> Share:
    """Fold the blocks of a group: combine(…combine(f(b₀), f(b₁))…, f(bₙ)), with one BLAS thread.

    `exchanged` are the rows of the group that its blocks carry in the last stage of a pass over edges; `positions` of
    the blocks, if not all are wanted.
    """
    started = perf_counter()
    total, tally = None, Tally()
    with pinned():
        for block, cost in read_ahead(work, group, exchanged, positions, first=group.in_memory and work.first):
            total = folded(work, total, work.pass_.map(block, work.pass_.parameters))
            counted = 0 if work.pass_.count is None else work.pass_.count(block)
            tally = tally.plus(cost._replace(counted=counted))
            del block  # before the next is waited for, so that two blocks are in memory and not three
    return total, tally.since(started)


def run_block(work: Work, position: int, group: Group) -> Share:
    """The result of one block alone."""
    return run_group(work, group, positions=[position])


def fold_groups(work: Work, sizes: Sequence[int], *groups: Group) -> tuple[Share, ...]:
    """Fold several groups, and join so many at a time to a share, as the tree of all groups does."""

    def branch(members: Sequence[Group]) -> Share:
        return reduce_tree(lambda at: run_group(work, members[at]), lambda shares: joined(work, shares), len(members))

    rest = iter(groups)
    return tuple(branch(list(islice(rest, size))) for size in sizes)


def block_of(group: Group, position: int, features: Features, exchanged: Exchanged | None = None) -> Block:
    """A loaded block of a group, with its targets, its weights, and its share of the exchanged rows."""
    source = group.blocks[position]
    rows = slice(source.start - group.start, source.stop - group.start)
    targets = None if group.targets is None else np.asarray(group.targets[rows])
    weights = None if group.weights is None else group.weights[rows]
    if exchanged is not None:
        exchanged = Exchanged(_aligned(exchanged.sent[rows]), _aligned(exchanged.met[rows]))
    return Block(group.first + position, source.start, features, targets, exchanged, weights)


def _aligned(rows: Rows) -> Rows:
    """The rows where their memory begins at a multiple of 16 bytes, else a copy.

    Some rows of a group, and rows that a worker took back from its disk, begin anywhere, and numpy then multiplies by
    other kernels, with other bits.
    """
    return rows.copy() if isinstance(rows, np.ndarray) and rows.ctypes.data % 16 else rows


def folded(work: Work, total: Any, value: Any) -> Any:
    """One step of the fold: `total` (None at the first block) combined with the statistic of one block."""
    # The first statistic may alias a cached block or the parameters, and `combine` may update it in place.
    return owned(value) if total is None else work.pass_.combine(total, value)


def join(work: Work, *shares: Share) -> Share:
    """Fold the shares of neighbouring groups from left to right; the first is given up."""
    return joined(work, shares)


def joined(work: Work, shares: Iterable[Share]) -> Share:
    """Fold shares that are made while they are asked for, so that two are in memory at a time."""
    shares = iter(shares)
    total, tally = next(shares)
    for value, cost in shares:
        total, tally = work.pass_.combine(total, value), tally.plus(cost)
    return total, tally


def join_kept(work: Work, shares: Iterable[Share]) -> Share:
    """Fold shares of which the first stays as it is, as it may be read-only, or wanted again."""
    first, *others = shares
    return joined(work, (owned(first), *others))


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
    arrays = [read_only(np.require(array, requirements=["C_CONTIGUOUS", "ALIGNED"])) for array in stored(features)]
    if isinstance(features, np.ndarray):
        return cast(Features, arrays[0])
    matrix = sp.csr_array(tuple(arrays), shape=features.shape, copy=False)
    matrix.has_canonical_format = features.has_canonical_format
    return matrix


def _load(work: Work, group: Group, source: BlockSource, name: Hashable) -> tuple[Features, int]:
    """A block in the form of the pass, which may be kept under a name, and the bytes that were read."""
    features = settled(source, source.load())
    if group.in_memory:  # a copy, in the cache or in another form, would only double the memory
        return features, 0
    size, form = measured(features), work.pass_.form
    if form is not None:
        features = form(features)
        for array in stored(features):
            array.setflags(write=False)
    if work.pass_.cached:
        admit(work, group.key, name, features)
    return features, size


def read_ahead(
    work: Work,
    group: Group,
    exchanged: Exchanged | None = None,
    positions: Sequence[int] | None = None,
    *,
    first: bool = False,
) -> Iterator[tuple[Block, Tally]]:
    """The blocks of a group in order, and what each cost; while one is used, the next is read in the background.

    `first` counts those that lie in memory as read.  Errors: EngineError where the pass was stopped meanwhile.
    """
    positions = range(len(group.blocks)) if positions is None else positions

    def begin(at: int) -> tuple[Features, int] | Future[tuple[Features, int]] | None:
        if at == len(positions):
            return None
        index, form = group.first + positions[at], work.pass_.form
        name = index if form is None else (form, index)
        kept = CACHE.get(group.key, name)
        if kept is not None:
            return kept, 0
        job = work, group, group.blocks[positions[at]], name
        return _load(*job) if group.in_memory else _reader().submit(_load, *job)

    keep_freed()
    ahead = begin(0)
    try:
        for at, position in enumerate(positions):
            current = ahead.result() if isinstance(ahead, Future) else ahead
            ahead = begin(at + 1)
            assert current is not None
            features, read = current
            if work.token in _halted:
                raise EngineError(f"The pass {work.pass_.name!r} was stopped because another part of it failed.")
            tally = Tally(bytes_read=measured(features) if first and not read else read, blocks=1, cached=int(not read))
            yield block_of(group, position, features, exchanged), tally
            del current, features
    except (KeyboardInterrupt, SystemExit):
        interrupt()  # the read that is under way, too, for which this waits below
        raise
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
