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
from functools import reduce
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from dlatent.arrays import Array
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.operators.symmetric import doubled, inverted, triangle, unpacked

MEANS = 3
"""Steps of the mean of z at each step of its covariance."""
LOOK, NEAR, SETTLED = (1e-3, 10), (1e-10, 20), (1e-13, 200)
"""Gain relative to the bound of the row that is not worth a step, and how many a row takes: from each of several
starts, from the best of them, and in the end."""
FINER = 0.01
"""What part of that steps of the mean may leave."""
ROUNDING = 100.0
"""What is rounding of a bound, in units of the last place."""
LOST, ROUNDED = float(np.finfo(np.float32).eps), 0.1
"""Rounding of single precision, and what part of what may be left to gain it may be."""
NEGATIVE = -0.01
"""A variance of a predictor that is less is lost in rounding."""
SHORTEST, LEAST = 1e-6, 0.2
"""Part of a step below which a row takes none, and the least of one after a step that led up."""


class Terms(NamedTuple):
    """The slope of the bound of each entry and its precision, (n, D) each."""

    slope: Array
    precision: Array

    def of(self, features: slice) -> Terms:
        """Those of some features."""
        return Terms(self.slope[:, features], self.precision[:, features])


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
        """Slopes and precisions of entries whose predictors have means e and variances v."""

    def bound(self, x: Array, e: Array, v: Array, own: Own, terms: Terms) -> Array:
        """The bound of each, with the terms there, but for `constant`."""

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
    model: Bounded,
    x: Array,
    seen: Array,
    parameters: Parameters,
    own: Own,
    starts: Sequence[Array | None] = (None,),
    rough: float = 0.0,
) -> Posterior:
    """q(z) of rows x (n, D), of which `seen` is 1 at the observed entries: near in single precision, from the start
    from which the bound soon is highest, and then in double.

    Where `rough`, relative to the bound of a row, may be left to gain, single precision is enough for data whose digits
    it holds.

    A start is the posterior of normal entries with some precisions (D,); or the mean 0, and the covariance of a row of
    what is expected there.  The mean of the parameters may be one for each entry, (n, D).
    """
    centre = np.atleast_2d(parameters.mean)
    constant = (seen * model.constant(x, own)).sum(axis=1)
    near = _Search.of(model, parameters.loadings, centre, own, np.float32, max(rough, NEAR[0]), NEAR[1])
    near = near._replace(constant=constant if rough else 0.0)
    x_, seen_ = (each.astype(near.loadings.dtype) for each in (x, seen))
    natural, mean = near.start(x_, seen_, starts[0])
    if len(starts) > 1:
        look = near._replace(least=LOOK[0], steps=LOOK[1])
        looks = (look.climbed(x_, seen_, *near.start(x_, seen_, weights))[0] for weights in starts)
        best = reduce(lambda one, other: _chosen(~(one.bound >= other.bound), other, one), looks)
        natural, mean = best.asked, best.mean
    point, (e, v, *terms) = near.climbed(x_, seen_, natural, mean)
    bound = point.bound + constant
    if rough and (_lost(x_, e) <= ROUNDED * rough * (1.0 + np.abs(bound))).all():
        return Posterior(point.mean, point.covariance, e, v, Terms(*terms), bound)
    # In double precision those of entries ask for what is positive definite; where single does not reach, the start.
    exact = _Search.of(model, parameters.loadings, centre, own, np.float64, *SETTLED)
    natural, mean, found = exact.asked(terms[1].astype(np.float64)), point.mean, np.isfinite(bound)[:, None]
    if not found.all():
        start = exact.start(x, seen, starts[0])
        natural, mean = np.where(found, natural, start[0]), np.where(found, mean, start[1])
    point, (e, v, *terms) = exact.climbed(x, seen, natural, mean)
    bound = point.bound + constant
    return Posterior(point.mean, point.covariance, e, v, Terms(*terms), bound)


def _lost(x: Array, e: Array) -> Array:
    """About what rounding to single precision changes of the bounds (n,) of rows with the predictors e."""
    return np.asarray(LOST * (np.abs(x) * (1.0 + np.abs(e))).sum(axis=1))


class _Point(NamedTuple):
    """q(z) of rows: packed precisions and covariances (n, K(K+1)/2), means (n, K), bounds (n,), the packed precisions
    that the entries ask for there, and what more steps of the means would gain (n,)."""

    natural: Array
    covariance: Array
    mean: Array
    bound: Array
    asked: Array
    left: Array


class _Rows(NamedTuple):
    """Rows that have not settled: their numbers, what is observed, where predictors are at z = 0, (1, D) or (n, D), how
    much of a step each takes, the last step (n, K, K) as a whole, and whether it was taken."""

    number: np.ndarray
    x: Array
    seen: Array
    centre: Array
    length: Array
    before: Array
    moved: np.ndarray


class _Search(NamedTuple):
    """The search for q(z), in the number format of loadings (D, K) and centres of the predictors, (1, D) or (n, D);
    `forms` (K(K+1)/2, D) are the packed w wᵀ.  A row settles where a step gains less than `least`, relative to its
    bound with a constant."""

    model: Bounded
    loadings: Array
    centre: Array
    forms: Array
    own: Own
    least: float
    steps: int
    constant: Array | float = 0.0

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

    def asked(self, precision: Array) -> Array:
        """The packed precisions of z (n, K(K+1)/2) that entries with these precisions (n, D) ask for."""
        k = self.loadings.shape[1]
        return np.asarray(precision @ self.forms.T + np.eye(k, dtype=self.loadings.dtype)[triangle(k)])

    def start(self, x: Array, seen: Array, weights: Array | None) -> tuple[Array, Array]:
        """Packed precisions, (n, K(K+1)/2) or one for all rows, and means (n, K) of z, as `expectation` has them."""
        rows, k = len(x), self.loadings.shape[1]
        if weights is None:
            nothing = np.zeros(self.centre.shape)
            expected = self.model.mean(self.centre, nothing)
            precision, mean = self.model.terms(expected, self.centre, nothing, self.own).precision, np.zeros((rows, k))
        else:
            pull = (seen * weights * (x - self.centre)) @ self.loadings
            precision = weights[None]
            mean = np.asarray(np.linalg.solve(np.eye(k) + (self.loadings.T * weights) @ self.loadings, pull.T).T)
        return self.asked(precision), mean

    def climbed(self, x: Array, seen: Array, natural: Array, mean: Array) -> tuple[_Point, list[Array]]:
        """q(z) of rows from packed precisions and means of z, by steps of the covariance in natural parameters, O(D K²)
        a row; and e, v, slopes and precisions of the entries there."""
        rows, k = mean.shape
        constant = np.broadcast_to(self.constant, rows)
        natural, mean = (each.astype(x.dtype, copy=False) for each in (natural, mean))
        every, one, none = np.arange(rows), np.ones(rows, dtype=x.dtype), np.zeros((rows, k, k), dtype=x.dtype)
        part = _Rows(every, x, seen, self.centre, one, none, np.zeros(rows, dtype=bool))
        now, entries = self.at(part, natural, mean, one)
        best, kept = now, entries
        for _ in range(self.steps):
            size, change = 1.0 + np.abs(now.bound + constant[part.number]), now.asked - now.natural
            ahead = unpacked(now.covariance.T, k).transpose(2, 0, 1) @ unpacked(change.T, k).transpose(2, 0, 1)
            gain = now.left + 0.25 * _product(ahead, ahead)
            part = part._replace(length=_length(part, ahead), before=ahead)
            done = (gain <= self.least * size) | (part.length < SHORTEST)
            if done.any():
                if done.all():
                    break
                part, now, change, size = _among(~done, part), _among(~done, now), change[~done], size[~done]
            new, entries = self.at(part, now.natural + part.length[:, None] * change, now.mean, size)
            rounding = ROUNDING * np.finfo(x.dtype).eps * (1.0 + np.abs(now.bound))
            better = new.bound - now.bound >= -rounding
            now = _chosen(better, new, now)
            part = part._replace(length=np.where(better, part.length, 0.5 * part.length), moved=better)
            best = now if len(part.number) == rows else _put(best, part.number, now)
            if len(part.number) == rows and better.all():
                kept = entries
            else:
                for whole, each in zip(kept, entries, strict=True):
                    whole[part.number[better]] = each[better]
        return best, kept

    def at(self, part: _Rows, natural: Array, mean: Array, size: Array) -> tuple[_Point, list[Array]]:
        """The best mean for a packed precision of z, by some steps from another mean, O(D K) a row, for bounds of about
        some size; and what the entries are there.

        A step leads along S times the slope to where the bound is highest if its curvature stays; where that changes
        with a predictor by at most its own size, log(1 + R)/R of this leads up, R the largest change of a predictor
        (Bach, 2010, "Self-concordant analysis for logistic regression").
        """
        loadings, k, whole = self.loadings, self.loadings.shape[1], bool(part.seen.all())
        covariance, log_determinant = inverses(natural, k)
        e, v = mean @ loadings.T + part.centre, (doubled(k).astype(loadings.dtype) * covariance) @ self.forms
        if len(natural) < len(mean):  # a start is the same for all rows
            natural, covariance, log_determinant, v = (
                np.repeat(each, len(mean), axis=0) for each in (natural, covariance, log_determinant, v)
            )
        for step in range(MEANS + 1):
            terms = self.model.terms(part.x, e, v, self.own)
            slope, precision = terms if whole else (each * part.seen for each in terms)
            pull = slope @ loadings - mean
            ahead = times(covariance, pull)
            rise = (ahead * pull).sum(axis=1)
            moving = rise > FINER * self.least * size
            if step == MEANS or not moving.any():
                break
            change = ahead @ loadings.T
            length = rise / ((ahead**2).sum(axis=1) + np.einsum("nj,nj->n", precision * change, change))
            if not self.model.exact:
                far = np.maximum(change.max(axis=1), -change.min(axis=1))
                length = np.log1p(far * length) / far
            length = np.where(moving, length, 0.0)[:, None]
            mean = mean + length * ahead
            change *= length
            e += change
        bounds = self.model.bound(part.x, e, v, self.own, terms)
        first, second = triangle(k)
        divergence = (mean**2).sum(axis=1) + covariance[:, first == second].sum(axis=1) - k + log_determinant
        bound = (bounds if whole else bounds * part.seen).sum(axis=1) - 0.5 * divergence
        bound = np.where(v.min(axis=1) > NEGATIVE, bound, np.nan)
        point = _Point(natural, covariance, mean, bound, self.asked(precision), 0.5 * rise)
        return point, [e, v, slope, precision]


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


def _among(rows: np.ndarray, each: Any) -> Any:
    """Some of the rows of arrays."""
    return type(each)(*(one[rows] if len(one) == len(rows) else one for one in each))


def _put(best: _Point, number: np.ndarray, now: _Point) -> _Point:
    """The points with some rows replaced."""
    for whole, piece in zip(best, now, strict=True):
        whole[number] = piece
    return best


def _chosen(better: np.ndarray, new: _Point, old: _Point) -> _Point:
    """The new points of the rows for which they are better."""
    if better.all():
        return new
    return _Point(
        *(
            np.where(better if one.ndim == 1 else better[:, None], one, other)
            for one, other in zip(new, old, strict=True)
        )
    )
