"""Factor analysis of complete data: one noise variance for each feature, from moments.

For fixed Ψ the best loadings are eigenvectors of Ψ^(-1/2) S Ψ^(-1/2), as in `spectral`; what is left is the profile
likelihood, a smooth function of log ψ (D,), which quasi-Newton steps climb where EM needs hundreds of iterations.
Sources: Jöreskog (1967); Lawley and Maxwell (1971), chapter 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg as la
import scipy.optimize as opt

from dlatent.arrays import Array
from dlatent.linear_gaussian.moments import Moments
from dlatent.linear_gaussian.specification import Specification
from dlatent.linear_gaussian.spectral import Profile, Solution

GRADIENT = 1e-9
"""Largest derivative of the log-likelihood per instance by a log noise variance at which the search ends."""
MAX_STEPS = 1000
SMALL = 500
"""Features up to which the maximum is polished by Newton steps."""
NEWTON_STEPS = 5


class Factors(NamedTuple):
    """The best maximum found, the log-likelihoods on the way to it, and whether the search came to its end."""

    solution: Solution
    path: tuple[float, ...]
    converged: bool


def factors(moments: Moments, specification: Specification, report: Callable[[float], None] | None = None) -> Factors:
    """Maximum-likelihood factor analysis from moments about the mean: the better of the maxima above two starts.

    Each step costs one partial eigendecomposition of a D × D matrix.  Noise variances stay between the floors of the
    specification and the variances of the features.
    """
    profile = Profile(moments, specification)
    upper = np.log(np.maximum(profile.energies, specification.floors))
    lower = np.minimum(np.log(np.maximum(specification.floors, np.finfo(float).tiny)), upper)
    found = [_climb(profile, np.clip(s, lower, upper), lower, upper) for s in _starts(profile, specification)]
    best = max(found, key=lambda one: one.solution.log_likelihood)
    for value in best.path if report is not None else ():
        assert report is not None
        report(value)
    return best


def _starts(profile: Profile, specification: Specification) -> list[Array]:
    """Log noise variances: parts of what the other features leave unexplained (Jöreskog), and those of PPCA of the
    correlations."""
    size, k = len(profile.second), specification.n_components
    spread = np.sqrt(np.maximum(profile.energies, np.finfo(float).tiny))
    correlations = profile.second / spread[:, None] / spread
    values = la.eigvalsh(correlations)
    even = np.full(size, np.log(max(float(values[: size - k].mean()), 1e-3)))
    starts = [even + 2.0 * np.log(spread)]
    if values[0] > 1e-10 * values[-1]:
        alone = 1.0 / np.diag(la.inv(correlations))
        starts.append(np.log((1.0 - 0.5 * k / size) * alone) + 2.0 * np.log(spread))
    return starts


def _climb(profile: Profile, start: Array, lower: Array, upper: Array) -> Factors:
    values = [-profile(start)[0]]

    def note(intermediate_result: opt.OptimizeResult) -> None:
        values.append(-float(intermediate_result.fun))

    best = opt.minimize(
        profile,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(lower, upper, strict=True)),
        callback=note,
        options={"ftol": 0.0, "gtol": GRADIENT, "maxiter": MAX_STEPS, "maxcor": 30},
    )
    free = (best.x > lower) & (best.x < upper)
    settled = bool(np.abs(best.jac[free]).max(initial=0.0) <= 1e3 * GRADIENT)
    found = _polished(profile, best.x, free, lower, upper) if settled and len(best.x) <= SMALL else best.x
    solution = profile.solution(found)
    count = profile.moments.patterns[0].instances
    path = (*(count * value for value in values[:-1]), solution.log_likelihood)
    return Factors(solution, path, bool(best.success) or settled)


def _polished(profile: Profile, point: Array, free: np.ndarray, lower: Array, upper: Array) -> Array:
    """Newton steps as long as they make the gradient smaller: values near the maximum differ by less than rounding."""
    best = np.abs(profile(point)[1][free]).max(initial=0.0)
    for _ in range(NEWTON_STEPS):
        value, slope = profile(point)
        step = np.zeros_like(point)
        step[free] = la.lstsq(hessian(profile, point)[np.ix_(free, free)], slope[free])[0]
        moved = np.clip(point - step, lower, upper)
        above, slope = profile(moved)
        size = np.abs(slope[free]).max(initial=0.0)
        if not size < 0.5 * best or above > value + 1e-12 * max(abs(value), 1.0):
            break
        point, best = moved, size
    return point


def hessian(profile: Profile, log_variance: Array) -> Array:
    """Second derivatives of the profile objective by the log noise variances (D, D); O(K D³).

    With eigenpairs (λ_m, u_m) of Ψ^(-1/2)SΨ^(-1/2), k over the factors and m over the others,
    ½ [Σ u_m u_mᵀ ∘ Σ λ_m u_m u_mᵀ + Σ_k u_k u_kᵀ ∘ Σ_m (1 − λ_m)(λ_k + λ_m)/(λ_k − λ_m) u_m u_mᵀ].
    Source: Lawley and Maxwell (1971), chapter 2, in log ψ.
    """
    scale = np.exp(-0.5 * log_variance)
    values, vectors = la.eigh(profile.second * scale[:, None] * scale)
    k = min(profile.specification.n_components, int((values > 1.0).sum()))
    rest, outer = values[: len(values) - k], vectors[:, : len(values) - k]
    found = (outer @ outer.T) * ((outer * rest) @ outer.T)
    for value, vector in zip(values[len(rest) :], vectors[:, len(rest) :].T, strict=True):
        weights = (1.0 - rest) * (value + rest) / (value - rest)
        found += np.outer(vector, vector) * ((outer * weights) @ outer.T)
    return 0.5 * found


def bartlett_coefficients(loadings: Array, noise: Array) -> Array:
    """(WᵀΨ⁻¹W)⁻¹WᵀΨ⁻¹ (K, D): the weighted least-squares scores, unbiased given the factors (Bartlett 1937)."""
    scaled = loadings / noise[:, None]
    return np.asarray(la.solve(loadings.T @ scaled, scaled.T, assume_a="sym"))
