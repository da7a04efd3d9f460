"""Regression of one target on scores: a Gaussian prior on the coefficients, whose variance is found by evidence.

y = b + Xw + ε,  w ~ N(0, r σ² I),  ε ~ N(0, σ² I),  b flat.

Sources: MacKay (1992), "Bayesian interpolation"; Bishop (2006), section 3.5, with the prior relative to the noise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array
from dlatent.gaussian.expectation import LOG_2PI

STEP, LEAST, MOST = 0.125, -14.0, 9.0
"""Of the logarithms of prior variances that are compared: the step, a prior that leaves nothing of w, and one where w
explains thousands of times what the noise does.  The evidence may have several maxima; a grid has the best."""
TINY = 1e-300


class RidgeSums(NamedTuple):
    """What the regression of y on rows x (K) follows from: their number, their means (K,) and ȳ, and about these XᵀX
    (K, K), Xᵀy (K,) and yᵀy."""

    samples: float
    middle: Array
    offset: float
    gram: Array
    cross: Array
    energy: float

    @classmethod
    def of(cls, x: Array, y: Array) -> RidgeSums:
        """Those of rows x (n, K) and y (n,)."""
        middle, offset = x.mean(axis=0), float(y.mean())
        inside, rest = x - middle, y - offset
        return cls(float(len(y)), middle, offset, inside.T @ inside, inside.T @ rest, float(rest @ rest))

    @classmethod
    def within(cls, gram: Array, k: int, output: Array) -> RidgeSums:
        """Those of y = Ta, with `output` a (L,), from the Gram matrix of [1, X, T] (1 + K + L)²."""
        count, first = float(gram[0, 0]), gram[1 : k + 1]
        middle, offset = first[:, 0] / count, float(gram[0, k + 1 :] @ output) / count
        cross, energy = first[:, k + 1 :] @ output, float(output @ gram[k + 1 :, k + 1 :] @ output)
        return cls(
            count,
            middle,
            offset,
            first[:, 1 : k + 1] - count * np.outer(middle, middle),
            cross - count * offset * middle,
            max(energy - count * offset**2, 0.0),
        )

    def turned(self, root: Array) -> RidgeSums:
        """Those of rows xR, R (K, K')."""
        return self._replace(middle=self.middle @ root, gram=root.T @ self.gram @ root, cross=root.T @ self.cross)


def prior_variances(rows: RidgeSums) -> Array:
    """The prior variances r that are compared."""
    found = np.exp(np.arange(LEAST, MOST + np.log(rows.samples), STEP))
    return np.asarray(found / max(float(np.trace(rows.gram)) / len(rows.gram), TINY))


class Ridge(NamedTuple):
    """Coefficients (K,), offset, log evidence in nats, and y − ŷ of some rows (n,), each with ŷ fitted to all rows but
    itself."""

    coefficients: Array
    offset: float
    evidence: float
    left_out: Array


def ridge(rows: RidgeSums, x: Array, y: Array) -> Ridge:
    """The regression with the prior variance of the largest evidence, and what it says of some of the rows, x (n, K)
    and y (n,); O(nK² + K³).

    With s the eigenvalues of XᵀX and q = UᵀXᵀy about the means, and σ² at its maximum, the evidence of the n − 1
    contrasts of y is

        log p(y | r) = −½ [(n − 1)(log 2πσ² + 1) + Σ log(1 + r s)],   (n − 1) σ² = yᵀy − Σ r q² / (1 + r s)

    What a row that is left out misses is (y − ŷ) / (1 − h), with its leverage h at the same r.
    """
    n, middle, offset, gram, cross, energy = rows
    s, u = la.eigh(gram)
    s, q = np.maximum(s, 0.0), u.T @ cross
    ratios = prior_variances(rows)
    spread = 1.0 + ratios[:, None] * s
    left = np.maximum(energy - (ratios[:, None] * q**2 / spread).sum(axis=1), np.finfo(float).eps * energy + TINY)
    noise = left / max(n - 1, 1)
    evidence = -0.5 * ((n - 1) * (LOG_2PI + np.log(noise) + 1.0) + np.log(spread).sum(axis=1))
    best = int(evidence.argmax())
    gain = (u * (ratios[best] / spread[best])) @ u.T
    w, inside, rest = gain @ cross, x - middle, y - offset
    leverage = ((inside @ gain) * inside).sum(axis=1) + 1.0 / n
    missed = (rest - inside @ w) / np.maximum(1.0 - leverage, np.finfo(float).eps)
    return Ridge(w, offset - float(middle @ w), float(evidence[best]), missed)
