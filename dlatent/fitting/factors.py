"""Factor analysis from moments: complete data by their profile likelihood, views that are missing by accelerated EM."""

from __future__ import annotations

import numpy as np
import scipy.optimize as opt

from dlatent.arrays import Array
from dlatent.fitting.acceleration import accelerate
from dlatent.fitting.conclusion import make_outcome
from dlatent.fitting.diagnostics import noise_floors
from dlatent.fitting.outcome import Iteration, Options, Outcome, Report
from dlatent.fitting.reduced_problem import solve
from dlatent.fitting.several import best_of, of_views
from dlatent.fitting.textbook import add_line, group_variances
from dlatent.linear_gaussian.expectation import expect_moments
from dlatent.linear_gaussian.factor_analysis import factors
from dlatent.linear_gaussian.maximisation import em_step, slope
from dlatent.linear_gaussian.moments import Moments, PatternMoments
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification, View

SMALLEST_NOISE = 0.05
"""Part of a feature's variance that a start leaves to the noise at least."""
START_FLOOR = 1e-3
START_TOLERANCE = 1e-6
TOLERANCE = 1e-12
MAX_EVALUATIONS = 300
GRADIENT = 1e-10
"""Largest derivative of the log-likelihood per sample at which the search ends."""
MAX_STEPS = 3000


def by_factors(middle: Moments, specification: Specification, options: Options, report: Report | None) -> Outcome:
    """Factor analysis from moments about the mean."""
    variances = group_variances(middle, specification)
    floored = specification.with_floors(noise_floors(specification, variances, middle.shift, options))
    history: list[Iteration] = []
    if len(specification.patterns) == 1:
        found = factors(middle, floored, lambda value: add_line(history, value, report), options.random_state)
        parameters, converged = found.solution.parameters, found.converged
    else:
        parameters, converged = _by_patterns(middle, floored, variances, history, report, options)
    parameters = parameters._replace(mean=parameters.mean + middle.shift)
    return make_outcome(parameters, floored, tuple(history), options, variances, middle, converged=converged)


def _by_patterns(
    middle: Moments,
    specification: Specification,
    variances: Array,
    history: list[Iteration],
    report: Report | None,
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
        add_line(history, value + jacobian, report)
        return candidate

    run = accelerate(
        lambda point: em_step(point, scaled, standard),
        best_of(of_views(scaled, standard), _start(scaled, specification, floors), options.random_state),
        tolerance=TOLERANCE,
        max_evaluations=MAX_EVALUATIONS,
        project=lambda p: p._replace(noise_variance=np.maximum(p.noise_variance, floors)),
        steer=note,
    )
    point, value, converged = _settled(run.point, scaled, standard)
    # Noise variances on their way to a floor leave little to gain long before their slopes vanish.
    converged = converged or value - run.value <= options.tolerance * abs(value + jacobian)
    if value + jacobian > history[-1].log_likelihood:
        add_line(history, value + jacobian, report)
    restored = Parameters(point.loadings * spread[:, None], point.mean * spread, point.noise_variance * spread**2)
    return restored, converged or run.converged


def _settled(start: Parameters, moments: Moments, specification: Specification) -> tuple[Parameters, float, bool]:
    """The maximum near a point, from the gradient; the point, its log-likelihood, and whether the search ended."""
    count = sum(found.samples for found in moments.patterns)

    def objective(vector: Array) -> tuple[float, Array]:
        point = start.unflatten(vector)
        latent = expect_moments(point, moments, specification)
        value = sum(part.log_likelihood for part in latent)
        return -value / count, -slope(latent, point, specification) / count

    low = np.full(len(start.flatten()), -np.inf)
    low[-len(start.noise_variance) :] = np.log(np.maximum(specification.floors, np.finfo(float).tiny))
    best = opt.minimize(
        objective,
        np.maximum(start.flatten(), low),
        jac=True,
        method="L-BFGS-B",
        bounds=opt.Bounds(low, np.inf),
        options={"ftol": 0.0, "gtol": GRADIENT, "maxiter": MAX_STEPS, "maxfun": 2 * MAX_STEPS, "maxcor": 30},
    )
    free = best.x > low
    settled = bool(np.abs(best.jac[free]).max(initial=0.0) <= 1e3 * GRADIENT)
    found = start.unflatten(best.x)
    found = found._replace(noise_variance=np.maximum(found.noise_variance, specification.floors))
    return found, -float(best.fun) * count, bool(best.success) or settled


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
