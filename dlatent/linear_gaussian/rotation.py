"""Rotations of loadings to simple structure: varimax, and promax, after which factors may correlate.

Sources: Kaiser (1958), with row normalisation; Hendrickson and White (1964).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array
from dlatent.linear_gaussian.canonical import column_signs

TOLERANCE = 1e-12
MAX_STEPS = 1000


class Rotated(NamedTuple):
    """Loadings Λ = W T (D, K) on factors f = T⁻¹z with correlations Φ = (TᵀT)⁻¹ (K, K), and T (K, K).

    W Wᵀ = Λ Φ Λᵀ, so that the model is the same.
    """

    loadings: Array
    correlations: Array
    transformation: Array


def varimax(loadings: Array) -> Rotated:
    """The orthogonal T with the largest Σ_k Var_j(λ_jk²) of the loadings (D, K), rows scaled to length 1 meanwhile.

    Law: the criterion does not fall from step to step; features without loadings are left out.
    """
    lengths = np.sqrt((loadings**2).sum(axis=1))
    rows = loadings[lengths > 0] / lengths[lengths > 0, None]
    turn = np.eye(loadings.shape[1])
    before = -np.inf
    for _ in range(MAX_STEPS):
        turned = rows @ turn
        squares = turned**2
        left, _, right = la.svd(rows.T @ (turned * (squares - squares.mean(axis=0))))
        value = float(squares.var(axis=0).sum())
        if value <= before + TOLERANCE * max(abs(value), TOLERANCE):
            break
        before, turn = value, left @ right
    return _ordered(loadings, turn)


def promax(loadings: Array, power: float = 4.0) -> Rotated:
    """From varimax, the oblique T whose loadings come nearest to the `power`-th powers of its loadings."""
    turn = varimax(loadings).transformation
    simple = loadings @ turn
    target = np.abs(simple) ** power * np.sign(simple)
    oblique = la.lstsq(simple, target)[0]
    # Columns are scaled so that the factors (UᵀU)⁻¹ have variance 1.
    oblique = oblique * np.sqrt(np.diag(la.inv(oblique.T @ oblique)))
    return _ordered(loadings, turn @ oblique)


def _ordered(loadings: Array, turn: Array) -> Rotated:
    """Factors in decreasing order of Σ_j λ_jk², the largest loading of each positive."""
    order = np.argsort(-((loadings @ turn) ** 2).sum(axis=0), kind="stable")
    turn = turn[:, order]
    turn = turn * column_signs(loadings @ turn)
    return Rotated(loadings @ turn, la.inv(turn.T @ turn), turn)
