"""EM: its start, its history and its end, on moments or by a pass over the data for each iteration.

As textbooks have it, the reference; or extrapolated, for views with too many features for their Gram matrices whose
features have noise variances of their own, which no subspace can stand for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from dlatent.arrays import Array
from dlatent.gaussian.expectation import ExpectationRequest, Latent, block_expectation
from dlatent.gaussian.maximisation import em_step, maximise
from dlatent.gaussian.moments import MomentRequest, Moments, view_variances
from dlatent.gaussian.products import FeatureSums, block_feature_sums
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.passes import Pass, Run
from dlatent.solvers.ascent import accelerate
from dlatent.solvers.diagnostics import make_solution, noise_floors
from dlatent.solvers.solver import History, Report, Solution
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
    # The patterns as numbers of noise groups instead of views.
    at = [range(each.start, each.stop) for each in specification.noise_slices]
    patterns = tuple(tuple(group for view in pattern for group in at[view]) for pattern in specification.patterns)
    variances = view_variances(middle, specification.group_sizes, patterns)
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


def em_on_moments(middle: Moments, task: Task, report: Report | None, *, start: Parameters | None = None) -> Solution:
    """Plain EM (SPPCA, Algorithms 1 and 2) on moments about the mean: the iterations do not touch the data."""
    floored, variances = with_floors(middle, task)
    start = em_start(floored, variances, task.random_state) if start is None else start
    history = History(report)
    last, _, converged = textbook_em(lambda at: em_step(at, middle, floored, expand=False), start, task, history)
    counts = [part.samples for part in middle.patterns]
    return make_solution(last.moved(middle.shift), floored, history, task, variances, counts, converged=converged)


def em_on_data(run: Run, task: Task, shift: Array, report: Report | None) -> Solution:
    """EM with one pass over the data an iteration, after one for means and variances: plain EM (SPPCA, Algorithms 1 and
    2), the reference; or PX-EM with Anderson acceleration.  `shift` is that of the stacked features."""
    specification = task.specification
    request = MomentRequest(shift, specification.patterns, task.refuse_zero_rows, task.arrangement)
    sums: tuple[FeatureSums, ...] = run(Pass(block_feature_sums, request, name="sums"))
    seen, total, energy = np.zeros((3, sum(specification.sizes)))
    for pattern, part in zip(specification.patterns, sums, strict=True):
        at = specification.features_of(pattern)
        seen[at] += part.samples
        total[at] += part.total
        energy[at] += part.energy
    offset = total / seen
    variances = specification.per_group(energy - seen * offset**2) / specification.per_group(seen)
    floored = specification.with_floors(noise_floors(task, variances, shift + offset))
    start = em_start(floored, variances, task.random_state)._replace(mean=offset)
    history = History(report)

    def step(parameters: Parameters) -> tuple[Parameters, float]:
        request = ExpectationRequest(parameters, floored, shift, task.arrangement)
        latent: tuple[Latent, ...] = run(Pass(block_expectation, request, name="expectation"))
        image = maximise(latent, floored, expand=not task.textbook)
        return image, sum(part.log_likelihood for part in latent)

    if task.textbook:
        last, _, converged = textbook_em(step, start, task, history)
    else:
        last, converged = _accelerated(step, start, variances, floored, task, history)
    counts = [part.samples for part in sums]
    return make_solution(last.moved(shift), floored, history, task, variances, counts, converged=converged)


def _accelerated(
    step: Callable[[Parameters], tuple[Parameters, float]],
    start: Parameters,
    variances: Array,
    specification: Specification,
    task: Task,
    history: History,
) -> tuple[Parameters, bool]:
    """Where Anderson acceleration of EM ends, in units in which each feature has variance 1; the likelihood never
    falls."""
    # Constant features, where they are kept, have the unit of their floor.
    spread = np.maximum(variances, specification.floors)
    unit = np.sqrt(specification.per_feature(spread))
    of_group = unit[specification.group_starts]

    def scaled(point: Parameters) -> Parameters:
        return Parameters(point.loadings / unit[:, None], point.mean / unit, point.noise_variance / of_group**2)

    def scaled_step(point: Parameters) -> tuple[Parameters, float]:
        image, value = step(point.rescaled(unit, of_group))
        return scaled(image), value

    def steer(point: Parameters, candidate: Parameters, image: Parameters, value: float) -> Parameters:
        history.add(value)
        return candidate

    end = accelerate(
        scaled_step,
        scaled(start._replace(noise_variance=START_NOISE * spread)),
        tolerance=task.tol,
        patience=CALM,
        max_evaluations=task.max_iter,
        project=lambda point: point.at_least(specification.floors / of_group**2),
        steer=steer,
    )
    history.end(end.value)
    return end.point.rescaled(unit, of_group), end.converged
