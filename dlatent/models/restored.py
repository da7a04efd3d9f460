"""What a saved model of the linear family is made of again: the specification, and the outcome of its fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlatent.arrays import Array
from dlatent.errors import StoreError
from dlatent.fitted.history import restored_history
from dlatent.fitting.outcome import Outcome
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification, View


def noise_name(shared: bool, name: str) -> str:
    """The name of a variable of the noise: of views, or of features where each has its own."""
    return name if shared else f"feature_{name}"


def uncertainty_variables(parameters: Parameters) -> dict[str, Array]:
    """The packed covariances of the loadings, of each feature or one of all, and the variances of the means, where
    these have a prior."""
    spread, variance = parameters.loadings_covariance, parameters.mean_variance
    found = {} if variance is None else {"mean_variance": variance}
    if spread is None:
        return found
    return found | ({"common_loadings_covariance": spread[0]} if len(spread) == 1 else {"loadings_covariance": spread})


def restored_covariance(values: dict[str, Any], loadings: Array) -> Array | None:
    """The packed covariances of loadings (D, K), None where these have no prior. Errors: StoreError for another
    shape."""
    common = values.get("common_loadings_covariance")
    found: Array | None = values.get("loadings_covariance") if common is None else common[None]
    k = loadings.shape[1]
    if found is not None and (found.shape[1] != k * (k + 1) // 2 or len(found) not in (1, len(loadings))):
        raise StoreError(f"covariances of the loadings have shape {found.shape}, and these {loadings.shape}")
    return found


def restored_specification(
    values: dict[str, Any], attributes: dict[str, Any], parameters: Parameters, *, shared: bool, fixed: bool
) -> Specification:
    """The views with their floors, and the patterns. Errors: StoreError for those that no model has."""
    sizes, floors = attributes["view_sizes"], values[noise_name(shared, "noise_floor")]
    cuts = np.cumsum(sizes)[:-1].tolist()
    each = floors.tolist() if shared else [tuple(own.tolist()) for own in np.split(floors, cuts)]
    views = zip(values["view"].tolist(), sizes, each, strict=True)
    patterns = tuple(tuple(int(view) for view in pattern) for pattern in attributes["patterns"])
    made = tuple(View(name, size, floor, shared=shared, fixed=fixed) for name, size, floor in views)
    found = Specification(made, patterns, parameters.loadings.shape[1])
    _check_specification(found, len(parameters.mean))
    return found


def _check_specification(made: Specification, features: int) -> None:
    """Refuse views and patterns that no model has. Errors: StoreError."""
    if min(made.sizes, default=0) < 1 or sum(made.sizes) != features:
        raise StoreError(f"the views have {made.sizes} features, but the model has {features} in all")
    if made.n_components < 1:
        raise StoreError("the model has no component")
    known = set(range(len(made.views)))
    for pattern in made.patterns:
        if not pattern or not set(pattern) <= known or list(pattern) != sorted(set(pattern)):
            raise StoreError(
                f"a pattern names the views {pattern}; there are {len(known)}, each at most once, in order"
            )
    if len(set(made.patterns)) != len(made.patterns) or {view for p in made.patterns for view in p} != known:
        raise StoreError(f"the patterns {made.patterns} name one twice, or leave a view out")


def restored_outcome(
    values: dict[str, Any],
    attributes: dict[str, Any],
    parameters: Parameters,
    specification: Specification,
    at_floor: tuple[bool, ...],
) -> Outcome:
    """The outcome of the fit. Errors: StoreError for attributes that no fit leaves."""
    _check_attributes(attributes)
    said = ("log_likelihood", "converged", "iterations", "samples", "checked_log_likelihood")
    return Outcome(
        parameters,
        specification,
        history=restored_history(values),
        at_floor=at_floor,
        view_samples=tuple(values["view_samples"].tolist()),
        total_variance=tuple(values["total_variance"].tolist()),
        advice=tuple(attributes["advice"]),
        **{name: attributes[name] for name in said},
    )


def _check_attributes(attributes: dict[str, Any]) -> None:
    """Refuse attributes that no fit leaves. Errors: StoreError."""
    whole = ("samples", "iterations", "passes")
    wrong = [name for name in whole if type(attributes[name]) is not int or attributes[name] < 0]
    wrong += [name for name in ("log_likelihood",) if type(attributes[name]) not in (int, float)]
    wrong += [name for name, kind in (("converged", bool), ("plan", dict)) if type(attributes[name]) is not kind]
    dims, advice, checked = attributes["dims"], attributes["advice"], attributes["checked_log_likelihood"]
    if len(dims) != 2 or not all(isinstance(name, str) for name in dims):
        wrong.append("dims")
    if not isinstance(advice, list) or not all(isinstance(text, str) for text in advice):
        wrong.append("advice")
    if checked is not None and type(checked) not in (int, float):
        wrong.append("checked_log_likelihood")
    if any(type(size) is not int for size in attributes["view_sizes"]):
        wrong.append("view_sizes")
    if wrong:
        raise StoreError(f"the attribute {wrong[0]!r} is {attributes[wrong[0]]!r}, which no fit leaves")
