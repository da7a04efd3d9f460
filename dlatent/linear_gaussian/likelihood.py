"""The log-likelihood of single instances, and what the model predicts for one view from another.

log p(x) = −½ [D log 2π + log|C| + (x−μ)ᵀC⁻¹(x−μ)],  C = WWᵀ + Ψ, by Woodbury in O(DK) per instance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Features
from dlatent.linear_gaussian.expectation import LOG_2PI, Projection, pattern_projection, scores
from dlatent.linear_gaussian.moments import row_patterns, take
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification


class Prediction(NamedTuple):
    """Mean (n, L) and variance (L,) of the views that were not seen; the variance is the same for all rows."""

    mean: Array
    variance: Array


def posterior_means(
    features: Features, targets: Array | None, parameters: Parameters, specification: Specification
) -> tuple[Array, Projection]:
    """E[z | x] (n, K) or, with targets (n, L), E[z | x, y], of rows (n, D), and the posterior map that made it."""
    pattern = (0,) if targets is None else (0, 1)
    about = pattern_projection(parameters, specification, pattern)
    own = specification.slices[0]
    width = own.stop
    z = scores(features, about._replace(coefficients=about.coefficients[:, :width]), parameters.mean[own])
    if targets is not None:
        z += (targets - parameters.mean[width:]) @ about.coefficients[:, width:].T
    return z, about


def squared_distances(features: Features, mean: Array, noise: Array) -> Array:
    """(x−μ)ᵀΨ⁻¹(x−μ) per row, for one noise variance (1,) or one for each feature (D,); sparse rows are not
    densified."""
    if len(noise) == 1:
        return np.asarray(_squares(features, mean) / noise[0])
    root = np.sqrt(noise)
    if isinstance(features, sp.csr_array):
        return _squares(sp.csr_array(features.astype(np.float64) @ sp.diags_array(1.0 / root)), mean / root)
    scaled = (features - mean) / root
    return np.asarray(np.einsum("ij,ij->i", scaled, scaled))


def _squares(features: Features, mean: Array) -> Array:
    """‖x−μ‖² per row."""
    if isinstance(features, sp.csr_array):
        wide = features.astype(np.float64)
        squares = np.asarray(wide.multiply(wide).sum(axis=1)).ravel()
        return squares - 2.0 * np.asarray(wide @ mean) + float(mean @ mean)
    centred = features - mean
    return np.asarray(np.einsum("ij,ij->i", centred, centred))


def log_likelihoods(
    features: Features, targets: Array | None, parameters: Parameters, specification: Specification
) -> Array:
    """log p(x) of rows (n, D) or, with targets (n, L), log p(x, y): (n,), in nats; O(DK) each by Woodbury."""
    z, about = posterior_means(features, targets, parameters, specification)
    own, noise = specification.slices[0], parameters.noise_variance
    distance = squared_distances(features, parameters.mean[own], noise[specification.noise_slices[0]])
    size = own.stop
    if targets is not None:
        distance = distance + ((targets - parameters.mean[size:]) ** 2).sum(axis=1) / noise[-1]
        size = len(parameters.mean)
    # zᵀMz with M = (M⁻¹)⁻¹; z = M⁻¹WᵀΨ⁻¹(x−μ)
    distance = distance - np.einsum("ij,ij->i", z, np.linalg.solve(about.covariance, z.T).T)
    return np.asarray(-0.5 * (size * LOG_2PI + about.log_determinant + distance))


def block_log_likelihood(block: Block, request: tuple[Parameters, Specification]) -> float:
    """Log-likelihood of a block over all patterns, in nats; additive over instances, O(nnz K) or O(n D K)."""
    parameters, specification = request
    value = 0.0
    for pattern, rows in zip(specification.patterns, row_patterns(block, specification.patterns), strict=True):
        x = take(block.features, rows)
        y = None if block.targets is None or 1 not in pattern else take(block.targets, rows)
        value += float(log_likelihoods(x, y, parameters, specification).sum()) if x.shape[0] else 0.0
    return value


def predict_targets(features: Features, parameters: Parameters, specification: Specification) -> Prediction:
    """y | x ~ N(μ_y + W_y E[z|x], W_y M⁻¹ W_yᵀ + σ_y² I) of rows (n, D): mean, and the diagonal of the covariance."""
    z, about = posterior_means(features, None, parameters, specification)
    own = specification.slices[1]
    loadings = parameters.loadings[own]
    variance = np.einsum("ij,jk,ik->i", loadings, about.covariance, loadings) + parameters.noise_variance[1]
    return Prediction(z @ loadings.T + parameters.mean[own], variance)
