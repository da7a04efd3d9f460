"""The hyperparameter `likelihood`: the task of a model whose entries are not normal, and what such models have not."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dlatent.arrays import Array
from dlatent.engine.session import Session
from dlatent.errors import DataError
from dlatent.fitted.linear import Linear, SharedNoise
from dlatent.fitted.observations import Observed
from dlatent.models.hyperparameters import COUNT
from dlatent.models.initial import initial_mean
from dlatent.models.table import MOST_WITH_HOLES
from dlatent.models.task import FitTask
from dlatent.observations import OBSERVATION_MODELS
from dlatent.solvers.observations import OBSERVATION_SOLVERS, Observations
from dlatent.solvers.solver import Solution


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
    if entries is not None and (entries.likelihood != "normal" or entries.beside):
        beside = f" with {' and '.join(name for name, _ in entries.beside)}" if entries.beside else ""
        raise DataError(f"{what} is of normal entries, and this model has likelihood={entries.likelihood!r}{beside}")


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
    observed, specification = OBSERVATION_MODELS[model.likelihood], task.specification
    chosen = task.rule == "auto"
    family = Observations(model.likelihood, model._missing, beside, chosen)
    if chosen:
        most = min(specification.n_components, MOST_WITH_HOLES + int(specification.row_effects))
        specification = replace(specification, n_components=most)
    if not observed.noise:
        views = tuple(replace(view, floor=1.0, fixed=True) for view in specification.views)
        specification = replace(specification, views=views)
    return replace(
        task,
        specification=specification,
        rule=None,
        family=family,
        solvers=OBSERVATION_SOLVERS,
        prior="ml",
        scale=model.scale in ("spread", "patterson"),
        shift=(mean_of_features if beside else None) if observed.noise else no_shift,
        fitted=partial(fitted_observed, made=task.fitted, family=family),
    )


def no_shift(session: Session, observed: bool) -> Array:
    """Counts and binary entries are taken as they are."""
    return np.zeros(session.source.shape[1])


def mean_of_features(session: Session, observed: bool) -> Array:
    """The mean of the first block, without what stands beside the features."""
    return initial_mean(session, observed)[: session.source.shape[1]]


def fitted_observed(task: FitTask, solution: Solution, made: Any, family: Observations) -> Linear:
    """The fitted model, as it is made of normal entries, with the distribution of its own."""
    fitted: Linear = made(task, solution)
    if not family.model.noise:
        nothing = np.zeros(len(fitted.noise.variance))
        noise = replace(fitted.noise, variance=nothing, floor=nothing)
        fitted = replace(fitted, noise=replace(noise, fixed=True) if isinstance(noise, SharedNoise) else noise)
    return replace(fitted, entries=Observed.of(family, solution.parameters))
