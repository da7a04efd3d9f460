"""Kernels between blocks of rows, dense or sparse, and their centring.

    linear ⟨x, x'⟩   polynomial (γ⟨x, x'⟩ + c)^d   rbf exp(−γ‖x − x'‖²)   laplacian exp(−γ‖x − x'‖₁)
    cosine ⟨x, x'⟩ / (‖x‖ ‖x'‖)

A kernel is the inner product of features φ(x) that are never written down.  Sparse rows are not densified: a product
of two sparse blocks is as large as the block of the kernel that it becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import comb

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from dlatent.arrays import Array, Features
from dlatent.containers import refuse_mask
from dlatent.errors import DataError
from dlatent.operators.sparse import far_columns, less

KernelFunction = Callable[[Features, Features], Array]
"""Rows (n, D) and (m, D) → k (n, m); symmetric and positive semi-definite, and picklable for a cluster."""

NAMES = ("linear", "rbf", "polynomial", "cosine", "laplacian", "precomputed")
NUMBERS = {"rbf": ("gamma",), "laplacian": ("gamma",), "polynomial": ("gamma", "degree", "coef0")}
"""The numbers of named kernels."""
NEGLIGIBLE = 1e-11
"""A direction of landmarks with less than this fraction of the largest energy is rounding."""
DIAGONAL_ROWS = 64
"""Rows of which a callable kernel is asked at a time for its diagonal."""
COLUMN_BYTES, FEWEST_COLUMNS = 2 * 2**20, 64
"""Bytes of moved rows, and their columns, that are multiplied at a time."""


@dataclass(frozen=True)
class Kernel:
    """A kernel by its name ("callable" with `function`), and its numbers.

    `shift` (D,) is taken off rows by the linear kernel: centred kernels do not change, and rows far from zero keep
    their digits.  That of sparse rows is zero but in columns that are full in practice.
    """

    name: str
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 1.0
    function: KernelFunction | None = field(default=None, repr=False)
    shift: Array | None = field(default=None, repr=False)

    def __call__(self, x: Features, y: Features) -> Array:
        """The kernel between rows x (n, D) and y (m, D): (n, m); O(nmD), or the products of stored entries.

        Errors: DataError where a callable gives another shape, or values that are not finite.
        """
        if self.function is not None:
            return _checked(self.function(x, y), (x.shape[0], y.shape[0]))
        if self.shift is not None:
            return products_about([x], [y], self.shift)
        from sklearn import config_context  # a second of imports that unpacking a fitted model has no need of
        from sklearn.metrics.pairwise import pairwise_kernels

        if self.name == "rbf":
            x, y = _near_zero(x, y)
        numbers = {number: getattr(self, number) for number in NUMBERS.get(self.name, ())}
        with config_context(assume_finite=True):
            return np.asarray(pairwise_kernels(_wide(x), _wide(y), metric=self.name, **numbers))

    def diagonal(self, x: Features) -> Array:
        """k(x, x) of each row (n,)."""
        if self.function is not None:
            parts = [x[at : at + DIAGONAL_ROWS] for at in range(0, x.shape[0], DIAGONAL_ROWS)]
            return np.concatenate([np.diag(self(part, part)) for part in parts])
        if self.name in ("rbf", "laplacian"):
            return np.ones(x.shape[0])
        squares = squared_norms(x if self.shift is None else _about(x, self.shift))
        if self.name == "cosine":
            return (squares > 0.0).astype(np.float64)
        return squares if self.name == "linear" else np.asarray((self.gamma * squares + self.coef0) ** self.degree)

    def dimension(self, features: int) -> int | None:
        """Number of features φ where it is finite and known: D, or the monomials of the polynomial kernel."""
        if self.name in ("linear", "cosine"):
            return features
        if self.name == "polynomial":
            return comb(features + self.degree, self.degree) - 1  # the constant monomial vanishes when centred
        return None


def _about(x: Features, shift: Array) -> Features:
    """Rows less the shift."""
    return less(x, shift) if isinstance(x, sp.csr_array) else x - shift


def _checked(values: Array, shape: tuple[int, int]) -> Array:
    kernel = np.asarray(refuse_mask(values, "the value of the kernel function"), dtype=np.float64)
    if kernel.shape != shape:
        raise DataError(f"the kernel function gave an array of shape {kernel.shape} for {shape[0]} and {shape[1]} rows")
    if not np.isfinite(kernel).all():
        raise DataError("the kernel function gave values that are not finite")
    return kernel


def _wide(x: Features) -> Features:
    """Rows in float64, sparse ones with the smallest indices that hold them: scikit-learn takes no wider ones than 32
    bits for some kernels."""
    wide = x.astype(np.float64, copy=False)
    if not sp.issparse(wide):
        return wide
    index = sp.get_index_dtype((wide.indices, wide.indptr), maxval=max(wide.shape), check_contents=True)
    indices, indptr = wide.indices.astype(index, copy=False), wide.indptr.astype(index, copy=False)
    return sp.csr_array((wide.data, indices, indptr), shape=wide.shape)


def products_about(x: Sequence[Features], y: Sequence[Features], shift: Array) -> Array:
    """⟨x − s, y − s⟩ of all pairs of rows (n, m), in float64.

    The rows of both sides may lie in several pieces.  Where they are the same pieces the result is symmetric.

    Of dense rows some columns at a time, whose differences stay in the cache of a core: whole rows would go through
    memory twice.
    """
    if any(isinstance(part, sp.csr_array) for part in (*x, *y)):
        from sklearn.utils.extmath import safe_sparse_dot

        if shift.any():
            x, y = [_about(part, shift) for part in x], [_about(part, shift) for part in y]
        wide = [[safe_sparse_dot(_wide(a), _wide(b).T, dense_output=True) for b in y] for a in x]
        return np.asarray(np.block(wide))
    rows, columns = (sum(part.shape[0] for part in parts) for parts in (x, y))
    width = x[0].shape[1]
    step = min(width, max(FEWEST_COLUMNS, COLUMN_BYTES // (8 * (rows + columns))))
    mine = np.empty((rows, step))
    yours = mine if x is y else np.empty((columns, step))
    total = np.zeros((rows, columns))
    for start in range(0, width, step):
        at = slice(start, min(start + step, width))
        left = _moved_into(mine[:, : at.stop - start], x, at, shift)
        right = left if x is y else _moved_into(yours[:, : at.stop - start], y, at, shift)
        total += left @ right.T
    return total


def _moved_into(rows: Array, parts: Sequence[Features], columns: slice, shift: Array) -> Array:
    """Some columns of rows in pieces, less the shift, in the memory of `rows`."""
    start = 0
    for part in parts:
        np.subtract(part[:, columns], shift[columns], out=rows[start : start + part.shape[0]])  # type: ignore[arg-type]
        start += part.shape[0]
    return rows


def squared_norms(x: Features) -> Array:
    """‖x‖² of each row (n,), in float64."""
    from sklearn.utils.extmath import row_norms

    return np.asarray(row_norms(_wide(x), squared=True))


def _near_zero(x: Features, y: Features) -> tuple[Features, Features]:
    """Rows whose differences are the same and keep their digits: those near zero, sparse ones where their columns are
    far from it."""
    sparse = sp.issparse(x) or sp.issparse(y)
    centre = far_columns(y) if sparse else np.asarray(y, dtype=np.float64).mean(axis=0)
    return (_about(x, centre), _about(y, centre)) if centre.any() else (x, y)


def median_gamma(name: str, sample: Features) -> float:
    """γ from a sample of rows, at which the kernel is neither flat nor a spike.

    rbf: 1 / (2 m²), m² the median of ‖x − x'‖² over pairs of different rows; laplacian: 1 / m, m that of ‖x − x'‖₁;
    polynomial: 1 over the median of ‖x‖².  Errors: DataError where most rows are equal.
    """
    from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances

    pairs = np.triu_indices(sample.shape[0], 1)
    if name == "polynomial":
        middle = float(np.median(squared_norms(sample)))
    elif name == "rbf":
        middle = 2.0 * float(np.median(euclidean_distances(*_near_zero(sample, sample), squared=True)[pairs]))
    elif name == "laplacian":
        middle = float(np.median(manhattan_distances(_wide(sample), _wide(sample))[pairs]))
    else:
        return 1.0
    if not middle > 0.0:
        raise DataError("gamma='median' finds no distance between rows: they are (nearly) constant; give a number")
    return 1.0 / middle


def centred_kernel(kernel: Array) -> Array:
    """HKH with H = I − 11ᵀ/N: the inner products (N, N) of features about their mean (SPPCA (27))."""
    columns = kernel.mean(axis=0)
    centred = kernel - columns
    centred -= kernel.mean(axis=1)[:, None]  # in place: fresh pages cost more than the arithmetic
    centred += columns.mean()
    return np.asarray(centred)


@dataclass(frozen=True)
class LandmarkMap:
    """Rows as coordinates in the span of the features of landmarks: c(x) = Rᵀ k(landmarks, x), with RᵀK_LL R = I.

    The projection is exact: c(x)ᵀc(x') is the Nyström approximation of k(x, x').
    """

    kernel: Kernel
    landmarks: Features
    root: Array

    @classmethod
    def of(cls, kernel: Kernel, landmarks: Features) -> LandmarkMap:
        """The map of given landmarks (m, D); directions of rounding are left out, so that it has r ≤ m columns."""
        values, vectors = la.eigh(kernel(landmarks, landmarks))
        used = values > NEGLIGIBLE * values[-1]
        return cls(kernel, landmarks, np.ascontiguousarray((vectors[:, used] / np.sqrt(values[used]))[:, ::-1]))

    @property
    def width(self) -> int:
        """Number of coordinates r."""
        return int(self.root.shape[1])

    def __call__(self, x: Features) -> Array:
        """Coordinates (n, r) of rows (n, D)."""
        return np.asarray(self.kernel(x, self.landmarks) @ self.root)
