"""Exact nearest neighbours, from products of blocks: fast distances name the candidates, exact ones decide.

    ‖x − y‖² = ‖x‖² − 2 xᵀy + ‖y‖²

costs one multiplication of matrices, and loses digits where points lie close together.  So a pair is a candidate where
the fast distance is below a bound of the k-th smallest one by no more than its rounding error, and every candidate's
distance is taken again from the differences of its coordinates, in float64.  Whatever precision the product has, the
neighbours are those of the exact distances; ties go to the smaller index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Dense, Features, Integers
from dlatent.linear_gaussian.moments import require_finite

TILE_ROWS = 512
TILE_COLUMNS = 2048
"""Pairs are compared a tile at a time, which stays in the cache of a core."""
TILE_CELLS = 1 << 22
"""Numbers of the rows of a tile, where sparse rows are laid out, and of differences that are taken at a time."""
MOST_PENDING = 8
"""Candidates are decided when there are this many for each neighbour that is sought."""
SINGLE_MARGIN = 0.05
"""Products are taken in float32 where their rounding error is below this part of the distances in question."""


class Neighbours(NamedTuple):
    """Squared distances (n, k), increasing, and indices (n, k) of the nearest instances; ∞ and −1 where there are
    fewer."""

    distances: Array
    indices: npt.NDArray[np.int64]


class NeighbourRequest(NamedTuple):
    """How many neighbours, the point near the mean that coordinates are taken about (D,), a bound of each instance's
    k-th squared distance (N,), or None, the precision of the products, and directions (D, d) that the first pass takes
    coordinates along."""

    k: int
    shift: Array
    bounds: Array | None = None
    single: bool = False
    directions: Array | None = None


class Bounds(NamedTuple):
    """A bound of the k-th squared distance of each row (n,), the largest squared norm about the shift, and coordinates
    along the directions (n, d)."""

    bounds: Array
    largest: float
    slow: Array


def block_bounds(block: Block, request: NeighbourRequest) -> tuple[Bounds]:
    """Bounds from the neighbours within the block alone.  Raises DataError for NaN or infinity."""
    x = block.features
    require_finite(block, np.asarray(x.sum(axis=0, dtype=np.float64)).ravel())
    found = nearest(x, x, request._replace(bounds=None), own=0)
    centred = _centred(x, request.shift)
    directions = np.zeros((x.shape[1], 0)) if request.directions is None else request.directions
    return (Bounds(found.distances[:, -1], float(_norms(centred).max()), np.asarray(centred @ directions)),)


def single_is_enough(bounds: Array, largest: float, features: int) -> bool:
    """Whether products in float32 leave few candidates more than products in float64."""
    finite = bounds[np.isfinite(bounds)]
    if not len(finite):
        return False
    error = _error(features, np.float32) * 2.0 * largest
    return bool(error <= SINGLE_MARGIN * np.median(finite))


def block_neighbours(own: Block, other: Block, request: NeighbourRequest) -> Neighbours:
    """The nearest neighbours of the rows of one block among those of another, themselves excepted."""
    bounds = None if request.bounds is None else request.bounds[own.start : own.start + own.rows]
    same = 0 if own.index == other.index else None
    found = nearest(own.features, other.features, request._replace(bounds=bounds), own=same)
    return Neighbours(found.distances, np.where(found.indices < 0, -1, found.indices + other.start))


def merged(left: Neighbours, right: Neighbours) -> Neighbours:
    """The nearest among both, for the same rows and disjoint neighbours; ties go to the smaller index."""
    distances = np.hstack([left.distances, right.distances])
    indices = np.hstack([left.indices, right.indices])
    order = np.lexsort((indices, distances), axis=1)[:, : left.distances.shape[1]]
    return Neighbours(np.take_along_axis(distances, order, 1), np.take_along_axis(indices, order, 1))


def nearest(x: Features, y: Features, request: NeighbourRequest, own: int | None = None) -> Neighbours:
    """The k nearest rows of y (m, D) for each row of x (n, D), by exact distances.

    Parameters: `request` with the bounds of the rows of x (n,), or None; `own`, the row of y that is the first row of x
    and not its own neighbour (None: x is not part of y).
    Returns: distances and rows of y; ∞ and −1 beyond the bounds, or where y has fewer rows.
    """
    sparse = isinstance(x, sp.csr_array)
    a, b = _centred(x, request.shift), _centred(y, request.shift)
    dtype = np.float32 if request.single and not sparse else np.float64
    norms, others = _norms(a), _norms(b)
    error = _error(x.shape[1], dtype) * (norms + others.max(initial=0.0))
    product = _sparse_products(b, others) if sparse else _dense_products(cast(Array, b), others, dtype)
    parts = []
    rows = TILE_ROWS if not sparse else max(16, min(TILE_ROWS, TILE_CELLS // x.shape[1]))
    for start in range(0, x.shape[0], rows):
        at = slice(start, min(start + rows, x.shape[0]))
        bounds = None if request.bounds is None else request.bounds[at]
        tile = _Tile(x[at], y, product(a[at]), norms[at], error[at], None if own is None else own + start)
        parts.append(_nearest_in_tile(tile, request.k, bounds))
    return Neighbours(np.concatenate([p.distances for p in parts]), np.concatenate([p.indices for p in parts]))


class _Tile(NamedTuple):
    """Some rows (n, D), all others (m, D), their products, the rows' squared norms and rounding errors (n,), and which
    of the others the first row is."""

    rows: Features
    others: Features
    product: Callable[[int, int], Dense]
    norms: Array
    error: Array
    own: int | None


def _nearest_in_tile(tile: _Tile, k: int, bounds: Array | None) -> Neighbours:
    """The k nearest of each row.  Without bounds the first columns give some: the k-th smallest of their products."""
    count, columns = len(tile.norms), tile.others.shape[0]
    found = Neighbours(np.full((count, k), np.inf), np.full((count, k), -1, dtype=np.int64))
    limit = None if bounds is None else bounds - tile.norms + tile.error
    pending: list[tuple[Integers, Integers]] = []
    for start in range(0, columns, TILE_COLUMNS):
        stop = min(start + TILE_COLUMNS, columns)
        values = tile.product(start, stop)
        if tile.own is not None:
            _exclude(values, tile.own - start)
        if limit is None:
            enough = stop - start > k
            limit = np.full(count, np.inf)
            if enough:
                limit = np.partition(values, k - 1, axis=1)[:, k - 1] + 2.0 * tile.error
        within = values <= limit[:, None].astype(values.dtype)
        row, column = np.divmod(np.flatnonzero(within), stop - start)  # many times as fast as nonzero of a matrix
        pending.append((row, column + start))
        if stop == columns or sum(len(some) for some, _ in pending) > MOST_PENDING * k * count:
            found = merged(found, _decided(tile, pending, k))
            # Many candidates mean a loose bound, or many points in one place: what is known by now is a better one.
            limit = np.minimum(limit, found.distances[:, -1] - tile.norms + tile.error)
            pending = []
    return found


def _decided(tile: _Tile, pending: list[tuple[Integers, Integers]], k: int) -> Neighbours:
    """The k nearest among candidates, by exact distances."""
    row, column = (np.concatenate(parts) for parts in zip(*pending, strict=True))
    if tile.own is not None:
        others = row + tile.own != column
        row, column = row[others], column[others]
    return _smallest(row, column, _exact(tile.rows, tile.others, row, column), len(tile.norms), k)


def _centred(x: Features, shift: Array) -> Any:
    """Rows in float64 about the shift; sparse rows stay where they are, with their zeros."""
    return _double(x) if isinstance(x, sp.csr_array) else _double(x) - shift


def _double(x: Any) -> Any:
    return x.astype(np.float64, copy=False)


def _norms(x: Any) -> Array:
    if isinstance(x, sp.csr_array):
        return np.asarray(x.multiply(x).sum(axis=1), dtype=np.float64).ravel()
    return np.asarray(np.einsum("nd,nd->n", x, x))


def _error(features: int, dtype: Any) -> float:
    """Bound of the rounding error of ‖y‖² − 2xᵀy, as a part of ‖x‖² + ‖y‖²: coordinates, products, sums, limits."""
    return (features + 8) * float(np.finfo(dtype).eps) / 2.0


def _dense_products(y: Array, norms: Array, dtype: Any) -> Any:
    """‖y‖² − 2xᵀy of a tile of rows x and columns [start, stop) of y: the norms are one more coordinate."""
    wide = np.empty((len(y), y.shape[1] + 1), dtype=dtype)
    wide[:, :-1], wide[:, -1] = y, norms

    def of(x: Array) -> Any:
        rows = np.empty((len(x), x.shape[1] + 1), dtype=dtype)
        rows[:, :-1], rows[:, -1] = -2.0 * x, 1.0
        return lambda start, stop: rows @ wide[start:stop].T

    return of


def _sparse_products(y: Any, norms: Array) -> Any:
    """The same for sparse rows; those of a tile are laid out, so that each entry of y is met once."""

    def of(x: sp.csr_array) -> Any:
        laid_out = np.ascontiguousarray(-2.0 * x.toarray().T)
        return lambda start, stop: (y[start:stop] @ laid_out + norms[start:stop, None]).T

    return of


def _exclude(values: Dense, first: int) -> None:
    """∞ where a row meets itself: row i and column first + i."""
    rows = np.arange(max(0, -first), min(len(values), values.shape[1] - first))
    if len(rows):
        values[rows, rows + first] = np.inf


def _exact(a: Features, b: Features, row: Integers, column: Integers) -> Array:
    """Squared distances of pairs of rows, from the differences of what is given: no shift has rounded it."""
    found = np.empty(len(row))
    step = max(1, TILE_CELLS // a.shape[1]) if not isinstance(a, sp.csr_array) else 1 << 16
    for start in range(0, len(row), step):
        at = slice(start, start + step)
        found[at] = _norms(_double(a[row[at]]) - _double(b[column[at]]))
    return found


def _smallest(row: Integers, column: Integers, distance: Array, rows: int, k: int) -> Neighbours:
    """The k smallest of each row in lists of pairs, increasing, ties by column; filled with ∞ and −1."""
    order = np.lexsort((column, distance, row))
    row, column, distance = row[order], column[order], distance[order]
    rank = np.arange(len(row)) - np.searchsorted(row, np.arange(rows))[row]
    kept = rank < k
    distances, indices = np.full((rows, k), np.inf), np.full((rows, k), -1, dtype=np.int64)
    distances[row[kept], rank[kept]] = distance[kept]
    indices[row[kept], rank[kept]] = column[kept]
    return Neighbours(distances, indices)
