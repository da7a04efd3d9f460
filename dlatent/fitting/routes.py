"""The ways from data to parameters: by moments, by a growing subspace, or by textbook EM over the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlatent.arrays import Array
from dlatent.fitting.advice import advise, at_floors, noise_floors
from dlatent.fitting.outcome import Gather, Options, Outcome, Progress, Report
from dlatent.fitting.plan import Plan
from dlatent.fitting.planner import FULL_EIGEN
from dlatent.fitting.rows import fit_rows
from dlatent.fitting.subspace import Climb, Products, climb, require_variation
from dlatent.linear_gaussian.canonical import canonical
from dlatent.linear_gaussian.expectation import Latent, block_expectation
from dlatent.linear_gaussian.factor_analysis import factors
from dlatent.linear_gaussian.likelihood import block_log_likelihood
from dlatent.linear_gaussian.maximisation import em_step, maximise
from dlatent.linear_gaussian.moments import (
    MomentRequest,
    Moments,
    PatternMoments,
    block_moments,
    centred,
    counts_alone,
    view_counts,
    view_variances,
)
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.products import PatternProducts, PatternSums, ProductRequest, block_products
from dlatent.linear_gaussian.rayleigh_ritz import lifted
from dlatent.linear_gaussian.specification import Specification
from dlatent.linear_gaussian.spectral import ppca

CHECK = 1e-7
"""Relative difference of two evaluations of the likelihood that rounding cannot explain."""


def fit(
    gather: Gather,
    specification: Specification,
    plan: Plan,
    shift: Array,
    options: Options,
    *,
    solver: str = "auto",
    report: Report | None = None,
) -> Outcome:
    """Fit by the plan's route; `shift` (D,) is a pilot mean of the features (by rows, of the targets too), `solver`
    "auto" or "em".

    Law: the result does not depend on how the rows are cut into blocks, up to rounding.
    """
    if plan.route == "rows":
        return fit_rows(gather, specification, shift, options, solver=solver, report=report)
    if plan.route == "moments":
        moments = _gathered_moments(gather, specification, shift, options)
        if solver == "em":
            return em_on_moments(moments, specification, options, report)
        return by_moments(moments, specification, shift, options, report)
    if solver == "em":
        return _em_on_data(gather, specification, shift, options, report)
    return _by_subspace(gather, specification, shift, options, report)


def _gathered_moments(gather: Gather, specification: Specification, shift: Array, options: Options) -> Moments:
    request = MomentRequest(shift, specification.patterns, options.refuse_zero_rows)
    found = gather(block_moments, request, name="moments")
    views = len(specification.views)
    targets = sum(specification.sizes[1:])
    return Moments(found, np.concatenate([shift, np.zeros(targets)]), np.zeros(views), np.zeros(views))


def by_moments(
    moments: Moments, specification: Specification, shift: Array, options: Options, report: Report | None
) -> Outcome:
    """The maximum from moments, without access to the data."""
    middle = centred(moments, specification.sizes, specification.patterns)
    if not specification.views[0].shared:
        return _by_factors(middle, specification, options, report)
    small = specification.sizes[0] <= FULL_EIGEN
    if len(specification.views) == 1 and small:
        variances = _variances(middle, specification)
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
    state, converged = climb(
        gram_products(middle, specification), specification, middle.shift[: len(shift)], tight, report
    )
    parameters = lifted(state.solution, state.space)
    parameters = parameters._replace(mean=parameters.mean + _only_targets(middle.shift, len(shift)))
    return finished(state, parameters, options, converged, moments)


def _by_factors(middle: Moments, specification: Specification, options: Options, report: Report | None) -> Outcome:
    """Factor analysis of complete data, from moments about the mean."""
    variances = _variances(middle, specification)
    floored = specification.with_floors(noise_floors(specification, variances, middle.shift, options))
    history: list[Progress] = []
    found = factors(middle, floored, lambda value: add_line(history, value, report))
    parameters = found.solution.parameters._replace(mean=middle.shift)
    return make_outcome(parameters, floored, tuple(history), options, variances, middle, converged=found.converged)


def _variances(middle: Moments, specification: Specification) -> Array:
    """Mean variance per feature of each noise group, from moments about the mean."""
    return require_variation(view_variances(middle, specification.group_sizes, specification.group_patterns))


def _only_targets(shift: Array, features: int) -> Array:
    return np.concatenate([np.zeros(features), shift[features:]])


def gram_products(moments: Moments, specification: Specification) -> Products:
    """The data's products from its Gram matrices; the energy outside the moments goes to the first pattern."""
    width = specification.sizes[0]
    outside = [float(moments.spare_energy[0]), *[0.0] * (len(moments.patterns) - 1)]

    def products(directions: Array, sums: bool) -> tuple[PatternProducts, ...]:
        parts = zip(moments.patterns, outside, strict=True)
        return tuple(_gram_product(found, directions, width, energy, sums=sums) for found, energy in parts)

    return products


def _gram_product(
    found: PatternMoments, directions: Array, width: int, outside: float, *, sums: bool
) -> PatternProducts:
    product = found.gram[:width, :width] @ directions
    if not sums:
        return PatternProducts(product, None)
    energy = outside + float(np.trace(found.gram[:width, :width]))
    parts = PatternSums(
        found.instances,
        found.total[:width],
        energy,
        found.total[width:],
        found.gram[:width, width:],
        found.gram[width:, width:],
    )
    return PatternProducts(product, parts)


def _by_subspace(
    gather: Gather, specification: Specification, shift: Array, options: Options, report: Report | None
) -> Outcome:
    def products(directions: Array, sums: bool) -> tuple[PatternProducts, ...]:
        request = ProductRequest(directions, shift, specification.patterns, sums, options.refuse_zero_rows)
        return gather(block_products, request, name="products")

    state, converged = climb(products, specification, shift, options, report)
    parameters = lifted(state.solution, state.space)
    checked = None
    if options.verify:
        checked = gather(block_log_likelihood, (parameters, state.specification), name="check")
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


def em_start(specification: Specification, variances: Array, options: Options) -> Parameters:
    """Random loadings of the scale of the data, as textbooks start EM."""
    rng = np.random.default_rng(options.random_state)
    scale = np.sqrt(specification.per_feature(variances))
    loadings = rng.standard_normal((sum(specification.sizes), specification.n_components)) * scale[:, None]
    return Parameters(
        loadings / np.sqrt(specification.n_components), np.zeros(len(loadings)), np.maximum(variances, 1e-300)
    )


def settled(history: list[Progress], options: Options) -> bool:
    """Whether the last iteration of EM gained less than the tolerance."""
    last = history[-1]
    return len(history) > 1 and abs(last.gain) <= options.tolerance * max(abs(last.log_likelihood), 1.0)


def add_line(history: list[Progress], value: float, report: Report | None) -> None:
    """Add a line to the history of EM, and tell of it."""
    gain = value - history[-1].log_likelihood if history else float("nan")
    history.append(Progress(len(history) + 1, value, gain, float("nan"), 0))
    if report is not None:
        report(history[-1])


def em_on_moments(
    moments: Moments,
    specification: Specification,
    options: Options,
    report: Report | None,
    *,
    start: Parameters | None = None,
) -> Outcome:
    """Plain EM (SPPCA, Algorithms 1 and 2) on moments: the iterations do not touch the data."""
    middle = centred(moments, specification.sizes, specification.patterns)
    variances = _variances(middle, specification)
    floored = specification.with_floors(noise_floors(specification, variances, middle.shift, options))
    parameters = em_start(floored, variances, options) if start is None else start
    history, converged = list[Progress](), False
    while not converged and len(history) < options.max_iterations:
        before = parameters
        parameters, value = em_step(parameters, middle, floored, expand=False)
        add_line(history, value, report)
        converged = settled(history, options)
    final = before._replace(mean=before.mean + middle.shift)
    return make_outcome(final, floored, tuple(history), options, variances, moments, converged=converged)


def _em_on_data(
    gather: Gather, specification: Specification, shift: Array, options: Options, report: Report | None
) -> Outcome:
    """Plain EM (SPPCA, Algorithms 1 and 2) with one pass over the data per iteration: the reference, not the fast
    way."""
    request = ProductRequest(
        np.zeros((specification.sizes[0], 0)), shift, specification.patterns, True, options.refuse_zero_rows
    )
    sums = [part.sums for part in gather(block_products, request, name="sums") if part.sums is not None]
    variances, offset, counts = _data_scale(sums, specification)
    require_variation(variances)
    floored = specification.with_floors(np.array(options.floor_parts) * variances)
    parameters, history = em_start(floored, variances, options), list[Progress]()
    parameters = parameters._replace(mean=offset)
    converged = False
    while not converged and len(history) < options.max_iterations:
        before = parameters
        latent: tuple[Latent, ...] = gather(block_expectation, (parameters, floored, shift), name="expectation")
        parameters = maximise(latent, floored, expand=False)
        add_line(history, sum(part.log_likelihood for part in latent), report)
        converged = settled(history, options)
    final = before._replace(mean=before.mean + np.concatenate([shift, np.zeros(len(before.mean) - len(shift))]))
    return make_outcome(final, floored, tuple(history), options, variances, counts, converged=converged)


def _data_scale(sums: list[PatternSums], specification: Specification) -> tuple[Array, Array, Moments]:
    """Mean variance per view, mean relative to the shift, and the counts, from the sums of a pass."""
    count = sum(s.instances for s in sums)
    offset = np.asarray(sum(s.total for s in sums)) / count
    variances = [(sum(s.energy for s in sums) - count * float(offset @ offset)) / (count * len(offset))]
    means = [offset]
    for _ in specification.sizes[1:]:
        labelled = [s for p, s in zip(specification.patterns, sums, strict=True) if 1 in p]
        seen = sum(s.instances for s in labelled)
        mean = np.asarray(sum(s.target_total for s in labelled)) / seen
        energy = sum(float(np.trace(s.target_gram)) for s in labelled) - seen * float(mean @ mean)
        variances.append(energy / (seen * len(mean)))
        means.append(mean)
    counts = counts_alone((s.instances for s in sums), len(specification.views))
    return np.array(variances), np.concatenate(means), counts


def make_outcome(
    parameters: Parameters,
    specification: Specification,
    history: tuple[Progress, ...],
    options: Options,
    variances: Array,
    counts: Moments,
    *,
    converged: bool,
    checked: float | None = None,
) -> Outcome:
    """The outcome of a fit, in canonical form, with advice."""
    at_floor = at_floors(parameters, specification)
    value = history[-1].log_likelihood
    seen = view_counts(counts, specification.patterns, len(specification.views))
    advice = advise(parameters, specification, history, options, variances, at_floor, converged=converged)
    if checked is not None and abs(checked - value) > CHECK * max(abs(value), 1.0):
        advice += (
            f"precision: the likelihood evaluated on the data is {checked:.10g}, inside the subspace {value:.10g}; "
            "store the data as float64 or scale its features",
        )
    return Outcome(
        canonical(parameters, specification),
        specification,
        value,
        history,
        converged,
        len(history),
        at_floor,
        int(sum(m.instances for m in counts.patterns)),
        tuple(int(n) for n in seen),
        tuple(float(variances[at].mean()) for at in specification.noise_slices),
        advice,
        checked,
    )
