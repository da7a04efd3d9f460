"""The smallest eigenpairs of M = BᵀB beside the constant, of a sparse B (rows, n) with B1 = 0.

They are many orders of magnitude below the largest, so that iterations need an inverse.  Where factors are affordable,
it is the inverse itself (shift and invert); what they will cost is measured on balls of the graph.  Else it is an
approximate one: algebraic multigrid that knows the coordinates of the samples as slow directions (pyamg, where it is
installed), or incomplete factors.

B is the residual matrix of the samples of one view, or of several (more rows than columns).  Where it is square, it
is factorised itself:

    Bᵀy = f,  y ← y − u (uᵀy),  Bx = y,     Bᵀu = 0

Its factors have a third of the entries of those of M, and its condition is the root of that of M.  B has no inverse,
but it maps vectors with the sum zero onto those that are orthogonal to u, one to one.
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

Inverse = Callable[[Array], Array]

SHIFT = 1e-13
"""The shift of a factorised matrix, as a part of the mean of its diagonal: it keeps the last pivot from being zero."""
PIVOT = 0.01
"""A pivot on the diagonal is good enough where it is this part of the largest; others fill the factors."""
BALLS = (500, 2000, 8000)
DENSE = 0.25
"""Where the factors of a ball have more than this part of all entries, a larger one tells nothing new."""
FACTOR_BYTES = 16
"""Bytes of an entry of the factors, their workspace included."""
MOST_OPERATIONS = 2e12
"""Multiplications of a factorisation that is affordable: ten minutes or so."""
SLOW = 6
"""Coordinates that multigrid is told of."""


def factorised(residual: sp.csr_array, *, joined: bool) -> sp.csc_array:
    """The matrix that is factorised: B (n, n) where constants are all that it has not to say about, else M."""
    if joined and residual.shape[0] == residual.shape[1]:
        return sp.csc_array(residual)
    return sp.csc_array(residual.T @ residual)


def affordable(fill: float, samples: int, memory: float) -> bool:
    """Whether factors with so many entries for each sample fit into memory and patience."""
    return fill * samples * FACTOR_BYTES <= memory and fill**2 / 2.0 * samples <= MOST_OPERATIONS


def predicted_fill(matrix: sp.csc_array) -> float:
    """Entries of the factors for each sample: a power of the size, fitted to the last two of some growing balls of
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
    """Entries of the factors of a part of the matrix, for each of its samples."""
    chosen = np.sort(members)
    factors = _factors(sp.csc_array(matrix[chosen][:, chosen]))
    return float(factors.L.nnz + factors.U.nnz) / len(chosen)


def _factors(matrix: sp.csc_array) -> Any:
    """LU factors, in the order of a Cholesky factorisation."""
    shifted = matrix + SHIFT * matrix.diagonal().mean() * sp.eye_array(matrix.shape[0], format="csc")
    options: Any = {"SymmetricMode": True}
    return sl.splu(sp.csc_array(shifted), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=PIVOT, options=options)


def exact_inverse(matrix: sp.csc_array, *, squared: bool) -> Inverse:
    """M⁻¹ on vectors with the sum zero, from the factors of M itself (`squared`), or of B."""
    factors, rows = _factors(matrix), matrix.shape[0]

    def by_square(vector: Array) -> Array:
        solved = factors.solve(vector - vector.mean())
        return np.asarray(solved - solved.mean())

    if squared:
        return by_square
    null = np.ones(rows)
    for _ in range(2):  # the shift is so small that this vector outgrows all others at once
        null = factors.solve(null, "T")
        null /= np.linalg.norm(null)

    def by_halves(vector: Array) -> Array:
        half = factors.solve(vector - vector.mean(), "T")
        solved = factors.solve(half - null * (null @ half))
        return np.asarray(solved - solved.mean())

    return by_halves


def approximate_inverse(matrix: sp.csc_array, coordinates: Array | None) -> tuple[Any, str]:
    """About M⁻¹ as an operator, and what it is made of: multigrid, or incomplete factors."""
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
        return sl.LinearOperator((rows, rows), matvec=factors.solve, dtype=np.float64), "iterative (incomplete factors)"
    slow = np.ones((rows, 1)) if coordinates is None else np.column_stack([np.ones(rows), coordinates[:, :SLOW]])
    system = sp.csr_matrix(matrix + 1e-9 * identity)
    # SciPy widens indices more often than it must, and pyamg takes no wide ones.
    system.indices, system.indptr = system.indices.astype(np.int32), system.indptr.astype(np.int32)
    levels = pyamg.smoothed_aggregation_solver(system, B=slow, strength=("symmetric", {"theta": 0.0}), max_coarse=500)
    return levels.aspreconditioner(), "iterative (multigrid)"


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
            pairs: Any = sl.lobpcg(product, vectors, M=inverse, Y=constant, tol=1e-12, maxiter=STEPS, largest=False)
        order = np.argsort(pairs[0])
        values, vectors = pairs[0][order], pairs[1][:, order]
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
