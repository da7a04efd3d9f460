"""The smallest eigenpairs of M = BᵀB beside the constant, of a sparse B (rows, n) with B1 = 0.

They are many orders of magnitude below the largest, so that iterations need an inverse.  Where factors are affordable,
it is the inverse itself (shift and invert); what they will cost is measured on balls of the graph.  Else it is an
approximate one: algebraic multigrid that knows the coordinates of the samples as slow directions (pyamg, where it is
installed), or incomplete factors.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
import scipy.sparse.linalg as sl

from dlatent.arrays import Array
from dlatent.solvers.lle.inverses import (
    Inverse,
    affordable,
    approximate_inverse,
    exact_inverse,
    factorised,
    predicted_fill,
)

ROUNDING = 1e-12
"""Eigenvalues below this part of the mean of the diagonal are known to rounding errors only."""
EXTRA = 6
"""Vectors that iterations carry along: the first ones then converge by the gap to those that follow these."""
ROUNDS, STEPS = 8, 75
LOOSE = 1e-3


class Eigenpairs(NamedTuple):
    """Eigenvalues (K,), increasing, and vectors (n, K); how they were found, the predicted entries of the factors for
    each sample, and the largest ‖Mv − λv‖/λ."""

    values: Array
    vectors: Array
    solver: str
    fill: float
    residual: float


def smallest(
    residual: sp.csr_array,
    count: int,
    *,
    memory: float,
    coordinates: Array | None = None,
    joined: bool = True,
    solver: str = "auto",
) -> Eigenpairs:
    """The `count` smallest eigenpairs of BᵀB on vectors with the sum zero.

    Parameters: `residual` B (rows, n); `memory`, bytes that the factors may have; `coordinates` (n, d), a few slowly
    varying functions of the samples, as their leading coordinates; `joined`, whether constants are the only null
    vectors; `solver` "auto", "direct" or "iterative".
    """
    samples = residual.shape[1]
    matrix = factorised(residual, joined=joined)
    fill = predicted_fill(matrix)
    if solver == "auto":
        solver = "direct" if affordable(fill, samples, memory) else "iterative"
    if solver == "direct":
        inverse = exact_inverse(matrix, squared=not (joined and residual.shape[0] == samples))
        values, vectors = _polished(residual, _lanczos(inverse, samples, count), count)
        # A solution is rough to its last digits, which M multiplies by much more than its smallest eigenvalues.
        correction = [inverse(column) for column in _rest(residual, values, vectors).T]
        values, vectors = _polished(residual, vectors - np.column_stack(correction), count)
        name = solver
    else:
        vectors, name = _iterative(residual, count, coordinates)
        values, vectors = _polished(residual, vectors, count)
    rest = np.linalg.norm(_rest(residual, values, vectors), axis=0)
    zero = ROUNDING * float((residual.data**2).sum()) / samples
    return Eigenpairs(values, vectors, name, fill, float((rest / np.maximum(values, zero)).max()))


def _rest(residual: sp.csr_array, values: Array, vectors: Array) -> Array:
    """Mv − λv of each pair (n, K)."""
    return np.asarray(residual.T @ (residual @ vectors) - vectors * values)


def _lanczos(inverse: Inverse, rows: int, count: int) -> Array:
    """Lanczos iterations with the inverse of M on vectors with the sum zero."""
    start = np.random.default_rng(0).standard_normal(rows)
    inverted = sl.LinearOperator((rows, rows), matvec=inverse, dtype=np.float64)
    _, vectors = sl.eigsh(inverted, k=min(count + 2, rows - 2), which="LA", v0=start - start.mean(), tol=1e-12)
    return np.asarray(vectors)


def _iterative(residual: sp.csr_array, count: int, coordinates: Any) -> tuple[Array, str]:
    """Preconditioned conjugate gradients for several vectors at a time (LOBPCG), until they have settled."""
    rows = residual.shape[1]
    back = sp.csr_array(residual.T)
    inverse, name = approximate_inverse(sp.csc_array(back @ residual), coordinates)
    product = sl.LinearOperator(
        (rows, rows), matvec=lambda v: back @ (residual @ v), matmat=lambda v: back @ (residual @ v), dtype=np.float64
    )
    vectors = np.random.default_rng(0).standard_normal((rows, count + EXTRA))
    if coordinates is not None:
        width = min(coordinates.shape[1], vectors.shape[1])
        vectors[:, :width] = la.qr(coordinates - coordinates.mean(axis=0), mode="economic")[0][:, :width]
    constant = np.ones((rows, 1))
    for _ in range(ROUNDS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns in every round but the last; what is left is told at the end
            found: Any = sl.lobpcg(product, vectors, M=inverse, Y=constant, tol=1e-12, maxiter=STEPS, largest=False)
        order = np.argsort(found[0])
        values, vectors = found[0][order], found[1][:, order]
        wanted = vectors[:, :count]
        rest = np.linalg.norm(product @ wanted - wanted * values[:count], axis=0)
        if (rest <= LOOSE * values[:count]).all():
            break
    return vectors, name


def _polished(residual: sp.csr_array, vectors: Array, count: int) -> tuple[Array, Array]:
    """Ritz pairs from the singular values of BV: squaring B again would lose half of the digits."""
    basis = la.qr(vectors - vectors.mean(axis=0), mode="economic")[0]
    _, singular, right = la.svd(np.asarray(residual @ basis), full_matrices=False)
    keep = np.arange(len(singular))[::-1][:count]
    return singular[keep] ** 2, np.asarray(basis @ right[keep].T)
