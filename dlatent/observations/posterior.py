"""The posterior of z given entries of any distribution, by a normal q(z) = N(m, S): the E-step.

With q(z) normal, the predictor η = wᵀz + b of an entry x has a mean e and a variance v under it, and an observation
model gives a lower bound B(e, v) ≤ E_q[log p(x | η)], its slope g = ∂B/∂e and its precision p = −2 ∂B/∂v ≥ 0:

    M = I + Σ_j p_j w_j w_jᵀ,   S = M⁻¹,   M m = Σ_j w_j (g_j + p_j (e_j − b_j))

An entry counts as a normal one with the value e + g/p and the noise variance 1/p; a missing one has p = g = 0.  The
fixed point is found from the prior or a guess in each pass, so that a pass is a function of the parameters alone.
Where B is the best of quadratic bounds with this p a step never lowers it; else a row whose bound falls takes half of
the step, in natural parameters.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from dlatent.arrays import Array
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.operators.symmetric import doubled, inverted, packed_squares, triangle, unpacked

STEPS = 200
"""Steps of a row at most."""
SETTLED, ROUNDING = 1e-10, 1e-12
"""Gain of a row, relative to its bound, after which it is done, and that which is rounding."""
SHORTEST = 1e-6
"""Part of a step below which a row takes none."""


class Terms(NamedTuple):
    """The bound of each entry, its slope and its precision, (n, D) each."""

    bound: Array
    slope: Array
    precision: Array


class Own(NamedTuple):
    """What a model has beside the linear predictor: noise variances ψ (D,), parameters of shape, (D,), (1,) or None,
    and squared error bars s² of entries, (n, D) or 0."""

    noise: Array
    shape: Array | None
    known: Array | float = 0.0

    @classmethod
    def of(cls, parameters: Parameters, specification: Specification) -> Own:
        """Those of some parameters."""
        return cls(specification.per_feature(parameters.noise_variance), parameters.shape)


class Bounded(Protocol):
    """What gives a bound of entries: see `model.ObservationModel`."""

    exact: ClassVar[bool]

    def terms(self, x: Array, e: Array, v: Array, own: Own) -> Terms:
        """The bound of entries whose predictors have means e and variances v, but for `constant`."""

    def constant(self, x: Array, own: Own) -> Array | float:
        """What does not depend on e and v."""


class Posterior(NamedTuple):
    """q(z) of rows: means (n, K), packed covariances (n, K(K+1)/2); mean and variance of the predictors, and the terms
    of the entries there, (n, D) each, 0 where missing; the bound (n,).

    Where rows have precisions u of their own they come with their means `weight` (n,), the covariances are those at
    them, and `inverse` (n,) are the means of 1/u.
    """

    mean: Array
    covariance: Array
    e: Array
    v: Array
    terms: Terms
    bound: Array
    weight: Array | None = None
    inverse: Array | None = None

    @property
    def spread(self) -> Array:
        """Packed covariances of z (n, K(K+1)/2)."""
        if self.weight is None or self.inverse is None:
            return self.covariance
        return np.asarray(self.covariance * (self.weight * self.inverse)[:, None])


def inverses(precision: Array, k: int) -> tuple[Array, Array]:
    """Packed inverses (n, K(K+1)/2) and log-determinants (n,) of packed precisions."""
    first, second = triangle(k)
    covariance, log_determinant = inverted(np.ascontiguousarray(unpacked(precision.T, k)))
    return np.ascontiguousarray(covariance[first, second].T), log_determinant


def times(packed: Array, vectors: Array) -> Array:
    """S v (n, K) of packed symmetric S (n, K(K+1)/2) and vectors v (n, K)."""
    return np.asarray(np.einsum("kln,nl->nk", unpacked(packed.T, vectors.shape[1]), vectors))


class Guess(NamedTuple):
    """Normal entries that stand for some (n, D): their values and precisions."""

    values: Array
    precisions: Array


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # of steps that lead too far, and are taken back
def expectation(
    model: Bounded, x: Array, seen: Array, parameters: Parameters, own: Own, guess: Guess | None = None
) -> Posterior:
    """q(z) of rows x (n, D), of which `seen` is 1 at the observed entries, by steps in natural parameters from the
    prior or from the posterior of a guess: where the bound is higher, or where it has several maxima always from that;
    O(D K²) a row and step.  The mean of the parameters may be one for each entry, (n, D)."""
    loadings, centre, k = parameters.loadings, parameters.mean, parameters.loadings.shape[1]
    pairs, (first, second) = packed_squares(loadings), triangle(k)
    forms, identity = (pairs * doubled(k)).T, (first == second).astype(np.float64)

    def at(part: _Rows, precision: Array, linear: Array) -> Posterior:
        covariance, log_determinant = inverses(precision, k)
        mean = times(covariance, linear)
        e, v = mean @ loadings.T + part.centre, covariance @ forms
        terms = model.terms(part.x, e, v, own)
        if not part.seen.all():
            terms = Terms(*(np.where(part.seen > 0.0, each, 0.0) for each in terms))
        divergence = (mean**2).sum(axis=1) + covariance @ identity - k + log_determinant
        return Posterior(mean, covariance, e, v, terms, terms.bound.sum(axis=1) - 0.5 * divergence)

    part = _Rows(np.arange(len(x)), x, seen, centre, np.ones(len(x)))
    precision, linear = np.tile(identity, (len(x), 1)), np.zeros((len(x), k))
    now = at(part, precision, linear)
    if guess is not None:
        weights = seen * guess.precisions
        other = precision + weights @ pairs, (weights * (guess.values - centre)) @ loadings
        new = at(part, *other)
        better = np.ones(len(x), dtype=bool) if model.exact else new.bound > now.bound
        now, precision, linear = _chosen(better, (new, *other), (now, precision, linear))
    results = _among(now, np.arange(len(x)))
    for step in range(STEPS):
        p, length = now.terms.precision, part.length[:, None]
        new_precision = precision + length * (p @ pairs + identity - precision)
        new_linear = linear + length * ((now.terms.slope + p * (now.e - part.centre)) @ loadings - linear)
        new = at(part, new_precision, new_linear)
        gain, size = new.bound - now.bound, 1.0 + np.abs(now.bound)
        better = np.ones(len(gain), dtype=bool) if model.exact else gain >= -ROUNDING * size
        settled = better & (gain <= SETTLED * size) & (part.length == 1.0)
        done = settled | (part.length < SHORTEST) | (step == STEPS - 1)
        now, precision, linear = _chosen(better, (new, new_precision, new_linear), (now, precision, linear))
        part = part._replace(length=np.where(better, np.minimum(1.0, 2.0 * part.length), 0.5 * part.length))
        if done.any():
            for whole, piece in zip(_arrays(results), _arrays(now), strict=True):
                whole[part.number[done]] = piece[done]
            part, now, precision, linear = part.among(~done), _among(now, ~done), precision[~done], linear[~done]
        if not len(part.number):
            break
    return results._replace(bound=results.bound + (seen * model.constant(x, own)).sum(axis=1))


class _Rows(NamedTuple):
    """Rows that have not settled: their numbers, what is observed, where predictors are at z = 0, and how much of a
    step each takes."""

    number: np.ndarray
    x: Array
    seen: Array
    centre: Array
    length: Array

    def among(self, rows: np.ndarray) -> _Rows:
        """Some of them."""
        centre = self.centre if self.centre.ndim == 1 else self.centre[rows]
        return _Rows(self.number[rows], self.x[rows], self.seen[rows], centre, self.length[rows])


def _arrays(about: Posterior) -> tuple[Array, ...]:
    return (*about[:4], *about.terms, about.bound)


def _among(about: Posterior, rows: np.ndarray) -> Posterior:
    mean, covariance, e, v, bound, slope, precision, whole = (each[rows] for each in _arrays(about))
    return Posterior(mean, covariance, e, v, Terms(bound, slope, precision), whole)


def _chosen(
    better: np.ndarray, new: tuple[Posterior, Array, Array], old: tuple[Posterior, Array, Array]
) -> tuple[Posterior, Array, Array]:
    """The new points of the rows for which they are better."""
    if better.all():
        return new
    for one, other in zip((*_arrays(new[0]), *new[1:]), (*_arrays(old[0]), *old[1:]), strict=True):
        one[~better] = other[~better]
    return new
