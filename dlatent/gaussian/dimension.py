"""How many components PPCA of complete data has, from the eigenvalues of their covariance."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg as la
from scipy.special import gammaln

from dlatent.arrays import Array
from dlatent.errors import DataError
from dlatent.gaussian.expectation import LOG_2PI
from dlatent.operators.symmetric import top_eigenvalues

ROUNDING = float(np.finfo(np.float64).eps)
"""Variances below this fraction of the largest eigenvalue are rounding."""
LOST = 256.0 * ROUNDING
"""Fraction of the variance of all features that is rounding where what the components explain is taken from it."""
NEAREST = 1e-12
"""Eigenvalues count as no nearer to each other than by this fraction of the larger one."""
DRAWS, QUANTILE = 200, 0.95
"""Of pure noise, and of its eigenvalues."""
FLIPS = 5
"""Draws of signs."""


def free_numbers(features: int, components: int, noises: int) -> int:
    """Free numbers of W (without its rotations), of μ, and of the noise variances."""
    return features * (components + 1) - components * (components - 1) // 2 + noises


def noise_rounding(features: Any, components: Any) -> Any:
    """The noise variance that is rounding, as a fraction of the features' mean variance: a difference of sums over all
    features leaves it, a share for each direction without a component."""
    return LOST * features / np.maximum(features - components, 1)


def chosen_components(rule: str | float, values: Array, samples: float, *, most: int, floor: float) -> int:
    """The number of components that a rule chooses.

    Parameters
    ----------
    rule : "mle" (the largest evidence), "bic" (the smallest criterion), or the fraction of the variance to explain.
    values : eigenvalues (D,) of the covariance with divisor N, decreasing; for a fraction zeros may lack.
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
    noisy = leaving_noise(values, floor)[:most]
    if not noisy.any():
        raise DataError(
            f"n_components={rule!r} compares likelihoods, which have no bound where components leave no noise, and "
            "here one leaves none; give n_components as a number"
        )
    scores = log_evidence(values, samples) if rule == "mle" else -bic(values, samples)
    return int(np.where(noisy, scores[1 : len(noisy) + 1], -np.inf).argmax()) + 1


def above_flips(rows: Array, roots: Array, rng: Any) -> int:
    """How many singular values `roots` of rows (n, D) are larger than the largest of rows whose entries have random
    signs, which leave their sizes and take away what features share.

    Source: Hong, Sheng and Dobriban (2020), "Selecting the number of components in PCA via random signs", the upper
    edge.
    """
    edge = 0.0
    for _ in range(FLIPS):
        flipped = rows * rng.choice([-1.0, 1.0], size=rows.shape)
        gram = flipped @ flipped.T if len(rows) < rows.shape[1] else flipped.T @ flipped
        edge = max(edge, float(np.sqrt(top_eigenvalues(gram, 1)[0])))
    return int((roots > edge).sum())


def explaining(part: float, values: Array) -> int:
    """The smallest K with λ₁ + … + λ_K above this fraction of the sum of all, as in scikit-learn's PCA."""
    return int(np.searchsorted(np.cumsum(values), part * values.sum(), side="right")) + 1


def leaving_noise(values: Array, floor: float) -> npt.NDArray[np.bool_]:
    """Which K = 1 … D leave more noise than its floor, and than rounding (D,)."""
    rounding = noise_rounding(len(values), np.arange(1, len(values) + 1)) * values.mean()
    return np.asarray(_left(values)[1:] > np.maximum(floor, rounding))


def _left(values: Array) -> Array:
    """The noise variance that each K = 0 … D leaves: the mean of the other eigenvalues, 0 for K = D (D+1,)."""
    count = np.arange(len(values), -1, -1)
    # Summed from the small end: a difference from the sum of all would be rounding.
    after = np.append(np.cumsum(values[::-1])[::-1], 0.0)
    return np.asarray(np.maximum(after, 0.0) / np.maximum(count, 1))


def _positive(variances: Array, values: Array) -> Array:
    """Variances that have a logarithm: those below rounding of the largest eigenvalue count as rounding."""
    return np.asarray(np.maximum(variances, ROUNDING * values[0]))


def bic(values: Array, samples: float) -> Array:
    """The Bayesian information criterion of PPCA with K = 0 … D components (D+1,), the lower the better.

    −2 log p(X) + (DK − K(K − 1)/2 + D + 1) log N with −2 log p(X) = N [D (log 2π + 1) + Σ_{k≤K} log λ_k +
    (D − K) log σ²] at the maximum.
    """
    size = len(values)
    ranks = np.arange(size + 1)
    explained = _from_zero(np.log(_positive(values, values)))
    twice = samples * (size * (LOG_2PI + 1.0) + explained + (size - ranks) * np.log(_positive(_left(values), values)))
    free = np.array([free_numbers(size, int(k), 1) for k in ranks])
    return np.asarray(twice + free * np.log(samples))


def log_evidence(values: Array, samples: float) -> Array:
    """Laplace's approximation of log p(X | K) for K = 0 … D, without what does not depend on K (D+1,).

    With σ² the mean of the eigenvalues left out, and λ̂ the eigenvalues with σ² in the place of those,

        log p(U) − N/2 Σ_{k≤K} log λ_k − N (D − K)/2 log σ² + (m + K)/2 log 2π − ½ log|A| − K/2 log N,
        log p(U) = −K log 2 + Σ_{k≤K} [log Γ((D − k + 1)/2) − (D − k + 1)/2 log π],
        log|A| = Σ_{k≤K} Σ_{j>k} log[(1/λ̂_j − 1/λ̂_k)(λ_k − λ_j) N],   m = DK − K(K + 1)/2.

    The units of the data change all values by the same number.  O(D²), with O(D) memory.

    Source: Minka (2000), "Automatic choice of dimensionality for PCA", (77) and (80).
    """
    size = len(values)
    noise, values = _positive(_left(values), values), _positive(values, values)
    ranks, logs = np.arange(size + 1), np.log(values)
    half = np.arange(size, 0, -1) / 2.0
    prior, explained = _from_zero(gammaln(half) - half * np.log(np.pi) - np.log(2.0)), _from_zero(logs)
    free = size * ranks - ranks * (ranks + 1) / 2.0
    inside, across = _gaps(values)
    # Between components λ̂ = λ, so that a pair has twice the logarithm of its gap, less those of both.
    both = 2.0 * inside - (ranks - 1) * explained
    inverse = np.array([_inverse_gaps(values[:k], noise[k]) for k in ranks])
    determinant = both + across + (size - ranks) * inverse + free * np.log(samples)
    likelihood = -0.5 * samples * (explained + (size - ranks) * np.log(noise))
    rest = 0.5 * (free + ranks) * LOG_2PI - 0.5 * ranks * np.log(samples)
    return np.asarray(prior + likelihood + rest - 0.5 * determinant)


def noise_eigenvalues(values: Array, samples: int, count: int, *, random_state: int) -> Array:
    """The first eigenvalues that noise in the place of components would show, of parallel analysis (count,).

    That of component k is the 0.95 quantile of the largest eigenvalue of the covariance of independent normal features,
    D − k + 1 of them, of the variance that the k − 1 components before leave: the mean of λ_k … λ_D.

    Source: Horn (1965), "A rationale and test for the number of factors in factor analysis"; the quantile is from
    Glorfeld (1995), what the components before explain is taken out as by Green et al. (2012).
    """
    rng, left = np.random.default_rng(random_state), _left(values)
    largest = [_largest_of_noise(samples - k, len(values) - k, rng) for k in range(count)]
    return np.asarray(left[:count] * largest)


def _largest_of_noise(samples: int, features: int, rng: np.random.Generator) -> float:
    """The 0.95 quantile of the largest eigenvalue of the covariance of normal samples, as a multiple of the mean one.

    The draws are tridiagonal matrices with the same eigenvalues, O(min(N, D)) each: Dumitriu and Edelman (2002),
    "Matrix models for beta ensembles".
    """
    few, many = sorted((samples - 1, features))
    drawn = np.empty(DRAWS)
    for number in range(DRAWS):
        diagonal, below = rng.chisquare(many - np.arange(few)), rng.chisquare(np.arange(few - 1, 0, -1))
        off_diagonal = np.sqrt(diagonal[:-1] * below)
        diagonal[1:] += below
        (largest,) = la.eigvalsh_tridiagonal(diagonal, off_diagonal, select="i", select_range=(few - 1, few - 1))
        drawn[number] = largest * features / diagonal.sum()
    return float(np.quantile(drawn, QUANTILE))


def _from_zero(each: Array) -> Array:
    """Sums of the first K = 0 … D numbers (D+1,)."""
    return np.append(0.0, np.cumsum(each))


def _gaps(values: Array) -> tuple[Array, Array]:
    """Σ log(λ_k − λ_j) for each K = 0 … D (D+1,): over k < j ≤ K, and over k ≤ K < j."""
    size = len(values)
    before, after = np.zeros(size), np.zeros(size)
    for k in range(size):
        gaps = np.log(np.maximum(values[k] - values[k + 1 :], NEAREST * values[k]))
        after[k] = gaps.sum()
        before[k + 1 :] += gaps
    return _from_zero(before), _from_zero(after - before)


def _inverse_gaps(kept: Array, noise: float) -> float:
    """Σ_{k≤K} log(1/σ² − 1/λ_k)."""
    return float(np.log(np.maximum(kept - noise, NEAREST * kept) / (noise * kept)).sum())
