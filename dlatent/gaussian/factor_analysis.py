"""Factor analysis of complete data: one noise variance for each feature, from moments.

For fixed Ψ the best loadings are eigenvectors of Ψ^(-1/2) S Ψ^(-1/2), as in `spectral`; what is left is the profile
likelihood, a smooth function of log ψ (D,), which quasi-Newton steps climb where EM needs hundreds of iterations.
Sources: Jöreskog (1967); Lawley and Maxwell (1971), chapter 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array
from dlatent.gaussian.dimension import ROUNDING
from dlatent.gaussian.maxima import LOW, STILL, Maxima
from dlatent.gaussian.maximisation import em_step
from dlatent.gaussian.moments import Moments, PatternMoments
from dlatent.gaussian.specification import Maximum, Parameters, Specification
from dlatent.gaussian.spectral import SMALLEST_FRACTION, Profile

SMALL = 150
"""Features up to which the maximum is polished by Newton steps."""
CLEAR, FEW_CLEAR = 8, 3
"""Starts that must lead to one maximum for it to be taken for the only one; with more features than SMALL, each of
which tells of the factors, few."""
NEWTON_STEPS = 5
RANDOM_STARTS = 60
EM_STEPS = 20
EVALUATIONS = 8e7
"""Of D features there are about EVALUATIONS/D² evaluations, and no less than two climbs take."""
LOOKED_AT = 5_000_000
"""Of D features at most LOOKED_AT/D² moves are looked at, and no less than 4."""
MOVES = 12
"""Moves away from a maximum that are followed at most, of those looked at."""
QUIET = 0.1
"""Noise that counts as little."""
MIDDLE, TINY = 0.5, 1e-5
"""Noise after a move: little becomes middling, much becomes tiny."""


class Factors(NamedTuple):
    """The best maximum found, the log-likelihoods on the way to it, and whether the search came to its end."""

    solution: Maximum
    path: tuple[float, ...]
    converged: bool


def factors(
    moments: Moments,
    specification: Specification,
    report: Callable[[float], object] | None = None,
    random_state: Any = 0,
    tolerance: float = 0.0,
) -> Factors:
    """Maximum-likelihood factor analysis from moments about the mean: the best of the maxima that several starts, and
    moves away from the best of them, lead to; up to the tolerance, relative to the log-likelihood in these units.

    Each step costs one partial eigendecomposition, of D × D or of rank × rank.  Noise variances stay between
    the floors of the specification and the variances of the features, in units of which all happens.
    """
    part = moments.patterns[0]
    spread = np.sqrt(np.maximum(np.diag(part.gram) / part.samples, specification.floors))
    spread = np.where(spread > 0.0, spread, 1.0)
    gram = part.gram / spread[:, None] / spread
    scaled = moments._replace(patterns=(PatternMoments(part.samples, part.total / spread, gram),))
    profile = Profile(scaled, specification.with_floors(specification.floors / spread**2))
    lower, upper = _bounds(profile)
    jacobian, path = -part.samples * float(np.log(spread).sum()), []

    def tell(height: float) -> None:
        path.append(jacobian - part.samples * height)
        if report is not None:
            report(path[-1])

    options: Any = {"tell": tell, "clear": CLEAR if len(spread) <= SMALL else FEW_CLEAR, "tolerance": tolerance}
    search = Maxima(profile, lower, upper, EVALUATIONS / len(spread) ** 2, **options)
    starts = (_factored(profile, start) for start in _starts(profile, random_state))
    best = search.search(starts, lambda point: moves(profile, point))
    free, point = search.free(best.point), best.point
    if len(spread) <= SMALL:
        point = _polished(profile, point, free, lower, upper)
    # Rounding that little noise leaves may end a climb where a Newton step still goes on.
    settled = best.settled or bool(np.abs(profile(point)[1][free]).max(initial=0.0) <= STILL)
    parameters, value = profile.solution(point)
    noise = np.maximum(parameters.noise_variance * spread**2, specification.floors)
    solution = Maximum(Parameters(parameters.loadings * spread[:, None], parameters.mean, noise), value + jacobian)
    if not path or solution.log_likelihood != path[-1]:
        tell((jacobian - solution.log_likelihood) / part.samples)
    return Factors(solution, tuple(path), settled)


def _bounds(profile: Profile) -> tuple[Array, Array]:
    """The least and the largest log noise variances that are searched."""
    floors = profile.specification.floors
    upper = np.log(np.maximum(profile.energies, floors))
    least = np.maximum(SMALLEST_FRACTION * profile.energies, np.finfo(float).tiny)
    return np.minimum(np.log(np.maximum(floors, least)), upper), upper


def _starts(profile: Profile, random_state: Any) -> Iterator[Array]:
    """Log noise variances: those of PPCA of the correlations, fractions of what the other features leave unexplained
    (Jöreskog), random ones, and some that a few EM steps find from random loadings."""
    size, k = len(profile.second), profile.specification.n_components
    values = la.eigvalsh(profile.second)
    yield np.full(size, np.log(max(float(values[: max(size - k, 1)].mean()), 1e-3)))
    if values[0] > 1e-10 * values[-1]:
        yield np.log((1.0 - 0.5 * k / size) / np.diag(la.inv(profile.second)))
    rng = np.random.default_rng(random_state)
    for number in range(CLEAR):
        yield rng.uniform(np.log(0.01), 0.0, size) if number % 4 > 1 else np.log(rng.uniform(0.05, 0.95, size))
    for start in random_starts(profile.specification, RANDOM_STARTS, random_state):
        for _ in range(EM_STEPS):
            start = em_step(start, profile.moments, profile.specification).parameters
        yield np.log(start.noise_variance)


def random_starts(specification: Specification, count: int, random_state: Any) -> Iterator[Parameters]:
    """Random loadings, half of each feature's variance of 1 left to the noise."""
    rng, size = np.random.default_rng(random_state), sum(specification.sizes)
    for _ in range(count):
        loadings = rng.standard_normal((size, specification.n_components))
        loadings *= np.sqrt(0.5 / (loadings**2).sum(axis=1))[:, None]
        yield Parameters(loadings, np.zeros(size), np.maximum(0.5, specification.floors))


def moves(profile: Profile, point: Array) -> Iterator[Array]:
    """Log noise variances that may be nearer to a better maximum than to the one at a point.

    Maxima differ in what the factors are for: one may explain a single feature wholly, or a few that nearly repeat
    each other.  A move takes the noise from one feature (or gives some to one that has little), and where no such move
    helps, both to two features.  The others follow by one step of principal factors, and the moves whose likelihood
    then is highest are gone.
    """
    quiet = np.argsort(point, kind="stable")
    features = _features(profile, point, quiet)
    alone = [_changed(point, {j: MIDDLE if point[j] < np.log(LOW) else TINY}) for j in features]
    yield from _promising(profile, alone)
    few = [i for i in quiet[: profile.specification.n_components] if point[i] < np.log(QUIET)]
    others = [j for j in _features(profile, point, quiet, len(few)) if point[j] > np.log(LOW)]
    yield from _promising(profile, [_changed(point, {i: MIDDLE, j: TINY}) for i in few for j in others if i != j])


def _promising(profile: Profile, moved: list[Array]) -> list[Array]:
    """The points with the highest likelihood after a step of principal factors from each."""
    looks = []
    for number, start in enumerate(moved):
        point = _factored(profile, start)
        looks.append((profile(point)[0], number, point))
    return [point for _, _, point in sorted(looks, key=lambda look: look[:2])[:MOVES]]


def _factored(profile: Profile, start: Array) -> Array:
    """A step of principal factors, ψ = diag(S − WWᵀ) for the best W, by the gradient of the profile."""
    bounds = _bounds(profile)
    point = np.clip(start, *bounds)
    return np.asarray(np.clip(point + np.log(np.maximum(1.0 - 2.0 * profile(point)[1], TINY)), *bounds))


def _changed(point: Array, parts: dict[int, float]) -> Array:
    """The point with other noise variances of some features."""
    moved = point.copy()
    moved[list(parts)] = np.log(list(parts.values()))
    return moved


def _features(profile: Profile, point: Array, quiet: np.ndarray, share: int = 1) -> list[int]:
    """The features that moves are about: all of them, or those with the least noise and those of which most is left
    unexplained."""
    size = len(point)
    most = max(4, LOOKED_AT // size**2) // max(share, 1)
    if size <= most:
        return list(range(size))
    rest = profile.residual(point)
    loud = np.argsort(-(rest**2).sum(axis=1), kind="stable")
    return [int(j) for j in np.union1d(quiet[: most // 2], loud[: most - most // 2])]


def _polished(profile: Profile, point: Array, free: np.ndarray, lower: Array, upper: Array) -> Array:
    """Newton steps as long as they make the gradient smaller: values near the maximum differ by less than rounding,
    which is that of the largest eigenvalue, a part of the variance over the least noise."""
    rounding = ROUNDING * len(point) * np.exp(-point.min())
    best = np.abs(profile(point)[1][free]).max(initial=0.0)
    for _ in range(NEWTON_STEPS):
        value, slope = profile(point)
        step = np.zeros_like(point)
        try:
            step[free] = np.linalg.solve(hessian(profile, point)[np.ix_(free, free)], slope[free])
        except np.linalg.LinAlgError:
            break
        moved = np.clip(point - step, lower, upper)
        above, slope = profile(moved)
        size = np.abs(slope[free]).max(initial=0.0)
        if not size < 0.5 * best or above > value + 1e-12 * max(abs(value), 1.0) + rounding:
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
    second = (outer @ outer.T) * ((outer * rest) @ outer.T)
    for value, vector in zip(values[len(rest) :], vectors[:, len(rest) :].T, strict=True):
        weights = (1.0 - rest) * (value + rest) / (value - rest)
        second += np.outer(vector, vector) * ((outer * weights) @ outer.T)
    return 0.5 * second


def bartlett_coefficients(loadings: Array, noise: Array) -> Array:
    """(WᵀΨ⁻¹W)⁻¹WᵀΨ⁻¹ (K, D): the weighted least-squares scores, unbiased given the factors (Bartlett 1937)."""
    scaled = loadings / noise[:, None]
    return np.asarray(la.solve(loadings.T @ scaled, scaled.T, assume_a="sym"))
