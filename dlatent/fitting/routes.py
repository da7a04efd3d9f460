"""The ways from data to parameters: by moments, by a growing subspace, or by textbook EM over the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlatent.arrays import Array
from dlatent.fitting.advice import noise_floors
from dlatent.fitting.conclusion import make_outcome
from dlatent.fitting.expectations import accelerated_em, begin, em_on_data
from dlatent.fitting.factors import by_factors
from dlatent.fitting.outcome import Options, Outcome, Progress, Report
from dlatent.fitting.plan import Plan
from dlatent.fitting.planner import FULL_EIGEN
from dlatent.fitting.rows import fit_rows
from dlatent.fitting.subspace import Climb, Products, climb, extra_directions
from dlatent.fitting.textbook import em_on_moments, group_variances, stacked_shift
from dlatent.linear_gaussian.columns import by_columns
from dlatent.linear_gaussian.likelihood import LikelihoodRequest, block_log_likelihood
from dlatent.linear_gaussian.moments import (
    MomentRequest,
    Moments,
    PatternMoments,
    block_moments,
    centred,
    counts_alone,
)
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.products import (
    PatternProducts,
    PatternSums,
    ProductRequest,
    block_products,
)
from dlatent.linear_gaussian.specification import Specification
from dlatent.linear_gaussian.spectral import ppca
from dlatent.linear_gaussian.views import Arrangement
from dlatent.passes import Pass, Run

NARROW = 4
"""A view of so many times fewer features than a subspace begins with is taken as a whole, where its Gram matrix is at
hand: what the search in a subspace saves, the next one repeats."""


def fit(
    run: Run,
    specification: Specification,
    plan: Plan,
    shift: Array,
    options: Options,
    *,
    solver: str = "auto",
    report: Report | None = None,
    arrangement: Arrangement | None = None,
) -> Outcome:
    """Fit by the plan's route; `shift` (D,) is a pilot mean of the features (by rows, of the targets too), `solver`
    "auto" or "em"; `arrangement` is that of instances of several views, whose shift is that of all stacked features.

    Law: the result does not depend on how the rows are cut into blocks, up to rounding.
    """
    if plan.route == "rows" and arrangement is None:
        return fit_rows(run, specification, shift, options, solver=solver, report=report)
    if plan.route == "moments":
        moments = _moments_of_data(run, specification, shift, options, arrangement)
        if solver == "em":
            return em_on_moments(moments, specification, options, report)
        growing = (0,) if arrangement is None else tuple(range(len(specification.views)))
        return by_moments(moments, specification, options, report, growing=growing)
    if solver == "em" or plan.route == "rows":
        whole = stacked_shift(shift, specification)
        data = begin(run, specification, whole, options, arrangement, report)
        return em_on_data(data) if solver == "em" else accelerated_em(data)
    return _by_subspace(run, specification, shift, options, report, arrangement)


def _moments_of_data(
    run: Run, specification: Specification, shift: Array, options: Options, arrangement: Arrangement | None
) -> Moments:
    request = MomentRequest(shift, specification.patterns, options.refuse_zero_rows, arrangement)
    found = run(Pass(block_moments, request, name="moments"))
    views = len(specification.views)
    return Moments(found, stacked_shift(shift, specification), np.zeros(views), np.zeros(views))


def by_moments(
    moments: Moments,
    specification: Specification,
    options: Options,
    report: Report | None,
    *,
    growing: tuple[int, ...] = (0,),
) -> Outcome:
    """The maximum from moments, without access to the data; `growing` are the views that a subspace may stand for."""
    middle = centred(moments, specification.sizes, specification.patterns)
    if not specification.views[0].shared:
        return by_factors(middle, specification, options, report)
    small = sum(specification.sizes[view] for view in growing) <= FULL_EIGEN
    if len(specification.views) == 1 and small:
        variances = group_variances(middle, specification)
        floored = specification.with_floors(noise_floors(specification, variances, middle.shift, options))
        solution = ppca(middle, floored)
        line = Progress(1, solution.log_likelihood, float("nan"), 0.0, specification.sizes[0])
        if report is not None:
            report(line)
        parameters = solution.parameters._replace(mean=middle.shift)
        return make_outcome(parameters, floored, (line,), options, variances, moments, converged=True)
    # The Gram matrix is at hand, so that further products cost no pass: iterate to rounding.
    tight = Options(
        min(options.tolerance, 1e-13),
        300,
        options.random_state,
        options.floor_parts,
        options.max_rank,
        options.precision,
    )
    products = gram_products(middle, specification)
    # Starts in a subspace may miss what starts in all of the features find; where these are few, nothing is saved.
    few = NARROW * (specification.n_components + extra_directions(specification.n_components))
    whole = small and (len(growing) > 1 or specification.sizes[0] <= few)
    state, converged = climb(products, specification, middle.shift, tight, report, growing=growing, whole=whole)
    return finished(state, state.space.lifted(state.solution), options, converged, moments)


def gram_products(moments: Moments, specification: Specification) -> Products:
    """The data's products from its Gram matrices; the energy of the first view outside them goes to its first
    pattern."""
    has = next(number for number, pattern in enumerate(specification.patterns) if 0 in pattern)

    def products(directions: tuple[Array, ...], sums: bool) -> tuple[PatternProducts, ...]:
        return tuple(
            _gram_product(
                found,
                pattern,
                specification,
                directions,
                outside=float(moments.spare_energy[0]) if number == has else 0.0,
                sums=sums,
            )
            for number, (pattern, found) in enumerate(zip(specification.patterns, moments.patterns, strict=True))
        )

    return products


def _gram_product(
    found: PatternMoments,
    pattern: tuple[int, ...],
    specification: Specification,
    directions: tuple[Array, ...],
    *,
    outside: float,
    sums: bool,
) -> PatternProducts:
    own = specification.slices_within(pattern)
    product = tuple(np.asfortranarray(found.gram[:, at] @ directions[view]) for view, at in own.items())
    if not sums:
        return PatternProducts(product, None)
    energy = np.array([float(np.trace(found.gram[at, at])) for at in own.values()])
    if outside:
        energy[pattern.index(0)] += outside
    return PatternProducts(product, PatternSums(found.instances, found.total, energy))


def _by_subspace(
    run: Run,
    specification: Specification,
    shift: Array,
    options: Options,
    report: Report | None,
    arrangement: Arrangement | None,
) -> Outcome:
    # Rows that are picked out by their pattern are better held by rows.
    form = by_columns if len(specification.patterns) == 1 and arrangement is None else None

    def products(directions: tuple[Array, ...], sums: bool) -> tuple[PatternProducts, ...]:
        request = ProductRequest(directions, shift, specification.patterns, sums, options.refuse_zero_rows, arrangement)
        return run(Pass(block_products, request, form=form, name="products"))

    growing = (0,) if arrangement is None else tuple(range(len(specification.views)))
    whole = stacked_shift(shift, specification)
    state, converged = climb(products, specification, whole, options, report, growing=growing)
    parameters = state.space.lifted(state.solution)
    checked = None
    if options.verify:
        request = LikelihoodRequest(parameters, state.specification, arrangement)
        checked = run(Pass(block_log_likelihood, request, form=form, name="check"))
    return finished(state, parameters, options, converged, None, checked=checked)


def finished(
    state: Climb[Any],
    parameters: Parameters,
    options: Options,
    converged: bool,
    moments: Moments | None,
    *,
    checked: float | None = None,
) -> Outcome:
    """The outcome of a climb; the likelihood that a pass evaluated is compared with that inside the subspace."""
    specification = state.specification
    variances = state.variances(specification)
    counts = moments
    if counts is None:
        counts = counts_alone(state.space.counts, len(specification.views))
    history = tuple(state.history)
    if state.warm is not None and not state.warm.converged:
        converged = False
    return make_outcome(
        parameters, specification, history, options, variances, counts, converged=converged, checked=checked
    )
