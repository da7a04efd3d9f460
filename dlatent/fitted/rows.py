"""Scores, likelihood and predictions of single rows by a fitted model; they travel to the rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, TypeGuard

import numpy as np

from dlatent.arrays import Array, Features
from dlatent.errors import DataError
from dlatent.gaussian import likelihood
from dlatent.gaussian.expectation import LOG_2PI, Projection, pattern_projection
from dlatent.gaussian.expectation import scores as projected_scores
from dlatent.gaussian.factor_analysis import bartlett_coefficients
from dlatent.gaussian.gram import outside_log_likelihoods
from dlatent.gaussian.head import Head
from dlatent.gaussian.kernel import BlockReader, KernelMap
from dlatent.gaussian.likelihood import LatentFunction
from dlatent.gaussian.missing_entries import incomplete
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.gaussian.spread import divided
from dlatent.gaussian.stack import Stack
from dlatent.operators.sparse import with_data

RowFunction = Callable[[Features, Array | None], Array]
"""Rows (n, D) and their encoded targets (n, L') or None → (n, width) or (n,)."""


class Rows(Protocol):
    """Functions of rows x (n, D) of a fitted model, with encoded targets y (n, L') or None.

    `holes` says whether NaN is a missing entry.  `shared_covariance` is the posterior covariance of all rows that have
    the views of a pattern, None where each row has its own, which `covariances` gives (n, K²).  `posteriors` is a
    function of the posterior means and covariances given the features, with `width` values for each row.
    """

    @property
    def holes(self) -> bool: ...
    def scores(self, x: Features, y: Array | None) -> Array: ...
    def shared_covariance(self, pattern: tuple[int, ...]) -> Array | None: ...
    def covariances(self, x: Features, y: Array | None) -> Array: ...
    def posteriors(self, x: Features, function: LatentFunction, width: int) -> Array: ...
    def log_density(self, x: Features, y: Array | None) -> Array: ...


@dataclass(frozen=True)
class GaussianRows(ABC):
    """Rows of a linear-Gaussian model, what holds with and without missing entries."""

    parameters: Parameters
    specification: Specification
    holes: ClassVar[bool]

    @abstractmethod
    def scores(self, x: Features, y: Array | None) -> Array:
        """E[z | x, y] (n, K)."""

    @abstractmethod
    def shared_covariance(self, pattern: tuple[int, ...]) -> Array | None:
        """Cov[z] given the views of a pattern (K, K), None where each row has its own."""

    def covariances(self, x: Features, y: Array | None) -> Array:
        """Cov[z | x, y] of each row (n, K²)."""
        return incomplete.covariances(x, y, self.parameters, self.specification)

    def imputed(self, x: Features, y: Array | None) -> Array:
        """The rows with the means of their missing entries."""
        return incomplete.imputed(x, y, self.parameters, self.specification)

    def imputed_variance(self, x: Features, y: Array | None) -> Array:
        """The variances of missing entries, 0 elsewhere."""
        return incomplete.imputed_variances(x, y, self.parameters, self.specification)

    def residuals(self, x: Features, y: Array | None) -> Array:
        """Means of entries given the others of their rows, and standardised residuals, NaN where missing (n, 2D)."""
        loadings, noise = self.parameters.loadings, self.specification.per_feature(self.parameters.noise_variance)
        means = self.scores(x, None) @ loadings.T + self.parameters.mean
        shared, k = self.shared_covariance((0,)), loadings.shape[1]
        spread = (self.covariances(x, None) if shared is None else shared).reshape(-1, k * k)
        rest = without_own(spread @ (loadings[:, :, None] * loadings[:, None, :]).reshape(-1, k * k).T / noise)
        away = (dense_rows(x, holes=self.holes) - means) / rest
        return np.hstack([means - np.nan_to_num((1.0 - rest) * away), away / np.sqrt(noise / rest)])

    def variances(self, x: Features, loadings: Array) -> Array:
        """Variances of linear functions of z given the observed features (n, L)."""
        return incomplete.linear_variances(x, None, self.parameters, self.specification, loadings)


def dense_rows(x: Features, *, holes: bool) -> Array:
    """Rows as an array of numbers, with `holes` NaN where sparse ones store nothing."""
    if isinstance(x, np.ndarray):
        return np.asarray(x, dtype=np.float64)
    rows = np.asarray(x.toarray(), dtype=np.float64)
    return np.where(with_data(x, np.ones(len(x.data))).toarray() > 0.0, rows, np.nan) if holes else rows


def without_own(leverage: Array) -> Array:
    """1 − h, what is left where an entry does not count itself; above 0 up to rounding."""
    return np.maximum(1.0 - leverage, 1e-12)


def positive(precision: float) -> float:
    """The precision of a sample without edges.  Errors: DataError where it is 0."""
    if precision == 0.0:
        raise DataError("with alpha = 0 and gamma = 0 a sample without edges has no distribution")
    return precision


@dataclass(frozen=True)
class Complete(GaussianRows):
    """Rows without missing entries; those without edges have the covariance C/δ, with the precision δ of such a
    sample."""

    precision: float = 1.0
    holes: ClassVar[bool] = False

    def scores(self, x: Features, y: Array | None) -> Array:
        """E[z | x, y] (n, K)."""
        return likelihood.scores(x, y, self.parameters, self.specification)

    def log_density(self, x: Features, y: Array | None) -> Array:
        """log p(x, y), or log p(x) of rows without targets (n,)."""
        values = likelihood.log_likelihoods(x, y, self.parameters, self.specification)
        if self.precision == 1.0:
            return values
        precision = positive(self.precision)
        labelled = np.zeros(len(values), dtype=bool) if y is None else ~np.isnan(y[:, 0])
        for pattern, at in (((0,), ~labelled), ((0, 1), labelled)):
            if not at.any():
                continue
            size = sum(self.specification.sizes[view] for view in pattern)
            constant = pattern_projection(self.parameters, self.specification, pattern).constant
            distance = -2.0 * values[at] - size * LOG_2PI - constant
            values[at] += 0.5 * size * np.log(precision) - 0.5 * (precision - 1.0) * distance
        return values

    def shared_covariance(self, pattern: tuple[int, ...]) -> Array | None:
        """Cov[z] given the views of a pattern (K, K)."""
        return pattern_projection(self.parameters, self.specification, pattern).covariance

    def posteriors(self, x: Features, function: LatentFunction, width: int) -> Array:
        """A function of E[z | x] and Cov[z | x] (n, width)."""
        return likelihood.posterior_rows(x, self.parameters, self.specification, function, width)

    def bartlett(self, x: Features, y: Array | None) -> Array:
        """Bartlett's scores (n, K)."""
        noise = self.specification.per_feature(self.parameters.noise_variance)
        coefficients = bartlett_coefficients(self.parameters.loadings, noise)
        return projected_scores(x, Projection(coefficients, np.eye(len(coefficients)), 0.0), self.parameters.mean)


class MissingEntries(GaussianRows):
    """Rows of which any entry may be missing."""

    holes: ClassVar[bool] = True

    def scores(self, x: Features, y: Array | None) -> Array:
        """E[z | observed entries, y] (n, K)."""
        return incomplete.scores(x, y, self.parameters, self.specification)

    def log_density(self, x: Features, y: Array | None) -> Array:
        """The log-likelihood of the observed entries (n,)."""
        return incomplete.log_likelihoods(x, y, self.parameters, self.specification)

    def shared_covariance(self, pattern: tuple[int, ...]) -> Array | None:
        """None: each row has its own."""
        return None

    def posteriors(self, x: Features, function: LatentFunction, width: int) -> Array:
        """A function of the posterior means and covariances given the observed features (n, width)."""
        return incomplete.posterior_rows(x, self.parameters, self.specification, function, width)

    def bartlett(self, x: Features, y: Array | None) -> Array:
        """Bartlett's scores (n, K), NaN where too few entries are observed."""
        return incomplete.bartlett(x, y, self.parameters, self.specification)


@dataclass(frozen=True)
class KernelRows:
    """Rows whose features a kernel makes: the coordinates of these are rows of a model without missing entries.

    `cache` is where the rows stay that a block is compared with; None where each block reads them.  `units` (D,) is
    what rows are divided by first.
    """

    features: KernelMap
    coordinates: Complete
    cache: BlockReader | None = None
    units: Array | None = None
    holes: ClassVar[bool] = False

    def with_cache(self, cache: BlockReader) -> Self:
        """Return a copy with a cache."""
        return replace(self, cache=cache)

    def _made(self, x: Features) -> Array:
        return self.features(x if self.units is None else divided(x, self.units), self.cache)

    def _of(self, x: Features) -> Array:
        return np.ascontiguousarray(self._made(x)[:, :-1])

    def scores(self, x: Features, y: Array | None) -> Array:
        """E[z | x, y] (n, K)."""
        return self.coordinates.scores(self._of(x), y)

    def shared_covariance(self, pattern: tuple[int, ...]) -> Array | None:
        """Cov[z] given the views of a pattern (K, K)."""
        return self.coordinates.shared_covariance(pattern)

    def covariances(self, x: Features, y: Array | None) -> Array:
        """Cov[z | x, y] of each row (n, K²)."""
        return self.coordinates.covariances(self._of(x), y)

    def posteriors(self, x: Features, function: LatentFunction, width: int) -> Array:
        """A function of E[z | x] and Cov[z | x] (n, width)."""
        return self.coordinates.posteriors(self._of(x), function, width)

    @property
    def log_density(self) -> RowFunction:
        """The log-likelihood of the M features and the targets of rows (n,).

        Errors: DataError where the kernel is given.
        """
        if self.features.kernel.name == "precomputed":
            raise DataError(
                "rows of a precomputed kernel do not tell k(x, x), which the likelihood needs; name the kernel"
            )
        return self._log_density

    def _log_density(self, x: Features, y: Array | None) -> Array:
        both = self._made(x)
        coordinates, distances = np.ascontiguousarray(both[:, :-1]), both[:, -1]
        outside = np.maximum(distances - (coordinates**2).sum(axis=1), 0.0)
        noise = float(self.coordinates.parameters.noise_variance[0])
        rest = outside_log_likelihoods(outside, noise, self.features.dimension - coordinates.shape[1])
        return self.coordinates.log_density(coordinates, y) + rest


@dataclass(frozen=True)
class OfRows(ABC):
    """A function of rows that asks a fitted model; it travels, and `fingerprint` sees the model.

    A bound method has a name and nothing else for that: a checkpoint of `transform(out=)` would take the rows of
    another model for its own.
    """

    rows: Any

    @abstractmethod
    def __call__(self, x: Features, y: Array | None) -> Array:
        """Apply the function to the rows."""

    def with_cache(self, cache: BlockReader) -> Self:
        """Return a copy with a cache of the rows that others are compared with."""
        return replace(self, rows=self.rows.with_cache(cache))


@dataclass(frozen=True)
class RowMethod(OfRows):
    """A method of a row model, by its name; its rows times Aᵀ where there are `axes` A, as scores f = Az of z."""

    method: str
    axes: Array | None = None

    def __call__(self, x: Features, y: Array | None) -> Array:
        """Call the method."""
        values = np.asarray(getattr(self.rows, self.method)(x, y))
        return values if self.axes is None else np.asarray(values @ self.axes.T)


@dataclass(frozen=True)
class Predictions(OfRows):
    """Predictions of the targets of rows: what decides on classes or labels through `form`, or means of outputs."""

    rule: Any
    form: Callable[[Array], Array] = np.asarray

    def __call__(self, x: Features, y: Array | None) -> Array:
        """The predictions (n, C) or (n, L)."""
        if isinstance(self.rule, Head):
            return np.asarray(self.rule.outputs(self.rows.scores(x, None), x))
        if isinstance(self.rule, Stack):
            return self.form(self.rule.decisions(self.rows.scores(x, None), x=x))
        return self.form(self.rows.posteriors(x, self.rule.decisions, self.rule.width))


@dataclass(frozen=True)
class OutputVariances(OfRows):
    """The variances of the outputs (n, L) given the observed features of rows."""

    head: Any

    def __call__(self, x: Features, y: Array | None) -> Array:
        """The variances."""
        return np.asarray(self.rows.variances(x, self.head.coefficients.T) + self.head.noise)


@dataclass(frozen=True)
class AlongAxes:
    """Scores of rows along orthonormal axes (D, L) about a point, and their squared distances from it (n, L + 1), with
    features in some units (D,), or (1,) of all."""

    axes: Array
    mean: Array
    units: Array

    def __call__(self, x: Features, y: Array | None) -> Array:
        """The numbers of some rows."""
        along = projected_scores(x, Projection(self.axes.T / self.units, np.eye(0), 0.0), self.mean)
        return np.column_stack([along, likelihood.squared_distances(x, self.mean, self.units**2)])


def function(method: Any, axes: Array | None = None) -> RowMethod:
    """A method of a row model as a function that travels."""
    return RowMethod(method.__self__, method.__name__, axes)


def compares(function: RowFunction) -> TypeGuard[OfRows]:
    """Whether a function compares rows with others, which may stay in a cache."""
    return isinstance(function, OfRows) and isinstance(function.rows, KernelRows)
