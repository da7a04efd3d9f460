"""Locally linear embedding: weights, coordinates from the smallest eigenvectors of M′, and samples that come later.

Each sample is the affine combination of its neighbours that comes nearest to it,

    min ‖x_i − Σ_a w_ia x_a‖²,  Σ_a w_ia = 1:    (G_i + r tr(G_i) I) w_i ∝ 1,   G_i = (x_a − x_i)ᵀ(x_b − x_i)

whose coordinates are collected in a pass over pairs, as they lie in other blocks.  For one view or several

    B_v = I − W_v on the samples of view v,   M′ = Σ_v P_vᵀ B_vᵀ B_v P_v = BᵀB

where P_v picks the samples of view v among the n distinct ones: samples in correspondence are one unknown, and
count once.  B stacks the B_v P_v; it is all that is kept, and M′ is applied, or formed as a sparse matrix, from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Features
from dlatent.gaussian.spread import divided
from dlatent.operators.sparse import stacked
from dlatent.solvers.lle.neighbours import nearest

CELLS = 1 << 21
"""Numbers of differences that are taken at a time."""


class WeightRequest(NamedTuple):
    """Neighbours of all samples (N, k), the regularisation r, and which samples are asked for: each whose number is
    `part` modulo `parts`, so that the coordinates of their neighbours fit into memory."""

    indices: npt.NDArray[np.int64]
    regularisation: float
    part: int = 0
    parts: int = 1


Coordinates: TypeAlias = "tuple[tuple[npt.NDArray[np.intp], Features], ...]"
"""Of neighbours that lie in some blocks: places in the flat list of neighbours, and rows."""


def block_coordinates(block: Block, other: Block, request: WeightRequest) -> Coordinates:
    """The coordinates of those neighbours of one block's samples that lie in the other."""
    indices = request.indices[_asked(block, request)].ravel() - other.start
    places = np.flatnonzero((indices >= 0) & (indices < other.rows))
    return ((places, other.features[indices[places]]),) if len(places) else ()


def block_weights(block: Block, neighbours: Coordinates, request: WeightRequest) -> Array:
    """The weights (n, k) of the samples of a block that were asked for."""
    asked = _asked(block, request)
    rows = block.features[asked - block.start]
    if not len(asked):
        return np.zeros((0, request.indices.shape[1]))
    places, near = zip(*neighbours, strict=True)
    order = np.argsort(np.concatenate(places))
    return weights(rows, stacked(near), order, request.indices.shape[1], request.regularisation)


def _asked(block: Block, request: WeightRequest) -> npt.NDArray[np.int64]:
    first = block.start + (request.part - block.start) % request.parts
    return np.arange(first, block.start + block.rows, request.parts)


def weights(x: Features, others: Features, order: npt.NDArray[np.intp], k: int, regularisation: float) -> Array:
    """Weights (n, k), each row with the sum 1, of the neighbours `others[order]`, of which rows ik … ik + k belong to
    row i of x (n, D).

    Where all neighbours lie on the sample itself, the trace is zero and the weights are equal.
    Source: Saul and Roweis (2003), appendix A; r tr(G) as in scikit-learn.
    """
    solutions = np.empty((x.shape[0], k))
    step = max(1, CELLS // (k * x.shape[1])) if isinstance(x, np.ndarray) else 1 << 12
    for start in range(0, x.shape[0], step):
        stop = min(start + step, x.shape[0])
        near = others[order[start * k : stop * k]]
        grams = _sparse_grams(x[start:stop], near, k) if sp.issparse(near) else _grams(x[start:stop], near, k)
        solutions[start:stop] = solved(grams, regularisation)
    return solutions


def solved(grams: Array, regularisation: float) -> Array:
    """Weights (n, k) from Gram matrices (n, k, k) of the differences to the neighbours."""
    k = grams.shape[1]
    trace = np.einsum("nkk->n", grams)
    ridge = np.where(trace > 0.0, regularisation * trace, regularisation or 1.0)
    grams[:, np.arange(k), np.arange(k)] += ridge[:, None]
    raw = np.linalg.solve(grams, np.ones((len(grams), k, 1)))[..., 0]
    return np.asarray(raw / raw.sum(axis=1, keepdims=True))


def _grams(x: Any, near: Any, k: int) -> Array:
    differences = near.reshape(len(x), k, -1).astype(np.float64) - x.astype(np.float64)[:, None]
    return np.asarray(differences @ differences.transpose(0, 2, 1))


def _sparse_grams(x: Any, near: Any, k: int) -> Array:
    """Gram matrices of sparse rows: entry (a, b) of all matrices at a time, from the differences, which stay sparse."""
    repeated = np.repeat(np.arange(x.shape[0]), k)
    differences = sp.csr_array(near.astype(np.float64) - x.astype(np.float64)[repeated])
    slots = [differences[a::k] for a in range(k)]
    grams = np.empty((x.shape[0], k, k))
    for a in range(k):
        for b in range(a, k):
            grams[:, a, b] = grams[:, b, a] = np.asarray(slots[a].multiply(slots[b]).sum(axis=1)).ravel()
    return grams


def weight_matrix(indices: npt.NDArray[np.int64], weights: Array, samples: int) -> sp.csr_array:
    """W (N, samples) with W_ij the weight of sample j in the reconstruction of row i."""
    rows, k = indices.shape
    matrix = sp.csr_array((weights.ravel(), indices.ravel(), np.arange(rows + 1) * k), (rows, samples), copy=True)
    matrix.sort_indices()
    return matrix


def residual_matrix(
    weights: Sequence[sp.csr_array], places: Sequence[npt.NDArray[np.int64]], samples: int
) -> sp.csr_array:
    """B (Σ N_v, n), from the weights W_v (N_v, N_v) of the views and the distinct
    sample of each of their rows (N_v,)."""
    parts = []
    for matrix, place in zip(weights, places, strict=True):
        rest = sp.csr_array(sp.eye_array(matrix.shape[0], format="csr") - matrix)
        parts.append(sp.csr_array((rest.data, place[rest.indices], rest.indptr), (rest.shape[0], samples)))
    residual = sp.csr_array(sp.vstack(parts, format="csr"))
    residual.sum_duplicates()
    return residual


def components(residual: sp.csr_array) -> list[npt.NDArray[np.int64]]:
    """The samples of each connected component of the graph of neighbours, the largest first."""
    pattern = sp.csr_array((np.ones(residual.nnz), residual.indices, residual.indptr), residual.shape)
    # Samples meet where one row of B holds both: rows are vertices, too, so that the product is never made.
    rows, columns = residual.shape
    bounds = sp.block_array([[None, pattern], [sp.csr_array((columns, rows)), None]], format="csr")
    _, label = sp.csgraph.connected_components(bounds, directed=False)
    sets = [np.flatnonzero(label[rows:] == number) for number in np.unique(label[rows:])]
    return sorted(sets, key=len, reverse=True)


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
    sets = [np.flatnonzero(label == number) for number in np.flatnonzero(~left)]
    return sorted(sets, key=len, reverse=True)


def coordinates(vectors: Array) -> Array:
    """Y = √n V (n, K), so that YᵀY = nI, with the sign that makes the largest entry of each column positive."""
    peaks = np.take_along_axis(vectors, abs(vectors).argmax(axis=0)[None], axis=0)
    return np.asarray(np.sqrt(len(vectors)) * vectors * np.where(peaks < 0.0, -1.0, 1.0))


class Reference(NamedTuple):
    """Samples (n, D) that new ones are placed among, what is to be interpolated (n, L), and how: neighbours, the
    regularisation of their weights, and what features are divided by (D,)."""

    samples: Features
    values: Features
    k: int
    regularisation: float
    units: Array | None = None


def interpolated(rows: Features, reference: Reference) -> Array:
    """Σ_a w_a v_a (m, L) for each new row, with the barycentric weights of its nearest reference samples.

    Source: Saul and Roweis (2003), section 5.1, for coordinates; Ham, Lee and Saul (2003), section 3, for views.
    """
    samples = reference.samples
    if reference.units is not None:
        rows, samples = divided(rows, reference.units), divided(samples, reference.units)
    if isinstance(samples, sp.csr_array):
        rows = sp.csr_array(rows)
    elif isinstance(rows, sp.csr_array):
        rows = rows.toarray()
    dense = isinstance(samples, np.ndarray)
    centre = np.asarray(samples.mean(axis=0, dtype=np.float64)) if dense else np.zeros(samples.shape[1])
    indices = nearest(rows, samples, reference.k, centre).indices
    order = np.arange(indices.size)
    barycentric = weights(rows, samples[indices.ravel()], order, reference.k, reference.regularisation)
    total: Any = weight_matrix(indices, barycentric, samples.shape[0]) @ reference.values
    return np.asarray(total.toarray() if isinstance(total, sp.csr_array) else total)


def interpolated_rows(features: Features, _targets: Any, reference: Reference) -> Array:
    """`interpolated` as a function of rows."""
    return interpolated(features, reference)


def reconstructed_rows(features: Features, _targets: Any, first: Reference, second: Reference) -> Array:
    """Rows of another view, interpolated at the places that the first reference gives."""
    return interpolated(interpolated(features, first), second)
