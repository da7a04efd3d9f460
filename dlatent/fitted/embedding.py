"""What locally linear embedding returns: coordinates of the samples, and the data sets that they were made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, Features, Grid, Integers
from dlatent.containers import check_parts
from dlatent.errors import StoreError
from dlatent.fitted.facts import Facts
from dlatent.fitted.fit import FittedModel, Report
from dlatent.fitted.grid import grid_attributes, grid_variables, kind_of, of_view, restored_grid
from dlatent.fitted.stored import Values, fact, part, stored
from dlatent.stores.joint import Table
from dlatent.stores.schema import Variable


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


def _joined(parts: Any, dtype: Any) -> Any:
    """One vector; float64 holds float32 exactly."""
    return np.concatenate([np.zeros(0, dtype=dtype), *(np.asarray(part, dtype=dtype) for part in parts)])


def restored_views(values: Values, descriptions: list[dict[str, Any]]) -> tuple[FittedView, ...]:
    """The data sets of a saved model.  Errors: StoreError for rows that no view has."""
    at = entry = start = 0
    views = []
    for number, view in enumerate(descriptions):
        shape = tuple(view["shape"])
        rows: Features | None = None
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
        saved = view["grid"]
        grid = restored_grid(values, saved, of_view(number)) if saved else None
        views.append(FittedView(view["name"], shape, rows, features, grid))
    used = {"reference_values": at, "reference_columns": entry, "reference_starts": start}
    wrong = [name for name, count in used.items() if len(values[name]) != count]
    if wrong:
        raise StoreError(f"{wrong[0]!r} has {len(values[wrong[0]])} values; the views have {used[wrong[0]]}")
    return tuple(views)


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

    def facts(self) -> dict[str, Any]:
        """All but the rows."""
        return {"views": [view.description for view in self.views]}

    @classmethod
    def restored(cls, values: Values, saved: Values) -> TrainingViews:
        """The data sets that were kept as these.  Errors: StoreError."""
        return cls(restored_views(values, saved["views"]))


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
    training: TrainingViews = part(whole=True)
    n_neighbors: int = fact()
    eigen_solver: str = fact()
    eigen_residual: float = fact()
    predicted_fill: float = fact()
    recall: tuple[float, ...] = fact()

    def __post_init__(self) -> None:
        """Refuse what does not fit together.  Errors: StoreError."""
        check_table(self.table, self.training.views)
        if len(self.recall) != len(self.training.views):
            raise StoreError(f"there are {len(self.recall)} recalls for {len(self.training.views)} views")

    def attributes(self, report: Report, passes: int) -> dict[str, Any]:
        """What `result_` says of the fit."""
        return {
            "eigen_solver": self.eigen_solver,
            "eigen_residual": self.eigen_residual,
            "converged": report.converged,
            "neighbor_recall": list(self.recall),
        }

    def summary(self, samples: int) -> Facts:
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

    def words(self, samples: int, lines: dict[str, str]) -> dict[str, str]:
        """The neighbours, the eigenvectors, and whether the graph hangs together."""
        sets = int(self.separate.max()) + 1
        return {
            "embedding": f"{samples:,} samples in {len(self.component)} dimensions",
            "neighbours": f"{self.n_neighbors} of each sample",
            "eigenvalues": ", ".join(f"{value:.3g}" for value in self.eigenvalues),
            "eigenvectors": f"{self.eigen_solver}, known to {self.eigen_residual:.1e} of the eigenvalues",
            **lines,
            "graph": "hangs together" if sets == 1 else f"falls apart into {sets} sets",
        }
