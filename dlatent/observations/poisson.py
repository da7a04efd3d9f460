"""Counts: x ~ Poisson(exp η).  The bound is exact: E[exp η] = exp(e + v/2).

Source: Chiquet, Mariadassou and Robin (2018), "Variational inference for probabilistic Poisson PCA".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from dlatent.arrays import Array
from dlatent.observations.model import ObservationModel
from dlatent.observations.posterior import Own, Terms

MOST, COUNTS = 1e10, "a count, a whole number from 0 to 1e10"
"""The largest count, and what counts are."""
FAR, LARGEST = 25.0, 40.0
"""Largest logarithms of an expected count, so that precisions of z of 1 are not lost beside it in rounding, and of one
from which counts are drawn."""
EXTRA = 0.2
"""Variance of counts beyond that of Poisson, as a part of their squared means, that a start allows for."""
SMALL = 64
"""Largest count that is small."""
RARE = 0.3
"""Keeps features that are seldom counted from leading a start."""


def is_count(x: Array) -> npt.NDArray[np.bool_]:
    """Whether each value is a whole number that is not negative, nor so large that logarithms of sums lose it."""
    return np.asarray((x >= 0.0) & (x <= MOST) & (x == np.floor(x)))


def risen(function: Callable[[Array], Array], x: Array, r: Array | float) -> Array:
    """f(x + r) − f(r) of counts x (n, D), most of which are small and are looked up, with r of each feature."""
    r = np.broadcast_to(r, x.shape[1:])
    largest = x.max(initial=0.0)
    most = int(min(largest, SMALL))
    table = function(np.arange(most + 1.0)[:, None] + r) - function(r)
    small = np.minimum(x, most).astype(np.intp) * len(r) + np.arange(len(r))
    values = np.asarray(np.take(table, small))
    if largest > most:
        large = np.nonzero(x > most)
        values[large] = function(x[large] + r[large[1]]) - function(r[large[1]])
    return values


def working_counts(x: Array, mean: Array, offset: Array) -> tuple[Array, Array]:
    """Pearson residuals of counts, those of rare features made small, and the logarithms of the means."""
    if offset.any():
        x = x / np.exp(offset - offset.mean())
        mean = (np.nansum(x, axis=0) + 0.5) / ((~np.isnan(x)).sum(axis=0) + 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        level = np.nansum(x, axis=1) / np.where(np.isnan(x), 0.0, mean).sum(axis=1)
    level = np.where(np.isfinite(level) & (level > 0.0), level, 1.0)
    expected = level[:, None] * mean
    residual = (x - expected) / np.sqrt(expected + EXTRA * expected**2)
    residual = np.clip(residual, -3.0, np.sqrt(len(x))) / np.sqrt(np.minimum(expected, 1.0) + RARE)
    return residual, np.log(mean) - offset.mean()


@dataclass(frozen=True)
class Poisson(ObservationModel):
    """Counts of a Poisson distribution."""

    name, values, level = "poisson", COUNTS, True

    def terms(self, x: Array, e: Array, v: Array, own: Own) -> Terms:
        """Of exp(e + v/2), from where that is far above all counts a line with its slope."""
        mean = 0.5 * v
        mean += e
        if not mean.max(initial=0.0) <= FAR:
            np.minimum(mean, FAR, out=mean)
        np.exp(mean, out=mean)
        return Terms(x - mean, mean)

    def bound(self, x: Array, e: Array, v: Array, own: Own, terms: Terms) -> Array:
        """x e − exp(e + v/2)."""
        bound = x * e
        bound -= terms.precision
        exponent = 0.5 * v + e
        if exponent.max(initial=0.0) > FAR:
            bound -= terms.precision * np.maximum(exponent - FAR, 0.0)
        return bound

    def constant(self, x: Array, own: Own) -> Array:
        """−log x!."""
        return -risen(gammaln, x, 1.0)

    def allowed(self, x: Array) -> npt.NDArray[np.bool_]:
        """Counts."""
        return is_count(x)

    def mean(self, e: Array, v: Array) -> Array:
        """That of a lognormal variable."""
        return np.asarray(np.exp(np.minimum(e + 0.5 * v, FAR)))

    def variance(self, e: Array, v: Array, own: Own) -> Array:
        """Of a Poisson variable whose mean is lognormal."""
        mean = self.mean(e, v)
        return np.asarray(mean + mean**2 * np.expm1(np.minimum(v, FAR)))

    def drawn(self, predictor: Array, own: Own, rng: Any) -> Array:
        """Counts."""
        return np.asarray(rng.poisson(np.exp(np.minimum(predictor, LARGEST))), dtype=np.float64)

    def working(self, x: Array, mean: Array, offset: Array) -> tuple[Array, Array]:
        """Pearson residuals."""
        return working_counts(x, mean, offset)
