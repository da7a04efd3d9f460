"""By inner products of samples, where there are fewer samples than features; and the loop of all fits by a kernel.

One product of K with a few combinations a pass is all that a fit asks of a kernel, wherever that is; the space of
`moments.subspace` is then made of combinations of samples.  Where K is in memory all combinations are taken at
once, and the closed forms apply (SPPCA, Theorem 3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dlatent.arrays import Array
from dlatent.gaussian.canonical import canonical
from dlatent.gaussian.gram import DualData, DualSolution, DualSpace, dual_data, dual_solution, leading
from dlatent.gaussian.kernel import KernelRequest, LiftRequest, block_lift, meet_kernel
from dlatent.gaussian.moments import centred
from dlatent.gaussian.specification import Parameters
from dlatent.operators.kernels import Kernel, centred_kernel
from dlatent.operators.symmetric import top_eigenvalues
from dlatent.operators.tall import SymmetricTiles, fresh_directions, orthonormal
from dlatent.passes import Pass, Resources, Run, tile_pass
from dlatent.solvers.costs import (
    DECODE_RATE,
    DUAL_PASSES,
    EXPECTED_PASSES,
    FULL_EIGEN,
    GEMM_RATE,
    SKEWNESS,
    SPARSE_GRAM_RATE,
    TASK_SECONDS,
    driver_base,
    group_number,
    paired_memory,
    pass_seconds,
    placed,
    shares_met,
    solving_seconds,
    tile_visits,
    worker_memory,
)
from dlatent.solvers.em import em_on_moments
from dlatent.solvers.evidence import chosen
from dlatent.solvers.moments.maximum import finished
from dlatent.solvers.moments.subspace import SubspaceFit, first_directions, grow
from dlatent.solvers.plan import Plan
from dlatent.solvers.solver import FEW, Report, Solution, Solver
from dlatent.solvers.task import Task

TIGHT = 1e-13
"""Tolerance where K is in memory: further products cost no pass."""


@dataclass(frozen=True)
class KernelProducts:
    """A kernel of N samples by what it does: KV (N, b) of V (N, b) is `joined(times(asked(V)))`, where `times` may
    run the pass that is `asked` for; `diagonal` k(x, x) (N,); and `matrix`, which gives K (N, N), where it is in
    memory."""

    times: Callable[[Any], Any]
    diagonal: Array
    matrix: Callable[[], Array] | None = None
    asked: Callable[[Array], Any] = np.asarray
    joined: Callable[[Any], Array] = np.asarray

    @classmethod
    def of_matrix(cls, matrix: Array) -> KernelProducts:
        """A kernel in memory."""
        return cls(lambda thin: matrix @ thin, np.diag(matrix), lambda: matrix)

    @classmethod
    def of_tiles(cls, tiles: SymmetricTiles) -> KernelProducts:
        """A kernel in memory, half of it."""
        return cls(lambda thin: tiles @ thin, tiles.diagonal, tiles.matrix)

    def __call__(self, thin: Array) -> Array:
        """KV."""
        return self.joined(self.times(self.asked(thin)))

    def about_mean(self, fresh: tuple[Array, ...]) -> Array:
        """HKHV of the directions V of the first view."""
        return _centred(self.joined(self.times(self.asked(_centred(fresh[0])))))


@dataclass(frozen=True)
class DualFit:
    """The model by samples, its solution, and the means (N,) of the rows of K, by which new rows are centred."""

    dual: DualSolution
    solution: Solution
    means: Array


def fit_dual(kernel: KernelProducts, data: DualData, task: Task, report: Report | None = None) -> DualFit:
    """Fit by products with a kernel, in all combinations of samples where K is in memory and these are few, or for
    textbook EM; else in a space that grows from random ones.  The first view of the task has K features, the span of
    the loadings."""
    count, k = data.samples, task.specification.n_components
    exact = len(task.specification.views) == 1 and count <= FULL_EIGEN
    if kernel.matrix is not None and (exact or task.textbook):
        matrix = kernel.matrix()
        means, middle = matrix.mean(axis=0), centred_kernel(matrix)
        first, products = (np.eye(count), middle) if task.textbook else leading(middle, k, data.dimension)
        every_combination = True
    else:
        first = orthonormal(_centred(first_directions(count, k, np.random.default_rng(task.random_state))))
        product = kernel(np.column_stack([first, np.full(count, 1.0 / count)]))
        means, products, every_combination = product[:, -1], _centred(product[:, :-1]), False
    energy = float(kernel.diagonal.sum() - means.sum())
    space = DualSpace.begin(first, products, data._replace(energy=energy), k)
    if every_combination and task.textbook:
        return DualFit(*_by_em(space, task, report), means)
    state = SubspaceFit(space, task if kernel.matrix is None else tightened(task), report)
    if every_combination:
        state.record(state.solve())
    converged = every_combination or grow(state, kernel.about_mean)
    dual = dual_solution(state.space, state.solution, state.specification)
    solution = finished(state, dual.parameters, converged)
    return DualFit(dual, replace(solution, parameters=dual.parameters), means)


def tightened(task: Task) -> Task:
    """The task for products that cost no pass."""
    return replace(task, tol=min(task.tol, TIGHT), max_iter=task.max_iter + 300)


def _centred(rows: Array) -> Array:
    """HV, the rows about their mean."""
    return np.asarray(rows - rows.mean(axis=0))


def _by_em(space: DualSpace, task: Task, report: Report | None) -> tuple[DualSolution, Solution]:
    """Plain EM (SPPCA, Algorithm 3) on the moments of all coordinates."""
    specification = task.specification
    reduced = replace(task, specification=specification.resized((space.rank, *specification.sizes[1:])))
    moments = centred(space.moments(specification), reduced.specification.sizes, specification.patterns)
    solution = em_on_moments(moments, reduced, report)
    dual = dual_solution(space, solution.parameters, specification)
    floored = specification.with_floors(solution.specification.floors)
    return dual, replace(solution, parameters=dual.parameters, specification=floored)


def kernel_tiles(run: Run, kernel: Kernel, task: Task) -> SymmetricTiles:
    """K (N, N) of all samples, by one pass over tiles."""
    request = KernelRequest(kernel, None, task.refuse_zero_rows)
    tiles: tuple[Array, ...] = run(tile_pass(meet_kernel, request, name="kernel"))
    return SymmetricTiles.of(tiles)


def data_of(task: Task) -> DualData:
    """The targets, samples and features of a fit, beside products with the kernel."""
    count, kernel = task.data.samples, task.kernel
    dimension = task.specification.sizes[0] if kernel is None else kernel.dimension
    targets = None if task.targets is None or task.targets.rows is None else np.asarray(task.targets.rows)
    return dual_data(targets, task.specification, count, dimension)


class GramSolver(Solver):
    """Two passes, N² numbers."""

    name = "gram"
    serves = frozenset({"targets", "prior", "rule"})
    needs, lacking = frozenset({FEW}), "there are no fewer samples than features"

    def plan(self, task: Task, machine: Resources) -> Plan:
        """One pass for the inner products of all pairs of samples, one for the loadings; the driver holds N² numbers,
        and where they are few, or for textbook EM, all combinations of the samples."""
        data, count, k = task.data, task.data.samples, task.specification.n_components
        square, exact = 8 * count**2, count <= FULL_EIGEN or task.chosen_first
        worker = worker_memory(task, machine, 8 * data.features * (k + 1), 8 * count * (k + 1))
        # A worker holds its tiles of half of the products until the driver has them.
        worker += paired_memory(data, machine, 2) + square // (2 * machine.workers)
        driver = driver_base(task, machine) + (8 if task.textbook or exact else 3) * square
        plan = placed(self.name, task, machine, worker, driver)

        flops, rate = float(count) ** 2 * data.features, GEMM_RATE
        if data.nnz is not None:
            flops, rate = SKEWNESS * data.nnz**2 / max(data.features, 1) / 2.0, SPARSE_GRAM_RATE
        if not task.columns and exact:
            work = 4.0 * count**3 / GEMM_RATE
        else:
            work = 4.0 * count**2 * (fresh_directions(k) + task.columns) * EXPECTED_PASSES / GEMM_RATE
        visits = tile_visits(data, machine, plan.cached)
        work += (flops / rate + visits * data.nbytes / DECODE_RATE) / machine.total_threads
        work += TASK_SECONDS * group_number(data) * shares_met(machine)
        work += pass_seconds(data, machine, 2.0 * data.entries * k, rate, reads=0)
        reads, solving = visits + (not plan.cached), solving_seconds(task)
        return replace(plan, passes=DUAL_PASSES, work=work, solving=solving, reads=reads, gathered=square // 2)

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Solution:
        """The maximum over combinations of samples, which the last pass turns into loadings (SPPCA, Algorithm 3).

        Law: the result is that of the other solvers, up to rounding.
        """
        count = task.data.samples
        tiles, specification = kernel_tiles(run, Kernel("linear", shift=shift), task), task.specification
        if task.chosen_first:
            values = top_eigenvalues(centred_kernel(tiles.matrix()) / count, count)
            floor = task.floor_parts[0] * float(values.sum()) / task.data.features
            specification = replace(specification, n_components=chosen(task, values, count, floor))
        k, data = specification.n_components, data_of(task)
        inside = replace(task, specification=specification.resized((k, *specification.sizes[1:])))
        dual = fit_dual(KernelProducts.of_tiles(tiles), data, inside, report)
        (combinations, coordinates, _), solution = dual.dual, dual.solution
        lifted = run(Pass(block_lift, LiftRequest(combinations, shift), name="loadings"))
        directions, offset = lifted[:, :k], lifted[:, k]
        parameters = Parameters(
            np.vstack([directions @ coordinates.loadings[:k], coordinates.loadings[k:]]),
            np.concatenate([shift + offset + directions @ coordinates.mean[:k], coordinates.mean[k:]]),
            coordinates.noise_variance,
        )
        floored = specification.with_floors(solution.specification.floors)
        return replace(solution, parameters=canonical(parameters, floored), specification=floored)
