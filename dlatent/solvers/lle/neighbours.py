"""Exact nearest neighbours of the samples of all blocks, from what any two blocks tell of each other.

Whatever the precision of the products, the order of the points and the cut into blocks, the neighbours are those of the
exact distances; ties go to the smaller index.  Approximate neighbours come from pynndescent; how many of them are right
is measured on a sample.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Features, Integers
from dlatent.errors import DataError
from dlatent.gaussian.views import require_finite
from dlatent.operators.sparse import rows_about
from dlatent.solvers.lle.near_pairs import (
    Neighbours,
    Points,
    first_limits,
    near_order,
    nearest_pairs,
    points,
    rounding,
)

SAMPLE = 500
"""Samples whose exact neighbours are found to measure the recall."""
SINGLE_MARGIN = 0.05
"""Products are taken in float32 where their rounding error is below this part of the distances in question."""


class NeighbourRequest(NamedTuple):
    """How many neighbours, and the point near the mean that coordinates are taken about (D,).

    The first pass takes coordinates along `directions` (D, d).  The second has its findings: a bound of each sample's
    k-th squared distance (N,), the order of the rows of each block (N,) in which near ones lie together, and whether
    products are taken in float32.
    """

    k: int
    shift: Array
    directions: Array
    bounds: Array = np.zeros(0)
    order: Integers = np.zeros(0, dtype=np.int64)
    single: bool = False


class Bounds(NamedTuple):
    """A bound of the k-th squared distance of each row (n,), the order of the rows (n,), coordinates along the
    directions (n, d), and the largest squared norm about the shift."""

    bounds: Array
    order: Integers
    slow: Array
    largest: float


def block_bounds(block: Block, request: NeighbourRequest) -> tuple[Bounds]:
    """Bounds from the neighbours within the block alone.  Raises DataError for NaN or infinity."""
    x = block.features
    require_finite(block, np.asarray(x.sum(axis=0, dtype=np.float64)).ravel())
    centred, rest = rows_about(x, request.shift)
    slow = np.asarray((centred if isinstance(centred, sp.csr_array) else centred - rest) @ request.directions)
    order = near_order(slow)
    rows = points(x, request.shift, np.full(x.shape[0], np.inf), order)
    rows = rows._replace(limits=first_limits(rows, rows, request.k, same=True))
    single = single_is_enough(rows.limits, float(rows.norms.max()), x.shape[1])
    nearby, _ = nearest_pairs(rows, rows, request.k, single=single, same=True)
    return (Bounds(nearby.distances[:, -1], order, slow, float(rows.norms.max())),)


def single_is_enough(bounds: Array, largest: float, features: int) -> bool:
    """Whether products in float32 leave few candidates more than products in float64."""
    finite = bounds[np.isfinite(bounds)]
    if not len(finite):
        return False
    error = rounding(features, np.float32) * 2.0 * largest
    return bool(error <= SINGLE_MARGIN * np.median(finite))


def block_neighbours(block: Block, other: Block, request: NeighbourRequest) -> tuple[Neighbours, Neighbours]:
    """The nearest neighbours of the rows of one block among those of another, and the other way round; no row is its
    own neighbour."""
    a, b = _points(block, request), _points(other, request)
    mine, yours = nearest_pairs(a, b, request.k, single=request.single, same=block.index == other.index)
    return _numbered(mine, other.start), _numbered(yours, block.start)


def _points(block: Block, request: NeighbourRequest) -> Points:
    at = slice(block.start, block.start + block.rows)
    return points(block.features, request.shift, request.bounds[at], request.order[at])


def _numbered(neighbours: Neighbours, start: int) -> Neighbours:
    return Neighbours(neighbours.distances, np.where(neighbours.indices < 0, -1, neighbours.indices + start))


def nearest(x: Features, y: Features, k: int, shift: Array) -> Neighbours:
    """The k nearest rows of y (m, D) for each row of x (n, D), by exact distances; ∞ and −1 where y has fewer rows."""
    a = points(x, shift, np.zeros(x.shape[0]))
    b = points(y, shift, np.full(y.shape[0], -1.0))
    limits = first_limits(a, b, k, same=False)
    single = not isinstance(x, sp.csr_array) and single_is_enough(limits, float(b.norms.max(initial=0.0)), x.shape[1])
    return nearest_pairs(a._replace(limits=limits), b, k, single=single, same=False)[0]


def approximate_neighbours(x: Features, k: int, shift: Array) -> tuple[Neighbours, float]:
    """Neighbours of all rows of x (N, D) by nearest neighbour descent, and the recall on a sample of rows.

    Errors: DataError where pynndescent is not installed.
    """
    try:
        from pynndescent import NNDescent
    except ImportError as error:
        raise DataError(
            "approximate neighbours need pynndescent; install it with pip install pynndescent, or use neighbors='exact'"
        ) from error
    indices, distances = NNDescent(x, n_neighbors=k + 1, random_state=0).neighbor_graph
    near = Neighbours(distances.astype(np.float64) ** 2, indices.astype(np.int64))
    near = _without_self(near, np.arange(x.shape[0]), k)
    missed = np.flatnonzero((near.indices < 0).any(axis=1))
    if len(missed):
        near.distances[missed], near.indices[missed] = exact_neighbours(x, missed, k, shift)
    return near, recall(x, near.indices, shift)


def recall(x: Features, indices: npt.NDArray[np.int64], shift: Array) -> float:
    """Part of the exact neighbours that are among the given ones (N, k), on a sample of the rows."""
    rows = np.sort(np.random.default_rng(0).permutation(x.shape[0])[:SAMPLE])
    exact = exact_neighbours(x, rows, indices.shape[1], shift).indices
    hits = (exact[:, :, None] == indices[rows][:, None, :]).any(axis=2)
    return float(hits.mean())


def exact_neighbours(x: Features, rows: npt.NDArray[np.intp], k: int, shift: Array) -> Neighbours:
    """The exact neighbours of some rows of x."""
    return _without_self(nearest(x[rows], x, k + 1, shift), rows, k)


def _without_self(near: Neighbours, rows: npt.NDArray[np.intp], k: int) -> Neighbours:
    """The first k neighbours of some samples that are not these themselves."""
    order = np.argsort(near.indices == rows[:, None], axis=1, kind="stable")[:, :k]
    return Neighbours(np.take_along_axis(near.distances, order, 1), np.take_along_axis(near.indices, order, 1))
