"""The log-likelihood of single samples, and what the model predicts for one view from another.

log p(x) = −½ [D log 2π + log|C| + (x−μ)ᵀC⁻¹(x−μ)],  C = WWᵀ + Ψ, by Woodbury in O(DK) per sample.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Features
from dlatent.gaussian.columns import Columns, entries_squared
from dlatent.gaussian.expectation import LOG_2PI, Projection, near_zero, posterior_scores
from dlatent.gaussian.parameters import Parameters
from dlatent.gaussian.specification import Specification
from dlatent.gaussian.views import Arrangement, Parts, by_pattern


class Prediction(NamedTuple):
    """Mean (n, L) and variance (L,) of the views that were not seen; the variance is the same for all rows."""

    mean: Array
    variance: Array


def posterior_means(
    features: Features, targets: Array | None, parameters: Parameters, specification: Specification
) -> tuple[Array, Projection]:
    """E[z | x] (n, K) or, with targets (n, L), E[z | x, y], of rows (n, D), and the posterior map that made it."""
    if targets is None:
        return posterior_scores((features,), (0,), parameters, specification)
    return posterior_scores((features, targets), (0, 1), parameters, specification)


def squared_distances(features: Features, mean: Array, noise: Array) -> Array:
    """(x−μ)ᵀΨ⁻¹(x−μ) per row, for one noise variance (1,) or one for each feature (D,); sparse rows are not
    densified."""
    held: Any = features
    if isinstance(held, Columns):
        return np.concatenate([squared_distances(cast(Features, piece), mean, noise) for _, piece in held.places()])
    if len(noise) == 1:
        return np.asarray(_squares(features, mean) / noise[0])
    root = np.sqrt(noise)
    if not isinstance(features, np.ndarray):
        return _squares(features.astype(np.float64) @ sp.diags_array(1.0 / root), mean / root)
    scaled = (features - mean) / root
    return np.asarray(np.einsum("ij,ij->i", scaled, scaled))


def _squares(features: Features, mean: Array) -> Array:
    """‖x−μ‖² per row."""
    if not isinstance(features, np.ndarray):
        squares = np.asarray(entries_squared(features) @ np.ones(len(mean)))
        return squares - 2.0 * np.asarray(features @ mean) + float(mean @ mean)
    centred = features - mean
    return np.asarray(np.einsum("ij,ij->i", centred, centred))


def log_likelihoods(
    features: Features, targets: Array | None, parameters: Parameters, specification: Specification
) -> Array:
    """log p(x) of rows (n, D) or, with targets (n, L), log p(x, y): (n,), in nats; O(DK) each by Woodbury."""
    if targets is None:
        return joint_log_likelihoods((features,), (0,), parameters, specification)
    return joint_log_likelihoods((features, targets), (0, 1), parameters, specification)


def joint_log_likelihoods(
    parts: Parts, pattern: tuple[int, ...], parameters: Parameters, specification: Specification
) -> Array:
    """log p of the views of a pattern together, of rows (n, D_v) each: (n,), in nats; O(DK) each by Woodbury."""
    parts, parameters = near_zero(parts, pattern, parameters, specification)
    z, about = posterior_scores(parts, pattern, parameters, specification)
    distance = np.zeros(len(z))
    for x, view in zip(parts, pattern, strict=True):
        noise = parameters.noise_variance[specification.noise_slices[view]]
        distance += squared_distances(x, parameters.mean[specification.slices[view]], noise)
    # zᵀMz with M = (M⁻¹)⁻¹; z = M⁻¹WᵀΨ⁻¹(x−μ)
    distance -= np.einsum("ij,ij->i", z, z @ np.linalg.inv(about.covariance))
    size = sum(specification.sizes[view] for view in pattern)
    return np.asarray(-0.5 * (size * LOG_2PI + about.constant + distance))


class LikelihoodRequest(NamedTuple):
    """Parameters, the model, and how samples of several views are arranged."""

    parameters: Parameters
    specification: Specification
    arrangement: Arrangement | None = None


def block_log_likelihood(block: Block, request: LikelihoodRequest) -> float:
    """Log-likelihood of a block over all patterns, in nats; additive over samples, O(nnz K) or O(n D K)."""
    parameters, specification, arrangement = request

    def value(pattern: tuple[int, ...], parts: Parts, weights: Array | None) -> float:
        if not parts[0].shape[0]:
            return 0.0
        each = joint_log_likelihoods(parts, pattern, parameters, specification)
        return float(each.sum() if weights is None else weights @ each)

    return sum(found or 0.0 for found in by_pattern(block, specification.patterns, arrangement, value))


def predict_view(
    z: Array, about: Projection, view: int, parameters: Parameters, specification: Specification
) -> Prediction:
    """x_v | others ~ N(μ_v + W_v E[z], W_v M⁻¹ W_vᵀ + Ψ_v) for posterior means (n, K) and the map that made them: mean,
    and the diagonal of the covariance."""
    own = specification.slices[view]
    loadings = parameters.loadings[own]
    variance = np.einsum("ij,jk,ik->i", loadings, about.covariance, loadings)
    variance += specification.per_feature(parameters.noise_variance)[own]
    return Prediction(z @ loadings.T + parameters.mean[own], variance)
