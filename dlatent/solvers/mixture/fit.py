"""EM of a mixture: one pass an iteration.

Starts are climbed from on some rows that the driver holds, and the best goes on over all of them.  A pass returns the
EM statistics, from which the driver takes the EM image (PX-EM), the log-likelihood and the gradient; the image is
extrapolated by Anderson's combination.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Features
from dlatent.gaussian.kernel import stacked
from dlatent.gaussian.parameters import Parameters
from dlatent.gaussian.specification import Specification
from dlatent.operators.sparse import column_sums, rows_about, times
from dlatent.passes import Pass, Run
from dlatent.solvers.acceleration import accelerate
from dlatent.solvers.diagnostics import at_floors, noise_floors, require_variation, unfinished
from dlatent.solvers.mixture.statistics import (
    Mixture,
    MixtureRequest,
    MixtureSums,
    Subset,
    SubsetRequest,
    block_mixture,
    block_subset,
    canonical_mixture,
    joined_subsets,
    maximise_mixture,
    mixture_slope,
    mixture_sums,
)
from dlatent.solvers.plan import Problem
from dlatent.solvers.solution import History, Iteration, Options, Report, Solution
from dlatent.solvers.task import Task
from dlatent.solvers.textbook import textbook_em

SUBSET_BYTES = 16 * 2**20
"""Rows that the driver holds to climb from several starts."""
SUBSET_ROWS, SUBSET_ROWS_EACH = 4000, 40
"""Most of them in all, or for each component of the mixture where that is more."""
FEWEST_EACH = 10
HELD_STEPS = 8
"""Iterations of a start in which each row stays with its centre."""
SUBSET_STEPS, SUBSET_TOLERANCE = 40, 1e-6
SMALL_NOISE = 1e-3
"""Part of a feature's variance in a component below which its noise may be on the way to the floor."""
SHORTER, LONGER = 0.25, 2.0
"""How the length of extrapolations changes, in steps of EM, where one was given up and where one was not."""
LEAST_NOISE = 1e-6
"""Part of the variance below which there is no noise: without any the likelihood of a mixture has no bound, as a
component of few samples explains them wholly, and the distances of all others from it are divided by what is left."""
SHOWN = 5
"""Components that a piece of advice names."""
ROUNDING = 1e-14
"""Relative gain of an iteration that is rounding."""
CALM = 2
"""Iterations in a row that must have come near before an extrapolated fit ends."""


def fit_mixture(run: Run, task: Task, shift: Array, options: Options, report: Report | None = None) -> Solution:
    """The best maximum that the starts lead to, by accelerated EM, or by textbook EM; `shift` (D,) is a
    point near the mean of the features."""
    problem = task.problem
    rng = np.random.default_rng(options.random_state)
    request = SubsetRequest(_some_rows(problem, rng), shift, options.refuse_zero_rows)
    subset: Subset = run(Pass(block_subset, request, combine=joined_subsets, name="sums"))
    count, offset = subset.sums.samples, subset.sums.total / subset.sums.samples
    starts = [at.start for at in task.specification.group_slices]
    energy = subset.sums.energy - count * offset**2
    variances = np.add.reduceat(energy, starts) / count / np.array(task.specification.group_sizes)
    require_variation(variances, task.specification)
    least = options.with_least_floors([LEAST_NOISE])
    floors = noise_floors(task.specification, variances, shift + offset, least)
    specification = task.specification.with_floors(floors)
    # Constant features, where they are kept, have the unit of their floor.
    unit = np.sqrt(specification.per_feature(np.maximum(variances, floors)))

    def visit(mixture: Mixture) -> MixtureSums:
        return run(Pass(block_mixture, MixtureRequest(mixture, shift), name="mixture"))

    if task.start is None:
        begun = _best_start(stacked(subset.rows), task, shift, specification, unit, options, rng)
    else:
        begun = _mixture_of(task.start).moved(-shift).at_least(floors)
    em = _MixtureEM(visit, specification, unit, options, report)
    best, value, converged = em.textbook(begun) if task.textbook else em.accelerated(begun)
    found = canonical_mixture(best.moved(shift), specification)
    at_floor = [at_floors(own, specification) for own in found.components]
    return Solution(
        Parameters(found.loadings, found.mean, found.noise_variance),
        specification,
        value,
        tuple(em.history),
        converged,
        len(em.history),
        tuple(low for own in at_floor for low in own),
        int(count),
        (int(count),),
        (float(variances.mean()),),
        _advice(found, np.array(at_floor), variances, count, tuple(em.history), options, converged=converged),
        weights=found.weights,
    )


def _mixture_of(solution: Solution) -> Mixture:
    """The mixture that a fit came to."""
    assert solution.weights is not None
    return Mixture(solution.weights, *solution.parameters[:3])


def subset_rows(problem: Problem) -> int:
    """How many rows the driver holds for the starts."""
    wanted = max(SUBSET_ROWS, SUBSET_ROWS_EACH * problem.mixtures)
    room = max(SUBSET_BYTES // row_bytes(problem), FEWEST_EACH * problem.mixtures)
    return int(min(problem.samples, wanted, room))


def row_bytes(problem: Problem) -> int:
    """Bytes of a row in double precision, of a sparse one on average."""
    return 8 * problem.features if problem.nnz is None else 12 * max(1, -(-problem.nnz // problem.samples))


def _some_rows(problem: Problem, rng: np.random.Generator) -> np.ndarray:
    """Numbers of random rows in increasing order."""
    return np.sort(rng.choice(problem.samples, subset_rows(problem), replace=False, shuffle=False))


def _best_start(
    rows: Features,
    task: Task,
    shift: Array,
    specification: Specification,
    unit: Array,
    options: Options,
    rng: np.random.Generator,
) -> Mixture:
    """The best of several starts, each climbed from on some rows; one in which a component has collapsed is taken only
    where all have."""

    def visit(mixture: Mixture) -> MixtureSums:
        return mixture_sums(rows, MixtureRequest(mixture, shift))

    found = list[tuple[int, float, int, Mixture]]()
    for _ in range(task.problem.starts):
        start = _from_centres(rows, task.problem.mixtures, shift, specification, unit, rng)
        em = _MixtureEM(visit, specification, unit, options, None)
        point, value, _ = em.accelerated(start, SUBSET_STEPS, SUBSET_TOLERANCE)
        few = point.weights * rows.shape[0] < specification.n_components + 2
        low = np.array([all(at_floors(own, specification)) for own in point.components])
        found.append((int((few | low).sum()), -value, len(found), point))
    return min(found)[-1]


def _from_centres(
    rows: Features, mixtures: int, shift: Array, specification: Specification, unit: Array, rng: np.random.Generator
) -> Mixture:
    """Components about rows that k-means++ chooses, each of the rows nearest to it; one noise for all, so that a few
    rows do not draw a component to themselves."""
    from sklearn.cluster import kmeans_plusplus

    width, k = len(unit), specification.n_components
    # Distances are in units of the noise groups.
    moved, rest = rows_about(rows, shift)
    plain = (moved - rest) / unit if isinstance(moved, np.ndarray) else moved @ sp.diags_array(1.0 / unit)
    centres, _ = kmeans_plusplus(plain, mixtures, random_state=int(rng.integers(2**31)))
    nearest = np.argmin((centres**2).sum(axis=1) - 2.0 * times(plain, np.ascontiguousarray(centres.T)), axis=1)
    assigned = np.eye(mixtures)[nearest]
    loadings = rng.standard_normal((mixtures, width, k)) * (unit[:, None] / np.sqrt(k))
    noise = np.tile(unit[[at.start for at in specification.group_slices]] ** 2, (mixtures, 1))
    middle = np.asarray(column_sums(rows, squared=False) if sp.issparse(rows) else rows.sum(axis=0, dtype=np.float64))
    mean = np.tile(middle / rows.shape[0] - shift, (mixtures, 1))
    found = Mixture(np.full(mixtures, 1.0 / mixtures), loadings, mean, noise)
    for _ in range(HELD_STEPS):
        sums = mixture_sums(rows, MixtureRequest(found, shift), assigned)
        found = maximise_mixture(sums, found, specification)
        found = found._replace(noise_variance=np.tile(found.weights @ found.noise_variance, (mixtures, 1)))
    return found


class _MixtureEM:
    """EM from one start: the history, and the gradient where the last visit was."""

    def __init__(
        self,
        visit: Callable[[Mixture], MixtureSums],
        specification: Specification,
        unit: Array,
        options: Options,
        report: Report | None,
    ) -> None:
        self.visit, self.specification, self.unit = visit, specification, unit
        self.options, self.history = options, History(report)
        self.calm = self.visits = 0
        self.reach, self.far = np.inf, 0.0
        first = [at.start for at in specification.group_slices]
        self.lowest = specification.floors / unit[first] ** 2
        self.tried: Array = np.full((), SMALL_NOISE)

    def record(self, value: float, left: float) -> Iteration:
        """A line of the history; `left` is what there may be to gain, in nats."""
        return self.history.add(value, left / self.size(value))

    def size(self, value: float) -> float:
        """The number that gains are relative to."""
        return max(abs(value), self.samples)

    def textbook(self, start: Mixture) -> tuple[Mixture, float, bool]:
        """Plain EM, until an iteration gains less than the tolerance."""

        def step(point: Mixture) -> tuple[Mixture, float]:
            sums = self.visit(point)
            return maximise_mixture(sums, point, self.specification, expand=False), sums.log_likelihood

        return textbook_em(step, start, self.options, self.history)

    def accelerated(
        self, start: Mixture, most: int | None = None, tolerance: float | None = None
    ) -> tuple[Mixture, float, bool]:
        """PX-EM with Anderson acceleration, until little is left by the gradient; in units in which noise groups have
        the variance 1."""
        self.tolerance = self.options.tolerance if tolerance is None else tolerance
        most = self.options.max_iterations if most is None else most
        found = accelerate(
            self._step,
            start.rescaled(1.0 / self.unit),
            tolerance=0.0,
            max_evaluations=most,
            project=self._admissible,
            steer=self._steer,
        )
        self.history.end(found.value)
        return found.point.rescaled(self.unit), found.value, found.converged

    def _admissible(self, point: Mixture) -> Mixture:
        return point.at_least(self.lowest)

    def _step(self, point: Mixture) -> tuple[Mixture, float]:
        self.visits += 1
        at = point.rescaled(self.unit)
        sums = self.visit(at)
        self.samples = float(sums.counts.sum())
        self.slope = mixture_slope(sums, at, self.specification)
        return maximise_mixture(sums, at, self.specification).rescaled(1.0 / self.unit), sums.log_likelihood

    def _steer(self, point: Mixture, candidate: Mixture, image: Mixture, value: float) -> Mixture | None:
        """Anderson's combination where it leads up, else the image of EM; half of its slope is the estimate of what is
        left to gain."""
        candidate = self._near(point, candidate, image)
        ahead = candidate.rescaled(self.unit).flatten() - point.rescaled(self.unit).flatten()
        promise = 0.5 * float(self.slope @ ahead)
        candidate = candidate if promise > 0.0 else image
        line = self.record(value, promise if promise > 0.0 else float("nan"))
        vanishing = self._vanishing(point)
        if vanishing.any():
            self.calm, self.far = 0, 0.0
            self.tried = np.where(vanishing, _unexplained(point) / 2.0, self.tried)
            return candidate._replace(noise_variance=np.where(vanishing, self.lowest, candidate.noise_variance))
        near = line.remaining <= 0.5 * self.tolerance and line.gain <= 100.0 * self.tolerance * self.size(value)
        self.calm = self.calm + 1 if near or abs(line.gain) <= ROUNDING * self.size(value) else 0
        return None if self.calm >= CALM else candidate

    def _near(self, point: Mixture, candidate: Mixture, image: Mixture) -> Mixture:
        """The combination, or a point on the way to it from the image where the last one that went so far was given up:
        along a ridge the first combinations of two points go too far, and without others there are no better ones."""
        at, end = image.flatten(), candidate.flatten()
        step = float(np.linalg.norm(at - point.flatten()))
        far = float(np.linalg.norm(end - at)) / step if step > 0.0 else 0.0
        given_up, self.visits = self.visits > 1 and self.far > 0.0, 0
        self.reach = SHORTER * self.far if given_up else LONGER * self.reach
        self.far = min(far, self.reach)
        if far <= self.reach:
            return candidate
        return self._admissible(point.unflatten(at + (self.reach / far) * (end - at)))

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
    history: tuple[Iteration, ...],
    options: Options,
    *,
    converged: bool,
) -> tuple[str, ...]:
    """Advice on the fit, one sentence for each thing."""
    said = [] if converged else [unfinished(history)]
    held, mixtures = mixture.weights * count, len(mixture.weights)
    empty = np.flatnonzero(held < 1.0)
    if len(empty):
        said.append(
            f"data: {len(empty)} of {mixtures} components of the mixture hold less than one sample, the others explain "
            "the data without them; ask for fewer with n_mixtures"
        )
    low = np.flatnonzero(at_floor.any(axis=1))
    if len(low):
        several = at_floor.shape[1] > 1
        each = [
            f"component {m} of {held[m]:.1f} samples"
            + several * f" in {int(at_floor[m].sum())} of {at_floor.shape[1]} features"
            for m in low[:SHOWN].tolist()
        ]
        said.append(
            f"floor: {len(low)} of {mixtures} components of the mixture have noise variances at their floor "
            f"({'; '.join(each)}): the likelihood would be higher below, without a bound where a component explains "
            "its samples wholly; use fewer components, or a higher noise_floor"
        )
    lost = (mixture.noise_variance < 1e3 * options.precision * variances) & ~at_floor
    if lost.any():
        said.append(
            f"precision: the noise variances of {int(lost.any(axis=1).sum())} of {mixtures} components of the mixture "
            "are differences of sums and keep few digits; store the data as float64 or use fewer components"
        )
    return tuple(said)
