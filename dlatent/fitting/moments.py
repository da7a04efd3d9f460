"""The maximum from moments, without access to the data, and the outcome of a search in a subspace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dlatent.arrays import Array
from dlatent.fitting.conclusion import make_outcome
from dlatent.fitting.costs import FULL_EIGEN
from dlatent.fitting.factors import by_factors
from dlatent.fitting.outcome import Iteration, Options, Outcome, Report
from dlatent.fitting.subspace import Products, SubspaceFit, fresh_directions, search
from dlatent.fitting.textbook import with_floors
from dlatent.linear_gaussian.dimension import chosen_components
from dlatent.linear_gaussian.moments import (
    Moments,
    PatternMoments,
    centred,
    counts_alone,
)
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.products import (
    PatternProducts,
    PatternSums,
)
from dlatent.linear_gaussian.specification import Specification
from dlatent.linear_gaussian.spectral import ppca
from dlatent.operators.eigen import top_eigenvalues

NARROW = 4
"""A view of so many times fewer features than a subspace begins with is taken as a whole, where its Gram matrix is at
hand: what the search in a subspace saves, the next one repeats."""


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
        floored, variances = with_floors(middle, specification, options)
        solution = ppca(middle, floored)
        line = Iteration(1, solution.log_likelihood, float("nan"), 0.0, specification.sizes[0])
        if report is not None:
            report(line)
        parameters = solution.parameters._replace(mean=middle.shift)
        return make_outcome(parameters, floored, (line,), options, variances, moments, converged=True)
    # The Gram matrix is at hand, so that further products cost no pass: iterate to rounding.
    tight = replace(options, tolerance=min(options.tolerance, 1e-13), max_iterations=300)
    products = gram_products(middle, specification)
    # Starts in a subspace may miss what starts in all of the features find; where these are few, nothing is saved.
    few = NARROW * fresh_directions(specification.n_components)
    whole = small and (len(growing) > 1 or specification.sizes[0] <= few)
    state, converged = search(products, specification, middle.shift, tight, report, growing=growing, whole=whole)
    return finished(state, state.space.lifted(state.solution), options, converged, moments)


def with_components(
    rule: str | float, moments: Moments, specification: Specification, options: Options
) -> Specification:
    """The specification of one view with the number of components that a rule chooses, of those that it has at most."""
    middle = centred(moments, specification.sizes, specification.patterns)
    found, variances = middle.patterns[0], with_floors(middle, specification, options)[1]
    floor = options.floor_parts[0] * float(variances[0])
    values = top_eigenvalues(found.gram / found.samples, len(found.gram))
    most = specification.n_components
    return replace(specification, n_components=chosen_components(rule, values, found.samples, most=most, floor=floor))


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
    return PatternProducts(product, PatternSums(found.samples, found.total, energy))


def finished(
    state: SubspaceFit[Any],
    parameters: Parameters,
    options: Options,
    converged: bool,
    moments: Moments | None,
    *,
    checked: float | None = None,
) -> Outcome:
    """The outcome of a fit in a subspace, whose likelihood is compared with one that a pass has evaluated."""
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
