"""Binary entries: x = 1 with probability σ(η) = 1/(1 + exp(−η)), by the tilted bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from dlatent.arrays import Array
from dlatent.observations.model import ObservationModel
from dlatent.observations.posterior import Own, Terms
from dlatent.observations.tilted import tilted, tilted_bound

NEWTON = 20
"""Steps to log-odds from which a fit starts."""
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)


@dataclass(frozen=True)
class Bernoulli(ObservationModel):
    """Entries 0 and 1."""

    name, values = "bernoulli", "0 or 1"

    def terms(self, x: Array, e: Array, v: Array, own: Own) -> Terms:
        """x − a and a(1 − a), with the a of the tilted bound."""
        a, curvature = tilted(e, v)
        return Terms(x - a, curvature)

    def bound(self, x: Array, e: Array, v: Array, own: Own, terms: Terms) -> Array:
        """x e − f(e, v)."""
        return np.asarray(x * e - tilted_bound(e, v, x - terms.slope))

    def allowed(self, x: Array) -> npt.NDArray[np.bool_]:
        """0 and 1."""
        return np.asarray((x == 0.0) | (x == 1.0))

    def mean(self, e: Array, v: Array) -> Array:
        """E[σ(η)], by Gauss and Hermite."""
        parts = zip(NODES, WEIGHTS / np.sqrt(2.0 * np.pi), strict=True)
        return np.asarray(sum(weight * expit(e + node * np.sqrt(v)) for node, weight in parts))

    def variance(self, e: Array, v: Array, own: Own) -> Array:
        """Of a coin."""
        mean = self.mean(e, v)
        return np.asarray(mean * (1.0 - mean))

    def drawn(self, predictor: Array, own: Own, rng: Any) -> Array:
        """Zeros and ones."""
        return np.asarray(rng.random(predictor.shape) < expit(predictor), dtype=np.float64)

    def working(self, x: Array, mean: Array, offset: Array) -> tuple[Array, Array]:
        """Residuals in units of their spread, and the log-odds which with the offsets have these means, by Newton."""
        part = np.clip(mean, 1e-6, 1.0 - 1e-6)
        centre = np.log(part / (1.0 - part))
        if offset.any():
            wanted, centre = part, centre - offset.mean()
            for _ in range(NEWTON):
                part = np.clip(expit(centre + offset), 1e-6, 1.0 - 1e-6)
                step = (wanted - part).mean(axis=0) / (part * (1.0 - part)).mean(axis=0)
                centre = centre + np.clip(step, -2.0, 2.0)
        return 1.5 * (x - part) / np.sqrt(part * (1.0 - part)), centre
