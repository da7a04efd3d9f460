"""Tall matrices, D rows and few columns: products on all cores, and orthonormal columns that a space grows by.

The algebra of a driver waits for nobody and nobody works beside it, so that what it takes counts in full: with many
features it is the part of a fit that more workers cannot shorten.  Threads of BLAS would cut products by the number of
cores; here rows are cut into slabs of one size, each of which is the product of one thread, and sums over slabs are
added in their order: the bits are the same on however many cores.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Self, TypeVar

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array
from dlatent.blas import pinned
from dlatent.operators.symmetric import top_eigenpairs

S = TypeVar("S")
T = TypeVar("T")

SLAB = 8_192
"""Rows of a slab, a millisecond or two of work; fewer than two slabs are one."""
MOST_THREADS = 8
"""Slabs come from memory, which a few cores keep busy."""
TINY = 1e-60
"""Numbers outside of this and its inverse are brought to one before they are squared."""
DROP = 1e-10
"""A new direction shorter than this fraction of its length before projection holds nothing but rounding."""
ROUNDING = 1e-13
"""Coefficients below this fraction of the largest are rounding."""
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
"""New directions depend on each other where their Gram matrix has an eigenvalue below this fraction of the largest."""


def inner(a: Array, b: Array) -> Array:
    """aᵀb (r, b) of a (D, r) and b (D, b)."""
    first, *others = _of_slabs(lambda at: a[at].T @ b[at], len(a))
    for other in others:
        first += other
    return first


def product(a: Array, c: Array) -> Array:
    """ac (D, b) of a (D, r) and c (r, b); its columns lie one after the other."""
    columns = np.empty((c.shape[1], len(a)))

    def put(at: slice) -> None:
        np.matmul(c.T, a[at].T, out=columns[:, at])

    _of_slabs(put, len(a))
    return columns.T


def without(rows: Array, a: Array, c: Array) -> Array:
    """rows − (ac)ᵀ (b, D) of rows (b, D), a (D, r) and c (r, b)."""
    result = np.empty(rows.shape)

    def put(at: slice) -> None:
        # No array of a thread's own: pages that are new to it would cost as much as the product.
        np.matmul(c.T, a[at].T, out=result[:, at])
        np.subtract(rows[:, at], result[:, at], out=result[:, at])

    _of_slabs(put, len(a))
    return result


def _of_slabs(function: Callable[[slice], T], rows: int) -> list[T]:
    """The results of a function for all slabs, in order."""
    if rows < 2 * SLAB:
        return [function(slice(0, rows))]
    return on_all_cores(function, [slice(start, min(start + SLAB, rows)) for start in range(0, rows, SLAB)])


def on_all_cores(function: Callable[[S], T], pieces: Sequence[S]) -> list[T]:
    """The results of a function for all pieces of a work, in order; each is the work of one thread."""

    def single_threaded(piece: S) -> T:
        with pinned():
            return function(piece)

    # A pool for each product takes a tenth of a millisecond; one that stays would be dead in a process that forked.
    with ThreadPoolExecutor(min(_cores(), len(pieces), MOST_THREADS)) as pool:
        return list(pool.map(single_threaded, pieces))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class SymmetricTiles:
    """K (N, N) as `tiles[i, j]`, K of the rows from `bounds[i]` and the columns from `bounds[j]`, for i ≤ j."""

    tiles: dict[tuple[int, int], Array]
    bounds: tuple[int, ...]

    @classmethod
    def of(cls, tiles: Sequence[Array]) -> SymmetricTiles:
        """The matrix of tiles that come row by row of tiles."""
        groups = (math.isqrt(8 * len(tiles) + 1) - 1) // 2
        bounds = np.cumsum([0, *(tile.shape[1] for tile in tiles[:groups])]).tolist()
        return cls(dict(zip(combinations_with_replacement(range(groups), 2), tiles, strict=True)), tuple(bounds))

    @property
    def size(self) -> int:
        """Rows and columns N."""
        return self.bounds[-1]

    @property
    def diagonal(self) -> Array:
        """K_nn (N,)."""
        return np.concatenate([np.diag(self.tiles[group, group]) for group in self._groups])

    def __matmul__(self, thin: Array) -> Array:
        """KV (N, b), on all cores, each of which makes some rows; a sum is over tiles from left to right."""
        product = np.zeros((self.size, thin.shape[1]))

        def put(group: int) -> None:
            rows = product[self._at(group)]
            for other in self._groups:
                tile = self.tiles[group, other] if group <= other else self.tiles[other, group].T
                rows += tile @ thin[self._at(other)]

        on_all_cores(put, self._groups)
        return product

    def matrix(self) -> Array:
        """All of K (N, N)."""
        matrix = np.empty((self.size, self.size))
        for (group, other), tile in self.tiles.items():
            rows, columns = self._at(group), self._at(other)
            matrix[rows, columns] = tile
            if group != other:
                matrix[columns, rows] = tile.T
        return matrix

    @property
    def _groups(self) -> range:
        return range(len(self.bounds) - 1)

    def _at(self, group: int) -> slice:
        return slice(self.bounds[group], self.bounds[group + 1])


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
        inside = inner(basis, candidates) if inside is None else inside
        # Of the Lanczos method's coefficients only those of the last blocks are more than rounding.
        first = int(np.argmax(abs(inside).max(axis=1, initial=0.0) > ROUNDING * abs(inside).max(initial=0.0)))
        work = without(rows, basis[:, first:], inside[first:])
    gram = inner(work.T, work.T)
    kept = np.diag(gram) > DROP**2 * before
    if not kept.any():
        return np.zeros((len(candidates), 0))
    scale = 1.0 / np.sqrt(np.diag(gram)[kept])
    values, vectors = la.eigh(gram[np.ix_(kept, kept)] * np.outer(scale, scale))
    used = values > DEPENDENT * values[-1]
    independent = vectors[:, used] * np.outer(scale, 1.0 / np.sqrt(values[used]))
    work = product((work if kept.all() else work[kept]).T, independent).T
    if basis is not None and not (known and _outside(work.T, basis)):
        overlap = inner(basis, work.T)
        work = without(work, basis, overlap)
        if np.linalg.norm(overlap) > LITTLE:
            work = _left(work)
            if not len(work):
                return np.zeros((len(candidates), 0))
            work = np.asarray(la.qr(work.T, mode="economic")[0].T, dtype=np.float64)
            work = without(work, basis, inner(basis, work.T))
    # Nearly orthonormal by now, so that a Cholesky factor makes them so to rounding, faster than reflections.
    factor = la.cholesky(inner(work.T, work.T), lower=True)
    return product(work.T, la.solve_triangular(factor, np.eye(len(factor)), lower=True).T)


def _left(rows: Array) -> Array:
    """The rest that a projection leaves of unit directions (b, D): without the combinations of which nothing but
    rounding is left, as happens where the basis spans nearly everything."""
    values, vectors = la.eigh(inner(rows.T, rows.T))
    return rows if values[0] > VANISHED else product(rows.T, vectors[:, values > VANISHED]).T


def _outside(directions: Array, basis: Array) -> bool:
    """Whether unit directions (D, b) have nothing but rounding inside the span, by random combinations of them."""
    mixtures = np.random.default_rng(0).standard_normal((directions.shape[1], PROBES))
    inside = inner(basis, product(directions, mixtures))
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
