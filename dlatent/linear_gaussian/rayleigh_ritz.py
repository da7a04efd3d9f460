"""The model inside a subspace of the features, and where the subspace has to grow.

With loadings W = QC restricted to the span of Q (D, r), orthonormal, the likelihood depends on the data only through
small moments of Qᵀx and the energy outside.  Keeping P = XᵀXQ per pattern, those moments, and the gradient of the
likelihood at any C, cost no further access to the data.  Source: docs/models/routes.md; for one pattern
and one view it is the block Krylov method for the leading eigenvectors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array
from dlatent.linear_gaussian.expectation import pattern_projection
from dlatent.linear_gaussian.moments import Moments, PatternMoments
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.products import PatternProducts, PatternSums
from dlatent.linear_gaussian.specification import Specification

DROP = 1e-10
"""A new direction shorter than this part of its length before projection holds nothing but rounding."""
DEPENDENT = 1e-13
"""New directions whose Gram matrix has an eigenvalue below this part of the largest are combinations of each other."""


@dataclass(frozen=True)
class Subspace:
    """Q (D, r), and per pattern P = Σ(x−s)((x−s)ᵀQ) (D, r), QᵀP (r, r) and the sums; s is the shift (D,).

    `spare` is the number of further features, of which only the energy is known: it is in that of the sums.
    """

    basis: Array
    products: tuple[Array, ...]
    inner: tuple[Array, ...]
    sums: tuple[PatternSums, ...]
    shift: Array
    spare: int = 0

    @property
    def rank(self) -> int:
        """Width of the subspace."""
        return int(self.basis.shape[1])

    @property
    def instances(self) -> float:
        """Number of instances of all patterns."""
        return float(sum(s.instances for s in self.sums))

    @property
    def offset(self) -> Array:
        """Mean of the features over all instances, relative to the shift (D,)."""
        return np.asarray(sum(s.total for s in self.sums) / self.instances)

    @property
    def counts(self) -> tuple[float, ...]:
        """Number of instances of each pattern."""
        return tuple(s.instances for s in self.sums)

    @property
    def whole(self) -> bool:
        """Whether no other direction is left."""
        return self.rank == len(self.basis)

    def extended(self, directions: Array, products: tuple[PatternProducts, ...]) -> Subspace:
        """With more directions and their products, see `extend`."""
        return extend(self, directions, products)

    def restarted(self, keep: Array) -> Subspace:
        """Only what the directions Q·keep span, see `restarted`."""
        return restarted(self, keep)

    def moments(self, specification: Specification) -> Moments:
        """What the likelihood inside depends on, see `reduced_moments`."""
        return reduced_moments(self, specification)

    def principal(self, loadings: Array, count: int) -> Array:
        """Leading principal directions outside the span of the loadings, see `principal_inside`."""
        return principal_inside(self, loadings, count)

    def growth(self, parameters: Parameters, specification: Specification, extra: int, *, first: bool) -> Array:
        """Where the subspace has to grow, orthonormal (D, b): the gradient's part outside it, `extra` Krylov
        directions, and at first those of the targets."""
        candidates = [gradient_block(self, parameters, specification)]
        candidates.append(ritz_residuals(self, parameters.loadings[: self.rank], extra))
        if first:
            candidates += [s.cross for s in self.sums if s.cross.shape[1]]
        return orthonormal(np.hstack(candidates), self.basis)


def appended(columns: Array, fresh: Array) -> Array:
    """`columns` with `fresh` (D, b) to the right, in a buffer that has room for three times as many.

    Growing by copies costs as much as the arithmetic of a pass, because fresh pages are expensive. Earlier views stay
    valid.
    """
    width, more = columns.shape[1], fresh.shape[1]
    buffer = columns.base
    if buffer is None or not buffer.flags.f_contiguous or buffer.shape[1] < width + more:
        buffer = np.empty((len(columns), 4 * (width + more)), order="F")
        buffer[:, :width] = columns
    buffer[:, width : width + more] = fresh
    return buffer[:, : width + more]


def _symmetric(matrix: Array) -> Array:
    return (matrix + matrix.T) / 2


def begin(directions: Array, found: tuple[PatternProducts, ...], shift: Array, spare: int = 0) -> Subspace:
    """The subspace after the first pass, which asked for the sums too."""
    sums = tuple(part.sums for part in found if part.sums is not None)
    products = tuple(part.product for part in found)
    return Subspace(directions, products, tuple(_symmetric(directions.T @ p) for p in products), sums, shift, spare)


def extend(space: Subspace, directions: Array, found: tuple[PatternProducts, ...]) -> Subspace:
    """Add directions (orthonormal, orthogonal to Q) and their products; QᵀP grows by what is new, O(D r b)."""
    inner = []
    for old, new in zip(space.inner, found, strict=True):
        side = space.basis.T @ new.product
        inner.append(np.block([[old, side], [side.T, _symmetric(directions.T @ new.product)]]))
    products = tuple(appended(old, new.product) for old, new in zip(space.products, found, strict=True))
    return replace(space, basis=appended(space.basis, directions), products=products, inner=tuple(inner))


def restarted(space: Subspace, keep: Array) -> Subspace:
    """Thick restart: the subspace Q·keep for orthonormal `keep` (r, r'), with no access to the data."""
    products = tuple(p @ keep for p in space.products)
    inner = tuple(_symmetric(keep.T @ g @ keep) for g in space.inner)
    return replace(space, basis=space.basis @ keep, products=products, inner=inner)


def orthonormal(candidates: Array, basis: Array | None = None) -> Array:
    """An orthonormal basis of the candidates' part outside `basis`; columns that vanish are dropped.

    Projected twice and re-orthogonalised, without which Q decays silently and the likelihood becomes nonsense.
    """
    before = np.linalg.norm(candidates, axis=0)
    work = candidates if basis is None else candidates - basis @ (basis.T @ candidates)
    after = np.linalg.norm(work, axis=0)
    kept = after > DROP * before
    work = work[:, kept] / after[kept]
    if not work.shape[1]:
        return np.zeros((len(candidates), 0))
    values, vectors = la.eigh(work.T @ work)
    used = values > DEPENDENT * values[-1]
    work = work @ (vectors[:, used] / np.sqrt(values[used]))
    if basis is not None:
        work = work - basis @ (basis.T @ work)
    fresh, _ = la.qr(work, mode="economic")
    if basis is not None:
        fresh, _ = la.qr(fresh - basis @ (basis.T @ fresh), mode="economic")
    return np.asarray(fresh)


def reduced_moments(space: Subspace, specification: Specification) -> Moments:
    """Moments of (Qᵀx, y) per pattern about the shift, with the energy of x outside the span."""
    found = []
    for pattern, inner, sums in zip(specification.patterns, space.inner, space.sums, strict=True):
        total = space.basis.T @ sums.total
        if 1 in pattern:
            cross = space.basis.T @ sums.cross
            inner = np.block([[inner, cross], [cross.T, sums.target_gram]])
            total = np.concatenate([total, sums.target_total])
        found.append(PatternMoments(sums.instances, total, inner))
    rank, views, offset = space.rank, len(specification.views), space.offset
    outside = sum(s.energy for s in space.sums) - sum(float(np.trace(inner)) for inner in space.inner)
    outside -= space.instances * float(offset @ offset - np.sum((space.basis.T @ offset) ** 2))
    spare_size, spare_energy = np.zeros(views), np.zeros(views)
    spare_size[0], spare_energy[0] = len(space.basis) - rank + space.spare, max(outside, 0.0)
    width = rank + sum(specification.sizes[1:])
    return Moments(tuple(found), np.zeros(width), spare_size, spare_energy)


def reduced_specification(space: Subspace, specification: Specification) -> Specification:
    """The model whose first view is the subspace."""
    return specification.resized((space.rank, *specification.sizes[1:]))


def lifted(parameters: Parameters, space: Subspace) -> Parameters:
    """Parameters of the stacked features (about zero) from those of the reduced model (mean about the shift).

    Outside the span the loadings are zero, so the best mean there is the mean of the data.
    """
    rank, offset = space.rank, space.offset
    outside = offset - space.basis @ (space.basis.T @ offset)
    mean = space.shift + outside + space.basis @ parameters.mean[:rank]
    loadings = space.basis @ parameters.loadings[:rank]
    return Parameters(
        np.vstack([loadings, parameters.loadings[rank:]]),
        np.concatenate([mean, parameters.mean[rank:]]),
        parameters.noise_variance,
    )


def gradient_block(space: Subspace, parameters: Parameters, specification: Specification) -> Array:
    """Σ (x−μ) E[z]ᵀ (D, K) at reduced parameters: the M-step's new loadings up to a K×K factor. No data access."""
    reduced = reduced_specification(space, specification)
    block = np.zeros((len(space.basis), specification.n_components))
    for pattern, product, sums in zip(specification.patterns, space.products, space.sums, strict=True):
        b = pattern_projection(parameters, reduced, pattern).coefficients
        mean = parameters.mean[reduced.features_of(pattern)]
        rank = space.rank
        with_z = product @ b[:, :rank].T
        total = space.basis.T @ sums.total
        if 1 in pattern:
            with_z += sums.cross @ b[:, rank:].T
            total = np.concatenate([total, sums.target_total])
        with_z -= np.outer(sums.total, b @ mean)
        block += with_z - np.outer(space.offset, b @ (total - sums.instances * mean))
    return block


def principal_inside(space: Subspace, loadings: Array, count: int) -> Array:
    """The `count` leading principal directions (r, count) of the subspace, outside the span of the loadings (r, K)."""
    offset = space.basis.T @ space.offset
    return principal_directions(
        np.asarray(sum(space.inner)) - space.instances * np.outer(offset, offset), loadings, count
    )


def principal_directions(inner: Array, loadings: Array, count: int) -> Array:
    """The leading eigenvectors (r, count) of a symmetric matrix (r, r) outside the span of the loadings (r, K)."""
    used = la.orth(loadings)
    rest = np.eye(len(inner)) - used @ used.T
    room = max(min(count, len(inner) - used.shape[1]), 0)
    _, vectors = la.eigh(rest @ inner @ rest, subset_by_index=(len(inner) - max(room, 1), len(inner) - 1))
    return np.asarray(vectors[:, ::-1][:, :room])


def ritz_residuals(space: Subspace, loadings: Array, count: int) -> Array:
    """XᵀXu (D, count) for the leading principal directions u that the loadings do not use yet. No data access."""
    chosen = principal_inside(space, loadings, count)
    product = np.asarray(sum(part @ chosen for part in space.products))
    return product - space.instances * np.outer(space.offset, (space.basis.T @ space.offset) @ chosen)
