"""A mixture: accelerated EM with responsibilities, one pass an iteration."""

from __future__ import annotations

from dataclasses import replace

from dlatent.arrays import Array
from dlatent.gaussian.products import CHUNK_BYTES
from dlatent.passes import Resources, Run
from dlatent.solvers.costs import (
    EXPECTED_ROW_PASSES,
    GEMM_RATE,
    SOLVE_SECONDS,
    SPARSE_RATE,
    driver_base,
    pass_seconds,
    placed,
    worker_memory,
)
from dlatent.solvers.mixture.fit import HELD_STEPS, SUBSET_STEPS, fit_mixture, row_bytes, subset_rows
from dlatent.solvers.plan import Plan, Problem
from dlatent.solvers.solution import Report, Solution
from dlatent.solvers.solver import Solver
from dlatent.solvers.task import Task

MAX_PASSES = 300


class MixtureSolver(Solver):
    """About twenty passes, M · D · (K + 1) numbers."""

    name = "mixture"
    serves = frozenset({"mixture", "own noise"})
    needs, lacking = frozenset({"mixture"}), "the model is no mixture"

    def plan(self, problem: Problem, machine: Resources) -> Plan:
        """About twenty passes; the driver holds the rows of the starts, and what the acceleration remembers."""
        columns = problem.mixtures * (problem.n_components + 1)
        own_noise = 0 if problem.shared else problem.mixtures
        statistic = 8 * (problem.features * (columns + own_noise) + columns * (problem.n_components + 1))
        # The columns that rows meet, a product that is added, and rows with what is made of them.
        working = 3 * statistic + (3 if problem.shared else 4) * CHUNK_BYTES
        worker = worker_memory(problem, machine, statistic, 2 * statistic) + machine.threads * working
        subset = subset_rows(problem) * row_bytes(problem)
        # Points and images that the acceleration remembers, their differences, and a few statistics (40 measured).
        driver = driver_base(problem, machine) + 4 * subset + 50 * statistic
        plan = placed(self.name, problem, machine, worker, driver)

        cells = float(problem.nnz) if problem.nnz is not None else float(problem.samples) * problem.features
        flops = 4.0 * cells * (columns + own_noise) + 40.0 * problem.samples * columns
        rate, passes = SPARSE_RATE if problem.nnz is not None else GEMM_RATE, EXPECTED_ROW_PASSES
        work = pass_seconds(problem, machine, flops, rate, passes, 1 if plan.cached else passes)
        # The rows of the starts, each of which meets all columns, and what a step takes for each component at least.
        step = 8.0 * subset_rows(problem) * (cells / problem.samples + 10.0) * columns / rate
        solving = problem.starts * (HELD_STEPS + SUBSET_STEPS) * (step + SOLVE_SECONDS * problem.mixtures)
        return replace(plan, passes=problem.em_passes or passes, work=work, solving=solving, moved=2 * statistic)

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Solution:
        """The best maximum that the starts lead to, by accelerated EM, or by textbook EM."""
        return fit_mixture(run, task, shift, task.settled_options(plan, MAX_PASSES), report)
