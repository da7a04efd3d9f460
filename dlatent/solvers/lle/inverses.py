"""Inverses of M = BᵀB on vectors with the sum zero: by sparse factors, or approximate ones for iterations.

B is the residual matrix of the samples of one view, or of several (more rows than columns).  Where it is square, it
is factorised itself:

    Bᵀy = f,  y ← y − u (uᵀy),  Bx = y,     Bᵀu = 0

Its factors have a third of the entries of those of M, and its condition is the root of that of M.  B has no inverse,
but it maps vectors with the sum zero onto those that are orthogonal to u, one to one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
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
    own = np.sort(members)
    factors = _factors(sp.csc_array(matrix[own][:, own]))
    return float(factors.L.nnz + factors.U.nnz) / len(own)


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
        return _operator(factors.solve, rows), "iterative (incomplete factors)"
    slow = np.ones((rows, 1)) if coordinates is None else np.column_stack([np.ones(rows), coordinates[:, :SLOW]])
    system = sp.csr_matrix(matrix + 1e-9 * identity)
    # SciPy widens indices more often than it must, and pyamg takes no wide ones.
    system.indices, system.indptr = system.indices.astype(np.int32), system.indptr.astype(np.int32)
    levels = pyamg.smoothed_aggregation_solver(system, B=slow, strength=("symmetric", {"theta": 0.0}), max_coarse=500)
    cycle = levels.aspreconditioner()
    return _operator(lambda v: cycle @ v, rows), "iterative (multigrid)"


def _operator(solve: Callable[[Array], Array], rows: int) -> Any:
    def each(block: Array) -> Array:
        return np.column_stack([solve(column) for column in block.T])

    return sl.LinearOperator((rows, rows), matvec=solve, matmat=each, dtype=np.float64)
