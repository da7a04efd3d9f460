"""Symmetric matrices: the largest eigenpairs of one, and many small ones at a time.

The many have the index of the matrix last, (K, K, n), or are packed triangles (K(K+1)/2, n).  A call of LAPACK for each
matrix costs more than its arithmetic where K is ten or so; there every operation runs over all n.  Larger matrices go
to LAPACK one by one.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

import numpy as np
import scipy.linalg as la
from scipy.linalg import lapack

from dlatent.arrays import Array

ORTHONORMAL = 1e-10
"""Inner products of eigenvectors are this near to those of orthonormal ones."""
CELLS = 1 << 18
"""Numbers of the matrices that are inverted at a time: two mebibytes.  With a quarter of it, which is no faster alone,
two threads of a process take a tenth more time: the shorter an operation, the more often they wait for each other."""
THIN = 0.7
"""Part of its size up to which the rank of a matrix makes a root worth its products."""
SUBSET = 6
"""More than one eigenpair in so many takes LAPACK longer than all of them: half of 61 six times as long."""
SMALLEST = 64
SWEPT = 128
"""Bytes of the longest rows of matrices over all of which sweeps are faster: a fifth of LAPACK's time for K = 10 in
double precision, eight times for 200."""


@lru_cache(maxsize=16)
def triangle(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each entry of a packed upper triangle: (0,0), (0,1), …, (1,1), …; read-only.

    Kept, as making them takes a quarter of the time of a block of few rows.
    """
    first, second = np.triu_indices(size)
    return _read_only(first), _read_only(second)


@lru_cache(maxsize=16)
def _places(size: int) -> np.ndarray:
    """Where each entry of a symmetric matrix (size, size) is in the packed triangle; read-only."""
    place = np.empty((size, size), dtype=np.intp)
    first, second = triangle(size)
    place[first, second] = place[second, first] = np.arange(len(first))
    return _read_only(place)


def _read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def packed_squares(rows: Array) -> Array:
    """The packed w wᵀ of each row w of (n, K): (n, K(K+1)/2)."""
    first, second = triangle(rows.shape[1])
    return rows[:, first] * rows[:, second]


def doubled(size: int) -> Array:
    """How often each entry of a packed triangle is in the matrix (size(size+1)/2,): products of packed symmetric
    matrices with these factors are traces of products."""
    first, second = triangle(size)
    return np.where(first == second, 1.0, 2.0)


def unpacked(packed: Array, size: int) -> Array:
    """Symmetric matrices (size, size, …) from packed triangles (size(size+1)/2, …)."""
    return np.asarray(packed[_places(size)])


def congruent(packed: Array, by: Array) -> Array:
    """The packed AᵀSA (n, K′(K′+1)/2) of packed S (n, K(K+1)/2), for a matrix A (K, K′)."""
    first, second = triangle(by.shape[1])
    ones = by.sum(axis=0)
    if len(by) and ((by == 0.0) | (by == 1.0)).all() and (ones <= 1.0).all():
        # Rows and columns are chosen, or zeros: a tenth of the time of products.
        which = by.argmax(axis=0)
        return np.asarray(
            np.take(packed, _places(len(by))[which[first], which[second]], axis=1) * (ones[first] * ones[second])
        )
    matrices = np.ascontiguousarray(unpacked(packed.T, len(by)).transpose(2, 0, 1))
    return np.ascontiguousarray((by.T @ matrices @ by)[:, first, second])


def inverted(matrices: Array) -> tuple[Array, Array]:
    """Inverses (K, K, n), in place, and log-determinants (n,) of positive definite matrices.

    Small ones by Gauss–Jordan sweeps without pivoting: with positive definite matrices all pivots are positive and
    errors stay at the condition number. Matrices that are not finite, or singular, have NaN for their inverses.
    """
    size, _, count = matrices.shape
    log_determinant = np.zeros(count)
    invert, least = (_sweep, SMALLEST) if size * matrices.itemsize <= SWEPT else (_factorise, 1)
    step = max(least, CELLS // size**2)
    for start in range(0, count, step):
        at = slice(start, min(start + step, count))
        part = np.ascontiguousarray(matrices[:, :, at])
        log_determinant[at] = invert(part)
        matrices[:, :, at] = part
    return matrices, log_determinant


def _factorise(matrices: Array) -> Array:
    """Invert in place by triangular factors of each matrix; the log-determinants.

    NumPy's LAPACK lets other threads run meanwhile, which that of SciPy, faster by a third, does not.
    """
    each = np.ascontiguousarray(np.moveaxis(matrices, -1, 0))
    with np.errstate(invalid="ignore"):
        log_determinant: Array = np.linalg.slogdet(each)[1]
    try:
        inverse = np.linalg.inv(each)
        matrices[:] = np.moveaxis(0.5 * (inverse + inverse.transpose(0, 2, 1)), 0, -1)
    except np.linalg.LinAlgError:
        matrices[:] = np.nan
    return log_determinant


def _sweep(matrices: Array) -> Array:
    """Invert in place; the log-determinants.

    As few operations as there can be: after each a thread waits for Python's lock, if another thread holds it.
    """
    size, _, count = matrices.shape
    pivots, row = np.empty((2, size, count), dtype=matrices.dtype)
    outer = np.empty_like(matrices)
    for k in range(size):
        pivots[k] = matrices[k, k]
        np.divide(matrices[k], pivots[k], out=row)
        np.multiply(matrices[k][:, None], row, out=outer)
        matrices -= outer
        matrices[k] = matrices[:, k] = row
        np.divide(-1.0, pivots[k], out=matrices[k, k])
    np.negative(matrices, out=matrices)
    # The logarithm of a product is cheaper than those of its factors, while it cannot overflow.
    products = np.multiply.reduceat(pivots, range(0, size, 4), axis=0)
    return np.asarray(np.log(products, out=products).sum(axis=0))


def top_eigenpairs(matrix: Array, count: int) -> tuple[Array, Array]:
    """The `count` largest eigenvalues, decreasing, and their eigenvectors (n, count) of a symmetric matrix (n, n)."""
    size = len(matrix)
    count = min(count, size)
    if not count:
        return np.zeros(0), np.zeros((size, 0))
    values, vectors = np.zeros(0), np.zeros((size, 0))
    if SUBSET * count < size:
        with suppress(la.LinAlgError):
            values, vectors = la.eigh(matrix, subset_by_index=(size - count, size - 1), driver="evr")
    # LAPACK's quickest way to a few eigenpairs may give up, find none, or find vectors that are not orthogonal, where
    # many eigenvalues are nearly equal (Reference-LAPACK issue 466).
    if len(values) < count or abs(vectors.T @ vectors - np.eye(count)).max() > ORTHONORMAL:
        values, vectors = (both[..., -count:] for both in np.linalg.eigh(matrix))
    return np.asarray(values[::-1]), np.asarray(vectors[:, ::-1])


def positive_solve(matrix: Array, right: Array) -> tuple[Array, float]:
    """S⁻¹R and log|S| for a positive definite matrix S (n, n) and R (n, m), with little beside LAPACK's own time.

    Raises:
        numpy.linalg.LinAlgError: If S is not positive definite, or a number is not finite.
    """
    factor, solution, info = lapack.dposv(matrix, right, lower=1)
    pivots = factor.diagonal()
    if info or not (np.isfinite(pivots).all() and np.isfinite(solution).all()):
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    return solution, 2.0 * float(np.log(pivots).sum())


def thin_root(matrix: Array, least: int) -> Array | None:
    """R (n, r) with RRᵀ a positive semidefinite matrix (n, n) up to rounding, by pivoted Cholesky, where r is at least
    `least` and so small that RᵀR costs less than the matrix; else None."""
    factor, pivots, rank, _ = lapack.dpstrf(matrix, lower=1)
    if not least <= rank <= THIN * len(matrix):
        return None
    root = np.zeros((len(matrix), rank))
    root[pivots - 1] = np.tril(factor[:, :rank])
    return root


def top_eigenvalues(matrix: Array, count: int) -> Array:
    """The `count` largest eigenvalues, decreasing, of a symmetric matrix (n, n)."""
    values = np.linalg.eigvalsh(matrix)
    return np.asarray(values[::-1][:count])
