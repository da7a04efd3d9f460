"""What a fit of a model of several views returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlatent.arrays import AxisLabels, DataSource
from dlatent.errors import StoreError
from dlatent.fitted.grid import feature_words, grid_attributes, grid_variables, kind_of, of_view, restored_grid
from dlatent.fitted.linear import Labels, LinearGaussian, require_dims
from dlatent.fitted.stored import Values, part
from dlatent.gaussian.specification import slices_of
from dlatent.stores.schema import Variable


@dataclass(frozen=True, eq=False)
class ViewLabels(Labels):
    """The names of the features of each view, beside those of all of them; `sizes` are the numbers of features."""

    views: Mapping[str, AxisLabels]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, sources: Mapping[str, DataSource]) -> ViewLabels:
        """The labels of data."""
        return cls.joined({name: own.labels for name, own in sources.items()}, [s.shape[1] for s in sources.values()])

    @classmethod
    def joined(cls, views: Mapping[str, AxisLabels], sizes: Any) -> ViewLabels:
        """The labels of views, of all features as texts where some have any."""
        features = None
        if any(own.features is not None for own in views.values()):
            each = zip(views.values(), sizes, strict=True)
            texts = [np.arange(size) if own.features is None else own.features for own, size in each]
            features = np.concatenate([np.asarray(names).astype(str) for names in texts])
        return cls(AxisLabels(features=features), views, tuple(sizes))

    def variables(self) -> dict[str, Variable]:
        """The names, the view of each feature, and the arrays of the grids."""
        views = Variable(("feature",), np.repeat(np.array(list(self.views)), self.sizes))
        arrays = super().variables() | {"feature_view": views}
        for number, own in enumerate(self.views.values()):
            arrays |= grid_variables(own.grid, of_view(number)) if own.grid else {}
        return arrays

    def facts(self) -> dict[str, Any]:
        """What else is known of each view."""
        return {"views": [
            {"name": name, "size": size, "dims": own.dims, "kind": kind_of(own.features),
             "grid": grid_attributes(own.grid) if own.grid else None}
            for (name, own), size in zip(self.views.items(), self.sizes, strict=True)
        ]}  # fmt: skip

    @classmethod
    def restored(cls, values: Values, saved: Values) -> ViewLabels:
        """The labels that were kept as these.  Errors: StoreError."""
        sizes, views = [view["size"] for view in saved["views"]], dict[str, AxisLabels]()
        if any(type(size) is not int for size in sizes):
            raise StoreError(f"the views have {sizes} features, which no fit leaves")
        if values["feature_view"].tolist() != [view["name"] for view in saved["views"] for _ in range(view["size"])]:
            raise StoreError(f"'feature_view' does not say of which views the features are; these have {sizes}")
        for number, (view, at) in enumerate(zip(saved["views"], slices_of(sizes), strict=True)):
            features = values["feature"][at].astype(view["kind"]) if view["kind"] else None
            grid = restored_grid(values, view["grid"], of_view(number)) if view["grid"] else None
            views[view["name"]] = AxisLabels(require_dims(view["dims"]), None, features, grid=grid)
        return cls.joined(views, sizes)


@dataclass(frozen=True, eq=False, kw_only=True)
class JointGaussian(LinearGaussian):
    """x_v = W_v z + μ_v + ε_v for each view v, whose features are stacked, view after view; targets are the last."""

    labels: ViewLabels = part()

    def __post_init__(self) -> None:
        """Refuse what does not fit together.  Errors: StoreError."""
        if sum(self.view_sizes) != len(self.mean):
            raise StoreError(f"the views have {self.view_sizes} features, but the model has {len(self.mean)} in all")
        if list(self.labels.views) != self.views.tolist()[: len(self.view_sizes)]:
            raise StoreError(f"the views are {self.views.tolist()}, and their labels those of {[*self.labels.views]}")
        super().__post_init__()

    @property
    def view_sizes(self) -> tuple[int, ...]:
        """Numbers of features of the views that are no targets."""
        return self.labels.sizes

    @property
    def features_variance(self) -> float:
        """The variance of all features in all."""
        return float(np.dot(self.total_variance[: len(self.view_sizes)], self.view_sizes))

    def feature_words(self) -> Any:
        """What to call each of the features."""
        views = zip(self.labels.views.items(), self.view_sizes, strict=True)
        return [f"{view} {name}" for (view, own), size in views for name in feature_words(own, size)]
