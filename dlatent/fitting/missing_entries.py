"""Route rows: any entry may be missing.  One pass for each iteration, and few of them; two in all for few masks.

A pass returns the EM statistics, from which the driver takes the EM image, the log-likelihood and the gradient.  The
image is that of PX-EM, extrapolated by Anderson's combination; the gradient says beforehand whether the combination
leads up, and how much is left to gain.  All of it happens in units in which each noise group has variance 1 about 0.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array
from dlatent.fitting.acceleration import accelerate
from dlatent.fitting.best_maximum import SAMPLE, Likelihood, SampleRequest, best_of, block_sample, of_patterns, of_rows
from dlatent.fitting.diagnostics import advise, at_floors
from dlatent.fitting.entry_starts import PAIRWISE, Units, found_start, random_start, units_of
from dlatent.fitting.history import History
from dlatent.fitting.outcome import Options, Outcome, Report
from dlatent.fitting.textbook import plain_em
from dlatent.linear_gaussian.canonical import canonical
from dlatent.linear_gaussian.missing_entries.entries import (
    CompleteRequest,
    Entries,
    EntryRequest,
    EntrySums,
    block_complete_sums,
    block_entries,
    block_entry_sums,
    gradient,
    maximise_entries,
)
from dlatent.linear_gaussian.missing_entries.patterns import (
    MaskMoments,
    PatternRequest,
    block_patterns,
    distinct,
    entries_of_patterns,
    few_buckets,
)
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification
from dlatent.passes import Pass, Run

ROUNDING = 1e-15
"""Relative change of the log-likelihood that is rounding."""
LONGEST = 64.0
"""Times the EM step that a step away from a saddle is long at most."""


def fit_rows(
    run: Run,
    specification: Specification,
    shift: Array,
    options: Options,
    *,
    textbook: bool = False,
    start: Parameters | None = None,
    report: Report | None = None,
) -> Outcome:
    """Maximum likelihood of the observed entries; `shift` (D + L′,) is an initial mean; `textbook`: by plain EM from
    random loadings; `start`, parameters from which to go on instead of from starts that are looked for."""
    sums = _sums(run, shift, options)
    units, floors = units_of(sums, specification, shift, options)
    scaled = specification.with_floors(floors)
    patterns = _patterns(run, sums, units)
    iterating = options if patterns is None or textbook else _tight(options)
    em = _EntriesEM(run, scaled, units, iterating, report, patterns)
    begun = None if start is None else units.taken(start, scaled)
    if textbook:
        plain = partial(em.step, plain=True)
        begun = random_start(scaled, options) if begun is None else begun
        best, converged = plain_em(plain, begun, options, em.history)
        value = em.history[-1].log_likelihood
    else:
        if begun is None:
            begun = found_start(run, scaled, units, sums, patterns, options)
            problem = _on_driver(run, scaled, units, sums, patterns)
            begun = begun if problem is None else best_of(problem, begun, options.random_state)
        best, value, converged = em.accelerated(begun)
    history = tuple(em.history)
    restored = units.restored(best, specification)
    first = [at.start for at in specification.group_slices]
    floored = specification.with_floors(floors * units.scale[first] ** 2)
    low = at_floors(restored, floored)
    said = advise(restored, floored, history, options, units.variances, low, converged=converged)
    return Outcome(
        canonical(restored, floored),
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


def _sums(run: Run, shift: Array, options: Options) -> EntrySums:
    """Sums of the first pass, which refuses missing entries where the model does."""
    if options.refuse_missing:
        return run(Pass(block_complete_sums, CompleteRequest(shift, options.refuse_zero_rows), name="sums"))
    return run(Pass(block_entry_sums, shift, name="sums"))


def _view_samples(sums: EntrySums, specification: Specification) -> tuple[int, ...]:
    """Samples that observe something of each view; of several views the count of the feature that most observe."""
    if len(specification.views) == 1:
        return (int(sums.samples - sums.empty),)
    return tuple(int(sums.counts[own].max()) for own in specification.slices)


def _unseen(sums: EntrySums) -> tuple[str, ...]:
    """What to say of rows and features without an observed entry."""
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
    found: MaskMoments = run(Pass(block_patterns, PatternRequest(buckets, units.shift, units.scale), name="patterns"))
    return found if distinct(found) else None


def _on_driver(
    run: Run, specification: Specification, units: Units, sums: EntrySums, patterns: MaskMoments | None
) -> Likelihood | None:
    """What the driver can search for the best of several maxima of factor analysis: the moments of few masks, or a pass
    for a sample of the rows, where the features are few enough for a sample to tell."""
    if len(specification.views) > 1 or specification.views[0].shared:
        return None
    if patterns is not None:
        return of_patterns(patterns, specification)
    if sums.buckets is None or len(units.shift) > PAIRWISE:
        return None
    count = min(int(sums.samples), SAMPLE // len(units.shift))
    request = SampleRequest(count, int(sums.samples), units.shift, units.scale)
    rows: Array = run(Pass(block_sample, request, name="sample"))
    return of_rows(rows, specification)


def _tight(options: Options) -> Options:
    """Iterations that cost no pass go on nearly to rounding."""
    return replace(options, tolerance=min(options.tolerance, 1e-12), max_iterations=max(options.max_iterations, 1000))


class _EntriesEM:
    """Iterations over the data: the history, and what the last pass said."""

    def __init__(
        self,
        run: Run,
        specification: Specification,
        units: Units,
        options: Options,
        report: Report | None,
        patterns: MaskMoments | None,
    ) -> None:
        self.patterns = patterns
        self.run, self.specification, self.units = run, specification, units
        self.options, self.history = options, History(report)
        self.slopes: dict[int, Array] = {}
        self.calm = 0

    def step(self, point: Parameters, *, plain: bool = False) -> tuple[Parameters, float]:
        """The EM image of a point, by one pass, or none where masks are few, and the log-likelihood there in the units
        of the data."""
        request = EntryRequest(point, self.specification, self.units.shift, self.units.scale)
        found: Entries
        if self.patterns is None:
            found = self.run(Pass(block_entries, request, name="entries"))
        else:
            found = entries_of_patterns(self.patterns, request)
        if not plain:
            self.slopes = {id(point): gradient(found, point, self.specification)}
        image = maximise_entries(found, point, self.specification, expand=not plain)
        return image, found.log_likelihood + self.units.jacobian

    def accelerated(self, start: Parameters) -> tuple[Parameters, float, bool]:
        """PX-EM with Anderson acceleration, until little is left by the gradient."""
        found = accelerate(
            self.step,
            start,
            tolerance=ROUNDING,
            max_evaluations=self.options.max_iterations,
            project=lambda point: point.at_least(self.specification.floors),
            steer=self._steer,
        )
        self.history.end(found.value)
        return found.point, found.value, found.converged

    def _steer(self, point: Parameters, candidate: Parameters, image: Parameters, value: float) -> Parameters | None:
        """Where to go from a point: to Anderson's combination where that leads up, else to its mirror image.

        The combination leads to where the residuals vanish, near a saddle back to that; what it adds to the EM step
        then leads away from it when it is subtracted, faster than EM, whose steps grow slowly.  What the combination
        promises, half its slope, is the estimate of what is left to gain.
        """
        at = point.flatten()
        ahead, step = candidate.flatten() - at, image.flatten() - at
        promise = 0.5 * float(self.slopes[id(point)] @ ahead)
        size = max(abs(value), float(self.units.counts.max()))
        line = self.history.add(value, max(promise, 0.0) / size)
        near = 0.0 <= line.remaining <= 0.5 * self.options.tolerance and promise >= 0.0
        slow = line.gain <= 100.0 * self.options.tolerance * size
        self.calm = self.calm + 1 if near and slow else 0
        if self.calm >= 2:
            return None
        if promise > 0.0:
            return candidate
        mirrored = 2.0 * step - ahead
        mirrored *= min(1.0, LONGEST * float(la.norm(step) / la.norm(mirrored))) if mirrored.any() else 1.0
        return point.unflatten(at + mirrored).at_least(self.specification.floors)
