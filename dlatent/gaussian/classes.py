"""Class probabilities by Bayes' rule: classes are points of the second view, and the model has a density of features
beside each.

p(c | x) ∝ π_c p(x | y = t_c), the rule of linear discriminant analysis with the means and the covariance of the model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from dlatent.arrays import Array


class ClassRule(NamedTuple):
    """What tells classes apart.

    Parameters
    ----------
    points : W_yᵀ(t_c − μ_y) (K, C), the classes in the latent space.
    gram : W_yᵀW_y (K, K).
    noise : σ_y².
    log_shares : log π_c (C,), of the parts that the classes have of all.
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

    def log_probabilities(self, means: Array, covariance: Array) -> Array:
        """log p(c | x) (n, C) of rows of which z | x ~ N(means, covariance) is known: (n, K), and (K, K) for all rows
        or (n, K, K).

        With a_c the points, G the gram and V the covariance, from p(x | t) ∝ p(t | x) / p(t) by Woodbury,

            log p(c | x) = log π_c + δ [m·r_c + (a_c·V r_c − a_c·s_c) / 2σ_y²] + …,
            (σ_y²I + GV) r_c = a_c,   (σ_y²I + G) s_c = a_c.
        """
        basis = self.noise * np.eye(len(self.gram))
        given = np.linalg.solve(basis + self.gram @ covariance, self.points)
        before = np.linalg.solve(basis + self.gram, self.points)
        squares = (self.points * (covariance @ given)).sum(axis=-2) - (self.points * before).sum(axis=0)
        linear = np.einsum("nk,nkc->nc", means, given) if covariance.ndim == 3 else means @ given
        found = self.log_shares + self.precision * (linear + 0.5 * squares / self.noise)
        return np.asarray(found - logsumexp(found, axis=1, keepdims=True))
