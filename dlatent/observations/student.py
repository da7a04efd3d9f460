"""Entries with heavy tails, each by itself: x = η + √ψ t, with t of Student's distribution with ν degrees of freedom.

A normal variable whose precision u/ψ is drawn from a gamma distribution: q(u) is known in closed form, and with it the
bound is the density of t where ((x − e)² + v)/ψ takes the place of the squared distance.  An outlier has a small u.
Source: Liu and Rubin (1995); the noise by PX-EM (Liu, Rubin and Wu, 1998).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import digamma, gammaln, polygamma

from dlatent.arrays import Array
from dlatent.observations.model import ObservationModel
from dlatent.observations.posterior import Own, Posterior, Terms

FIRST = 4.0
"""Degrees of freedom of a start."""
WEIGHTS = (0.0, 0.03, 1.0)
"""Weights of all entries from which maxima are looked for."""
ROBUST = 2.5
"""Spreads at which residuals are cut for a start."""


@dataclass(frozen=True)
class Student(ObservationModel):
    """Entries of Student's distribution."""

    name, noise, exact = "student", True, True
    shapes, range = "one", (0.0, float(np.log(200.0)))

    def terms(self, x: Array, e: Array, v: Array, own: Own) -> Terms:
        """u (x − e)/ψ and u/ψ, with the weight u = (ν + 1)/(ν + d) at the distance d = ((x − e)² + v)/ψ."""
        assert own.shape is not None
        nu, away = float(own.shape[0]), x - e
        weight = away * away
        weight += v
        weight += nu * own.noise
        np.divide(nu + 1.0, weight, out=weight)
        away *= weight
        return Terms(away, weight)

    def bound(self, x: Array, e: Array, v: Array, own: Own, terms: Terms) -> Array:
        """log t_ν at d, as 1 + d/ν = (ν + 1)/(νu)."""
        assert own.shape is not None
        nu = float(own.shape[0])
        constant = float(gammaln((nu + 1.0) / 2.0) - gammaln(nu / 2.0)) - 0.5 * np.log(nu * np.pi * own.noise)
        bound = terms.precision * (own.noise * (nu / (nu + 1.0)))
        np.log(bound, out=bound)
        bound *= 0.5 * (nu + 1.0)
        bound += constant
        return bound

    def shape_sums(self, x: Array, about: Posterior, seen: Array, own: Own) -> Array:
        """Derivatives of log t_ν at d."""
        assert own.shape is not None
        nu = float(own.shape[0])
        distance = ((x - about.e) ** 2 + about.v) / own.noise
        return np.stack([(seen * each).sum(axis=0) for each in by_freedom(nu, 1.0, distance)])

    def starts(self, own: Own) -> list[Array | None]:
        """From the prior, and from posteriors with fewer and fewer outliers."""
        return [weight / own.noise for weight in WEIGHTS]

    def first_shape(self, features: int) -> Array:
        """Four degrees of freedom."""
        return np.array([FIRST])

    def variance(self, e: Array, v: Array, own: Own) -> Array:
        """That of the noise is ψ ν/(ν − 2), infinite for ν ≤ 2."""
        assert own.shape is not None
        nu = float(own.shape[0])
        return np.asarray(v + (own.noise * nu / (nu - 2.0) if nu > 2.0 else np.inf))

    def drawn(self, predictor: Array, own: Own, rng: Any) -> Array:
        """η + √ψ t."""
        assert own.shape is not None
        return np.asarray(predictor + np.sqrt(own.noise) * rng.standard_t(own.shape[0], predictor.shape))

    def working(self, x: Array, mean: Array, offset: Array) -> tuple[Array, Array]:
        """Residuals about the medians, cut at some times their usual size."""
        x = x - offset
        middle = _medians(x)
        away = x - middle
        usual = 1.4826 * _medians(np.abs(away))
        limit = np.where(usual > 0.0, ROBUST * usual, np.nanmax(np.abs(away), axis=0, initial=0.0))
        return np.clip(away, -limit, limit), middle


def by_freedom(nu: float, count: Array | float, distance: Array) -> tuple[Array, Array]:
    """First and second derivatives of log t_ν of so many entries at squared distances, by log ν."""
    half, far = 0.5 * (nu + count), distance / (nu + distance)
    first = 0.5 * (digamma(half) - digamma(0.5 * nu) - count / nu - np.log1p(distance / nu)) + half * far / nu
    second = 0.25 * (polygamma(1, half) - polygamma(1, 0.5 * nu)) + 0.5 * count / nu**2
    second = second + far / nu - half * far / nu**2 * (2.0 - far)
    return np.asarray(nu * first), np.asarray(nu * first + nu**2 * second)


def _medians(x: Array) -> Array:
    """Medians (D,) of what is observed of each feature, 0 where nothing is."""
    medians, known = np.zeros(x.shape[1]), ~np.isnan(x).all(axis=0)
    medians[known] = np.nanmedian(x[:, known], axis=0)
    return medians
