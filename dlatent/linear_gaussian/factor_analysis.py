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
import scipy.optimize as opt

from dlatent.arrays import Array
from dlatent.linear_gaussian.maximisation import em_step
from dlatent.linear_gaussian.moments import Moments
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification
from dlatent.linear_gaussian.spectral import SMALLEST_PART, Profile, Solution

GRADIENT = 1e-9
"""Largest derivative of the log-likelihood per instance by a log noise variance at which the search ends."""
LOOKS = (1e-3, 1e-5)
"""The same for a first and a second look at where a start leads."""
WORTH = 1e-3
"""Nats per instance below the best maximum from which a first look is not followed up."""
SAME = 0.05
"""Largest difference of log noise variances of points that count as the same maximum."""
STILL = 1e-4
"""Slope that counts as rounding where quasi-Newton steps that begin again gain nothing."""
EDGE = 1e-9
"""Distance of a log noise variance from a bound that counts as none."""
MAX_STEPS = 1000
RESTARTS = 10
ROUNDING = 1e-13
"""Relative change of the objective that is rounding."""
SMALL = 500
"""Features up to which the maximum is polished by Newton steps."""
NEWTON_STEPS = 5
RANDOM_STARTS = 30
LARGE = 2000
"""Of D features there are at most LARGE/D random starts, and as many moves are followed; no less than 1."""
LOOKED_AT = 5_000_000
"""Of D features at most LOOKED_AT/D² moves are looked at, and no less than 4."""
EM_STEPS = 20
MOVES = 4
"""Moves away from a maximum that are followed at most, of those looked at."""
QUIET, LOW = 0.1, 1e-3
"""Parts of a feature's variance: noise that counts as little and as none."""
MIDDLE, TINY = 0.5, 1e-5
"""Parts of a feature's variance that a move makes of little noise and of much."""


class Factors(NamedTuple):
    """The best maximum found, the log-likelihoods on the way to it, and whether the search came to its end."""

    solution: Solution
    path: tuple[float, ...]
    converged: bool


class _Run(NamedTuple):
    """Where a climb ended: log noise variances, the objective there and on the way, and whether it came to its end."""

    point: Array
    height: float
    path: tuple[float, ...]
    settled: bool


def factors(
    moments: Moments,
    specification: Specification,
    report: Callable[[float], None] | None = None,
    random_state: Any = 0,
) -> Factors:
    """Maximum-likelihood factor analysis from moments about the mean: the best of the maxima that several starts, and
    moves away from the best of them, lead to.

    Each step costs one partial eigendecomposition of a D × D matrix.  Noise variances stay between the floors of the
    specification and the variances of the features.
    """
    profile = Profile(moments, specification)
    search = _Search(profile)
    for start in _starts(profile, random_state):
        search.look(start)
    search.moved()
    best = search.climb(search.best.point, GRADIENT, search.best.path)
    free = search.free(best.point)
    polish = best.settled and len(best.point) <= SMALL
    point = _polished(profile, best.point, free, search.lower, search.upper) if polish else best.point
    solution = profile.solution(point)
    count = moments.patterns[0].instances
    path = (*(-count * height for height in best.path[:-1]), solution.log_likelihood)
    for value in path if report is not None else ():
        assert report is not None
        report(value)
    return Factors(solution, path, best.settled)


def moves_from(moments: Moments, specification: Specification, noise: Array) -> Iterator[Parameters]:
    """The best loadings where moves from given noise variances lead, those of one feature and then those of two."""
    search = _Search(Profile(moments, specification))
    origin = _Run(np.clip(np.log(noise), search.lower, search.upper), np.inf, (), False)
    for moves in (search.single, search.paired):
        for point in search.promising(moves(origin)):
            yield search.profile.solution(point).parameters


def _starts(profile: Profile, random_state: Any) -> list[Array]:
    """Log noise variances: those of PPCA of the correlations, parts of what the other features leave unexplained
    (Jöreskog), and some that a few EM steps find from random loadings."""
    specification = profile.specification
    size, k = len(profile.second), specification.n_components
    spread = np.sqrt(np.maximum(profile.energies, np.maximum(specification.floors, np.finfo(float).tiny)))
    correlations = profile.second / spread[:, None] / spread
    values = la.eigvalsh(correlations)
    even = np.full(size, np.log(max(float(values[: size - k].mean()), 1e-3)))
    starts = [even + 2.0 * np.log(spread)]
    if values[0] > 1e-10 * values[-1]:
        alone = 1.0 / np.diag(la.inv(correlations))
        starts.append(np.log((1.0 - 0.5 * k / size) * alone) + 2.0 * np.log(spread))
    rng = np.random.default_rng(random_state)
    count = max(1, min(RANDOM_STARTS, LARGE // size))
    return [*starts, *(_by_em(profile, rng.standard_normal((size, k)), spread) for _ in range(count))]


def _by_em(profile: Profile, loadings: Array, spread: Array) -> Array:
    """Log noise variances after some EM steps from given loadings, half of each variance left to the noise."""
    loadings *= (np.sqrt(0.5) * spread / la.norm(loadings, axis=1))[:, None]
    point = Parameters(loadings, np.zeros(len(spread)), 0.5 * spread**2)
    for _ in range(EM_STEPS):
        point = em_step(point, profile.moments, profile.specification).parameters
    return np.log(point.noise_variance)


class _Search:
    """The best maximum so far, between the bounds of the noise variances."""

    def __init__(self, profile: Profile) -> None:
        floors = profile.specification.floors
        self.profile = profile
        self.upper = np.log(np.maximum(profile.energies, floors))
        least = np.maximum(SMALLEST_PART * profile.energies, np.finfo(float).tiny)
        self.lower = np.minimum(np.log(np.maximum(floors, least)), self.upper)
        self.found: list[_Run] = []

    @property
    def best(self) -> _Run:
        return min(self.found, key=lambda run: run.height)

    def look(self, start: Array) -> None:
        """Climb from a start, near to the top where that may be a maximum that is new and not below the best."""
        run = _Run(start, np.inf, (), False)
        for gradient in LOOKS:
            run = self.climb(run.point, gradient, run.path)
            if self.found and run.height > self.best.height + WORTH:
                return
            if any(self.same(run.point, other.point) and not run.height < other.height for other in self.found):
                return
        self.found.append(run)

    def same(self, one: Array, other: Array) -> bool:
        """Whether two points are at one maximum; of little noise it does not matter how little it is."""
        least = self.upper + np.log(LOW)
        return float(abs(np.maximum(one, least) - np.maximum(other, least)).max()) < SAME

    def climb(self, start: Array, gradient: float, path: tuple[float, ...] = ()) -> _Run:
        """Quasi-Newton steps, begun again where a line search fails: eigenvalues cross on the way, and noise that is
        next to nothing moves the likelihood too little for its slope to be more than rounding."""
        point, heights = np.clip(start, self.lower, self.upper), list(path)

        def note(intermediate_result: opt.OptimizeResult) -> None:
            heights.append(float(intermediate_result.fun))

        if not heights:
            heights.append(self.profile(point)[0])
        for _ in range(RESTARTS):
            before = heights[-1]
            found = opt.minimize(
                self.profile,
                point,
                jac=True,
                method="L-BFGS-B",
                bounds=list(zip(self.lower, self.upper, strict=True)),
                callback=note,
                options={"ftol": 0.0, "gtol": gradient, "maxiter": MAX_STEPS, "maxfun": 2 * MAX_STEPS, "maxcor": 30},
            )
            point, height = self.lowered(found.x, float(found.fun), one_by_one=gradient == GRADIENT)
            if height < heights[-1]:
                heights.append(height)
            still = not height < before - ROUNDING * max(abs(height), 1.0)
            if still:
                break
        free = self.free(point)
        slope = self.profile(point)[1]
        # Begun again without a gain is the end, though noise at its floor makes slopes of rounding.
        settled = bool(abs(slope[free]).max(initial=0.0) <= (STILL if still else 1e3 * gradient))
        return _Run(point, height, tuple(heights), settled)

    def lowered(self, point: Array, height: float, *, one_by_one: bool) -> tuple[Array, float]:
        """Noise variances that fall without end, at their floors; one by one, those that are next to nothing where the
        likelihood is highest, the others as they are."""
        slight = self.free(point) & (point < self.upper + np.log(LOW))
        fallen = np.where(slight & (self.profile(point)[1] > 0.0), self.lower, point) if slight.any() else point
        if fallen is not point and (value := self.profile(fallen)[0]) < height:
            point, height = fallen, value
        for feature in np.flatnonzero(slight) if one_by_one else ():
            line = point.copy()

            def along(place: float, line: Array = line, feature: int = int(feature)) -> float:
                line[feature] = place
                return self.profile(line)[0]

            ends = self.lower[feature], self.upper[feature] + np.log(QUIET)
            inside = opt.minimize_scalar(along, bounds=ends, method="bounded", options={"xatol": 1e-4}).x
            for place in (float(inside), float(ends[0])):
                if (value := along(place)) < height:
                    point, height = line.copy(), value
        return point, height

    def free(self, point: Array) -> np.ndarray:
        """Which log noise variances are at no bound; rounding keeps some a little beside."""
        return np.asarray((point > self.lower + EDGE) & (point < self.upper - EDGE))

    def moved(self) -> None:
        """Moves away from the best maximum, as long as they lead to better ones.

        Maxima differ in what the factors are for: one may explain a single feature wholly, or a few that nearly repeat
        each other.  A move takes the noise from one feature (or gives some to one that has little), and where no such
        move helps, both to two features.  The others follow by one step of principal factors, and the moves whose
        likelihood then is highest are climbed from.
        """
        improved = True
        while improved:
            best = self.best
            for moves in (self.single, self.paired):
                for start in self.promising(moves(best)):
                    self.look(start)
                improved = self.best.height < best.height - ROUNDING * max(abs(best.height), 1.0)
                if improved:
                    break

    def promising(self, moves: list[Array]) -> list[Array]:
        """The points with the highest likelihood after a step of principal factors from each."""
        looks, most = [], max(1, min(MOVES, LARGE // len(self.upper)))
        for number, start in enumerate(moves):
            point = np.clip(start, self.lower, self.upper)
            # ψ = diag(S − WWᵀ) for the best W: by the gradient of the profile.
            point = point + np.log(np.maximum(1.0 - 2.0 * self.profile(point)[1], TINY))
            point = np.clip(point, self.lower, self.upper)
            looks.append((self.profile(point)[0], number, point))
        return [point for _, _, point in sorted(looks, key=lambda look: look[:2])[:most]]

    def single(self, best: _Run) -> list[Array]:
        """Points at which one feature has another noise than at the best."""
        depth = best.point - self.upper
        return [self.changed(best.point, {j: MIDDLE if depth[j] < np.log(LOW) else TINY}) for j in self.features(best)]

    def paired(self, best: _Run) -> list[Array]:
        """Points at which one quiet feature has noise, and another feature has none."""
        depth = best.point - self.upper
        quiet = np.argsort(depth, kind="stable")[: self.profile.specification.n_components]
        quiet = quiet[depth[quiet] < np.log(QUIET)]
        others = [j for j in self.features(best, len(quiet)) if depth[j] > np.log(LOW)]
        return [self.changed(best.point, {i: MIDDLE, j: TINY}) for i in quiet for j in others if i != j]

    def changed(self, point: Array, parts: dict[int, float]) -> Array:
        """The point with other noise variances of some features, as parts of their variances."""
        moved = point.copy()
        for feature, part in parts.items():
            moved[feature] = self.upper[feature] + np.log(part)
        return moved

    def features(self, best: _Run, share: int = 1) -> list[int]:
        """The features that moves are about: all of them, or those with the least noise and those of which most is left
        unexplained."""
        size = len(best.point)
        most = max(4, LOOKED_AT // size**2) // max(share, 1)
        if size <= most:
            return list(range(size))
        quiet = np.argsort(best.point - self.upper, kind="stable")
        rest = self.profile.residual(best.point)
        loud = np.argsort(-(rest**2).sum(axis=1), kind="stable")
        return [int(j) for j in np.union1d(quiet[: most // 2], loud[: most - most // 2])]


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
