"""Scores and likelihoods of single rows without missing entries; see `missing_entries.incomplete` for the others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dlatent.arrays import Array, Features
from dlatent.gaussian import likelihood
from dlatent.gaussian.expectation import pattern_projection
from dlatent.gaussian.parameters import Parameters
from dlatent.gaussian.specification import Specification

ModelFunction = Callable[[Features, Array | None, Parameters, Specification], Array]
LatentFunction = Callable[[Array, Array], Array]


def scores(x: Features, y: Array | None, parameters: Parameters, specification: Specification) -> Array:
    """Posterior means of the latent variables (n, K), from features and, where present, targets."""
    return _per_pattern(x, y, parameters, specification, _means)


def posterior_rows(
    x: Features, parameters: Parameters, specification: Specification, function: LatentFunction, width: int
) -> Array:
    """A function of the posterior means (n, K) of rows given their features, and of the covariance (K, K) that they
    share: (n, width)."""
    about = pattern_projection(parameters, specification, (0,)).covariance
    return function(scores(x, None, parameters, specification), about)


def log_likelihoods(x: Features, y: Array | None, parameters: Parameters, specification: Specification) -> Array:
    """Log-likelihood of each row (n,), of features and, where present, targets."""
    return _per_pattern(x, y, parameters, specification, likelihood.log_likelihoods)


def _means(x: Features, y: Array | None, parameters: Parameters, specification: Specification) -> Array:
    return likelihood.posterior_means(x, y, parameters, specification)[0]


def _per_pattern(
    x: Features, y: Array | None, parameters: Parameters, specification: Specification, function: ModelFunction
) -> Array:
    """Rows with and without targets go their own ways and come back in order."""
    if y is None:
        return np.asarray(function(x, None, parameters, specification))
    present = ~np.isnan(y[:, 0])
    if present.all():
        return np.asarray(function(x, y, parameters, specification))
    without = np.asarray(function(x[~present], None, parameters, specification))
    found = np.empty((len(present), *without.shape[1:]))
    found[~present] = without
    if present.any():
        found[present] = function(x[present], y[present], parameters, specification)
    return found
