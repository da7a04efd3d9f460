"""Regression with a prior of unknown variance, from sums over rows: the mean over the variances, by their evidence.

Where rows are few the largest evidence is hardly larger than that of other variances, and to take it would be to be
sure of too much.

Sources: MacKay (1992), "Bayesian interpolation"; Bishop (2006), sections 3.4 and 3.5, with the prior relative to the
noise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg as la
from scipy.special import logsumexp

from dlatent.arrays import Array
from dlatent.gaussian.expectation import LOG_2PI

STEP, LEAST, MOST = 0.25, -8.0, 9.0
"""Of the logarithms of prior variances, all of them as likely before the data: the step, a prior that leaves hardly
anything of w, and one where w explains thousands of times what the noise does."""
TINY = 1e-300


class RidgeSums(NamedTuple):
    """Sums for the regression of y on rows x (K): their number, their means (K,) and ȳ, and about these XᵀX (K, K),
    Xᵀy (K,) and yᵀy."""

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
    def within(cls, gram: Array, at: slice, output: Array) -> RidgeSums:
        """Those of y = Ta, with `output` a (L,), from the Gram matrix of [1, …, T], where X is `at`."""
        count, last = float(gram[0, 0]), slice(len(gram) - len(output), None)
        middle, offset = gram[0, at] / count, float(gram[0, last] @ output) / count
        cross, energy = gram[at, last] @ output, float(output @ gram[last, last] @ output)
        return cls(
            count,
            middle,
            offset,
            gram[at, at] - count * np.outer(middle, middle),
            cross - count * offset * middle,
            max(energy - count * offset**2, 0.0),
        )

    def turned(self, root: Array | None) -> RidgeSums:
        """Those of rows xR, R (K, K'); None where they stay as they are."""
        if root is None:
            return self
        return self._replace(middle=self.middle @ root, gram=root.T @ self.gram @ root, cross=root.T @ self.cross)


def prior_variances(rows: RidgeSums) -> Array:
    """The prior variances r."""
    ratios = np.exp(np.arange(LEAST, MOST + np.log(rows.samples), STEP))
    return np.asarray(ratios / max(float(np.trace(rows.gram)) / len(rows.gram), TINY))


class Axes(NamedTuple):
    """The eigenvalues s (K,) and vectors U (K, K) of XᵀX about the means, and some of the rows about these, XU (n, K):
    what all outputs of the same rows share."""

    values: Array
    vectors: Array
    rows: Array

    @classmethod
    def of(cls, sums: RidgeSums, x: Array) -> Axes:
        """Those of sums, and rows x (n, K)."""
        s, u = la.eigh(sums.gram)
        return cls(np.maximum(s, 0.0), u, (x - sums.middle) @ u)


class Ridge(NamedTuple):
    """Coefficients (K,), offset, the logarithm of the sum of the evidence of all r, and y − ŷ of some rows (n,), each
    with ŷ fitted to all rows but itself."""

    coefficients: Array
    offset: float
    evidence: float
    left_out: Array


def ridge(sums: RidgeSums, axes: Axes, y: Array) -> Ridge:
    """The regression y = b + Xw + ε, w ~ N(0, r σ² I), ε ~ N(0, σ² I), b flat, the mean over prior variances r in
    proportion to their evidence, and what it says of y (n,) of the rows of `axes`; O(nK + K²) for each r.

    With q = UᵀXᵀy about the means, and σ² at its maximum, the evidence of the n − 1 contrasts of y is

        log p(y | r) = −½ [(n − 1)(log 2πσ² + 1) + Σ log(1 + r s)],   (n − 1) σ² = yᵀy − Σ r q² / (1 + r s)

    What a row that is left out misses is the mean of (y − ŷ) / (1 − h), with its leverage h at r.
    """
    n, s, q, ratios = sums.samples, axes.values, axes.vectors.T @ sums.cross, prior_variances(sums)
    spread = 1.0 + ratios[:, None] * s
    left = sums.energy - (ratios[:, None] * q**2 / spread).sum(axis=1)
    noise = np.maximum(left, np.finfo(float).eps * sums.energy + TINY) / max(n - 1, 1)
    evidence = -0.5 * ((n - 1) * (LOG_2PI + np.log(noise) + 1.0) + np.log(spread).sum(axis=1))
    total = float(logsumexp(evidence))
    share = np.exp(evidence - total)
    gains = ratios[:, None] / spread
    w = axes.vectors @ (share @ gains * q)
    leverage = axes.rows**2 @ gains.T + 1.0 / n
    missed = (y - sums.offset)[:, None] - axes.rows @ (gains * q).T
    missed = missed / np.maximum(1.0 - leverage, np.finfo(float).eps) @ share
    return Ridge(w, sums.offset - float(sums.middle @ w), total, missed)
