"""PPCA of complete data with a prior on the loadings whose variances the evidence chooses, in closed form.

With w_j ~ N(0, V), z ~ N(0, I), and q(w) q(z) of the best V, the components of complete data are those of PCA.  For the
noise variance σ² and the singular value γ of the centred N × D data, a component that is on reconstructs γ̂ of it,

    γ̂ = γ/2 (1 − (N+D)σ²/γ² + √((1 − (N+D)σ²/γ²)² − 4NDσ⁴/γ⁴)),   δ = γ̂/N + σ²/γ
    W = √(γ̂δ) u,   Σ_kk = σ²δ/γ,   C_kk = σ²/(γδ)

and adds ½ (N log C_kk + γ̂/(δ C_kk)) − ½ D log [(γ̂δ/D + Σ_kk)/Σ_kk] to the bound; it is on where that is positive.
What is left is a search for σ².
Sources: Nakajima, Sugiyama, Babacan and Tomioka (2013), "Global analytic solution of fully-observed variational
Bayesian matrix factorization", and (2015), "Condition for perfect dimensionality recovery by variational Bayesian PCA".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.optimize as opt

from dlatent.arrays import Array
from dlatent.linear_gaussian.expectation import LOG_2PI
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.operators.batched import triangle

SCANNED = 400
"""Noise variances in the first scan."""
SMALLEST = 1e-12
"""Part of the mean variance of the features below which no noise variance is looked for."""


class Components(NamedTuple):
    """For each component (…, K) what it adds to the bound, the squared length of its loadings and their variance Σ_kk;
    where it is off, zeros."""

    worth: Array
    length: Array
    spread: Array


def components(noise: Array, values: Array, samples: float, features: int) -> Components:
    """The best components for noise variances (…, 1) from the leading eigenvalues (K,) of the covariance."""
    squares = np.maximum(samples * values, np.finfo(float).tiny)
    ratio = noise / squares
    linear = 1.0 - (samples + features) * ratio
    root = linear**2 - 4.0 * samples * features * ratio**2
    there = (linear > 0.0) & (root > 0.0)
    gamma = np.sqrt(squares)
    shrunk = np.where(there, 0.5 * gamma * (linear + np.sqrt(np.where(there, root, 1.0))), 1.0)
    delta = shrunk / samples + noise / gamma
    spread, certainty, length = noise * delta / gamma, noise / (gamma * delta), shrunk * delta
    rows = samples * np.log(certainty) + shrunk / (delta * certainty)
    worth = 0.5 * (rows - features * np.log1p(length / (features * spread)))
    on = there & (worth > 0.0)
    return Components(*(np.where(on, part, 0.0) for part in (worth, length, spread)))


def shrunk(parameters: Parameters, samples: float, total: float, floor: float) -> tuple[Parameters, float]:
    """The model with the prior, and its bound, from the maximum of the likelihood of N samples whose features have
    variances of the sum `total`; O(DK), no data access."""
    features, k = parameters.loadings.shape
    lengths = (parameters.loadings**2).sum(axis=0)
    values = lengths + parameters.noise_variance[0]

    def bound(noise: Array) -> Array:
        each = noise[:, None]
        alone = features * (LOG_2PI + np.log(noise)) + total / noise
        return np.asarray(components(each, values, samples, features).worth.sum(axis=1) - 0.5 * samples * alone)

    most = total / features
    scan = np.geomspace(max(floor, SMALLEST * most), most, SCANNED)
    best = int(bound(scan).argmax())
    low, high = np.log(scan[max(best - 1, 0)]), np.log(scan[min(best + 1, SCANNED - 1)])
    found = opt.minimize_scalar(
        lambda at: -float(bound(np.exp([at]))[0]), bounds=(low, high), method="bounded", options={"xatol": 1e-12}
    )
    ends = np.array([np.exp(found.x), scan[best]])
    noise = ends[int(bound(ends).argmax())]
    on = components(np.array([noise]), values, samples, features)
    scale = np.sqrt(np.divide(on.length, lengths, out=np.zeros(k), where=lengths > 0.0))
    first, second = triangle(k)
    covariance = np.where(first == second, on.spread[first], 0.0)[None]
    made = Parameters(parameters.loadings * scale, parameters.mean, np.array([noise]), covariance)
    return made, float(bound(np.array([noise]))[0])
