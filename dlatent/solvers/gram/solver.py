"""By inner products of samples: two passes, where there are fewer samples than features."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dlatent.arrays import Array
from dlatent.gaussian.canonical import canonical
from dlatent.gaussian.dimension import chosen_components
from dlatent.gaussian.kernel import LiftRequest, block_lift
from dlatent.gaussian.parameters import Parameters
from dlatent.operators.kernels import Kernel, centred_kernel
from dlatent.operators.symmetric import top_eigenvalues
from dlatent.operators.tall import fresh_directions
from dlatent.passes import Pass, Resources, Run
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
from dlatent.solvers.gram.dual import KernelProducts, data_of, fit_dual, kernel_tiles
from dlatent.solvers.plan import Plan, Problem
from dlatent.solvers.solution import Report, Solution
from dlatent.solvers.solver import FEW, Solver
from dlatent.solvers.task import Task


class GramSolver(Solver):
    """Two passes, N² numbers."""

    name = "gram"
    serves = frozenset({"targets", "prior", "rule"})
    needs, lacking = frozenset({FEW}), "there are no fewer samples than features"

    def plan(self, problem: Problem, machine: Resources) -> Plan:
        """One pass for the inner products of all pairs of samples, one for the loadings; the driver holds N² numbers,
        and where they are few, or for textbook EM, all combinations of the samples."""
        count, k = problem.samples, problem.n_components
        square, whole = 8 * count**2, count <= FULL_EIGEN or problem.rule is not None
        worker = worker_memory(problem, machine, 8 * problem.features * (k + 1), 8 * count * (k + 1))
        # A worker holds its tiles of half of the products until the driver has them.
        worker += paired_memory(problem, machine, 2) + square // (2 * machine.workers)
        driver = driver_base(problem, machine) + (8 if problem.em_passes or whole else 3) * square
        plan = placed(self.name, problem, machine, worker, driver)

        flops, lifting, rate = float(count) ** 2 * problem.features, 2.0 * count * problem.features * k, GEMM_RATE
        if problem.nnz is not None:
            flops, rate = SKEWNESS * problem.nnz**2 / max(problem.features, 1) / 2.0, SPARSE_GRAM_RATE
            lifting = 2.0 * (problem.nnz or count * problem.features) * k
        if not problem.targets and whole:
            work = 4.0 * count**3 / GEMM_RATE
        else:
            work = 4.0 * count**2 * (fresh_directions(k) + problem.targets) * EXPECTED_PASSES / GEMM_RATE
        visits, threads = tile_visits(problem, machine, plan.cached), machine.workers * machine.threads
        work += (flops / rate + visits * problem.nbytes / DECODE_RATE) / threads
        work += TASK_SECONDS * group_number(problem) * shares_met(machine)
        work += pass_seconds(problem, machine, lifting, rate, reads=0)
        reads, solving = visits + (not plan.cached), solving_seconds(problem)
        return replace(plan, passes=DUAL_PASSES, work=work, solving=solving, reads=reads, gathered=square // 2)

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Solution:
        """The maximum over combinations of samples, which the last pass turns into loadings (SPPCA, Algorithm 3).

        Law: the result is that of the other routes, up to rounding.
        """
        options, specification = task.settled_options(plan), task.specification
        tiles = kernel_tiles(run, Kernel("linear", shift=shift), options)
        if task.problem.rule is not None:
            count, most = task.problem.samples, specification.n_components
            values = top_eigenvalues(centred_kernel(tiles.whole()) / count, count)
            floor = options.floor_parts[0] * float(values.sum()) / task.problem.features
            chosen = chosen_components(task.problem.rule, values, count, most=most, floor=floor)
            specification = replace(specification, n_components=chosen)
        k, data = specification.n_components, data_of(task)
        inside = specification.resized((k, *specification.sizes[1:]))
        fitted = fit_dual(KernelProducts.of_tiles(tiles), data, inside, options, textbook=task.textbook, report=report)
        (combinations, own, _), solution = fitted.dual, fitted.solution
        lifted = run(Pass(block_lift, LiftRequest(combinations, shift), name="loadings"))
        directions, offset = lifted[:, :k], lifted[:, k]
        whole = Parameters(
            np.vstack([directions @ own.loadings[:k], own.loadings[k:]]),
            np.concatenate([shift + offset + directions @ own.mean[:k], own.mean[k:]]),
            own.noise_variance,
        )
        floored = specification.with_floors(solution.specification.floors)
        return replace(solution, parameters=canonical(whole, floored), specification=floored)
