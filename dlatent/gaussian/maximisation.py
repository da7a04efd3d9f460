"""The M-step: a regression of every feature on z̃ = (z, 1) over the samples that observe it.

    [W μ]_j = (Σ (x−s)_j E[z̃]ᵀ)(Σ E[z̃z̃ᵀ])⁻¹,   σ_g² = Σ_{j∈g} (Σ(x−s)_j² − [W μ]_j · Σ(x−s)_j E[z̃]) / (N_g D_g)

for each noise group g: a view, or a feature of factor analysis.

Loadings and mean are found together, which gives the exact means when views are missing.  Sources: SPPCA, Algorithms 1
and 2 (with errata 7 and 11); Ham, Lee and Saul (27), (30).  Parameter expansion: Liu, Rubin and Wu (1998).
"""

from __future__ import annotations

import numpy as np

from dlatent.arrays import Array
from dlatent.gaussian.expectation import LOG_2PI, Latent, expect_moments
from dlatent.gaussian.moments import Moments
from dlatent.gaussian.specification import Maximum, Parameters, Specification
from dlatent.operators.symmetric import positive_solve


def _view_sums(latent: tuple[Latent, ...], specification: Specification, view: int) -> tuple[Array, Array, Array]:
    """Σ E[z̃z̃ᵀ], Σ (x−s) E[z̃]ᵀ and Σ (x−s)² of one view over all patterns that have it."""
    width, k = specification.sizes[view], specification.n_components
    second, cross = np.zeros((k + 1, k + 1)), np.zeros((width, k + 1))
    energy = np.zeros(specification.views[view].groups)
    for pattern, part in zip(specification.patterns, latent, strict=True):
        if view in pattern:
            second += part.second
            cross += part.cross[specification.slices_within(pattern)[view]]
            first = sum(specification.views[other].groups for other in pattern[: pattern.index(view)])
            energy += part.energy[first : first + len(energy)]
    return second, cross, energy


def expanded(parameters: Parameters, latent: Array) -> Parameters:
    """PX-EM: give z the mean and covariance that Σ E[z̃z̃ᵀ] (K+1, K+1) has, then put them into W and μ."""
    k = len(latent) - 1
    shift = latent[:k, k] / latent[k, k]
    covariance = latent[:k, :k] / latent[k, k] - np.outer(shift, shift)
    loadings = parameters.loadings @ np.linalg.cholesky(covariance)
    return parameters._replace(loadings=loadings, mean=parameters.mean + parameters.loadings @ shift)


def maximise(
    latent: tuple[Latent, ...],
    specification: Specification,
    *,
    spare_size: Array | None = None,
    spare_energy: Array | None = None,
    expand: bool = True,
) -> Parameters:
    """M-step over all patterns; noise variances stay at or above the floors of the specification.

    `spare_size` and `spare_energy` (views,) count features outside the statistics, whose loadings are zero.  With
    `expand` the latent covariance is a free parameter of the step (PX-EM): same fixed points, far fewer iterations.
    """
    views, k = len(specification.views), specification.n_components
    extra = np.zeros(views) if spare_size is None else spare_size
    outside = np.zeros(views) if spare_energy is None else spare_energy
    loadings, mean = np.empty((sum(specification.sizes), k)), np.empty(sum(specification.sizes))
    variance = np.empty(len(specification.group_sizes))
    for view, (features, groups) in enumerate(zip(specification.slices, specification.noise_slices, strict=True)):
        second, cross, energy = _view_sums(latent, specification, view)
        solution = positive_solve(second, cross.T)[0].T
        shared = specification.views[view].shared
        cells = second[-1, -1] * (specification.sizes[view] + extra[view] if shared else 1.0)
        explained = float(np.sum(solution * cross)) if shared else (solution * cross).sum(axis=1)
        variance[groups] = (energy + outside[view] - explained) / cells
        loadings[features], mean[features] = solution[:, :k], solution[:, k]
    floors = specification.floors
    image = Parameters(loadings, mean, floors.copy() if specification.fixed else np.maximum(variance, floors))
    return expanded(image, np.asarray(sum(part.second for part in latent))) if expand else image


def slope(latent: tuple[Latent, ...], parameters: Parameters, specification: Specification) -> Array:
    """Gradient of the log-likelihood by (W, μ, log ψ), flattened, from the E-step there (Fisher's identity).

    ∂/∂[w μ]_j = (Σ (x−s)_j E[z̃]ᵀ − [w μ]_j Σ E[z̃z̃ᵀ]) / ψ_j;  ∂/∂log ψ_g = ½ (residual_g / ψ_g − N_g D_g).
    """
    by_loadings, by_mean = np.empty_like(parameters.loadings), np.empty_like(parameters.mean)
    by_noise = np.empty_like(parameters.noise_variance)
    noise = specification.per_feature(parameters.noise_variance)
    for view, (features, groups) in enumerate(zip(specification.slices, specification.noise_slices, strict=True)):
        second, cross, energy = _view_sums(latent, specification, view)
        wide = np.column_stack([parameters.loadings[features], parameters.mean[features]])
        moved = wide @ second
        residuals = (cross - moved) / noise[features, None]
        by_loadings[features], by_mean[features] = residuals[:, :-1], residuals[:, -1]
        rest = ((moved - 2.0 * cross) * wide).sum(axis=1)
        shared = specification.views[view].shared
        residual = energy + (rest.sum() if shared else rest)
        cells = second[-1, -1] * (specification.sizes[view] if shared else 1.0)
        by_noise[groups] = 0.5 * (residual / parameters.noise_variance[groups] - cells)
    return np.concatenate([by_loadings.ravel(), by_mean, by_noise])


def likelihood(parameters: Parameters, moments: Moments, specification: Specification) -> tuple[float, Array]:
    """The log-likelihood and its gradient as `slope` has it, from moments; O(D²K) per pattern, no data access."""
    latent = expect_moments(parameters, moments, specification)
    value, rise = _spare(parameters, moments, specification)
    rises = slope(latent, parameters, specification)
    rises[len(rises) - len(rise) :] += rise
    return sum(part.log_likelihood for part in latent) + value, rises


def em_step(parameters: Parameters, moments: Moments, specification: Specification, *, expand: bool = True) -> Maximum:
    """One (PX-)EM iteration from moments: the likelihood does not decrease. O(D²K) per pattern, no data access.

    `parameters.mean` is relative to `moments.shift`.  Returns: the next parameters, and the log-likelihood of these.
    """
    latent = expect_moments(parameters, moments, specification)
    value = sum(part.log_likelihood for part in latent) + _spare(parameters, moments, specification)[0]
    new = maximise(
        latent, specification, spare_size=moments.spare_size, spare_energy=moments.spare_energy, expand=expand
    )
    return Maximum(new, value)


def _spare(parameters: Parameters, moments: Moments, specification: Specification) -> tuple[float, Array]:
    """The log-likelihood of the features outside the moments, isotropic noise about their mean, and its gradient by the
    logarithms of the noise variances; only views of one noise group have such features."""
    value, rise = 0.0, np.zeros(len(parameters.noise_variance))
    for view in np.flatnonzero(moments.spare_size):
        seen = zip(specification.patterns, moments.patterns, strict=True)
        count = sum(part.samples for pattern, part in seen if view in pattern)
        group = specification.noise_slices[view].start
        noise, energy = parameters.noise_variance[group], moments.spare_energy[view]
        value -= 0.5 * count * moments.spare_size[view] * (LOG_2PI + float(np.log(noise)))
        value -= 0.5 * float(energy / noise)
        rise[group] = 0.5 * (energy / noise - count * moments.spare_size[view])
    return value, rise
