"""What a fitted model says of single rows; it travels to where the rows are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np

from dlatent.arrays import Array, Features
from dlatent.linear_gaussian import complete
from dlatent.linear_gaussian.complete import LatentFunction
from dlatent.linear_gaussian.expectation import Projection, pattern_projection
from dlatent.linear_gaussian.expectation import scores as projected_scores
from dlatent.linear_gaussian.factor_analysis import bartlett_coefficients
from dlatent.linear_gaussian.missing_entries import incomplete
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification

RowFunction = Callable[[Features, Array | None], Array]
"""Rows (n, D) and their encoded targets (n, L') or None → (n, width) or (n,)."""


class Scores(Protocol):
    """Rows x (n, D), with encoded targets y (n, L') or None, as latent variables.

    `holes` says whether NaN is a missing entry.  `shared_covariance` is the posterior covariance of all rows that have
    the views of a pattern, None where each row has its own, which `covariances` gives (n, K²).  `posteriors` is a
    function of the posterior means and covariances given the features, with `width` values for each row.
    """

    holes: ClassVar[bool]

    def scores(self, x: Features, y: Array | None) -> Array: ...
    def shared_covariance(self, pattern: tuple[int, ...]) -> Array | None: ...
    def covariances(self, x: Features, y: Array | None) -> Array: ...
    def posteriors(self, x: Features, function: LatentFunction, width: int) -> Array: ...


class Density(Scores, Protocol):
    """Rows that have a likelihood."""

    def log_density(self, x: Features, y: Array | None) -> Array: ...


class Imputes(Density, Protocol):
    """Rows of which missing entries are filled in: `imputed` has their means, `imputed_variance` their variances, and
    `variances` those of linear functions of z, with the loadings (L, K)."""

    def imputed(self, x: Features, y: Array | None) -> Array: ...
    def imputed_variance(self, x: Features, y: Array | None) -> Array: ...
    def variances(self, x: Features, loadings: Array) -> Array: ...


@dataclass(frozen=True)
class GaussianRows:
    """Rows of a linear-Gaussian model, what holds with and without missing entries."""

    parameters: Parameters
    specification: Specification

    def covariances(self, x: Features, y: Array | None) -> Array:
        """Cov[z | x, y] of each row (n, K²)."""
        return incomplete.covariances(x, y, self.parameters, self.specification)

    def imputed(self, x: Features, y: Array | None) -> Array:
        """The rows with the means of their missing entries."""
        return incomplete.imputed(x, y, self.parameters, self.specification)

    def imputed_variance(self, x: Features, y: Array | None) -> Array:
        """The variances of missing entries, 0 elsewhere."""
        return incomplete.imputed_variances(x, y, self.parameters, self.specification)

    def variances(self, x: Features, loadings: Array) -> Array:
        """Variances of linear functions of z given the observed features (n, L)."""
        return incomplete.linear_variances(x, None, self.parameters, self.specification, loadings)


class Complete(GaussianRows):
    """Rows without missing entries."""

    holes: ClassVar[bool] = False

    def scores(self, x: Features, y: Array | None) -> Array:
        """E[z | x, y] (n, K)."""
        return complete.scores(x, y, self.parameters, self.specification)

    def log_density(self, x: Features, y: Array | None) -> Array:
        """log p(x, y), or log p(x) of rows without targets (n,)."""
        return complete.log_likelihoods(x, y, self.parameters, self.specification)

    def shared_covariance(self, pattern: tuple[int, ...]) -> Array | None:
        """Cov[z] given the views of a pattern (K, K)."""
        return pattern_projection(self.parameters, self.specification, pattern).covariance

    def posteriors(self, x: Features, function: LatentFunction, width: int) -> Array:
        """A function of E[z | x] and Cov[z | x] (n, width)."""
        return complete.posterior_rows(x, self.parameters, self.specification, function, width)

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


def function(method: Any) -> Any:
    """A method of a row model as a function that travels.

    A bound method has a name and nothing else for `fingerprint`: a checkpoint of `transform(out=)` would take the rows
    of another model for its own.
    """
    return partial(method.__func__, method.__self__)


@dataclass(frozen=True)
class Turned:
    """Rows times Lᵀ (K, K): scores of factors f = Lz that correlate, from those of z."""

    rows: RowFunction
    axes: Array

    def __call__(self, x: Features, y: Array | None) -> Array:
        return np.asarray(self.rows(x, y) @ self.axes.T)
