"""Entries of any distribution: accelerated variational EM, one pass an iteration, as with missing entries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array
from dlatent.errors import DataError
from dlatent.gaussian.canonical import canonical
from dlatent.gaussian.missing_entries.entries import EntrySums
from dlatent.gaussian.missing_entries.row_effects import SMALLEST_LEVEL, with_level
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.observations import OBSERVATION_MODELS
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
from dlatent.solvers.missing.starts import START_FLOOR, EntryData, Units, units_of
from dlatent.solvers.plan import Plan
from dlatent.solvers.solver import Report, Solution, Solver, by_name
from dlatent.solvers.task import Family, Task

PASSES, STEPS = 30, 3
"""Passes of a fit, and steps of a row in a pass, about, of which most are in single precision."""
SAMPLE = 2**21
"""Entries of the rows from which a fit starts, 16 MiB."""
LEAST = 1e-3
"""Part of the first component that a start gives each at least."""


@dataclass(frozen=True)
class Observations(Family):
    """Entries of the distribution `likelihood`; `values`, as the hyperparameter `missing`, are those that it sees."""

    name, why = "likelihood", "entries are not those of a normal distribution"
    likelihood: str
    values: str

    @property
    def model(self) -> ObservationModel:
        """The distribution."""
        return OBSERVATION_MODELS[self.likelihood]


class ObservationSolver(Solver):
    """About thirty passes, D · K² numbers."""

    name, observed, most = "accelerated_em", True, 300
    serves = frozenset({Observations.name, "missing", "own noise"})
    needs, lacking = frozenset({Observations.name}), "entries are those of a normal distribution"

    def plan(self, task: Task, machine: Resources) -> Plan:
        """Thirty passes, statistics of D × K²/2 numbers; rows are worked on as dense ones."""
        data, k = task.data, task.specification.n_components
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
        model, values = family.model, Values(family.values)
        sums: EntrySums = run(
            Pass(block_first_sums, FirstRequest(model, values, shift, task.refuse_zero_rows), name="sums")
        )
        if model.noise:
            units, floors = units_of(sums, task, shift)
        else:
            units, floors = _plain_units(sums), specification.floors
        scaled = specification.with_floors(floors)
        samples = int(sums.samples)
        few = max(min(samples, SAMPLE // len(shift)), 1)
        rows = run(Pass(block_rows, RowsRequest(values, few, samples), name="sample"))
        start = _start(model, (rows - units.shift) / units.scale, sums, scaled, task.random_state)
        em = ObservationsEM(EntryData(run, units, sums, None), replace(task, specification=scaled), report)
        best, _, converged = em.climb(start)
        in_data_units = units.in_data_units(best, specification)
        floored = specification.with_floors(floors * units.scale[specification.group_starts] ** 2)
        variances = units.variances
        if not model.noise:  # that of the predictors
            variances = specification.per_group((best.loadings**2).sum(axis=1)) / specification.group_sizes
        counts = [sums.samples]
        solution = make_solution(in_data_units, floored, em.history, task, variances, counts, converged=converged)
        return replace(
            solution,
            parameters=canonical(in_data_units, floored),
            samples=samples,
            view_samples=(int(sums.samples - sums.empty),),
            advice=solution.advice + unseen(sums, in_data_units.mean),
            known=sums.counts,
        )


OBSERVATION_SOLVERS = by_name(ObservationSolver)


class ObservationsEM(EntriesEM):
    """Iterations of the bound, whose images may have to be halved."""

    halvings = 12

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
        request = ObservationRequest(model, point, specification, Values(family.values), units.shift, units.scale)
        sums: ObservationSums = self.data.run(Pass(block_observations, request, name="entries"))
        self.slopes = {id(point): observation_slope(model, sums, point, specification)}
        image = maximise_observations(model, sums, point, specification, expand=not self.task.textbook)
        self.last = point, (image, sums.entries.log_likelihood + units.jacobian)
        return self.last[1]


def _plain_units(sums: EntrySums) -> Units:
    """Units of entries that have none.  Errors: DataError where all are missing."""
    if not sums.counts.any():
        raise DataError("no entry is observed: all are missing")
    zero, one = np.zeros(len(sums.counts)), np.ones(len(sums.counts))
    return Units(zero, one, sums.counts, one, np.ones(1))


def _start(
    model: ObservationModel, rows: Array, sums: EntrySums, specification: Specification, random_state: Any
) -> Parameters:
    """Principal axes of some rows u (n, D), NaN where missing, on the working scale of the model."""
    free, width = specification.n_components - int(specification.row_effects), rows.shape[1]
    mean = np.zeros(width) if model.noise else (sums.total + 0.5) / (sums.counts + 1.0)
    working, centre = model.working(rows, mean)
    working = np.nan_to_num(working)
    _, roots, axes = la.svd(working, full_matrices=False)
    energies, k = roots**2 / len(rows), min(free, len(roots))
    rest = energies[k:].sum() / max(width - k, 1)
    loadings = 1e-3 * np.random.default_rng(random_state).standard_normal((width, free))
    loadings[:, :k] += axes[:k].T * np.sqrt(np.maximum(energies[:k] - rest, LEAST * energies[0]))
    noise = np.asarray(specification.floors, dtype=np.float64)
    if model.noise:
        left = np.maximum((working**2).mean(axis=0) - (loadings**2).sum(axis=1), START_FLOOR)
        noise = np.maximum(specification.per_group(left) / specification.group_sizes, noise)
    start = Parameters(loadings, centre, noise, shape=model.first_shape(width))
    if not specification.row_effects:
        return start
    level = np.log(np.nansum(rows, axis=1) + 0.5).std()
    return with_level(start, max(float(level), SMALLEST_LEVEL))
