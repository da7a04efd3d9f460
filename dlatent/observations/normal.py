"""Normal entries with error bars: x ~ N(η, ψ + s²), where s is known of each entry and ψ is the noise beside it.

Given both all is exact.  ψ follows by Fisher scoring, ψ = Σp²(r² − s²)/Σp², with p = 1/(ψ + s²) and r² the expected
squared residual.  Source: Tipping and Bishop (1999), with a noise of its own for each entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dlatent.arrays import Array
from dlatent.gaussian.expectation import LOG_2PI
from dlatent.gaussian.specification import Parameters
from dlatent.observations.model import ObservationModel
from dlatent.observations.posterior import Own, Posterior, Terms, inverses, times
from dlatent.operators.symmetric import doubled, packed_squares, triangle

FACTORS, LEAST = 8, 1e-30
"""Numbers of whose product a logarithm is taken, and the least that each, and its inverse, then is."""


@dataclass(frozen=True)
class Normal(ObservationModel):
    """Entries of a normal distribution."""

    name, noise, closed, exact = "normal", True, True, True

    def expectation(self, x: Array, seen: Array, parameters: Parameters, own: Own, rough: float = 0.0) -> Posterior:
        """z of each row, exactly, and the log-likelihood."""
        loadings, k = parameters.loadings, parameters.loadings.shape[1]
        pairs, (first, second) = packed_squares(loadings), triangle(k)
        p, left = seen / (own.noise + own.known), x - parameters.mean
        covariance, log_determinant = inverses(p @ pairs + (first == second), k)
        slope = p * left
        mean = times(covariance, slope @ loadings)
        e, v = mean @ loadings.T, covariance @ (pairs * doubled(k)).T
        left -= e
        e += parameters.mean
        np.multiply(p, left, out=slope)
        # The posterior mean is where ½Σp(x − e)² + ½|z|² is least: what it leaves has no differences of large numbers.
        energy = np.einsum("ij,ij->i", slope, left) + (mean**2).sum(axis=1)
        count = seen.sum(axis=1)
        volume = LOG_2PI * count - _log_sums(p if count.min() == x.shape[1] else p + (1.0 - seen)) + log_determinant
        return Posterior(mean, covariance, e, v, Terms(slope, p), -0.5 * (energy + volume))

    def terms(self, x: Array, e: Array, v: Array, own: Own) -> Terms:
        """(x − e)/ψ and 1/ψ."""
        return Terms((x - e) / own.noise, np.broadcast_to(1.0 / own.noise, x.shape))

    def bound(self, x: Array, e: Array, v: Array, own: Own, terms: Terms) -> Array:
        """log N(x; e, ψ) − v/2ψ."""
        return np.asarray(-0.5 * (LOG_2PI + np.log(own.noise) + ((x - e) ** 2 + v) / own.noise))

    def noise_sums(self, terms: Terms, x: Array, e: Array, v: Array, seen: Array, own: Own) -> Array:
        """Σ p²((x − e)² + v − s²), Σ p², and ∂B/∂log ψ, sums over the rows (3, D)."""
        slope, precision = terms
        square = precision * precision
        weight = square.sum(axis=0)
        energy = np.einsum("ij,ij->j", slope, slope) + np.einsum("ij,ij->j", square, v)
        more = energy - precision.sum(axis=0)
        # As p(ψ + s²) is 1, p²s² is p − p²ψ.
        return np.stack([more + own.noise * weight, weight, 0.5 * own.noise * more])

    def drawn(self, predictor: Array, own: Own, rng: Any) -> Array:
        """η + √ψ ε."""
        return np.asarray(predictor + np.sqrt(own.noise) * rng.standard_normal(predictor.shape))


def _log_sums(values: Array) -> Array:
    """Σ log of the rows of positive values (n, D): (n,)."""
    # The logarithm of a product is cheaper than those of its factors, where it cannot leave the range of numbers.
    rows, columns = values.shape
    whole = columns - columns % FACTORS if LEAST < values.min() <= values.max() < 1.0 / LEAST else 0
    products = values[:, :whole].reshape(rows, FACTORS, -1).prod(axis=1)
    return np.asarray(np.log(products).sum(axis=1) + np.log(values[:, whole:]).sum(axis=1))
