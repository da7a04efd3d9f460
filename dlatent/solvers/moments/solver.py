"""By moments of the features: solvers that take one pass for all of them, or a few passes for products with directions.

They ask samples for moments and products, and do not see whether these are independent or joined by a graph.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dlatent.arrays import Array, add
from dlatent.gaussian.likelihood import LikelihoodRequest, block_log_likelihood
from dlatent.gaussian.moments import MomentRequest, Moments, block_moments, centred
from dlatent.gaussian.products import PatternProducts, ProductRequest, block_products
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.operators.sparse import by_columns
from dlatent.operators.tall import fresh_directions
from dlatent.passes import Pass, Resources, Run
from dlatent.solvers.costs import (
    BASE_MEMORY,
    DECODE_RATE,
    EXPECTED_PASSES,
    FULL_EIGEN,
    GEMM_RATE,
    SPARSE_GRAM_RATE,
    VIEW_STEPS,
    driver_base,
    pass_seconds,
    placed,
    product_rate,
    seen_features,
    solving_seconds,
    subspace,
    worker_memory,
)
from dlatent.solvers.em import em_on_data, em_on_moments, stacked_shift
from dlatent.solvers.graph.costs import (
    column_block_count,
    compared_columns,
    compared_seconds,
    comparing,
    completion_memory,
    exchange_columns,
    exchange_memory,
    exchange_room,
    features_seconds,
    gathered_memory,
    graph_memory,
    graph_seconds,
)
from dlatent.solvers.graph.samples import GraphSamples
from dlatent.solvers.moments.maximum import by_moments, finished, with_components
from dlatent.solvers.moments.number import joint_number
from dlatent.solvers.moments.subspace import search
from dlatent.solvers.plan import EDGE_BYTES, Plan
from dlatent.solvers.solver import Report, Solution, Solver
from dlatent.solvers.task import SINGLE, Task


class CovarianceSolver(Solver):
    """One pass, D² numbers."""

    name = "covariance"
    serves = frozenset(
        {"graph", "partly labelled graph", "own noise", "views", "targets", "weights", "added rows", "prior", "rule"}
    )

    def plan(self, task: Task, machine: Resources) -> Plan:
        """One pass, statistics of (D+L)² numbers per pattern; nothing is worth caching."""
        data, k, between = task.data, task.specification.n_components, task.between
        width, squares = data.features + task.columns, sum(seen**2 for seen, _ in seen_features(task))
        statistic, worker, driver, at_once = 8 * squares, 0, driver_base(task, machine), 0
        if between is not None:
            compared = compared_columns(task)
            statistic, at_once = max(statistic, 8 * width * compared), max(width + 1, compared)
            worker = gathered_memory(task) + graph_memory(task, machine)
            worker += exchange_memory(task, machine, at_once)
            driver += completion_memory(task)
        worker += worker_memory(task, machine, statistic, 8 * width)
        # What came, the same about the mean, and the terms of one pattern while it is moved there, where rows are added
        # also the sums of before and of all; iterations on it.
        driver += (5 if task.adding else 3) * statistic + 24 * width**2 + subspace(task, machine)[1]
        plan = placed(self.name, task, machine, worker, driver, keeps=False)

        widest = data.features if task.arrangement is None else max(task.specification.sizes)
        flops, rate = float(data.samples) * widest**2, GEMM_RATE * (2 if data.itemsize == 4 else 1)
        if data.nnz is not None and between is not None:  # rows that meet their neighbours become dense
            flops, rate = 2.0 * data.samples * width**2, GEMM_RATE
        elif data.nnz is not None:
            flops, rate = 2.0 * data.nnz**2 / max(data.samples, 1), SPARSE_GRAM_RATE
        if task.arrangement is not None:
            # Iterations on the Gram matrices of all patterns: on all features, or on subspaces of many shared ones.
            steps = 20 if task.shared and data.features > FULL_EIGEN else VIEW_STEPS
            inside = 4.0 * squares * k * steps
        elif width <= FULL_EIGEN:
            inside = 4.0 * width**3
        else:
            inside = 80.0 * width**2 * fresh_directions(k) + (2.0 * width**3 if task.chosen_first else 0.0)
        work = pass_seconds(data, machine, flops, rate) + inside / GEMM_RATE
        plan = replace(plan, passes=1, moved=statistic, solving=solving_seconds(task, every_feature=True))
        if between is None:
            return replace(plan, work=work)
        rounds, passes, reads, edge_reads = comparing(task, at_once)
        work += graph_seconds(task, machine, width, between.hops) + compared_seconds(task, machine, rounds, reads)
        return replace(
            plan,
            work=work,
            passes=1 + passes,
            reads=1 + reads,
            edge_reads=between.hops + 1 + edge_reads,
            columns_at_once=at_once,
            neighbour_bytes=8 * between.travelling * between.hops * (width + 1),
        )

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Solution:
        """The maximum from moments; with textbook EM the iterations do not touch the data either."""
        if task.data.itemsize == 4 and task.data.nnz is None:
            task = replace(task, epsilon=SINGLE)
        samples = samples_of(task, plan, shift, run)
        start = start_of_em(self, task, plan, shift, run) if task.textbook else None
        moments = samples.moments()
        if task.earlier is not None:
            moments = moments._replace(patterns=add(moments.patterns, task.earlier.patterns))
        middle = centred(moments, task.specification.sizes, task.specification.patterns)
        if task.chosen_first:
            task = replace(task, specification=with_components(middle, task))
        if task.textbook:
            solution = em_on_moments(middle, task, report, start=start)
        else:
            solution = by_moments(middle, task, report)
        return replace(samples.concluded(solution), moments=moments if task.keeps_moments else None)


class KrylovSolver(Solver):
    """About ten passes, D · K numbers."""

    name = "krylov"
    serves = frozenset({"graph", "views", "targets", "weights", "prior"})

    def plan(self, task: Task, machine: Resources) -> Plan:
        """About a dozen passes, statistics of D × (K + extra) numbers per pattern; the driver holds the subspace."""
        data, between, fresh = task.data, task.between, fresh_directions(task.specification.n_components)
        columns = min(fresh + task.columns, data.features)
        patterns, compared = seen_features(task), 0 if between is None else compared_columns(task)
        seen = sum(size * views for size, views in patterns)
        statistic = 8 * (seen * max(columns, compared) + 2 * sum(size for size, _ in patterns))
        parameters = 16 * data.features * columns
        worker = worker_memory(task, machine, statistic, parameters, columns)
        exchanged, at_once, column_blocks, summing = columns + task.columns + 1, 0, 0, 0
        if between is not None:
            worker += graph_memory(task, machine)
            room = exchange_room(machine, worker)
            at_once = exchange_columns(task, machine, max(exchanged, compared), room)
            kept = min(EDGE_BYTES * task.edges // machine.workers, room // 2)
            column_blocks, one = column_block_count(task, machine, room - kept)
            summing = worker + kept + one
            worker += exchange_memory(task, machine, at_once)
        # A statistic that came and its copy; the products, directions and messages of one pass (measured).
        one = 8 * data.features * min(fresh, data.features)
        base, passing = driver_base(task, machine), 2 * statistic + 10 * one
        shared = worker - BASE_MEMORY if machine.kind != "cluster" else 0
        rank, space = subspace(task, machine, base + passing + shared)
        # When the subspace is thinned out, half of it exists twice for a moment.
        driver = base + space + max(passing, space // 2 + 4 * one)
        plan = placed(self.name, task, machine, worker, driver, least=summing)

        flops, rate = 4.0 * columns * data.entries, product_rate(data)
        before = 1 + EXPECTED_PASSES if task.chosen_first else 0  # a look, and a search for eigenvalues
        passes = EXPECTED_PASSES + before
        work = pass_seconds(data, machine, flops, rate, passes, 1 if plan.cached else passes)
        # New directions are made orthogonal to all before them, on the driver.
        work += 2.0 * seen * (columns * EXPECTED_PASSES) ** 2 / GEMM_RATE
        plan = replace(
            plan,
            max_rank=rank,
            passes=(task.em_passes or EXPECTED_PASSES) + before,
            work=work,
            solving=solving_seconds(task),
            moved=statistic + parameters // 2,
        )
        if between is None:
            return plan
        # Rows are read once to be exchanged, and once to be multiplied by what came.
        parts, hops = -(-exchanged // at_once), between.hops * (1 if between.graph.precision else 2)
        passes = plan.passes * parts
        rounds, more, rows, edges = comparing(task, at_once)
        work += EXPECTED_PASSES * graph_seconds(task, machine, exchanged, hops)
        work += EXPECTED_PASSES * (2 * parts - 1) * data.nbytes / DECODE_RATE
        work += compared_seconds(task, machine, rounds, rows) + features_seconds(task, machine)
        work += column_blocks * pass_seconds(data, machine, 0.0, rate)
        # What was kept while strengths were compared is of no use to a fit that needs no neighbours.
        reads = 1 if plan.cached and not between.candidates else 2 * passes
        reads += column_blocks if column_blocks > 1 or not plan.cached else 0
        return replace(
            plan,
            work=work,
            passes=passes + more,
            reads=reads + (min(rows, 1) if plan.cached else rows),
            edge_reads=passes * (hops + 1) + column_blocks * (between.hops + 1) + edges,
            columns_at_once=at_once,
            column_blocks=column_blocks,
            neighbour_bytes=8 * between.travelling * min(fresh, data.features) * hops,
        )

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Solution:
        """The maximum in a subspace; with textbook EM plain EM with one pass an iteration."""
        samples = samples_of(task, plan, shift, run)
        if task.chosen_first:
            chosen = replace(task.specification, n_components=joint_number(samples.products, task))
            task = replace(task, specification=chosen)
            samples = samples_of(task, plan, shift, run)
        if task.textbook:
            return samples.concluded(samples.em(start_of_em(self, task, plan, shift, run), report))
        state, converged = search(samples.products, task, stacked_shift(shift, task.specification), report)
        parameters = state.space.lifted(state.solution)
        checked = samples.log_likelihood(parameters, state.specification)
        return samples.concluded(finished(state, samples.about_zero(parameters), converged, checked))


class IndependentSamples:
    """Samples that are independent of each other."""

    def __init__(self, task: Task, shift: Array, run: Run) -> None:
        self._task, self._shift, self._run = task, shift, run
        # Rows that are picked out by their pattern are better held by rows.
        alone = len(task.specification.patterns) == 1 and task.arrangement is None
        self._form = by_columns if alone else None

    def moments(self) -> Moments:
        """The Gram matrix of each pattern, about the shift."""
        task, specification = self._task, self._task.specification
        request = MomentRequest(self._shift, specification.patterns, task.refuse_zero_rows, task.arrangement)
        patterns = self._run(Pass(block_moments, request, name="moments"))
        views = len(specification.views)
        return Moments(patterns, stacked_shift(self._shift, specification), np.zeros(views), np.zeros(views))

    def products(self, directions: tuple[Array, ...], sums: bool = False) -> tuple[PatternProducts, ...]:
        """The Gram matrix of each pattern times directions of each view, and where asked the sums."""
        task, patterns = self._task, self._task.specification.patterns
        refuse = task.refuse_zero_rows
        request = ProductRequest(directions, self._shift, patterns, sums, refuse, task.arrangement)
        return self._run(Pass(block_products, request, form=self._form, name="products"))

    def log_likelihood(self, parameters: Parameters, specification: Specification) -> float:
        """The log-likelihood of all samples at the parameters that a search in a subspace found, in nats."""
        request = LikelihoodRequest(parameters, specification, self._task.arrangement)
        return self._run(Pass(block_log_likelihood, request, form=self._form, name="check"))

    def about_zero(self, parameters: Parameters) -> Parameters:
        """The parameters themselves."""
        return parameters

    def em(self, start: Parameters | None, report: Report | None) -> Solution:
        """Plain EM, one pass an iteration, from random loadings."""
        return em_on_data(self._run, self._task, stacked_shift(self._shift, self._task.specification), report)

    def concluded(self, solution: Solution) -> Solution:
        """The solution itself."""
        return solution


def samples_of(task: Task, plan: Plan, shift: Array, run: Run) -> IndependentSamples | GraphSamples:
    """The data of a fit: both kinds have the same methods."""
    return IndependentSamples(task, shift, run) if task.relation is None else GraphSamples(task, plan, shift, run)


def start_of_em(solver: Solver, task: Task, plan: Plan, shift: Array, run: Run) -> Parameters | None:
    """Where textbook EM of samples in a graph begins, where the user wants the start of the paper: loadings of PCA, and
    the noise variance asked for."""
    relation = task.relation
    if relation is None or relation.start != "pca":
        return None
    plain = replace(task, textbook=False, between=None)
    principal = solver.fit(plain, plan, shift, run).parameters
    noise = principal.noise_variance
    if relation.start_noise is not None:
        noise = np.full(len(noise), relation.start_noise)
    return Parameters(principal.loadings, np.zeros(len(principal.loadings)), noise)
