"""By inner products of samples: two passes, where there are fewer samples than features."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dlatent.arrays import Array
from dlatent.fitting.costs import (
    DECODE_RATE,
    DUAL_PASSES,
    EXPECTED_PASSES,
    FULL_EIGEN,
    GEMM_RATE,
    SKEWNESS,
    SPARSE_GRAM_RATE,
    TASK_SECONDS,
    cache_room,
    driver_base,
    group_number,
    paired_memory,
    pass_seconds,
    placed,
    shares_met,
    solving_seconds,
    stays,
    tile_visits,
    worker_memory,
)
from dlatent.fitting.gram import KernelProducts, data_of, fit_dual, kernel_tiles
from dlatent.fitting.outcome import Outcome, Report
from dlatent.fitting.plan import Cost, Machine, Plan, Problem
from dlatent.fitting.route import Route
from dlatent.fitting.subspace import extra_directions
from dlatent.fitting.task import Task
from dlatent.linear_gaussian.canonical import canonical
from dlatent.linear_gaussian.dimension import chosen_components
from dlatent.linear_gaussian.kernel_passes import LiftRequest, block_lift
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.operators.eigen import top_eigenvalues
from dlatent.operators.kernels import Kernel, centred_kernel
from dlatent.passes import Pass, Run


class GramRoute(Route):
    """Two passes, N² numbers."""

    name = "gram"
    serves = frozenset({"targets", "prior", "rule"})

    def misfit(self, problem: Problem) -> str | None:
        """Where rows are too many."""
        return None if problem.samples < problem.features else "there are no fewer samples than features"

    def cost(self, problem: Problem, machine: Machine) -> Cost:
        """One pass for the inner products of all pairs of samples, one for the loadings; the driver holds N² numbers,
        and where they are few, or for textbook EM, all combinations of the samples."""
        count, k = problem.samples, problem.n_components
        columns = k + extra_directions(k) + problem.targets
        groups = group_number(problem)
        flops, rate = float(count) ** 2 * problem.features, GEMM_RATE
        if problem.nnz is not None:
            flops, rate = SKEWNESS * problem.nnz**2 / max(problem.features, 1) / 2.0, SPARSE_GRAM_RATE
        whole = count <= FULL_EIGEN or problem.rule is not None
        if not problem.targets and whole:
            driver = 4.0 * count**3 / GEMM_RATE
        else:
            driver = 4.0 * count**2 * columns * EXPECTED_PASSES / GEMM_RATE
        square = 8 * count**2
        held = worker_memory(problem, machine, 8 * problem.features * (k + 1), 8 * count * (k + 1))
        # A worker holds its tiles of half of the products until the driver has them.
        held += paired_memory(problem, machine, 2) + square // (2 * machine.workers)
        own = driver_base(problem, machine) + (8 if problem.em_passes or whole else 3) * square
        cache = cache_room(problem, machine, held, own)
        threads = machine.workers * machine.threads
        visits = tile_visits(problem, machine, cache)
        reading = visits * problem.nbytes / DECODE_RATE
        seconds = driver + (flops / rate + reading) / threads + TASK_SECONDS * groups * shares_met(machine)
        seconds += pass_seconds(
            problem, machine, 2.0 * (problem.nnz or count * problem.features) * k, rate, decode=False
        )
        reads = visits + (not stays(problem, machine, cache))
        cost = placed("gram", DUAL_PASSES, seconds, cache, held + cache, own, machine)
        return replace(cost, reads=reads, gathered=square // 2, solving=solving_seconds(problem))

    def fit(self, task: Task, plan: Plan, shift: Array, run: Run, report: Report | None = None) -> Outcome:
        """The maximum over combinations of samples, which the last pass turns into loadings (SPPCA, Algorithm 3).

        Law: the result is that of the other routes, up to rounding.
        """
        options, specification = task.settled_options(plan), task.specification
        tiles = kernel_tiles(run, Kernel("linear", shift=shift), options)
        if task.problem.rule is not None:
            count, most = task.problem.samples, specification.n_components
            values = top_eigenvalues(centred_kernel(tiles.whole()) / count, count)
            floor = options.floor_parts[0] * float(values.sum()) / task.problem.features
            chosen = chosen_components(task.problem.rule, values, count, most=most, floor=floor)
            specification = replace(specification, n_components=chosen)
        k, data = specification.n_components, data_of(task)
        inside = specification.resized((k, *specification.sizes[1:]))
        fitted = fit_dual(KernelProducts.of_tiles(tiles), data, inside, options, textbook=task.textbook, report=report)
        (combinations, own, _), found = fitted.solution, fitted.outcome
        lifted = run(Pass(block_lift, LiftRequest(combinations, shift), name="loadings"))
        directions, offset = lifted[:, :k], lifted[:, k]
        whole = Parameters(
            np.vstack([directions @ own.loadings[:k], own.loadings[k:]]),
            np.concatenate([shift + offset + directions @ own.mean[:k], own.mean[k:]]),
            own.noise_variance,
        )
        floored = specification.with_floors(found.specification.floors)
        return replace(found, parameters=canonical(whole, floored), specification=floored)
