"""A mixture: accelerated EM with responsibilities, one pass an iteration.

The best of many starts on some rows goes on over all of them.  A pass returns the EM statistics, from which the driver
takes the EM image (PX-EM), the log-likelihood and the gradient; the image is extrapolated by Anderson's combination.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dlatent.arrays import Array
from dlatent.gaussian.products import CHUNK_BYTES
from dlatent.passes import Pass, Resources, Run
from dlatent.solvers.ascent import accelerate
from dlatent.solvers.costs import (
    EXPECTED_ROW_PASSES,
    SOLVE_SECONDS,
    driver_base,
    pass_seconds,
    placed,
    product_rate,
    worker_memory,
)
from dlatent.solvers.diagnostics import at_floors, noise_floors, unfinished
from dlatent.solvers.em import textbook_em
from dlatent.solvers.mixture.starts import (
    FINALISTS,
    FIRST_ROWS,
    ROUNDS,
    STEPS,
    Starts,
    Subset,
    SubsetRequest,
    block_subset,
    joined_subsets,
    starts_that_fit,
)
from dlatent.solvers.mixture.statistics import (
    Mixture,
    MixtureRequest,
    MixtureSums,
    NoisePrior,
    block_mixture,
    canonical_mixture,
    maximise_mixture,
    mixture_slope,
    mixture_sums,
)
from dlatent.solvers.plan import Plan
from dlatent.solvers.solver import History, Report, Solution, Solver, by_name
from dlatent.solvers.task import DataSize, Family, Task

SUBSET_BYTES = 16 * 2**20
"""Rows that the driver holds to climb from several starts."""
SUBSET_ROWS, SUBSET_ROWS_EACH = 4000, 40
"""Most of them in all, or for each component of the mixture where that is more."""
FEWEST_EACH = 10
SUBSET_STEPS, SUBSET_TOLERANCE = 40, 1e-6
SMALL_NOISE = 1e-3
"""Part of a feature's variance in a component below which its noise may be on the way to the floor."""
SHORTER, LONGER = 0.25, 2.0
"""How the length of extrapolations changes, in steps of EM, where one was given up and where one was not."""
LEAST_NOISE = 1e-6
"""Part of the variance below which there is no noise: without any the likelihood of a mixture has no bound, as a
component of few samples explains them wholly, and the distances of all others from it are divided by what is left."""
FEATURE_NOISE_ROWS = 0.5
"""Rows of the prior of noise variances of single features: with as few, left-out rows are hardly less likely where
noise is well known, and far more likely where a feature is constant in a component."""
SHOWN = 5
"""Components that a piece of advice names."""
ROUNDING = 1e-14
"""Relative gain of an iteration that is rounding."""
CALM = 2
"""Iterations in a row that must have come near before an extrapolated fit ends."""


@dataclass(frozen=True)
class Mixtures(Family):
    """So many components of a mixture, fitted from some starts."""

    name, why = "mixture", "which component of the mixture a row is of is not known"
    components: int
    starts: int | None = None
    noise_prior: float | None = 0.0

    @property
    def leading(self) -> tuple[int, ...]:
        """An axis of the components."""
        return (self.components,)


class MixtureSolver(Solver):
    """About twenty passes, M · D · (K + 1) numbers."""

    name, most = "mixture", 300
    serves = frozenset({Mixtures.name, "own noise"})
    needs, lacking = frozenset({Mixtures.name}), "the model is no mixture"

    def plan(self, task: Task, machine: Resources) -> Plan:
        """About twenty passes; the driver holds the rows of the starts, and what the acceleration remembers."""
        data, k, size = task.data, task.specification.n_components, Mixtures.of(task)
        columns = size.components * (k + 1)
        feature_noise = 0 if task.shared else size.components
        statistic = 8 * (data.features * (columns + feature_noise) + columns * (k + 1))
        # The columns that rows meet, a product that is added, and rows with what is made of them.
        working = 3 * statistic + (3 if task.shared else 4) * CHUNK_BYTES
        worker = worker_memory(task, machine, statistic, 2 * statistic) + machine.threads * working
        rows = subset_rows(task)
        # The starts with their statistics (9 for each measured), then what the acceleration remembers (40).
        driver = driver_base(task, machine) + 4 * rows * row_bytes(data) + max(50, 10 * starts_of(task)) * statistic
        plan = placed(self.name, task, machine, worker, driver)

        flops = 4.0 * data.entries * (columns + feature_noise) + 40.0 * data.samples * columns
        rate, passes = product_rate(data), EXPECTED_ROW_PASSES
        work = pass_seconds(data, machine, flops, rate, passes, 1 if plan.cached else passes)
        # The rows of the starts, each of which meets all columns, and what a step takes for each component at least.
        step = 8.0 * rows * (data.entries / data.samples + 10.0) * columns / rate
        early = starts_of(task) * STEPS * sum(min(1.0, 2**number * FIRST_ROWS / rows) for number in range(ROUNDS))
        solving = (early + FINALISTS * SUBSET_STEPS) * (step + SOLVE_SECONDS * size.components)
        return replace(plan, passes=task.em_passes or passes, work=work, solving=solving, moved=2 * statistic)

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Solution:
        """The best maximum that the starts lead to, by accelerated EM, or by textbook EM."""
        rng = np.random.default_rng(task.random_state)
        chosen = np.sort(rng.choice(task.data.samples, subset_rows(task), replace=False, shuffle=False))
        request = SubsetRequest(chosen, shift, task.refuse_zero_rows)
        subset: Subset = run(Pass(block_subset, request, combine=joined_subsets, name="sums"))
        count, offset = subset.sums.samples, subset.sums.total / subset.sums.samples
        energies = task.specification.per_group(subset.sums.energy - count * offset**2)
        variances = energies / count / np.array(task.specification.group_sizes)
        floors = noise_floors(task.with_least_floors([LEAST_NOISE]), variances, shift + offset)
        specification = task.specification.with_floors(floors)
        task = replace(task, specification=specification)
        # Constant features, where they are kept, have the unit of their floor.
        unit = np.sqrt(specification.per_feature(np.maximum(variances, floors)))
        starts = Starts(subset.together, shift, unit, Mixtures.of(task).components, rng)
        within = specification.per_group(starts.within()) / np.array(specification.group_sizes)
        varying = np.where(variances > floors, variances, variances.mean())
        asked, default = Mixtures.of(task).noise_prior, 0.0 if task.shared else FEATURE_NOISE_ROWS
        prior = NoisePrior(default if asked is None else float(asked), np.where(within > floors, within, varying))
        start = _best_start(starts, task, prior) if task.start is None else task.start.moved(-shift).at_least(floors)
        em = _MixtureEM(
            lambda point: run(Pass(block_mixture, MixtureRequest(point, shift), name="mixture")),
            task,
            unit,
            prior,
            report,
        )
        best, value, converged = em.climb(start)
        mixture = canonical_mixture(best.moved(shift), specification)
        at_floor = [at_floors(component, specification) for component in mixture.components]
        return Solution(
            mixture.stacked,
            specification,
            value,
            tuple(em.history),
            converged,
            len(em.history),
            tuple(low for component in at_floor for low in component),
            int(count),
            (int(count),),
            (float(variances.mean()),),
            _advice(mixture, np.array(at_floor), variances, count, em.history, task, converged=converged),
            weights=mixture.weights,
        )


MIXTURE_SOLVERS = by_name(MixtureSolver)


def subset_rows(task: Task) -> int:
    """How many rows the driver holds for the starts."""
    components = Mixtures.of(task).components
    wanted = max(SUBSET_ROWS, SUBSET_ROWS_EACH * components)
    room = max(SUBSET_BYTES // row_bytes(task.data), FEWEST_EACH * components)
    return int(min(task.data.samples, wanted, room))


def starts_of(task: Task) -> int:
    """How many starts a round has: those asked for, or as many as there is room for."""
    size = Mixtures.of(task)
    return size.starts or starts_that_fit(task.data.features * size.components * (task.specification.n_components + 2))


def row_bytes(data: DataSize) -> int:
    """Bytes of a row in double precision, of a sparse one on average."""
    return 8 * data.features if data.nnz is None else 12 * max(1, -(-data.nnz // data.samples))


def _best_start(starts: Starts, task: Task, prior: NoisePrior) -> Mixture:
    """The best of several starts, each climbed from on some rows; without a prior or a floor that was asked for, one in
    which a component has collapsed is taken only where all have."""
    rows, shift, specification = starts.rows, starts.shift, task.specification
    bounded = prior.rows > 0.0 or min(task.floor_parts) > LEAST_NOISE
    looking = replace(task, textbook=False, max_iter=SUBSET_STEPS, tol=SUBSET_TOLERANCE)
    climbs = list[tuple[int, float, int, Mixture]]()
    for number, start in enumerate(starts.finalists(starts_of(task), specification, prior, bounded=bounded)):
        em = _MixtureEM(lambda at: mixture_sums(rows, MixtureRequest(at, shift)), looking, starts.unit, prior, None)
        point, value, _ = em.climb(start)
        few = point.weights * rows.shape[0] < specification.n_components + 2
        low = np.array([all(at_floors(component, specification)) for component in point.components])
        collapsed = 0 if bounded else int((few | low).sum())
        climbs.append((collapsed, -value, number, point))
    return min(climbs)[-1]


class _MixtureEM:
    """EM from one start: the history, and the gradient where the last visit was."""

    def __init__(
        self,
        visit: Callable[[Mixture], MixtureSums],
        task: Task,
        unit: Array,
        prior: NoisePrior,
        report: Report | None,
    ) -> None:
        self.visit, self.task, self.specification, self.unit = visit, task, task.specification, unit
        self.prior = prior
        self.history = History(report)
        self.calm = self.visits = 0
        self.reach, self.far = np.inf, 0.0
        self.lowest = self.specification.floors / unit[self.specification.group_starts] ** 2
        self.tried: Array = np.full((), SMALL_NOISE)

    def climb(self, start: Mixture) -> tuple[Mixture, float, bool]:
        """Where textbook EM ends, or PX-EM with Anderson acceleration, when little is left by the gradient, in units in
        which noise groups have the variance 1; the log-likelihood there, and whether the tolerance was met."""
        if self.task.textbook:
            return textbook_em(self._plain, start, self.task, self.history)
        end = accelerate(
            self._step,
            start.rescaled(1.0 / self.unit),
            tolerance=0.0,
            max_evaluations=self.task.max_iter,
            project=lambda point: point.at_least(self.lowest),
            steer=self._steer,
        )
        self.history.end(end.value)
        return end.point.rescaled(self.unit), end.value, end.converged

    def _plain(self, point: Mixture) -> tuple[Mixture, float]:
        sums = self.visit(point)
        return maximise_mixture(sums, point, self.specification, self.prior, expand=False), self._height(sums, point)

    def _step(self, point: Mixture) -> tuple[Mixture, float]:
        self.visits += 1
        at = point.rescaled(self.unit)
        sums = self.visit(at)
        self.samples = float(sums.counts.sum())
        self.slope = mixture_slope(sums, at, self.specification, self.prior)
        image = maximise_mixture(sums, at, self.specification, self.prior)
        return image.rescaled(1.0 / self.unit), self._height(sums, at)

    def _height(self, sums: MixtureSums, at: Mixture) -> float:
        return float(sums.log_likelihood + self.prior.log_density(at, self.specification))

    def _steer(self, point: Mixture, candidate: Mixture, image: Mixture, value: float) -> Mixture | None:
        """Anderson's combination where it leads up, else the image of EM; half of its slope is the estimate of what is
        left to gain."""
        candidate = self._near(point, candidate, image)
        ahead = candidate.rescaled(self.unit).flatten() - point.rescaled(self.unit).flatten()
        promise, size = 0.5 * float(self.slope @ ahead), max(abs(value), self.samples)
        candidate = candidate if promise > 0.0 else image
        line = self.history.add(value, promise / size if promise > 0.0 else float("nan"))
        vanishing = self._vanishing(point)
        if vanishing.any():
            self.calm, self.far = 0, 0.0
            self.tried = np.where(vanishing, _unexplained(point) / 2.0, self.tried)
            return candidate._replace(noise_variance=np.where(vanishing, self.lowest, candidate.noise_variance))
        near = line.remaining <= 0.5 * self.task.tol and line.gain <= 100.0 * self.task.tol * size
        self.calm = self.calm + 1 if near or abs(line.gain) <= ROUNDING * size else 0
        return None if self.calm >= CALM else candidate

    def _near(self, point: Mixture, candidate: Mixture, image: Mixture) -> Mixture:
        """The combination, or a point on the way to it from the image where the last one that went so far was given up:
        along a ridge the first combinations of two points go too far, and without others there are no better ones."""
        at, end = image.flatten(), candidate.flatten()
        step = float(np.linalg.norm(at - point.flatten()))
        far = float(np.linalg.norm(end - at)) / step if step > 0.0 else 0.0
        abandoned, self.visits = self.visits > 1 and self.far > 0.0, 0
        self.reach = SHORTER * self.far if abandoned else LONGER * self.reach
        self.far = min(far, self.reach)
        if far <= self.reach:
            return candidate
        return point.unflatten(at + (self.reach / far) * (end - at)).at_least(self.lowest)

    def _vanishing(self, point: Mixture) -> np.ndarray:
        """Small noise variances that the likelihood wants smaller, where their floor has not been tried of late.

        EM takes 1/ε steps to such a floor, and never says that it is near."""
        count, groups = point.noise_variance.shape
        end = len(self.slope) - count
        falling = self.slope[end - count * groups : end].reshape(count, groups) < 0.0
        low = (_unexplained(point) < self.tried) & (point.noise_variance > 2.0 * self.lowest)
        return np.asarray(falling & low)


def _unexplained(point: Mixture) -> Array:
    """The noise variances as parts of the variances that the components give to their noise groups (M, groups)."""
    explained = (point.loadings**2).sum(axis=2)
    if point.noise_variance.shape[1] == 1:
        explained = explained.mean(axis=1, keepdims=True)
    return np.asarray(point.noise_variance / (explained + point.noise_variance))


def _advice(
    mixture: Mixture,
    at_floor: Any,
    variances: Array,
    count: float,
    history: History,
    task: Task,
    *,
    converged: bool,
) -> tuple[str, ...]:
    """Advice on the fit, one sentence for each thing."""
    said = [] if converged else [unfinished(history)]
    expected_counts, mixtures = mixture.weights * count, len(mixture.weights)
    empty = np.flatnonzero(expected_counts < 1.0)
    if len(empty):
        said.append(
            f"data: {len(empty)} of {mixtures} components of the mixture hold less than one sample, the others explain "
            "the data without them; ask for fewer with n_mixtures"
        )
    low = np.flatnonzero(at_floor.any(axis=1))
    if len(low):
        several = at_floor.shape[1] > 1
        each = [
            f"component {m} of {expected_counts[m]:.1f} samples"
            + several * f" in {int(at_floor[m].sum())} of {at_floor.shape[1]} features"
            for m in low[:SHOWN].tolist()
        ]
        said.append(
            f"floor: {len(low)} of {mixtures} components of the mixture have noise variances at their floor "
            f"({'; '.join(each)}): the likelihood would be higher below, without a bound where a component explains "
            "its samples wholly; use fewer components, or a higher noise_floor"
        )
    lost = (mixture.noise_variance < 1e3 * task.epsilon * variances) & ~at_floor
    if lost.any():
        said.append(
            f"precision: the noise variances of {int(lost.any(axis=1).sum())} of {mixtures} components of the mixture "
            "are differences of sums and keep few digits; store the data as float64 or use fewer components"
        )
    return tuple(said)
