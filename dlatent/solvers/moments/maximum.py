"""The maximum from moments, without access to the data, and the solution of a search in a subspace.

Factor analysis of complete data maximises the profile likelihood; where views are missing it is accelerated EM.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dlatent.arrays import Array
from dlatent.gaussian.factor_analysis import factors
from dlatent.gaussian.maximisation import em_step
from dlatent.gaussian.moments import Moments
from dlatent.gaussian.products import PatternProducts, PatternSums
from dlatent.gaussian.specification import Parameters, Specification, View
from dlatent.gaussian.spectral import ppca
from dlatent.operators.symmetric import top_eigenvalues
from dlatent.operators.tall import fresh_directions
from dlatent.solvers.ascent import accelerate, ascend
from dlatent.solvers.best_maximum import best_of, of_views
from dlatent.solvers.costs import FULL_EIGEN
from dlatent.solvers.diagnostics import make_solution
from dlatent.solvers.em import with_floors
from dlatent.solvers.evidence import chosen, supported_factors
from dlatent.solvers.moments.number import joint_factors, joint_number
from dlatent.solvers.moments.reduced_problem import in_units, solve
from dlatent.solvers.moments.subspace import Products, SubspaceFit, search
from dlatent.solvers.solver import History, Report, Solution
from dlatent.solvers.task import Task

SMALLEST_NOISE = 0.05
"""Part of a feature's variance that a start leaves to the noise at least."""
START_FLOOR = 1e-3
START_TOLERANCE = 1e-6
TOLERANCE = 1e-12
MAX_EVALUATIONS = 300
MAX_STEPS = 3000
NARROW = 4
"""A view of so many times fewer features than a subspace begins with is taken as a whole, where its Gram matrix is at
hand: what the search in a subspace saves, the next one repeats."""


def by_moments(middle: Moments, task: Task, report: Report | None) -> Solution:
    """The maximum from moments about the mean, without access to the data."""
    specification, growing = task.specification, task.growing
    if not specification.views[0].shared:
        return by_factors(middle, task, report)
    small = sum(specification.sizes[view] for view in growing) <= FULL_EIGEN
    if len(specification.views) == 1 and small:
        floored, variances = with_floors(middle, task)
        solution = ppca(middle, floored)
        history = History(report)
        history.add(solution.log_likelihood, 0.0, specification.sizes[0])
        counts = [part.samples for part in middle.patterns]
        parameters = solution.parameters._replace(mean=middle.shift)
        return make_solution(parameters, floored, history, task, variances, counts, converged=True)
    # The Gram matrix is at hand, so that further products cost no pass: iterate to rounding.
    tight = replace(task, tol=min(task.tol, 1e-13), max_iter=300)
    products = gram_products(middle, specification)
    # Starts in a subspace may miss what starts in all of the features find; where these are few, nothing is saved.
    few = NARROW * fresh_directions(specification.n_components)
    every_feature = small and (len(growing) > 1 or specification.sizes[0] <= few)
    state, converged = search(products, tight, middle.shift, report, every_feature=every_feature)
    return finished(state, state.space.lifted(state.solution), converged)


def with_components(middle: Moments, task: Task) -> Specification:
    """The specification with the number of components that the rule chooses, of those that it has at most, from moments
    about the mean."""
    specification = task.specification
    if task.arrangement is not None:
        shared = task.shared
        k = joint_number(gram_products(middle, specification), task) if shared else joint_factors(middle, task)
        return replace(specification, n_components=k)
    if task.rule == "auto" and not task.shared:
        return replace(specification, n_components=supported_factors(middle.patterns[0], specification.n_components))
    complete, variances = middle.patterns[0], with_floors(middle, task)[1]
    floor = task.floor_parts[0] * float(variances[0])
    values = top_eigenvalues(complete.gram / complete.samples, len(complete.gram))
    return replace(specification, n_components=chosen(task, values, complete.samples, floor))


def gram_products(moments: Moments, specification: Specification) -> Products:
    """The data's products from its Gram matrices; the energy of the first view outside them goes to its first
    pattern."""
    sums_of = []
    for pattern, part in zip(specification.patterns, moments.patterns, strict=True):
        energy = [float(np.trace(part.gram[at, at])) for at in specification.slices_within(pattern).values()]
        sums_of.append(PatternSums(part.samples, part.total, np.array(energy)))
    has = next(number for number, pattern in enumerate(specification.patterns) if 0 in pattern)
    sums_of[has].energy[specification.patterns[has].index(0)] += moments.spare_energy[0]

    def products(directions: tuple[Array, ...], sums: bool = False) -> tuple[PatternProducts, ...]:
        each = []
        for pattern, part, totals in zip(specification.patterns, moments.patterns, sums_of, strict=True):
            places = specification.slices_within(pattern).items()
            product = tuple(np.asfortranarray(part.gram[:, at] @ directions[view]) for view, at in places)
            each.append(PatternProducts(product, totals if sums else None))
        return tuple(each)

    return products


def finished(
    state: SubspaceFit[Any], parameters: Parameters, converged: bool, checked: float | None = None
) -> Solution:
    """The solution of a fit in a subspace, whose likelihood is compared with one that a pass has evaluated."""
    return make_solution(
        parameters,
        state.specification,
        state.history,
        state.task,
        state.variances(),
        state.counts,
        converged=converged and state.warm is not None and state.warm.converged,
        checked=checked,
        sizes=state.sizes(),
    )


def by_factors(middle: Moments, task: Task, report: Report | None) -> Solution:
    """Factor analysis from moments about the mean."""
    floored, variances = with_floors(middle, task)
    history = History(report)
    if len(floored.patterns) == 1:
        best = factors(middle, floored, history.add, task.random_state, task.tol)
        parameters, converged = best.solution.parameters, best.converged
    else:
        parameters, converged = _by_patterns(middle, floored, variances, history, task)
    parameters = parameters.moved(middle.shift)
    counts = [part.samples for part in middle.patterns]
    return make_solution(parameters, floored, history, task, variances, counts, converged=converged)


def _by_patterns(
    middle: Moments,
    specification: Specification,
    variances: Array,
    history: History,
    task: Task,
) -> tuple[Parameters, bool]:
    """PX-EM with Anderson acceleration on the moments of all patterns, every feature in units of its spread, then
    quasi-Newton steps, which also settle noise variances at their floors; the start has one for each view."""
    spread = np.sqrt(np.maximum(variances, specification.floors))
    scaled = in_units(middle, specification, spread)
    floors = specification.floors / spread**2
    standard = specification.with_floors(floors)
    jacobian = -sum(
        top.samples * float(np.log(spread[specification.features_of(pattern)]).sum())
        for pattern, top in zip(specification.patterns, middle.patterns, strict=True)
    )

    def note(point: Parameters, candidate: Parameters, image: Parameters, value: float) -> Parameters:
        history.add(value + jacobian)
        return candidate

    run = accelerate(
        lambda point: em_step(point, scaled, standard),
        best_of(of_views(scaled, standard), _start(scaled, specification, floors), task.random_state),
        tolerance=TOLERANCE,
        max_evaluations=MAX_EVALUATIONS,
        project=lambda p: p.at_least(floors),
        steer=note,
    )
    top = ascend(run.point, scaled, standard, tolerance=0.0, max_steps=MAX_STEPS)
    value = top.value + jacobian
    # Noise variances on their way to a floor leave little to gain long before their slopes vanish.
    converged = top.converged or top.value - run.value <= task.tol * abs(value)
    if value > history[-1].log_likelihood:
        history.add(value)
    return top.point.rescaled(spread, spread), converged or run.converged


def _start(scaled: Moments, specification: Specification, floors: Array) -> Parameters:
    """The maximum with a noise variance for each view, and what it leaves unexplained of each feature as noise."""
    views = tuple(View(view.name, view.size, START_FLOOR) for view in specification.views)
    simple = Specification(views, specification.patterns, specification.n_components)
    best = solve(scaled, simple, tolerance=START_TOLERANCE)[0].parameters
    rest = np.maximum(1.0 - (best.loadings**2).sum(axis=1), SMALLEST_NOISE)
    return best._replace(noise_variance=np.maximum(rest, floors))
