"""The end of a fit: the solution in canonical form, with one sentence for each thing that a user should know, and the
floors that some of it is about.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array, Integers
from dlatent.errors import DataError, number_of
from dlatent.gaussian.canonical import canonical
from dlatent.gaussian.dimension import LOST, ROUNDING, noise_rounding
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.solvers.solver import Iteration, Solution
from dlatent.solvers.task import DOUBLE, Task

CHECK = 1e-7
"""Relative difference of two evaluations of the likelihood that rounding cannot explain."""
FALL = 1e-7
"""Relative fall of the log-likelihood that rounding cannot explain, float32 data included."""

NOTHING = 1e-7
"""Length of a component, as a part of the longest one's, that is zero up to rounding: the root of a difference."""

SHOWN = 5
"""Features that are named."""
CONSTANT = 1e-12
"""Spread, as a part of the mean, below which a feature is constant up to rounding."""

EXAGGERATED = 1.3
"""A view's variance under the model, relative to that of its data, above which the model makes too much of the view."""

ZERO_NOISE = 1e-8
"""Stands for no noise, as a fraction of the mean variance of all features."""

FEATURE_ROUNDING = math.sqrt(ROUNDING)
"""Part of a feature's variance below which a noise variance of its own costs the log-likelihood more than half of its
digits, and more than `FALL` allows for: squares of the data are divided by it."""


def _parts(specification: Specification, task: Task) -> tuple[Array, Array]:
    """The parts of their mean variances that noise variances (groups,) are kept above: what was asked for, and what is
    rounding."""
    asked = np.repeat(task.floor_parts, [view.groups for view in specification.views])
    rounding = noise_rounding(np.array(specification.group_sizes), specification.n_components)
    return asked, np.where(specification.shared, rounding, FEATURE_ROUNDING)


def noise_floors(task: Task, variances: Array, mean: Array) -> Array:
    """The floors of all noise groups (groups,): the parts of their mean variances that were asked for, and no less than
    rounding.

    The noise variance of a constant feature would be 0 and the likelihood unbounded: its floor is that of a feature of
    mean variance.  Fixed noise is what stands for none.
    Errors: DataError where the data are constant.
    """
    specification = task.specification
    _require_variation(variances, task)
    if specification.fixed:
        sizes = np.array(specification.sizes)
        return np.full(len(variances), ZERO_NOISE * float(sizes @ variances) / sizes.sum())
    parts, constant = np.maximum(*_parts(specification, task)), _constant(specification, variances, mean)
    return np.asarray(parts * np.where(constant, variances.mean(), variances))


def _require_variation(variances: Array, task: Task) -> None:
    """Refuse constant data: without variance there is no likelihood to maximise.

    Views must vary that a subspace may see, and those of factor analysis.
    """
    views = task.specification.views
    varying = [number for number, view in enumerate(views) if number in task.growing or not view.shared]
    for number in varying:
        largest = variances[task.specification.noise_slices[number]].max()
        name = "" if len(varying) == 1 else f" of the view {views[number].name!r}"
        if not np.isfinite(largest):
            raise DataError(f"the squares of the data{name} are too large for double precision; divide them by a unit")
        if not largest > 0.0:
            raise DataError(
                f"all samples{name} are equal, or differ by so little that its square is zero: the data{name} are "
                "constant and have no principal components"
            )


def _constant(specification: Specification, variances: Array, mean: Array) -> npt.NDArray[np.bool_]:
    """Which noise groups (groups,) are single features that do not vary."""
    constant = np.zeros(len(variances), dtype=bool)
    for view, features, noise in zip(
        specification.views, specification.slices, specification.noise_slices, strict=True
    ):
        if not view.shared:
            constant[noise] = variances[noise] <= (CONSTANT * mean[features]) ** 2
    return constant


def feature_name(specification: Specification, number: int) -> str:
    """A feature by its number in its view."""
    views = zip(specification.views, specification.slices, strict=True)
    view, at = next((view, at) for view, at in views if number < at.stop)
    of_view = "" if len(specification.views) == 1 else f" of the view {view.name!r}"
    return f"feature {number - at.start}{of_view}"


def _says_nothing(specification: Specification, constant: list[int], features: int) -> str:
    """Advice on features with these numbers, which do not vary."""
    names = [feature_name(specification, number) for number in constant[:SHOWN]]
    if len(constant) == 1:
        return f"{names[0]} has one value wherever it is observed, and its noise variance is at its floor: drop it"
    listed = ", ".join(name.removeprefix("feature ") for name in names) + ", …" * (len(constant) > SHOWN)
    return (
        f"{len(constant)} of {features} features ({listed}) have one value wherever they are observed, and their noise "
        "variances are at their floors: drop them"
    )


def at_floors(parameters: Parameters, specification: Specification) -> tuple[bool, ...]:
    """Whether each noise variance is at its floor."""
    if specification.fixed:
        return (False,) * len(parameters.noise_variance)
    return tuple(
        bool(v <= f * (1 + 1e-9)) for v, f in zip(parameters.noise_variance, specification.floors, strict=True)
    )


def require_sound(solution: Solution) -> None:
    """Refuse numbers that are none, and a likelihood that falls from one iteration to the next.

    The mean of a feature without an observed entry is not known, and NaN: its loadings are zero.
    Errors: DataError.
    """
    loadings, mean, noise = solution.parameters[:3]
    known = mean[~np.isnan(mean) | loadings.any(axis=-1)]
    numbers = {"loadings": loadings, "mean": known, "noise variance": noise}
    heights = np.array([line.log_likelihood for line in solution.history])
    numbers["log-likelihood"] = np.array([*heights[:1], solution.log_likelihood])
    for name, values in numbers.items():
        if not np.isfinite(values).all():
            raise DataError(
                f"the fit ended with a {name} that is not finite; bring features and targets to like "
                "scales, ask for fewer components, or raise noise_floor"
            )
    before, after = heights[:-1], heights[1:]
    lost = lost_nats(solution.specification, noise, solution.view_samples, solution.total_variance)
    rises = np.isfinite(after) & (after >= before - FALL * np.maximum(np.abs(after), solution.samples) - lost)
    if not rises.all():
        first = int(rises.argmin())
        raise DataError(
            f"the log-likelihood went from {before[first]:.10g} to {after[first]:.10g} in iteration {first + 2}, "
            "which an exact fit never does: digits are lost; store the data as float64, bring features to like scales, "
            "or raise noise_floor"
        )


def lost_nats(specification: Specification, noise: Array, counts: Sequence[int], variances: Sequence[float]) -> float:
    """Rounding of the log-likelihood where noise is little of a view's mean variance: squares of the data over it.
    Noise variances of single features are never as small.  `counts` are the samples of each view."""
    views = zip(specification.views, specification.noise_slices, counts, variances, strict=True)
    return LOST * sum(
        count * view.size * variance / float(noise[..., at].min()) for view, at, count, variance in views if view.shared
    )


def unfinished(history: Sequence[Iteration]) -> str:
    """Advice on a fit that did not converge."""
    left = history[-1].remaining
    where = f"estimated relative distance {left:.1e}" if np.isfinite(left) else f"last gain {history[-1].gain:.3g} nats"
    return f"convergence: stopped after {number_of(len(history), 'iteration')}, {where}; raise max_iter or tol"


def advise(
    parameters: Parameters,
    specification: Specification,
    history: Sequence[Iteration],
    task: Task,
    variances: Array,
    at_floor: tuple[bool, ...],
    *,
    converged: bool,
    sizes: Array | None = None,
) -> tuple[str, ...]:
    """One sentence for each thing a user should know, beginning with its kind; `sizes` as in `make_solution`."""
    said = [] if converged else [unfinished(history)]
    constant = _constant(specification, variances, parameters.mean)
    if constant.any():
        said.append("data: " + _says_nothing(specification, np.flatnonzero(constant).tolist(), len(constant)))
    asked, rounding = _parts(specification, task)
    chosen = asked > rounding
    # In units of the data a component of features with small units would be none.
    unit = np.sqrt(specification.per_feature(np.where(variances > 0.0, variances, variances.mean())))
    size = np.linalg.norm(canonical(parameters, specification).loadings / unit[:, None], axis=0)
    # A prior switches components off, and a choice drops them; that is no advice.
    if task.prior == "ml" and task.rule != "auto" and (zero := int((size <= NOTHING * size.max()).sum())):
        below = any(at & choice for at, choice in zip(at_floor, chosen, strict=True))
        why = "what they would explain is below the noise floor" if below else f"the data have rank {len(size) - zero}"
        said.append(
            f"data: {zero} of {len(size)} components are zero, because {why}, noise aside; use fewer components"
        )
    for view, at in zip(specification.views, specification.noise_slices, strict=True):
        low = np.flatnonzero(np.array(at_floor[at]) & ~constant[at])
        if view.fixed or not len(low):
            continue
        part = float(asked[at.start]) if chosen[at.start] else None
        if view.shared:
            said.append(_shared_floor(view.name, float(parameters.noise_variance[at.start]), part))
        else:
            said.append(_heywood(low, view.size, part))
    groups = specification.noise_slices[0]
    lost = parameters.noise_variance[groups] < 1e3 * task.epsilon * variances[groups]
    lost &= ~np.array(at_floor[groups])
    if lost.any() and not specification.fixed:
        worst = int(lost.argmax())
        help_ = "store the data as float64" if task.epsilon > ROUNDING else "bring the features to like scales"
        said.append(
            f"precision: the features' noise variance {parameters.noise_variance[worst]:.3g} is a difference of sums "
            f"near {variances[worst]:.3g} and keeps few digits; {help_} or use fewer components"
        )
    beyond = np.zeros(len(specification.views)) if sizes is None else sizes - specification.sizes
    return (*said, *_exaggerations(parameters, specification, variances, beyond))


def lost_digits(solution: Solution, shift: Array) -> tuple[str, ...]:
    """Features whose mean is so far from the shift (D,), about which sums were taken, that their noise is lost in them.

    Nothing where the advice of the fit tells of lost digits already.
    """
    if any(text.startswith("precision:") for text in solution.advice):
        return ()
    specification, mean = solution.specification, np.nan_to_num(np.atleast_2d(solution.parameters.mean))
    noise = np.atleast_2d(solution.parameters.noise_variance).min(axis=0)
    for view, at, groups in zip(specification.views, specification.slices, specification.noise_slices, strict=True):
        if view.fixed or at.stop > len(shift):
            continue
        away = ((mean[:, at] - shift[at]) ** 2).max(axis=0)
        lost = noise[groups] < 1e3 * DOUBLE * (away.mean(keepdims=True) if view.shared else away)
        if lost.any():
            far = at.start + int(away.argmax() if view.shared else np.where(lost, away, -1.0).argmax())
            return (
                f"precision: the noise variance {float(noise[groups][lost][0]):.3g} is a difference of sums of squares "
                f"near {float(away.max()):.3g} and keeps few digits, as the mean of "
                f"{feature_name(specification, far)}, {mean[0, far]:.3g}, is far from {shift[far]:.3g}; subtract a "
                "number near it from the feature",
            )
    return ()


def _exaggerations(parameters: Parameters, specification: Specification, variances: Array, beyond: Array) -> list[str]:
    """Views to which the model gives much more variance than their data have, those of features `beyond` the
    specification too, which have noise alone.

    Samples that have every view are many numbers each, and where they are few a component may be for them alone: it
    is next to nothing in one view, and what it is in another only they say.
    """
    if len(specification.patterns) == 1:
        return []
    said, groups = list[str](), np.array(specification.group_sizes)
    per_feature = (parameters.loadings**2).sum(axis=1) + specification.per_feature(parameters.noise_variance)
    views = zip(specification.views, specification.slices, specification.noise_slices, strict=True)
    for number, (view, at, noise) in enumerate(views):
        given = per_feature[at].sum() + beyond[number] * parameters.noise_variance[noise][0]
        ratio = float(given / ((groups[noise] + beyond[number]) @ variances[noise]))
        if (number,) in specification.patterns and not view.fixed and ratio > EXAGGERATED:
            said.append(
                f"misfit: the model gives the {view.name} {ratio:.3g} times the variance that the data have, so that "
                "reconstructions will exaggerate; give more samples that have every view (that correspond, or are "
                "labelled), try another number of components, or a larger noise floor"
            )
    return said


def _shared_floor(name: str, noise: float, part: float | None) -> str:
    """Advice on a noise variance that ended at its floor, which was asked for as a fraction of the mean variance, or
    is rounding (None)."""
    why = "which is rounding: the components explain them wholly, and the likelihood has no bound there"
    if part is not None:
        why = f"{part:.3g} of their mean variance, and the likelihood would be higher below it"
    return (
        f"floor: the noise variance of the {name} is at its floor {noise:.3g}, {why}; use fewer components, more "
        "labelled samples, or set the floor on purpose"
    )


def _heywood(features: Integers, size: int, part: float | None) -> str:
    """Advice on noise variances of single features that ended at their floors."""
    first = ", ".join(str(feature) for feature in features[:5].tolist())
    named = f"{first}{', …' if len(features) > 5 else ''}"
    if part is not None:
        return (
            f"floor: {len(features)} of {size} features have their noise variance at its floor, {part:.3g} of their "
            f"variance ({named}), and the likelihood would be higher below it; use fewer components, or take out "
            "features that nearly repeat others"
        )
    return (
        f"floor: {len(features)} of {size} features have their noise variance at its floor (Heywood cases: {named}): "
        "but for rounding the factors explain them wholly, the likelihood has no maximum inside; use fewer "
        "components, or take out features that nearly repeat others"
    )


def make_solution(
    parameters: Parameters,
    specification: Specification,
    history: Sequence[Iteration],
    task: Task,
    variances: Array,
    counts: Iterable[float],
    *,
    converged: bool,
    checked: float | None = None,
    sizes: Array | None = None,
) -> Solution:
    """The solution of a fit, in canonical form, with advice; `counts` are the samples of each pattern, `sizes` the
    features of each view, where the specification does not count all of them; the others have noise alone."""
    at_floor = at_floors(parameters, specification)
    value = history[-1].log_likelihood
    advice = advise(parameters, specification, history, task, variances, at_floor, converged=converged, sizes=sizes)
    seen = tuple(zip(specification.patterns, counts, strict=True))
    samples = tuple(
        int(sum(count for pattern, count in seen if view in pattern)) for view in range(len(specification.views))
    )
    total = tuple(float(variances[at].mean()) for at in specification.noise_slices)
    lost = lost_nats(specification, parameters.noise_variance, samples, total)
    if checked is not None and abs(checked - value) > CHECK * max(abs(value), 1.0) + lost:
        advice += (
            f"precision: the likelihood evaluated on the data is {checked:.10g}, inside the subspace {value:.10g}; "
            "store the data as float64 or scale its features",
        )
    return Solution(
        canonical(parameters, specification),
        specification,
        value,
        tuple(history),
        converged,
        len(history),
        at_floor,
        int(sum(count for _, count in seen)),
        samples,
        total,
        advice,
        checked,
    )
