"""How many components PPCA of complete data has, from the eigenvalues of their covariance."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from dlatent.arrays import Array
from dlatent.errors import DataError
from dlatent.linear_gaussian.expectation import LOG_2PI

ROUNDING = float(np.finfo(np.float64).eps)
"""Variances below this part of the largest eigenvalue are rounding."""
NEAREST = 1e-12
"""Eigenvalues count as no nearer to each other than by this part of the larger one."""


def free_numbers(features: int, components: int, noises: int) -> int:
    """Free numbers of W (without its rotations), of μ, and of the noise variances."""
    return features * (components + 1) - components * (components - 1) // 2 + noises


def chosen_components(rule: str | float, values: Array, samples: float, *, most: int, floor: float) -> int:
    """The number of components that a rule chooses.

    Parameters
    ----------
    rule : "mle" (the largest evidence), "bic" (the smallest criterion), or the part of the variance to be explained.
    values : eigenvalues (D,) of the covariance with divisor N, decreasing; for a part of the variance zeros may lack.
    samples : N.
    most : as many components there may be.
    floor : smallest noise variance; numbers of components that leave no more are not compared, as their likelihood has
        no bound.

    Returns
    -------
    A number from 1 to `most`.

    Raises
    ------
    DataError
        Where every number of components leaves no noise.
    """
    if not isinstance(rule, str):
        return min(explaining(float(rule), values), most)
    rest = _left(values)[:most]
    noisy = rest > max(floor, ROUNDING * values[0])
    if not noisy.any():
        raise DataError(
            f"n_components={rule!r} compares likelihoods, which have no bound where components leave no noise, and "
            "here one leaves none; give n_components as a number"
        )
    scores = log_evidence(values, samples) if rule == "mle" else -bic(values, samples)
    return int(np.where(noisy, scores[: len(noisy)], -np.inf).argmax()) + 1


def explaining(part: float, values: Array) -> int:
    """The smallest K with λ₁ + … + λ_K above this part of the sum of all, as in scikit-learn's PCA."""
    return int(np.searchsorted(np.cumsum(values), part * values.sum(), side="right")) + 1


def _left(values: Array) -> Array:
    """The noise variance that each K = 1 … D leaves: the mean of the other eigenvalues, 0 for K = D (D,)."""
    count = np.arange(len(values) - 1, -1, -1)
    # Summed from the small end: a difference from the sum of all would be rounding.
    after = np.append(np.cumsum(values[:0:-1])[::-1], 0.0)
    return np.asarray(np.maximum(after, 0.0) / np.maximum(count, 1))


def _positive(variances: Array, values: Array) -> Array:
    """Variances that have a logarithm: those below rounding of the largest eigenvalue count as rounding."""
    return np.asarray(np.maximum(variances, ROUNDING * values[0]))


def bic(values: Array, samples: float) -> Array:
    """The Bayesian information criterion of PPCA with K = 1 … D components (D,), the lower the better.

    −2 log p(X) + (DK − K(K − 1)/2 + D + 1) log N with −2 log p(X) = N [D (log 2π + 1) + Σ_{k≤K} log λ_k +
    (D − K) log σ²] at the maximum.
    """
    size = len(values)
    ranks = np.arange(1, size + 1)
    explained = np.cumsum(np.log(_positive(values, values)))
    twice = samples * (size * (LOG_2PI + 1.0) + explained + (size - ranks) * np.log(_positive(_left(values), values)))
    free = np.array([free_numbers(size, int(k), 1) for k in ranks])
    return np.asarray(twice + free * np.log(samples))


def log_evidence(values: Array, samples: float) -> Array:
    """Laplace's approximation of log p(X | K) for K = 1 … D, without what does not depend on K (D,).

    With σ² the mean of the eigenvalues left out, and λ̂ the eigenvalues with σ² in the place of those,

        log p(U) − N/2 Σ_{k≤K} log λ_k − N (D − K)/2 log σ² + (m + K)/2 log 2π − ½ log|A| − K/2 log N,
        log p(U) = −K log 2 + Σ_{k≤K} [log Γ((D − k + 1)/2) − (D − k + 1)/2 log π],
        log|A| = Σ_{k≤K} Σ_{j>k} log[(1/λ̂_j − 1/λ̂_k)(λ_k − λ_j) N],   m = DK − K(K + 1)/2.

    The units of the data change all values by the same number.  O(D²), with O(D) memory.

    Source: Minka (2000), "Automatic choice of dimensionality for PCA", (77) and (80).
    """
    size = len(values)
    noise, values = _positive(_left(values), values), _positive(values, values)
    ranks, logs = np.arange(1, size + 1), np.log(values)
    half = (size - ranks + 1) / 2.0
    prior = np.cumsum(gammaln(half) - half * np.log(np.pi) - np.log(2.0))
    free = size * ranks - ranks * (ranks + 1) / 2.0
    inside, across = _gaps(values)
    # Between components λ̂ = λ, so that a pair has twice the logarithm of its gap, less those of both.
    both = 2.0 * inside - (ranks - 1) * np.cumsum(logs)
    inverse = np.array([_inverse_gaps(values[:k], noise[k - 1]) for k in ranks])
    determinant = both + across + (size - ranks) * inverse + free * np.log(samples)
    likelihood = -0.5 * samples * (np.cumsum(logs) + (size - ranks) * np.log(noise))
    rest = 0.5 * (free + ranks) * LOG_2PI - 0.5 * ranks * np.log(samples)
    return np.asarray(prior + likelihood + rest - 0.5 * determinant)


def _gaps(values: Array) -> tuple[Array, Array]:
    """Σ log(λ_k − λ_j) for each K = 1 … D (D,): over k < j ≤ K, and over k ≤ K < j."""
    size = len(values)
    before, after = np.zeros(size), np.zeros(size)
    for k in range(size):
        gaps = np.log(np.maximum(values[k] - values[k + 1 :], NEAREST * values[k]))
        after[k] = gaps.sum()
        before[k + 1 :] += gaps
    return np.cumsum(before), np.cumsum(after - before)


def _inverse_gaps(kept: Array, noise: float) -> float:
    """Σ_{k≤K} log(1/σ² − 1/λ_k)."""
    return float(np.log(np.maximum(kept - noise, NEAREST * kept) / (noise * kept)).sum())
