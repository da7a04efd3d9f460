"""By moments: one pass for the Gram matrix of the features, then everything on the driver."""

from __future__ import annotations

from dataclasses import replace

from dlatent.arrays import Array, add
from dlatent.operators.tall import fresh_directions
from dlatent.passes import Resources, Run
from dlatent.solvers.costs import (
    FULL_EIGEN,
    GEMM_RATE,
    SPARSE_GRAM_RATE,
    VIEW_STEPS,
    compared_columns,
    compared_seconds,
    comparing,
    completion_memory,
    driver_base,
    exchange_memory,
    gathered_memory,
    graph_memory,
    graph_seconds,
    pass_seconds,
    placed,
    seen_features,
    solving_seconds,
    subspace,
    worker_memory,
)
from dlatent.solvers.moments.maximum import by_moments, with_components
from dlatent.solvers.plan import Plan, Problem
from dlatent.solvers.samples import samples_of, start_of_em
from dlatent.solvers.solution import Report, Solution
from dlatent.solvers.solver import Solver
from dlatent.solvers.task import Task
from dlatent.solvers.textbook import em_on_moments


class CovarianceSolver(Solver):
    """One pass, D² numbers."""

    name = "covariance"
    serves = frozenset(
        {"graph", "partly labelled graph", "own noise", "views", "targets", "weights", "added rows", "prior", "rule"}
    )

    def plan(self, problem: Problem, machine: Resources) -> Plan:
        """One pass, statistics of (D+L)² numbers per pattern; nothing is worth caching."""
        width, k, graph = problem.features + problem.targets, problem.n_components, problem.graph_entries is not None
        squares = sum(own**2 for own, _ in seen_features(problem))
        statistic, worker, driver, at_once = 8 * squares, 0, driver_base(problem, machine), 0
        if graph:
            compared = compared_columns(problem)
            statistic, at_once = max(statistic, 8 * width * compared), max(width + 1, compared)
            worker = gathered_memory(problem) + graph_memory(problem, machine)
            worker += exchange_memory(problem, machine, at_once)
            driver += completion_memory(problem)
        worker += worker_memory(problem, machine, statistic, 8 * width)
        # What came, the same about the mean, and the terms of one pattern while it is moved there, where rows are added
        # also the sums of before and of all; iterations on it.
        driver += (5 if problem.adding else 3) * statistic + 24 * width**2 + subspace(problem, machine)[1]
        plan = placed(self.name, problem, machine, worker, driver, keeps=False)

        flops = float(problem.samples) * max(problem.views, default=problem.features) ** 2
        rate = GEMM_RATE * (2 if problem.itemsize == 4 else 1)
        if problem.nnz is not None:
            flops, rate = 2.0 * problem.nnz**2 / max(problem.samples, 1), SPARSE_GRAM_RATE
            if graph:
                flops, rate = (
                    2.0 * problem.samples * width**2,
                    GEMM_RATE,
                )  # rows that meet their neighbours become dense
        if problem.views:
            # Iterations on the Gram matrices of all patterns: on all features, or on subspaces of many shared ones.
            steps = 20 if problem.shared and problem.features > FULL_EIGEN else VIEW_STEPS
            inside = 4.0 * squares * k * steps
        elif width <= FULL_EIGEN:
            inside = 4.0 * width**3
        else:
            inside = 80.0 * width**2 * fresh_directions(k) + (2.0 * width**3 if problem.rule is not None else 0.0)
        work = pass_seconds(problem, machine, flops, rate) + inside / GEMM_RATE
        plan = replace(plan, passes=1, moved=statistic, solving=solving_seconds(problem, whole=True))
        if not graph:
            return replace(plan, work=work)
        rounds, passes, reads, edge_reads = comparing(problem, at_once)
        work += graph_seconds(problem, machine, width, problem.hops) + compared_seconds(problem, machine, rounds, reads)
        return replace(
            plan,
            work=work,
            passes=1 + passes,
            reads=1 + reads,
            edge_reads=problem.hops + 1 + edge_reads,
            columns_at_once=at_once,
            neighbour_bytes=8 * problem.travelling * problem.hops * (width + 1),
        )

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Solution:
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
