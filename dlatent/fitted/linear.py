"""Fitted linear-Gaussian models, of one table or of several views."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array, Integers
from dlatent.errors import StoreError
from dlatent.fitted.fit import FittedModel, Summary, component_summaries, noise_summary
from dlatent.fitted.parts import FeatureLabels, Targets, ViewLabels
from dlatent.fitted.rows import Complete, MissingEntries, RowFunction, Rows, Turned, positive
from dlatent.fitted.stored import attribute, json_values, part, stored, variables
from dlatent.gaussian.classes import ClassRule
from dlatent.gaussian.head import Head
from dlatent.gaussian.specification import Parameters, Specification, View


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


@dataclass(frozen=True, eq=False)
class Compared:
    """Results of each strength of smoothing that was compared."""

    smoothing: Array = stored("smoothing")
    correlation: Array = stored("smoothing", name="smoothing_correlation")
    error: Array = stored("smoothing", name="smoothing_error")


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Rows were smoothed over a graph with λ; a row is itself a sample."""

    smoothing: float = attribute()
    hops: int = attribute()
    edges: int = attribute()
    compared: Compared | None = part(default=None)
    isolated: ClassVar[float] = 1.0
    """The precision of a row by itself."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.smoothing < np.inf or self.hops < 1:
            raise StoreError(f"rows were smoothed with λ = {self.smoothing} over {self.hops} hops, which no fit does")


@dataclass(frozen=True, eq=False)
class Edges:
    """A graph makes the precision Δ = γI + (αI + A)² between the samples, whose rank is known."""

    alpha: float = attribute()
    gamma: float = attribute()
    edges: int = attribute()
    rank: int = attribute()

    def __post_init__(self) -> None:
        if not 0.0 <= self.isolated < np.inf:
            raise StoreError(f"a sample without edges has the precision {self.isolated}, which no fit leaves")

    @property
    def isolated(self) -> float:
        """Δ_ii of a sample without edges, γ + α²."""
        return self.gamma + self.alpha**2


@dataclass(frozen=True, eq=False)
class Entries:
    """A precision between the samples was given, of so many stored entries and this rank."""

    entries: int = attribute()
    rank: int = attribute()
    isolated: ClassVar[float] = 1.0
    """The precision of a sample beside those of the fit."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Linear(FittedModel):
    """x = Wz + μ + ε for features or their coordinates, with targets y = W_y z + μ_y + ε_y where there are some.

    With a `factor_correlation` LLᵀ the loadings are those of factors f = Lz that correlate.
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
    factor_correlation: Array | None = stored("component", "component_2", default=None)
    targets: Targets | None = part(default=None)

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

    @cached_property
    def parameters(self) -> Parameters:
        """Those of all views, stacked, on independent factors."""
        spread, targets, noise = self.loadings_covariance, self.targets, self.noise.variance
        if self.common_loadings_covariance is not None:
            spread = self.common_loadings_covariance[None]
        loadings = self.loadings if self.axes is None else self.loadings @ self.axes
        if targets is None:
            return Parameters(loadings, self.mean, noise, spread, self.mean_variance)
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
        """The views with their floors, and the patterns."""
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
        noise, views = self.noise, zip(self.specification.views, self.specification.noise_slices, strict=True)
        lines = [
            noise_summary(view.name, noise.variance[at], noise.at_floor[at], int(seen), shared=view.shared)
            for (view, at), seen in zip(views, self.view_samples, strict=True)
        ]
        sizes = self.view_sizes if len(self.view_sizes) > 1 else (self.dimension,)
        variance = float(np.dot(self.total_variance[: len(sizes)], sizes))
        components = component_summaries(self.loadings, self.display_names(), variance)
        common: Summary = {"features": self.columns, "noise": lines, "components": components}
        return common | ({} if self.targets is None else {"targets": self.targets.names}) | self.told()

    def predictor(self) -> ClassRule | Head:
        """The predictor of targets from rows: a rule for classes, or a head for other targets."""
        targets = self.targets
        assert targets is not None
        if targets.head is not None:
            return targets.head.head
        if not targets.classes:
            return self.output_head()
        table, noise = targets.encoding.table(), float(self.noise.variance[-1])
        rank = targets.rank_loadings, targets.rank_mean
        return ClassRule.of(table, targets.centre, *rank, noise, self.row_precision)

    def output_head(self) -> Head:
        """The head that predicts the means of outputs, those of classes as indicators."""
        targets = self.targets
        assert targets is not None
        if targets.head is not None and not targets.classes:
            return targets.head.head
        noise = float(self.noise.variance[-1]) * (targets.rotation**2).sum(axis=1) / self.row_precision
        return Head.of_view(targets.loadings, targets.mean, noise)

    @property
    def start(self) -> Parameters:
        """The start of a warm start."""
        return self.parameters

    def of_factors(self, rows: RowFunction) -> RowFunction:
        """Scores of the factors, from those of independent ones."""
        return rows if self.axes is None else Turned(rows, self.axes)


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearGaussian(Linear):
    """x = Wz + μ + ε for the features of a table; samples may be joined by a graph."""

    between: Smoothed | Edges | Entries | None = part(default=None)

    @cached_property
    def rows(self) -> Rows:
        """Functions of single rows, which have no edges."""
        if self.missing:
            return MissingEntries(self.parameters, self.specification)
        precision = 1.0 if self.between is None else self.between.isolated
        return Complete(self.parameters, self.specification, precision)

    def told(self) -> Summary:
        """The graph, or the precision between samples."""
        if self.between is None:
            return {}
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

    def __post_init__(self) -> None:
        """Refuse what does not fit together.  Errors: StoreError."""
        if sum(self.view_sizes) != len(self.mean):
            raise StoreError(f"the views have {self.view_sizes} features, but the model has {len(self.mean)} in all")
        if list(self.labels.views) != self.views.tolist()[: len(self.view_sizes)]:
            raise StoreError(f"the views are {self.views.tolist()}, and their labels those of {[*self.labels.views]}")
        super().__post_init__()
