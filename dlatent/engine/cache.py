"""Loaded blocks kept in a worker process between passes, up to a cap in bytes.

Policy: admit while there is room, never evict, except for edges. Every pass reads all blocks once in the same order,
the one pattern for which a least-recently-used cache that is a little too small never hits; a fixed part that stays is
the best there is.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from threading import Lock
from typing import Any

import numpy as np

from dlatent.arrays import Features


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
    ) -> bool:
        """Keep a block if the cache then holds at most `cap` bytes; tells whether it is kept.

        `size` are its bytes; None for features, which are measured. Blocks of the source `over` give way to it.
        """
        size = measured(block) if size is None else size
        with self._lock:
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

    def release(self, key: Hashable) -> None:
        """Forget all blocks of a source."""
        with self._lock:
            self._blocks.pop(key, None)


CACHE = BlockCache()
"""The cache of this process."""
os.register_at_fork(after_in_child=CACHE.__init__)  # type: ignore[misc]  # empty, and not locked by a thread left behind


def release(keys: Iterable[Hashable], above: int = -1) -> None:
    """Forget all blocks of some sources in this process, where it keeps more than `above` bytes."""
    if CACHE.nbytes > above:
        for key in keys:
            CACHE.release(key)
