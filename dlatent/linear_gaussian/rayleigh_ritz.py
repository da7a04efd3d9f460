"""The model inside a subspace of the features, and where the subspace has to grow.

With loadings W = QC restricted to the span of Q (D, r), orthonormal, the likelihood depends on the data only through
small moments of Qᵀx and the energy outside.  Keeping P = XᵀXQ per pattern, those moments, and the gradient of the
likelihood at any C, cost no further access to the data.  Source: project design, "Rayleigh–Ritz EM"; for one pattern
and one view it is the block Krylov method for the leading eigenvectors.
"""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Subspace:
    """Q (D, r), P_p = Σ(x−s)((x−s)ᵀQ) per pattern, and the sums per pattern."""

    basis: Array
    products: tuple[Array, ...]
    sums: tuple[PatternSums, ...]
    shift: Array

    @property
    def offset(self) -> Array:
        """Mean of the features over all instances, relative to the shift (D,)."""
        return np.asarray(sum(s.total for s in self.sums) / sum(s.instances for s in self.sums))


def begin(directions: Array, found: tuple[PatternProducts, ...], shift: Array) -> Subspace:
    """The subspace after the first pass, which asked for the sums too."""
    sums = tuple(part.sums for part in found if part.sums is not None)
    return Subspace(directions, tuple(part.product for part in found), sums, shift)


def extend(space: Subspace, directions: Array, found: tuple[PatternProducts, ...]) -> Subspace:
    """Add directions (orthonormal, orthogonal to Q) and their products."""
    products = tuple(np.hstack([old, new.product]) for old, new in zip(space.products, found, strict=True))
    return Subspace(np.hstack([space.basis, directions]), products, space.sums, space.shift)


def restarted(space: Subspace, keep: Array) -> Subspace:
    """Thick restart: the subspace Q·keep for orthonormal `keep` (r, r'), with no access to the data."""
    return Subspace(space.basis @ keep, tuple(p @ keep for p in space.products), space.sums, space.shift)


def orthonormal(candidates: Array, basis: Array | None = None) -> Array:
    """An orthonormal basis of the candidates' part outside `basis`; columns that vanish are dropped.

    Projected twice and re-orthogonalised, without which Q decays silently and the likelihood becomes nonsense.
    """
    lengths = np.linalg.norm(candidates, axis=0)
    work = candidates[:, lengths > 0] / lengths[lengths > 0]
    for _ in range(2):
        if basis is not None:
            work = work - basis @ (basis.T @ work)
    if not work.shape[1]:
        return np.asarray(work)
    left, values, _ = la.svd(work, full_matrices=False)
    fresh = left[:, values > DROP]
    if basis is not None and fresh.shape[1]:
        fresh = fresh - basis @ (basis.T @ fresh)
        fresh, _ = la.qr(fresh, mode="economic")
    return np.asarray(fresh)


def reduced_moments(space: Subspace, specification: Specification) -> Moments:
    """Moments of (Qᵀx, y) per pattern about the shift, with the energy of x outside the span."""
    found = []
    for pattern, product, sums in zip(specification.patterns, space.products, space.sums, strict=True):
        inner = space.basis.T @ product
        inner = (inner + inner.T) / 2
        total = space.basis.T @ sums.total
        if 1 in pattern:
            cross = space.basis.T @ sums.cross
            inner = np.block([[inner, cross], [cross.T, sums.target_gram]])
            total = np.concatenate([total, sums.target_total])
        found.append(PatternMoments(sums.instances, total, inner))
    rank, views = space.basis.shape[1], len(specification.views)
    count = sum(s.instances for s in space.sums)
    offset = space.offset
    inside = sum(float(np.trace(m.gram[:rank, :rank])) for m in found)
    outside = sum(s.energy for s in space.sums) - inside
    outside -= count * float(offset @ offset - np.sum((space.basis.T @ offset) ** 2))
    spare_size, spare_energy = np.zeros(views), np.zeros(views)
    spare_size[0], spare_energy[0] = len(space.basis) - rank, max(outside, 0.0)
    width = rank + sum(specification.sizes[1:])
    return Moments(tuple(found), np.zeros(width), spare_size, spare_energy)


def reduced_specification(space: Subspace, specification: Specification) -> Specification:
    """The model whose first view is the subspace."""
    return specification.resized((space.basis.shape[1], *specification.sizes[1:]))


def lifted(parameters: Parameters, space: Subspace) -> Parameters:
    """Parameters of the stacked features (about zero) from those of the reduced model (mean about the shift).

    Outside the span the loadings are zero, so the best mean there is the mean of the data.
    """
    rank = space.basis.shape[1]
    offset = space.offset
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
        rank = space.basis.shape[1]
        with_z = product @ b[:, :rank].T
        total = space.basis.T @ sums.total
        if 1 in pattern:
            with_z += sums.cross @ b[:, rank:].T
            total = np.concatenate([total, sums.target_total])
        with_z -= np.outer(sums.total, b @ mean)
        block += with_z - np.outer(space.offset, b @ (total - sums.instances * mean))
    return block


def ritz_residuals(space: Subspace, loadings: Array, count: int) -> Array:
    """XᵀXu for the `count` leading principal directions u of the subspace that the loadings do not use yet."""
    total = np.asarray(sum(space.products))
    inner = space.basis.T @ total
    n, offset = sum(s.instances for s in space.sums), space.basis.T @ space.offset
    inner = (inner + inner.T) / 2 - n * np.outer(offset, offset)
    used = la.orth(loadings) if loadings.shape[1] else np.zeros((len(inner), 0))
    rest = np.eye(len(inner)) - used @ used.T
    _, vectors = la.eigh(rest @ inner @ rest)
    chosen = vectors[:, ::-1][:, : max(min(count, len(inner) - used.shape[1]), 0)]
    return np.asarray(total @ chosen - n * np.outer(space.offset, offset @ chosen))
