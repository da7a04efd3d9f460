"""Random problems of factor analysis that have several maxima, and the best of many quasi-Newton searches for each.

The oracle knows nothing of the library: likelihoods are those of dense normal distributions in units in which features
have variance 1, and noise variances at least FLOOR, in these units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as la
import scipy.optimize as opt

from benchmarks.generate import Array

FLOOR = 1e-6
"""Above the floor that models have by default, √ε, at which a likelihood of N rows is rounded by about N√ε."""
MOST = 1e3
"""Noise variance that no search goes beyond, in units of that of the feature."""
LOG_2PI = np.log(2.0 * np.pi)


class Problem(NamedTuple):
    """Rows (N, D), NaN where missing, the sizes of the views, and the number of components."""

    rows: Array
    sizes: tuple[int, ...]
    components: int


def complete(seed: int) -> Problem:
    """Complete rows, of ten kinds by turns: heavy tails, near repetitions, fewer rows than features, units, …"""
    rng, kind = np.random.default_rng([27, seed]), seed % 10
    width = int(rng.integers(5, 61))
    k = int(rng.integers(1, min(8, width - 1) + 1))
    rows = int(np.exp(rng.uniform(np.log(30), np.log(2000))))
    if kind == 7:
        width = int(rng.integers(30, 61))
        rows, k = int(rng.integers(15, width)), min(k, 5)
    k = min(k, rows - 2)
    true = int(rng.integers(1, max(2, min(width - 1, 2 * k) + 1)))
    spectra = [np.ones(true), 0.5 ** np.arange(true), np.r_[5.0, np.full(true - 1, 0.5)], rng.uniform(0.2, 2, true)]
    spectrum = spectra[int(rng.integers(4))][:true]
    loadings = rng.standard_normal((width, true)) * spectrum
    if rng.random() < 0.3:
        loadings *= rng.random((width, true)) < 0.4
    noise = np.exp(rng.normal(0, rng.choice([0.1, 0.7, 1.5]), width))
    if kind == 3:
        noise[rng.integers(width, size=max(1, width // 8))] *= 1e-4
    z, e = rng.standard_normal((rows, true)), rng.standard_normal((rows, width))
    if kind == 4:
        z, e = rng.standard_t(3, z.shape), rng.standard_t(3, e.shape)
    if kind == 5:
        e = np.where(rng.random(e.shape) < 0.05, 10 * e, e)
    if kind == 6:
        e = e * np.exp(rng.normal(0, 0.7, (rows, 1)))
    x = z @ loadings.T + e * np.sqrt(noise)
    if kind == 8:
        for _ in range(max(1, width // 6)):
            i, j = rng.integers(width, size=2)
            if i != j:
                times, beside = rng.normal(), rng.choice([0, 1e-4, 1e-2, 0.1])
                x[:, i] = x[:, j] * times + beside * x[:, j].std() * rng.standard_normal(rows)
    if kind == 9:
        x = (rng.random((rows, width)) < 1 / (1 + np.exp(-x + rng.normal(0, 1.5, width)))).astype(float)
        if (x.std(axis=0) == 0).any():
            x = x + 0.3 * rng.standard_normal(x.shape)
    if kind == 2:
        x = x * np.exp(rng.uniform(np.log(1e-6), np.log(1e6), width))
    return Problem(x + rng.normal(size=width) * x.std(axis=0), (width,), k)


def with_holes(seed: int) -> Problem:
    """Rows of which 5 to 60 % of the entries are missing: anywhere, more in some features, or by few masks."""
    found, rng = complete(10_000 + seed), np.random.default_rng([28, seed])
    x, part = found.rows[:600].copy(), rng.uniform(0.05, 0.6)
    if seed % 3 == 2:
        masks = rng.random((int(rng.integers(2, 12)), x.shape[1])) < part
        masks[0] = False
        gone = masks[rng.integers(len(masks), size=len(x))]
    elif seed % 3 == 1:
        gone = rng.random(x.shape) < np.clip(part * 2 * rng.random(x.shape[1]), 0, 0.8)
    else:
        gone = rng.random(x.shape) < part
    x[gone] = np.nan
    seen = (~np.isnan(x)).sum(axis=0) >= 10
    x = x[:, seen]
    x = x[:, np.nanstd(x, axis=0) > 1e-9 * np.nanmax(abs(x), axis=0)]
    return Problem(x, (x.shape[1],), max(1, min(found.components, x.shape[1] - 1)))


def of_views(seed: int) -> Problem:
    """Two or three views, of which a part of the samples has all and the others fewer."""
    rng = np.random.default_rng([29, seed])
    views = int(rng.integers(2, 4))
    sizes = rng.integers(3, 16, views)
    width, k = int(sizes.sum()), int(rng.integers(1, min(5, min(sizes) - 1) + 1))
    true, rows = k + int(rng.integers(0, 3)), int(np.exp(rng.uniform(np.log(60), np.log(1000))))
    loadings = rng.standard_normal((width, true)) * rng.uniform(0.3, 2, true)
    noise = np.exp(rng.normal(0, rng.choice([0.1, 0.7, 1.5]), width))
    if seed % 4 == 1:
        noise[rng.integers(width, size=2)] *= 1e-4
    z, e = rng.standard_normal((rows, true)), rng.standard_normal((rows, width))
    if seed % 4 == 2:
        z, e = rng.standard_t(3, z.shape), rng.standard_t(3, e.shape)
    x = z @ loadings.T + e * np.sqrt(noise)
    if seed % 4 == 3:
        x *= np.exp(rng.uniform(-6, 6, width))
    both = max(int(rows * rng.choice([0.05, 0.2, 0.5])), k + 3)
    masks: list[tuple[int, ...]] = [tuple(range(views))] * both
    rest: list[tuple[int, ...]] = [(view,) for view in range(views)] + ([(0, 1)] if views == 3 else [])
    masks += [rest[i] for i in rng.integers(len(rest), size=rows - both)]
    have = np.array([[view in mask for view in range(views)] for mask in masks])
    return Problem(np.where(np.repeat(have, sizes, axis=1), x, np.nan), tuple(sizes.tolist()), k)


def best(problem: Problem, starts: int = 20) -> float:
    """The highest log-likelihood of as many L-BFGS searches from random starts."""
    found = _Whole(problem) if np.isfinite(problem.rows).all() else _Holes(problem)
    return max(found.climb(start) for start in found.starts(starts))


class _Whole:
    """Complete rows: the likelihood at the best loadings, by log noise variances, from a whole eigendecomposition."""

    def __init__(self, problem: Problem) -> None:
        middle = problem.rows - problem.rows.mean(axis=0)
        second = middle.T @ middle / len(middle)
        variances = np.diag(second)
        self.correlations = second / np.sqrt(variances)[:, None] / np.sqrt(variances)
        self.count, self.width = middle.shape
        self.k = problem.components
        self.constant = -0.5 * self.count * float(np.log(variances).sum())

    def objective(self, point: Array) -> tuple[float, Array]:
        scale = np.exp(-0.5 * point)
        values, vectors = np.linalg.eigh(self.correlations * scale[:, None] * scale)
        values, vectors = values[::-1][: self.k], vectors[:, ::-1][:, : self.k]
        gain, kept = np.maximum(values - 1, 0), values[values > 1]
        constant = self.width * LOG_2PI + point.sum() + np.exp(-point).sum()
        value = 0.5 * (constant - (kept - 1 - np.log(kept)).sum())
        return value, 0.5 * (1 - np.exp(-point) + (vectors**2 * gain).sum(axis=1))

    def climb(self, start: Array) -> float:
        low = np.full(self.width, np.log(FLOOR))
        found = _climbed(self.objective, np.clip(start, low, 0.0), opt.Bounds(low, np.zeros(self.width)))
        return -found * self.count + self.constant

    def starts(self, count: int) -> Iterator[Array]:
        rng = np.random.default_rng(99)
        for number in range(count):
            if number % 4 == 0:
                yield np.log(rng.uniform(0.05, 0.95, self.width))
            elif number % 4 == 1:
                yield rng.uniform(np.log(1e-3), 0, self.width)
            elif number % 4 == 2:
                yield np.log(1 - rng.uniform(0.05, 0.95) * rng.random(self.width))
            else:
                start = np.log(rng.uniform(0.3, 0.9, self.width))
                start[rng.permutation(self.width)[: rng.integers(1, self.k + 1)]] = np.log(1e-4)
                yield start


class _Holes:
    """Rows with missing entries: the likelihood by loadings, mean and log noise variances, a matrix for each mask."""

    def __init__(self, problem: Problem) -> None:
        x, self.k = problem.rows, problem.components
        self.count, self.width = x.shape
        spread = np.nanstd(x, axis=0)
        units = (x - np.nanmean(x, axis=0)) / spread
        masks, which = np.unique(~np.isnan(x), axis=0, return_inverse=True)
        self.constant = -float(((~np.isnan(x)).sum(axis=0) * np.log(spread)).sum())
        self.parts = []
        for number, mask in enumerate(masks):
            if mask.any():
                own = units[which.ravel() == number][:, mask]
                self.parts.append((len(own), np.flatnonzero(mask), own.sum(axis=0), own.T @ own))

    def objective(self, point: Array) -> tuple[float, Array]:
        if not np.isfinite(point).all():  # where a line search has left the numbers
            return np.inf, np.zeros_like(point)
        edge = self.width * self.k
        loadings, mean = point[:edge].reshape(self.width, self.k), point[edge : edge + self.width]
        noise = np.exp(point[edge + self.width :])
        value, by_loadings = 0.0, np.zeros_like(loadings)
        by_mean, by_noise = np.zeros(self.width), np.zeros(self.width)
        for count, at, total, gram in self.parts:
            own, middle = loadings[at], mean[at]
            second = gram - np.outer(total, middle) - np.outer(middle, total) + count * np.outer(middle, middle)
            factor = la.cho_factor(own @ own.T + np.diag(noise[at]), lower=True)
            inverse = la.cho_solve(factor, np.eye(len(at)))
            explained = inverse @ second
            log_determinant = 2 * np.log(np.diag(factor[0])).sum()
            value += 0.5 * (count * (len(at) * LOG_2PI + log_determinant) + np.trace(explained))
            slope = count * inverse - explained @ inverse
            by_loadings[at] += slope @ own
            by_noise[at] += 0.5 * np.diag(slope) * noise[at]
            by_mean[at] -= inverse @ (total - count * middle)
        return value / self.count, np.r_[by_loadings.ravel(), by_mean, by_noise] / self.count

    def climb(self, start: Array) -> float:
        low, high = np.full(len(start), -np.inf), np.full(len(start), np.inf)
        low[-self.width :], high[-self.width :] = np.log(FLOOR), np.log(MOST)
        return -_climbed(self.objective, np.maximum(start, low), opt.Bounds(low, high)) * self.count + self.constant

    def starts(self, count: int) -> Iterator[Array]:
        rng = np.random.default_rng(98)
        for number in range(count):
            loadings = rng.standard_normal((self.width, self.k))
            if number % 2:
                loadings *= np.sqrt(rng.uniform(0.1, 0.95, self.width) / (loadings**2).sum(axis=1))[:, None]
            else:
                loadings *= rng.uniform(0.2, 1) / np.sqrt(self.k)
            noise = rng.uniform(0.05, 1, self.width) if number % 3 else np.full(self.width, 0.5)
            yield np.r_[loadings.ravel(), np.zeros(self.width), np.log(noise)]


def _climbed(objective: Callable[[Array], tuple[float, Array]], start: Array, bounds: Any) -> float:
    options: Any = {"ftol": 1e-16, "gtol": 1e-8, "maxiter": 3000, "maxfun": 6000, "maxcor": 30}
    return float(opt.minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).fun)
