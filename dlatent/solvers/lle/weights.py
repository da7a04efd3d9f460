"""Barycentric weights: each sample as the affine combination of its neighbours that comes nearest to it.

    min ‖x_i − Σ_a w_ia x_a‖²,  Σ_a w_ia = 1:    (G_i + r tr(G_i) I) w_i ∝ 1,   G_i = (x_a − x_i)ᵀ(x_b − x_i)

The neighbours of a block lie in other blocks, so that their coordinates are collected in a pass over pairs.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Dense, Features

CELLS = 1 << 21
"""Numbers of differences that are taken at a time."""


class WeightRequest(NamedTuple):
    """Neighbours of all samples (N, k), the regularisation r, and which samples are asked for: each whose number is
    `part` modulo `parts`, so that the coordinates of their neighbours fit into memory."""

    indices: npt.NDArray[np.int64]
    regularisation: float
    part: int = 0
    parts: int = 1


class Found(NamedTuple):
    """Coordinates of neighbours that were found so far: places in the flat list of neighbours, and rows."""

    places: tuple[npt.NDArray[np.intp], ...]
    rows: tuple[Features, ...]


def block_coordinates(own: Block, other: Block, request: WeightRequest) -> Found:
    """The coordinates of those neighbours of one block's samples that lie in the other."""
    indices = request.indices[_asked(own, request)].ravel() - other.start
    places = np.flatnonzero((indices >= 0) & (indices < other.rows))
    return Found((places,), (other.features[indices[places]],)) if len(places) else Found((), ())


def both(left: Found, right: Found) -> Found:
    """The findings of two blocks."""
    return Found(left.places + right.places, left.rows + right.rows)


def block_weights(own: Block, found: Found, request: WeightRequest) -> Array:
    """The weights (n, k) of the samples of a block that were asked for."""
    asked = _asked(own, request)
    rows = own.features[asked - own.start]
    if not len(asked):
        return np.zeros((0, request.indices.shape[1]))
    order = np.argsort(np.concatenate(found.places))
    if isinstance(rows, sp.csr_array):
        stacked: Any = sp.vstack(cast(Any, found.rows), format="csr")
    else:
        stacked = np.concatenate(cast("tuple[Dense, ...]", found.rows))
    return weights(rows, stacked, order, request.indices.shape[1], request.regularisation)


def _asked(own: Block, request: WeightRequest) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = np.arange(own.start, own.start + own.rows)
    return np.asarray(numbers[numbers % request.parts == request.part])


def weights(x: Features, others: Features, order: npt.NDArray[np.intp], k: int, regularisation: float) -> Array:
    """Weights (n, k), each row with the sum 1, of the neighbours `others[order]`, of which rows ik … ik + k belong to
    row i of x (n, D).

    Where all neighbours lie on the sample itself, the trace is zero and the weights are equal.
    Source: Saul and Roweis (2003), appendix A; r tr(G) as in scikit-learn.
    """
    found = np.empty((x.shape[0], k))
    step = max(1, CELLS // (k * x.shape[1])) if isinstance(x, np.ndarray) else 1 << 12
    for start in range(0, x.shape[0], step):
        stop = min(start + step, x.shape[0])
        near = others[order[start * k : stop * k]]
        grams = _sparse_grams(x[start:stop], near, k) if sp.issparse(near) else _grams(x[start:stop], near, k)
        found[start:stop] = solved(grams, regularisation)
    return found


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
