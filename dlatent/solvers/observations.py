"""Entries of any distribution: accelerated variational EM, one pass an iteration, as with missing entries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.linalg as la

from dlatent.arrays import Array
from dlatent.errors import DataError
from dlatent.gaussian.canonical import canonical
from dlatent.gaussian.dimension import above_flips
from dlatent.gaussian.missing_entries.entries import EntrySums
from dlatent.gaussian.missing_entries.row_effects import SMALLEST_LEVEL, with_level
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.gaussian.views import AllViewsRequest, Arrangement, Patterns, block_of_all_views
from dlatent.observations import Likelihoods, observation_model
from dlatent.observations.model import ObservationModel
from dlatent.observations.statistics import (
    FirstRequest,
    ObservationRequest,
    ObservationSums,
    RowsRequest,
    Values,
    block_first_sums,
    block_observations,
    block_rows,
    maximise_observations,
    observation_slope,
)
from dlatent.passes import Pass, Resources, Run
from dlatent.solvers.costs import (
    ROW_CHUNK_BYTES,
    driver_base,
    pass_seconds,
    placed,
    product_rate,
    solving_seconds,
    worker_memory,
)
from dlatent.solvers.diagnostics import make_solution
from dlatent.solvers.missing.iterations import EntriesEM
from dlatent.solvers.missing.solver import unseen
from dlatent.solvers.missing.starts import (
    AHEAD,
    AHEAD_STEPS,
    AHEAD_TOLERANCE,
    PART,
    START_FLOOR,
    EntryData,
    Units,
    in_driver,
    units_of,
)
from dlatent.solvers.plan import Plan
from dlatent.solvers.solver import Report, Solution, Solver, by_name
from dlatent.solvers.task import Family, Task

S = TypeVar("S")
PASSES, STEPS = 30, 3
"""Passes of a fit, and steps of a row in a pass, about, of which most are in single precision."""
SAMPLE = 2**21
"""Entries of the rows from which a fit starts, 16 MiB."""
EVERY = SAMPLE // AHEAD
"""One row of so many of these is one over which a start takes its first steps."""
PARTS, MANY = (64, 16, 4), 2
"""One row of so many is looked at before all are, in turn, and how many times as many as features, and as the rows of a
start, such rows are."""
ROUGH, ROUGHLY = (1e-3, 1e-4), (1e-4, 3e-6)
"""What passes over parts, and passes over all rows in single precision, leave of the bound of a row; and the tolerances
to which they lead.  With 1e-3 those over all rows would end far from where exact ones do."""
LEAST = 1e-3
"""Part of the first component that a start gives each at least."""
NO_NOISE = 1e-6
"""Part of the variance of features below which noise beside error bars is none."""


@dataclass(frozen=True)
class Observations(Family):
    """Entries of the distribution `likelihood`, or of those of views; `values`, as the hyperparameter `missing`, are
    those that it sees, and `beside` the names and columns of what stands beside the features; `chosen`, whether the
    number of components is chosen, up to that of the model."""

    name, why = "likelihood", "entries are not those of a normal distribution alone"
    likelihood: Likelihoods
    values: str
    beside: tuple[tuple[str, int], ...] = ()
    chosen: bool = False

    @property
    def model(self) -> ObservationModel:
        """The distribution."""
        return observation_model(self.likelihood)

    @property
    def covariates(self) -> int:
        """The number of covariates."""
        return dict(self.beside).get("covariates", 0)


class ObservationSolver(Solver):
    """About thirty passes, D · K² numbers."""

    name, observed, most = "accelerated_em", True, 300
    serves = frozenset({Observations.name, "missing", "own noise", "views"})
    needs, lacking = frozenset({Observations.name}), "entries are those of a normal distribution"

    def plan(self, task: Task, machine: Resources) -> Plan:
        """Thirty passes, statistics of D × K²/2 numbers; rows are worked on as dense ones."""
        data, k = task.data, task.specification.n_components + Observations.of(task).covariates
        packed = (k + 1) * (k + 2) // 2
        statistic = 8 * data.features * (packed + k + 8)
        worker = worker_memory(task, machine, statistic, 2 * statistic) + 8 * machine.threads * ROW_CHUNK_BYTES
        driver = driver_base(task, machine) + 8 * data.features * (k + 2) * 24 + 6 * statistic + 3 * 8 * SAMPLE
        plan = placed(self.name, task, machine, worker, driver)
        flops = 2.0 * (2 * STEPS + 1) * data.samples * data.features * packed
        passes = task.em_passes or PASSES
        work = pass_seconds(data, machine, flops, product_rate(data), passes, 1 if plan.cached else passes)
        return replace(plan, solving=solving_seconds(task), moved=2 * statistic, passes=passes, work=work)

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Solution:
        """A maximum of the bound."""
        family, specification = Observations.of(task), task.specification
        model, values = family.model, Values(family.values, family.beside)
        if task.arrangement is not None:
            run = _over_all_views(run, specification.patterns, task.arrangement)
        sums: EntrySums = run(
            Pass(block_first_sums, FirstRequest(model, values, shift, task.refuse_zero_rows), name="sums")
        )
        units, floors = _units(model, sums, task, shift)
        scaled = specification.with_floors(floors)
        samples = int(sums.samples)
        few = max(min(samples, SAMPLE // len(shift)), 1)
        rows = run(Pass(block_rows, RowsRequest(values, few, samples), name="sample"))
        values = values.standardised(rows)
        start = _start(family, rows, values, units, sums, scaled, task.random_state)
        specification, scaled = (
            replace(each, n_components=start.loadings.shape[1]) for each in (specification, scaled)
        )
        data, inside = EntryData(run, units, sums, None), replace(task, specification=scaled)
        if len(shift) <= len(some := rows[::EVERY]) <= samples / PART:
            start = _ahead(some, values, data, inside, start)
        em = ObservationsEM(data, inside, report, values)
        if not model.closed:
            start = em.led(start, samples // (MANY * max(few, len(shift))))
        best, _, converged = em.climb(start)
        in_data_units = values.of_covariates(units.in_data_units(best, specification))
        floored = specification.with_floors(floors * units.scale[specification.group_starts] ** 2)
        predictors = specification.per_group((best.loadings**2).sum(axis=1)) / specification.group_sizes
        variances = np.where(noisy_groups(model, specification), units.variances, predictors)
        counts = [sums.samples] if task.arrangement is None else np.diff(task.arrangement.bounds)
        solution = make_solution(in_data_units, floored, em.history, task, variances, counts, converged=converged)
        advice = solution.advice
        if "uncertainty" in dict(family.beside):
            advice = _beside_error_bars(advice, in_data_units.noise_variance, variances)
        return replace(
            solution,
            parameters=canonical(in_data_units, floored),
            samples=samples,
            view_samples=solution.view_samples if task.arrangement else (int(sums.samples - sums.empty),),
            advice=advice + unseen(sums, in_data_units.mean, specification),
            known=sums.counts,
        )


OBSERVATION_SOLVERS = by_name(ObservationSolver)


class ObservationsEM(EntriesEM):
    """Iterations of the bound, whose images may have to be halved."""

    halvings = 12

    def __init__(
        self,
        data: EntryData,
        task: Task,
        report: Report | None,
        values: Values,
        rough: float = 0.0,
        every: int = 1,
    ) -> None:
        super().__init__(data, task, report)
        self.values, self.rough, self.every = values, rough, every

    def led(self, start: Parameters, parts: int) -> Parameters:
        """Where cheaper passes lead: over one row of so many, of `parts` at most, and then over all, with rough steps.
        What is left of the iterations, and their memory, are for exact ones."""
        if self.task.textbook:
            return start
        for every in (each for each in PARTS if each <= parts):
            units = self.units._replace(counts=self.units.counts / every)
            data = self.data._replace(units=units)
            start = self._roughly(start, data, ROUGHLY[0], ROUGH[0], every)
        return self._roughly(start, self.data, ROUGHLY[1], ROUGH[1], 1)

    def _roughly(self, start: Parameters, data: EntryData, tol: float, rough: float, every: int) -> Parameters:
        task = replace(self.task, tol=max(self.task.tol, tol), max_iter=self.task.max_iter // 2)
        if not task.max_iter:
            return start
        em = ObservationsEM(data, task, None, self.values, rough, every)
        end, _, _ = em.climb(start)
        self.task = replace(self.task, max_iter=self.task.max_iter - len(em.history))
        if every == 1:
            points, images = em.memory
            self.memory = points[:-1], images[:-1]
            if task.tol == self.task.tol:
                self.calm = em.calm
        return end

    def climb(self, start: Parameters) -> tuple[Parameters, float, bool]:
        """As of all entries; where rough steps have settled to the same tolerance a single exact pass is left."""
        if self.calm < 2:
            return super().climb(start)
        _, value = self.step(start)
        self.history.add(value)
        return start, value, True

    def _steer(self, point: Parameters, candidate: Parameters, image: Parameters, value: float) -> Parameters | None:
        """Where to go from a point; nowhere once a rough step gains less than the tolerance: what is left is noise."""
        chosen = super()._steer(point, candidate, image, value)
        return None if self.rough and self.history[-1].gain <= self.task.tol * self.size(value) else chosen

    def projected(self, point: Parameters) -> Parameters:
        """An extrapolated point with what the distribution may have."""
        point, family = super().projected(point), Observations.of(self.task)
        return point if point.shape is None else point._replace(shape=family.model.bounded(point.shape))

    def step(self, point: Parameters) -> tuple[Parameters, float]:
        """The EM image of a point, by one pass, and the bound there in the units of the data."""
        if self.last is not None and self.last[0] is point:
            return self.last[1]
        family, specification = Observations.of(self.task), self.specification
        model, units = family.model, self.units
        request = ObservationRequest(
            model, point, specification, self.values, units.shift, units.scale, self.rough, self.every
        )
        sums: ObservationSums = self.data.run(Pass(block_observations, request, name="entries"))
        self.slopes = {id(point): observation_slope(model, sums, point, specification)}
        image = maximise_observations(model, sums, point, specification, expand=not self.task.textbook)
        self.last = point, (image, sums.entries.log_likelihood + units.jacobian)
        return self.last[1]


def _ahead(rows: Array, values: Values, data: EntryData, task: Task, start: Parameters) -> Parameters:
    """Where a start leads by some rows, NaN where missing, in the driver."""
    counts = np.asarray((~np.isnan(rows[:, : len(start.mean)])).sum(axis=0), dtype=np.float64)
    data = data._replace(run=in_driver(rows), units=data.units._replace(counts=counts))
    looking = replace(task, tol=max(task.tol, AHEAD_TOLERANCE), max_iter=AHEAD_STEPS)
    best, _, _ = ObservationsEM(data, looking, None, values._replace(missing="nan")).climb(start)
    return best


def _beside_error_bars(advice: tuple[str, ...], noise: Array, variances: Array) -> tuple[str, ...]:
    """Advice on a fit whose entries have error bars: noise variances beside them may be nothing."""
    if not (noise < NO_NOISE * variances).any():
        return advice
    others = tuple(said for said in advice if not said.startswith(("floor: ", "precision: ")))
    return *others, (
        "floor: the error bars leave no noise beside them.  That is right where they are all the noise there is; where "
        "they are too wide the components miss what they hide"
    )


def _over_all_views(run: Run, patterns: Patterns, arrangement: Arrangement) -> Run:
    """Run passes over the rows of all views side by side."""

    def of_all(pass_: Pass[Any, S], /) -> S:
        request = AllViewsRequest(pass_.map, pass_.parameters, patterns, arrangement)
        return run(replace(pass_, map=block_of_all_views, parameters=request))

    return of_all


def noisy_groups(model: ObservationModel, specification: Specification) -> npt.NDArray[np.bool_]:
    """Whether each noise variance (groups,) is one of the model."""
    parts = model.parts(sum(specification.sizes))
    features = np.concatenate([np.full(at.stop - at.start, each.noise) for each, at in parts])
    return features[specification.group_starts]


def _units(model: ObservationModel, sums: EntrySums, task: Task, shift: Array) -> tuple[Units, Array]:
    """The units of the fit, and the noise floors in them; entries without noise have none.

    Errors: DataError where all are missing.
    """
    specification = task.specification
    noisy = noisy_groups(model, specification)
    if noisy.any():
        units, floors = units_of(sums, task, shift)
        features = np.repeat(noisy, specification.group_sizes)
        scale, spread = (np.where(features, each, 1.0) for each in (units.scale, units.spread))
        units = Units(np.where(features, units.shift, 0.0), scale, units.counts, spread, units.variances)
        return units, np.where(noisy, floors, specification.floors)
    if not sums.counts.any():
        raise DataError("no entry is observed: all are missing")
    zero, one = np.zeros(len(sums.counts)), np.ones(len(sums.counts))
    return Units(zero, one, sums.counts, one, np.ones(len(noisy))), specification.floors


def _start(
    family: Observations,
    sample: Array,
    values: Values,
    units: Units,
    sums: EntrySums,
    specification: Specification,
    random_state: Any,
) -> Parameters:
    """Principal axes of some rows, NaN where missing, on the working scale of the model, once covariates are taken off;
    entries with wide error bars count less."""
    model, (x, seen, side) = family.model, values.of(sample)
    rows = np.where(seen > 0.0, (x - units.shift) / units.scale, np.nan)
    free, width = specification.n_components - int(specification.row_effects), rows.shape[1]
    offset = np.asarray(side.offset)
    starts = []
    for each, at in model.parts(width):
        if each.noise:
            usual, middle = each.working(rows[:, at], np.zeros(at.stop - at.start), offset / units.scale[at])
            starts.append((usual / (1.0 + side.known / units.scale[at] ** 2), middle))
            continue
        starts.append(each.working(rows[:, at], (sums.total[at] + 0.5) / (sums.counts[at] + 1.0), offset))
    working, centre = (np.concatenate(parts, axis=-1) for parts in zip(*starts, strict=True))
    working, effects = np.nan_to_num(working), None
    if side.covariates is not None:
        effects = la.lstsq(side.covariates, working)[0].T
        working = working - side.covariates @ effects.T
    _, roots, axes = la.svd(working, full_matrices=False)
    if family.chosen:
        free = min(free, max(above_flips(working, roots, np.random.default_rng(0)), 1))
    energies, k = roots**2 / len(rows), min(free, len(roots))
    rest = energies[k:].sum() / max(width - k, 1)
    loadings = 1e-3 * np.random.default_rng(random_state).standard_normal((width, free))
    loadings[:, :k] += axes[:k].T * np.sqrt(np.maximum(energies[:k] - rest, LEAST * energies[0]))
    left = np.maximum((working**2).mean(axis=0) - (loadings**2).sum(axis=1), START_FLOOR)
    noise = np.maximum(specification.per_group(left) / specification.group_sizes, specification.floors)
    noise = np.where(noisy_groups(model, specification), noise, specification.floors)
    start = Parameters(loadings, centre, noise, shape=model.first_shape(width), effects=effects)
    if not specification.row_effects:
        return start
    leveled = (rows / np.exp(offset - offset.mean()))[:, specification.leveled > 0.0]
    level = np.log(np.nansum(leveled, axis=1) + 0.5)[~np.isnan(leveled).all(axis=1)].std()
    return with_level(start, max(float(level), SMALLEST_LEVEL) * specification.leveled)
