"""Classes by a linear rule with a normal prior, whose variance is that by which rows that are left out are told best.

    p(c | x) ∝ exp(x a_c + b_c),   a_c ~ N(0, v I)

Nothing is said of how the rows of a class lie, so that with many rows it tells what normal classes with one covariance
(`discriminants`) do not; with few these know more.
Source: Bishop (2006), section 4.3.4; Liu and Nocedal (1989) for the steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.optimize as opt
from scipy.special import log_softmax

from dlatent.arrays import Array, Integers

VARIANCES = 10.0 ** np.arange(-1.0, 4.0)
"""The variances v that are compared, for rows of mean square 1 in each direction, while they become better."""
OFFSET_VARIANCE = 1e3
"""That of b: so wide that it matters only where a class has no rows."""
FOLDS = 5
STEPS, SETTLED = 100, 1e-6
"""Quasi-Newton steps at most, and the relative change at which they end."""


class Softmax(NamedTuple):
    """A (K, C) and b (C,), and the log-probabilities (n,) of the classes of rows that are left out."""

    coefficients: Array
    offsets: Array
    left_out: Array


def softmax(x: Array, codes: Integers, classes: int) -> Softmax:
    """The rule of rows x (n, K) and their classes (n,), with the best of `VARIANCES`; O(nKC) a step."""
    scale = float(np.sqrt(max(np.mean(x**2), np.finfo(float).tiny)))
    rows = np.column_stack([x / scale, np.ones(len(x))])
    fold, rest = _folds(codes), np.zeros((FOLDS, rows.shape[1], classes))
    best, known = VARIANCES[0], np.full(len(codes), -np.inf)
    for variance in VARIANCES:
        now = np.empty(len(codes))
        for number in range(FOLDS):
            out = fold == number
            rest[number] = _fitted(rows[~out], codes[~out], variance, rest[number])
            now[out] = _log_probabilities(rows[out], codes[out], rest[number])
        if now.sum() <= known.sum():
            break
        best, known = variance, now
    found = _fitted(rows, codes, best, rest.mean(axis=0))
    return Softmax(found[:-1] / scale, found[-1], known)


def _folds(codes: Integers) -> Integers:
    """The fold (n,) in which each row is left out: the rows of a class in turn."""
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes)
    place = np.empty(len(codes), dtype=np.int64)
    place[order] = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    return place % FOLDS


def _log_probabilities(rows: Array, codes: Integers, weights: Array) -> Array:
    """Those of the classes that rows have (n,)."""
    return np.asarray(log_softmax(rows @ weights, axis=1)[np.arange(len(codes)), codes])


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

    found = opt.minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": STEPS, "ftol": SETTLED})
    return np.asarray(found.x).reshape(start.shape)
