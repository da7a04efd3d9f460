"""The names of the features as the data of a fit had them, of one table or of several views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dlatent.arrays import AxisLabels
from dlatent.errors import StoreError
from dlatent.fitted.grid import display_names, grid_attributes, grid_variables, kind_of, of_view, read_grid
from dlatent.fitted.stored import Values
from dlatent.gaussian.specification import slices_of
from dlatent.stores.schema import Variable


@dataclass(frozen=True, eq=False)
class Labels:
    """The names of the features of one table; a grid has coordinates of its users' names."""

    known: AxisLabels

    def variables(self) -> dict[str, Variable]:
        """The names, and the arrays of the grid."""
        return _names(self.known) | (grid_variables(self.known.grid) if self.known.grid else {})

    def json_values(self) -> dict[str, Any]:
        """The dimensions, and what else a grid is."""
        return {"dims": self.known.dims, "grid": grid_attributes(self.known.grid) if self.known.grid else None}

    def view_sizes(self, width: int) -> tuple[int, ...]:
        """All features are one view."""
        return (width,)

    def display_names(self, width: int) -> Any:
        """Names of the features."""
        return display_names(self.known, width)

    @classmethod
    def from_saved(cls, values: Values, saved: Values) -> Labels:
        """The labels that were kept as these.  Errors: StoreError."""
        grid = read_grid(values, saved["grid"]) if saved["grid"] else None
        return cls(AxisLabels(require_dims(saved["dims"]), None, values.pop("feature", None), grid=grid))


def _names(known: AxisLabels) -> dict[str, Variable]:
    """The names, where the features have any."""
    return {} if known.features is None else {"feature": Variable(("feature",), np.asarray(known.features))}


def require_dims(dims: Any) -> tuple[str, str]:
    """The names of two dimensions that were kept.  Errors: StoreError."""
    if len(dims) != 2 or not all(isinstance(name, str) for name in dims):
        raise StoreError(f"the attribute 'dims' is {dims!r}, which no fit leaves")
    return dims[0], dims[1]


@dataclass(frozen=True, eq=False)
class ViewLabels:
    """The names of the features of each view; `sizes` are the numbers of features."""

    views: Mapping[str, AxisLabels]
    sizes: tuple[int, ...]

    @cached_property
    def known(self) -> AxisLabels:
        """The labels of all features, as texts where some have any."""
        features = None
        if any(labels.features is not None for labels in self.views.values()):
            each = zip(self.views.values(), self.sizes, strict=True)
            texts = [np.arange(size) if labels.features is None else labels.features for labels, size in each]
            features = np.concatenate([np.asarray(names).astype(str) for names in texts])
        return AxisLabels(features=features)

    def variables(self) -> dict[str, Variable]:
        """The names, the view of each feature, and the arrays of the grids."""
        view = Variable(("feature",), np.repeat(np.array(list(self.views)), self.sizes))
        arrays = _names(self.known) | {"feature_view": view}
        for number, labels in enumerate(self.views.values()):
            arrays |= grid_variables(labels.grid, of_view(number)) if labels.grid else {}
        return arrays

    def json_values(self) -> dict[str, Any]:
        """Name, size, dimensions and grid of each view."""
        return {"views": [
            {"name": name, "size": size, "dims": labels.dims, "kind": kind_of(labels.features),
             "grid": grid_attributes(labels.grid) if labels.grid else None}
            for (name, labels), size in zip(self.views.items(), self.sizes, strict=True)
        ]}  # fmt: skip

    def view_sizes(self, width: int) -> tuple[int, ...]:
        """The numbers of features of the views."""
        return self.sizes

    def display_names(self, width: int) -> Any:
        """Names of the features, each after the name of its view."""
        views = zip(self.views.items(), self.sizes, strict=True)
        return [f"{view} {name}" for (view, labels), size in views for name in display_names(labels, size)]

    @classmethod
    def from_saved(cls, values: Values, saved: Values) -> ViewLabels:
        """The labels that were kept as these.  Errors: StoreError."""
        sizes, views = [view["size"] for view in saved["views"]], dict[str, AxisLabels]()
        if any(type(size) is not int for size in sizes):
            raise StoreError(f"the views have {sizes} features, which no fit leaves")
        names, views_of = values.pop("feature", None), values.pop("feature_view").tolist()
        if views_of != [view["name"] for view in saved["views"] for _ in range(view["size"])]:
            raise StoreError(f"'feature_view' does not say of which views the features are; these have {sizes}")
        for number, (view, at) in enumerate(zip(saved["views"], slices_of(sizes), strict=True)):
            features = names[at].astype(view["kind"]) if view["kind"] else None
            grid = read_grid(values, view["grid"], of_view(number)) if view["grid"] else None
            views[view["name"]] = AxisLabels(require_dims(view["dims"]), None, features, grid=grid)
        return cls(views, tuple(sizes))


FeatureLabels = Labels | ViewLabels
