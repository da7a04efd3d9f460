"""Parts of fitted models: the names of the features as the data of a fit had them, and the targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array, AxisLabels
from dlatent.errors import StoreError
from dlatent.fitted.features import display_names
from dlatent.fitted.grid import grid_attributes, grid_variables, kind_of, of_view, read_grid
from dlatent.fitted.stored import Values, attribute, part, stored
from dlatent.fitted.targets import TargetEncoding
from dlatent.gaussian.head import Head
from dlatent.gaussian.specification import Parameters, slices_of
from dlatent.gaussian.stack import Stack
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
        grid = grid_attributes(self.known.grid) if self.known.grid else None
        return {"dims": self.known.dims, "grid": grid, "layer": self.known.layer}

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
        dims, names, covariates = (
            require_dims(saved["dims"]),
            values.pop("feature", None),
            values.pop("covariate", None),
        )
        return cls(AxisLabels(dims, None, names, grid=grid, layer=saved["layer"], covariates=covariates))


def _names(known: AxisLabels) -> dict[str, Variable]:
    """The names, where features and covariates have any."""
    names = {"feature": known.features, "covariate": known.covariates}
    return {name: Variable((name,), np.asarray(each)) for name, each in names.items() if each is not None}


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
             "grid": grid_attributes(labels.grid) if labels.grid else None, "layer": labels.layer}
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
            dims, layer = require_dims(view["dims"]), view["layer"]
            views[view["name"]] = AxisLabels(dims, None, features, grid=grid, layer=layer)
        return cls(views, tuple(sizes))


FeatureLabels = Labels | ViewLabels


@dataclass(frozen=True, eq=False)
class EstimatedHead:
    """The predictor of numbers from scores and features, where it was estimated after the fit."""

    coefficients: Array = stored("component", "target", name="head_coefficients")
    offset: Array = stored("target", name="head_offset")
    noise_variance: Array = stored("target", name="head_noise_variance")
    feature_coefficients: Array | None = stored("feature", "target", name="head_feature_coefficients")

    @property
    def head(self) -> Head:
        """The head as the mathematics has it."""
        return Head(self.coefficients, self.offset, self.noise_variance, self.feature_coefficients)


@dataclass(frozen=True, eq=False)
class EstimatedStack:
    """The rules that tell classes or labels from scores, with their weights, where they were estimated after the
    fit."""

    coefficients: Array = stored("rule", "component", "target", name="rule_coefficients")
    offset: Array = stored("rule", "target", name="rule_offset")
    lengths: Array = stored("rule", "component", "component_2", name="rule_lengths")
    weights: Array = stored("rule", "target", name="rule_weights")
    classes: bool = attribute()
    feature_coefficients: Array | None = stored("feature", "target", name="head_feature_coefficients")

    @property
    def head(self) -> Stack:
        """The rules as the mathematics has them."""
        rules = self.coefficients, self.offset, self.lengths, self.weights
        return Stack(*rules, self.classes, self.feature_coefficients)


@dataclass(frozen=True, eq=False)
class Targets:
    """The last view: targets on their rank, how they are encoded, and what predicts them."""

    kind: str = attribute()
    rank_loadings: Array = stored("target_rank", "component")
    rank_mean: Array = stored("target_rank")
    centre: Array = stored("target", name="target_centre")
    rotation: Array = stored("target", "target_rank", name="target_rotation")
    names: npt.NDArray[Any] = stored("target", name="target")
    loadings: Array = stored("target", "component", name="target_loadings")
    mean: Array = stored("target", name="target_mean")
    rank_loadings_covariance: Array | None = stored("target_rank", "component_pair", default=None)
    head: EstimatedHead | EstimatedStack | None = part(default=None)
    name: str | None = attribute(default=None)
    attrs: dict[str, Any] | None = attribute(default=None)

    @classmethod
    def of(cls, encoding: TargetEncoding, parameters: Parameters, view: slice) -> Targets:
        """The targets of a fit, which are a view of the stacked features."""
        loadings, mean = parameters.loadings[view], parameters.mean[view]
        return cls(
            encoding.kind,
            loadings,
            mean,
            encoding.centre,
            encoding.rotation,
            np.asarray(encoding.names),
            encoding.rotation @ loadings,
            encoding.decode(mean),
            parameters.covariance_of(view),
            name=encoding.name,
            attrs=dict(encoding.attrs),
        )

    @property
    def classes(self) -> bool:
        """Whether the targets are classes."""
        return self.kind == "class"

    def in_data_units(self, units: Array) -> Targets:
        """The targets of features x, of a fit to x/units."""
        if self.head is None or self.head.feature_coefficients is None:
            return self
        coefficients = self.head.feature_coefficients / units[:, None]
        return replace(self, head=replace(self.head, feature_coefficients=coefficients))

    @property
    def labels(self) -> bool:
        """Whether the targets are classes or labels of 0 and 1, which have probabilities."""
        return self.kind != "regression"

    @cached_property
    def encoding(self) -> TargetEncoding:
        """How targets are encoded."""
        return TargetEncoding(self.kind, self.centre, self.rotation, self.names, self.names if self.classes else None)
