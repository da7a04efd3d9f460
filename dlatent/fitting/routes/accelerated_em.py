"""Row by row: accelerated EM, one pass an iteration, where rows have no statistics in common."""

from __future__ import annotations

from dataclasses import replace

from dlatent.arrays import Array
from dlatent.fitting.costs import (
    BASE_MEMORY,
    COMPARED_STEPS,
    EXPECTED_ROW_PASSES,
    EXPECTED_VIEW_PASSES,
    GEMM_RATE,
    ROW_CHUNK_BYTES,
    ROW_SOLVE,
    SPARSE_RATE,
    cache_room,
    driver_base,
    features_bytes,
    features_memory,
    features_seconds,
    graph_memory,
    passes_seconds,
    placed,
    solving_seconds,
    stays,
    worker_memory,
)
from dlatent.fitting.em_passes import accelerated_em, begin, em_on_data
from dlatent.fitting.missing_entries import fit_rows
from dlatent.fitting.outcome import Outcome, Report
from dlatent.fitting.plan import Cost, Machine, Plan, Problem
from dlatent.fitting.route import Route
from dlatent.fitting.smoothing import averaged
from dlatent.fitting.task import Task
from dlatent.fitting.textbook import stacked_shift
from dlatent.linear_gaussian.averaged_rows import Averaging
from dlatent.linear_gaussian.missing_entries.patterns import LARGEST, MOST
from dlatent.passes import Run

MAX_PASSES = 300
PRIOR_MATRICES = 8
"""Matrices of K × K for each feature that an M-step with a prior makes."""


class AcceleratedEMRoute(Route):
    """About twenty passes, D · K² numbers."""

    name, observed = "accelerated_em", True
    serves = frozenset({"missing", "graph", "own noise", "views", "targets", "prior", "prior, targets"})

    def misfit(self, problem: Problem) -> str | None:
        """Where rows have statistics in common, which another route reads in fewer passes."""
        if problem.missing:
            return None
        if problem.shared and not (problem.prior and problem.targets):
            return "no entry is missing"
        # What sparse rows do not store is zero: only their Gram matrix does without densifying them.
        return "the data are sparse" if problem.nnz is not None and not problem.views else None

    def cost(self, problem: Problem, machine: Machine) -> Cost:
        """About twenty passes, statistics of D × K²/2 numbers: any entry may be missing, and noise may be per feature;
        of joint samples, which lack whole views, only D × K for each pattern."""
        if problem.views:
            return _joint_rows_route(problem, machine)
        k, width = problem.n_components, problem.features + problem.targets
        packed = (k + 1) * (k + 2) // 2
        statistic = 8 * max(width * (packed + k + 2), min(MOST * width**2, LARGEST))
        cells = float(problem.nnz) if problem.nnz is not None else float(problem.samples) * width
        rate = SPARSE_RATE if problem.nnz is not None else GEMM_RATE
        flops = 4.0 * cells * (packed + k) + problem.samples * float(k) ** 3 * ROW_SOLVE
        held = worker_memory(problem, machine, statistic, 2 * statistic) + machine.threads * ROW_CHUNK_BYTES
        # The points and images that the acceleration remembers, and a few statistics.
        own = driver_base(problem, machine) + 8 * width * (k + 2) * 24 + 6 * statistic
        own += 8 * width * PRIOR_MATRICES * (k + 1) ** 2 if problem.prior else 0
        graph = problem.graph_entries is not None
        if graph:  # rows and their masks meet their neighbours
            held += graph_memory(problem, machine) + 2 * sum(features_memory(problem, machine))
        cache = cache_room(problem, machine, held, own)
        seconds = passes_seconds(problem, machine, flops, rate, cache, EXPECTED_ROW_PASSES)
        passes = problem.em_passes or EXPECTED_ROW_PASSES
        if problem.candidates:  # one for the means; of each strength a fit, which looks for its start, and its test
            passes += 1 + problem.candidates * (COMPARED_STEPS + 4)
        seconds += passes * 2 * features_seconds(problem, machine)
        seconds *= 1 + problem.candidates  # strengths of smoothing are compared by fits
        cost = placed("accelerated_em", passes, seconds, cache, held + cache, own, machine, moved=2 * statistic)
        cost = replace(cost, solving=solving_seconds(problem))
        if not graph:
            return cost
        # Rows are read once to be exchanged, and once for what came; masks meet their neighbours, too.
        reads = 1 if stays(problem, machine, cache) else 2 * passes
        edges = 2 * passes * (problem.hops + 1)
        return replace(cost, reads=reads, edge_reads=edges, neighbour_bytes=2 * features_bytes(problem))

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Outcome:
        """The maximum by accelerated EM, or by textbook EM."""
        options, whole = task.settled_options(plan, MAX_PASSES), stacked_shift(shift, task.specification)
        if task.relation is not None:
            run = averaged(run, Averaging(task.relation.precision, shift))
        if task.arrangement is None:
            start = None if task.start is None else task.start.parameters
            return fit_rows(run, task.specification, whole, options, textbook=task.textbook, start=start, report=report)
        data = begin(run, task.specification, whole, options, task.arrangement, report)
        return em_on_data(data) if task.textbook else accelerated_em(data)


def _joint_rows_route(problem: Problem, machine: Machine) -> Cost:
    k = problem.n_components
    statistic = 8 * sum(problem.widths) * (k + 3)
    cells = float(problem.nnz) if problem.nnz is not None else problem.nbytes / problem.itemsize
    rate = SPARSE_RATE if problem.nnz is not None else GEMM_RATE
    held = worker_memory(problem, machine, statistic, 8 * problem.features * (k + 3))
    own = BASE_MEMORY + 8 * problem.features * (k + 2) * 24 + 6 * statistic
    cache = cache_room(problem, machine, held, own)
    flops = 4.0 * cells * (k + 1)
    seconds = passes_seconds(problem, machine, flops, rate, cache, EXPECTED_VIEW_PASSES)
    passes = problem.em_passes or EXPECTED_VIEW_PASSES
    return placed("accelerated_em", passes, seconds, cache, held + cache, own, machine, moved=2 * statistic)
