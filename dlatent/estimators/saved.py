"""A fitted model as named variables: the Dataset that users see, the store that keeps it, and the way back."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import numpy as np
import xarray as xr

from dlatent.arrays import AxisLabels
from dlatent.engine.machine import memory
from dlatent.engine.records import PassRecord
from dlatent.errors import DlatentError, StoreError, masked
from dlatent.estimators import saved_local_linear
from dlatent.estimators.base import Fitted, LatentVariableModel
from dlatent.estimators.correspondence import CorrespondenceFactorAnalysis, CorrespondencePPCA
from dlatent.estimators.factor_analysis import FactorAnalysis
from dlatent.estimators.graph_model import GraphModel
from dlatent.estimators.kernel import KernelPPCA, KernelSupervisedPPCA
from dlatent.estimators.ppca import PPCA
from dlatent.estimators.relational import RelationalPPCA, RelationalSupervisedPPCA
from dlatent.estimators.saved_kernel import PART, kernel_attributes, kernel_variables, restored_map
from dlatent.estimators.supervised import SupervisedPPCA
from dlatent.estimators.targets import TargetEncoding
from dlatent.estimators.views import CorrespondenceModel
from dlatent.fitting.outcome import Iteration, Outcome
from dlatent.fitting.plan import Plan, Problem
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification, View
from dlatent.stores.results import StoredResult
from dlatent.stores.results import load as load_stored
from dlatent.stores.results import save as save_stored
from dlatent.stores.schema import Variable, check_values

MODELS: tuple[type[LatentVariableModel], ...] = (
    PPCA,
    SupervisedPPCA,
    FactorAnalysis,
    RelationalPPCA,
    RelationalSupervisedPPCA,
    CorrespondencePPCA,
    CorrespondenceFactorAnalysis,
    KernelPPCA,
    KernelSupervisedPPCA,
)
KINDS: dict[str, type[LatentVariableModel]] = {model.__name__: model for model in MODELS}
ITERATION = ("log_likelihood", "gain", "remaining", "rank")
PASS = ("name", "seconds", "busy_seconds", "bytes_read", "blocks", "cached", "tasks")


def _variables(model: LatentVariableModel, *, whole: bool) -> dict[str, Variable]:
    """The variables of a fitted model; the targets on their rank are kept too, so that loading is exact; `whole` adds
    those that only a saved model needs."""
    fitted = model._require_fitted()
    found = {
        **_loading_variables(model, whole=whole),
        **_noise_variables(model),
        "view_samples": Variable(("view",), np.array(fitted.outcome.view_samples)),
        "total_variance": Variable(("view",), np.array(fitted.outcome.total_variance)),
        "view": Variable(("view",), np.array([view.name for view in model._specification.views])),
        "component": Variable(("component",), model.component_names_),
    }
    if fitted.labels.features is not None and (whole or not isinstance(model, KernelPPCA)):
        found["feature"] = Variable(("feature",), np.asarray(fitted.labels.features))
    for name, array in model.history_.data_vars.items():
        found[str(name)] = Variable(tuple(str(d) for d in array.dims), array.values)
    if isinstance(model, SupervisedPPCA):
        found |= _target_variables(model)
    if isinstance(model, CorrespondenceModel):
        found |= _view_variables(model)
    return found


def _loading_variables(model: LatentVariableModel, *, whole: bool) -> dict[str, Variable]:
    if isinstance(model, KernelPPCA):
        return kernel_variables(model, rows=whole)
    # The views of correspondences are all features, one view after the other; targets are not.
    parameters, own = model._parameters, slice(0, model.n_features_in_)
    return {
        "loadings": Variable(("feature", "component"), parameters.loadings[own]),
        "mean": Variable(("feature",), parameters.mean[own]),
    }


def _view_variables(model: CorrespondenceModel) -> dict[str, Variable]:
    """Which view each feature is of, and the features' labels as texts where views have some."""
    sizes = model._specification.sizes
    found = {"feature_view": Variable(("feature",), np.repeat(np.array(model.view_names_), sizes))}
    own = [model._view_labels[name].features for name in model.view_names_]
    if any(labels is not None for labels in own):
        texts = [np.arange(n) if x is None else x for x, n in zip(own, sizes, strict=True)]
        found["feature"] = Variable(("feature",), np.concatenate([np.asarray(x).astype(str) for x in texts]))
    return found


def _view_labels(values: dict[str, Any], attributes: Any, specification: Specification) -> dict[str, AxisLabels]:
    """The labels of the features of each view, as they were: texts, whole numbers, or none."""
    found = {}
    for view, at, dims, kind in zip(
        specification.views, specification.slices, attributes["view_dims"], attributes["view_labels"], strict=True
    ):
        features = values["feature"][at].astype(kind) if kind else None
        found[view.name] = AxisLabels((dims[0], dims[1]), None, features)
    return found


def _noise_variables(model: LatentVariableModel) -> dict[str, Variable]:
    """Noise variances by view, or by feature where each has its own."""
    specification, outcome = model._specification, model._require_fitted().outcome
    prefix, dims = ("", ("view",)) if specification.views[0].shared else ("feature_", ("feature",))
    return {
        f"{prefix}noise_variance": Variable(dims, model._parameters.noise_variance),
        f"{prefix}noise_floor": Variable(dims, specification.floors),
        f"{prefix}at_floor": Variable(dims, np.array(outcome.at_floor)),
    }


def _target_variables(model: SupervisedPPCA) -> dict[str, Variable]:
    own, encoding = model._specification.slices[1], model._encoding
    return {
        "target_loadings": Variable(("target", "component"), model.target_components_.T),
        "target_mean": Variable(("target",), model.target_mean_),
        "target_centre": Variable(("target",), encoding.centre),
        "target_rotation": Variable(("target", "target_rank"), encoding.rotation),
        "rank_loadings": Variable(("target_rank", "component"), model._parameters.loadings[own]),
        "rank_mean": Variable(("target_rank",), model._parameters.mean[own]),
        "target": Variable(("target",), _plain(encoding.names)),
    }


def _plain(values: Any) -> Any:
    """Object arrays of texts as text."""
    array = np.asarray(values)
    return array.astype(str) if array.dtype == object else array


def _attributes(model: LatentVariableModel) -> dict[str, Any]:
    fitted = model._require_fitted()
    outcome, plan = fitted.outcome, fitted.plan
    found: dict[str, Any] = {
        "parameters": {name: _parameter(value) for name, value in model.get_params().items()},
        "log_likelihood": outcome.log_likelihood,
        "checked_log_likelihood": outcome.checked_log_likelihood,
        "converged": outcome.converged,
        "iterations": outcome.iterations,
        "samples": outcome.samples,
        "advice": list(outcome.advice),
        "patterns": [list(pattern) for pattern in outcome.specification.patterns],
        "dims": list(fitted.labels.dims),
        "passes": model.n_passes_,
        "plan": asdict(plan),
    }
    if isinstance(model, SupervisedPPCA):
        found["target_kind"] = model._encoding.kind
    if isinstance(model, GraphModel):
        found["precision_rank"] = model.precision_rank_
    if isinstance(model, CorrespondenceModel):
        labels = [model._view_labels[name] for name in model.view_names_]
        found["view_dims"] = [list(own.dims) for own in labels]
        found["view_labels"] = ["" if own.features is None else _kind(own.features) for own in labels]
        found["view_sizes"] = list(model._specification.sizes)
        found["fixed"] = model._specification.fixed
    return found


def _parameter(value: Any) -> Any:
    """A hyperparameter as it is kept: paths as text, URLs without credentials."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    return masked(value) if isinstance(value, str) else value


def _kind(labels: Any) -> str:
    """How labels of features are kept: as whole numbers, as numbers, or as texts."""
    return {"i": "i8", "u": "i8", "f": "f8"}.get(np.asarray(labels).dtype.kind, "U")


def result_dataset(model: LatentVariableModel) -> xr.Dataset:
    """The fitted model as a Dataset; see `dlatent.stores.schema` for the meaning of every variable."""
    variables = _variables(model, whole=False)
    feature = model._require_fitted().labels.dims[1]
    attributes = _attributes(model)
    kept = ("log_likelihood", "converged", "iterations", "passes", "samples")
    dataset = xr.Dataset(
        {name: (v.dims, v.values) for name, v in variables.items() if not _is_coordinate(name, v)},
        coords={name: (v.dims, v.values) for name, v in variables.items() if _is_coordinate(name, v)},
        attrs={"model": type(model).__name__, **{name: attributes[name] for name in kept}},
    )
    return dataset.rename({"feature": feature}) if feature != "feature" and "feature" in dataset.dims else dataset


def _is_coordinate(name: str, variable: Variable) -> bool:
    return name in variable.dims or name == "feature_view"


def save_model(model: LatentVariableModel, path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Write a fitted model; see `LatentVariableModel.save`."""
    attributes = _attributes(model)
    if isinstance(model, KernelPPCA):
        attributes["features"] = kernel_attributes(model)
    variables = _variables(model, whole=True)
    save_stored(path, kind=type(model).__name__, attributes=attributes, variables=variables, overwrite=overwrite)


def load(path: str | os.PathLike[str], *, max_bytes: int | None = None) -> Any:
    """Open a saved model: what it computes is equal, to the last bit, to what the saved one did.

    Parameters: `path`, a path or fsspec URL of the store; `max_bytes`, most bytes that its variables may take in
    memory; None allows 1 GiB, and more where a thousandth of it is stored and half of the memory of this machine holds
    it.
    Errors: StoreError where the path is no complete model, one of a newer version, one that is larger than it may be,
    or one that is damaged or has been changed since it was saved.
    """
    place = os.fspath(path)
    stored = load_stored(path, max_bytes=max_bytes, room=int(PART * memory()) if max_bytes is None else None)
    if stored.kind not in KINDS and stored.kind not in saved_local_linear.KINDS:
        known = ", ".join([*KINDS, *saved_local_linear.KINDS])
        raise StoreError(f"{place} holds a {stored.kind!r}; this version of dlatent knows {known}")
    check_values(stored.variables, place)
    try:
        if stored.kind in saved_local_linear.KINDS:
            return saved_local_linear.load_local_linear(stored)
        return _load_model(stored)
    except (DlatentError, MemoryError) as error:
        raise StoreError(f"{place}: {error}") from error
    except Exception as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise StoreError(f"{place} is no {stored.kind} that can be: {what}; save the model again") from error


def _load_model(stored: StoredResult) -> LatentVariableModel:
    values = {name: v.values for name, v in stored.variables.items()}
    attributes = stored.attributes
    model = KINDS[stored.kind](**attributes["parameters"])
    model._check_hyperparameters()
    _check_attributes(attributes)
    specification = _specification(values, attributes)
    prefix = "feature_" if "feature_noise_variance" in values else ""
    loadings, mean = (values[name] for name in _names(values))
    parameters = Parameters(loadings, mean, values[f"{prefix}noise_variance"])
    if "rank_loadings" in values:
        parameters = Parameters(
            np.vstack([parameters.loadings, values["rank_loadings"]]),
            np.concatenate([parameters.mean, values["rank_mean"]]),
            parameters.noise_variance,
        )
    history = _records(Iteration, values, "iteration", ITERATION, numbered=True)
    outcome = Outcome(
        parameters,
        specification,
        attributes["log_likelihood"],
        history,
        attributes["converged"],
        attributes["iterations"],
        tuple(values[f"{prefix}at_floor"].tolist()),
        attributes["samples"],
        tuple(values["view_samples"].tolist()),
        tuple(values["total_variance"].tolist()),
        tuple(attributes["advice"]),
        attributes["checked_log_likelihood"],
    )
    first, second = attributes["dims"]
    labels = AxisLabels((first, second), None, values.get("feature"))
    passes = _records(PassRecord, values, "pass", PASS, numbered=False)
    plan = attributes["plan"]
    problem = Problem(**plan["problem"])
    model._parameters, model._specification = parameters, specification
    if isinstance(model, CorrespondenceModel):
        model._view_labels = _view_labels(values, attributes, specification)
    model._fitted = Fitted(outcome, passes, labels, Plan(**{**plan, "problem": problem, "alternatives": ()}))
    if isinstance(model, KernelPPCA):
        model._map = restored_map(values, attributes["features"])
        model.n_features_in_ = attributes["features"]["columns"]
    model._publish(outcome, passes)
    if isinstance(model, GraphModel):
        model.precision_rank_ = attributes["precision_rank"]
    if isinstance(model, SupervisedPPCA):
        names = values["target"]
        kind = attributes["target_kind"]
        encoding = TargetEncoding(
            kind, values["target_centre"], values["target_rotation"], names, names if kind == "class" else None
        )
        model._publish_targets(encoding)
    return model


def _check_attributes(attributes: Any) -> None:
    """Refuse attributes that no fit leaves. Errors: StoreError."""
    whole = ("samples", "iterations", "passes")
    wrong = [name for name in whole if type(attributes[name]) is not int or attributes[name] < 0]
    wrong += [name for name in ("log_likelihood",) if type(attributes[name]) not in (int, float)]
    wrong += [name for name in ("converged",) if type(attributes[name]) is not bool]
    dims, advice, checked = attributes["dims"], attributes["advice"], attributes["checked_log_likelihood"]
    if len(dims) != 2 or not all(isinstance(name, str) for name in dims):
        wrong.append("dims")
    if not isinstance(advice, list) or not all(isinstance(text, str) for text in advice):
        wrong.append("advice")
    if checked is not None and type(checked) not in (int, float):
        wrong.append("checked_log_likelihood")
    if wrong:
        raise StoreError(f"the attribute {wrong[0]!r} is {attributes[wrong[0]]!r}, which no fit leaves")


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


def _names(values: dict[str, Any]) -> tuple[str, str]:
    """Under which names loadings and mean were saved."""
    return ("loadings", "mean") if "loadings" in values else ("coordinate_loadings", "coordinate_mean")


def _specification(values: dict[str, Any], attributes: Any) -> Specification:
    loadings, mean = (values[name] for name in _names(values))
    sizes = [len(mean)] + ([len(values["rank_mean"])] if "rank_mean" in values else [])
    sizes = attributes.get("view_sizes", sizes)
    shared = "noise_floor" in values
    if shared:
        floors = values["noise_floor"].tolist()
    else:
        cuts = np.cumsum(sizes)[:-1].tolist()
        floors = [tuple(own.tolist()) for own in np.split(values["feature_noise_floor"], cuts)]
    fixed = bool(attributes.get("fixed", False))
    views = zip(values["view"].tolist(), sizes, floors, strict=True)
    patterns = tuple(tuple(int(view) for view in pattern) for pattern in attributes["patterns"])
    made = tuple(View(name, size, floor, shared=shared, fixed=fixed) for name, size, floor in views)
    found = Specification(made, patterns, loadings.shape[1])
    _check_specification(found, len(mean) + len(values.get("rank_mean", ())))
    return found


def _records(kind: Any, values: dict[str, Any], prefix: str, names: tuple[str, ...], *, numbered: bool) -> Any:
    columns = [values[f"{prefix}_{name}"].tolist() for name in names]
    rows = zip(*columns, strict=True)
    if numbered:
        return tuple(kind(number, *row) for number, row in enumerate(rows, 1))
    return tuple(kind(**dict(zip(names, row, strict=True))) for row in rows)
