"""Regression of one target on scores: a Gaussian prior on the coefficients, whose variance is found by evidence.

y = b + Xw + ε,  w ~ N(0, r σ² I),  ε ~ N(0, σ² I),  b flat.

Sources: MacKay (1992), "Bayesian interpolation"; Bishop (2006), section 3.5, with the prior relative to the noise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array
from dlatent.linear_gaussian.expectation import LOG_2PI

STEP, LEAST, MOST = 0.125, -14.0, 9.0
"""Of the logarithms of prior variances that are compared: the step, a prior that leaves nothing of w, and one where w
explains thousands of times what the noise does.  The evidence may have several maxima; a grid has the best."""
TINY = 1e-300


def prior_variances(x: Array) -> Array:
    """The prior variances r that are compared for rows x (n, K) about their mean."""
    found = np.exp(np.arange(LEAST, MOST + np.log(len(x)), STEP))
    return np.asarray(found / max(float((x**2).sum()) / x.shape[1], TINY))


class Ridge(NamedTuple):
    """Coefficients (K,), offset, log evidence in nats, and y − ŷ of each row (n,) with ŷ fitted to the other rows."""

    coefficients: Array
    offset: float
    evidence: float
    left_out: Array


def ridge(x: Array, y: Array) -> Ridge:
    """The regression of y (n,) on x (n, K) with the prior variance of the largest evidence; O(nK² + K³).

    With s the eigenvalues of XᵀX and q = UᵀXᵀy about the means, and σ² at its maximum, the evidence of the n − 1
    contrasts of y is

        log p(y | r) = −½ [(n − 1)(log 2πσ² + 1) + Σ log(1 + r s)],   (n − 1) σ² = yᵀy − Σ r q² / (1 + r s)

    What a row that is left out misses is (y − ŷ) / (1 − h), with its leverage h at the same r.
    """
    n, middle, offset = len(y), x.mean(axis=0), float(y.mean())
    inside, rest = x - middle, y - offset
    s, u = la.eigh(inside.T @ inside)
    s, q, energy = np.maximum(s, 0.0), u.T @ (inside.T @ rest), float(rest @ rest)
    ratios = prior_variances(inside)
    spread = 1.0 + ratios[:, None] * s
    left = np.maximum(energy - (ratios[:, None] * q**2 / spread).sum(axis=1), np.finfo(float).eps * energy + TINY)
    noise = left / max(n - 1, 1)
    evidence = -0.5 * ((n - 1) * (LOG_2PI + np.log(noise) + 1.0) + np.log(spread).sum(axis=1))
    best = int(evidence.argmax())
    gain = (u * (ratios[best] / spread[best])) @ u.T
    w = gain @ (inside.T @ rest)
    leverage = ((inside @ gain) * inside).sum(axis=1) + 1.0 / n
    missed = (rest - inside @ w) / np.maximum(1.0 - leverage, np.finfo(float).eps)
    return Ridge(w, offset - float(middle @ w), float(evidence[best]), missed)
