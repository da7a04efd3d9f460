"""By moments: one pass for the Gram matrix of the features, then everything on the driver."""

from __future__ import annotations

from dataclasses import replace

from dlatent.arrays import Array, add
from dlatent.fitting.costs import (
    FULL_EIGEN,
    GEMM_RATE,
    SPARSE_GRAM_RATE,
    VIEW_STEPS,
    compared_columns,
    compared_passes,
    compared_reads,
    compared_seconds,
    completion_memory,
    driver_base,
    exchange_memory,
    gathered_memory,
    graph_memory,
    graph_seconds,
    pass_seconds,
    placed,
    solving_seconds,
    space_memory,
    subspace_bound,
    worker_memory,
)
from dlatent.fitting.moments import by_moments, with_components
from dlatent.fitting.outcome import Outcome, Report
from dlatent.fitting.plan import Cost, Machine, Plan, Problem
from dlatent.fitting.route import Route
from dlatent.fitting.samples import samples_of, start_of_em
from dlatent.fitting.subspace import extra_directions
from dlatent.fitting.task import Task
from dlatent.fitting.textbook import em_on_moments
from dlatent.passes import Run


class CovarianceRoute(Route):
    """One pass, D² numbers."""

    name = "covariance"
    serves = frozenset(
        {"graph", "partly labelled graph", "own noise", "views", "targets", "weights", "added rows", "prior", "rule"}
    )

    def cost(self, problem: Problem, machine: Machine) -> Cost:
        """One pass, statistics of (D+L)² numbers per pattern; nothing is worth caching."""
        width = problem.features + problem.targets
        square = 8 * width**2
        statistic = sum(8 * own**2 for own in problem.widths)
        rate = GEMM_RATE * (2 if problem.itemsize == 4 else 1)
        flops = float(problem.samples) * max(problem.views, default=problem.features) ** 2
        if problem.nnz is not None:
            flops, rate = 2.0 * problem.nnz**2 / max(problem.samples, 1), SPARSE_GRAM_RATE
        if width <= FULL_EIGEN:
            driver = 4.0 * width**3 / GEMM_RATE
        else:
            driver = 4.0 * width**2 * (problem.n_components + extra_directions(problem.n_components)) * 20 / GEMM_RATE
            driver += 2.0 * width**3 / GEMM_RATE if problem.rule is not None else 0.0
        if problem.views:
            # Iterations on the Gram matrices of all patterns: on all features, or on subspaces of many shared ones.
            shared = problem.shared and problem.features > FULL_EIGEN
            steps = 20 if shared else VIEW_STEPS
            driver = 4.0 * sum(own**2 for own in problem.widths) * problem.n_components * steps / GEMM_RATE
        if problem.graph_entries is not None and problem.nnz is not None:
            flops, rate = 2.0 * problem.samples * width**2, GEMM_RATE  # rows that meet their neighbours become dense
        seconds = pass_seconds(problem, machine, flops, rate, decode=True) + driver
        seconds += graph_seconds(problem, machine, width, problem.hops)
        statistic = max(statistic, 8 * width * compared_columns(problem))
        worker = worker_memory(problem, machine, statistic, 8 * width) + gathered_memory(problem)
        if problem.graph_entries is not None:
            at_once = max(width + 1, compared_columns(problem))
            seconds += compared_seconds(problem, machine, at_once)
            worker += graph_memory(problem, machine) + exchange_memory(problem, machine, at_once)
        # What came, the same about the mean, and the terms of one pattern while it is moved there; iterations on it.
        own = (
            driver_base(problem, machine)
            + (5 if problem.adding else 3) * statistic  # and the sums of before and of all
            + 3 * square
            + space_memory(problem, subspace_bound(problem, machine))
            + completion_memory(problem)
        )
        cost = placed("covariance", 1, seconds, 0, worker, own, machine, statistic)
        cost = replace(cost, solving=solving_seconds(problem, whole=True))
        if problem.graph_entries is None:
            return cost
        met = 8 * problem.travelling * problem.hops * (width + 1)
        rows, edges = compared_reads(problem, at_once)
        return replace(
            cost,
            passes=1 + compared_passes(problem, at_once),
            reads=1 + rows,
            edge_reads=problem.hops + 1 + edges,
            columns_at_once=at_once,
            neighbour_bytes=met,
        )

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Outcome:
        """The maximum from moments; with textbook EM the iterations do not touch the data either."""
        problem = task.problem
        options = task.settled_options(plan, single=problem.itemsize == 4 and problem.nnz is None)
        samples = samples_of(task, plan, shift, run)
        start = start_of_em(self, task, plan, shift, run)
        moments, specification = samples.moments(), task.specification
        if task.earlier is not None:
            moments = moments._replace(patterns=add(moments.patterns, task.earlier.patterns))
        if problem.rule is not None:
            specification = with_components(problem.rule, moments, specification, options)
        if task.textbook:
            found = em_on_moments(moments, specification, options, report, start=start)
        else:
            found = by_moments(moments, specification, options, report, growing=task.growing)
        return replace(samples.concluded(found), moments=moments if problem.adding else None)
