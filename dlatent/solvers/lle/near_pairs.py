"""Pairs of near points of two blocks: fast distances name the candidates, exact ones decide.

    ‖x − y‖² = ‖x‖² − 2 xᵀy + ‖y‖²

costs one multiplication of matrices, and loses digits where points lie close together.  So a pair is a candidate where
the fast distance is within a limit by no more than its rounding error, and every candidate's distance is taken again
from the differences of its coordinates, in float64.

Points are put in an order in which near ones lie together.  Runs of them that by the triangle inequality are farther
apart than their limits are not multiplied.  Of the candidates of each row the k nearest are kept, ties to the smaller
index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, Dense, Features, Integers
from dlatent.operators.sparse import rows_about

MOST_PENDING = 3
"""The nearest candidates are picked when there are so many for each neighbour that is sought."""
LEAF = 64
"""Points of a run that is left out or multiplied as a whole."""
TILE_ROWS, TILE_COLUMNS = 128, 1024
"""Products are made and compared a tile at a time, which stays in the cache of a core."""
TILE_CELLS = 1 << 22
"""Numbers of the sparse rows of a tile, which are laid out."""
EXACT_CELLS = 1 << 17
"""Numbers of differences that are taken at a time."""
FIRST, SAMPLE = 512, 2048
"""Points that give first limits to those among them, and to others."""

Columns: TypeAlias = "slice | npt.NDArray[np.intp]"
TileProducts: TypeAlias = "Callable[[slice], Callable[[Columns], Dense]]"


class Points(NamedTuple):
    """Points of a block in their order; only `rows` (n, D) are as they were given.

    `order` is the row of each point (n,); `moved` are coordinates about the shift, with squared norms; `limits` (n,)
    are squared distances within which others are asked for (negative: none); centres (L, D) and radii (L,) are those of
    runs of `LEAF` points, without any where nothing is known of their places.
    """

    rows: Features
    order: Integers
    moved: Any
    norms: Array
    limits: Array
    centres: Array
    radii: Array


def points(rows: Features, shift: Array, limits: Array, order: Integers | None = None) -> Points:
    """Rows (n, D) with their limits (n,), in an order in which near ones lie together, or as they come."""
    nowhere = np.zeros((0, rows.shape[1])), np.zeros(0)
    if order is None or isinstance(rows, sp.csr_array):
        # Sparse rows stay where they are, with their zeros.
        moved: Any = rows_about(rows, shift)[0]
        moved = moved.astype(np.float64, copy=False) if isinstance(moved, sp.csr_array) else rows - shift
        return Points(rows, np.arange(rows.shape[0]), moved, squared_norms(moved), limits, *nowhere)
    moved = rows[order] - shift
    starts = np.arange(0, len(rows), LEAF)
    sizes = np.diff(starts, append=len(rows))
    centres = np.add.reduceat(moved, starts) / sizes[:, None]
    off = np.sqrt(squared_norms(moved - np.repeat(centres, sizes, axis=0)))
    return Points(rows, order, moved, squared_norms(moved), limits[order], centres, np.maximum.reduceat(off, starts))


def near_order(coordinates: Array) -> Integers:
    """An order (n,) of points (n, d) in which near ones lie together: halved along the widest axis, down to runs."""
    order = np.arange(len(coordinates))
    waiting = [(0, len(order))] if coordinates.shape[1] else []
    while waiting:
        start, stop = waiting.pop()
        runs = -(-(stop - start) // LEAF)
        if runs > 1:
            inside, half = coordinates[order[start:stop]], LEAF * (runs // 2)
            axis = int(np.ptp(inside, axis=0).argmax())
            order[start:stop] = order[start:stop][np.argpartition(inside[:, axis], half)]
            waiting += [(start, start + half), (start + half, stop)]
    return order


def rounding(features: int, dtype: Any) -> float:
    """Bound of the rounding error of a fast distance, as a part of ‖x‖² + ‖y‖²: coordinates, products, sums, limits."""
    return (features + 8) * float(np.finfo(dtype).eps)


def squared_norms(x: Any) -> Array:
    """‖x‖² of each row (n,)."""
    if isinstance(x, sp.csr_array):
        return np.asarray(x.multiply(x).sum(axis=1), dtype=np.float64).ravel()
    return np.asarray(np.einsum("nd,nd->n", x, x))


def first_limits(a: Points, b: Points, k: int, *, same: bool) -> Array:
    """Squared distances within which each point of a has k others of b (n,): the k-th of the points about it in the
    order where both are the same, else that of points of b at even steps; ∞ where b has fewer."""
    product, error = _products(a, b, np.float64), rounding(a.rows.shape[1], np.float64)
    count, most = len(b.norms), b.norms.max(initial=0.0)
    limits = np.full(len(a.norms), np.inf)
    for start, stop in _tiles(a):
        piece = slice(0, count, -(-count // max(SAMPLE, 2 * k)))
        if same:
            width = max(FIRST, stop - start, 2 * k + 1)
            first = max(0, min(start // FIRST * FIRST, count - width))
            first = max(first, stop - width)
            piece = slice(first, first + width)
        values = product(slice(start, stop))(piece)
        if same:
            diagonal = np.arange(stop - start)
            values[diagonal, diagonal + start - first] = np.inf
        if values.shape[1] - same >= k:
            near = np.partition(values, k - 1, axis=1)[:, k - 1]
            limits[start:stop] = near + 2.0 * error * (a.norms[start:stop] + most)
    return limits


def nearest_pairs(a: Points, b: Points, k: int, *, single: bool, same: bool) -> tuple[Neighbours, Neighbours]:
    """The k nearest points of b within the limit of each point of a, and of a for b, by exact distances, as rows.

    `single` takes products in float32; `same`: a and b are the same points, and none is its own neighbour.
    """
    dtype = np.float32 if single else np.float64
    product, error = _products(a, b, dtype), rounding(a.rows.shape[1], dtype)
    mine = Nearest(a.limits, k)
    yours = mine if same else Nearest(b.limits, k)
    numbers = np.arange(len(b.norms))
    for start, stop in _tiles(a):
        tile = slice(start, stop)
        products, allowed = product(tile), error * a.norms[tile]
        for piece in _pieces(a, b, tile, start if same else 0):
            values, more = products(piece), error * b.norms[piece]
            left = (mine.limits[tile] + allowed + more.max(initial=0.0)).astype(values.dtype)
            right = (yours.limits[piece] + more + allowed.max()).astype(values.dtype)
            within = values <= left[:, None]
            within |= values <= right
            row, column = np.divmod(np.flatnonzero(within), within.shape[1])  # far faster than nonzero of a matrix
            if same:
                once = numbers[piece][column] > row + start
                row, column = row[once], column[once]
            value = values[row, column]
            for_mine, for_yours = value <= left[row], value <= right[column]
            row, column = row + start, numbers[piece][column]
            x, y = a.order[row], b.order[column]
            distance = _exact(a.rows, b.rows, x, y)
            mine.add(row[for_mine], y[for_mine], distance[for_mine])
            yours.add(column[for_yours], x[for_yours], distance[for_yours])
    return mine.of_rows(a.order), yours.of_rows(b.order)


def _tiles(a: Points) -> Iterator[tuple[int, int]]:
    """First and last of the points that are compared at a time."""
    count, step = len(a.norms), TILE_ROWS
    if isinstance(a.moved, sp.csr_array):
        step = max(16, min(4 * TILE_ROWS, TILE_CELLS // a.moved.shape[1]))
    yield from ((start, min(start + step, count)) for start in range(0, count, step))


def _pieces(a: Points, b: Points, tile: slice, first: int) -> Iterator[Columns]:
    """The points of b, from the first on, that may be within the limits of a tile or have it within theirs."""
    count = len(b.norms)
    if not len(a.radii) or not len(b.radii):
        yield from (slice(at, min(at + TILE_COLUMNS, count)) for at in range(first, count, TILE_COLUMNS))
        return
    centre = a.moved[tile].mean(axis=0)
    off = np.sqrt(squared_norms(a.moved[tile] - centre).max())
    gap = np.sqrt(squared_norms(b.centres - centre)) - off - b.radii
    limit = np.maximum(a.limits[tile].max(), np.maximum.reduceat(b.limits, np.arange(0, count, LEAF)))
    size = np.sqrt(a.norms[tile].max()) + np.sqrt(b.norms.max())
    within = gap <= np.sqrt(np.maximum(limit, 0.0)) + rounding(a.moved.shape[1], np.float64) * size
    within[: first // LEAF] = False
    leaves, step = np.flatnonzero(within), TILE_COLUMNS // LEAF
    for some in (leaves[at : at + step] for at in range(0, len(leaves), step)):
        if some[-1] - some[0] == len(some) - 1:
            yield slice(int(some[0]) * LEAF, min(int(some[-1] + 1) * LEAF, count))
        else:
            places = (some[:, None] * LEAF + np.arange(LEAF)).ravel()
            yield places[places < count]


def _products(a: Points, b: Points, dtype: Any) -> TileProducts:
    """Fast squared distances of a tile of a and a piece of b."""
    if isinstance(a.moved, sp.csr_array):
        return _sparse_products(a, b)
    # The norms are two more coordinates.
    left, right = (np.empty((len(x.norms), x.moved.shape[1] + 2), dtype=dtype) for x in (a, b))
    left[:, :-2], left[:, -2], left[:, -1] = -2.0 * a.moved, a.norms, 1.0
    right[:, :-2], right[:, -2], right[:, -1] = b.moved, 1.0, b.norms
    return lambda tile: lambda piece: left[tile] @ right[piece].T


def _sparse_products(a: Points, b: Points) -> TileProducts:
    """Fast squared distances of sparse rows; those of a tile are laid out, so that each entry of b is met once."""

    def of(tile: slice) -> Callable[[Columns], Dense]:
        laid_out = np.ascontiguousarray(-2.0 * a.moved[tile].toarray().T)
        return lambda piece: (b.moved[piece] @ laid_out + b.norms[piece, None]).T + a.norms[tile, None]

    return of


def _exact(a: Any, b: Any, x: Integers, y: Integers) -> Array:
    """Squared distances of pairs of rows, from the differences of what is given: no shift has rounded it."""
    squares = np.empty(len(x))
    step = max(1, EXACT_CELLS // a.shape[1]) if not isinstance(a, sp.csr_array) else 1 << 16
    for start in range(0, len(x), step):
        at = slice(start, start + step)
        squares[at] = squared_norms(a[x[at]].astype(np.float64) - b[y[at]].astype(np.float64))
    return squares


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
        self._nearest = Neighbours(np.full((len(limits), k), np.inf), np.full((len(limits), k), -1, dtype=np.int64))
        self._pending: list[tuple[Integers, Integers, Array]] = []
        self._count = 0

    def add(self, point: Integers, other: Integers, distance: Array) -> None:
        """More candidates: which points, the others' indices, and their squared distances."""
        self._pending.append((point, other, distance))
        self._count += len(point)
        if self._count > MOST_PENDING * self._nearest.distances.size:
            self._look_through()
            # Many candidates mean loose limits, or many points in one place: what is known by now is a better limit.
            self.limits = np.minimum(self.limits, self._nearest.distances[:, -1])

    def of_rows(self, order: Integers) -> Neighbours:
        """The nearest of each row, where point i is row `order[i]`."""
        self._look_through()
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return Neighbours(self._nearest.distances[back], self._nearest.indices[back])

    def _look_through(self) -> None:
        if self._count:
            point, other, distance = (np.concatenate(parts) for parts in zip(*self._pending, strict=True))
            self._nearest = merged(self._nearest, smallest(point, other, distance, *self._nearest.distances.shape))
            self._pending, self._count = [], 0


def merged(left: Neighbours, right: Neighbours) -> Neighbours:
    """The nearest among both, for the same rows and disjoint neighbours; ties go to the smaller index."""
    distances = np.hstack([left.distances, right.distances])
    indices = np.hstack([left.indices, right.indices])
    order = np.lexsort((indices, distances), axis=1)[:, : left.distances.shape[1]]
    return Neighbours(np.take_along_axis(distances, order, 1), np.take_along_axis(indices, order, 1))


def smallest(row: Integers, other: Integers, distance: Array, rows: int, k: int) -> Neighbours:
    """The k smallest of each row in lists of pairs, increasing; filled with ∞ and −1."""
    order = np.lexsort((other, distance, row))
    row, other, distance = row[order], other[order], distance[order]
    counts = np.bincount(row, minlength=rows)
    place = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
    nearest = Neighbours(np.full((rows, k), np.inf), np.full((rows, k), -1, dtype=np.int64))
    near = place < k
    nearest.distances[row[near], place[near]] = distance[near]
    nearest.indices[row[near], place[near]] = other[near]
    return nearest
