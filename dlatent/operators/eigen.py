"""Eigenpairs of symmetric matrices, largest first."""

from __future__ import annotations

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array

ORTHONORMAL = 1e-10
"""Inner products of eigenvectors are this near to those of orthonormal ones."""


def top_eigenpairs(matrix: Array, count: int) -> tuple[Array, Array]:
    """The `count` largest eigenvalues, decreasing, and their eigenvectors (n, count) of a symmetric matrix (n, n)."""
    size = len(matrix)
    count = min(count, size)
    if not count:
        return np.zeros(0), np.zeros((size, 0))
    try:
        values, vectors = la.eigh(matrix, subset_by_index=(size - count, size - 1), driver="evr")
    except la.LinAlgError:
        values, vectors = np.zeros(0), np.zeros((size, 0))
    # LAPACK's quickest way to a few eigenpairs may give up, find none, or find vectors that are not orthogonal, where
    # many eigenvalues are nearly equal (Reference-LAPACK issue 466).
    if len(values) < count or abs(vectors.T @ vectors - np.eye(count)).max() > ORTHONORMAL:
        values, vectors = (found[..., -count:] for found in np.linalg.eigh(matrix))
    return np.asarray(values[::-1]), np.asarray(vectors[:, ::-1])


def top_eigenvalues(matrix: Array, count: int) -> Array:
    """The `count` largest eigenvalues, decreasing, of a symmetric matrix (n, n)."""
    values = np.linalg.eigvalsh(matrix)
    return np.asarray(values[::-1][:count])
