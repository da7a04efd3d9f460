"""An embedding as named variables: the Dataset that users see, the store that keeps it, and the way back."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scipy.sparse as sp
import xarray as xr

from dlatent.arrays import Features
from dlatent.engine.records import PassRecord
from dlatent.errors import StoreError
from dlatent.estimators.correspondence_lle import CorrespondenceLLE
from dlatent.estimators.local_linear import FittedView, LocalLinearModel, LocallyLinearEmbedding
from dlatent.fitting.local_linear import Embedded
from dlatent.local_linear.smallest import Eigenpairs
from dlatent.stores.results import StoredResult
from dlatent.stores.results import save as save_stored
from dlatent.stores.schema import Variable
from dlatent.stores.sparse import check_parts

KINDS: dict[str, type[LocalLinearModel]] = {
    model.__name__: model for model in (LocallyLinearEmbedding, CorrespondenceLLE)
}
PASS = ("name", "seconds", "busy_seconds", "bytes_read", "blocks", "cached", "tasks")


def local_linear_dataset(model: LocalLinearModel) -> xr.Dataset:
    """The fitted model as a Dataset; see `dlatent.stores.schema` for the meaning of every variable."""
    variables = _variables(model)
    attributes = _attributes(model)
    kept = ("eigen_solver", "eigen_residual", "converged", "neighbor_recall")
    return xr.Dataset(
        {name: (v.dims, v.values) for name, v in variables.items() if name not in v.dims},
        coords={name: (v.dims, v.values) for name, v in variables.items() if name in v.dims},
        attrs={"model": type(model).__name__, **{name: attributes[name] for name in kept}},
    )


def save_local_linear(model: LocalLinearModel, path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Write a fitted model with its training rows; see `LocalLinearModel.save`."""
    variables = {**_variables(model), **_reference_variables(model)}
    save_stored(
        path, kind=type(model).__name__, attributes=_attributes(model), variables=variables, overwrite=overwrite
    )


def load_local_linear(stored: StoredResult) -> LocalLinearModel:
    """The model of a stored result."""
    values = {name: v.values for name, v in stored.variables.items()}
    attributes = stored.attributes
    model = KINDS[stored.kind](**attributes["parameters"])
    model._check_hyperparameters()
    model._table, model._views = values["view_row"], _views(values, attributes["views"])
    _check_table(model._table, model._views)
    label = values["separate_set"]
    separate = tuple(np.flatnonzero(label == number) for number in range(int(label.max()) + 1))
    eigen = Eigenpairs(
        values["smallest_eigenvalues"],
        values["embedding"] / np.sqrt(len(label)),
        attributes["eigen_solver"],
        attributes["predicted_fill"],
        attributes["eigen_residual"],
    )
    columns = [values[f"pass_{name}"].tolist() for name in PASS]
    passes = tuple(PassRecord(**dict(zip(PASS, row, strict=True))) for row in zip(*columns, strict=True))
    model._publish(Embedded(values["embedding"], eigen, separate), passes, attributes["neighbor_recall"])
    return model


def _check_table(table: Any, views: tuple[FittedView, ...]) -> None:
    """Refuse a table that does not give each row of each view one sample. Errors: StoreError."""
    if table.shape[1] != len(views):
        raise StoreError(f"'view_row' has {table.shape[1]} columns for {len(views)} views")
    for view, column in zip(views, table.T, strict=True):
        if not np.array_equal(np.sort(column[column >= 0]), np.arange(view.shape[0])) or (column < -1).any():
            raise StoreError(f"'view_row' does not name each of the {view.shape[0]} rows of view {view.name!r} once")


def _variables(model: LocalLinearModel) -> dict[str, Variable]:
    label = np.full(model.n_samples_, -1, dtype=np.int64)
    for number, members in enumerate(model.separate_sets_):
        label[members] = number
    found = {
        "embedding": Variable(("sample", "component"), model.embedding_),
        "smallest_eigenvalues": Variable(("component",), model.eigenvalues_),
        "view_row": Variable(("sample", "view"), model._table),
        "separate_set": Variable(("sample",), label),
        "view": Variable(("view",), np.array([view.name for view in model._views])),
        "component": Variable(("component",), np.arange(model.embedding_.shape[1])),
    }
    for name in PASS:
        found[f"pass_{name}"] = Variable(("pass",), model.history_[f"pass_{name}"].values)
    return found


def _attributes(model: LocalLinearModel) -> dict[str, Any]:
    return {
        "parameters": model.get_params(),
        "eigen_solver": model.eigen_solver_,
        "eigen_residual": model.eigen_residual_,
        "predicted_fill": model.predicted_fill_,
        "converged": model.converged_,
        "neighbor_recall": list(model.neighbor_recall_),
        "views": [_description(view) for view in model._views],
    }


def _description(view: FittedView) -> dict[str, Any]:
    rows = view.rows
    return {
        "name": view.name,
        "shape": list(view.shape),
        "features": None if view.features is None else np.asarray(view.features).tolist(),
        "dtype": None if rows is None else rows.dtype.str,
        "entries": int(rows.nnz) if isinstance(rows, sp.csr_array) else None,
    }


def _reference_variables(model: LocalLinearModel) -> dict[str, Variable]:
    """Training rows, view after view: all values, and for sparse rows their columns and where rows begin."""
    kept = [view.rows for view in model._views if view.rows is not None]
    sparse = [rows for rows in kept if isinstance(rows, sp.csr_array)]
    values: list[Any] = [(rows.data if isinstance(rows, sp.csr_array) else rows).ravel() for rows in kept]
    found = {"reference_values": Variable(("reference_value",), _joined(values, np.float64))}
    found["reference_columns"] = Variable(("reference_entry",), _joined([r.indices for r in sparse], np.int64))
    found["reference_starts"] = Variable(("reference_row",), _joined([r.indptr for r in sparse], np.int64))
    return found


def _joined(parts: Any, dtype: Any) -> Any:
    """One vector; float64 holds float32 exactly."""
    return np.concatenate([np.zeros(0, dtype=dtype), *(np.asarray(part, dtype=dtype) for part in parts)])


def _views(values: dict[str, Any], descriptions: list[dict[str, Any]]) -> tuple[FittedView, ...]:
    at = entry = start = 0
    views = []
    for view in descriptions:
        shape, rows = tuple(view["shape"]), None
        if view["dtype"] is not None:
            count = shape[0] * shape[1] if view["entries"] is None else view["entries"]
            data = values["reference_values"][at : at + count].astype(view["dtype"])
            at += count
            if view["entries"] is None:
                rows = data.reshape(shape)
            else:
                columns = values["reference_columns"][entry : entry + count]
                starts = values["reference_starts"][start : start + shape[0] + 1]
                entry, start = entry + count, start + shape[0] + 1
                rows = sp.csr_array((data, columns, starts), shape)
                check_parts(rows, "the reference rows")
        features = None if view["features"] is None else np.asarray(view["features"])
        kept: Features | None = rows
        views.append(FittedView(view["name"], shape, kept, features))
    used = {"reference_values": at, "reference_columns": entry, "reference_starts": start}
    wrong = [name for name, count in used.items() if len(values[name]) != count]
    if wrong:
        raise StoreError(f"{wrong[0]!r} has {len(values[wrong[0]])} values; the views have {used[wrong[0]]}")
    return tuple(views)
