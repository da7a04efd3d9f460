"""Coordinates from the smallest eigenvectors of M′, for one view or several, and samples that come later.

    B_v = I − W_v on the samples of view v,   M′ = Σ_v P_vᵀ B_vᵀ B_v P_v = BᵀB

where P_v picks the samples of view v among the n distinct ones: samples in correspondence are one unknown, and
count once.  B stacks the B_v P_v; it is all that is kept, and M′ is applied, or formed as a sparse matrix, from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, Features
from dlatent.solvers.lle.neighbours import nearest
from dlatent.solvers.lle.weights import weights


def weight_matrix(indices: npt.NDArray[np.int64], weights: Array, samples: int) -> sp.csr_array:
    """W (N, samples) with W_ij the weight of sample j in the reconstruction of row i."""
    rows, k = indices.shape
    order = np.argsort(indices, axis=1)
    columns = np.take_along_axis(indices, order, 1).ravel()
    values = np.take_along_axis(weights, order, 1).ravel()
    return sp.csr_array((values, columns, np.arange(rows + 1) * k), (rows, samples))


def residual_matrix(
    weights: Sequence[sp.csr_array], places: Sequence[npt.NDArray[np.int64]], samples: int
) -> sp.csr_array:
    """B (Σ N_v, n), from the weights W_v (N_v, N_v) of the views and the distinct
    sample of each of their rows (N_v,)."""
    parts = []
    for matrix, place in zip(weights, places, strict=True):
        own = sp.csr_array(sp.eye_array(matrix.shape[0], format="csr") - matrix)
        parts.append(sp.csr_array((own.data, place[own.indices], own.indptr), (own.shape[0], samples)))
    stacked = sp.csr_array(sp.vstack(parts, format="csr"))
    stacked.sum_duplicates()
    return stacked


def components(residual: sp.csr_array) -> npt.NDArray[np.int64]:
    """The connected component of each sample (n,) in the graph of neighbours, the largest first."""
    pattern = sp.csr_array((np.ones(residual.nnz), residual.indices, residual.indptr), residual.shape)
    # Samples meet where one row of B holds both: rows are vertices, too, so that the product is never made.
    rows, columns = residual.shape
    bounds = sp.block_array([[None, pattern], [sp.csr_array((columns, rows)), None]], format="csr")
    _, label = sp.csgraph.connected_components(bounds, directed=False)
    own = label[rows:]
    kinds, found, counts = np.unique(own, return_inverse=True, return_counts=True)
    rank = np.empty(len(kinds), dtype=np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(kinds))
    return np.asarray(rank[found])


def closed_sets(weights: sp.csr_array) -> list[npt.NDArray[np.int64]]:
    """Sets of samples whose neighbours are all among themselves, and that can all be reached from each other; the
    largest first.

    Each gives I − W a null vector (with generic weights), in a graph that is connected, too: samples between two such
    sets are made of both.
    """
    count, label = sp.csgraph.connected_components(weights, directed=True, connection="strong")
    rows, columns = weights.nonzero()
    left = np.zeros(count, dtype=bool)
    left[label[rows[label[rows] != label[columns]]]] = True
    found = [np.flatnonzero(label == number) for number in np.flatnonzero(~left)]
    return sorted(found, key=len, reverse=True)


def coordinates(vectors: Array) -> Array:
    """Y = √n V (n, K), so that YᵀY = nI, with the sign that makes the largest entry of each column positive."""
    peaks = np.take_along_axis(vectors, abs(vectors).argmax(axis=0)[None], axis=0)
    return np.asarray(np.sqrt(len(vectors)) * vectors * np.where(peaks < 0.0, -1.0, 1.0))


class Reference(NamedTuple):
    """Samples (n, D) that new ones are placed among, what is to be interpolated (n, L), and how: neighbours, and the
    regularisation of their weights."""

    samples: Features
    values: Features
    k: int
    regularisation: float


def interpolated(rows: Features, reference: Reference) -> Array:
    """Σ_a w_a v_a (m, L) for each new row, with the barycentric weights of its nearest reference samples.

    Source: Saul and Roweis (2003), section 5.1, for coordinates; Ham, Lee and Saul (2003), section 3, for views.
    """
    samples = reference.samples
    if isinstance(samples, sp.csr_array):
        rows = sp.csr_array(rows)
    elif isinstance(rows, sp.csr_array):
        rows = rows.toarray()
    indices = nearest(rows, samples, reference.k, _centre(samples)).indices
    order = np.arange(indices.size)
    found = weights(rows, samples[indices.ravel()], order, reference.k, reference.regularisation)
    total: Any = weight_matrix(indices, found, samples.shape[0]) @ reference.values
    return np.asarray(total.toarray() if isinstance(total, sp.csr_array) else total)


def _centre(x: Features) -> Array:
    if isinstance(x, np.ndarray):
        return np.asarray(x.mean(axis=0, dtype=np.float64))
    return np.zeros(x.shape[1])
