"""The hyperparameter `likelihood`: the task of a model whose entries are not normal, and what such models have not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast, get_args

import numpy as np

from dlatent.arrays import Array
from dlatent.engine.session import Session
from dlatent.errors import DataError
from dlatent.fitted.linear import FeatureNoise, JointGaussian, Linear, SharedNoise
from dlatent.fitted.observations import ObservationRows, Observed, of_views
from dlatent.gaussian.likelihood import PartsFunction
from dlatent.gaussian.specification import Specification
from dlatent.models.hyperparameters import COUNT, SHARED, Allowed, Likelihood, Parameter, ViewMissing, choice
from dlatent.models.initial import initial_mean
from dlatent.models.table import MOST_WITH_HOLES
from dlatent.models.task import FitTask
from dlatent.observations import OBSERVATION_MODELS
from dlatent.solvers.observations import OBSERVATION_SOLVERS, Observations, noisy_groups
from dlatent.solvers.solver import Solution

OF_VIEWS = tuple(name for name in get_args(Likelihood) if name != "student_rows")


def _likelihoods(value: Any) -> bool:
    names = list(value.values()) if isinstance(value, Mapping) else [value]
    return all(name in OF_VIEWS for name in names)


LIKELIHOODS = Allowed(
    f"one of {', '.join(OF_VIEWS)}, or a mapping from names of views to these",
    _likelihoods,
    lambda text: dict(part.split("=", 1) for part in text.split(",")) if "=" in text else text,
)
VIEW_LIKELIHOODS = Parameter(
    LIKELIHOODS,
    "str, or mapping of names of views to str",
    "How entries are distributed about their predictors, of all views, or of some by their names, the others being "
    '"normal": "normal", "student", "poisson", "negative_binomial" or "bernoulli", as in PPCA '
    "(:doc:`/models/likelihoods`).",
    short="VIEW=LIKELIHOOD,…",
)
VIEW_MISSING = choice(
    ViewMissing,
    'Which entries are missing, beside the views that a sample lacks.  "raise" raises for NaN.  With "nan" entries of '
    "dense views that are NaN are missing, in all methods; the fit is then by accelerated EM.",
)
VIEW_LEVELS = replace(
    SHARED["row_effects"],
    text="Give each sample a level, N(0, τ²), that its counts share, in all views that have any: how often a cell was "
    'read, how long a text is.  It is a further component, the last.  "auto" gives one where a view has counts.',
)


def has_levels(model: Any) -> bool:
    """Whether rows have a level of their own: where that is asked for, and else those of counts."""
    if model.row_effects != "auto":
        return bool(model.row_effects)
    return model.likelihood != "normal" and OBSERVATION_MODELS[model.likelihood].level


def check_likelihood(model: Any) -> None:
    """Refuse what does not go with a likelihood other than the normal one.  Errors: DataError."""
    if model.likelihood != "normal":
        require_plain(model, f"likelihood={model.likelihood!r}")


def require_plain(model: Any, said: str) -> None:
    """Refuse what models of entries of their own have not.  Errors: DataError."""
    name = model.likelihood
    if model.n_components != "auto" and not COUNT.test(model.n_components):
        raise DataError(
            f"n_components={model.n_components!r} is for normal entries alone, and not for {said}; give a number, or "
            "'auto'"
        )
    if model.prior not in ("auto", "ml"):
        raise DataError(f"prior={model.prior!r} does not go with {said}; leave prior='auto'")
    if model.warm_start:
        raise DataError(f"warm_start=True does not go with {said}; leave warm_start=False")
    if model.scale not in ("auto", "none", None) and not OBSERVATION_MODELS[name].noise:
        raise DataError(f"scale={model.scale!r} would make other numbers of entries, and {said}; leave scale='auto'")


def require_normal(model: Any, what: str) -> None:
    """Refuse what only normal entries have, with nothing beside them.  Errors: DataError."""
    entries = model._model.entries
    likelihood = "normal" if entries is None else entries.told()["likelihood"]
    if entries is not None and (likelihood != "normal" or entries.beside):
        beside = f" with {' and '.join(name for name, _ in entries.beside)}" if entries.beside else ""
        raise DataError(f"{what} is of normal entries, and this model has likelihood={likelihood!r}{beside}")


def with_likelihood(task: FitTask, model: Any) -> FitTask:
    """The task whose entries are of the distribution that the model names, and have what stands beside them.

    Errors: DataError for what does not go with it.
    """
    beside = task.source.beside
    if model.likelihood == "normal" and not beside:
        return task
    for name, _ in beside:
        require_plain(model, f"{name}=")
        if model.scale not in ("auto", "none", None):
            raise DataError(
                f"scale={model.scale!r} does not go with {name}=; leave scale='auto', and divide the data and what "
                "stands beside them yourself"
            )
    if model.likelihood != "normal" and "uncertainty" in dict(beside):
        raise DataError(
            f"uncertainty= is of normal entries, and likelihood={model.likelihood!r}; leave out one of both"
        )
    shift = (mean_of_features if beside else None) if OBSERVATION_MODELS[model.likelihood].noise else no_shift
    family = Observations(model.likelihood, model._missing, beside, task.rule == "auto")
    return replace(_of_family(task, family), scale=model.scale in ("spread", "patterson"), shift=shift)


def _of_family(task: FitTask, family: Observations) -> FitTask:
    """The task whose entries are of the distributions of a family; views without noise have the variance 1, fixed."""
    specification = task.specification
    if family.chosen:
        most = min(specification.n_components, MOST_WITH_HOLES + int(specification.row_effects))
        specification = replace(specification, n_components=most)
    noisy = noisy_groups(family.model, specification)
    views = (
        view if noisy[at.start] else replace(view, floor=1.0, fixed=True)
        for view, at in zip(specification.views, specification.noise_slices, strict=True)
    )
    return replace(
        task,
        specification=replace(specification, views=tuple(views)),
        rule=None,
        family=family,
        solvers=OBSERVATION_SOLVERS,
        prior="ml",
        fitted=partial(fitted_observed, made=task.fitted, family=family),
    )


def fitted_likelihoods(fitted: JointGaussian) -> dict[str, str]:
    """The distribution of the entries of each view of a fitted model."""
    if fitted.entries is None:
        return dict.fromkeys(fitted.labels.views, "normal")
    assert isinstance(fitted.entries.likelihood, tuple)
    return {view: name for view, (name, _) in zip(fitted.labels.views, fitted.entries.likelihood, strict=True)}


def view_likelihoods(model: Any, names: Iterable[str]) -> dict[str, str]:
    """The distribution of the entries of each view.  Errors: DataError for views that there are not."""
    names, asked = tuple(names), getattr(model, "likelihood", "normal")
    if isinstance(asked, str):
        return dict.fromkeys(names, asked)
    for name in asked:
        if name not in names:
            raise DataError(f"likelihood names the view {name!r}; there are {', '.join(map(repr, names))}")
    return {name: asked.get(name, "normal") for name in names}


def of_samples(model: Any, usual: PartsFunction, function: Any, view: int | None = None) -> PartsFunction:
    """The usual function of samples, or where entries of a view are not normal a method of `ObservationRows`; of values
    for each feature those of a view."""
    if model._model.entries is None:
        return usual
    return partial(of_views, rows=cast(ObservationRows, model._model.rows), function=function, view=view)


def with_view_likelihoods(task: FitTask, model: Any, likelihoods: Mapping[str, str]) -> FitTask:
    """The task whose views have entries of these distributions, or missing ones; counts share a level of their sample.

    Errors: DataError for levels where no view has counts, and for what goes with normal entries alone.
    """
    counts = [OBSERVATION_MODELS[name].level for name in likelihoods.values()]
    if getattr(model, "row_effects", "auto") is True and not any(counts):
        raise DataError("row_effects=True is for counts, and no view has any; leave row_effects='auto'")
    if set(likelihoods.values()) == {"normal"} and not task.missing:
        return task
    for name, usual in {"scale": "none", "noise": "ml"}.items():
        if (value := getattr(model, name, usual)) not in (usual, None):
            raise DataError(
                f"{name}={value!r} is for complete samples of normal entries; leave {name}={usual!r} with another "
                "likelihood, or with missing='nan'"
            )
    before, levels = task.specification, bool(model.row_effects) and any(counts)
    views = tuple(replace(view, leveled=has) for view, has in zip(before.views, counts, strict=True))
    specification = Specification(views, before.patterns, before.n_components + int(levels), levels)
    sizes = zip(likelihoods.values(), specification.sizes, strict=True)
    family = Observations(tuple(sizes), "nan", chosen=task.rule == "auto")
    shift = partial(no_shift_of_counts, family=family, usual=task.shift)
    # Regressions from view to view are those of normal entries.
    return _of_family(replace(task, specification=specification, shift=shift, learned=None), family)


def no_shift(session: Session, observed: bool) -> Array:
    """Counts and binary entries are taken as they are."""
    return np.zeros(session.source.shape[1])


def no_shift_of_counts(session: Session, observed: bool, family: Observations, usual: Any) -> Array:
    """The usual shift of views with noise; others are taken as they are."""
    shift: Array = usual(session, observed)
    for model, at in family.model.parts(len(shift)):
        shift[at] *= model.noise
    return shift


def mean_of_features(session: Session, observed: bool) -> Array:
    """The mean of the first block, without what stands beside the features."""
    return initial_mean(session, observed)[: session.source.shape[1]]


def fitted_observed(task: FitTask, solution: Solution, made: Any, family: Observations) -> Linear:
    """The fitted model, as it is made of normal entries, with the distribution of its own."""
    fitted: Linear = made(task, solution)
    noise, noisy = fitted.noise, noisy_groups(family.model, task.specification)
    if not noisy.all():
        own = noise.variance * noisy, noise.floor * noisy, noise.at_floor * noisy
        shared = isinstance(noise, SharedNoise)
        fitted = replace(fitted, noise=SharedNoise(*own, not noisy.any()) if shared else FeatureNoise(*own))
    return replace(fitted, entries=Observed.of(family, solution.parameters))
