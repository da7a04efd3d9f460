"""The smallest eigenpairs of M = BᵀB beside the constant, of a sparse B (rows, n) with B1 = 0.

They are many orders of magnitude below the largest, so that iterations need an inverse.  Where the factors of M are
affordable, it is the inverse itself (shift and invert); what they will cost is measured on balls of the graph.
Else it is an approximate one: algebraic multigrid that knows the coordinates of the instances as slow directions
(pyamg, where it is installed), or incomplete factors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg as la
import scipy.sparse as sp
import scipy.sparse.linalg as sl

from dlatent.arrays import Array

SHIFT = 1e-13
"""The shift of the factorised matrix, as a part of the mean of its diagonal: far below the eigenvalues in question."""
ROUNDING = 1e-12
"""Eigenvalues below this part of the mean of the diagonal are known to rounding errors only."""
BALLS = (500, 2000, 8000)
DENSE = 0.25
"""Where the factors of a ball have more than this part of all entries, a larger one tells nothing new."""
FACTOR_BYTES = 16
"""Bytes of an entry of the factors, their workspace included."""
MOST_OPERATIONS = 2e12
"""Multiplications of a factorisation that is affordable: ten minutes or so."""
EXTRA = 6
"""Vectors that iterations carry along: the first ones then converge by the gap to those that follow these."""
ROUNDS, STEPS = 8, 75
SLOW = 6
"""Coordinates that multigrid is told of."""
LOOSE = 1e-3


class Eigenpairs(NamedTuple):
    """Eigenvalues (K,), increasing, and vectors (n, K); how they were found, the predicted entries of the factors for
    each instance, and the largest ‖Mv − λv‖/λ."""

    values: Array
    vectors: Array
    solver: str
    fill: float
    residual: float


def smallest(
    residual: sp.csr_array, count: int, *, memory: float, coordinates: Array | None = None, solver: str = "auto"
) -> Eigenpairs:
    """The `count` smallest eigenpairs of BᵀB on vectors with the sum zero.

    Parameters: `residual` B (rows, n); `memory`, bytes that the factors may have; `coordinates` (n, d), a few slowly
    varying functions of the instances, as their leading coordinates; `solver` "auto", "direct" or "iterative".
    """
    matrix = sp.csc_array(residual.T @ residual)
    fill = predicted_fill(matrix)
    if solver == "auto":
        solver = "direct" if affordable(fill, matrix.shape[0], memory) else "iterative"
    find = _direct if solver == "direct" else _iterative
    vectors, name = find(residual, matrix, count, coordinates)
    values, vectors = _polished(residual, vectors, count)
    rest = np.linalg.norm(residual.T @ (residual @ vectors) - vectors * values, axis=0)
    zero = ROUNDING * matrix.diagonal().mean()
    return Eigenpairs(values, vectors, name, fill, float((rest / np.maximum(values, zero)).max()))


def affordable(fill: float, instances: int, memory: float) -> bool:
    """Whether factors with so many entries for each instance fit into memory and patience."""
    return fill * instances * FACTOR_BYTES <= memory and fill**2 / 2.0 * instances <= MOST_OPERATIONS


def predicted_fill(matrix: sp.csc_array) -> float:
    """Entries of the factors for each instance: a power of the size, fitted to the last two of some growing balls of
    the graph.

    On surfaces the entries grow as the logarithm of the size, so that the power falls, and the prediction is too large.
    """
    rows = matrix.shape[0]
    if rows <= BALLS[1]:
        return float(rows)
    order = sp.csgraph.breadth_first_order(matrix, 0, directed=False, return_predecessors=False)
    if len(order) < BALLS[1]:
        return float(rows)
    small, large, largest = BALLS
    less, more = _fill(matrix, order[:small]), _fill(matrix, order[:large])
    if len(order) >= largest and more < DENSE * large:
        small, large, less, more = large, largest, more, _fill(matrix, order[:largest])
    power = np.log(more / less) / np.log(large / small)
    return float(min(more * (rows / large) ** power, rows))


def _fill(matrix: sp.csc_array, members: npt.NDArray[np.integer[Any]]) -> float:
    """Entries of the factors of a part of the matrix, for each of its instances."""
    own = np.sort(members)
    factors = _factors(sp.csc_array(matrix[own][:, own]))
    return float(factors.L.nnz + factors.U.nnz) / len(own)


def _factors(matrix: sp.csc_array) -> Any:
    """LU factors of a positive definite matrix, in the order of a Cholesky factorisation."""
    shifted = matrix + SHIFT * matrix.diagonal().mean() * sp.eye_array(matrix.shape[0], format="csc")
    options: Any = {"SymmetricMode": True}
    return sl.splu(sp.csc_array(shifted), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)


def _direct(residual: sp.csr_array, matrix: sp.csc_array, count: int, _coordinates: Any) -> tuple[Array, str]:
    """Lanczos iterations with the inverse of M on vectors with the sum zero."""
    rows = matrix.shape[0]
    factors = _factors(matrix)

    def inverse(vector: Array) -> Array:
        solved = factors.solve(vector - vector.mean())
        return np.asarray(solved - solved.mean())

    start = np.random.default_rng(0).standard_normal(rows)
    inverted = sl.LinearOperator((rows, rows), matvec=inverse, dtype=np.float64)
    _, vectors = sl.eigsh(inverted, k=min(count + 2, rows - 2), which="LA", v0=start - start.mean(), tol=1e-12)
    return np.asarray(vectors), "direct"


def _iterative(residual: sp.csr_array, matrix: sp.csc_array, count: int, coordinates: Any) -> tuple[Array, str]:
    """Preconditioned conjugate gradients for several vectors at a time (LOBPCG), until they have settled."""
    rows = matrix.shape[0]
    inverse, name = _approximate_inverse(matrix, coordinates)
    back = sp.csr_array(residual.T)
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


def _approximate_inverse(matrix: sp.csc_array, coordinates: Array | None) -> tuple[Any, str]:
    rows = matrix.shape[0]
    identity = matrix.diagonal().mean() * sp.eye_array(rows, format="csc")
    try:
        import pyamg
    except ImportError:
        options: Any = {"SymmetricMode": True}
        factors = sl.spilu(
            sp.csc_array(matrix + 1e-3 * identity),
            drop_tol=1e-3,
            fill_factor=10,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options=options,
        )
        return _operator(factors.solve, rows), "iterative (incomplete factors)"
    slow = np.ones((rows, 1)) if coordinates is None else np.column_stack([np.ones(rows), coordinates[:, :SLOW]])
    levels = pyamg.smoothed_aggregation_solver(
        sp.csr_matrix(matrix + 1e-9 * identity), B=slow, strength=("symmetric", {"theta": 0.0}), max_coarse=500
    )
    cycle = levels.aspreconditioner()
    return _operator(lambda v: cycle @ v, rows), "iterative (multigrid)"


def _operator(solve: Callable[[Array], Array], rows: int) -> Any:
    def each(block: Array) -> Array:
        return np.column_stack([solve(column) for column in block.T])

    return sl.LinearOperator((rows, rows), matvec=solve, matmat=each, dtype=np.float64)


def _polished(residual: sp.csr_array, vectors: Array, count: int) -> tuple[Array, Array]:
    """Ritz pairs from the singular values of BV: squaring B again would lose half of the digits."""
    basis = la.qr(vectors - vectors.mean(axis=0), mode="economic")[0]
    _, singular, right = la.svd(np.asarray(residual @ basis), full_matrices=False)
    keep = np.arange(len(singular))[::-1][:count]
    return singular[keep] ** 2, np.asarray(basis @ right[keep].T)
