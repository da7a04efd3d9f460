"""Factor analysis from moments: complete data by their profile likelihood, views that are missing by accelerated EM."""

from __future__ import annotations

import numpy as np

from dlatent.arrays import Array
from dlatent.fitting.acceleration import accelerate
from dlatent.fitting.advice import noise_floors
from dlatent.fitting.conclusion import make_outcome
from dlatent.fitting.inner import solve
from dlatent.fitting.outcome import Options, Outcome, Progress, Report
from dlatent.fitting.textbook import add_line, group_variances
from dlatent.linear_gaussian.factor_analysis import factors
from dlatent.linear_gaussian.maximisation import em_step
from dlatent.linear_gaussian.moments import Moments, PatternMoments
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification, View

SMALLEST_NOISE = 0.05
"""Part of a feature's variance that a start leaves to the noise at least."""
START_FLOOR = 1e-3
START_TOLERANCE = 1e-6
TOLERANCE = 1e-13
MAX_EVALUATIONS = 5000


def by_factors(middle: Moments, specification: Specification, options: Options, report: Report | None) -> Outcome:
    """Factor analysis from moments about the mean."""
    variances = group_variances(middle, specification)
    floored = specification.with_floors(noise_floors(specification, variances, middle.shift, options))
    history: list[Progress] = []
    if len(specification.patterns) == 1:
        found = factors(middle, floored, lambda value: add_line(history, value, report))
        parameters, converged = found.solution.parameters, found.converged
    else:
        parameters, converged = _by_patterns(middle, floored, variances, history, report)
    parameters = parameters._replace(mean=parameters.mean + middle.shift)
    return make_outcome(parameters, floored, tuple(history), options, variances, middle, converged=converged)


def _by_patterns(
    middle: Moments, specification: Specification, variances: Array, history: list[Progress], report: Report | None
) -> tuple[Parameters, bool]:
    """PX-EM with Anderson acceleration on the moments of all patterns, every feature in units of its spread; the start
    has one noise variance for each view."""
    spread = np.sqrt(np.maximum(variances, specification.floors))
    scaled = Moments(_scaled(middle, specification, spread), np.zeros(len(spread)), *(middle[2:]))
    floors = specification.floors / spread**2
    standard = specification.with_floors(floors)
    jacobian = -sum(
        found.instances * float(np.log(spread[specification.features_of(pattern)]).sum())
        for pattern, found in zip(specification.patterns, middle.patterns, strict=True)
    )

    def note(point: Parameters, candidate: Parameters, image: Parameters, value: float) -> Parameters:
        add_line(history, value + jacobian, report)
        return candidate

    run = accelerate(
        lambda point: em_step(point, scaled, standard),
        _start(scaled, specification, floors),
        tolerance=TOLERANCE,
        max_evaluations=MAX_EVALUATIONS,
        project=lambda p: p._replace(noise_variance=np.maximum(p.noise_variance, floors)),
        steer=note,
    )
    if not history or run.value + jacobian != history[-1].log_likelihood:
        add_line(history, run.value + jacobian, report)
    point = run.point
    restored = Parameters(point.loadings * spread[:, None], point.mean * spread, point.noise_variance * spread**2)
    return restored, run.converged


def _scaled(middle: Moments, specification: Specification, spread: Array) -> tuple[PatternMoments, ...]:
    found = []
    for pattern, part in zip(specification.patterns, middle.patterns, strict=True):
        unit = spread[specification.features_of(pattern)]
        found.append(PatternMoments(part.instances, part.total / unit, part.gram / np.outer(unit, unit)))
    return tuple(found)


def _start(scaled: Moments, specification: Specification, floors: Array) -> Parameters:
    """The maximum with a noise variance for each view, and what it leaves unexplained of each feature as noise."""
    views = tuple(View(view.name, view.size, START_FLOOR) for view in specification.views)
    simple = Specification(views, specification.patterns, specification.n_components)
    best = solve(scaled, simple, tolerance=START_TOLERANCE)[0].parameters
    rest = np.maximum(1.0 - (best.loadings**2).sum(axis=1), SMALLEST_NOISE)
    return best._replace(noise_variance=np.maximum(rest, floors))
