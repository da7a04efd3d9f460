"""Random problems of mixtures, and the best of many runs of textbook EM from random rows for each.

The oracle knows nothing of the library: covariances are dense, PPCA components come from eigendecompositions, and noise
variances are at least FLOOR of the (mean) variance, so that the likelihood has a bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from benchmarks.generate import Array
from benchmarks.maxima import LOG_2PI

FLOOR = 1e-2
STEPS, CALM, TOLERANCE = 1500, 3, 1e-8


class MixtureProblem(NamedTuple):
    """Rows (N, D), the number of components and of their latent variables, and whether features have noises of their
    own."""

    rows: Array
    mixtures: int
    components: int
    diagonal: bool


def mixture(seed: int) -> MixtureProblem:
    """60 to 400 rows of 3 to 12 features, of 2 to 4 components far apart, near or about one mean, with few rows or
    heavy tails in some."""
    rng, kind = np.random.default_rng([31, seed]), seed // 2 % 5
    diagonal, rows = bool(seed % 2), int(np.exp(rng.uniform(np.log(60), np.log(400))))
    width, count = int(rng.integers(3, 13)), int(rng.integers(2, 5))
    k = int(rng.integers(1, min(3, width - 1) + 1))
    weights = np.r_[0.7, np.full(count - 1, 0.3 / (count - 1))] if kind == 4 else rng.dirichlet(np.full(count, 4.0))
    loadings = rng.standard_normal((count, width, k)) * rng.uniform(0.4, 1.4, (count, 1, k))
    means = [3.0, 1.5, 0.7, 0.0, 1.5][kind] * rng.standard_normal((count, width))
    noise = np.exp(rng.normal(-1.5, 0.6, (count, width if diagonal else 1)))
    own = rng.choice(count, rows, p=weights)
    z, e = rng.standard_normal((rows, k)), rng.standard_normal((rows, width))
    if kind == 2 and seed % 4 == 0:
        e = rng.standard_t(4, e.shape)
    x = np.einsum("ndk,nk->nd", loadings[own], z) + means[own] + e * np.sqrt(noise)[own]
    return MixtureProblem(x * np.exp(rng.normal(0, 1, width)) if diagonal else x, count, k, diagonal)


def best_mixture(problem: MixtureProblem, starts: int = 20) -> float:
    """The highest log-likelihood of as many runs."""
    return max(_run(problem, np.random.default_rng([7, start])) for start in range(starts))


def _run(problem: MixtureProblem, rng: np.random.Generator) -> float:
    x, count, k, diagonal = problem
    variances = x.var(axis=0)
    spread = variances if diagonal else np.full(x.shape[1], variances.mean())
    means, weights = x[rng.choice(len(x), count, replace=False)].copy(), np.full(count, 1 / count)
    loadings = rng.standard_normal((count, x.shape[1], k)) * np.sqrt(variances / (4 * k))[:, None]
    noise, last, calm = np.tile(spread / 2, (count, 1)), -np.inf, 0
    for _ in range(STEPS):
        parts = [_log_density(x, means[m], loadings[m], noise[m]) + np.log(weights[m]) for m in range(count)]
        each = logsumexp(parts, axis=0)
        value = float(each.sum())
        calm = calm + 1 if value - last < TOLERANCE * abs(value) else 0
        if calm == CALM:
            break
        last, shares = value, np.exp(np.array(parts) - each)
        for m in range(count):
            total = shares[m].sum()
            weights[m] = max(total / len(x), 1e-300)
            if total > 1e-8:
                means[m] = shares[m] @ x / total
                middle = x - means[m]
                second = (middle * shares[m][:, None]).T @ middle / total
                step = _factors if diagonal else _components
                loadings[m], noise[m] = step(second, loadings[m], noise[m], FLOOR * spread)
    return value


def _log_density(x: Array, mean: Array, loadings: Array, noise: Array) -> Array:
    root = np.linalg.cholesky(loadings @ loadings.T + np.diag(noise))
    apart = np.linalg.solve(root, (x - mean).T)
    return -0.5 * (len(mean) * LOG_2PI + (apart**2).sum(axis=0)) - np.log(np.diag(root)).sum()


def _factors(second: Array, loadings: Array, noise: Array, floor: Array) -> tuple[Array, Array]:
    """An iteration of EM for factor analysis (Ghahramani and Hinton)."""
    maps = np.linalg.solve(loadings @ loadings.T + np.diag(noise), loadings).T
    latent = np.eye(len(maps)) - maps @ loadings + maps @ second @ maps.T
    loadings = second @ maps.T @ np.linalg.inv(latent)
    return loadings, np.maximum(np.diag(second - loadings @ maps @ second), floor)


def _components(second: Array, loadings: Array, noise: Array, floor: Array) -> tuple[Array, Array]:
    """The maximum for PPCA (Tipping and Bishop)."""
    values, vectors = np.linalg.eigh(second)
    values, vectors, k = values[::-1], vectors[:, ::-1], loadings.shape[1]
    left = max(values[k:].mean(), floor[0])
    return vectors[:, :k] * np.sqrt(np.maximum(values[:k] - left, 0.0)), np.full(len(values), left)
