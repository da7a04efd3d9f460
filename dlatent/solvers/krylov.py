"""By a growing subspace: about ten passes of products with a few directions, all iterations inside it."""

from __future__ import annotations

from dataclasses import replace

from dlatent.arrays import Array
from dlatent.operators.tall import fresh_directions
from dlatent.passes import Resources, Run
from dlatent.solvers.costs import (
    BASE_MEMORY,
    DECODE_RATE,
    EXPECTED_PASSES,
    GEMM_RATE,
    SPARSE_RATE,
    column_block_count,
    compared_columns,
    compared_seconds,
    comparing,
    driver_base,
    exchange_columns,
    exchange_memory,
    exchange_room,
    features_seconds,
    graph_memory,
    graph_seconds,
    pass_seconds,
    placed,
    seen_features,
    solving_seconds,
    subspace,
    worker_memory,
)
from dlatent.solvers.moments.maximum import finished
from dlatent.solvers.moments.subspace import search
from dlatent.solvers.plan import Plan, Problem
from dlatent.solvers.samples import samples_of, start_of_em
from dlatent.solvers.solution import Report, Solution
from dlatent.solvers.solver import Solver
from dlatent.solvers.task import Task
from dlatent.solvers.textbook import stacked_shift


class KrylovSolver(Solver):
    """About ten passes, D · K numbers."""

    name = "krylov"
    serves = frozenset({"graph", "views", "targets", "weights", "prior"})

    def plan(self, problem: Problem, machine: Resources) -> Plan:
        """About a dozen passes, statistics of D × (K + extra) numbers per pattern; the driver holds the subspace."""
        fresh, graph = fresh_directions(problem.n_components), problem.graph_entries is not None
        columns = min(fresh + problem.targets, problem.features)
        patterns, compared = seen_features(problem), compared_columns(problem) if graph else 0
        own = sum(size * views for size, views in patterns)
        statistic = 8 * (own * max(columns, compared) + 2 * sum(size for size, _ in patterns))
        parameters = 16 * problem.features * columns
        worker = worker_memory(problem, machine, statistic, parameters, columns)
        exchanged, at_once, column_blocks, summing = columns + problem.targets + 1, 0, 0, 0
        if graph:
            worker += graph_memory(problem, machine)
            room = exchange_room(machine, worker)
            at_once = exchange_columns(problem, machine, max(exchanged, compared), room)
            kept = min(problem.graph_bytes // machine.workers, room // 2)
            column_blocks, one = column_block_count(problem, machine, room - kept)
            summing = worker + kept + one
            worker += exchange_memory(problem, machine, at_once)
        # A statistic that came and its copy; the products, directions and messages of one pass (measured).
        one = 8 * problem.features * min(fresh, problem.features)
        base, passing = driver_base(problem, machine), 2 * statistic + 10 * one
        shared = worker - BASE_MEMORY if machine.kind != "cluster" else 0
        rank, space = subspace(problem, machine, base + passing + shared)
        # When the subspace is thinned out, half of it exists twice for a moment.
        driver = base + space + max(passing, space // 2 + 4 * one)
        plan = placed(self.name, problem, machine, worker, driver, least=summing)

        flops = 4.0 * columns * (problem.nnz if problem.nnz is not None else problem.samples * problem.features)
        rate = SPARSE_RATE if problem.nnz is not None else GEMM_RATE
        work = pass_seconds(problem, machine, flops, rate, EXPECTED_PASSES, 1 if plan.cached else EXPECTED_PASSES)
        # New directions are made orthogonal to all before them, on the driver.
        work += 2.0 * own * (columns * EXPECTED_PASSES) ** 2 / GEMM_RATE
        plan = replace(
            plan,
            max_rank=rank,
            passes=problem.em_passes or EXPECTED_PASSES,
            work=work,
            solving=solving_seconds(problem),
            moved=statistic + parameters // 2,
        )
        if not graph:
            return plan
        # Rows are read once to be exchanged, and once to be multiplied by what came.
        parts, hops = -(-exchanged // at_once), problem.hops * (1 if problem.given_precision else 2)
        passes = plan.passes * parts
        rounds, more, rows, edges = comparing(problem, at_once)
        work += EXPECTED_PASSES * graph_seconds(problem, machine, exchanged, hops)
        work += EXPECTED_PASSES * (2 * parts - 1) * problem.nbytes / DECODE_RATE
        work += compared_seconds(problem, machine, rounds, rows) + features_seconds(problem, machine)
        work += column_blocks * pass_seconds(problem, machine, 0.0, rate)
        # What was kept while strengths were compared is of no use to a fit that needs no neighbours.
        reads = 1 if plan.cached and not problem.candidates else 2 * passes
        reads += column_blocks if column_blocks > 1 or not plan.cached else 0
        return replace(
            plan,
            work=work,
            passes=passes + more,
            reads=reads + (min(rows, 1) if plan.cached else rows),
            edge_reads=passes * (hops + 1) + column_blocks * (problem.hops + 1) + edges,
            columns_at_once=at_once,
            column_blocks=column_blocks,
            neighbour_bytes=8 * problem.travelling * min(fresh, problem.features) * hops,
        )

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Solution:
        """The maximum in a subspace; with textbook EM plain EM with one pass an iteration."""
        options, specification = task.settled_options(plan), task.specification
        samples = samples_of(task, plan, shift, run)
        if task.textbook:
            return samples.concluded(samples.em(start_of_em(self, task, plan, shift, run), options, report))
        whole = stacked_shift(shift, specification)
        state, converged = search(samples.products, specification, whole, options, report, growing=task.growing)
        parameters = state.space.lifted(state.solution)
        checked = samples.log_likelihood(parameters, state.specification) if options.verify else None
        found = finished(state, samples.about_zero(parameters), options, converged, None, checked=checked)
        return samples.concluded(found)
