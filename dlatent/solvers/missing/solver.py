"""Row by row: accelerated EM, one pass an iteration, where rows have no statistics in common."""

from __future__ import annotations

from dataclasses import replace

from dlatent.arrays import Array
from dlatent.gaussian.missing_entries.patterns import LARGEST, MOST
from dlatent.passes import Resources, Run
from dlatent.solvers.costs import (
    BASE_MEMORY,
    COMPARED_STEPS,
    EXPECTED_ROW_PASSES,
    EXPECTED_VIEW_PASSES,
    GEMM_RATE,
    ROW_CHUNK_BYTES,
    ROW_SOLVE,
    SPARSE_RATE,
    driver_base,
    features_bytes,
    features_memory,
    features_seconds,
    graph_memory,
    pass_seconds,
    placed,
    seen_features,
    solving_seconds,
    worker_memory,
)
from dlatent.solvers.em_passes import accelerated_em, begin, em_on_data
from dlatent.solvers.graph.averaged_rows import Averaging, averaged
from dlatent.solvers.missing.fit import fit_rows
from dlatent.solvers.plan import Plan, Problem
from dlatent.solvers.solution import Report, Solution
from dlatent.solvers.solver import Solver
from dlatent.solvers.task import Task
from dlatent.solvers.textbook import stacked_shift

MAX_PASSES = 300
PRIOR_MATRICES = 8
"""Matrices of K × K for each feature that an M-step with a prior makes."""


class AcceleratedEMSolver(Solver):
    """About twenty passes, D · K² numbers."""

    name, observed = "accelerated_em", True
    serves = frozenset({"missing", "graph", "own noise", "views", "targets", "prior", "prior, targets"})
    needs, lacking = frozenset({"missing", "own noise", "prior, targets"}), "no entry is missing"

    def misfit(self, problem: Problem) -> str | None:
        """What sparse rows do not store is zero: only their Gram matrix does without densifying them."""
        zeros = problem.nnz is not None and not problem.missing and not problem.views
        return "the data are sparse" if zeros else None

    def plan(self, problem: Problem, machine: Resources) -> Plan:
        """About twenty passes, statistics of D × K²/2 numbers: any entry may be missing, and noise may be per feature;
        of joint samples, which lack whole views, only D × K for each pattern."""
        if problem.views:
            return _of_views(problem, machine)
        k, width = problem.n_components, problem.features + problem.targets
        packed = (k + 1) * (k + 2) // 2
        statistic = 8 * max(width * (packed + k + 2), min(MOST * width**2, LARGEST))
        worker = worker_memory(problem, machine, statistic, 2 * statistic) + machine.threads * ROW_CHUNK_BYTES
        # The points and images that the acceleration remembers, and a few statistics.
        driver = driver_base(problem, machine) + 8 * width * (k + 2) * 24 + 6 * statistic
        driver += 8 * width * PRIOR_MATRICES * (k + 1) ** 2 if problem.prior else 0
        graph = problem.graph_entries is not None
        if graph:  # rows and their masks meet their neighbours
            worker += graph_memory(problem, machine) + 2 * sum(features_memory(problem, machine))
        plan = placed(self.name, problem, machine, worker, driver)

        cells = float(problem.nnz) if problem.nnz is not None else float(problem.samples) * width
        flops = 4.0 * cells * (packed + k) + problem.samples * float(k) ** 3 * ROW_SOLVE
        work = _row_seconds(plan, flops, EXPECTED_ROW_PASSES)
        passes = problem.em_passes or EXPECTED_ROW_PASSES
        if problem.candidates:  # one for the means; of each strength a fit, which looks for its start, and its test
            passes += 1 + problem.candidates * (COMPARED_STEPS + 4)
        work += passes * 2 * features_seconds(problem, machine)
        work *= 1 + problem.candidates  # strengths of smoothing are compared by fits
        plan = replace(plan, passes=passes, work=work, solving=solving_seconds(problem), moved=2 * statistic)
        if not graph:
            return plan
        # Rows are read once to be exchanged, and once for what came; masks meet their neighbours, too.
        reads, edge_reads = 1 if plan.cached else 2 * passes, 2 * passes * (problem.hops + 1)
        return replace(plan, reads=reads, edge_reads=edge_reads, neighbour_bytes=2 * features_bytes(problem))

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Solution:
        """The maximum by accelerated EM, or by textbook EM."""
        options, whole = task.settled_options(plan, MAX_PASSES), stacked_shift(shift, task.specification)
        if task.relation is not None:
            run = averaged(run, Averaging(task.relation.precision, shift))
        if task.arrangement is None:
            start = None if task.start is None else task.start.parameters
            return fit_rows(run, task.specification, whole, options, textbook=task.textbook, start=start, report=report)
        data = begin(run, task.specification, whole, options, task.arrangement, report)
        return em_on_data(data) if task.textbook else accelerated_em(data)


def _of_views(problem: Problem, machine: Resources) -> Plan:
    k = problem.n_components
    statistic = 8 * sum(size for size, _ in seen_features(problem)) * (k + 3)
    worker = worker_memory(problem, machine, statistic, 8 * problem.features * (k + 3))
    driver = BASE_MEMORY + 8 * problem.features * (k + 2) * 24 + 6 * statistic
    plan = placed("accelerated_em", problem, machine, worker, driver)
    cells = float(problem.nnz) if problem.nnz is not None else problem.nbytes / problem.itemsize
    work = _row_seconds(plan, 4.0 * cells * (k + 1), EXPECTED_VIEW_PASSES)
    return replace(plan, passes=problem.em_passes or EXPECTED_VIEW_PASSES, work=work, moved=2 * statistic)


def _row_seconds(plan: Plan, flops: float, passes: int) -> float:
    rate = SPARSE_RATE if plan.problem.nnz is not None else GEMM_RATE
    return pass_seconds(plan.problem, plan.resources, flops, rate, passes, 1 if plan.cached else passes)
