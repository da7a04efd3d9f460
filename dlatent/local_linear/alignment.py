"""The matrix of which an embedding is made of the smallest eigenvectors, for one view or several.

    B_v = I − W_v on the samples of view v,   M' = Σ_v P_vᵀ B_vᵀ B_v P_v = BᵀB

where P_v picks the samples of view v among the n distinct ones: samples in correspondence are one unknown, and
count once.  B stacks the B_v P_v; it is all that is kept, and M' is applied, or formed as a sparse matrix, from it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array


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
