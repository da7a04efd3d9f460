"""Products of tall matrices, D rows and few columns, on all cores, with the same bits on however many.

The algebra of a driver waits for nobody and nobody works beside it, so that what it takes counts in full: with many
features it is the part of a fit that more workers cannot shorten.  Threads of BLAS would cut products by the number of
cores; here rows are cut into slabs of one size, each of which is the product of one thread, and sums over slabs are
added in their order.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TypeVar

import numpy as np

from dlatent.arrays import Array
from dlatent.blas import pinned

S = TypeVar("S")
T = TypeVar("T")

SLAB = 8_192
"""Rows of a slab, a millisecond or two of work; fewer than two slabs are one."""
MOST_THREADS = 8
"""Slabs come from memory, which a few cores keep busy."""


def inner(a: Array, b: Array) -> Array:
    """aᵀb (r, b) of a (D, r) and b (D, b)."""
    first, *others = _of_slabs(lambda at: a[at].T @ b[at], len(a))
    for other in others:
        first += other
    return first


def product(a: Array, c: Array) -> Array:
    """ac (D, b) of a (D, r) and c (r, b); its columns lie one after the other."""
    columns = np.empty((c.shape[1], len(a)))

    def put(at: slice) -> None:
        np.matmul(c.T, a[at].T, out=columns[:, at])

    _of_slabs(put, len(a))
    return columns.T


def without(rows: Array, a: Array, c: Array) -> Array:
    """rows − (ac)ᵀ (b, D) of rows (b, D), a (D, r) and c (r, b)."""
    result = np.empty(rows.shape)

    def put(at: slice) -> None:
        # No array of a thread's own: pages that are new to it would cost as much as the product.
        np.matmul(c.T, a[at].T, out=result[:, at])
        np.subtract(rows[:, at], result[:, at], out=result[:, at])

    _of_slabs(put, len(a))
    return result


def _of_slabs(function: Callable[[slice], T], rows: int) -> list[T]:
    """The results of a function for all slabs, in order."""
    if rows < 2 * SLAB:
        return [function(slice(0, rows))]
    return on_all_cores(function, [slice(start, min(start + SLAB, rows)) for start in range(0, rows, SLAB)])


def on_all_cores(function: Callable[[S], T], pieces: Sequence[S]) -> list[T]:
    """The results of a function for all pieces of a work, in order; each is the work of one thread."""

    def alone(piece: S) -> T:
        with pinned():
            return function(piece)

    # A pool for each product takes a tenth of a millisecond; one that stays would be dead in a process that forked.
    with ThreadPoolExecutor(min(_cores(), len(pieces), MOST_THREADS)) as pool:
        return list(pool.map(alone, pieces))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class SymmetricTiles:
    """K (N, N) as `tiles[i, j]`, K of the rows from `bounds[i]` and the columns from `bounds[j]`, for i ≤ j."""

    tiles: dict[tuple[int, int], Array]
    bounds: tuple[int, ...]

    @classmethod
    def of(cls, tiles: Sequence[Array]) -> SymmetricTiles:
        """The matrix of tiles that come row by row of tiles."""
        groups = (math.isqrt(8 * len(tiles) + 1) - 1) // 2
        bounds = np.cumsum([0, *(tile.shape[1] for tile in tiles[:groups])]).tolist()
        return cls(dict(zip(combinations_with_replacement(range(groups), 2), tiles, strict=True)), tuple(bounds))

    @property
    def size(self) -> int:
        """Rows and columns N."""
        return self.bounds[-1]

    @property
    def diagonal(self) -> Array:
        """K_nn (N,)."""
        return np.concatenate([np.diag(self.tiles[group, group]) for group in self._groups])

    def __matmul__(self, thin: Array) -> Array:
        """KV (N, b), on all cores, each of which makes some rows; a sum is over tiles from left to right."""
        found = np.zeros((self.size, thin.shape[1]))

        def put(group: int) -> None:
            own = found[self._at(group)]
            for other in self._groups:
                tile = self.tiles[group, other] if group <= other else self.tiles[other, group].T
                own += tile @ thin[self._at(other)]

        on_all_cores(put, self._groups)
        return found

    def whole(self) -> Array:
        """All of K (N, N)."""
        found = np.empty((self.size, self.size))
        for (group, other), tile in self.tiles.items():
            rows, columns = self._at(group), self._at(other)
            found[rows, columns] = tile
            if group != other:
                found[columns, rows] = tile.T
        return found

    @property
    def _groups(self) -> range:
        return range(len(self.bounds) - 1)

    def _at(self, group: int) -> slice:
        return slice(self.bounds[group], self.bounds[group + 1])
