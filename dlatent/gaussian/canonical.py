"""Rotations of the latent space: one representative of all, and those to simple structure.

The likelihood does not change when W becomes WR with R orthogonal.  The canonical form, by which two fits can be
compared, has WᵀΨ⁻¹W diagonal and decreasing (SPPCA, section 5.1, with the noise weights of errata 10) and the entry of
largest magnitude of every column of the first view positive.  Where loadings are uncertain, Σ_j E[w_j w_jᵀ]/ψ_j is
diagonal, or what a prior asks for: its variance is a number for each component along its own axes alone.

Simple structure is that of varimax and quartimax, or of promax and oblimin, after which factors may correlate.
Sources: Kaiser (1958), with row normalisation; Neuhaus and Wrigley (1954); Hendrickson and White (1964); Jennrich and
Sampson (1966), by the gradient projection of Jennrich (2002).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.operators.symmetric import unpacked

TOLERANCE = 1e-12
MAX_STEPS = 1000
MAX_HALVINGS = 30
FLAT = 1e-9
"""Length of a projected gradient at which an oblique rotation ends."""


def column_signs(loadings: Array) -> Array:
    """The sign of each column's entry of largest magnitude (+1 for a zero column)."""
    largest = np.abs(loadings).argmax(axis=0)
    signs = np.sign(loadings[largest, np.arange(loadings.shape[1])])
    return np.where(signs == 0, 1.0, signs)


def canonical(parameters: Parameters, specification: Specification, weight: Array | None = None) -> Parameters:
    """The model with canonical rotation, order and signs; `weight` (K, K) is made diagonal in the place of the
    above, a level of the samples aside."""
    spread, k = parameters.loadings_covariance, parameters.loadings.shape[1]
    free = k - int(specification.row_effects)
    if weight is None:
        noise = specification.per_feature(parameters.noise_variance)
        scaled = parameters.loadings / np.sqrt(noise)[:, None]
        weight = scaled.T @ scaled
        if spread is not None:
            weight += unpacked((spread / noise[:, None]).sum(axis=0), len(weight))
    # A level of the samples is an axis of its own.
    rotation = np.eye(k)
    rotation[:free, :free] = la.eigh(weight[:free, :free])[1][:, ::-1] if free else 0.0
    signs = column_signs((parameters.loadings @ rotation)[specification.slices[0]])
    return parameters.turned(rotation * signs)


class Rotated(NamedTuple):
    """Loadings Λ = W T (D, K) on factors f = T⁻¹z with correlations Φ = (TᵀT)⁻¹ (K, K), and T (K, K).

    W Wᵀ = Λ Φ Λᵀ, so that the model is the same.
    """

    loadings: Array
    correlations: Array
    transformation: Array


def varimax(loadings: Array) -> Rotated:
    """The orthogonal T with the largest Σ_k Var_j(λ_jk²) of the loadings (D, K), rows scaled to length 1 meanwhile."""
    return _ordered(loadings, _orthomax(_unit_rows(loadings), 1.0))


def quartimax(loadings: Array) -> Rotated:
    """The orthogonal T with the largest Σ_jk λ_jk⁴ of the loadings (D, K), rows scaled to length 1 meanwhile."""
    return _ordered(loadings, _orthomax(_unit_rows(loadings), 0.0))


def _unit_rows(loadings: Array) -> Array:
    """The rows scaled to length 1; features without loadings are left out."""
    lengths = np.sqrt((loadings**2).sum(axis=1))
    return np.asarray(loadings[lengths > 0] / lengths[lengths > 0, None])


def _orthomax(rows: Array, weight: float) -> Array:
    """The orthogonal T (K, K) with the largest Σ_k [mean_j λ_jk⁴ − weight · (mean_j λ_jk²)²].

    Law: the criterion does not fall from step to step.
    """
    turn = np.eye(rows.shape[1])
    before = -np.inf
    for _ in range(MAX_STEPS):
        turned = rows @ turn
        squares = turned**2
        means = squares.mean(axis=0)
        left, _, right = la.svd(rows.T @ (turned * (squares - weight * means)))
        value = float(((squares**2).mean(axis=0) - weight * means**2).sum())
        if value <= before + TOLERANCE * max(abs(value), TOLERANCE):
            break
        before, turn = value, left @ right
    return np.asarray(turn)


def promax(loadings: Array, power: float = 4.0) -> Rotated:
    """From varimax, the oblique T whose loadings come nearest to the `power`-th powers of its loadings, rows scaled to
    length 1 meanwhile."""
    turn = varimax(loadings).transformation
    simple = _unit_rows(loadings) @ turn
    target = np.abs(simple) ** power * np.sign(simple)
    oblique = la.lstsq(simple, target)[0]
    # Columns are scaled so that the factors (UᵀU)⁻¹ have variance 1.
    oblique = oblique * np.sqrt(np.diag(la.inv(oblique.T @ oblique)))
    return _ordered(loadings, turn @ oblique)


def oblimin(loadings: Array) -> Rotated:
    """The oblique T with the smallest Σ_j Σ_{k<l} λ_jk² λ_jl² (direct oblimin with γ = 0, quartimin) near varimax, rows
    scaled to length 1 meanwhile.

    Steps go down the gradient by U = T⁻ᵀ, whose columns stay of length 1.
    Law: the criterion does not rise from step to step.
    """
    rows = _unit_rows(loadings)
    axes, step = _orthomax(rows, 1.0), 1.0
    value, slope = _quartimin(rows, axes)
    for _ in range(MAX_STEPS):
        along = slope - axes * (axes * slope).sum(axis=0)
        size = float((along**2).sum())
        if size <= FLAT**2:
            break
        step *= 2.0
        for _ in range(MAX_HALVINGS):
            moved = axes - step * along
            moved = moved / la.norm(moved, axis=0)
            below, next_slope = _quartimin(rows, moved)
            if below <= value - 0.5 * step * size:
                break
            step /= 2.0
        else:
            break  # no step lowers the criterion by more than rounding
        axes, value, slope = moved, below, next_slope
    return _ordered(loadings, np.asarray(la.inv(axes).T))


def _quartimin(rows: Array, axes: Array) -> tuple[float, Array]:
    """½ Σ_j Σ_{k<l} λ_jk² λ_jl² of Λ = rows · U⁻ᵀ, and its gradient by U (K, K)."""
    back = la.inv(axes)
    turned = rows @ back.T
    squares = turned**2
    others = squares.sum(axis=1, keepdims=True) - squares
    return float((squares * others).sum()) / 4.0, -(turned.T @ (turned * others) @ back).T


def _ordered(loadings: Array, turn: Array) -> Rotated:
    """Factors in decreasing order of Σ_j λ_jk², the largest loading of each positive."""
    order = np.argsort(-((loadings @ turn) ** 2).sum(axis=0), kind="stable")
    turn = turn[:, order]
    turn = turn * column_signs(loadings @ turn)
    return Rotated(loadings @ turn, la.inv(turn.T @ turn), turn)
