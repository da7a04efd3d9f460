"""The parameters of a linear-Gaussian model, over the stacked features of all views."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dlatent.arrays import Array
from dlatent.operators.symmetric import congruent

LARGEST_LOG = 700.0
"""Logarithm of a noise variance that a double can hold; extrapolations may go beyond."""


class Parameters(NamedTuple):
    """Loadings W (D, K), mean μ (D,) and noise variance (noise groups,), in units of the data (noise: squared).

    Where the loadings have a prior, W are their posterior means, and `loadings_covariance` (D, K(K+1)/2) the packed
    posterior covariances Σ_j of each feature's, or (1, K(K+1)/2) where all are one; None where W is all that is known.
    Where the mean has a prior, μ is its posterior mean, and `mean_variance` (D,) the posterior variances s².
    """

    loadings: Array
    mean: Array
    noise_variance: Array
    loadings_covariance: Array | None = None
    mean_variance: Array | None = None

    def of(self, features: Any) -> Parameters:
        """Those of some features, by an index of theirs; the noise variances are those of all."""
        variance = self.mean_variance
        return Parameters(
            self.loadings[features],
            self.mean[features],
            self.noise_variance,
            self.covariance_of(features),
            None if variance is None else variance[features],
        )

    def uncertainty(self, noise: Array) -> Array:
        """s²/ψ (D,) for the noise variances of the features (D,): what an entry loses as the mean is uncertain."""
        return np.zeros(len(noise)) if self.mean_variance is None else self.mean_variance / noise

    def covariance_of(self, features: Any) -> Array | None:
        """`loadings_covariance` of some features, by an index of theirs."""
        spread = self.loadings_covariance
        return spread if spread is None or len(spread) == 1 else spread[features]

    def flatten(self) -> Array:
        """One vector (W, μ, log ψ), the coordinates in which the driver extrapolates."""
        return np.concatenate([self.loadings.ravel(), self.mean.ravel(), np.log(self.noise_variance).ravel()])

    def unflatten(self, vector: Array) -> Parameters:
        """Inverse of `flatten` with the shapes of `self`, and its uncertainty."""
        size, width = self.loadings.size, self.mean.size
        return Parameters(
            vector[:size].reshape(self.loadings.shape),
            vector[size : size + width].reshape(self.mean.shape),
            np.exp(np.clip(vector[size + width :], -LARGEST_LOG, LARGEST_LOG)).reshape(self.noise_variance.shape),
            self.loadings_covariance,
            self.mean_variance,
        )

    def moved(self, by: Array) -> Parameters:
        """Parameters with (D,) added to the mean."""
        return self._replace(mean=self.mean + by)

    def rescaled(self, features: Array, groups: Array) -> Parameters:
        """Parameters for features multiplied by (D,), those of each noise group by one of (noise groups,)."""
        spread, variance = self.loadings_covariance, self.mean_variance
        return Parameters(
            self.loadings * features[:, None],
            self.mean * features,
            self.noise_variance * groups**2,
            None if spread is None else spread * features[:, None] ** 2,
            None if variance is None else variance * features**2,
        )

    def turned(self, by: Array) -> Parameters:
        """The parameters for z → A⁻¹z: W A, and AᵀΣ_jA, with A (K, K′); columns of A that are left out leave components
        out."""
        spread = self.loadings_covariance
        spread = None if spread is None else congruent(spread, by)
        return self._replace(loadings=self.loadings @ by, loadings_covariance=spread)

    def certain(self) -> Parameters:
        """Parameters without any uncertainty."""
        return self._replace(loadings_covariance=None, mean_variance=None)

    def at_least(self, noise: Array) -> Parameters:
        """Parameters with noise variances of at least (noise groups,)."""
        return self._replace(noise_variance=np.maximum(self.noise_variance, noise))


class Maximum(NamedTuple):
    """Parameters and a log-likelihood: that of them, or of those that an EM step has led from."""

    parameters: Parameters
    log_likelihood: float
