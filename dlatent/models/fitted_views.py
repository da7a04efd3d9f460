"""The data sets of an embedding as it keeps them: their training rows, and these as variables of a saved model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Features, Grid
from dlatent.containers import check_parts
from dlatent.errors import StoreError
from dlatent.fitted.grid import grid_attributes, grid_variables, kind_of, of_view, restored_grid
from dlatent.stores.joint_rows import Table


@dataclass(frozen=True)
class FittedView:
    """A view as it was fitted: its name, training rows (None where they are too many), its feature labels, and the grid
    that the features of an xarray input lay over."""

    name: str
    shape: tuple[int, int]
    rows: Features | None
    features: npt.NDArray[Any] | None
    grid: Grid | None = None

    @property
    def description(self) -> dict[str, Any]:
        """All but the rows, as JSON values."""
        rows = self.rows
        return {
            "name": self.name,
            "shape": list(self.shape),
            "features": None if self.features is None else np.asarray(self.features).astype(str).tolist(),
            "kind": kind_of(self.features),
            "dtype": None if rows is None else rows.dtype.str,
            "entries": int(rows.nnz) if isinstance(rows, sp.csr_array) else None,
            "grid": None if self.grid is None else grid_attributes(self.grid),
        }


def check_table(table: Table, views: tuple[FittedView, ...]) -> None:
    """Refuse a table that does not give each row of each view one sample. Errors: StoreError."""
    if table.shape[1] != len(views):
        raise StoreError(f"'view_row' has {table.shape[1]} columns for {len(views)} views")
    for view, column in zip(views, table.T, strict=True):
        if not np.array_equal(np.sort(column[column >= 0]), np.arange(view.shape[0])) or (column < -1).any():
            raise StoreError(f"'view_row' does not name each of the {view.shape[0]} rows of view {view.name!r} once")


def view_variables(views: tuple[FittedView, ...]) -> dict[str, Any]:
    """Training rows, view after view: all values, and for sparse rows their columns and where rows begin; and grids."""
    kept = [view.rows for view in views if view.rows is not None]
    sparse = [rows for rows in kept if isinstance(rows, sp.csr_array)]
    values: list[Any] = [(rows.data if isinstance(rows, sp.csr_array) else rows).ravel() for rows in kept]
    grids = dict[str, Any]()
    for number, view in enumerate(views):
        grids |= {} if view.grid is None else grid_variables(view.grid, of_view(number))
    return grids | {
        "reference_values": _joined(values, np.float64),
        "reference_columns": _joined([rows.indices for rows in sparse], np.int64),
        "reference_starts": _joined([rows.indptr for rows in sparse], np.int64),
    }


def _joined(parts: Any, dtype: Any) -> Any:
    """One vector; float64 holds float32 exactly."""
    return np.concatenate([np.zeros(0, dtype=dtype), *(np.asarray(part, dtype=dtype) for part in parts)])


def restored_views(values: dict[str, Any], descriptions: list[dict[str, Any]]) -> tuple[FittedView, ...]:
    """The views of a saved model. Errors: StoreError for rows that no view has."""
    at = entry = start = 0
    views = []
    for number, view in enumerate(descriptions):
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
        features = None if view["features"] is None else np.asarray(view["features"]).astype(view["kind"])
        kept: Features | None = rows
        saved = view.get("grid")  # stores of before have none
        grid = restored_grid(values, saved, of_view(number)) if saved else None
        views.append(FittedView(view["name"], shape, kept, features, grid))
    used = {"reference_values": at, "reference_columns": entry, "reference_starts": start}
    wrong = [name for name, count in used.items() if len(values[name]) != count]
    if wrong:
        raise StoreError(f"{wrong[0]!r} has {len(values[wrong[0]])} values; the views have {used[wrong[0]]}")
    return tuple(views)
