"""Counts that vary more than Poisson's: mean μ = exp η and variance μ + μ²/r, with a size r of each feature.

With the logit η − log r of a negative binomial variable r and η are orthogonal; the bound is tilted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import digamma, gammaln, polygamma

from dlatent.arrays import Array
from dlatent.observations.model import ObservationModel
from dlatent.observations.poisson import COUNTS, FAR, LARGEST, is_count, risen, working_counts
from dlatent.observations.posterior import Own, Posterior, Terms
from dlatent.observations.tilted import tilted, tilted_bound

FIRST = 5.0
"""Size of a start."""


def trigamma(r: Array) -> Array:
    """The second derivative of log Γ."""
    return np.asarray(polygamma(1, r))


@dataclass(frozen=True)
class NegativeBinomial(ObservationModel):
    """Counts of a negative binomial distribution."""

    name, values, level = "negative_binomial", COUNTS, True
    shapes, range = "each", (-5.0, 12.0)

    def terms(self, x: Array, e: Array, v: Array, own: Own) -> Terms:
        """x − n a and n a(1 − a), with n = x + r and the a of the tilted bound at m = e − log r."""
        assert own.shape is not None
        n, (a, curvature) = x + own.shape, tilted(e - np.log(own.shape), v)
        return Terms(x - n * a, n * curvature)

    def bound(self, x: Array, e: Array, v: Array, own: Own, terms: Terms) -> Array:
        """x m − n f(m, v)."""
        assert own.shape is not None
        m, n = e - np.log(own.shape), x + own.shape
        return np.asarray(x * m - n * tilted_bound(m, v, (x - terms.slope) / n))

    def constant(self, x: Array, own: Own) -> Array:
        """log Γ(x + r)/(Γ(r) x!)."""
        assert own.shape is not None
        return risen(gammaln, x, own.shape) - risen(gammaln, x, 1.0)

    def shape_sums(self, x: Array, about: Posterior, seen: Array, own: Own) -> Array:
        """Derivatives of the bound by log r, at the same predictors."""
        assert own.shape is not None
        r, (e, v, terms) = own.shape, (about.e, about.v, about.terms)
        n = x + r
        a = (x - terms.slope) / n
        first = n * a - x - r * tilted_bound(e - np.log(r), v, a)
        # With a fixed point of its own a changes by −a(1 − a)/(1 + v a(1 − a)).
        change = a * (1.0 - a)
        change /= 1.0 + v * change
        second = first + x + 2.0 * r * a - n * a - n * change
        rising = r * risen(digamma, x, r)
        first, second = first + rising, second + rising + r**2 * risen(trigamma, x, r)
        return np.stack([(seen * each).sum(axis=0) for each in (first, second)])

    def allowed(self, x: Array) -> npt.NDArray[np.bool_]:
        """Counts."""
        return is_count(x)

    def first_shape(self, features: int) -> Array:
        """The same size for all."""
        return np.full(features, FIRST)

    def mean(self, e: Array, v: Array) -> Array:
        """That of a lognormal variable."""
        return np.asarray(np.exp(np.minimum(e + 0.5 * v, FAR)))

    def variance(self, e: Array, v: Array, own: Own) -> Array:
        """Of a negative binomial variable whose mean is lognormal."""
        assert own.shape is not None
        mean = self.mean(e, v)
        return np.asarray(mean + mean**2 * (np.exp(np.minimum(v, FAR)) * (1.0 + 1.0 / own.shape) - 1.0))

    def drawn(self, predictor: Array, own: Own, rng: Any) -> Array:
        """Poisson counts whose means are multiplied by gamma variables."""
        assert own.shape is not None
        rate = np.exp(np.minimum(predictor, LARGEST)) * rng.gamma(own.shape, 1.0 / own.shape, predictor.shape)
        return np.asarray(rng.poisson(rate), dtype=np.float64)

    def working(self, x: Array, mean: Array, offset: Array) -> tuple[Array, Array]:
        """Pearson residuals."""
        return working_counts(x, mean, offset)
