"""Coordinates from the smallest eigenvectors, and samples that come later."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Features
from dlatent.local_linear.alignment import weight_matrix
from dlatent.local_linear.neighbours import nearest
from dlatent.local_linear.weights import weights


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
