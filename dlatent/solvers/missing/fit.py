"""Solver rows: any entry may be missing.  One pass for each iteration, and few of them; two in all for few masks.

All of it happens in units in which each noise group has variance 1 about 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dlatent.arrays import Array, Block
from dlatent.gaussian.canonical import canonical
from dlatent.gaussian.missing_entries.entries import (
    CompleteRequest,
    EntrySums,
    block_complete_sums,
    block_entry_sums,
)
from dlatent.gaussian.missing_entries.patterns import (
    MaskMoments,
    PatternRequest,
    block_patterns,
    distinct,
    few_buckets,
)
from dlatent.gaussian.missing_entries.prior import diagonal, prior_variance, turned
from dlatent.gaussian.missing_entries.row_effects import filled, others, start_with_level
from dlatent.gaussian.parameters import Parameters
from dlatent.gaussian.specification import Specification
from dlatent.passes import Pass, Run
from dlatent.solvers.best_maximum import SAMPLE, Likelihood, SampleRequest, best_of, block_sample, of_patterns, of_rows
from dlatent.solvers.diagnostics import advise, at_floors
from dlatent.solvers.missing.iterations import BoundEM, EntriesEM
from dlatent.solvers.missing.starts import LEAST_OWN, LEAST_SHARED, PAIRWISE, Units, found_start, units_of
from dlatent.solvers.solution import Options, Report, Solution
from dlatent.solvers.textbook import em_start

LOOKING, LOOKS = 1e-7, 60
"""Relative tolerance, and most iterations, of a climb that looks for the best number of components."""
LEFT_OUT = 3
"""Components, those of least variance, that are left out in turn."""


def fit_rows(
    run: Run,
    specification: Specification,
    shift: Array,
    options: Options,
    *,
    textbook: bool = False,
    start: Parameters | None = None,
    report: Report | None = None,
) -> Solution:
    """Maximum likelihood of the observed entries; `shift` (D + L′,) is an initial mean; `textbook`: by plain EM from
    random loadings; `start`, parameters from which to go on instead of from starts that are looked for."""
    sums = _sums(run, shift, options)
    # Rows of so few entries the components may explain wholly; only these lose digits where little noise is left.
    few = float(sums.lengths[: specification.n_components + 1].sum()) / sums.samples
    options = options.with_least_floors(
        few * (LEAST_SHARED if view.shared else LEAST_OWN) for view in specification.views
    )
    units, floors = units_of(sums, specification, shift, options)
    scaled = specification.with_floors(floors)
    patterns = _patterns(run, sums, units)
    iterating = options if patterns is None or textbook else _tight(options)
    make = EntriesEM if options.prior == "ml" else BoundEM
    em = make(run, scaled, units, iterating, report, patterns)
    begun = None if start is None else units.taken(start, scaled)
    if begun is not None and options.prior == "ml":
        begun = begun.certain()
    if textbook:
        ones = np.ones(len(floors))
        best, value, converged = em.plain(_started(scaled, lambda free: em_start(free, ones, options), begun))
    else:
        if begun is None:
            begun = _started(scaled, lambda free: found_start(run, free, units, sums, patterns, options))
            if options.prior == "ml":
                problem = _on_driver(run, scaled, units, sums, patterns)
                begun = begun if problem is None else best_of(problem, begun, options.random_state)
            elif options.prior == "ard":
                begun = _with_fewer(run, scaled, units, sums, patterns, begun, options)
        best, value, converged = em.accelerated(begun)
    history = tuple(em.history)
    restored = units.restored(best, specification)
    first = [at.start for at in specification.group_slices]
    floored = specification.with_floors(floors * units.scale[first] ** 2)
    low = at_floors(restored, floored)
    said = advise(restored, floored, history, options, units.variances, low, converged=converged)
    return Solution(
        filled(canonical(restored, floored, _prior_axes(best, scaled, units, options)), specification),
        floored,
        value,
        history,
        converged,
        len(history),
        low,
        int(sums.samples),
        _view_samples(sums, specification),
        tuple(float(units.variances[at].mean()) for at in specification.noise_slices),
        said + _unseen(sums),
    )


def _prior_axes(point: Parameters, specification: Specification, units: Units, options: Options) -> Array | None:
    """The variance of the loadings that is to be diagonal; None where it is so along the axes of the likelihood: with
    one noise variance, and where no direction has a variance of its own."""
    if options.prior != "ard" or len(specification.group_sizes) == 1:
        return None
    return prior_variance(others(point, specification), units.counts)


def _started(
    specification: Specification, start: Callable[[Specification], Parameters], begun: Parameters | None = None
) -> Parameters:
    """Where the iterations begin; a start of components alone has what they share as the level of the rows."""
    if begun is not None or not specification.row_effects:
        return start(specification) if begun is None else begun
    free = replace(specification, n_components=specification.n_components - 1, row_effects=False)
    return start_with_level(start(free))


def _sums(run: Run, shift: Array, options: Options) -> EntrySums:
    """Sums of the first pass, which refuses missing entries where the model does."""
    if options.refuse_missing:
        return run(Pass(block_complete_sums, CompleteRequest(shift, options.refuse_zero_rows), name="sums"))
    return run(Pass(block_entry_sums, shift, name="sums"))


def _view_samples(sums: EntrySums, specification: Specification) -> tuple[int, ...]:
    """Samples that observe something of each view; of several views the count of the feature that most observe."""
    if len(specification.views) == 1:
        return (int(sums.samples - sums.empty),)
    return tuple(int(sums.counts[features].max()) for features in specification.slices)


def _unseen(sums: EntrySums) -> tuple[str, ...]:
    """Advice on rows and features without an observed entry."""
    said = []
    if sums.empty:
        said.append(
            f"data: {int(sums.empty)} of {int(sums.samples)} samples have no observed entry; nothing is known of "
            "them, and their scores are those of the prior"
        )
    never = np.flatnonzero(sums.counts < 0.5)
    if len(never):
        said.append(
            f"data: {len(never)} of {len(sums.counts)} features were never observed (the first is column {never[0]}); "
            "their loadings are 0 and their means NaN, take them out"
        )
    return tuple(said)


def _patterns(run: Run, sums: EntrySums, units: Units) -> MaskMoments | None:
    """The moments of each mask, where these are few: one pass, and none after it."""
    buckets = few_buckets(sums.buckets, len(units.shift))
    if buckets is None:
        return None
    moments: MaskMoments = run(Pass(block_patterns, PatternRequest(buckets, units.shift, units.scale), name="patterns"))
    return moments if distinct(moments) else None


def _on_driver(
    run: Run, specification: Specification, units: Units, sums: EntrySums, patterns: MaskMoments | None
) -> Likelihood | None:
    """What the driver can search for the best of several maxima of factor analysis: the moments of few masks, or a
    sample of the rows."""
    if len(specification.views) > 1 or specification.views[0].shared:
        return None
    if patterns is not None:
        return of_patterns(patterns, specification)
    rows = _sample(run, units, sums)
    return None if rows is None else of_rows(rows, specification)


def _sample(run: Run, units: Units, sums: EntrySums) -> Array | None:
    """Rows u for the driver by a pass, where the features are few enough for a sample to tell."""
    if sums.buckets is None or len(units.shift) > PAIRWISE:
        return None
    count = min(int(sums.samples), SAMPLE // len(units.shift))
    request = SampleRequest(count, int(sums.samples), units.shift, units.scale)
    return run(Pass(block_sample, request, name="sample"))


def _with_fewer(
    run: Run,
    specification: Specification,
    units: Units,
    sums: EntrySums,
    patterns: MaskMoments | None,
    start: Parameters,
    options: Options,
) -> Parameters:
    """The best of the maxima of the bound of factor analysis to which a start leads, starts of fewer components while
    these are better, and from there points without one of the components: what fewer find, more must find, too.  Looked
    for by the driver, as `_on_driver` says."""
    if len(specification.views) > 1 or specification.views[0].shared:
        return start
    looking = replace(options, tolerance=max(options.tolerance, LOOKING), max_iterations=LOOKS)
    inner, rows = units, None
    if patterns is None:
        rows = _sample(run, units, sums)
        if rows is None:
            return start
        counts = np.asarray((~np.isnan(rows)).sum(axis=0), dtype=np.float64)
        inner = units._replace(shift=np.zeros(len(counts)), scale=np.ones(len(counts)), counts=counts)

    def visit(task: Pass[Any, Any]) -> Any:
        return run(task) if rows is None else task.map(Block(0, 0, rows), task.parameters)

    def climbed(point: Parameters) -> tuple[float, Parameters]:
        highest, value, _ = BoundEM(visit, specification, inner, looking, None, patterns).accelerated(point)
        return value, highest

    value, best = climbed(start)
    for k in range(specification.n_components - 1, int(specification.row_effects), -1):
        few = replace(specification, n_components=k)
        other = _started(few, lambda free: found_start(visit, free, inner, sums, patterns, options))
        before, (value, best) = value, _best([(value, best), climbed(other)])
        if value == before:
            break
    improved = True
    while improved and best.loadings.shape[1] > 1:
        straight = diagonal(best, inner.counts)
        size = straight.loadings.shape[1]
        without = [climbed(turned(straight, np.delete(np.eye(size), k, axis=1))) for k in range(size)[-LEFT_OUT:]]
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


def _tight(options: Options) -> Options:
    """Iterations that cost no pass go on nearly to rounding."""
    return replace(options, tolerance=min(options.tolerance, 1e-12), max_iterations=max(options.max_iterations, 1000))
