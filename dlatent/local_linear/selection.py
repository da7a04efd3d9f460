"""The nearest of lists of candidates: the k smallest distances of each row, ties to the smaller index."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array, Integers

MOST_PENDING = 3
"""The nearest candidates are picked when there are so many for each neighbour that is sought."""
WIDEN = 4


class Neighbours(NamedTuple):
    """Squared distances (n, k), increasing, and indices (n, k) of the nearest samples; ∞ and −1 where there are
    fewer."""

    distances: Array
    indices: npt.NDArray[np.int64]


class Nearest:
    """The k nearest candidates of each of n points so far, and those that are still to be looked through.

    `limits` (n,) are squared distances beyond which a candidate is no use.
    """

    def __init__(self, limits: Array, k: int) -> None:
        self.limits = limits
        self._found = Neighbours(np.full((len(limits), k), np.inf), np.full((len(limits), k), -1, dtype=np.int64))
        self._pending: list[tuple[Integers, Integers, Array]] = []
        self._count = 0

    def add(self, point: Integers, other: Integers, distance: Array) -> None:
        """More candidates: which points, the others' indices, and their squared distances."""
        self._pending.append((point, other, distance))
        self._count += len(point)
        if self._count > MOST_PENDING * self._found.distances.size:
            self._look_through()
            # Many candidates mean loose limits, or many points in one place: what is known by now is a better limit.
            self.limits = np.minimum(self.limits, self._found.distances[:, -1])

    def of_rows(self, order: Integers) -> Neighbours:
        """The nearest of each row, where point i is row `order[i]`."""
        self._look_through()
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return Neighbours(self._found.distances[back], self._found.indices[back])

    def _look_through(self) -> None:
        if self._count:
            point, other, distance = (np.concatenate(parts) for parts in zip(*self._pending, strict=True))
            self._found = merged(self._found, smallest(point, other, distance, *self._found.distances.shape))
            self._pending, self._count = [], 0


def merged(left: Neighbours, right: Neighbours) -> Neighbours:
    """The nearest among both, for the same rows and disjoint neighbours; ties go to the smaller index."""
    distances = np.hstack([left.distances, right.distances])
    return _sorted(distances, np.hstack([left.indices, right.indices]), left.distances.shape[1])


def smallest(row: Integers, other: Integers, distance: Array, rows: int, k: int) -> Neighbours:
    """The k smallest of each row in lists of pairs, increasing; filled with ∞ and −1."""
    order = np.argsort(row.astype(np.uint16 if rows <= 1 << 16 else np.int64), kind="stable")
    row, other, distance = row[order], other[order], distance[order]
    counts = np.bincount(row, minlength=rows)
    place = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
    found = Neighbours(np.full((rows, k), np.inf), np.full((rows, k), -1, dtype=np.int64))
    least, most = 0, int(counts.max(initial=0))
    while least < most:  # rows with about as many candidates make a table
        width = min(WIDEN * max(least, k), most)
        chosen = (counts > least) & (counts <= width)
        table = np.full((int(chosen.sum()), max(width, k)), np.inf)
        others = np.full(table.shape, -1, dtype=np.int64)
        at = chosen[row]
        cell = (np.cumsum(chosen) - 1)[row[at]], place[at]
        table[cell], others[cell] = distance[at], other[at]
        found.distances[chosen], found.indices[chosen] = _sorted(table, others, k)
        least = width
    return found


def _sorted(distances: Array, indices: npt.NDArray[np.int64], k: int) -> Neighbours:
    order = np.lexsort((indices, distances), axis=1)[:, :k]
    return Neighbours(np.take_along_axis(distances, order, 1), np.take_along_axis(indices, order, 1))
