"""Classes as normal distributions with one covariance, whose prior is found by evidence.

x | c ~ N(m_c, Σ),  m_c | Σ ~ N(0, Σ/κ),  Σ ~ W⁻¹(aI, ν): linear discriminants that two rows a class do not break.

Sources: Murphy (2012), section 4.6.3, for the evidence; Guo, Hastie and Tibshirani (2007) for one shrunken covariance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, multigammaln

from dlatent.arrays import Array, Integers

MEAN_ROWS = np.exp(np.arange(-8.0, 6.1, 0.5))
"""Numbers κ of rows, for which the prior of a mean counts, that are compared."""
COVARIANCE_ROWS = np.exp(np.arange(-3.0, 9.1, 1.0 / 3.0))
"""Numbers ν − K − 1 that are compared, for the prior of the covariance."""
SCALES = np.exp(np.arange(-12.0, 11.1, 0.25))
"""The scales a that are compared, relative to the mean square of the rows."""
COOLEST = -7.0
"""Logarithm of the smallest factor of the log-odds."""


class ClassSums(NamedTuple):
    """What the classes of rows x (n, K) follow from, additive over rows: XᵀX (K, K), the sums of the rows of each class
    (C, K), and their numbers (C,)."""

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


class Discriminants(NamedTuple):
    """Log-odds x A + b up to a number for each row, with A (K, C) and b (C,), and those of some training rows (n, C),
    each by all rows but itself."""

    coefficients: Array
    offsets: Array
    left_out: Array

    def log_probabilities(self, codes: Integers) -> Array:
        """Log-probabilities of the classes (n,) of rows that are left out."""
        return np.asarray(log_softmax(self.left_out, axis=1)[np.arange(len(codes)), codes])


def prior(rows: ClassSums) -> Prior:
    """The prior of the largest evidence on a grid; O(K³).

    With n_c rows of sum t_c in class c, and the eigenvalues e of S = XᵀX − Σ t_c t_cᵀ / (κ + n_c),

        log p(X) = −½ nK log π + log Γ_K((ν + n)/2) − log Γ_K(ν/2) + ½ νK log a − ½ (ν + n) Σ log(e + a)
                   + ½ K Σ_c log(κ / (κ + n_c))
    """
    (gram, totals, counts), found = rows, list[Prior]()
    n, k = float(counts.sum()), len(gram)
    scales, degrees = SCALES * max(float(np.trace(gram)) / (n * k), np.finfo(float).tiny), COVARIANCE_ROWS + k + 1.0
    constant = multigammaln((degrees + n) / 2.0, k) - multigammaln(degrees / 2.0, k) - 0.5 * n * k * np.log(np.pi)
    for mean_rows in MEAN_ROWS:
        e = np.maximum(la.eigvalsh(gram - (totals.T / (mean_rows + counts)) @ totals), 0.0)
        both = np.log(e + scales[:, None]).sum(axis=1)
        own = constant + 0.5 * k * float(np.log(mean_rows / (mean_rows + counts)).sum())
        value = own + 0.5 * degrees * k * np.log(scales)[:, None] - 0.5 * (degrees + n) * both[:, None]
        at = np.unravel_index(value.argmax(), value.shape)
        found.append(Prior(float(mean_rows), float(degrees[at[1]]), float(scales[at[0]]), float(value[at])))
    return max(found, key=lambda one: one.evidence)


def discriminants(rows: ClassSums, x: Array, codes: Integers, shares: Array) -> Discriminants:
    """Classes of rows with the prior of the largest evidence, and log-odds that are as sure as they are right, as some
    of the rows x (n, K) and their classes (n,) tell.

    With the means m_c = t_c / (κ + n_c), the covariance V = (aI + S) / (ν − K − 1 + n) and shares π_c (C,),

        log p(c | x) = τ [x V⁻¹ m_c − ½ m_cᵀV⁻¹m_c + log π_c] + …,

    where τ ≤ 1 makes the classes of rows that are left out most probable.
    """
    found, (gram, totals, counts), k = prior(rows), rows, len(rows.gram)
    weights, degrees = found.mean_rows + counts, found.degrees - k - 1.0 + float(counts.sum())
    means = totals / weights[:, None]
    scatter = gram - (means * weights[:, None]).T @ means + found.scale * np.eye(k)
    inverse, log_shares = la.inv(scatter), np.log(shares)
    coefficients = degrees * (inverse @ means.T)
    offsets = log_shares - 0.5 * (means * coefficients.T).sum(axis=1)
    left_out = (degrees - 1.0) * _left_out(x, codes, means, weights, inverse) + log_shares
    cool = temperature(left_out, codes)
    return Discriminants(cool * coefficients, cool * offsets, cool * left_out)


def _left_out(x: Array, codes: Integers, means: Array, weights: Array, inverse: Array) -> Array:
    """x S⁻¹ m_c − ½ m_cᵀS⁻¹m_c (n, C) of each row by the means and the scatter S of the other rows; O(nK(K + C)).

    Without a row of class y the scatter loses g d dᵀ, d = x − m_y and g = w_y / (w_y − 1), and m_y = t_y / w_y becomes
    (w_y m_y − x) / (w_y − 1); the inverse follows by Sherman and Morrison.
    """
    rows, own = np.arange(len(x)), weights[codes]
    moved = x - means[codes]
    v = moved @ inverse
    factor = 1.0 / ((own - 1.0) / own - (v * moved).sum(axis=1))
    known, along = inverse @ means.T, v @ means.T
    x_v = (x * v).sum(axis=1)
    linear = x @ known + (factor * x_v)[:, None] * along
    square = (means * known.T).sum(axis=1) + factor[:, None] * along**2
    without = (own[:, None] * means[codes] - x) / (own - 1.0)[:, None]
    turned, without_v = without @ inverse, (without * v).sum(axis=1)
    linear[rows, codes] = (turned * x).sum(axis=1) + factor * x_v * without_v
    square[rows, codes] = (turned * without).sum(axis=1) + factor * without_v**2
    return np.asarray(linear - 0.5 * square)


def temperature(log_odds: Array, codes: Integers) -> float:
    """The factor of at most 1 that makes the classes (n,) most probable by their log-odds (n, C); see Guo et al.
    (2017), "On calibration of modern neural networks"."""
    rows = np.arange(len(codes))

    def loss(log_factor: float) -> float:
        return -float(log_softmax(np.exp(log_factor) * log_odds, axis=1)[rows, codes].sum())

    found = float(minimize_scalar(loss, bounds=(COOLEST, 0.0), method="bounded").x)
    return float(np.exp(min((0.0, found), key=loss)))
