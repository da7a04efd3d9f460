"""The posterior of z given entries of any distribution, by a normal q(z) = N(m, S): the E-step.

With q(z) normal, the predictor η = wᵀz + b of an entry x has a mean e and a variance v under it, and an observation
model gives a lower bound B(e, v) ≤ E_q[log p(x | η)], its slope g = ∂B/∂e and its precision p = −2 ∂B/∂v ≥ 0:

    M = I + Σ_j p_j w_j w_jᵀ,   S = M⁻¹,   M m = Σ_j w_j (g_j + p_j (e_j − b_j))

An entry counts as a normal one with the value e + g/p and the noise variance 1/p; a missing one has p = g = 0.  The
fixed point is found anew in each pass, so that a pass is a function of the parameters alone: by steps of M, and some of
m at each.  A row whose bound falls takes half of the step of M.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from dlatent.arrays import Array
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.operators.symmetric import doubled, inverted, triangle, unpacked

MEANS = 3
"""Steps of the mean of z at each step of its covariance."""
NEAR, SETTLED = (np.float32, 1e-10, 20), (np.float64, 1e-13, 200)
"""Number format of steps, gain relative to the bound of the row that is not worth one, and how many a row takes."""
FINER = 0.01
"""What part of that steps of the mean may leave."""
ROUNDING = 100.0
"""What is rounding of a bound, in units of the last place."""
NEGATIVE = -0.01
"""A variance of a predictor that is less is lost in rounding."""
SHORTEST, LEAST = 1e-6, 0.2
"""Part of a step below which a row takes none, and the least of one after a step that led up."""


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

    def mean(self, e: Array, v: Array) -> Array:
        """The mean of entries whose predictors have means e and variances v."""


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


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # of steps that lead too far, and are taken back
def expectation(
    model: Bounded, x: Array, seen: Array, parameters: Parameters, own: Own, starts: Sequence[Array | None] = (None,)
) -> Posterior:
    """q(z) of rows x (n, D), of which `seen` is 1 at the observed entries: near in single precision, from the start
    where the bound comes highest, and then in double.

    A start is the posterior of normal entries with some precisions (D,); or the mean 0, and the covariance of a row of
    what is expected there.  The mean of the parameters may be one for each entry, (n, D).
    """
    centre = np.atleast_2d(parameters.mean)
    highest: Array = np.full(len(x), -np.inf)
    near, exact = (_Search.of(model, parameters.loadings, centre, own, *each) for each in (NEAR, SETTLED))
    x_, seen_ = (each.astype(near.loadings.dtype) for each in (x, seen))
    precision, mean = _start(model, x, seen, parameters.loadings, centre, own, starts[0])
    precision = np.array(np.broadcast_to(precision, x.shape))
    for weights in starts:
        about = near.climbed(x_, seen_, *_start(model, x, seen, parameters.loadings, centre, own, weights))
        better = about.bound > highest
        highest[better] = about.bound[better]
        precision[better], mean[better] = about.terms.precision[better], about.mean[better]
    about = exact.climbed(x, seen, precision, mean)
    return about._replace(bound=about.bound + (seen * model.constant(x, own)).sum(axis=1))


def _start(
    model: Bounded, x: Array, seen: Array, loadings: Array, centre: Array, own: Own, weights: Array | None
) -> tuple[Array, Array]:
    """Precisions of entries, (1, D) or (n, D), and means of z (n, K)."""
    k = loadings.shape[1]
    if weights is None:
        nothing = np.zeros(centre.shape)
        return model.terms(model.mean(centre, nothing), centre, nothing, own).precision, np.zeros((len(x), k))
    pull = (seen * weights * (x - centre)) @ loadings
    return weights[None], np.asarray(np.linalg.solve(np.eye(k) + (loadings.T * weights) @ loadings, pull.T).T)


class _Search(NamedTuple):
    """The search for q(z), in the number format of loadings (D, K) and centres of the predictors, (1, D) or (n, D);
    `forms` (K(K+1)/2, D) are the packed w wᵀ."""

    model: Bounded
    loadings: Array
    centre: Array
    forms: Array
    own: Own
    least: float
    steps: int

    @classmethod
    def of(
        cls, model: Bounded, loadings: Array, centre: Array, own: Own, number: type, least: float, steps: int
    ) -> _Search:
        """One in a number format, until a step gains less than a part of the bound."""
        loadings, centre = loadings.astype(number), centre.astype(number)
        columns = np.ascontiguousarray(loadings.T)
        forms = np.concatenate([column * columns[k:] for k, column in enumerate(columns)])
        own = Own(own.noise.astype(number), None if own.shape is None else own.shape.astype(number))
        return cls(model, loadings, centre, forms, own, least, steps)

    def climbed(self, x: Array, seen: Array, precision: Array, mean: Array) -> Posterior:
        """q(z) of rows from precisions of their entries, (1, D) or (n, D), and means of z, by steps of the covariance
        in natural parameters, O(D K²) a row."""
        precision, mean = precision.astype(x.dtype, copy=False), mean.astype(x.dtype, copy=False)
        rows, k = mean.shape
        identity, one = np.eye(k, dtype=x.dtype)[triangle(k)], np.ones(rows, dtype=x.dtype)
        natural = precision @ self.forms.T + identity
        none = np.zeros((rows, k, k), dtype=x.dtype)
        part = _Rows(np.arange(rows), x, seen, self.centre, one, one, one, none, np.zeros(rows, dtype=bool))
        (now, left), natural = self.at(part, natural, mean), np.broadcast_to(natural, (rows, len(identity)))
        now = now._replace(covariance=np.broadcast_to(now.covariance, natural.shape), v=np.broadcast_to(now.v, x.shape))
        results = _among(now, part.number)
        for step in range(self.steps):
            part = part._replace(size=1.0 + np.abs(now.bound), left=left)
            change = now.terms.precision @ self.forms.T + identity - natural
            ahead = unpacked(now.covariance.T, k).transpose(2, 0, 1) @ unpacked(change.T, k).transpose(2, 0, 1)
            gain = left + 0.25 * _product(ahead, ahead)
            part = part._replace(length=_length(part, ahead), before=ahead)
            done = (gain <= self.least * part.size) | (part.length < SHORTEST) | (step == self.steps - 1)
            if done.any():
                for whole, piece in zip(_arrays(results), _arrays(now), strict=True):
                    whole[part.number[done]] = piece[done]
                part, now, natural, change = part.among(~done), _among(now, ~done), natural[~done], change[~done]
            if done.all():
                break
            new_natural = natural + part.length[:, None] * change
            new, left = self.at(part, new_natural, now.mean)
            better = new.bound - now.bound >= -ROUNDING * np.finfo(x.dtype).eps * part.size
            now, natural = _chosen(better, (new, new_natural), (now, natural))
            left = np.where(better, left, part.left)
            part = part._replace(length=np.where(better, 1.0, 0.5) * part.length, moved=better)
        return results

    def at(self, part: _Rows, natural: Array, mean: Array) -> tuple[Posterior, Array]:
        """The best mean for a packed precision of z, by some steps from another mean, O(D K) a row; and what more of
        them would gain.

        A step leads along S times the slope to where the bound is highest if its curvature stays; where that changes
        with a predictor by at most its own size, log(1 + R)/R of this leads up, R the largest change of a predictor
        (Bach, 2010, "Self-concordant analysis for logistic regression").
        """
        loadings, k = self.loadings, self.loadings.shape[1]
        covariance, log_determinant = inverses(natural, k)
        e, v = mean @ loadings.T + part.centre, (doubled(k).astype(loadings.dtype) * covariance) @ self.forms
        for step in range(MEANS + 1):
            terms = self.model.terms(part.x, e, v, self.own)
            if not part.seen.all():
                terms = Terms(*(np.where(part.seen > 0.0, each, 0.0) for each in terms))
            pull = terms.slope @ loadings - mean
            ahead = times(covariance, pull)
            rise = (ahead * pull).sum(axis=1)
            moving = rise > FINER * self.least * part.size
            if step == MEANS or not moving.any():
                break
            change = ahead @ loadings.T
            length = rise / ((ahead**2).sum(axis=1) + np.einsum("nj,nj,nj->n", terms.precision, change, change))
            if not self.model.exact:
                far = np.maximum(change.max(axis=1), -change.min(axis=1))
                length = np.log1p(far * length) / far
            length = np.where(moving, length, 0.0)[:, None]
            mean = mean + length * ahead
            change *= length
            e += change
        first, second = triangle(k)
        divergence = (mean**2).sum(axis=1) + covariance[:, first == second].sum(axis=1) - k + log_determinant
        bound = terms.bound.sum(axis=1) - 0.5 * divergence
        bound = np.where(v.min(axis=1) > NEGATIVE, bound, np.nan)
        return Posterior(mean, covariance, e, v, terms, bound), 0.5 * rise


def _product(first: Array, second: Array) -> Array:
    """tr AB of matrices (n, K, K)."""
    return np.asarray(np.einsum("nkl,nlk->n", first, second))


def _length(part: _Rows, ahead: Array) -> Array:
    """How much of the step SΔ `ahead` a row is to take.  Where the last one led up, what was left of it tells how much
    would have been right (Barzilai and Borwein, 1988), as precisions of counts grow with variances."""
    before = _product(part.before, part.before)
    done = before - _product(part.before, ahead)
    right = np.clip(part.length * before / np.where(done > 0.0, done, np.nan), LEAST, 1.0)
    return np.where(part.moved, np.where(done > 0.0, right, 1.0), part.length)


class _Rows(NamedTuple):
    """Rows that have not settled: their numbers, what is observed, where predictors are at z = 0, (1, D) or (n, D), how
    much of a step each takes, what their bound and what steps of the mean may gain are, about, the last step (n, K, K)
    as a whole, and whether it was taken."""

    number: np.ndarray
    x: Array
    seen: Array
    centre: Array
    length: Array
    size: Array
    left: Array
    before: Array
    moved: np.ndarray

    def among(self, rows: np.ndarray) -> _Rows:
        """Some of them."""
        return _Rows(*(each[rows] if len(each) == len(rows) else each for each in self))


def _arrays(about: Posterior) -> tuple[Array, ...]:
    return (*about[:4], *about.terms, about.bound)


def _among(about: Posterior, rows: np.ndarray) -> Posterior:
    mean, covariance, e, v, bound, slope, precision, whole = (each[rows] for each in _arrays(about))
    return Posterior(mean, covariance, e, v, Terms(bound, slope, precision), whole)


def _chosen(better: np.ndarray, new: tuple[Posterior, Array], old: tuple[Posterior, Array]) -> tuple[Posterior, Array]:
    """The new points of the rows for which they are better."""
    if better.all():
        return new
    for one, other in zip((*_arrays(new[0]), new[1]), (*_arrays(old[0]), old[1]), strict=True):
        one[~better] = other[~better]
    return new
