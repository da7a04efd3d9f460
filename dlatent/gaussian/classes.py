"""Classes told apart: by Bayes' rule with the density of a model, by normal classes, and by any linear rule.

The last two are estimated from rows with classes (see `head`).  Normal classes with one covariance, x | c ~ N(m_c, Σ),
have the prior m_c | Σ ~ N(0, Σ/κ), Σ ~ W⁻¹(aI, ν), which is found by evidence: two rows a class do not break them.  A
linear rule says nothing of how the rows of a class lie, so that with many rows it tells what normal classes do not;
with few these know more.  Each of several labels of a row has such a rule of its own.

Sources: Murphy (2012), section 4.6.3, for the evidence; Guo, Hastie and Tibshirani (2007) for one shrunken covariance;
Bishop (2006), section 4.3.4, for the linear rule, Nocedal and Wright (2006), section 7.1, for its steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as la
import scipy.optimize as opt
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from scipy.special import expit, log_expit, log_softmax, logsumexp, multigammaln

from dlatent.arrays import Array, Integers

MEAN_ROWS = np.exp(np.arange(-8.0, 6.1, 0.5))
"""Numbers κ of rows, for which the prior of a mean counts, that are compared."""
COVARIANCE_ROWS = np.exp(np.arange(-3.0, 9.1, 1.0 / 3.0))
"""Numbers ν − K − 1 that are compared, for the prior of the covariance."""
SCALES = np.exp(np.arange(-12.0, 11.1, 0.25))
"""The scales a that are compared, relative to the mean square of the rows."""
COOLEST = -7.0
"""Logarithm of the smallest factor of the log-odds."""
VARIANCES = 10.0 ** np.arange(-1.0, 4.0)
"""The variances v that are compared, for rows of mean square 1 in each direction, while they become better."""
OFFSET_VARIANCE = 1e3
"""That of b: so wide that it matters only where a class has no rows."""
FOLDS = 5
STEPS, SETTLED = 100, 1e-6
"""Newton steps at most, and the change at which they end."""


class ClassRule(NamedTuple):
    """p(c | x) ∝ π_c p(x | y = t_c): classes are points of the second view, and the model has a density of features
    beside each.  The rule of linear discriminant analysis with the means and the covariance of the model.

    Parameters
    ----------
    points : W_yᵀ(t_c − μ_y) (K, C), the classes in the latent space.
    gram : W_yᵀW_y (K, K).
    noise : σ_y².
    log_shares : log π_c (C,), of the fractions that the classes have of all.
    precision : of a row by itself: 1 where rows are independent, and δ where its covariance is divided by δ.
    """

    points: Array
    gram: Array
    noise: float
    log_shares: Array
    precision: float = 1.0

    @property
    def width(self) -> int:
        """The number of classes."""
        return len(self.log_shares)

    @classmethod
    def of(cls, codes: Array, shares: Array, loadings: Array, mean: Array, noise: float, precision: float) -> ClassRule:
        """The rule for codes t_c (C, L') with shares π_c (C,) and a view of loadings W_y (L', K), mean and noise."""
        points = loadings.T @ (codes - mean).T
        return cls(points, loadings.T @ loadings, noise, np.log(shares), precision)

    def decisions(self, means: Array, covariance: Array) -> Array:
        """log p(c | x) (n, C) of rows of which z | x ~ N(means, covariance) is known: (n, K), and (K, K) for all rows
        or (n, K, K).

        With a_c the points, G the gram and V the covariance, from p(x | t) ∝ p(t | x) / p(t) by Woodbury,

            log p(c | x) = log π_c + δ [m·r_c + (a_c·V r_c − a_c·s_c) / 2σ_y²] + …,
            (σ_y²I + GV) r_c = a_c,   (σ_y²I + G) s_c = a_c.
        """
        basis = self.noise * np.eye(len(self.gram))
        r = np.linalg.solve(basis + self.gram @ covariance, self.points)
        s = np.linalg.solve(basis + self.gram, self.points)
        squares = (self.points * (covariance @ r)).sum(axis=-2) - (self.points * s).sum(axis=0)
        linear = np.einsum("nk,nkc->nc", means, r) if covariance.ndim == 3 else means @ r
        log_odds = self.log_shares + self.precision * (linear + 0.5 * squares / self.noise)
        return np.asarray(log_odds - logsumexp(log_odds, axis=1, keepdims=True))


class ClassSums(NamedTuple):
    """Sums of rows x (n, K) by classes, additive over rows: XᵀX (K, K), the sums of the rows of each class (C, K), and
    their numbers (C,)."""

    gram: Array
    totals: Array
    counts: Array

    @classmethod
    def of(cls, x: Array, codes: Integers, classes: int) -> ClassSums:
        """The sums of rows of classes (n,); O(nK²)."""
        members = sp.csr_array((np.ones(len(x)), (codes, np.arange(len(x)))), shape=(classes, len(x)))
        return cls(x.T @ x, np.asarray(members @ x), np.bincount(codes, minlength=classes).astype(np.float64))


class Prior(NamedTuple):
    """κ, ν and a of the largest evidence, and that, in nats."""

    mean_rows: float
    degrees: float
    scale: float
    evidence: float


class LinearRule(NamedTuple):
    """Log-odds x A + b up to a number for each row, with A (K, C) and b (C,), and the log-probabilities (n,) of the
    classes of some training rows, each by other rows."""

    coefficients: Array
    offsets: Array
    left_out: Array


def prior(rows: ClassSums) -> Prior:
    """The prior of the largest evidence on a grid; O(K³).

    With n_c rows of sum t_c in class c, and the eigenvalues e of S = XᵀX − Σ t_c t_cᵀ / (κ + n_c),

        log p(X) = −½ nK log π + log Γ_K((ν + n)/2) − log Γ_K(ν/2) + ½ νK log a − ½ (ν + n) Σ log(e + a)
                   + ½ K Σ_c log(κ / (κ + n_c))
    """
    (gram, totals, counts), compared = rows, list[Prior]()
    n, k = float(counts.sum()), len(gram)
    scales, degrees = SCALES * max(float(np.trace(gram)) / (n * k), np.finfo(float).tiny), COVARIANCE_ROWS + k + 1.0
    constant = multigammaln((degrees + n) / 2.0, k) - multigammaln(degrees / 2.0, k) - 0.5 * n * k * np.log(np.pi)
    for mean_rows in MEAN_ROWS:
        e = np.maximum(la.eigvalsh(gram - (totals.T / (mean_rows + counts)) @ totals), 0.0)
        both = np.log(e + scales[:, None]).sum(axis=1)
        value = constant + 0.5 * k * float(np.log(mean_rows / (mean_rows + counts)).sum())
        value = value + 0.5 * degrees * k * np.log(scales)[:, None] - 0.5 * (degrees + n) * both[:, None]
        at = np.unravel_index(value.argmax(), value.shape)
        compared.append(Prior(float(mean_rows), float(degrees[at[1]]), float(scales[at[0]]), float(value[at])))
    return max(compared, key=lambda each: each.evidence)


def discriminants(rows: ClassSums, x: Array, codes: Integers, shares: Array) -> LinearRule:
    """Classes of rows with the prior of the largest evidence, and log-odds that are as sure as they are right, as some
    of the rows x (n, K) and their classes (n,) tell.

    With the means m_c = t_c / (κ + n_c), the covariance V = (aI + S) / (ν − K − 1 + n) and shares π_c (C,),

        log p(c | x) = τ [x V⁻¹ m_c − ½ m_cᵀV⁻¹m_c + log π_c] + …,

    where τ ≤ 1 makes the classes of rows that are left out most probable.
    """
    best, (gram, totals, counts), k = prior(rows), rows, len(rows.gram)
    weights, degrees = best.mean_rows + counts, best.degrees - k - 1.0 + float(counts.sum())
    means = totals / weights[:, None]
    scatter = gram - (means * weights[:, None]).T @ means + best.scale * np.eye(k)
    inverse, log_shares = la.inv(scatter), np.log(shares)
    coefficients = degrees * (inverse @ means.T)
    offsets = log_shares - 0.5 * (means * coefficients.T).sum(axis=1)
    left_out = (degrees - 1.0) * _left_out(x, codes, means, weights, inverse) + log_shares
    cool = temperature(left_out, codes)
    return LinearRule(cool * coefficients, cool * offsets, _of_classes(cool * left_out, codes))


def _left_out(x: Array, codes: Integers, means: Array, weights: Array, inverse: Array) -> Array:
    """x S⁻¹ m_c − ½ m_cᵀS⁻¹m_c (n, C) of each row by the means and the scatter S of the other rows; O(nK(K + C)).

    Without a row of class y the scatter loses g d dᵀ, d = x − m_y and g = w_y / (w_y − 1), and m_y = t_y / w_y becomes
    (w_y m_y − x) / (w_y − 1); the inverse follows by Sherman and Morrison.
    """
    rows, weight = np.arange(len(x)), weights[codes]
    moved = x - means[codes]
    v = moved @ inverse
    factor = 1.0 / ((weight - 1.0) / weight - (v * moved).sum(axis=1))
    known, along = inverse @ means.T, v @ means.T
    x_v = (x * v).sum(axis=1)
    linear = x @ known + (factor * x_v)[:, None] * along
    square = (means * known.T).sum(axis=1) + factor[:, None] * along**2
    without = (weight[:, None] * means[codes] - x) / (weight - 1.0)[:, None]
    turned, without_v = without @ inverse, (without * v).sum(axis=1)
    linear[rows, codes] = (turned * x).sum(axis=1) + factor * x_v * without_v
    square[rows, codes] = (turned * without).sum(axis=1) + factor * without_v**2
    return np.asarray(linear - 0.5 * square)


def temperature(log_odds: Array, codes: Integers) -> float:
    """The factor of at most 1 that makes the classes (n,) most probable by their log-odds (n, C); see Guo et al.
    (2017), "On calibration of modern neural networks"."""

    def loss(log_factor: float) -> float:
        return -float(_of_classes(np.exp(log_factor) * log_odds, codes).sum())

    lowest = float(opt.minimize_scalar(loss, bounds=(COOLEST, 0.0), method="bounded").x)
    return float(np.exp(min((0.0, lowest), key=loss)))


def softmax(x: Array, codes: Integers, classes: int, variances: Array = VARIANCES) -> LinearRule:
    """The rule p(c | x) ∝ exp(x a_c + b_c), a_c ~ N(0, v I), of rows x (n, K) and their classes (n,), with that of the
    variances v by which rows that are left out are told best; O(nKC) a step."""
    scale = float(np.sqrt(max(np.mean(x**2), np.finfo(float).tiny)))
    rows = np.column_stack([x / scale, np.ones(len(x))])
    fold, weights = _folds(codes), np.zeros((rows.shape[1], classes))
    best, known = weights, np.full(len(codes), -np.inf)
    for variance in variances:
        weights, now = _fitted(rows, codes, variance, weights), np.empty(len(codes))
        for number in np.unique(fold):
            out = fold == number
            now[out] = _of_classes(rows[out] @ _fitted(rows[~out], codes[~out], variance, weights), codes[out])
        if now.sum() <= known.sum():
            break
        best, known = weights, now
    return LinearRule(best[:-1] / scale, best[-1], known)


def logistic(x: Array, y: Array) -> LinearRule:
    """The rule log p(1 | x) / p(0 | x) = xa + b, a ~ N(0, v I), of rows x (n, K) and labels of 0 or 1 (n,), with that
    of `VARIANCES` by which rows that are left out are told best; O(nK²) a step.

    Without a row the log-odds are nearly xa + b + h (p − y) / (1 − h p(1 − p)), h = x H⁻¹ xᵀ with the Hessian H.
    """
    scale = float(np.sqrt(max(np.mean(x**2), np.finfo(float).tiny)))
    rows, signs = np.column_stack([x / scale, np.ones(len(x))]), 2.0 * y - 1.0
    weights, best, known = np.zeros(rows.shape[1]), np.zeros(rows.shape[1]), np.full(len(y), -np.inf)
    for variance in VARIANCES:
        precision = np.full(len(weights), 1.0 / variance)
        precision[-1] = 1.0 / OFFSET_VARIANCE
        weights, hessian = _newton(rows, y, precision, weights)
        log_odds = rows @ weights
        p = expit(log_odds)
        h = (rows * la.solve(hessian, rows.T, assume_a="pos").T).sum(axis=1)
        now = log_expit(signs * (log_odds + h * (p - y) / np.maximum(1.0 - h * p * (1.0 - p), np.finfo(float).eps)))
        if now.sum() <= known.sum():
            break
        best, known = weights, now
    return LinearRule(best[:-1] / scale, best[-1], known)


def _newton(rows: Array, y: Array, precision: Array, weights: Array) -> tuple[Array, Array]:
    """[a; b] of rows with a last column of ones, most probable with the prior, and the Hessian there."""

    def loss(w: Array) -> float:
        log_odds = rows @ w
        return float(np.logaddexp(0.0, log_odds).sum() - y @ log_odds + 0.5 * precision @ w**2)

    value = loss(weights)
    for _ in range(STEPS):
        p = expit(rows @ weights)
        hessian = (rows.T * (p * (1.0 - p))) @ rows + np.diag(precision)
        gradient = rows.T @ (p - y) + precision * weights
        step = la.solve(hessian, gradient, assume_a="pos")
        gain, size = float(gradient @ step), 1.0
        if gain <= SETTLED * value:
            break
        while (now := loss(weights - size * step)) > value - 0.25 * size * gain and size > SETTLED:
            size /= 2.0
        weights, value = weights - size * step, now
    return weights, hessian


def _folds(codes: Integers) -> Integers:
    """The fold (n,) in which each row is left out: the rows in turn, class after class."""
    place = np.empty(len(codes), dtype=np.int64)
    place[np.argsort(codes, kind="stable")] = np.arange(len(codes))
    return place % FOLDS


def _of_classes(log_odds: Array, codes: Integers) -> Array:
    """The log-probabilities (n,) of the classes that rows have, by log-odds (n, C)."""
    return np.asarray(log_softmax(log_odds, axis=1)[np.arange(len(codes)), codes])


def _fitted(rows: Array, codes: Integers, variance: float, start: Array) -> Array:
    """[A; b] (K+1, C) of rows with a last column of ones, most probable with the prior."""
    precision = np.full((len(start), 1), 1.0 / variance)
    precision[-1] = 1.0 / OFFSET_VARIANCE
    at = np.arange(len(codes)), codes

    def loss(vector: Array) -> tuple[float, Array]:
        weights = vector.reshape(start.shape)
        logs = log_softmax(rows @ weights, axis=1)
        away = np.exp(logs)
        away[at] -= 1.0
        value = 0.5 * float((precision * weights**2).sum()) - float(logs[at].sum())
        return value, (rows.T @ away + precision * weights).ravel()

    def curvature(vector: Array) -> Any:  # a linear operator, which the types of SciPy do not know there
        p = np.exp(log_softmax(rows @ vector.reshape(start.shape), axis=1))

        def along(direction: Array) -> Array:
            step = direction.reshape(start.shape)
            moved = p * (rows @ step)
            return np.asarray(rows.T @ (moved - p * moved.sum(axis=1, keepdims=True)) + precision * step).ravel()

        return spla.LinearOperator((start.size, start.size), along, dtype=np.float64)

    # Newton's steps end so near to the maximum that what solver fitted the scores does not show.
    lowest = opt.minimize(
        loss, start.ravel(), jac=True, hess=curvature, method="Newton-CG", options={"maxiter": STEPS, "xtol": SETTLED}
    )
    return np.asarray(lowest.x).reshape(start.shape)
