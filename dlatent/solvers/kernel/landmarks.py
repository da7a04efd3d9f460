"""By the moments of coordinates in the span of the features of landmarks (Nyström): two passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dlatent.arrays import Array
from dlatent.errors import DataError
from dlatent.gaussian.gram import span_solution
from dlatent.gaussian.kernel import KernelMap, LandmarkRequest, block_landmarks
from dlatent.gaussian.moments import CHUNK_ROWS, MomentRequest, Moments, centred
from dlatent.gaussian.specification import Specification
from dlatent.operators.kernels import LandmarkMap
from dlatent.passes import Pass, Resources, Run
from dlatent.solvers.diagnostics import make_solution
from dlatent.solvers.gram import tightened
from dlatent.solvers.kernel.solver import (
    MemorySolver,
    RecomputedSolver,
    StoredSolver,
    kernel_features,
    kernel_seconds,
    sample_size,
    settled,
    survey,
)
from dlatent.solvers.moments.maximum import gram_products
from dlatent.solvers.moments.solver import CovarianceSolver
from dlatent.solvers.moments.subspace import search
from dlatent.solvers.plan import Plan
from dlatent.solvers.solver import Report, Solution, Solver, by_name
from dlatent.solvers.task import Task


class LandmarksSolver(Solver):
    """Two passes, m² numbers for m landmarks."""

    name = "landmarks"
    serves = frozenset({"kernel", "landmarks", "targets"})
    needs, lacking = frozenset({"landmarks"}), "no landmarks are asked for"

    def plan(self, task: Task, machine: Resources) -> Plan:
        """A look at the rows, and one pass for the moments of their coordinates."""
        data, count = task.data, kernel_features(task).landmarks
        tiles = 32 * CHUNK_ROWS * count  # of the kernel, beside the block
        inside = replace(data, features=count, decoding=data.decoding + tiles, itemsize=8, nnz=None)
        plan = CovarianceSolver().plan(replace(task, data=inside), machine)
        among = kernel_seconds(replace(task, data=replace(data, samples=count)), machine)
        # The landmarks are with the driver, as they come and side by side, and with every worker.
        rows = count * -(-data.nbytes // data.samples)
        driver = plan.driver_memory + 2 * rows
        return replace(
            plan,
            solver=self.name,
            task=task,
            worker_memory=plan.worker_memory + rows if machine.kind == "cluster" else driver,
            driver_memory=driver,
            passes=3,
            reads=3,
            work=plan.work + among * (data.samples / count),
        )

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Solution:
        """The maximum with loadings and mean in the span of the landmarks.

        Law: the likelihood is that of the whole model of M features.
        """
        inside, dimension = _landmarks(task, run)
        width, specification = inside.width, task.specification
        if specification.n_components >= width:  # chosen below
            specification = replace(
                specification.resized((width - 1, *specification.sizes[1:])), n_components=width - 1
            )
            task = replace(task, specification=specification)
        wide = specification.resized((width, *specification.sizes[1:]))
        moments, error = _moments(inside, dimension, wide, run)
        middle, spare = centred(moments, wide.sizes, wide.patterns), dimension - width
        products, zero = gram_products(middle, wide), np.zeros(sum(wide.sizes))
        tight = replace(tightened(task), specification=wide)
        state, converged = search(products, tight, zero, report, spare=spare)
        best = state.space.lifted(state.solution)
        # About their mean in the span of the landmarks, as a fit by the whole kernel has its coordinates.
        mean = middle.shift + best.mean
        about = np.concatenate([np.zeros(width), mean[width:]])
        spanned = span_solution(inside.root, best._replace(mean=about), state.specification)
        floored = state.specification.resized((specification.n_components, *specification.sizes[1:]))
        variances, history = state.variances(), tuple(state.history)
        counts = [part.samples for part in moments.patterns]
        solution = make_solution(
            spanned.parameters, floored, history, task, variances, counts, converged=converged, sizes=state.sizes()
        )
        mean, rows = mean[:width], kernel_features(task).rows_in_memory(inside.landmarks)
        offset, length = spanned.span.T @ mean, float(mean @ mean)
        weights = spanned.combinations, offset, inside.root @ mean
        features = KernelMap(inside.kernel, rows, *weights, length, dimension, error)
        return replace(solution, parameters=spanned.parameters, features=features)


KERNEL_SOLVERS = by_name(MemorySolver, RecomputedSolver, StoredSolver, LandmarksSolver)


def _landmarks(task: Task, run: Run) -> tuple[LandmarkMap, int]:
    """The map to the span of some random rows, and the number of features."""
    rows, kernel = survey(task, run, kernel_features(task).landmarks), kernel_features(task).kernel
    span = LandmarkMap.of(settled(kernel, rows[:: -(-rows.shape[0] // sample_size(task.data))]), rows)
    if span.width <= (1 if task.rule == "auto" else task.specification.n_components):
        raise DataError(
            f"n_components is {task.specification.n_components}, but the landmarks span {span.width} dimensions; take "
            "more landmarks, or fewer components"
        )
    dimension = kernel_features(task).dimension
    if dimension <= span.width and span.kernel.dimension(rows.shape[1]) is None:
        dimension = span.width + 1  # something is outside the span of the landmarks, and has its share of the noise
    return span, dimension


def _moments(inside: LandmarkMap, dimension: int, wide: Specification, run: Run) -> tuple[Moments, float]:
    """The moments of all coordinates, and the part of Σ k(x, x) that is outside the span of the landmarks."""
    width, views = inside.width, len(wide.views)
    request = LandmarkRequest(inside, MomentRequest(np.zeros(width), wide.patterns, False))
    patterns, energy = run(Pass(block_landmarks, request, name="moments"))
    shown = sum(float(np.trace(part.gram[:width, :width])) for part in patterns)
    spare_size, spare_energy = np.zeros(views), np.zeros(views)
    spare_size[0], spare_energy[0] = dimension - width, max(energy - shown, 0.0)
    moments = Moments(patterns, np.zeros(sum(wide.sizes)), spare_size, spare_energy)
    return moments, max(1.0 - shown / energy, 0.0)
