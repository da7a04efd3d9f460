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


@dataclass(frozen=True)
class Normal(ObservationModel):
    """Entries of a normal distribution."""

    name, noise, exact = "normal", True, True

    def expectation(self, x: Array, seen: Array, parameters: Parameters, own: Own) -> Posterior:
        """z of each row, exactly, and the log-likelihood."""
        loadings, k = parameters.loadings, parameters.loadings.shape[1]
        pairs, (first, second) = packed_squares(loadings), triangle(k)
        variance = own.noise + own.known
        p, away = seen / variance, x - parameters.mean
        covariance, log_determinant = inverses(p @ pairs + (first == second), k)
        pull = (p * away) @ loadings
        mean = times(covariance, pull)
        e, v = mean @ loadings.T, covariance @ (pairs * doubled(k)).T
        left = away - e
        # The posterior mean is where ½Σp(x − e)² + ½|z|² is least: what it leaves has no differences of large numbers.
        energy = np.einsum("ij,ij,ij->i", p, left, left) + (mean**2).sum(axis=1)
        volume = np.einsum("ij,ij->i", seen, LOG_2PI + np.log(np.broadcast_to(variance, x.shape))) + log_determinant
        terms = Terms(p * left, p)
        return Posterior(mean, covariance, e + parameters.mean, v, terms, -0.5 * (energy + volume))

    def terms(self, x: Array, e: Array, v: Array, own: Own) -> Terms:
        """(x − e)/ψ and 1/ψ."""
        return Terms((x - e) / own.noise, np.broadcast_to(1.0 / own.noise, x.shape))

    def bound(self, x: Array, e: Array, v: Array, own: Own, terms: Terms) -> Array:
        """log N(x; e, ψ) − v/2ψ."""
        return np.asarray(-0.5 * (LOG_2PI + np.log(own.noise) + ((x - e) ** 2 + v) / own.noise))

    def noise_sums(self, terms: Terms, x: Array, e: Array, v: Array, seen: Array, own: Own) -> Array:
        """Σ p²((x − e)² + v − s²), Σ p², and ∂B/∂log ψ, sums over the rows (3, D)."""
        square, left = terms.precision * terms.precision, x - e
        left *= left
        left += v
        energy = np.einsum("ij,ij->j", square, left)
        known = np.einsum("ij,ij->j", square, np.broadcast_to(own.known, x.shape))
        slope = 0.5 * own.noise * (energy - terms.precision.sum(axis=0))
        return np.stack([energy - known, square.sum(axis=0), slope])

    def drawn(self, predictor: Array, own: Own, rng: Any) -> Array:
        """η + √ψ ε."""
        return np.asarray(predictor + np.sqrt(own.noise) * rng.standard_normal(predictor.shape))
