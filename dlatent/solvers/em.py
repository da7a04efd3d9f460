"""EM: its start, its history and its end, on moments or by a pass over the data for each iteration.

As textbooks have it, the reference; or extrapolated, for views with too many features for their Gram matrices whose
features have noise variances of their own, which no subspace can stand for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from dlatent.arrays import Array
from dlatent.gaussian.expectation import ExpectationRequest, Latent, block_expectation
from dlatent.gaussian.maximisation import em_step, maximise
from dlatent.gaussian.moments import MomentRequest, Moments, centred, counts_alone, view_variances
from dlatent.gaussian.parameters import Parameters
from dlatent.gaussian.products import FeatureSums, block_feature_sums
from dlatent.gaussian.specification import Specification
from dlatent.passes import Pass, Run
from dlatent.solvers.ascent import accelerate
from dlatent.solvers.diagnostics import make_solution, noise_floors, require_variation
from dlatent.solvers.solution import History, Report, Solution
from dlatent.solvers.task import Task

START_NOISE = 0.5
"""Part of the variance of a feature that an extrapolated fit leaves to the noise at its start."""
CALM = 2
"""Iterations in a row whose gain must be below the tolerance before an extrapolated fit ends."""

T = TypeVar("T")


def stacked_shift(shift: Array, specification: Specification) -> Array:
    """The shift of all stacked features: that of targets is zero."""
    return np.concatenate([shift, np.zeros(sum(specification.sizes) - len(shift))])


def with_floors(middle: Moments, task: Task) -> tuple[Specification, Array]:
    """The model with its noise floors, and the mean variance per feature of each noise group, from moments about the
    mean of all features."""
    specification = task.specification
    groups = len(specification.group_sizes)
    if groups != len(specification.views):
        middle = middle._replace(spare_size=np.zeros(groups), spare_energy=np.zeros(groups))
    variances = view_variances(middle, specification.group_sizes, specification.group_patterns)
    require_variation(variances, specification)
    return specification.with_floors(noise_floors(task, variances, middle.shift)), variances


def em_start(specification: Specification, variances: Array, random_state: Any) -> Parameters:
    """Random loadings of the scale of the data, as textbooks start EM."""
    rng = np.random.default_rng(random_state)
    scale = np.sqrt(specification.per_feature(variances))
    loadings = rng.standard_normal((sum(specification.sizes), specification.n_components)) * scale[:, None]
    return Parameters(
        loadings / np.sqrt(specification.n_components), np.zeros(len(loadings)), np.maximum(variances, 1e-300)
    )


def textbook_em(
    step: Callable[[T], tuple[T, float]],
    start: T,
    task: Task,
    history: History,
    enough: Callable[[], bool] = lambda: False,
) -> tuple[T, float, bool]:
    """The loop of every textbook EM: `step`, an E-step and an M-step, gives the next parameters, and the log-likelihood
    at those before them.

    Returns: the last parameters whose log-likelihood is known, that, and whether the tolerance was met or there was
    `enough` of it.
    """
    parameters, converged = start, False
    while not converged and len(history) < task.max_iter:
        before = parameters
        parameters, value = step(before)
        history.add(value)
        converged = enough() or history.settled(task.tol)
    return before, value, converged


def em_on_moments(moments: Moments, task: Task, report: Report | None, *, start: Parameters | None = None) -> Solution:
    """Plain EM (SPPCA, Algorithms 1 and 2) on moments: the iterations do not touch the data."""
    middle = centred(moments, task.specification.sizes, task.specification.patterns)
    floored, variances = with_floors(middle, task)
    start = em_start(floored, variances, task.random_state) if start is None else start
    history = History(report)
    last, _, converged = textbook_em(lambda at: em_step(at, middle, floored, expand=False), start, task, history)
    return make_solution(last.moved(middle.shift), floored, history, task, variances, moments, converged=converged)


@dataclass(frozen=True)
class EMPasses:
    """EM over the data: a pass, the task with its noise floors, the shift, mean variances and means (about the shift)
    of the noise groups, the counts, and the history."""

    run: Run
    task: Task
    shift: Array
    variances: Array
    offset: Array
    counts: Moments
    history: History

    def expect(self, parameters: Parameters) -> tuple[tuple[Latent, ...], float]:
        """One pass: the statistics at these parameters, and their log-likelihood."""
        request = ExpectationRequest(parameters, self.task.specification, self.shift, self.task.arrangement)
        latent: tuple[Latent, ...] = self.run(Pass(block_expectation, request, name="expectation"))
        return latent, sum(part.log_likelihood for part in latent)

    def concluded(self, parameters: Parameters, *, converged: bool) -> Solution:
        """The solution at parameters about the shift."""
        final, task = parameters.moved(self.shift), self.task
        return make_solution(
            final, task.specification, self.history, task, self.variances, self.counts, converged=converged
        )


def begin(run: Run, task: Task, shift: Array, report: Report | None) -> EMPasses:
    """A pass for means and variances; `shift` is that of the stacked features."""
    specification = task.specification
    request = MomentRequest(shift, specification.patterns, task.refuse_zero_rows, task.arrangement)
    sums: tuple[FeatureSums, ...] = run(Pass(block_feature_sums, request, name="sums"))
    width = sum(specification.sizes)
    counts, total, energy = np.zeros(width), np.zeros(width), np.zeros(width)
    for pattern, part in zip(specification.patterns, sums, strict=True):
        at = specification.features_of(pattern)
        counts[at] += part.samples
        total[at] += part.total
        energy[at] += part.energy
    offset = total / counts
    energy -= counts * offset**2
    starts = [at.start for at in specification.group_slices]
    variances = np.add.reduceat(energy, starts) / np.add.reduceat(counts, starts)
    require_variation(variances, specification)
    floored = specification.with_floors(noise_floors(task, variances, shift + offset))
    samples = counts_alone((part.samples for part in sums), len(specification.views))
    return EMPasses(run, replace(task, specification=floored), shift, variances, offset, samples, History(report))


def em_on_data(em: EMPasses) -> Solution:
    """Plain EM (SPPCA, Algorithms 1 and 2) with one pass over the data per iteration: the reference, not the fast
    way."""
    task = em.task

    def step(parameters: Parameters) -> tuple[Parameters, float]:
        latent, value = em.expect(parameters)
        return maximise(latent, task.specification, expand=False), value

    start = em_start(task.specification, em.variances, task.random_state)._replace(mean=em.offset)
    last, _, converged = textbook_em(step, start, task, em.history)
    return em.concluded(last, converged=converged)


def accelerated_em(em: EMPasses) -> Solution:
    """PX-EM with Anderson acceleration, in units in which each feature has variance 1; the likelihood never falls."""
    task, specification = em.task, em.task.specification
    # Constant features, where they are kept, have the unit of their floor.
    spread = np.maximum(em.variances, specification.floors)
    unit = np.sqrt(specification.per_feature(spread))
    first = [at.start for at in specification.group_slices]

    def restored(point: Parameters) -> Parameters:
        return point.rescaled(unit, unit[first])

    def scaled(point: Parameters) -> Parameters:
        return Parameters(point.loadings / unit[:, None], point.mean / unit, point.noise_variance / unit[first] ** 2)

    def step(point: Parameters) -> tuple[Parameters, float]:
        latent, value = em.expect(restored(point))
        return scaled(maximise(latent, specification)), value

    def steer(point: Parameters, candidate: Parameters, image: Parameters, value: float) -> Parameters | None:
        em.history.add(value)
        return None if em.history.settled(task.tol, CALM) else candidate

    def admissible(point: Parameters) -> Parameters:
        return point.at_least(specification.floors / unit[first] ** 2)

    start = em_start(specification, em.variances, task.random_state)
    start = start._replace(mean=em.offset, noise_variance=START_NOISE * spread)
    end = accelerate(step, scaled(start), tolerance=0.0, max_evaluations=task.max_iter, project=admissible, steer=steer)
    em.history.end(end.value)
    return em.concluded(restored(end.point), converged=end.converged)
