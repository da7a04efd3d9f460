"""Fitted locally linear embeddings: coordinates of the samples, and the data sets that they are of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, Features, Grid, Integers
from dlatent.containers import check_parts
from dlatent.errors import StoreError
from dlatent.fitted.fit import FittedModel, Report, Summary
from dlatent.fitted.grid import grid_attributes, grid_variables, kind_of, of_view, read_grid
from dlatent.fitted.stored import Values, attribute, part, stored
from dlatent.stores.joint import Table
from dlatent.stores.schema import Variable


@dataclass(frozen=True)
class FittedView:
    """A view as it was fitted: its name, training rows (None where they are too many), its feature labels, the grid
    that the features of an xarray input lay over, what features are divided by before they are compared, and the layer
    of an AnnData."""

    name: str
    shape: tuple[int, int]
    rows: Features | None
    features: npt.NDArray[Any] | None
    grid: Grid | None = None
    units: Array | None = None
    layer: str | None = None


def _joined(parts: Any, dtype: Any) -> Any:
    """One vector; float64 holds float32 exactly."""
    return np.concatenate([np.zeros(0, dtype=dtype), *(np.asarray(part, dtype=dtype) for part in parts)])


def _cut(values: Values, name: str, sizes: list[int]) -> Iterator[Array]:
    """A vector in parts of these sizes.  Errors: StoreError where it has more, or fewer."""
    vector = values.pop(name)
    if len(vector) != sum(sizes):
        raise StoreError(f"{name!r} has {len(vector)} values; the views have {sum(sizes)}")
    return iter(np.split(vector, np.cumsum(sizes)))


@dataclass(frozen=True, eq=False)
class TrainingViews:
    """The data sets of an embedding, with their training rows."""

    views: tuple[FittedView, ...]

    def variables(self) -> dict[str, Variable]:
        """Training rows, view after view: all values, and for sparse rows their columns and where rows begin; and
        grids."""
        kept = [view.rows for view in self.views if view.rows is not None]
        sparse = [rows for rows in kept if isinstance(rows, sp.csr_array)]
        values: list[Any] = [(rows.data if isinstance(rows, sp.csr_array) else rows).ravel() for rows in kept]
        grids = dict[str, Variable]()
        for number, view in enumerate(self.views):
            grids |= {} if view.grid is None else grid_variables(view.grid, of_view(number))
        return grids | {
            "reference_values": Variable(("reference_value",), _joined(values, np.float64)),
            "reference_columns": Variable(("reference_entry",), _joined([rows.indices for rows in sparse], np.int64)),
            "reference_starts": Variable(("reference_row",), _joined([rows.indptr for rows in sparse], np.int64)),
        }

    def json_values(self) -> dict[str, Any]:
        """All but the rows."""
        return {
            "views": [
                {
                    "name": view.name,
                    "shape": list(view.shape),
                    "features": None if view.features is None else np.asarray(view.features).astype(str).tolist(),
                    "kind": kind_of(view.features),
                    "dtype": None if view.rows is None else view.rows.dtype.str,
                    "entries": int(view.rows.nnz) if isinstance(view.rows, sp.csr_array) else None,
                    "grid": None if view.grid is None else grid_attributes(view.grid),
                    "units": None if view.units is None else view.units.tolist(),
                    "layer": view.layer,
                }
                for view in self.views
            ]
        }

    @classmethod
    def from_saved(cls, values: Values, saved: Values) -> TrainingViews:
        """The data sets that were kept as these.  Errors: StoreError."""
        kept = [view for view in saved["views"] if view["dtype"] is not None]
        sparse = [view for view in kept if view["entries"] is not None]
        sizes = [prod(view["shape"]) if view["entries"] is None else view["entries"] for view in kept]
        data = _cut(values, "reference_values", sizes)
        columns = _cut(values, "reference_columns", [view["entries"] for view in sparse])
        starts = _cut(values, "reference_starts", [view["shape"][0] + 1 for view in sparse])
        views = []
        for number, view in enumerate(saved["views"]):
            shape, rows = tuple(view["shape"]), cast(Any, None)
            if view["dtype"] is not None:
                rows = next(data).astype(view["dtype"])
                if view["entries"] is None:
                    rows = rows.reshape(shape)
                else:
                    rows = sp.csr_array((rows, next(columns), next(starts)), shape)
                    check_parts(rows, "the reference rows")
            features = None if view["features"] is None else np.asarray(view["features"]).astype(view["kind"])
            grid = read_grid(values, view["grid"], of_view(number)) if view["grid"] else None
            units = None if view["units"] is None else np.array(view["units"], dtype=np.float64)
            views.append(FittedView(view["name"], shape, rows, features, grid, units, view["layer"]))
        return cls(tuple(views))


@dataclass(frozen=True, eq=False, kw_only=True)
class Embedding(FittedModel):
    """Coordinates of the samples, and the data sets that they were made of; `separate` numbers the sets of samples
    that the graph of neighbours does not join."""

    coordinates: Array = stored("sample", "component", name="embedding")
    eigenvalues: Array = stored("component", name="smallest_eigenvalues")
    table: Table = stored("sample", "view", name="view_row")
    separate: Integers = stored("sample", name="separate_set")
    views: npt.NDArray[np.str_] = stored("view", name="view")
    component: Integers = stored("component")
    training: TrainingViews = part(saved_only=True)
    n_neighbors: int = attribute()
    eigen_solver: str = attribute()
    eigen_residual: float = attribute()
    predicted_fill: float = attribute()
    recall: tuple[float, ...] = attribute()

    def __post_init__(self) -> None:
        """Refuse what does not fit together.  Errors: StoreError."""
        views = self.training.views
        if self.table.shape[1] != len(views):
            raise StoreError(f"'view_row' has {self.table.shape[1]} columns for {len(views)} views")
        for view, rows in zip(views, self.table.T, strict=True):
            count = view.shape[0]
            if not np.array_equal(np.sort(rows[rows >= 0]), np.arange(count)) or (rows < -1).any():
                raise StoreError(f"'view_row' does not name each of the {count} rows of view {view.name!r} once")
        if len(self.recall) != len(views):
            raise StoreError(f"there are {len(self.recall)} recalls for {len(views)} views")

    def attributes(self, report: Report, passes: int) -> dict[str, Any]:
        """The attributes of `result_`."""
        return {
            "eigen_solver": self.eigen_solver,
            "eigen_residual": self.eigen_residual,
            "converged": report.converged,
            "neighbor_recall": list(self.recall),
        }

    def summary(self, samples: int) -> Summary:
        """How the eigenvectors were found, and the data sets."""
        rows = (self.table >= 0).sum(axis=0).tolist()
        sets = int(self.separate.max()) + 1
        return {
            "eigenvalues": self.eigenvalues,
            "eigen_solver": self.eigen_solver,
            "eigen_residual": self.eigen_residual,
            "separate_sets": sets,
            "neighbor_recall": self.recall,
            "embedding": {"dimensions": len(self.component), "neighbours": self.n_neighbors},
            "views": [
                {"view": view.name, "samples": count, "features": view.shape[1], "kept": view.rows is not None}
                for view, count in zip(self.training.views, rows, strict=True)
            ],
        }
