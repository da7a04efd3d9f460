"""The E-step: what is known of the latent variables, given the views that a sample has.

z | x ~ N(B (x − μ), M⁻¹),  M = I + WᵀΨ⁻¹W,  B = M⁻¹WᵀΨ⁻¹,  over the observed features.
Sources: Tipping and Bishop (1999); SPPCA (7), (8), (12) with the factor of errata 7 (docs/models/supervised.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array, Block, Features
from dlatent.gaussian.columns import rows_about, times
from dlatent.gaussian.moments import Moments, PatternMoments
from dlatent.gaussian.parameters import Parameters
from dlatent.gaussian.products import pattern_sums
from dlatent.gaussian.specification import Specification
from dlatent.gaussian.views import Arrangement, Parts, by_pattern, counted, parts_about
from dlatent.operators.batched import unpacked
from dlatent.operators.far_columns import far_part

LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class LowRankPlusDiagonal:
    """C = WWᵀ + Ψ for W (D, K) and ψ (D,), through M = I + WᵀΨ⁻¹W (K, K) by Woodbury's identity; O(D K²)."""

    factor: Array
    diagonal: Array

    @cached_property
    def _scaled(self) -> Array:
        return self.factor / self.diagonal[:, None]

    @cached_property
    def _cholesky(self) -> Array:
        """Lower triangle of M."""
        return np.asarray(la.cholesky(np.eye(self.factor.shape[1]) + self.factor.T @ self._scaled, lower=True))

    def inner_inverse(self) -> Array:
        """M⁻¹ (K, K), symmetric."""
        inverse = la.cho_solve((self._cholesky, True), np.eye(len(self._cholesky)))
        return np.asarray((inverse + inverse.T) / 2)

    def gain(self) -> Array:
        """WᵀC⁻¹ = M⁻¹WᵀΨ⁻¹ (K, D), the regression of the latent variables on the features."""
        return np.asarray(la.cho_solve((self._cholesky, True), self._scaled.T))

    def log_determinant(self) -> float:
        """log|C| = log|Ψ| + log|M|."""
        return float(np.log(self.diagonal).sum() + 2.0 * np.log(np.diag(self._cholesky)).sum())


class Projection(NamedTuple):
    """The posterior map shared by all samples of one pattern.

    `coefficients` B (K, D_p), `covariance` M⁻¹ (K, K), and `constant`, what −2 log p(x) is beside D log 2π and the
    distance of x: log|WWᵀ + Ψ|, and where loadings or means are uncertain what the bound has in its place.
    """

    coefficients: Array
    covariance: Array
    constant: float


class Latent(NamedTuple):
    """Sufficient statistics of one pattern, additive over samples, with z̃ = (z, 1).

    `second` Σ E[z̃z̃ᵀ] (K+1, K+1), `cross` Σ (x−s) E[z̃]ᵀ (D_p, K+1), `energy` Σ (x−s)² per noise group of the pattern,
    and `log_likelihood` Σ log p(x) at the parameters that the expectations were taken with.
    """

    second: Array
    cross: Array
    energy: Array
    log_likelihood: float


def projection(loadings: Array, noise: Array, spread: Array | None = None) -> Projection:
    """The posterior map for features with loadings (D, K) and noise variances (D,); O(D K²) by Woodbury.

    Where loadings are uncertain `spread` has their packed covariances, of each feature or of all (1, K(K+1)/2), and the
    map is that of the bound: E[w_j w_jᵀ] stands for w_j w_jᵀ.
    """
    if spread is None:
        covariance = LowRankPlusDiagonal(loadings, noise)
        return Projection(covariance.gain(), covariance.inner_inverse(), covariance.log_determinant())
    weighted = loadings / noise[:, None]
    uncertain = spread[0] * (1.0 / noise).sum() if len(spread) == 1 else (spread / noise[:, None]).sum(axis=0)
    precision = np.eye(loadings.shape[1]) + loadings.T @ weighted + unpacked(uncertain, loadings.shape[1])
    inverse = np.asarray(np.linalg.inv(precision))
    constant = float(np.log(noise).sum() + np.linalg.slogdet(precision)[1])
    return Projection(inverse @ weighted.T, inverse, constant)


def pattern_projection(parameters: Parameters, specification: Specification, pattern: tuple[int, ...]) -> Projection:
    """The posterior map of the samples that have the views of `pattern`."""
    at = specification.features_of(pattern)
    noise = specification.per_feature(parameters.noise_variance)
    own = parameters.of(at)
    found = projection(own.loadings, noise[at], own.loadings_covariance)
    return found._replace(constant=found.constant + float(own.uncertainty(noise[at]).sum()))


def joined(second: Array, first: Array, count: float) -> Array:
    """Σ E[z̃z̃ᵀ] from Σ E[zzᵀ], Σ E[z] and the number of samples."""
    return np.block([[second, first[:, None]], [first[None, :], np.array([[count]])]])


def _group_sizes(specification: Specification, pattern: tuple[int, ...]) -> list[int]:
    """Features of each noise group of the views of a pattern."""
    return [size for view in pattern for size in specification.group_sizes[specification.noise_slices[view]]]


def _group_energies(diagonal: Array, sizes: list[int]) -> Array:
    bounds = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(int)
    return np.asarray(np.add.reduceat(diagonal, bounds))


def expect_moments(parameters: Parameters, moments: Moments, specification: Specification) -> tuple[Latent, ...]:
    """E-step from moments, exact for any number of samples; O(D²K) per pattern.

    `parameters.mean` is relative to `moments.shift`.
    """
    return tuple(
        _expect_pattern(found, parameters, specification, pattern)
        for pattern, found in zip(specification.patterns, moments.patterns, strict=True)
    )


def _expect_pattern(
    found: PatternMoments, parameters: Parameters, specification: Specification, pattern: tuple[int, ...]
) -> Latent:
    at = specification.features_of(pattern)
    mean, loadings = parameters.mean[at], parameters.loadings[at]
    noise = specification.per_feature(parameters.noise_variance)[at]
    b, covariance, constant = projection(loadings, noise)
    # Moments about the mean would be G − t mᵀ − m tᵀ + n m mᵀ; what is needed of them is O(D K) beside the product.
    first = b @ (found.total - found.samples * mean)
    gram_b = found.gram @ b.T - np.outer(found.total, b @ mean) - np.outer(mean, first)
    diagonal = np.diag(found.gram)
    squares = diagonal - mean * (2.0 * found.total - found.samples * mean)
    second = found.samples * covariance + b @ gram_b
    # (x−s)E[z]ᵀ = (x−s−μ)E[z]ᵀ + μE[z]ᵀ, summed over samples.
    cross = np.column_stack([gram_b + np.outer(mean, first), found.total])
    trace = float((squares / noise).sum() - np.sum(gram_b * (loadings / noise[:, None])))
    value = -0.5 * (found.samples * (len(noise) * LOG_2PI + constant) + trace)
    energy = _group_energies(diagonal, _group_sizes(specification, pattern))
    return Latent(joined(second, first, found.samples), cross, energy, value)


def scores(features: Features, projected: Projection, mean: Array) -> Array:
    """Posterior means B (x − μ) of rows (n, K); sparse rows are not densified."""
    if not isinstance(features, np.ndarray):
        return times(features, projected.coefficients.T) - projected.coefficients @ mean
    return np.asarray((features - mean) @ projected.coefficients.T)


def _expect_rows(
    parts: Parts,
    shifts: Sequence[Array],
    parameters: Parameters,
    specification: Specification,
    pattern: tuple[int, ...],
    weights: Array | None,
) -> Latent:
    count, k = counted(parts, weights), specification.n_components
    about = pattern_projection(parameters, specification, pattern)
    z = np.ones((parts[0].shape[0], k + 1))
    z[:, :k] = 0.0
    pieces = list(_pieces(about, parameters, specification, pattern))
    for x, shift, (own, mean) in zip(parts[1:], shifts[1:], pieces[1:], strict=True):
        z[:, :k] += scores(x, own, mean + shift)
    own, mean = pieces[0]

    def first(rows: Features, place: slice) -> None:
        z[place, :k] += scores(rows, own, mean)

    cross, energies = pattern_sums(parts, shifts, first, z, often=weights)
    energy = np.concatenate(
        [_group_energies(e, _group_sizes(specification, (view,))) for view, e in zip(pattern, energies, strict=True)]
    )
    latent = z[:, :k]
    often = latent if weights is None else latent * weights[:, None]
    second = count * about.covariance + often.T @ latent
    at = specification.features_of(pattern)
    noise = specification.per_feature(parameters.noise_variance)[at]
    residual = _mahalanobis(cross, energy, latent, often, count, parameters, specification, pattern)
    value = -0.5 * (count * (len(noise) * LOG_2PI + about.constant) + residual)
    return Latent(joined(second, often.sum(axis=0), count), cross, energy, value)


def _pieces(
    about: Projection, parameters: Parameters, specification: Specification, pattern: tuple[int, ...]
) -> Iterator[tuple[Projection, Array]]:
    """The posterior map of each view of a pattern by itself, and the mean of the view."""
    start = 0
    for view in pattern:
        stop = start + specification.sizes[view]
        yield (
            about._replace(coefficients=about.coefficients[:, start:stop]),
            parameters.mean[specification.slices[view]],
        )
        start = stop


def near_zero(
    parts: Parts, pattern: tuple[int, ...], parameters: Parameters, specification: Specification
) -> tuple[Parts, Parameters]:
    """Rows of the views of a pattern, and the model, both less the mean of sparse features that are far from zero."""
    shift = np.zeros(len(parameters.mean))
    noise = specification.per_feature(parameters.noise_variance)
    for x, view in zip(parts, pattern, strict=True):
        if not isinstance(x, np.ndarray):
            at = specification.slices[view]
            shift[at] = far_part(parameters.mean[at], (parameters.loadings[at] ** 2).sum(axis=1) + noise[at])
    if not shift.any():
        return parts, parameters
    moved = tuple(rows_about(x, shift[specification.slices[view]])[0] for x, view in zip(parts, pattern, strict=True))
    return moved, parameters.moved(-shift)


def posterior_scores(
    parts: Parts, pattern: tuple[int, ...], parameters: Parameters, specification: Specification
) -> tuple[Array, Projection]:
    """E[z | x] (n, K) of rows that have the views of a pattern, and the posterior map that made it."""
    parts, parameters = near_zero(parts, pattern, parameters, specification)
    about = pattern_projection(parameters, specification, pattern)
    pieces = _pieces(about, parameters, specification, pattern)
    found = [scores(x, own, mean) for x, (own, mean) in zip(parts, pieces, strict=True)]
    return np.asarray(sum(found[1:], start=found[0])), about


def _mahalanobis(
    cross: Array,
    energy: Array,
    z: Array,
    often: Array,
    count: float,
    parameters: Parameters,
    specification: Specification,
    pattern: tuple[int, ...],
) -> float:
    """Σ (x−μ)ᵀ C⁻¹ (x−μ) = Σ_g ‖x_g−μ_g‖²/σ_g² − Σ zᵀMz, with Mz = WᵀΨ⁻¹(x−μ) for posterior means z, `often` the same
    times their weights."""
    at = specification.features_of(pattern)
    mean, loadings = parameters.mean[at], parameters.loadings[at]
    noise = specification.per_feature(parameters.noise_variance)[at]
    variances = np.concatenate([parameters.noise_variance[specification.noise_slices[view]] for view in pattern])
    plain = float((energy / variances).sum())
    total = cross[:, -1]
    plain += float(((count * mean - 2.0 * total) * mean / noise).sum())
    precision = np.eye(loadings.shape[1]) + loadings.T @ (loadings / noise[:, None])
    return plain - float(np.sum((z @ precision) * often))


class ExpectationRequest(NamedTuple):
    """Parameters (mean about the shift), the model, the shift of the features, and how samples of several views are
    arranged (then the shift is that of all stacked features)."""

    parameters: Parameters
    specification: Specification
    shift: Array
    arrangement: Arrangement | None = None


def block_expectation(block: Block, request: ExpectationRequest) -> tuple[Latent, ...]:
    """E-step of a block per pattern, features about the shift (D,); additive over samples, O(nnz K) or O(n D K)."""
    parameters, specification, shift, arrangement = request

    def expect(pattern: tuple[int, ...], parts: Parts, weights: Array | None) -> Latent:
        parts, shifts = parts_about(shift, pattern, parts, arrangement)
        return _expect_rows(parts, shifts, parameters, specification, pattern, weights)

    return by_pattern(block, specification.patterns, arrangement, expect)
