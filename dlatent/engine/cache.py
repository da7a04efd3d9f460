"""Blocks and statistics in memory: their bytes, who may write to them, and the blocks that a process keeps.

Between passes a process keeps blocks up to a cap in bytes.  It admits while there is room, and never evicts, except
for edges.  Every pass reads all blocks once in the same order, the one pattern for which a least-recently-used cache
that is a little too small never hits; a fixed part that stays is the best there is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable
from threading import Lock
from typing import Any, TypeVar, cast

import numpy as np

from dlatent.arrays import BlockSource, Features
from dlatent.engine.machine import cache_share, memory

T = TypeVar("T")


def stored(features: Features) -> tuple[np.ndarray, ...]:
    """The arrays that hold the features: the matrix itself, or the three of CSR."""
    if isinstance(features, np.ndarray):
        return (features,)
    if hasattr(features, "arrays"):  # another form, which says by itself what holds it
        return tuple(features.arrays)
    return (features.data, features.indices, features.indptr)


def measured(features: Features) -> int:
    """Bytes of the features in memory."""
    return sum(array.nbytes for array in stored(features))


def owned(value: T, change: Callable[[Any], Any] = np.copy) -> T:
    """Copy the arrays of a statistic (in tuples, too), so that updating it in place touches nothing else; or `change`
    them."""
    if isinstance(value, np.ndarray):
        return cast(T, change(value))
    if isinstance(value, tuple):
        fields = [owned(item, change) for item in value]
        return type(value)(*fields) if hasattr(value, "_fields") else type(value)(fields)
    return value


def weight(value: Any) -> float:
    """Bytes of the arrays of a statistic (in tuples, too); infinite where it has something else than numbers."""
    if isinstance(value, tuple):
        return sum(map(weight, value))
    if isinstance(value, np.ndarray):
        return value.nbytes
    return 0 if value is None or isinstance(value, int | float | np.generic) else float("inf")


def read_only(array: Any) -> Any:
    """A view of an array through which nobody can write."""
    view = array.view()
    view.flags.writeable = False
    return view


class BlockCache:
    """A thread-safe store of blocks under (source key, block index), in another form under (form, block index), and of
    what is made of edges under theirs."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._blocks: dict[Hashable, dict[Hashable, tuple[Any, int]]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks kept."""
        return sum(size for blocks in self._blocks.values() for _, size in blocks.values())

    def get(self, key: Hashable, index: Hashable) -> Any:
        """The block, or None where it is not kept."""
        return self._blocks.get(key, {}).get(index, (None, 0))[0]

    def admit(
        self,
        key: Hashable,
        index: Hashable,
        block: Any,
        cap: int,
        size: int | None = None,
        over: Hashable | None = None,
        halted: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Keep a block if the cache then holds at most `cap` bytes; tells whether it is kept.

        `size` are its bytes; None for features, which are measured. Blocks of the source `over` give way to it.  Where
        its pass is `halted` it is not kept: the source may be released already, and nobody would release it again.
        """
        size = measured(block) if size is None else size
        with self._lock:
            if halted():
                return False
            kept = self._blocks.setdefault(key, {})
            if index in kept:
                return True
            others = self._blocks.get(over, {})
            while others and size <= cap < self.nbytes + size:
                others.popitem()
            if self.nbytes + size > cap:
                return False
            kept[index] = (block, size)
            return True

    def release(self, keys: Iterable[Hashable], above: int = -1) -> None:
        """Forget all blocks of some sources, where more than `above` bytes are kept."""
        with self._lock:
            for key in keys if self._blocks and self.nbytes > above else ():
                self._blocks.pop(key, None)


CACHE = BlockCache()
"""The cache of this process."""
os.register_at_fork(after_in_child=CACHE.__init__)  # type: ignore[misc]  # empty, and not locked by a thread left behind


class ReferenceCache:
    """At most `cap` bytes (None: what its process may cache) of blocks that every block of a pass is compared with.

    A process reads them once.  The cache comes with the parameters of the pass and goes with them.

    In every process it is another one, empty at first.  It lives as long as the tasks of the pass and no longer than
    its engine, so that nothing is left where a pass fails.
    """

    def __init__(self, cap: int | None = None) -> None:
        self._cap = cap
        self._room = cache_share(memory()) if cap is None else cap
        self._kept: dict[int, Features] = {}
        self._lock = Lock()  # one for each cache: to read a block may take another pass, with a cache of its own

    def __reduce__(self) -> tuple[Any, ...]:
        return ReferenceCache, (self._cap,)

    def load(self, source: BlockSource) -> Features:
        """The block, read where it is not kept.

        Of threads that want it at once one reads it and the others wait; blocks for which there is no room are read
        every time, by all threads at once.
        """
        if source.start not in self._kept and source.nbytes <= self._room:
            with self._lock:
                if source.start not in self._kept:
                    features = owned(source.load(), read_only)
                    if measured(features) <= self._room:
                        self._kept[source.start] = features
                        self._room -= measured(features)
                    return features
        kept = self._kept.get(source.start)
        return owned(source.load(), read_only) if kept is None else kept
