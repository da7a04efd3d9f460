"""Eigenpairs of symmetric matrices, largest first."""

from __future__ import annotations

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array


def top_eigenpairs(matrix: Array, count: int) -> tuple[Array, Array]:
    """The `count` largest eigenvalues, decreasing, and their eigenvectors (n, count) of a symmetric matrix (n, n)."""
    size = len(matrix)
    values, vectors = la.eigh(matrix, subset_by_index=(max(size - count, 0), size - 1), driver="evr")
    return np.asarray(values[::-1]), np.asarray(vectors[:, ::-1])
