"""The E-step: what is known of the latent variables, given the views that an instance has.

z | x ~ N(B (x − μ), M⁻¹),  M = I + WᵀΨ⁻¹W,  B = M⁻¹WᵀΨ⁻¹,  over the observed features.
Sources: Tipping and Bishop (1999); SPPCA (7), (8), (12) with the factor of errata 7 (docs/models/supervised.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Features
from dlatent.linear_gaussian.moments import Moments, PatternMoments, recentred, row_patterns, take
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.products import weighted_sums
from dlatent.linear_gaussian.specification import Specification
from dlatent.operators.low_rank_plus_diagonal import LowRankPlusDiagonal

LOG_2PI = float(np.log(2.0 * np.pi))


class Projection(NamedTuple):
    """The posterior map shared by all instances of one pattern.

    `coefficients` B (K, D_p), `covariance` M⁻¹ (K, K), `log_determinant` = log|WWᵀ + Ψ|.
    """

    coefficients: Array
    covariance: Array
    log_determinant: float


class Latent(NamedTuple):
    """Sufficient statistics of one pattern, additive over instances, with z̃ = (z, 1).

    `second` Σ E[z̃z̃ᵀ] (K+1, K+1), `cross` Σ (x−s) E[z̃]ᵀ (D_p, K+1), `energy` Σ (x−s)² per noise group of the pattern,
    and `log_likelihood` Σ log p(x) at the parameters that the expectations were taken with.
    """

    second: Array
    cross: Array
    energy: Array
    log_likelihood: float


def projection(loadings: Array, noise: Array) -> Projection:
    """The posterior map for features with loadings (D, K) and noise variances (D,); O(D K²) by Woodbury."""
    covariance = LowRankPlusDiagonal(loadings, noise)
    return Projection(covariance.gain(), covariance.inner_inverse(), covariance.log_determinant())


def pattern_projection(parameters: Parameters, specification: Specification, pattern: tuple[int, ...]) -> Projection:
    """The posterior map of the instances that have the views of `pattern`."""
    at = specification.features_of(pattern)
    noise = specification.per_feature(parameters.noise_variance)
    return projection(parameters.loadings[at], noise[at])


def joined(second: Array, first: Array, count: float) -> Array:
    """Σ E[z̃z̃ᵀ] from Σ E[zzᵀ], Σ E[z] and the number of instances."""
    return np.block([[second, first[:, None]], [first[None, :], np.array([[count]])]])


def _group_energies(diagonal: Array, sizes: list[int]) -> Array:
    edges = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(int)
    return np.asarray(np.add.reduceat(diagonal, edges))


def expect_moments(parameters: Parameters, moments: Moments, specification: Specification) -> tuple[Latent, ...]:
    """E-step from moments, exact for any number of instances; O(D²K) per pattern.

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
    b, covariance, log_determinant = projection(loadings, noise)
    moved = recentred(found, mean)
    gram_b = moved.gram @ b.T
    first = b @ moved.total
    second = found.instances * covariance + b @ gram_b
    # (x−s)E[z]ᵀ = (x−s−μ)E[z]ᵀ + μE[z]ᵀ, summed over instances.
    cross = np.column_stack([gram_b + np.outer(mean, first), found.total])
    trace = float((np.diag(moved.gram) / noise).sum() - np.sum(gram_b * (loadings / noise[:, None])))
    value = -0.5 * (found.instances * (len(noise) * LOG_2PI + log_determinant) + trace)
    groups = [size for view in pattern for size in specification.group_sizes[specification.noise_slices[view]]]
    energy = _group_energies(np.diag(found.gram), groups)
    return Latent(joined(second, first, found.instances), cross, energy, value)


def scores(features: Features, projected: Projection, mean: Array) -> Array:
    """Posterior means B (x − μ) of rows (n, K); sparse rows are not densified."""
    if isinstance(features, sp.csr_array):
        return np.asarray(features @ projected.coefficients.T) - projected.coefficients @ mean
    return np.asarray((features - mean) @ projected.coefficients.T)


def _expect_rows(
    x: Features,
    y: Array | None,
    shift: Array,
    parameters: Parameters,
    specification: Specification,
    pattern: tuple[int, ...],
) -> Latent:
    width, count = x.shape[1], float(x.shape[0])
    at = specification.features_of(pattern)
    mean, loadings = parameters.mean[at], parameters.loadings[at]
    noise = specification.per_feature(parameters.noise_variance)[at]
    about = projection(loadings, noise)
    b, covariance, log_determinant = about
    # Sparse rows arrive as they are, dense rows about the shift.
    own = about._replace(coefficients=b[:, :width])
    middle = mean[:width] + shift if isinstance(x, sp.csr_array) else mean[:width]
    z = np.zeros((x.shape[0], b.shape[0]))
    if y is not None:
        z += (y - mean[width:]) @ b[:, width:].T

    def weights(rows: Features, place: slice) -> Array:
        z[place] += scores(rows, own, middle)
        return np.column_stack([z[place], np.ones(place.stop - place.start)])

    cross, x_energy = weighted_sums(x, shift, weights)
    energies = [x_energy]
    if y is not None:
        joint = np.column_stack([z, np.ones(len(z))])
        cross = np.vstack([cross, y.T @ joint])
        energies.append(float(np.sum(y * y)))
    energy = np.array(energies)
    first = z.sum(axis=0)
    second = count * covariance + z.T @ z
    residual = _mahalanobis(cross, energy, z, parameters, specification, pattern)
    value = -0.5 * (count * (len(noise) * LOG_2PI + log_determinant) + residual)
    return Latent(joined(second, first, count), cross, energy, value)


def _mahalanobis(
    cross: Array,
    energy: Array,
    z: Array,
    parameters: Parameters,
    specification: Specification,
    pattern: tuple[int, ...],
) -> float:
    """Σ (x−μ)ᵀ C⁻¹ (x−μ) = Σ_g ‖x_g−μ_g‖²/σ_g² − Σ zᵀMz, with Mz = WᵀΨ⁻¹(x−μ) for posterior means z."""
    at = specification.features_of(pattern)
    mean, loadings = parameters.mean[at], parameters.loadings[at]
    noise = specification.per_feature(parameters.noise_variance)[at]
    variances = parameters.noise_variance[list(pattern)]
    plain = float((energy / variances).sum())
    total = cross[:, -1]
    plain += float(((len(z) * mean - 2.0 * total) * mean / noise).sum())
    precision = np.eye(loadings.shape[1]) + loadings.T @ (loadings / noise[:, None])
    return plain - float(np.sum((z @ precision) * z))


def block_expectation(block: Block, request: tuple[Parameters, Specification, Array]) -> tuple[Latent, ...]:
    """E-step of a block per pattern, features about the shift (D,); additive over instances, O(nnz K) or O(n D K)."""
    parameters, specification, shift = request
    found = []
    for pattern, rows in zip(specification.patterns, row_patterns(block, specification.patterns), strict=True):
        y = None if block.targets is None or 1 not in pattern else take(block.targets, rows)
        found.append(_expect_rows(take(block.features, rows), y, shift, parameters, specification, pattern))
    return tuple(found)
