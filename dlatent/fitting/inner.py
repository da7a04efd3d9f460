"""The small problem on the driver: the best parameters for given moments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlatent.arrays import Array
from dlatent.fitting.acceleration import accelerate, settle
from dlatent.linear_gaussian.maximisation import em_step
from dlatent.linear_gaussian.moments import Moments, centred, view_variances
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification
from dlatent.linear_gaussian.spectral import Profile, Solution, complete
from dlatent.operators.eigen import top_eigenpairs

TOLERANCE = 1e-13
"""Relative change of the log-likelihood at which the driver's iterations stop: as far as rounding lets them go."""
COARSE = 1e-8
"""The same while the subspace is still far from its end, where more would be wasted."""
MAX_EVALUATIONS = 3000
STILL = 1e-13
"""Relative length of an EM step at which the parameters stand still."""
MAX_SETTLING = 200
ROUNDING = 1e-13
"""Relative difference of two log-likelihoods that is none."""
KEPT_MAXIMA = 3
LITTLE_NOISE = 1e-2
"""Part of a view's mean variance that counts as little noise for a start."""


@dataclass(frozen=True)
class Warm:
    """What the last solve leaves for the next: its parameters (about the shift) and the noises of its best maxima."""

    parameters: Parameters
    noises: tuple[Array, ...]
    converged: bool


def solve(
    moments: Moments,
    specification: Specification,
    *,
    warm: Warm | None = None,
    rank_grown: int = 0,
    thorough: bool = False,
    tolerance: float = TOLERANCE,
) -> tuple[Solution, Warm]:
    """The maximum-likelihood parameters, mean about `moments.shift`, from the last solution or from scratch.

    Complete data: eigenvectors and, with several views, the search over the noises.  Views missing: accelerated PX-EM
    from the last solution; with `thorough` (or without a last one) also from a principal and a supervised start, best
    kept. `rank_grown` columns were added to the first view since the last solution.
    """
    middle = centred(moments, specification.sizes, specification.patterns)
    offset = middle.shift - moments.shift
    if len(specification.patterns) == 1:
        starts = () if warm is None or thorough else warm.noises
        found = complete(middle, specification, starts)
        converged = True
    else:
        candidates = [] if warm is None else [_moved(_widened(warm.parameters, specification, rank_grown), -offset)]
        if warm is None or thorough:
            candidates += _starts(middle, specification)
        runs = [_climb(start, middle, specification, tolerance) for start in candidates]
        runs.sort(key=lambda run: -run[0].log_likelihood)
        found, converged = [run[0] for run in runs], runs[0][1]
    if thorough and converged and len(specification.views) > 1:
        found[0] = _settled(found[0], middle, specification)
    best = Solution(_moved(found[0].parameters, offset), found[0].log_likelihood)
    noises = tuple(s.parameters.noise_variance for s in found[:KEPT_MAXIMA])
    return best, Warm(best.parameters, noises, converged)


def _moved(parameters: Parameters, offset: Array) -> Parameters:
    return parameters._replace(mean=parameters.mean + offset)


def _widened(parameters: Parameters, specification: Specification, grown: int) -> Parameters:
    """The same parameters after the first view has grown by `grown` features, on which they are zero."""
    at = specification.sizes[0] - grown
    loadings = np.insert(parameters.loadings, [at] * grown, 0.0, axis=0)
    return Parameters(loadings, np.insert(parameters.mean, [at] * grown, 0.0), parameters.noise_variance)


def _climb(
    start: Parameters, moments: Moments, specification: Specification, tolerance: float
) -> tuple[Solution, bool]:
    floors = specification.floors
    run = accelerate(
        lambda p: em_step(p, moments, specification),
        start,
        tolerance=tolerance,
        max_evaluations=MAX_EVALUATIONS,
        project=lambda p: p._replace(noise_variance=np.maximum(p.noise_variance, floors)),
    )
    return Solution(run.point, run.value), run.converged


def _settled(solution: Solution, moments: Moments, specification: Specification) -> Solution:
    """The same maximum, with parameters that stand still, so that other ways to it find the same digits."""
    floors = specification.floors
    point = settle(
        lambda p: em_step(p, moments, specification),
        solution.parameters,
        tolerance=STILL,
        max_evaluations=MAX_SETTLING,
        project=lambda p: p._replace(noise_variance=np.maximum(p.noise_variance, floors)),
    )
    value = em_step(point, moments, specification).log_likelihood
    return Solution(point, value) if value >= solution.log_likelihood - ROUNDING * abs(value) else solution


def _starts(moments: Moments, specification: Specification) -> list[Parameters]:
    """Starts in different basins: the principal components of all instances, and two from the complete instances."""
    return [_principal_start(moments, specification), *_complete_starts(moments, specification)]


def _principal_start(moments: Moments, specification: Specification) -> Parameters:
    """First view: PPCA of all instances. Other views: regressed on those scores by a first EM step, noise of a
    tenth."""
    own, k = specification.slices[0], specification.n_components
    width = own.stop
    seen = [m for p, m in zip(specification.patterns, moments.patterns, strict=True) if 0 in p]
    count = sum(m.instances for m in seen)
    second = np.asarray(sum(m.gram[:width, :width] for m in seen)) / count
    values, vectors = top_eigenpairs(second, min(k, width))
    variances = view_variances(moments, specification.sizes, specification.patterns)
    noise = np.maximum(variances / 10.0, specification.floors)
    rest = (np.trace(second) + moments.spare_energy[0] / count - values.sum()) / (width + moments.spare_size[0])
    noise[0] = max(rest, specification.floors[0], values[0] * 1e-12)
    loadings = np.zeros((sum(specification.sizes), k))
    loadings[own, : len(values)] = vectors * np.sqrt(np.maximum(values - noise[0], 1e-2 * noise[0]))
    # A direction of its own for every component that the first view leaves empty, so that no symmetry stays unbroken.
    small = np.sqrt(noise[0]) * 1e-3 * np.cos(np.arange(loadings.size, dtype=float)).reshape(loadings.shape)
    return Parameters(loadings + small, np.zeros(len(loadings)), noise)


def _complete_starts(moments: Moments, specification: Specification) -> list[Parameters]:
    """The best maximum for the instances that have every view, and their best loadings at little noise of other views.

    Nothing where there are no such instances.
    """
    full = tuple(range(len(specification.views)))
    if full not in specification.patterns:
        return []
    found = moments.patterns[specification.patterns.index(full)]
    counts = sum(m.instances for m in moments.patterns)
    alone = Specification(specification.views, (full,), specification.n_components)
    part = Moments((found,), moments.shift, moments.spare_size, moments.spare_energy * (found.instances / counts))
    middle = centred(part, alone.sizes, alone.patterns)
    best = complete(middle, alone)[0].parameters
    quiet = best.noise_variance.copy()
    variances = view_variances(middle, alone.sizes, alone.patterns)
    quiet[1:] = np.maximum(LITTLE_NOISE * variances[1:], np.maximum(alone.floors[1:], np.finfo(float).tiny))
    close = Profile(middle, alone).solution(np.log(quiet)).parameters
    return [_stirred(start, specification) for start in (best, close)]


def _stirred(start: Parameters, specification: Specification) -> Parameters:
    """Clipped components are zero and would stay so: EM moves a column only when it is not exactly zero."""
    scale = np.sqrt(specification.per_feature(start.noise_variance))[:, None] * 1e-3
    wave = np.sin(1.0 + np.arange(start.loadings.size, dtype=float)).reshape(start.loadings.shape)
    return start._replace(loadings=start.loadings + scale * wave)
