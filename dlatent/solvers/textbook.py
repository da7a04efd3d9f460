"""EM as textbooks have it: its start, its history and its end, on moments or over the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from dlatent.arrays import Array
from dlatent.gaussian.maximisation import em_step
from dlatent.gaussian.moments import Moments, centred, view_variances
from dlatent.gaussian.parameters import Parameters
from dlatent.gaussian.specification import Specification
from dlatent.solvers.diagnostics import make_solution, noise_floors, require_variation
from dlatent.solvers.solution import History, Options, Report, Solution

T = TypeVar("T")


def stacked_shift(shift: Array, specification: Specification) -> Array:
    """The shift of all stacked features: that of targets is zero."""
    return np.concatenate([shift, np.zeros(sum(specification.sizes) - len(shift))])


def with_floors(middle: Moments, specification: Specification, options: Options) -> tuple[Specification, Array]:
    """The model with its noise floors, and the mean variance per feature of each noise group, from moments about the
    mean of all features."""
    groups = len(specification.group_sizes)
    if groups != len(specification.views):
        middle = middle._replace(spare_size=np.zeros(groups), spare_energy=np.zeros(groups))
    variances = view_variances(middle, specification.group_sizes, specification.group_patterns)
    require_variation(variances, specification)
    return specification.with_floors(noise_floors(specification, variances, middle.shift, options)), variances


def em_start(specification: Specification, variances: Array, options: Options) -> Parameters:
    """Random loadings of the scale of the data, as textbooks start EM."""
    rng = np.random.default_rng(options.random_state)
    scale = np.sqrt(specification.per_feature(variances))
    loadings = rng.standard_normal((sum(specification.sizes), specification.n_components)) * scale[:, None]
    return Parameters(
        loadings / np.sqrt(specification.n_components), np.zeros(len(loadings)), np.maximum(variances, 1e-300)
    )


def textbook_em(
    step: Callable[[T], tuple[T, float]],
    start: T,
    options: Options,
    history: History,
    enough: Callable[[], bool] = lambda: False,
) -> tuple[T, float, bool]:
    """The loop of every textbook EM: `step`, an E-step and an M-step, gives the next parameters, and the log-likelihood
    at those before them.

    Returns: the last parameters whose log-likelihood is known, that, and whether the tolerance was met or there was
    `enough` of it.
    """
    parameters, converged = start, False
    while not converged and len(history) < options.max_iterations:
        before = parameters
        parameters, value = step(before)
        history.add(value)
        converged = enough() or history.settled(options.tolerance)
    return before, value, converged


def em_on_moments(
    moments: Moments,
    specification: Specification,
    options: Options,
    report: Report | None,
    *,
    start: Parameters | None = None,
) -> Solution:
    """Plain EM (SPPCA, Algorithms 1 and 2) on moments: the iterations do not touch the data."""
    middle = centred(moments, specification.sizes, specification.patterns)
    floored, variances = with_floors(middle, specification, options)
    begun = em_start(floored, variances, options) if start is None else start
    history = History(report)
    last, _, converged = textbook_em(lambda at: em_step(at, middle, floored, expand=False), begun, options, history)
    final = last.moved(middle.shift)
    return make_solution(final, floored, history, options, variances, moments, converged=converged)
