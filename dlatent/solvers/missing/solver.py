"""Any entry may be missing: accelerated EM, one pass an iteration, and few of them; two in all for few masks.

Rows have no statistics in common.  All of it happens in units in which each noise group has variance 1 about 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dlatent.arrays import Array
from dlatent.gaussian.canonical import canonical
from dlatent.gaussian.missing_entries.entries import (
    CompleteRequest,
    EntrySums,
    block_complete_sums,
    block_entry_sums,
)
from dlatent.gaussian.missing_entries.patterns import (
    LARGEST,
    MOST,
    MaskMoments,
    PatternRequest,
    block_patterns,
    distinct,
    few_buckets,
)
from dlatent.gaussian.missing_entries.prior import diagonal, prior_variance
from dlatent.gaussian.missing_entries.row_effects import filled, others, start_with_level
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.passes import Pass, Resources, Run
from dlatent.solvers.best_maximum import SAMPLE, SampleRequest, best_of, block_sample, of_patterns, of_rows
from dlatent.solvers.costs import (
    BASE_MEMORY,
    EXPECTED_ROW_PASSES,
    EXPECTED_VIEW_PASSES,
    ROW_CHUNK_BYTES,
    ROW_SOLVE,
    driver_base,
    pass_seconds,
    placed,
    product_rate,
    seen_features,
    solving_seconds,
    worker_memory,
)
from dlatent.solvers.diagnostics import feature_name, make_solution
from dlatent.solvers.em import em_on_data, em_start, stacked_shift
from dlatent.solvers.graph.averaged_rows import Averaging, averaged
from dlatent.solvers.graph.costs import COMPARED_STEPS, features_bytes, features_memory, features_seconds, graph_memory
from dlatent.solvers.missing.iterations import BoundEM, EntriesEM
from dlatent.solvers.missing.starts import (
    AHEAD,
    AHEAD_STEPS,
    AHEAD_TOLERANCE,
    LEAST_EACH,
    LEAST_SHARED,
    PAIRWISE,
    PART,
    EntryData,
    Units,
    first_parameters,
    units_of,
)
from dlatent.solvers.plan import Plan
from dlatent.solvers.solver import Report, Solution, Solver
from dlatent.solvers.task import Task

PRIOR_MATRICES = 8
"""Matrices of K × K for each feature that an M-step with a prior makes."""
LOOKING, LOOKS = 1e-7, 60
"""Relative tolerance, and most iterations, of a climb that looks for the best number of components."""
NAMED = 5
"""Features without an entry that a warning names."""
LEFT_OUT = 3
"""Components, those of least variance, that are left out in turn."""


class AcceleratedEMSolver(Solver):
    """About twenty passes, D · K² numbers."""

    name, observed, most = "accelerated_em", True, 300
    serves = frozenset({"missing", "graph", "own noise", "views", "targets", "prior", "prior, targets"})
    needs, lacking = frozenset({"missing", "own noise", "prior, targets"}), "no entry is missing"

    def misfit(self, task: Task) -> str | None:
        """Entries that sparse rows do not store are zero: only their Gram matrix does without densifying them."""
        zeros = task.data.nnz is not None and not task.missing and task.arrangement is None
        return "the data are sparse" if zeros else None

    def plan(self, task: Task, machine: Resources) -> Plan:
        """About twenty passes, statistics of D × K²/2 numbers: any entry may be missing, and noise may be per feature;
        of joint samples, which lack whole views, only D × K for each pattern."""
        if task.arrangement is not None:
            return _of_views(task, machine)
        data, between, k = task.data, task.between, task.specification.n_components
        width, packed = data.features + task.columns, (k + 1) * (k + 2) // 2
        statistic = 8 * max(width * (packed + k + 2), min(MOST * width**2, LARGEST))
        worker = worker_memory(task, machine, statistic, 2 * statistic) + machine.threads * ROW_CHUNK_BYTES
        # The points and images that the acceleration remembers, and a few statistics.
        driver = driver_base(task, machine) + 8 * width * (k + 2) * 24 + 6 * statistic
        driver += 0 if task.prior == "ml" else 8 * width * PRIOR_MATRICES * (k + 1) ** 2
        if between is not None:  # rows and their masks meet their neighbours
            worker += graph_memory(task, machine) + 2 * sum(features_memory(task, machine))
        plan = placed(self.name, task, machine, worker, driver)

        cells = data.entries if data.nnz is not None else data.samples * width
        flops = 4.0 * cells * (packed + k) + data.samples * float(k) ** 3 * ROW_SOLVE
        passes = EXPECTED_ROW_PASSES
        work = pass_seconds(data, machine, flops, product_rate(data), passes, 1 if plan.cached else passes)
        passes = task.em_passes or passes
        plan = replace(plan, solving=solving_seconds(task), moved=2 * statistic)
        if between is None:
            return replace(plan, passes=passes, work=work)
        if between.candidates:  # one for the means; of each strength a fit, which looks for its start, and its test
            passes += 1 + between.candidates * (COMPARED_STEPS + 4)
        work += passes * 2 * features_seconds(task, machine)
        return replace(
            plan,
            passes=passes,
            work=work * (1 + between.candidates),  # strengths of smoothing are compared by fits
            # Rows are read once to be exchanged, and once for what came; masks meet their neighbours, too.
            reads=1 if plan.cached else 2 * passes,
            edge_reads=2 * passes * (between.hops + 1),
            neighbour_bytes=2 * features_bytes(task),
        )

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Solution:
        """The maximum by accelerated EM, or by textbook EM."""
        stacked = stacked_shift(shift, task.specification)
        if task.relation is not None:
            run = averaged(run, Averaging(task.relation.precision, shift))
        if task.arrangement is None:
            return fit_rows(run, task, stacked, report)
        return em_on_data(run, task, stacked, report)


def _of_views(task: Task, machine: Resources) -> Plan:
    data, k = task.data, task.specification.n_components
    statistic = 8 * sum(size for size, _ in seen_features(task)) * (k + 3)
    worker = worker_memory(task, machine, statistic, 8 * data.features * (k + 3))
    driver = BASE_MEMORY + 8 * data.features * (k + 2) * 24 + 6 * statistic
    plan = placed("accelerated_em", task, machine, worker, driver)
    cells, passes = data.nnz if data.nnz is not None else data.nbytes / data.itemsize, EXPECTED_VIEW_PASSES
    flops = 4.0 * cells * (k + 1)
    work = pass_seconds(data, machine, flops, product_rate(data), passes, 1 if plan.cached else passes)
    return replace(plan, passes=task.em_passes or passes, work=work, moved=2 * statistic)


def fit_rows(run: Run, task: Task, shift: Array, report: Report | None = None) -> Solution:
    """Maximum likelihood of the observed entries; `shift` (D + L′,) is an initial mean."""
    specification, likelihood = task.specification, task.prior == "ml"
    sums = _sums(run, shift, task)
    # Rows of so few entries the components may explain wholly; only these lose digits where little noise is left.
    few = float(sums.lengths[: specification.n_components + 1].sum()) / sums.samples
    task = task.with_least_floors(few * (LEAST_SHARED if view.shared else LEAST_EACH) for view in specification.views)
    units, floors = units_of(sums, task, shift)
    scaled = specification.with_floors(floors)
    data, task = EntryData(run, units, sums, _patterns(run, sums, units)), replace(task, specification=scaled)
    tight = task
    if data.patterns is not None and not task.textbook:  # iterations that cost no pass go on nearly to rounding
        tight = replace(task, tol=min(task.tol, 1e-12), max_iter=max(task.max_iter, 1000))
    em = (EntriesEM if likelihood else BoundEM)(data, tight, report)
    start = None if task.start is None else units.taken(task.start, scaled)
    if start is not None and likelihood:
        start = start.certain()
    if start is None and task.textbook:
        start = _started(scaled, lambda free: em_start(free, np.ones(len(floors)), task.random_state))
    best, _, converged = em.climb(_best_start(data, task) if start is None else start)
    in_data_units = units.in_data_units(best, specification)
    floored = specification.with_floors(floors * units.scale[specification.group_starts] ** 2)
    counts = [sums.samples] * len(specification.patterns)
    solution = make_solution(in_data_units, floored, em.history, task, units.variances, counts, converged=converged)
    return replace(
        solution,
        parameters=filled(canonical(in_data_units, floored, _prior_axes(best, task, units)), specification),
        samples=int(sums.samples),
        view_samples=_view_samples(sums, specification),
        advice=solution.advice + unseen(sums, in_data_units.mean, specification),
        known=sums.counts,
    )


def _prior_axes(point: Parameters, task: Task, units: Units) -> Array | None:
    """The variance of the loadings that is to be diagonal; None where it is so along the axes of the likelihood: with
    one noise variance, and where no direction has a variance of its own."""
    if task.prior != "ard" or len(task.specification.group_sizes) == 1:
        return None
    return prior_variance(others(point, task.specification), units.counts)


def _started(specification: Specification, start: Callable[[Specification], Parameters]) -> Parameters:
    """A start; one of components alone has what they share as the level of the rows."""
    if not specification.row_effects:
        return start(specification)
    free = replace(specification, n_components=specification.n_components - 1, row_effects=False)
    return start_with_level(start(free))


def _best_start(data: EntryData, task: Task) -> Parameters:
    """The start that leads to the best of the maxima that the driver finds."""
    specification = task.specification
    start = _first(data, task)
    if len(specification.views) > 1 or specification.views[0].shared or task.prior not in ("ml", "ard"):
        return start
    patterns = data.patterns
    rows: Any = _sample(data) if patterns is None else None
    if patterns is None and rows is None:
        return start
    if task.prior == "ard":
        return _with_fewer(data, task, rows, start)
    likelihood = of_rows(rows, specification) if patterns is None else of_patterns(patterns, specification)
    return best_of(likelihood, start, task.random_state)


def _first(data: EntryData, task: Task) -> Parameters:
    """A start from second moments of pairs of features, where these are few; else where some rows lead, in the driver,
    if these are more than features; else from a sketch."""
    width, samples = len(data.units.shift), int(data.sums.samples)
    count = min(samples // PART, AHEAD // width)
    ahead = PAIRWISE < width <= count and data.patterns is None and data.sums.buckets is not None
    if ahead:
        data = data.of_rows(_rows(data, count))
    start = _started(task.specification, lambda free: first_parameters(data, free, task.random_state))
    if not ahead:
        return start
    looking = replace(task, tol=max(task.tol, AHEAD_TOLERANCE), max_iter=AHEAD_STEPS)
    best, _, _ = EntriesEM(data, looking, None).climb(start)
    return best


def _sums(run: Run, shift: Array, task: Task) -> EntrySums:
    """Sums of the first pass, which refuses missing entries where the model does."""
    if not task.missing:
        return run(Pass(block_complete_sums, CompleteRequest(shift, task.refuse_zero_rows), name="sums"))
    return run(Pass(block_entry_sums, shift, name="sums"))


def _view_samples(sums: EntrySums, specification: Specification) -> tuple[int, ...]:
    """Samples that observe something of each view; of several views the count of the feature that most observe."""
    if len(specification.views) == 1:
        return (int(sums.samples - sums.empty),)
    return tuple(int(sums.counts[features].max()) for features in specification.slices)


def unseen(sums: EntrySums, mean: Array, specification: Specification) -> tuple[str, ...]:
    """Advice on rows and features without an observed entry; `mean` (D,) as it was fitted."""
    said = []
    if sums.empty:
        said.append(
            f"data: {int(sums.empty)} of {int(sums.samples)} samples have no observed entry; nothing is known of "
            "them, and their scores are those of the prior"
        )
    never = np.flatnonzero(sums.counts < 0.5)
    if len(never):
        known = np.isfinite(mean[never]).all()
        what = "mean is the prior's, that of all features" if known else "mean is NaN, take them out"
        more = ", …" if len(never) > NAMED else ""
        names = [feature_name(specification, number).removeprefix("feature ") for number in never[:NAMED].tolist()]
        said.append(
            f"data: {len(never)} of {len(sums.counts)} features were never observed (columns {', '.join(names)}{more});"
            f" their loadings are 0, and their {what}"
        )
    return tuple(said)


def _patterns(run: Run, sums: EntrySums, units: Units) -> MaskMoments | None:
    """The moments of each mask, where these are few: one pass, and none after it."""
    buckets = few_buckets(sums.buckets, len(units.shift))
    if buckets is None:
        return None
    moments: MaskMoments = run(Pass(block_patterns, PatternRequest(buckets, units.shift, units.scale), name="patterns"))
    return moments if distinct(moments) else None


def _sample(data: EntryData) -> Array | None:
    """Rows u for the driver by a pass, where the features are few enough for a sample to tell."""
    width = len(data.units.shift)
    if data.sums.buckets is None or width > PAIRWISE:
        return None
    return _rows(data, min(int(data.sums.samples), SAMPLE // width))


def _rows(data: EntryData, count: int) -> Array:
    """So many rows u, evenly spread, by a pass."""
    units = data.units
    return data.run(
        Pass(block_sample, SampleRequest(count, int(data.sums.samples), units.shift, units.scale), name="sample")
    )


def _with_fewer(data: EntryData, task: Task, rows: Array | None, start: Parameters) -> Parameters:
    """The best of the maxima of the bound of factor analysis to which a start leads, starts of fewer components while
    these are better, and from there points without one of the components: what fewer find, more must find, too.  Looked
    for by the driver, on the moments of few masks or on some `rows`."""
    specification, looking = task.specification, replace(task, tol=max(task.tol, LOOKING), max_iter=LOOKS)
    if rows is not None:
        data = data.of_rows(rows)

    def climbed(point: Parameters) -> tuple[float, Parameters]:
        highest, value, _ = BoundEM(data, looking, None).climb(point)
        return value, highest

    value, best = climbed(start)
    for k in range(specification.n_components - 1, int(specification.row_effects), -1):
        few = replace(specification, n_components=k)
        other = _started(few, lambda free: first_parameters(data, free, task.random_state))
        before, (value, best) = value, _best([(value, best), climbed(other)])
        if value == before:
            break
    improved = True
    while improved and best.loadings.shape[1] > 1:
        straight = diagonal(best, data.units.counts)
        size = straight.loadings.shape[1]
        without = [climbed(straight.turned(np.delete(np.eye(size), k, axis=1))) for k in range(size)[-LEFT_OUT:]]
        height, best = _best([(value, best), *without])
        improved, value = height > value, height
    return best if best.loadings.shape[1] else start


def _best(climbs: list[tuple[float, Parameters]]) -> tuple[float, Parameters]:
    """The first of those that are higher than all before by more than climbs leave."""
    height, best = climbs[0]
    for value, point in climbs[1:]:
        if value > height + LOOKING * max(abs(height), 1.0):
            height, best = value, point
    return height, best
