"""By a growing subspace: about ten passes of products with a few directions, all iterations inside it."""

from __future__ import annotations

from dataclasses import replace

from dlatent.arrays import Array
from dlatent.fitting.costs import (
    BASE_MEMORY,
    DECODE_RATE,
    EXPECTED_PASSES,
    GEMM_RATE,
    SPARSE_RATE,
    cache_room,
    column_block_count,
    compared_columns,
    compared_passes,
    compared_reads,
    compared_seconds,
    driver_base,
    exchange_columns,
    exchange_memory,
    exchange_room,
    features_seconds,
    fresh_directions,
    graph_bytes,
    graph_memory,
    graph_seconds,
    pass_seconds,
    passes_seconds,
    placed,
    shares_driver,
    solving_seconds,
    space_memory,
    stays,
    subspace_bound,
    worker_memory,
)
from dlatent.fitting.moments import finished
from dlatent.fitting.outcome import Outcome, Report
from dlatent.fitting.plan import Cost, Machine, Plan, Problem
from dlatent.fitting.route import Route
from dlatent.fitting.samples import samples_of, start_of_em
from dlatent.fitting.subspace import search
from dlatent.fitting.task import Task
from dlatent.fitting.textbook import stacked_shift
from dlatent.passes import Run


class KrylovRoute(Route):
    """About ten passes, D · K numbers."""

    name = "krylov"
    serves = frozenset({"graph", "views", "targets", "weights", "prior"})

    def cost(self, problem: Problem, machine: Machine) -> Cost:
        """About a dozen passes, statistics of D × (K + extra) numbers per pattern; the driver holds the subspace."""
        fresh = fresh_directions(problem)
        columns = min(fresh + problem.targets, problem.features)
        own = sum(size * spans for size, spans in zip(problem.widths, problem.spans, strict=True))
        statistic = 8 * (own * max(columns, compared_columns(problem)) + 2 * sum(problem.widths))
        flops = 4.0 * columns * (problem.nnz if problem.nnz is not None else problem.samples * problem.features)
        rate = SPARSE_RATE if problem.nnz is not None else GEMM_RATE
        parameters = 16 * problem.features * columns
        moved = statistic + parameters // 2
        held = worker_memory(problem, machine, statistic, parameters, columns)
        exchanged, at_once, column_blocks, summing, reads = columns + problem.targets + 1, 0, 0, 0, 0
        passes, edges = problem.em_passes or EXPECTED_PASSES, 0
        if problem.graph_entries is not None:
            held += graph_memory(problem, machine)
            room = exchange_room(machine, held)
            at_once = exchange_columns(problem, machine, max(exchanged, compared_columns(problem)), room)
            kept = min(graph_bytes(problem) // machine.workers, room // 2)
            column_blocks, one = column_block_count(problem, machine, room - kept)
            summing = held + kept + one
            held += exchange_memory(problem, machine, at_once)
        driver, rank = _krylov_driver(problem, machine, statistic, held)
        cache = cache_room(problem, machine, held, driver)
        seconds = passes_seconds(problem, machine, flops, rate, cache, EXPECTED_PASSES)
        # New directions are made orthogonal to all before them, on the driver.
        seconds += 2.0 * own * (columns * EXPECTED_PASSES) ** 2 / GEMM_RATE
        if problem.graph_entries is not None:
            seconds += EXPECTED_PASSES * graph_seconds(problem, machine, exchanged, problem.product_hops)
            seconds += compared_seconds(problem, machine, at_once)
            seconds += column_blocks * pass_seconds(problem, machine, 0.0, rate, decode=True)
            seconds += features_seconds(problem, machine)
            # Rows are read once to be exchanged, and once to be multiplied by what came.
            parts = -(-exchanged // at_once)
            passes *= parts
            seconds += EXPECTED_PASSES * (2 * parts - 1) * problem.nbytes / DECODE_RATE
            kept_all, (rows, edges) = stays(problem, machine, cache), compared_reads(problem, at_once)
            # What was kept while strengths were compared is of no use to a fit that needs no neighbours.
            reads = 1 if kept_all and not problem.candidates else 2 * passes
            reads += column_blocks if column_blocks > 1 or not kept_all else 0
            reads += min(rows, 1) if kept_all else rows
            edges += passes * (problem.product_hops + 1) + column_blocks * (problem.hops + 1)
            passes += compared_passes(problem, at_once)
        cost = placed("krylov", passes, seconds, cache, max(held + cache, summing), driver, machine, moved)
        met = 8 * problem.travelling * min(fresh, problem.features) * problem.product_hops
        return replace(
            cost,
            columns_at_once=at_once,
            column_blocks=column_blocks,
            max_rank=rank,
            neighbour_bytes=met,
            reads=reads,
            edge_reads=edges,
            solving=solving_seconds(problem),
        )

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Outcome:
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


def _krylov_driver(problem: Problem, machine: Machine, statistic: int, worker: int) -> tuple[int, int]:
    """The memory of the driver, and the widest subspace that leaves room for all else."""
    # A statistic that came and its copy; the products, directions and messages of one pass (measured).
    one = 8 * problem.features * min(fresh_directions(problem), problem.features)
    base, passing = driver_base(problem, machine), 2 * statistic + 10 * one
    taken = base + passing + (worker - BASE_MEMORY if shares_driver(machine) else 0)
    rank = subspace_bound(problem, machine, taken)
    space = space_memory(problem, rank)
    # When the subspace is thinned out, half of it exists twice for a moment.
    return base + space + max(passing, space // 2 + 4 * one), rank
