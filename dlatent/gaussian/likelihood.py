"""Single samples: their scores, their log-likelihood, and the predictions of one view from others.

log p(x) = −½ [D log 2π + log|C| + (x−μ)ᵀC⁻¹(x−μ)],  C = WWᵀ + Ψ, by Woodbury in O(DK) per sample.

No entry may be missing; see `missing_entries.incomplete` for rows of which some are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Features
from dlatent.gaussian.expectation import LOG_2PI, Projection, near_zero, pattern_projection, posterior_scores
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.gaussian.views import Arrangement, Parts, Patterns, by_pattern, sorted_views
from dlatent.operators.sparse import Columns, entries_squared

PartsFunction = Callable[[Parts, tuple[int, ...], Parameters, Specification], Array]
"""Rows of the views of a pattern (n, D_v), its view numbers, and the model → a result for each row."""
LatentFunction = Callable[[Array, Array], Array]


class Prediction(NamedTuple):
    """Mean (n, L) and variance (L,) of the views that were not seen; the variance is the same for all rows."""

    mean: Array
    variance: Array


def squared_distances(features: Features, mean: Array, noise: Array) -> Array:
    """(x−μ)ᵀΨ⁻¹(x−μ) per row, for one noise variance (1,) or one for each feature (D,); sparse rows are not
    densified."""
    matrix: Any = features
    if isinstance(matrix, Columns):
        return np.concatenate([squared_distances(cast(Features, piece), mean, noise) for _, piece in matrix.places()])
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


def joint_log_likelihoods(
    parts: Parts, pattern: tuple[int, ...], parameters: Parameters, specification: Specification
) -> Array:
    """log p of the views of a pattern together, of rows (n, D_v) each: (n,), in nats; O(DK) each by Woodbury."""
    distance, about = joint_distances(parts, pattern, parameters, specification)
    size = sum(specification.sizes[view] for view in pattern)
    return np.asarray(-0.5 * (size * LOG_2PI + about.constant + distance))


def joint_distances(
    parts: Parts, pattern: tuple[int, ...], parameters: Parameters, specification: Specification
) -> tuple[Array, Projection]:
    """(x−μ)ᵀC⁻¹(x−μ) of the views of a pattern together, of rows (n, D_v) each: (n,), and the posterior map; O(DK) each
    by Woodbury."""
    parts, parameters = near_zero(parts, pattern, parameters, specification)
    z, about = posterior_scores(parts, pattern, parameters, specification)
    distance = np.zeros(len(z))
    for x, view in zip(parts, pattern, strict=True):
        noise = parameters.noise_variance[specification.noise_slices[view]]
        distance += squared_distances(x, parameters.mean[specification.slices[view]], noise)
    # zᵀMz with M = (M⁻¹)⁻¹; z = M⁻¹WᵀΨ⁻¹(x−μ)
    distance -= np.einsum("ij,ij->i", z, z @ np.linalg.inv(about.covariance))
    return distance, about


def joint_scores(parts: Parts, pattern: tuple[int, ...], parameters: Parameters, specification: Specification) -> Array:
    """E[z | the views of a pattern] (n, K)."""
    return posterior_scores(parts, pattern, parameters, specification)[0]


def joint_predictions(
    parts: Parts, pattern: tuple[int, ...], parameters: Parameters, specification: Specification, other: int
) -> Array:
    """Mean of another view (n, D_w) given the views of a pattern."""
    z, about = posterior_scores(parts, pattern, parameters, specification)
    return predict_view(z, about, other, parameters, specification).mean


def predict_view(
    z: Array, about: Projection, view: int, parameters: Parameters, specification: Specification
) -> Prediction:
    """x_v | others ~ N(μ_v + W_v E[z], W_v M⁻¹ W_vᵀ + Ψ_v) for posterior means (n, K) and the map that made them: mean,
    and the diagonal of the covariance."""
    features = specification.slices[view]
    loadings = parameters.loadings[features]
    variance = np.einsum("ij,jk,ik->i", loadings, about.covariance, loadings)
    variance += specification.per_feature(parameters.noise_variance)[features]
    return Prediction(z @ loadings.T + parameters.mean[features], variance)


def _per_pattern(
    x: Features, y: Array | None, parameters: Parameters, specification: Specification, function: PartsFunction
) -> Array:
    """Rows with and without targets go their own ways and come back in order."""
    if y is None:
        return function((x,), (0,), parameters, specification)
    present = ~np.isnan(y[:, 0])
    if present.all():
        return function((x, y), (0, 1), parameters, specification)
    without = function((x[~present],), (0,), parameters, specification)
    results = np.empty((len(present), *without.shape[1:]))
    results[~present] = without
    if present.any():
        results[present] = function((x[present], y[present]), (0, 1), parameters, specification)
    return results


def scores(x: Features, y: Array | None, parameters: Parameters, specification: Specification) -> Array:
    """Posterior means of the latent variables (n, K) of rows (n, D) and, where present, targets (n, L)."""
    return _per_pattern(x, y, parameters, specification, joint_scores)


def log_likelihoods(x: Features, y: Array | None, parameters: Parameters, specification: Specification) -> Array:
    """Log-likelihood of each row (n,), of features and, where present, targets, in nats."""
    return _per_pattern(x, y, parameters, specification, joint_log_likelihoods)


def posterior_rows(
    x: Features, parameters: Parameters, specification: Specification, function: LatentFunction, width: int
) -> Array:
    """A function of the posterior means (n, K) of rows given their features, and of the covariance (K, K) that they
    share: (n, width)."""
    about = pattern_projection(parameters, specification, (0,)).covariance
    return function(scores(x, None, parameters, specification), about)


def of_view(
    x: Features,
    y: Array | None,
    *,
    function: PartsFunction,
    view: int,
    parameters: Parameters,
    specification: Specification,
) -> Array:
    """A function of joint samples (n, …) of rows of one view, by its number."""
    return function((x,), (view,), parameters, specification)


class JointRequest(NamedTuple):
    """A function of rows, the model, the patterns of the samples and how these are arranged."""

    function: PartsFunction
    parameters: Parameters
    specification: Specification
    patterns: Patterns
    arrangement: Arrangement


def block_results(block: Block, request: JointRequest) -> tuple[Array, ...]:
    """A function of the rows of a block, which have one pattern; joined by concatenation in order."""
    pattern, parts = sorted_views(block, request.patterns, request.arrangement)
    return (request.function(parts, pattern, request.parameters, request.specification),)


def placed_results(block: Block, request: JointRequest) -> tuple[tuple[int, Array], ...]:
    """The same, each with the first row of its block."""
    return tuple((block.start, rows) for rows in block_results(block, request))


def block_view_means(block: Block, request: tuple[Patterns, Arrangement]) -> Array:
    """Mean of the rows of a block in the dense views that they have (D,), of what is observed, zero elsewhere, for an
    initial mean."""
    patterns, arrangement = request
    means = [np.zeros(size) for size in arrangement.sizes]
    for view, x in zip(*sorted_views(block, patterns, arrangement), strict=True):
        if arrangement.dense[view]:
            mean = np.asarray(x.mean(axis=0, dtype=np.float64)).ravel()
            holes = np.flatnonzero(np.isnan(mean))
            if len(holes):
                some = np.asarray(x[:, holes], dtype=np.float64)
                mean[holes] = np.nansum(some, axis=0) / np.maximum((~np.isnan(some)).sum(axis=0), 1)
            means[view] = mean
    return np.concatenate(means)


class LikelihoodRequest(NamedTuple):
    """Parameters, the model, and how samples of several views are arranged."""

    parameters: Parameters
    specification: Specification
    arrangement: Arrangement | None = None


def block_log_likelihood(block: Block, request: LikelihoodRequest) -> float:
    """Log-likelihood of a block over all patterns, in nats; additive over samples, O(nnz K) or O(n D K)."""
    parameters, specification, arrangement = request

    def value(pattern: tuple[int, ...], parts: Parts, shifts: list[Array], weights: Array | None) -> float:
        if not parts[0].shape[0]:
            return 0.0
        each = joint_log_likelihoods(parts, pattern, parameters, specification)
        return float(each.sum() if weights is None else weights @ each)

    values = by_pattern(block, specification.patterns, arrangement, np.zeros(len(parameters.mean)), value)
    return sum(value or 0.0 for value in values)
