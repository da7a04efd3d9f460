"""The E-step: the distribution of the latent variables given the views that a sample has.

z | x ~ N(B (x − μ), M⁻¹),  M = I + WᵀΨ⁻¹W,  B = M⁻¹WᵀΨ⁻¹,  over the observed features.
Sources: Tipping and Bishop (1999); SPPCA (7), (8), (12) with the factor of errata 7 (docs/models/supervised.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from dlatent.arrays import Array, Block, Features
from dlatent.gaussian.moments import Moments, PatternMoments
from dlatent.gaussian.products import pattern_sums
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.gaussian.views import Arrangement, Parts, by_pattern, counted
from dlatent.operators.sparse import far_mean, rows_about, times
from dlatent.operators.symmetric import positive_solve, unpacked

LOG_2PI = float(np.log(2.0 * np.pi))


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
    weighted, unit = loadings / noise[:, None], np.eye(loadings.shape[1])
    if spread is None:
        both, log_determinant = positive_solve(unit + loadings.T @ weighted, np.vstack([unit, weighted]).T)
        inverse = both[:, : len(unit)]
        # log|WWᵀ + Ψ| = log|Ψ| + log|M|
        constant = float(np.log(noise).sum()) + log_determinant
        return Projection(both[:, len(unit) :], (inverse + inverse.T) / 2, constant)
    uncertain = spread[0] * (1.0 / noise).sum() if len(spread) == 1 else (spread / noise[:, None]).sum(axis=0)
    precision = unit + loadings.T @ weighted + unpacked(uncertain, loadings.shape[1])
    covariance = np.asarray(np.linalg.inv(precision))
    constant = float(np.log(noise).sum() + np.linalg.slogdet(precision)[1])
    return Projection(covariance @ weighted.T, covariance, constant)


def pattern_projection(parameters: Parameters, specification: Specification, pattern: tuple[int, ...]) -> Projection:
    """The posterior map of the samples that have the views of `pattern`."""
    noise = specification.per_feature(parameters.noise_variance)
    return projection_of(parameters, noise, specification.features_of(pattern))


def projection_of(parameters: Parameters, noise: Array, features: Any) -> Projection:
    """The posterior map given some features, by an index of theirs, with the noise variances of all (D,)."""
    seen, noise = parameters.of(features), noise[features]
    about = projection(seen.loadings, noise, seen.loadings_covariance)
    return about._replace(constant=about.constant + float(seen.uncertainty(noise).sum()))


def joined(second: Array, first: Array, count: float) -> Array:
    """Σ E[z̃z̃ᵀ] from Σ E[zzᵀ], Σ E[z] and the number of samples."""
    k = len(first)
    whole = np.empty((k + 1, k + 1))
    whole[:k, :k], whole[:k, k], whole[k, :k], whole[k, k] = second, first, first, count
    return whole


def _by_groups(values: Array, specification: Specification, pattern: tuple[int, ...]) -> Array:
    """Sums over the features of each noise group of the views of a pattern."""
    sizes = [size for view in pattern for size in specification.group_sizes[specification.noise_slices[view]]]
    return np.asarray(np.add.reduceat(values, [0, *accumulate(sizes[:-1])]))


def expect_moments(parameters: Parameters, moments: Moments, specification: Specification) -> tuple[Latent, ...]:
    """E-step from moments, exact for any number of samples; O(D²K) per pattern.

    `parameters.mean` is relative to `moments.shift`.
    """
    latent, noise = [], specification.per_feature(parameters.noise_variance)
    for pattern, part in zip(specification.patterns, moments.patterns, strict=True):
        at = specification.features_of(pattern)
        expected = expect_pattern(part, projection_of(parameters, noise, at), parameters.of(at), noise[at])
        latent.append(expected._replace(energy=_by_groups(expected.energy, specification, pattern)))
    return tuple(latent)


def expect_pattern(part: PatternMoments, about: Projection, seen: Parameters, noise: Array) -> Latent:
    """The statistics of rows that have the same features from their moments, with Σ (x−s)² of each feature; the
    parameters and noise variances are those of these features."""
    (count, total, gram), (b, covariance, constant), mean = part, about, seen.mean
    # Moments about the mean would be G − t mᵀ − m tᵀ + n m mᵀ; what is needed of them is O(D K) beside the product.
    first = b @ (total - count * mean)
    cross = np.empty((len(total), len(b) + 1))
    cross[:, :-1], cross[:, -1] = gram @ b.T - total[:, None] * (b @ mean), total
    about_mean = cross[:, :-1] - mean[:, None] * first
    diagonal = np.diag(gram)
    squares = diagonal - mean * (2.0 * total - count * mean)
    second = count * covariance + b @ about_mean
    trace = float((squares / noise).sum() - (about_mean * (seen.loadings / noise[:, None])).sum())
    value = -0.5 * (count * (len(noise) * LOG_2PI + constant) + trace)
    return Latent(joined(second, first, count), cross, diagonal, value)


def scores(features: Features, projected: Projection, mean: Array) -> Array:
    """Posterior means B (x − μ) of rows (n, K); sparse rows are not densified."""
    if not isinstance(features, np.ndarray):
        return times(features, projected.coefficients.T) - projected.coefficients @ mean
    return np.asarray((features - mean) @ projected.coefficients.T)


def _expect_rows(
    pattern: tuple[int, ...],
    parts: Parts,
    shifts: Sequence[Array],
    weights: Array | None,
    *,
    parameters: Parameters,
    specification: Specification,
) -> Latent:
    count, k = counted(parts, weights), specification.n_components
    about = pattern_projection(parameters, specification, pattern)
    z = np.ones((parts[0].shape[0], k + 1))
    z[:, :k] = 0.0
    pieces = list(_pieces(about, parameters, specification, pattern))
    for x, shift, (piece, mean) in zip(parts[1:], shifts[1:], pieces[1:], strict=True):
        z[:, :k] += scores(x, piece, mean + shift)

    def first(rows: Features, place: slice) -> None:
        z[place, :k] += scores(rows, *pieces[0])

    cross, energies = pattern_sums(parts, shifts, first, z, often=weights)
    energy = _by_groups(np.concatenate(energies), specification, pattern)
    latent = z[:, :k]
    often = latent if weights is None else latent * weights[:, None]
    second = count * about.covariance + often.T @ latent
    at = specification.features_of(pattern)
    mean, loadings = parameters.mean[at], parameters.loadings[at]
    noise = specification.per_feature(parameters.noise_variance)[at]
    variances = np.concatenate([parameters.noise_variance[specification.noise_slices[view]] for view in pattern])
    # Σ (x−μ)ᵀC⁻¹(x−μ) = Σ_g ‖x_g−μ_g‖²/σ_g² − Σ zᵀMz, as Mz = WᵀΨ⁻¹(x−μ) for posterior means z.
    residual = float((energy / variances).sum())
    residual += float(((count * mean - 2.0 * cross[:, -1]) * mean / noise).sum())
    precision = np.eye(k) + loadings.T @ (loadings / noise[:, None])
    residual -= float(np.sum((latent @ precision) * often))
    value = -0.5 * (count * (len(noise) * LOG_2PI + about.constant) + residual)
    return Latent(joined(second, often.sum(axis=0), count), cross, energy, value)


def _pieces(
    about: Projection, parameters: Parameters, specification: Specification, pattern: tuple[int, ...]
) -> Iterator[tuple[Projection, Array]]:
    """The posterior map of each view of a pattern by itself, and the mean of the view."""
    for view, at in specification.slices_within(pattern).items():
        piece = about._replace(coefficients=about.coefficients[:, at])
        yield piece, parameters.mean[specification.slices[view]]


def near_zero(
    parts: Parts, pattern: tuple[int, ...], parameters: Parameters, specification: Specification
) -> tuple[Parts, Parameters]:
    """Rows of the views of a pattern, and the model, both less the mean of sparse features that are far from zero."""
    shift = np.zeros(len(parameters.mean))
    noise = specification.per_feature(parameters.noise_variance)
    for x, view in zip(parts, pattern, strict=True):
        if not isinstance(x, np.ndarray):
            at = specification.slices[view]
            shift[at] = far_mean(parameters.mean[at], (parameters.loadings[at] ** 2).sum(axis=1) + noise[at])
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
    first, *others = (scores(x, *piece) for x, piece in zip(parts, pieces, strict=True))
    return np.asarray(sum(others, start=first)), about


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
    expect = partial(_expect_rows, parameters=parameters, specification=specification)
    return by_pattern(block, specification.patterns, arrangement, shift, expect)
