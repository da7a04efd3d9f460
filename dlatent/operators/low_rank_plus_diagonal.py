"""The covariance C = WWᵀ + Ψ of a linear-Gaussian model, known by W and the diagonal of Ψ: never formed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array


@dataclass(frozen=True)
class LowRankPlusDiagonal:
    """C = WWᵀ + Ψ for W (D, K) and ψ (D,), through M = I + WᵀΨ⁻¹W (K, K) by Woodbury's identity; O(D K²)."""

    factor: Array
    diagonal: Array

    @cached_property
    def _scaled(self) -> Array:
        return self.factor / self.diagonal[:, None]

    @cached_property
    def _cholesky(self) -> Array:
        """Lower triangle of M."""
        return np.asarray(la.cholesky(np.eye(self.factor.shape[1]) + self.factor.T @ self._scaled, lower=True))

    def inner_inverse(self) -> Array:
        """M⁻¹ (K, K), symmetric."""
        inverse = la.cho_solve((self._cholesky, True), np.eye(len(self._cholesky)))
        return np.asarray((inverse + inverse.T) / 2)

    def gain(self) -> Array:
        """WᵀC⁻¹ = M⁻¹WᵀΨ⁻¹ (K, D), the regression of the latent variables on the features."""
        return np.asarray(la.cho_solve((self._cholesky, True), self._scaled.T))

    def log_determinant(self) -> float:
        """log|C| = log|Ψ| + log|M|."""
        return float(np.log(self.diagonal).sum() + 2.0 * np.log(np.diag(self._cholesky)).sum())
