"""Approximate neighbours from pynndescent, and how many of them are right."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array, Features
from dlatent.errors import DataError
from dlatent.local_linear.neighbours import Neighbours, nearest

SAMPLE = 500
"""Samples whose exact neighbours are found to measure the recall."""


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
    own = np.arange(x.shape[0])[:, None]
    order = np.argsort(indices == own, axis=1, kind="stable")[:, :k]  # the sample itself last, where it was found
    found = np.take_along_axis(indices, order, 1).astype(np.int64)
    squares = np.take_along_axis(distances, order, 1).astype(np.float64) ** 2
    missed = np.flatnonzero((found < 0).any(axis=1))
    if len(missed):
        exact = exact_neighbours(x, missed, k, shift)
        found[missed], squares[missed] = exact.indices, exact.distances
    return Neighbours(squares, found), recall(x, found, shift)


def recall(x: Features, indices: npt.NDArray[np.int64], shift: Array) -> float:
    """Part of the exact neighbours that are among the given ones (N, k), on a sample of the rows."""
    rows = np.sort(np.random.default_rng(0).permutation(x.shape[0])[:SAMPLE])
    exact = exact_neighbours(x, rows, indices.shape[1], shift).indices
    hits = (exact[:, :, None] == indices[rows][:, None, :]).any(axis=2)
    return float(hits.mean())


def exact_neighbours(x: Features, rows: npt.NDArray[np.intp], k: int, shift: Array) -> Neighbours:
    """The exact neighbours of some rows of x."""
    found = nearest(x[rows], x, k + 1, shift)
    order = np.argsort(found.indices == rows[:, None], axis=1, kind="stable")[:, :k]
    return Neighbours(np.take_along_axis(found.distances, order, 1), np.take_along_axis(found.indices, order, 1))
