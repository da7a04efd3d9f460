"""PPCA of complete data with a prior on the loadings, its variances by evidence or given, in closed form.

With w_j ~ N(0, V), z ~ N(0, I), and q(w) q(z), the components of complete data are those of PCA.  For the noise
variance σ² and the singular value γ of the centred N × D data, a component that is on reconstructs γ̂ of it, and has

    W = √(γ̂δ) u,   Σ_kk = σ²δ/γ,   C_kk = σ²/(γδ)

With the best V

    γ̂ = γ/2 (1 − (N+D)σ²/γ² + √((1 − (N+D)σ²/γ²)² − 4NDσ⁴/γ⁴)),   δ = γ̂/N + σ²/γ

and the component adds ½ (N log C_kk + γ̂/(δ C_kk)) − ½ D log [(γ̂δ/D + Σ_kk)/Σ_kk] to the bound; it is on where that
is positive.  With V = vI

    γ − γ̂ = σ²/2γ (N + D + √((N−D)² + 4γ²/v)),   δ = σ²/(γ − γ̂ − Dσ²/γ)

where γ̂ is positive.  A component that is off has W = 0, C_kk = 1/(1 + DΣ_kk/σ²) and Σ_kk = 1/(1/v + NC_kk/σ²): it is
there, and known to be small.  What is left is a search for σ².
Sources: Nakajima, Sugiyama, Babacan and Tomioka (2013), "Global analytic solution of fully-observed variational
Bayesian matrix factorization", and (2015), "Condition for perfect dimensionality recovery by variational Bayesian PCA".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.linalg as la
import scipy.optimize as opt

from dlatent.arrays import Array
from dlatent.gaussian.dimension import chosen_components, leaving_noise
from dlatent.gaussian.expectation import LOG_2PI
from dlatent.gaussian.moments import PatternMoments
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.operators.symmetric import top_eigenvalues, triangle
from dlatent.solvers.diagnostics import at_floors
from dlatent.solvers.solver import Iteration, Solution
from dlatent.solvers.task import Task

ENOUGH = 3
"""Samples for each feature from which correlations are inverted as they are, and all eigenvalues believed."""
SCANNED = 400
"""Noise variances in the first scan."""
SMALLEST = 1e-12
"""Part of the mean variance of the features below which no noise variance is looked for."""


class Components(NamedTuple):
    """For each component (…, K) what it adds to the bound, the squared length of its loadings and their variance
    Σ_kk."""

    worth: Array
    length: Array
    spread: Array


def components(noise: Array, values: Array, samples: float, features: int) -> Components:
    """The best components for noise variances (…, 1) from the leading eigenvalues (K,) of the covariance, with
    variances by evidence: zeros where they are off."""
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


def components_at(noise: Array, values: Array, samples: float, features: int, variance: float) -> Components:
    """The best components for loadings of a given variance v."""
    gamma = np.sqrt(np.maximum(samples * values, np.finfo(float).tiny))
    lost = 0.5 * noise / gamma * (samples + features + np.sqrt((samples - features) ** 2 + 4.0 * gamma**2 / variance))
    on = gamma > lost
    shrunk = np.where(on, gamma - lost, 0.0)
    delta = noise / (lost - features * noise / gamma)
    # Of a component that is off: N C² + (D + σ²/v − N) C = σ²/v.
    relative = noise / variance
    less = features + relative - samples
    alone = 2.0 * relative / (less + np.sqrt(less**2 + 4.0 * samples * relative))
    certainty = np.where(on, noise / (gamma * delta), alone)
    spread = np.where(on, noise * delta / gamma, 1.0 / (1.0 / variance + samples * alone / noise))
    length, scores = shrunk * delta, shrunk / delta
    # What is left of ½γ², and the divergences of scores and loadings from their priors.
    fit = (2.0 * gamma * shrunk - (scores + samples * certainty) * (length + features * spread)) / noise
    rows = samples * (certainty - 1.0 - np.log(certainty)) + scores
    loadings = (length + features * spread) / variance - features * (1.0 + np.log(spread / variance))
    return Components(0.5 * (fit - rows - loadings), length, spread)


def shrunk(
    parameters: Parameters, samples: float, total: float, floor: float, variance: float | None = None
) -> tuple[Parameters, float]:
    """The model with the prior, by evidence or of a given variance, and its bound, from the maximum of the likelihood
    of N samples whose features have variances of the sum `total`; O(DK), no data access."""
    features, k = parameters.loadings.shape
    lengths = (parameters.loadings**2).sum(axis=0)
    values = lengths + parameters.noise_variance[0]

    def best_of(noise: Array) -> Components:
        if variance is None:
            return components(noise, values, samples, features)
        return components_at(noise, values, samples, features, variance)

    def bound(noise: Array) -> Array:
        each = noise[:, None]
        alone = features * (LOG_2PI + np.log(noise)) + total / noise
        return np.asarray(best_of(each).worth.sum(axis=1) - 0.5 * samples * alone)

    noise, height = best_noise(bound, total / features, floor)
    on = best_of(np.array([noise]))
    scale = np.sqrt(np.divide(on.length, lengths, out=np.zeros(k), where=lengths > 0.0))
    first, second = triangle(k)
    covariance = np.where(first == second, on.spread[first], 0.0)[None]
    switched = Parameters(parameters.loadings * scale, parameters.mean, np.array([noise]), covariance)
    return switched, height


def best_noise(bound: Callable[[Array], Array], most: float, floor: float) -> tuple[float, float]:
    """The noise variance, at most that of the features, where a bound is highest, and how high it is there."""
    scan = np.geomspace(max(floor, SMALLEST * most), most, SCANNED)
    best = int(bound(scan).argmax())
    low, high = np.log(scan[max(best - 1, 0)]), np.log(scan[min(best + 1, SCANNED - 1)])
    refined = opt.minimize_scalar(
        lambda at: -float(bound(np.exp([at]))[0]), bounds=(low, high), method="bounded", options={"xatol": 1e-12}
    )
    ends = np.array([np.exp(refined.x), scan[best]])
    noise = ends[int(bound(ends).argmax())]
    return float(noise), float(bound(np.array([noise]))[0])


def supported_number(values: Array, samples: float, features: int, total: float, floor: float = 0.0) -> int:
    """How many of the components with these leading eigenvalues automatic relevance determination leaves on, and no
    fewer than 1: of N samples of D features, whose variances have the sum `total`."""

    def each(noise: Array) -> Components:
        return components(noise[:, None], values, samples, features)

    def bound(noise: Array) -> Array:
        return np.asarray(each(noise).worth.sum(axis=1) - 0.5 * samples * (features * np.log(noise) + total / noise))

    noise, _ = best_noise(bound, total / features, floor)
    return max(int((each(np.array([noise])).worth > 0.0).sum()), 1)


def chosen(task: Task, values: Array, samples: float, floor: float) -> int:
    """The number of components that the rule of a task chooses from all eigenvalues, as `chosen_components`.

    Of `ENOUGH` samples "auto" takes the largest evidence where every direction varies: the likelihood has a bound, and
    Laplace's approximation holds.
    """
    rule, most, features = task.rule, task.specification.n_components, task.data.features
    assert rule is not None
    if rule == "auto" and task.from_all and samples > ENOUGH * features and leaving_noise(values, floor)[-2:-1].any():
        rule, most = "mle", features - 1
    if rule == "auto":
        return supported_number(values[:most], samples, features, float(values.sum()), floor)
    return chosen_components(rule, values, samples, most=most, floor=floor)


def supported(solution: Solution, samples: float) -> Solution:
    """The maximum of the likelihood of complete samples with the components that the data support, from that with the
    most: components of PCA stay what they are, and the noise has what those that go had explained."""
    specification, parameters, features = solution.specification, solution.parameters, solution.features
    size, most = specification.sizes[0] if features is None else features.dimension, specification.n_components
    total, floor = solution.total_variance[0] * size, float(specification.floors[0])
    lengths, before = (parameters.loadings**2).sum(axis=0), float(parameters.noise_variance[0])
    values = lengths + before
    k = supported_number(values, samples, size, total, floor)
    if k == most:
        return solution
    noise = max((total - float(values[:k].sum())) / (size - k), floor)
    scale = np.sqrt(np.maximum(values[:k] - noise, 0.0) / np.maximum(lengths[:k], np.finfo(float).tiny))
    fewer = Parameters(parameters.loadings[:, :k] * scale, parameters.mean, np.array([noise]))

    def twice(number: int, left: float) -> float:
        rest = max(total - float(values[:number].sum()), 0.0)
        return float(np.log(values[:number]).sum() + number + (size - number) * np.log(left) + rest / left)

    value = solution.log_likelihood - 0.5 * samples * (twice(k, noise) - twice(most, before))
    if features is not None:
        span = la.qr(fewer.loadings, mode="economic")[0]
        fewer = fewer._replace(loadings=span.T @ fewer.loadings, mean=span.T @ fewer.mean)
        inside = replace(features, combinations=features.combinations @ span, offset=span.T @ features.offset)
        specification, solution = specification.resized((k,)), replace(solution, features=inside)
    return _replaced(solution, fewer, value, replace(specification, n_components=k))


def switched_on(solution: Solution) -> Solution:
    """The solution without the components that are switched off; one of them stays where all are."""
    specification, parameters = solution.specification, solution.parameters
    on = np.asarray(parameters.loadings.any(axis=0))
    on[-1] |= specification.row_effects
    on[0] |= not on[: specification.n_components - int(specification.row_effects)].any()
    fewer = parameters.turned(np.eye(len(on))[:, on])
    return replace(solution, parameters=fewer, specification=replace(specification, n_components=int(on.sum())))


def supported_factors(part: PatternMoments, most: int) -> int:
    """How many factors the data support, from moments about the mean: components of the correlations in units of what
    the other features leave of each (Jöreskog's start), where noises are nearly equal.

    Of few samples the correlations are shrunk before they are inverted.  There are no more factors than covariances
    tell apart, (D − K)² ≥ D + K (Ledermann).
    """
    spread = np.sqrt(np.diag(part.gram) / part.samples)
    varying = spread > 0.0
    size = int(varying.sum())
    correlations = (part.gram[np.ix_(varying, varying)] / part.samples) / np.outer(spread[varying], spread[varying])
    less = 0.0 if part.samples > ENOUGH * size else size / (part.samples + size)
    inverse = la.pinvh((1.0 - less) * correlations + less * np.eye(size))
    scale = np.sqrt(np.diag(inverse))
    scaled = correlations * scale[:, None] * scale
    most = max(min(most, int(size + 0.5 - 0.5 * np.sqrt(8.0 * size + 1.0))), 1)
    values = np.maximum(top_eigenvalues(scaled, most), 0.0)
    return supported_number(values, part.samples, size, float(np.trace(scaled)))


def with_evidence(solution: Solution, samples: float, variance: float | None) -> Solution:
    """The best bound with a prior, from the eigenvalues and the total variance that the maximum of the likelihood has;
    `samples` is the sum of their weights, and the variance of the loadings is given or, None, by evidence."""
    view = solution.specification.views[0]
    total = solution.total_variance[0] * view.size
    parameters, bound = shrunk(solution.parameters, samples, total, float(solution.specification.floors[0]), variance)
    return _replaced(solution, parameters, bound, solution.specification)


def _replaced(solution: Solution, parameters: Parameters, value: float, specification: Specification) -> Solution:
    """A solution with what followed from it."""
    low, last = at_floors(parameters, specification), solution.history[-1]
    return replace(
        solution,
        parameters=parameters,
        specification=specification,
        log_likelihood=value,
        history=(Iteration(1, value, float("nan"), last.remaining, last.rank),),
        iterations=1,
        at_floor=low,
        advice=tuple(text for text in solution.advice if any(low) or not text.startswith("floor: ")),
        checked_log_likelihood=None,
    )
