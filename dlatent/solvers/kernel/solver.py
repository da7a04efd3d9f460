"""By a kernel K (N, N): in memory, computed again in every pass, or kept in a store while the fit runs."""

from __future__ import annotations

import operator
from abc import ABC
from dataclasses import replace
from typing import Any

import numpy as np

from dlatent.arrays import Array, Features, Integers
from dlatent.gaussian.kernel import (
    CHUNK,
    KernelMap,
    KernelRequest,
    PrecomputedRows,
    SurveyRequest,
    TriangleRequest,
    WriteRequest,
    block_diagonal,
    block_precomputed,
    block_survey,
    block_triangle,
    join_precomputed,
    meet_product,
    meet_write,
    require_symmetric,
)
from dlatent.operators.kernels import Kernel, median_gamma
from dlatent.operators.sparse import far_columns, stacked
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
from dlatent.solvers.gram import DualFit, KernelProducts, data_of, fit_dual, kernel_tiles
from dlatent.solvers.plan import Plan
from dlatent.solvers.solver import Report, Solution, Solver
from dlatent.solvers.task import DataSize, KernelFeatures, Task

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
PRECOMPUTED = "precomputed"
"""The kernel whose values are the data."""
SAMPLE = 500
"""Rows whose distances give the median heuristic its median."""
SAMPLE_BYTES = 2**27
"""Fewer rows are looked at where these would be more bytes than this."""


class KernelSolver(Solver, ABC):
    """Any solver by a kernel."""

    serves = frozenset({"kernel", "targets"})
    needs, lacking = frozenset({"kernel"}), "the features are not made by a kernel"


class MemorySolver(KernelSolver):
    """Two passes, N² numbers; everything else on the driver."""

    name = "memory"

    def plan(self, task: Task, machine: Resources) -> Plan:
        """A look at the rows, one pass for K; the driver holds its upper triangle, and where rows are few all of it."""
        count, square = task.data.samples, 8 * task.data.samples**2
        # A worker holds its tiles of half of K.
        worker = worker_memory(task, machine, 0, 0) + paired_memory(task.data, machine, 2)
        worker += machine.threads * TILES + square // (2 * machine.workers)
        copies = 8 if count <= FULL_EIGEN else 3  # with few samples all combinations are taken at once
        driver = driver_base(task, machine) + copies * square + _rows(task)
        plan = placed(self.name, task, machine, worker, driver, keeps=False)

        work = kernel_seconds(task, machine) + 4.0 * count**2 * _columns(task) * EXPECTED_PASSES / GEMM_RATE
        work += 4.0 * count**3 / GEMM_RATE if count <= FULL_EIGEN else 0.0
        return _of_rows(replace(plan, passes=2, work=work, gathered=square // 2))

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Solution:
        """The maximum over combinations of samples, or by textbook EM."""
        kernel = kernel_features(task).kernel
        if kernel.name == PRECOMPUTED:
            products = precomputed_products(task.data.samples, run, in_memory=True)
        else:
            kernel = settled_kernel(task, run)
            products = KernelProducts.of_tiles(kernel_tiles(run, kernel, task))
        return solution_of(task, kernel, fit_dual(products, data_of(task), task, report))


class RecomputedSolver(KernelSolver):
    """About ten passes, and never more than a tile of K; of a given K, passes over its rows."""

    name = "recomputed"

    def misfit(self, task: Task) -> str | None:
        """Where products with the kernel are not enough."""
        return "textbook EM needs the kernel in memory" if task.textbook else None

    def plan(self, task: Task, machine: Resources) -> Plan:
        """K in each of about a dozen passes over pairs of blocks."""
        each, pairs = kernel_seconds(task, machine), kernel_features(task).kernel.name != PRECOMPUTED
        return _by_passes(self.name, task, machine, each, TILES, pairs=pairs)

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Solution:
        """The maximum over combinations of samples, in a space that grows by a pass at a time."""
        kernel = kernel_features(task).kernel
        if kernel.name == PRECOMPUTED:
            products = precomputed_products(task.data.samples, run, in_memory=False)
        else:
            kernel = settled_kernel(task, run)

            def asked(thin: Array) -> Any:
                return pair_pass(meet_product, KernelRequest(kernel, thin, False), mutual=True, name="kernel")

            products = KernelProducts(run, _diagonal(kernel, run), asked=asked, joined=np.vstack)
        return solution_of(task, kernel, fit_dual(products, data_of(task), task, report))


class StoredSolver(RecomputedSolver):
    """Three passes over the rows, and about ten over the upper triangle of K."""

    name = "stored"

    def misfit(self, task: Task) -> str | None:
        """Where products with a kernel are not enough, or there is no place for it."""
        if kernel_features(task).kernel.name == PRECOMPUTED:
            return "the kernel is at hand"
        place = "it needs a place for the kernel that all workers reach, kernel_store='kernel.zarr'"
        return super().misfit(task) or (None if kernel_features(task).place else place)

    def plan(self, task: Task, machine: Resources) -> Plan:
        """K once, and half of it written, and read in each of about a dozen passes."""
        square = task.data.samples**2 * kernel_features(task).itemsize
        each = square / 2 / STORE_RATE / machine.total_threads
        # A thread holds rows, the next ones, and these as they are stored; those being multiplied in float64.
        reading = 3 * min(STORED_ROWS, square) + 16 * CHUNK * task.data.samples
        plan = _by_passes(self.name, task, machine, each, max(TILES, reading), pairs=False)
        return replace(plan, work=kernel_seconds(task, machine) + plan.work * plan.passes / EXPECTED_PASSES)

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Solution:
        """The maximum over combinations of samples, in a space that grows by a pass over the store at a time."""
        with kernel_features(task).kept() as (sink, stored):
            kernel = settled_kernel(task, run)
            diagonal = _diagonal(kernel, run)
            run(pair_pass(meet_write, WriteRequest(kernel, sink), combine=operator.add, recorded=False, name="kernel"))

            def asked(thin: Array) -> Pass[TriangleRequest, Array]:
                return Pass(block_triangle, TriangleRequest(thin, sink.bounds), name="products")

            products = KernelProducts(stored, diagonal, asked=asked)
            return solution_of(task, kernel, fit_dual(products, data_of(task), task, report))


def kernel_features(task: Task) -> KernelFeatures:
    """How the features of a kernel model are made."""
    assert task.kernel is not None
    return task.kernel


def chosen_rows(samples: int, count: int, random_state: Any) -> Integers:
    """Numbers of some random rows, increasing; all where there are no more."""
    if count >= samples:
        return np.arange(samples)
    return np.sort(np.random.default_rng(random_state).permutation(samples)[:count])


def sample_size(data: DataSize) -> int:
    """How many rows the median heuristic looks at."""
    return max(2, min(SAMPLE, SAMPLE_BYTES * data.samples // data.nbytes))


def settled_kernel(task: Task, run: Run) -> Kernel:
    """The kernel of a task, settled by some rows, after a look at all of them."""
    kernel = kernel_features(task).kernel
    return settled(kernel, survey(task, run, sample_size(task.data)))


def survey(task: Task, run: Run, count: int) -> Features:
    """A look at all rows, which refuses what no model can use, and some of them."""
    chosen = chosen_rows(task.data.samples, count, task.random_state)
    request = SurveyRequest(chosen, task.refuse_zero_rows)
    rows: tuple[Features, ...] = run(Pass(block_survey, request, combine=operator.add, name="survey"))
    return stacked(rows)


def settled(kernel: Kernel, sample: Features) -> Kernel:
    """The kernel with the γ of the median heuristic, where asked for (γ = 0), and with a shift near the mean."""
    gamma = kernel.gamma or median_gamma(kernel.name, sample)
    shift = None
    if kernel.name == "linear":
        dense = isinstance(sample, np.ndarray)
        shift = np.asarray(sample.mean(axis=0, dtype=np.float64)) if dense else far_columns(sample)
    return replace(kernel, gamma=gamma, shift=shift)


def precomputed_products(count: int, run: Run, *, in_memory: bool) -> KernelProducts:
    """Products with a kernel that is given as the data, a pass for each, or after one pass `in_memory`; each
    pass shows whether it is symmetric."""
    probe = np.random.default_rng(0).standard_normal((count, 1))

    def asked(thin: Array) -> Pass[Array, PrecomputedRows]:
        return Pass(block_precomputed, np.hstack([probe, thin]), combine=join_precomputed, name="products")

    def joined(rows: PrecomputedRows) -> Array:
        product = np.vstack(rows.product)
        require_symmetric(product[:, 0], rows.transposed)
        return product[:, 1:]

    first = run(asked(np.eye(count) if in_memory else np.zeros((count, 0))))
    product = joined(first)
    if in_memory:
        return KernelProducts.of_matrix(np.ascontiguousarray(product))
    return KernelProducts(run, np.concatenate(first.diagonal), asked=asked, joined=joined)


def solution_of(task: Task, kernel: Kernel, fitted: DualFit) -> Solution:
    """The solution of a fit by products, with the map that new rows need."""
    combinations, means = fitted.dual.combinations, fitted.means
    offset, middle = means @ combinations, np.full(len(means), 1.0 / len(means))
    rows, dimension = kernel_features(task).rows, kernel_features(task).dimension
    features = KernelMap(kernel, rows, combinations, offset, middle, float(means.mean()), dimension)
    return replace(fitted.solution, features=features)


def _diagonal(kernel: Kernel, run: Run) -> Array:
    return np.concatenate(run(Pass(block_diagonal, kernel, combine=operator.add, name="diagonal")))


def kernel_seconds(task: Task, machine: Resources) -> float:
    """Seconds of K once, over all pairs of blocks, or of reading it where it is given."""
    data, name = task.data, kernel_features(task).kernel.name
    if name == PRECOMPUTED:
        return data.nbytes / STORE_RATE
    pairs = float(data.samples) ** 2 / 2.0
    seconds = pairs / VALUE_RATE
    if name == "laplacian":
        seconds = pairs * data.features / DIFFERENCE_RATE
    elif data.nnz is not None:
        seconds += SKEWNESS * data.nnz**2 / data.features / SPARSE_GRAM_RATE / 2.0
    else:
        seconds += 2.0 * pairs * data.features / GEMM_RATE
    return seconds / machine.total_threads + TASK_SECONDS * min(group_number(data), MOST_STRETCHES) ** 2


def _columns(task: Task) -> int:
    """Combinations of rows that a pass multiplies with K."""
    return fresh_directions(task.specification.n_components) + task.columns


def _rows(task: Task) -> int:
    """Bytes of the rows that the model copies, and of those that the median heuristic looks at: as they come, and side
    by side."""
    kernel = kernel_features(task)
    if kernel.kernel.name == PRECOMPUTED:
        return 0
    return kernel.kept_bytes + 2 * sample_size(task.data) * -(-task.data.nbytes // task.data.samples)


def _by_passes(solver: str, task: Task, machine: Resources, each: float, thread_bytes: int, *, pairs: bool) -> Plan:
    """Products in passes that take `each` seconds beside the products and the reading of the rows, where these meet in
    `pairs`, and `thread_bytes` for each thread."""
    data, columns, threads = task.data, _columns(task), machine.total_threads
    thin = 8 * data.samples * columns
    worker = worker_memory(task, machine, thin, thin) + machine.threads * thread_bytes + paired_memory(data, machine)
    driver = driver_base(task, machine) + 4 * thin * EXPECTED_PASSES + _rows(task)
    plan = placed(solver, task, machine, worker, driver, pairs=pairs)
    each += 2.0 * data.samples**2 * columns / GEMM_RATE / threads
    if pairs and not plan.cached:
        each += group_number(data) * data.nbytes / DECODE_RATE / threads
    return _of_rows(replace(plan, passes=1 + EXPECTED_PASSES, work=EXPECTED_PASSES * each, moved=2 * thin))


def _of_rows(plan: Plan) -> Plan:
    """With what all fits by K have in common: blocks meet blocks, and the space is one of combinations of rows."""
    task = plan.task
    rows = replace(task, data=replace(task.data, features=task.data.samples))
    return replace(
        plan,
        max_rank=subspace(rows, plan.resources)[0],
        tasks_per_pass=group_number(task.data) ** 2,
        reads=plan.passes,
        solving=solving_seconds(task),
    )
