"""Fitted linear-Gaussian models, of one table or of several views."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array, Integers
from dlatent.errors import StoreError
from dlatent.fitted.between import Edges, Entries, Smoothed
from dlatent.fitted.fit import FittedModel, Summary, component_summaries, noise_summary
from dlatent.fitted.observations import Observed
from dlatent.fitted.parts import EstimatedHead, FeatureLabels, Targets, ViewLabels
from dlatent.fitted.rows import Complete, MissingEntries, Rows, positive
from dlatent.fitted.stored import attribute, json_values, part, stored, variables
from dlatent.fitted.view_heads import ViewHeads
from dlatent.gaussian.classes import ClassRule
from dlatent.gaussian.head import Head, LabelRule
from dlatent.gaussian.specification import Parameters, Specification, View
from dlatent.gaussian.stack import Stack
from dlatent.gaussian.view_heads import ViewHead
from dlatent.stores.schema import Variable


@dataclass(frozen=True, eq=False)
class SharedNoise:
    """A noise variance for each view; with `fixed` they are not estimated, but the floors."""

    variance: Array = stored("view", name="noise_variance")
    floor: Array = stored("view", name="noise_floor")
    at_floor: Array = stored("view", name="at_floor")
    fixed: bool = attribute(default=False)


@dataclass(frozen=True, eq=False)
class FeatureNoise:
    """A noise variance for each feature."""

    variance: Array = stored("feature", name="feature_noise_variance")
    floor: Array = stored("feature", name="feature_noise_floor")
    at_floor: Array = stored("feature", name="feature_at_floor")


@dataclass(frozen=True, eq=False, kw_only=True)
class Linear(FittedModel):
    """x = Wz + μ + ε for features or their coordinates, with targets y = W_y z + μ_y + ε_y where there are some.

    Where entries are not normal about Wz + μ, `entries` says how they are distributed.
    With a `factor_correlation` LLᵀ the loadings are those of factors f = Lz that correlate.  With `units` the fit was
    that of x/units; then a noise variance that features share, and covariances that all loadings share, are in these
    units, and everything else is in those of the features.
    """

    loadings: Array = stored("feature", "component")
    mean: Array = stored("feature")
    noise: SharedNoise | FeatureNoise = part()
    views: npt.NDArray[np.str_] = stored("view", name="view")
    component: Integers = stored("component")
    view_samples: Integers = stored("view")
    total_variance: Array = stored("view")
    patterns: tuple[tuple[int, ...], ...] = attribute()
    missing: bool = attribute()
    row_effects: bool = attribute()
    labels: FeatureLabels = part()
    loadings_covariance: Array | None = stored("feature", "component_pair", default=None)
    common_loadings_covariance: Array | None = stored("component_pair", default=None)
    mean_variance: Array | None = stored("feature", default=None)
    units: Array | None = stored("feature", name="feature_scale", default=None)
    factor_correlation: Array | None = stored("component", "component_2", default=None)
    targets: Targets | None = part(default=None)
    entries: Observed | None = part(default=None)

    def __post_init__(self) -> None:
        """Refuse what does not fit together.  Errors: StoreError."""
        sizes, views, patterns = self.specification.sizes, range(len(self.views)), self.patterns
        if min(sizes, default=0) < 1:
            raise StoreError(f"the views have {sizes} features")
        if self.specification.n_components < 1:
            raise StoreError("the model has no component")
        named = {view for pattern in patterns for view in pattern}
        in_order = all(pattern and list(pattern) == sorted(set(pattern)) for pattern in patterns)
        if not in_order or named != set(views) or len(set(patterns)) != len(patterns):
            raise StoreError(
                f"the patterns {patterns} do not say which of {len(views)} views samples have, each once, in order"
            )
        spread, (features, k) = self.loadings_covariance, self.loadings.shape
        if self.common_loadings_covariance is not None:
            spread = self.common_loadings_covariance[None]
        if spread is not None and (spread.shape[1] != k * (k + 1) // 2 or len(spread) not in (1, features)):
            raise StoreError(f"covariances of the loadings have shape {spread.shape}, and these {self.loadings.shape}")

    @property
    def axes(self) -> Array | None:
        """L (K, K), factors that correlate as combinations f = Lz of independent ones."""
        return None if self.factor_correlation is None else np.asarray(np.linalg.cholesky(self.factor_correlation))

    @property
    def fitted_loadings(self) -> Array:
        """The loadings in the units of the fit."""
        return self.loadings if self.units is None else np.asarray(self.loadings / self.units[:, None])

    @property
    def lengths(self) -> Array:
        """How long the loadings of each component are (K,), in the units of the fit, of a level of the rows how far it
        moves each feature: what a latent variable is multiplied by to be a score in these units."""
        lengths = np.linalg.norm(self.fitted_loadings, axis=0)
        if self.row_effects:
            lengths[-1] /= np.sqrt(len(self.loadings))
        return np.asarray(lengths)

    @cached_property
    def parameters(self) -> Parameters:
        """Those of all views, stacked, on independent factors, in the units of the data."""
        if self.units is None or isinstance(self.noise, FeatureNoise):
            return self._stacked
        units = np.concatenate([self.units, np.ones(len(self._stacked.mean) - len(self.units))])
        stacked, noise = self._stacked, self.noise.variance
        views = len(self.view_sizes)
        each = np.concatenate([np.repeat(noise[:views], self.view_sizes) * self.units**2, noise[views:]])
        spread, common = stacked.loadings_covariance, self.common_loadings_covariance
        return stacked._replace(
            noise_variance=each, loadings_covariance=spread if common is None else common * units[:, None] ** 2
        )

    @property
    def start(self) -> Parameters:
        """The start of a warm start: the parameters in the units of the fit."""
        if self.units is None:
            return self._stacked
        stacked = self.parameters
        back = np.concatenate([1.0 / self.units, np.ones(len(stacked.mean) - len(self.units))])
        fitted = stacked.rescaled(back, back[self.specification.group_starts])
        return fitted._replace(noise_variance=self.noise.variance) if isinstance(self.noise, SharedNoise) else fitted

    @cached_property
    def _stacked(self) -> Parameters:
        spread, targets, noise = self.loadings_covariance, self.targets, self.noise.variance
        if self.common_loadings_covariance is not None:
            spread = self.common_loadings_covariance[None]
        loadings = self.loadings if self.axes is None else self.loadings @ self.axes
        if targets is None:
            own = (None, None) if self.entries is None else (self.entries.shape, self.entries.effects)
            return Parameters(loadings, self.mean, noise, spread, self.mean_variance, *own)
        if targets.rank_loadings_covariance is not None and self.loadings_covariance is not None:
            spread = np.vstack([self.loadings_covariance, targets.rank_loadings_covariance])
        stacked = np.vstack([loadings, targets.rank_loadings]), np.concatenate([self.mean, targets.rank_mean])
        return Parameters(*stacked, noise, spread)

    @property
    @abstractmethod
    def rows(self) -> Rows:
        """Functions of single rows."""

    @property
    def dimension(self) -> int:
        """The number of features that share the noise."""
        return len(self.mean)

    @property
    def columns(self) -> int:
        """The number of features in a row."""
        return len(self.mean)

    @property
    @abstractmethod
    def row_precision(self) -> float:
        """The precision of a row by itself, by which covariances are divided.  Errors: DataError where it is 0."""

    @abstractmethod
    def told(self) -> Summary:
        """The part of the summary that only this family of models has."""

    @abstractmethod
    def display_names(self) -> Any:
        """Names of the features; nothing where they are never written down."""

    @property
    def view_sizes(self) -> tuple[int, ...]:
        """Numbers of features of the views that are no targets."""
        return self.labels.view_sizes(len(self.mean))

    @cached_property
    def specification(self) -> Specification:
        """The views with their floors, and the patterns, of `parameters`."""
        fitted = self.fitted_specification
        if self.units is None or not fitted.views[0].shared:
            return fitted
        views = list(fitted.views)
        for number in range(len(self.view_sizes)):
            floor = np.asarray(views[number].floor) * self.units[fitted.slices[number]] ** 2
            views[number] = replace(views[number], floor=tuple(floor.tolist()), shared=False)
        return replace(fitted, views=tuple(views))

    @cached_property
    def fitted_specification(self) -> Specification:
        """The same in the units of the fit."""
        shared, floor = isinstance(self.noise, SharedNoise), self.noise.floor
        fixed = isinstance(self.noise, SharedNoise) and self.noise.fixed
        sizes = self.view_sizes + (() if self.targets is None else (len(self.targets.rank_mean),))
        cuts = np.cumsum(sizes)[:-1].tolist()
        floors = floor.tolist() if shared else [tuple(each.tolist()) for each in np.split(floor, cuts)]
        views = zip(self.views.tolist(), sizes, floors, strict=True)
        tuple_of_views = tuple(View(name, size, least, shared=shared, fixed=fixed) for name, size, least in views)
        return Specification(tuple_of_views, self.patterns, self.loadings.shape[1], self.row_effects)

    @property
    def features(self) -> slice:
        """Those of all stacked features that are no targets."""
        return slice(0, sum(self.view_sizes))

    def summary(self, samples: int) -> Summary:
        """The noise of each view, where features have their own its mean; each component, with the features of the
        largest loadings; and what a family tells beside."""
        noise, fitted = self.noise, self.fitted_specification
        views = zip(fitted.views, fitted.noise_slices, strict=True)
        lines = [
            noise_summary(view.name, noise.variance[at], noise.at_floor[at], int(seen), shared=view.shared)
            for (view, at), seen in zip(views, self.view_samples, strict=True)
        ]
        sizes = self.view_sizes if len(self.view_sizes) > 1 else (self.dimension,)
        variance = float(np.dot(self.total_variance[: len(sizes)], sizes))
        components = component_summaries(self.fitted_loadings, self.display_names(), variance)
        common: Summary = {"features": self.columns, "noise": lines, "components": components}
        return common | ({} if self.targets is None else {"targets": self.targets.names}) | self.told()

    def predictor(self) -> ClassRule | LabelRule | Stack | Head:
        """The predictor of targets from rows: a rule for classes or labels, or a head for numbers."""
        targets = self.targets
        assert targets is not None
        if targets.head is not None:
            return targets.head.head
        if targets.kind == "multilabel":
            head = self.output_head()
            return LabelRule(head._replace(noise=head.noise * self.row_precision), self.row_precision)
        if not targets.classes:
            return self.output_head()
        table, noise = targets.encoding.table(), float(self.noise.variance[-1])
        rank = targets.rank_loadings, targets.rank_mean
        return ClassRule.of(table, targets.centre, *rank, noise, self.row_precision)

    def output_head(self) -> Head:
        """The head that predicts the means of outputs; those of classes and labels, as indicators, by the
        likelihood."""
        targets = self.targets
        assert targets is not None
        if isinstance(targets.head, EstimatedHead):
            return targets.head.head
        noise = float(self.noise.variance[-1]) * (targets.rotation**2).sum(axis=1) / self.row_precision
        return Head.of_view(targets.loadings, targets.mean, noise)


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearGaussian(Linear):
    """x = Wz + μ + ε for the features of a table; samples may be joined by a graph."""

    between: Smoothed | Edges | Entries | None = part(default=None)

    @cached_property
    def rows(self) -> Rows:
        """Functions of single rows, which have no edges."""
        if self.entries is not None:
            return self.entries.rows(self.parameters, self.specification)
        if self.missing:
            return MissingEntries(self.parameters, self.specification)
        precision = 1.0 if self.between is None else self.between.isolated
        return Complete(self.parameters, self.specification, precision)

    def in_data_units(self, units: Array) -> Self:
        """The model of features x, of a fit to x/units."""
        noise, spread, variance = self.noise, self.loadings_covariance, self.mean_variance
        targets = None if self.targets is None else self.targets.in_data_units(units)
        if isinstance(noise, FeatureNoise):
            noise = FeatureNoise(noise.variance * units**2, noise.floor * units**2, noise.at_floor)
        return replace(
            self,
            loadings=self.loadings * units[:, None],
            mean=self.mean * units,
            noise=noise,
            loadings_covariance=None if spread is None else spread * units[:, None] ** 2,
            mean_variance=None if variance is None else variance * units**2,
            targets=targets,
            units=units,
        )

    def told(self) -> Summary:
        """The distribution of entries, the graph, or the precision between samples."""
        if self.between is None:
            return {} if self.entries is None else self.entries.told()
        numbers = {name: value for name, value in json_values(self.between).items() if isinstance(value, int | float)}
        compared = {name: each.values.tolist() for name, each in variables(self.between).items()}
        name = "precision" if isinstance(self.between, Entries) else "graph"
        return {name: numbers | ({"compared": compared} if compared else {})}

    @property
    def row_precision(self) -> float:
        """The precision of a row by itself, by which covariances are divided.  Errors: DataError where it is 0."""
        return 1.0 if self.between is None else positive(self.between.isolated)

    def display_names(self) -> Any:
        """Names of the features."""
        return self.labels.display_names(len(self.mean))


@dataclass(frozen=True, eq=False, kw_only=True)
class JointGaussian(LinearGaussian):
    """x_v = W_v z + μ_v + ε_v for each view v, whose features are stacked, view after view; targets are the last."""

    labels: ViewLabels = part()
    heads: ViewHeads | None = part(default=None, saved_only=True)

    def __post_init__(self) -> None:
        """Refuse what does not fit together.  Errors: StoreError."""
        if sum(self.view_sizes) != len(self.mean):
            raise StoreError(f"the views have {self.view_sizes} features, but the model has {len(self.mean)} in all")
        if list(self.labels.views) != self.views.tolist()[: len(self.view_sizes)]:
            raise StoreError(f"the views are {self.views.tolist()}, and their labels those of {[*self.labels.views]}")
        if self.heads is not None:
            self.heads.require_sizes(self.view_sizes)
        super().__post_init__()

    @property
    def explained(self) -> Array:
        """The share of the variance of each view, the targets last, that each component explains (views, K)."""
        squares = [(self.start.loadings[at] ** 2).sum(axis=0) for at in self.specification.slices]
        return np.asarray(squares / (self.total_variance * self.specification.sizes)[:, None])

    def head_of(self, given: int, other: int) -> ViewHead | None:
        """What tells a view from another, by their numbers; None where that is the likelihood."""
        head = None if self.heads is None else self.heads.each.get((given, other))
        if head is None or self.units is None:
            return head
        return head.in_data_units(*(self.units[self.specification.slices[view]] for view in (given, other)))

    def derived(self) -> dict[str, Variable]:
        """The shares of variance."""
        return {"explained_variance_ratio": Variable(("view", "component"), self.explained)}


def with_holes(fitted: Linear, values: str) -> Rows:
    """Functions of rows with missing entries, of a model of complete data."""
    if fitted.entries is not None:
        return replace(fitted.entries, values=values).rows(fitted.parameters, fitted.specification)
    return MissingEntries(fitted.parameters, fitted.specification)
