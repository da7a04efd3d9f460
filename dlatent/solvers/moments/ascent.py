"""Quasi-Newton steps up the likelihood of moments, where EM creeps.

EM takes z for known where a view has hardly any noise, and then moves by a part σ² of what it should: where K reaches
a view's features it needs thousands of steps for what the gradient sees at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.optimize as opt
from scipy.linalg import lapack

from dlatent.arrays import Array
from dlatent.gaussian.expectation import LOG_2PI
from dlatent.gaussian.moments import Moments, view_variances
from dlatent.gaussian.parameters import LARGEST_LOG, Parameters
from dlatent.gaussian.specification import Specification

GRADIENT = 1e-10
"""Largest derivative of the log-likelihood per sample at which the search ends, loadings in units of the spread."""
SMALL_GRADIENT = 1e-4
"""Largest derivative where rounding ends the search."""
MEMORY = 20
REFUSED = 1e300
"""Minus the likelihood where it cannot be computed: the line search turns back."""


class Ascent(NamedTuple):
    """Where the search ended, the log-likelihood there, and whether the gradient vanishes."""

    parameters: Parameters
    log_likelihood: float
    converged: bool


class _Objective:
    """Minus the log-likelihood per sample by (W, μ, log ψ), W and μ in units of the views' spreads, and its gradient.

    With B = M⁻¹WᵀΨ⁻¹ and S = Σ(x−μ)(x−μ)ᵀ of a pattern, C⁻¹W = Bᵀ and C⁻¹ = Ψ⁻¹ − Ψ⁻¹WB:
    ∂/∂W = C⁻¹SBᵀ − nBᵀ,  ∂/∂μ = C⁻¹Σ(x−μ),  ∂/∂ψ = ½ diag(C⁻¹SC⁻¹ − nC⁻¹).
    """

    def __init__(self, moments: Moments, specification: Specification) -> None:
        self.moments, self.specification = moments, specification
        self.at = [specification.features_of(pattern) for pattern in specification.patterns]
        self.diagonals = [np.diag(found.gram).copy() for found in moments.patterns]
        self.count = float(sum(found.samples for found in moments.patterns))
        seen = np.zeros(len(specification.views))
        for pattern, found in zip(specification.patterns, moments.patterns, strict=True):
            seen[list(pattern)] += found.samples
        self.spare = bool(moments.spare_size.any())
        self.spare_cells = seen * moments.spare_size
        variances = view_variances(moments, specification.sizes, specification.patterns)
        self.unit = np.repeat(np.sqrt(np.where(variances > 0.0, variances, 1.0)), specification.sizes)
        self.firsts = [at.start for at in specification.group_slices]

    def vector(self, parameters: Parameters) -> Array:
        """Parameters as coordinates of the search."""
        loadings = parameters.loadings / self.unit[:, None]
        return np.concatenate([loadings.ravel(), parameters.mean / self.unit, np.log(parameters.noise_variance)])

    def parameters(self, vector: Array) -> Parameters:
        """Inverse of `vector`."""
        width, k = len(self.unit), self.specification.n_components
        return Parameters(
            vector[: width * k].reshape(width, k) * self.unit[:, None],
            vector[width * k : width * (k + 1)] * self.unit,
            np.exp(np.clip(vector[width * (k + 1) :], -LARGEST_LOG, LARGEST_LOG)),
        )

    def __call__(self, vector: Array) -> tuple[float, Array]:
        """Minus the log-likelihood per sample, and its gradient."""
        loadings, mean, noise = self.parameters(vector)[:3]
        each = self.specification.per_feature(noise)
        value, by_loadings, by_mean, by_each = 0.0, np.zeros_like(loadings), np.zeros_like(mean), np.zeros_like(each)
        for found, at, diagonal in zip(self.moments.patterns, self.at, self.diagonals, strict=True):
            w, m, psi, n = loadings[at], mean[at], each[at], found.samples
            scaled = w / psi[:, None]
            factor, failed = lapack.dpotrf(np.eye(w.shape[1]) + w.T @ scaled)
            if failed:
                return REFUSED, np.zeros_like(vector)
            b = lapack.dpotrs(factor, scaled.T)[0]
            rest = found.total - n * m
            moved = found.gram @ b.T - np.outer(found.total, b @ m) - np.outer(m, b @ rest)
            squares = diagonal - m * (found.total + rest)
            inner = scaled @ (b @ moved)
            log_determinant = np.log(psi).sum() + 2.0 * np.log(np.diag(factor)).sum()
            trace = (squares / psi).sum() - (moved * scaled).sum()
            value -= 0.5 * (n * (len(psi) * LOG_2PI + log_determinant) + trace)
            by_loadings[at] += moved / psi[:, None] - inner - n * b.T
            by_mean[at] += rest / psi - scaled @ (b @ rest)
            residual = squares / psi / psi - ((2.0 * moved / psi[:, None] - inner) * scaled).sum(axis=1)
            by_each[at] += 0.5 * (residual - n / psi + n * (scaled * b.T).sum(axis=1))
        by_noise = np.add.reduceat(by_each, self.firsts) * noise
        if self.spare:
            energy = self.moments.spare_energy / noise
            value -= 0.5 * float((self.spare_cells * (LOG_2PI + np.log(noise)) + energy).sum())
            by_noise -= 0.5 * (self.spare_cells - energy)
        gradient = np.concatenate([(by_loadings * self.unit[:, None]).ravel(), by_mean * self.unit, by_noise])
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return REFUSED, np.zeros_like(vector)
        return -float(value) / self.count, -gradient / self.count


def ascend(
    start: Parameters, moments: Moments, specification: Specification, *, tolerance: float, max_steps: int
) -> Ascent:
    """The maximum near a point by L-BFGS, noise variances at or above their floors; `tolerance` is the relative gain of
    a step that ends the search.  Moments must be about the means."""
    objective = _Objective(moments, specification)
    first = objective.vector(start)
    low = np.full(len(first), -np.inf)
    low[-len(start.noise_variance) :] = np.log(np.maximum(specification.floors, np.finfo(float).tiny))
    with np.errstate(all="ignore"):
        best = opt.minimize(
            objective,
            np.maximum(first, low),
            jac=True,
            method="L-BFGS-B",
            bounds=opt.Bounds(low, np.inf),
            options={
                "ftol": tolerance / 10.0,
                "gtol": GRADIENT,
                "maxiter": max_steps,
                "maxfun": 2 * max_steps,
                "maxcor": MEMORY,
            },
        )
    uphill = np.where(best.x > low, np.abs(best.jac), np.maximum(-best.jac, 0.0))
    found = objective.parameters(best.x).at_least(specification.floors)
    return Ascent(found, -float(best.fun) * objective.count, bool(best.status == 0 or uphill.max() <= SMALL_GRADIENT))
