"""Orthonormal directions that a space grows by, tall matrices of few columns, and the principal ones among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array
from dlatent.operators import tall
from dlatent.operators.eigen import top_eigenpairs

TINY = 1e-60
"""Numbers outside of this and its inverse are brought to one before they are squared."""
DROP = 1e-10
"""A new direction shorter than this part of its length before projection holds nothing but rounding."""
ROUNDING = 1e-13
"""Coefficients below this part of the largest are rounding."""
LITTLE = 1e-3
"""Length of the part of unit directions inside a span that one projection removes to rounding."""
ORTHOGONAL = 2e-15
"""Root of the mean square of inner products with the basis that are left as they are; orthogonality to half of the
digits would do for eigenvalues (H. Simon, "The Lanczos algorithm with partial reorthogonalization", Mathematics of
Computation 42, 1984)."""
PROBES = 4
"""Random combinations by which it is estimated, at the cost of as many columns."""
VANISHED = 1e-6
"""Squared length of what is left of a unit direction, below which a second projection has found it inside."""
DEPENDENT = 1e-13
"""New directions whose Gram matrix has an eigenvalue below this part of the largest are combinations of each other."""


@dataclass(frozen=True)
class GrowingColumns:
    """A tall matrix (D, r) that grows to the right: the first columns of a buffer that nothing else writes into.

    Growing by copies costs as much as the arithmetic of a pass, because fresh pages are expensive: with 100,000
    features a fifth of a fit to few samples.  Room that is not used is no memory, but a system may refuse what it could
    never give.
    """

    buffer: Array
    width: int

    @classmethod
    def of(cls, matrix: Array) -> Self:
        """The matrix, without room for more."""
        return cls(matrix, matrix.shape[1])

    @property
    def matrix(self) -> Array:
        """The columns so far (D, r)."""
        return self.buffer[:, : self.width]

    def appended(self, fresh: Array, most: int | None = None) -> Self:
        """With `fresh` (D, b) to the right, in a buffer that has room for seven times as many, and no more than `most`
        in all where that is known.  The matrix of before stays valid, but nothing else may be appended to it."""
        buffer, width = self.buffer, self.width + fresh.shape[1]
        if buffer.shape[1] < width or not buffer.flags.f_contiguous:
            room = 8 * width
            buffer = np.empty((len(buffer), max(width, min(room, most or room))), order="F")
            buffer[:, : self.width] = self.matrix
        buffer[:, self.width : width] = fresh
        return type(self)(buffer, width)


def orthonormal(candidates: Array, basis: Array | None = None, inside: Array | None = None) -> Array:
    """An orthonormal basis of the candidates' part outside `basis`; columns that vanish are dropped.  `inside` are the
    candidates' coefficients in the basis where they are known.

    Projected twice, the second time when they are of unit length and independent, and once more where much of them was
    still inside; without that Q decays silently and the likelihood becomes nonsense.  Known coefficients leave so
    little inside that the second time is needed after every second or third pass.
    """
    largest = max(float(candidates.max(initial=0.0)), -float(candidates.min(initial=0.0)))
    if largest and not TINY < largest < 1.0 / TINY:
        # Their squares would be zero or infinite; a power of two changes nothing else.
        power = -int(np.frexp(largest)[1])
        candidates, inside = np.ldexp(candidates, power), None if inside is None else np.ldexp(inside, power)
    # Directions are rows here: columns of the basis lie one after the other.
    rows, known = candidates.T, inside is not None
    before, work = np.einsum("ij,ij->i", rows, rows), rows
    if basis is not None:
        inside = tall.inner(basis, candidates) if inside is None else inside
        # Of the Lanczos method's coefficients only those of the last blocks are more than rounding.
        first = int(np.argmax(abs(inside).max(axis=1, initial=0.0) > ROUNDING * abs(inside).max(initial=0.0)))
        work = tall.without(rows, basis[:, first:], inside[first:])
    gram = tall.inner(work.T, work.T)
    kept = np.diag(gram) > DROP**2 * before
    if not kept.any():
        return np.zeros((len(candidates), 0))
    scale = 1.0 / np.sqrt(np.diag(gram)[kept])
    values, vectors = la.eigh(gram[np.ix_(kept, kept)] * np.outer(scale, scale))
    used = values > DEPENDENT * values[-1]
    independent = vectors[:, used] * np.outer(scale, 1.0 / np.sqrt(values[used]))
    work = tall.product((work if kept.all() else work[kept]).T, independent).T
    if basis is not None and not (known and _outside(work.T, basis)):
        overlap = tall.inner(basis, work.T)
        work = tall.without(work, basis, overlap)
        if np.linalg.norm(overlap) > LITTLE:
            work = _left(work)
            if not len(work):
                return np.zeros((len(candidates), 0))
            work = np.asarray(la.qr(work.T, mode="economic")[0].T, dtype=np.float64)
            work = tall.without(work, basis, tall.inner(basis, work.T))
    # Nearly orthonormal by now, so that a Cholesky factor makes them so to rounding, faster than reflections.
    factor = la.cholesky(tall.inner(work.T, work.T), lower=True)
    return tall.product(work.T, la.solve_triangular(factor, np.eye(len(factor)), lower=True).T)


def _left(rows: Array) -> Array:
    """What a projection has left of unit directions (b, D): without the combinations of which nothing but rounding is
    left, as happens where the basis spans nearly everything."""
    values, vectors = la.eigh(tall.inner(rows.T, rows.T))
    if values[0] > VANISHED:
        return rows
    used = values > VANISHED
    return tall.product(rows.T, vectors[:, used] / np.sqrt(values[used])).T


def _outside(directions: Array, basis: Array) -> bool:
    """Whether unit directions (D, b) have nothing but rounding inside the span, by random combinations of them."""
    mixtures = np.random.default_rng(0).standard_normal((directions.shape[1], PROBES))
    inside = tall.inner(basis, tall.product(directions, mixtures))
    return bool(np.linalg.norm(inside) <= ORTHOGONAL * np.sqrt(basis.shape[1] * directions.shape[1] * PROBES))


def principal_directions(inner: Array, loadings: Array, count: int) -> Array:
    """The leading eigenvectors (r, count) of a symmetric matrix (r, r) outside the span of the loadings (r, K)."""
    used = la.orth(loadings)
    # In coordinates of the rest alone: where the matrix is singular, its last eigenvectors would lie anywhere.
    rest = np.linalg.qr(used, mode="complete")[0][:, used.shape[1] :]
    return rest @ top_eigenpairs(rest.T @ inner @ rest, count)[1]


def fresh_directions(n_components: int) -> int:
    """New directions of a pass: more than the components cost a fraction of a pass and save several."""
    return n_components + min(max(5, n_components // 2), 25)
