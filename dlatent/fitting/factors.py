"""Factor analysis from moments: complete data by their profile likelihood, views that are missing by accelerated EM."""

from __future__ import annotations

import numpy as np

from dlatent.arrays import Array
from dlatent.fitting.acceleration import accelerate
from dlatent.fitting.ascent import ascend
from dlatent.fitting.best_maximum import best_of, of_views
from dlatent.fitting.conclusion import make_outcome
from dlatent.fitting.history import History
from dlatent.fitting.outcome import Options, Outcome, Report
from dlatent.fitting.reduced_problem import solve
from dlatent.fitting.textbook import with_floors
from dlatent.linear_gaussian.factor_analysis import factors
from dlatent.linear_gaussian.maximisation import em_step
from dlatent.linear_gaussian.moments import Moments, PatternMoments
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification, View

SMALLEST_NOISE = 0.05
"""Part of a feature's variance that a start leaves to the noise at least."""
START_FLOOR = 1e-3
START_TOLERANCE = 1e-6
TOLERANCE = 1e-12
MAX_EVALUATIONS = 300
MAX_STEPS = 3000


def by_factors(middle: Moments, specification: Specification, options: Options, report: Report | None) -> Outcome:
    """Factor analysis from moments about the mean."""
    floored, variances = with_floors(middle, specification, options)
    history = History(report)
    if len(specification.patterns) == 1:
        found = factors(middle, floored, history.add, options.random_state)
        parameters, converged = found.solution.parameters, found.converged
    else:
        parameters, converged = _by_patterns(middle, floored, variances, history, options)
    parameters = parameters.moved(middle.shift)
    return make_outcome(parameters, floored, history, options, variances, middle, converged=converged)


def _by_patterns(
    middle: Moments,
    specification: Specification,
    variances: Array,
    history: History,
    options: Options,
) -> tuple[Parameters, bool]:
    """PX-EM with Anderson acceleration on the moments of all patterns, every feature in units of its spread, then
    quasi-Newton steps, which also settle noise variances at their floors; the start has one for each view."""
    spread = np.sqrt(np.maximum(variances, specification.floors))
    scaled = Moments(_scaled(middle, specification, spread), np.zeros(len(spread)), *(middle[2:]))
    floors = specification.floors / spread**2
    standard = specification.with_floors(floors)
    jacobian = -sum(
        found.samples * float(np.log(spread[specification.features_of(pattern)]).sum())
        for pattern, found in zip(specification.patterns, middle.patterns, strict=True)
    )

    def note(point: Parameters, candidate: Parameters, image: Parameters, value: float) -> Parameters:
        history.add(value + jacobian)
        return candidate

    run = accelerate(
        lambda point: em_step(point, scaled, standard),
        best_of(of_views(scaled, standard), _start(scaled, specification, floors), options.random_state),
        tolerance=TOLERANCE,
        max_evaluations=MAX_EVALUATIONS,
        project=lambda p: p.at_least(floors),
        steer=note,
    )
    found = ascend(run.point, scaled, standard, tolerance=0.0, max_steps=MAX_STEPS)
    value = found.log_likelihood + jacobian
    # Noise variances on their way to a floor leave little to gain long before their slopes vanish.
    converged = found.converged or found.log_likelihood - run.value <= options.tolerance * abs(value)
    if value > history[-1].log_likelihood:
        history.add(value)
    return found.parameters.rescaled(spread, spread), converged or run.converged


def _scaled(middle: Moments, specification: Specification, spread: Array) -> tuple[PatternMoments, ...]:
    found = []
    for pattern, part in zip(specification.patterns, middle.patterns, strict=True):
        unit = spread[specification.features_of(pattern)]
        found.append(PatternMoments(part.samples, part.total / unit, part.gram / np.outer(unit, unit)))
    return tuple(found)


def _start(scaled: Moments, specification: Specification, floors: Array) -> Parameters:
    """The maximum with a noise variance for each view, and what it leaves unexplained of each feature as noise."""
    views = tuple(View(view.name, view.size, START_FLOOR) for view in specification.views)
    simple = Specification(views, specification.patterns, specification.n_components)
    best = solve(scaled, simple, tolerance=START_TOLERANCE)[0].parameters
    rest = np.maximum(1.0 - (best.loadings**2).sum(axis=1), SMALLEST_NOISE)
    return best._replace(noise_variance=np.maximum(rest, floors))
