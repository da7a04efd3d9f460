"""Counts that vary more than Poisson's: mean μ = exp η and variance μ + μ²/r, with a size r of each feature.

With the logit η − log r of a negative binomial variable r and η are orthogonal; the bound is tilted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array
from dlatent.observations.model import ObservationModel
from dlatent.observations.poisson import COUNTS, FAR, LARGEST, is_count, log_rising, working_counts
from dlatent.observations.posterior import Own, Terms
from dlatent.observations.tilted import tilted

FIRST = 5.0
"""Size of a start."""


@dataclass(frozen=True)
class NegativeBinomial(ObservationModel):
    """Counts of a negative binomial distribution."""

    name, values, level = "negative_binomial", COUNTS, True
    shapes, range = "each", (-5.0, 12.0)

    def terms(self, x: Array, e: Array, v: Array, own: Own) -> Terms:
        """x m − (x + r) f(m, v), with m = e − log r."""
        assert own.shape is not None
        r = own.shape
        m, n = e - np.log(r), x + r
        bound, slope, curvature = tilted(m, v)
        return Terms(x * m - n * bound, x - n * slope, n * curvature)

    def constant(self, x: Array, own: Own) -> Array:
        """log Γ(x + r)/(Γ(r) x!)."""
        assert own.shape is not None
        return log_rising(x, own.shape) - log_rising(x, 1.0)

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

    def working(self, x: Array, mean: Array) -> tuple[Array, Array]:
        """Pearson residuals."""
        return working_counts(x, mean)
