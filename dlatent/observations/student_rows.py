"""Rows with heavy tails: x = b + (W z + √ψ ε)/√u with one u ~ Γ(ν/2, ν/2) for all of a row, a multivariate t.

Given u a row is normal, and all but u is exact: u has a gamma distribution with the mean (ν + D_o)/(ν + d), with D_o
entries observed at the squared distance d.  Source: Liu and Rubin (1995); Archambeau, Delannay and Verleysen (2006).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln

from dlatent.arrays import Array
from dlatent.gaussian.specification import Parameters
from dlatent.observations.posterior import Own, Posterior, Terms, inverses, times
from dlatent.observations.student import Student, by_freedom
from dlatent.operators.symmetric import doubled, packed_squares, triangle


@dataclass(frozen=True)
class StudentRows(Student):
    """Rows of a multivariate t."""

    name, closed = "student_rows", True

    def expectation(self, x: Array, seen: Array, parameters: Parameters, own: Own, rough: float = 0.0) -> Posterior:
        """z and u of each row, exactly."""
        assert own.shape is not None
        loadings, nu = parameters.loadings, float(own.shape[0])
        pairs, (first, second) = packed_squares(loadings), triangle(loadings.shape[1])
        k = loadings.shape[1]
        away, p = seen * (x - parameters.mean), seen / own.noise
        covariance, log_determinant = inverses(p @ pairs + (first == second), k)
        pull = (p * away) @ loadings
        mean = times(covariance, pull)
        distance = np.maximum((p * away**2).sum(axis=1) - (pull * mean).sum(axis=1), 0.0)
        count = seen.sum(axis=1)
        volume = log_determinant + seen @ np.log(own.noise)
        weight = (nu + count) / (nu + distance)
        inverse = (nu + distance) / np.where(nu + count > 2.0, nu + count - 2.0, np.nan)
        density = _density(nu, count, distance, volume)
        e, at = mean @ loadings.T + parameters.mean, covariance / weight[:, None]
        precision = p * weight[:, None]
        terms = Terms(precision * (x - e), precision)
        return Posterior(mean, at, e, at @ (pairs * doubled(k)).T, terms, density, weight, inverse)

    def noise_sums(self, terms: Terms, x: Array, e: Array, v: Array, seen: Array, own: Own) -> Array:
        """As of entries, but the number of entries in the place of Σ u."""
        energy, _, slope = super().noise_sums(terms, x, e, v, seen, own)
        return np.stack([energy, seen.sum(axis=0), slope])

    def shape_sums(self, x: Array, about: Posterior, seen: Array, own: Own) -> Array:
        """Derivatives of the density of all rows, beside the first feature."""
        assert own.shape is not None
        assert about.weight is not None
        nu, count, sums = float(own.shape[0]), seen.sum(axis=1), np.zeros((2, x.shape[1]))
        sums[:, 0] = np.sum(by_freedom(nu, count, np.maximum((nu + count) / about.weight - nu, 0.0)), axis=1)
        return sums

    def variance(self, e: Array, v: Array, own: Own) -> Array:
        """That of a normal variable, as the noise comes divided by u."""
        return np.asarray(v + own.noise)

    def sample(self, samples: int, parameters: Parameters, own: Own, rng: Any) -> Array:
        """Normal rows, each divided by the root of its u."""
        assert own.shape is not None
        z = rng.standard_normal((samples, parameters.loadings.shape[1]))
        noise, half = rng.standard_normal((samples, len(parameters.mean))), 0.5 * own.shape[0]
        u = rng.gamma(half, 1.0 / half, (samples, 1))
        return np.asarray(parameters.mean + (z @ parameters.loadings.T + np.sqrt(own.noise) * noise) / np.sqrt(u))


def _density(nu: float, count: Array, distance: Array, volume: Array) -> Array:
    """log t_ν of rows of so many entries at squared distances, with the logarithms of the determinants."""
    half = 0.5 * (nu + count)
    constant = gammaln(half) - gammaln(0.5 * nu) - 0.5 * count * np.log(nu * np.pi) - 0.5 * volume
    return np.asarray(constant - half * np.log1p(distance / nu))
