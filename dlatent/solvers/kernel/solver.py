"""By a kernel K (N, N): in memory, computed again in every pass, or kept in a store while the fit runs."""

from __future__ import annotations

import operator
from abc import ABC
from dataclasses import replace
from typing import Any

import numpy as np

from dlatent.arrays import Array
from dlatent.gaussian.kernel import (
    CHUNK,
    KernelRequest,
    TriangleRequest,
    WriteRequest,
    block_diagonal,
    block_triangle,
    meet_product,
    meet_write,
)
from dlatent.operators.kernels import Kernel
from dlatent.operators.tall import fresh_directions
from dlatent.order import MOST_STRETCHES
from dlatent.passes import Pass, Resources, Run, pair_pass
from dlatent.solvers.costs import (
    DECODE_RATE,
    EXPECTED_PASSES,
    FULL_EIGEN,
    GEMM_RATE,
    MIB,
    SKEWNESS,
    SPARSE_GRAM_RATE,
    TASK_SECONDS,
    driver_base,
    group_number,
    paired_memory,
    placed,
    solving_seconds,
    subspace,
    worker_memory,
)
from dlatent.solvers.gram.dual import (
    KernelProducts,
    begin_dual,
    concluded,
    data_of,
    fit_dual,
    given_products,
    kernel_tiles,
    made_by,
    sample_size,
    settled_kernel,
    solution_of,
)
from dlatent.solvers.moments.subspace import grow
from dlatent.solvers.plan import Plan, Problem
from dlatent.solvers.solution import Report, Solution
from dlatent.solvers.solver import Solver
from dlatent.solvers.task import Task

VALUE_RATE = 0.2e9
"""Values of a kernel that a thread makes of inner products in a second (exponentials)."""
DIFFERENCE_RATE = 1.0e9
"""Absolute differences that a thread adds up in a second."""
STORE_RATE = 0.4e9
"""Bytes per second and thread of values that are stored as they are (measured with Zarr's chunks of half a MB)."""
TILES = 48 * MIB
"""A tile of the kernel and what it is made of, for one thread."""
STORED_ROWS = 24 * MIB
"""Rows of a stored kernel that are read at a time, as the store has it."""
GIVEN = "precomputed"
"""The kernel whose values are the data."""


class KernelSolver(Solver, ABC):
    """What routes by a kernel have in common."""

    serves = frozenset({"kernel", "targets"})
    needs, lacking = frozenset({"kernel"}), "the features are not made by a kernel"


class MemorySolver(KernelSolver):
    """Two passes, N² numbers; everything else on the driver."""

    name = "memory"

    def plan(self, problem: Problem, machine: Resources) -> Plan:
        """A look at the rows, one pass for K; the driver holds its upper triangle, and where rows are few all of it."""
        count, square = problem.samples, 8 * problem.samples**2
        # A worker holds its tiles of half of K.
        worker = worker_memory(problem, machine, 0, 0) + paired_memory(problem, machine, 2)
        worker += machine.threads * TILES + square // (2 * machine.workers)
        copies = 8 if count <= FULL_EIGEN else 3  # with few samples all combinations are taken at once
        driver = driver_base(problem, machine) + copies * square + _rows(problem)
        plan = placed(self.name, problem, machine, worker, driver, keeps=False)

        work = kernel_seconds(problem, machine) + 4.0 * count**2 * _columns(problem) * EXPECTED_PASSES / GEMM_RATE
        work += 4.0 * count**3 / GEMM_RATE if count <= FULL_EIGEN else 0.0
        return _of_rows(replace(plan, passes=2, work=work, gathered=square // 2))

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Solution:
        """The maximum over combinations of samples, or by textbook EM."""
        kernel, options = made_by(task).kernel, task.settled_options(plan)
        if kernel.name == GIVEN:
            products = given_products(task.problem.samples, run, whole=True)
        else:
            kernel = settled_kernel(task, run)
            products = KernelProducts.of_tiles(kernel_tiles(run, kernel, options))
        fitted = fit_dual(products, data_of(task), task.specification, options, textbook=task.textbook, report=report)
        return solution_of(task, kernel, fitted)


class RecomputedSolver(KernelSolver):
    """About ten passes, and never more than a tile of K; of a given K, passes over its rows."""

    name = "recomputed"

    def misfit(self, problem: Problem) -> str | None:
        """Where products with the kernel are not enough."""
        return "textbook EM needs the kernel in memory" if problem.em_passes else None

    def plan(self, problem: Problem, machine: Resources) -> Plan:
        """K in each of about a dozen passes over pairs of blocks."""
        each = kernel_seconds(problem, machine)
        return _by_passes(self.name, problem, machine, each, TILES, pairs=problem.kernel != GIVEN)

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Solution:
        """The maximum over combinations of samples, in a space that grows by a pass at a time."""
        kernel, products = _recomputed(task, run)
        options = task.settled_options(plan)
        state, means = begin_dual(products, data_of(task), task.specification, options, report)
        return solution_of(task, kernel, concluded(state, means, grow(state, products.about_mean)))


class StoredSolver(RecomputedSolver):
    """Three passes over the rows, and about ten over the upper triangle of K."""

    name = "stored"

    def misfit(self, problem: Problem) -> str | None:
        """Where products with a kernel are not enough, or there is no place for it."""
        if problem.kernel == GIVEN:
            return "the kernel is at hand"
        place = "it needs a place for the kernel that all workers reach, kernel_store='kernel.zarr'"
        return super().misfit(problem) or (None if problem.kernel_place else place)

    def plan(self, problem: Problem, machine: Resources) -> Plan:
        """K once, and half of it written, and read in each of about a dozen passes."""
        square = problem.samples**2 * problem.kernel_itemsize
        each = square / 2 / STORE_RATE / (machine.workers * machine.threads)
        # A thread holds rows, the next ones, and these as they are stored; those being multiplied in float64.
        reading = 3 * min(STORED_ROWS, square) + 16 * CHUNK * problem.samples
        plan = _by_passes(self.name, problem, machine, each, max(TILES, reading), pairs=False)
        return replace(plan, work=kernel_seconds(problem, machine) + plan.work * plan.passes / EXPECTED_PASSES)

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Solution:
        """The maximum over combinations of samples, in a space that grows by a pass over the store at a time."""
        with made_by(task).kept() as (sink, stored):
            kernel = settled_kernel(task, run)
            diagonal = _diagonal(kernel, run)
            run(pair_pass(meet_write, WriteRequest(kernel, sink), combine=operator.add, recorded=False, name="kernel"))

            def asked(thin: Array) -> Pass[TriangleRequest, Array]:
                return Pass(block_triangle, TriangleRequest(thin, sink.bounds), name="products")

            products = KernelProducts(stored, diagonal, asked=asked)
            options = task.settled_options(plan)
            state, means = begin_dual(products, data_of(task), task.specification, options, report)
            return solution_of(task, kernel, concluded(state, means, grow(state, products.about_mean)))


def _recomputed(task: Task, run: Run) -> tuple[Kernel, KernelProducts]:
    kernel = made_by(task).kernel
    if kernel.name == GIVEN:
        return kernel, given_products(task.problem.samples, run, whole=False)
    kernel = settled_kernel(task, run)

    def asked(thin: Array) -> Any:
        return pair_pass(meet_product, KernelRequest(kernel, thin, False), mutual=True, name="kernel")

    return kernel, KernelProducts(run, _diagonal(kernel, run), asked=asked, joined=np.vstack)


def _diagonal(kernel: Kernel, run: Run) -> Array:
    return np.concatenate(run(Pass(block_diagonal, kernel, combine=operator.add, name="diagonal")))


def kernel_seconds(problem: Problem, machine: Resources) -> float:
    """Seconds of K once, over all pairs of blocks, or of reading it where it is given."""
    if problem.kernel == GIVEN:
        return problem.nbytes / STORE_RATE
    pairs = float(problem.samples) ** 2 / 2.0
    seconds = pairs / VALUE_RATE
    if problem.kernel == "laplacian":
        seconds = pairs * problem.features / DIFFERENCE_RATE
    elif problem.nnz is not None:
        seconds += SKEWNESS * problem.nnz**2 / problem.features / SPARSE_GRAM_RATE / 2.0
    else:
        seconds += 2.0 * pairs * problem.features / GEMM_RATE
    return (
        seconds / (machine.workers * machine.threads) + TASK_SECONDS * min(group_number(problem), MOST_STRETCHES) ** 2
    )


def _columns(problem: Problem) -> int:
    """Combinations of rows that a pass multiplies with K."""
    return fresh_directions(problem.n_components) + problem.targets


def _rows(problem: Problem) -> int:
    """Bytes of the rows that the model copies, and of those that the median heuristic looks at: as they come, and side
    by side."""
    if problem.kernel == GIVEN:
        return 0
    return problem.kept_bytes + 2 * sample_size(problem) * -(-problem.nbytes // problem.samples)


def _by_passes(solver: str, problem: Problem, machine: Resources, each: float, beside: int, *, pairs: bool) -> Plan:
    """Products in passes that take `each` seconds beside the products and the reading of the rows, where these meet in
    `pairs`, and `beside` bytes for each thread."""
    count, columns, threads = problem.samples, _columns(problem), machine.workers * machine.threads
    thin = 8 * count * columns
    worker = worker_memory(problem, machine, thin, thin) + machine.threads * beside + paired_memory(problem, machine)
    driver = driver_base(problem, machine) + 8 * count * EXPECTED_PASSES * columns * 4 + _rows(problem)
    plan = placed(solver, problem, machine, worker, driver, pairs=pairs)
    each += 2.0 * count**2 * columns / GEMM_RATE / threads
    if pairs and not plan.cached:
        each += group_number(problem) * problem.nbytes / DECODE_RATE / threads
    return _of_rows(replace(plan, passes=1 + EXPECTED_PASSES, work=EXPECTED_PASSES * each, moved=2 * thin))


def _of_rows(plan: Plan) -> Plan:
    """With what all fits by K have in common: blocks meet blocks, and the space is one of combinations of rows."""
    problem = plan.problem
    return replace(
        plan,
        max_rank=subspace(replace(problem, features=problem.samples), plan.resources)[0],
        tasks_per_pass=group_number(problem) ** 2,
        reads=plan.passes,
        solving=solving_seconds(problem),
    )
