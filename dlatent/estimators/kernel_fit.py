"""A fit by a kernel, from the first look at the rows to the map that new rows need."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dlatent.arrays import Array, DataSource, Features, Integers
from dlatent.engine.connect import connect
from dlatent.engine.session import Session
from dlatent.estimators.kernel_map import KernelMap
from dlatent.fitting.gram import KernelProducts, fit_dual, fit_landmarks, kernel_tiles
from dlatent.fitting.outcome import Options, Outcome, Report
from dlatent.fitting.plan import Plan
from dlatent.linear_gaussian.gram import dual_data
from dlatent.linear_gaussian.kernel_passes import (
    KernelRequest,
    SurveyRequest,
    TriangleRequest,
    WriteRequest,
    block_diagonal,
    block_given,
    block_survey,
    block_triangle,
    join_given,
    meet_product,
    meet_write,
    require_symmetric,
    stacked,
)
from dlatent.linear_gaussian.specification import Specification
from dlatent.operators.kernels import Kernel, LandmarkMap, median_gamma
from dlatent.passes import Pass, pair_pass
from dlatent.stores.atomic import require_writable
from dlatent.stores.kernel_tiles import TileSink, open_tiles
from dlatent.stores.memory import held

SAMPLE = 500
"""Rows whose distances give the median heuristic its median."""


@dataclass(frozen=True)
class KernelTask:
    """Everything that a fit by a kernel needs: the session over the data, targets (N, L) or None, model, plan and
    options."""

    session: Session
    targets: Array | None
    specification: Specification
    plan: Plan
    options: Options
    dimension: Callable[[Kernel], int]
    textbook: bool
    client: Any
    store: str | None
    store_dtype: str
    report: Report | None

    @property
    def source(self) -> DataSource:
        """The data."""
        return self.session.source

    @property
    def samples(self) -> int:
        """Number of samples N."""
        return self.source.shape[0]


def chosen_rows(samples: int, count: int, random_state: Any) -> Integers:
    """Numbers of some random rows, increasing; all where there are no more."""
    if count >= samples:
        return np.arange(samples)
    return np.sort(np.random.default_rng(random_state).permutation(samples)[:count])


def survey(task: KernelTask, count: int) -> Features:
    """A look at all rows, which refuses what no model can use, and some of them."""
    chosen = chosen_rows(task.samples, count, task.options.random_state)
    request = SurveyRequest(chosen, task.options.refuse_zero_rows)
    return stacked(task.session.run(Pass(block_survey, request, combine=operator.add, name="survey")))


def fitted_kernel(task: KernelTask, kernel: Kernel) -> tuple[Outcome, KernelMap]:
    """Fit by the kernel between all samples."""
    if task.plan.solver == "stored":
        require_writable(task.store or "", overwrite=False, how="remove it")
    session = task.session
    own = resolved(kernel, survey(task, SAMPLE))
    if task.plan.solver == "memory":
        return _finished(task, own, KernelProducts.of_tiles(kernel_tiles(session.run, own, task.options)))
    diagonal = np.concatenate(session.run(Pass(block_diagonal, own, combine=operator.add, name="diagonal")))
    if task.plan.solver == "recomputed":

        def times(thin: Array) -> Array:
            request = KernelRequest(own, thin, False)
            return np.vstack(session.run(pair_pass(meet_product, request, mutual=True, name="kernel")))

        return _finished(task, own, KernelProducts(times, diagonal))
    sink = TileSink.create(task.store or "", _edges(task), dtype=task.store_dtype)
    try:
        session.run(pair_pass(meet_write, WriteRequest(own, sink), combine=operator.add, name="kernel"))
    except BaseException:
        sink.abort()
        raise
    return _stored(task, own, sink, diagonal)


def _edges(task: KernelTask) -> tuple[int, ...]:
    return (*(block.start for block in task.source.blocks), task.samples)


def resolved(kernel: Kernel, sample: Features) -> Kernel:
    """The kernel with the γ of the median heuristic, where asked for (γ = 0), and with a shift near the mean."""
    gamma = kernel.gamma or median_gamma(kernel.name, sample)
    shift = None
    if kernel.name == "linear" and isinstance(sample, np.ndarray):
        shift = np.asarray(sample.mean(axis=0, dtype=np.float64))
    return replace(kernel, gamma=gamma, shift=shift)


def _stored(task: KernelTask, kernel: Kernel, sink: TileSink, diagonal: Array) -> tuple[Outcome, KernelMap]:
    """Fit by the upper triangle of K that was kept, and remove it."""
    own, cache = task.session, task.plan.cache_bytes
    hooks: dict[str, Any] = {"on_pass": own.on_pass, "on_progress": own.on_progress}
    try:
        with connect(open_tiles(sink.location), client=task.client, cache_bytes=cache, **hooks) as session:

            def times(thin: Array) -> Array:
                return session.run(Pass(block_triangle, TriangleRequest(thin, sink.bounds), name="products"))

            try:
                return _finished(task, kernel, KernelProducts(times, diagonal))
            finally:
                own.passes.extend(session.passes)
    finally:
        sink.abort()


def fitted_given(task: KernelTask) -> tuple[Outcome, KernelMap]:
    """Fit by a kernel that is given as the data."""
    kernel, count = Kernel("precomputed"), task.samples
    probe = np.random.default_rng(0).standard_normal((count, 1))

    def rows_of(thin: Array) -> Any:
        request = np.hstack([probe, thin])
        return task.session.run(Pass(block_given, request, combine=join_given, name="products"))

    thin = np.eye(count) if task.plan.solver == "memory" else np.zeros((count, 0))
    first = rows_of(thin)
    product = np.vstack(first.product)
    require_symmetric(product[:, 0], first.transposed)
    if task.plan.solver == "memory":
        products = KernelProducts.of_matrix(np.ascontiguousarray(product[:, 1:]))
    else:
        products = KernelProducts(lambda some: np.vstack(rows_of(some).product)[:, 1:], np.concatenate(first.diagonal))
    return _finished(task, kernel, products)


def _finished(task: KernelTask, kernel: Kernel, products: KernelProducts) -> tuple[Outcome, KernelMap]:
    count, dimension = task.samples, task.dimension(kernel)
    data = dual_data(task.targets, task.specification, count, dimension)
    fitted = fit_dual(products, data, task.specification, task.options, textbook=task.textbook, report=task.report)
    combinations = fitted.solution.combinations
    rows = () if kernel.name == "precomputed" else task.source.blocks
    offset, middle = fitted.means @ combinations, np.full(count, 1.0 / count)
    return fitted.outcome, KernelMap(kernel, rows, combinations, offset, middle, float(fitted.means.mean()), dimension)


def fitted_landmarks(task: KernelTask, kernel: Kernel, count: int) -> tuple[Outcome, KernelMap]:
    """Fit inside the span of the features of some random rows (Nyström)."""
    landmarks = survey(task, count)
    own = resolved(kernel, landmarks[:: -(-landmarks.shape[0] // SAMPLE)])
    inside = LandmarkMap.of(own, landmarks)
    dimension = task.dimension(inside.kernel)
    fitted = fit_landmarks(task.session.run, inside, dimension, task.specification, task.options, task.report)
    solution, mean = fitted.solution, fitted.mean
    offset, middle = solution.span.T @ mean, inside.root @ mean
    rows, length, size = held(landmarks), float(mean @ mean), fitted.dimension
    found = KernelMap(inside.kernel, rows, solution.combinations, offset, middle, length, size, fitted.error)
    return fitted.outcome, found
