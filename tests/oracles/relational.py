"""Probabilistic relational PCA as one dense Gaussian vector, written from its definition alone: slow, small, right.

The samples are not independent.  With the precision Δ (N, N) between them, rows being samples,

    T = Z Wᵀ + 1μᵀ + Υ,   vec Z ~ N(0, Δ⁻¹ ⊗ I_K),   vec Υ ~ N(0, Δ⁻¹ ⊗ σ²I_D),   Δ = γI + (αI + A)ᵀ(αI + A),

where vec stacks the rows, so that vec T ~ N(1 ⊗ μ, Δ⁻¹ ⊗ (WWᵀ + σ²I)).  Nothing here uses that Δ drops out of the
posterior: every question is a least-squares problem in all N·D or N·K numbers at once.  Δ enters as a root R with
RᵀR = Δ, because with γ = 10⁻⁶ an inverse of Δ has lost half of the digits.

Source: Li, Yeung and Zhang (2009), "Probabilistic relational PCA"; their matrices are the transposes of these.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array
from tests.oracles.dense import Gaussian


class RelationalModel(NamedTuple):
    """Loadings W (D, K), mean μ (D,), noise variance σ², and a root R (M, N) of the precision between samples."""

    loadings: Array
    mean: Array
    noise: float
    root: Array


def precision_root(adjacency: npt.ArrayLike, alpha: float = 1.0, gamma: float = 1e-6) -> Array:
    """R (2N, N) with RᵀR = Δ: √γ I above αI + A."""
    graph = np.asarray(adjacency, dtype=np.float64)
    eye = np.eye(len(graph))
    return np.vstack([np.sqrt(gamma) * eye, alpha * eye + graph])


def log_density(model: RelationalModel, rows: Array) -> float:
    """log p(T) in nats, log|Δ| included: the density of vec T, whose whitened form is (R ⊗ F)(vec T − 1 ⊗ μ)."""
    whitener = np.kron(model.root, _feature_whitener(model))
    whitened = whitener @ (rows - model.mean).ravel()
    half_log_determinant = np.log(np.linalg.svd(whitener, compute_uv=False)).sum()
    return float(half_log_determinant - 0.5 * (whitened @ whitened + rows.size * np.log(2.0 * np.pi)))


def best_mean(model: RelationalModel, rows: Array) -> Array:
    """The mean (D,) of the largest density at the loadings and the noise of the model, whatever its own mean is."""
    whitener = np.kron(model.root, _feature_whitener(model))
    repeated = np.kron(np.ones((len(rows), 1)), np.eye(rows.shape[1]))
    return np.asarray(np.linalg.lstsq(whitener @ repeated, whitener @ rows.ravel(), rcond=None)[0])


def latent_given(model: RelationalModel, rows: Array) -> Gaussian:
    """The distribution of vec Z (N·K,) given T, of all samples together.

    −2 log p(Z, T) = ‖(R ⊗ I) vec Z‖² + ‖(R ⊗ I)(vec T − 1 ⊗ μ − (I ⊗ W) vec Z)‖² / σ² + a constant.
    """
    width, k = model.loadings.shape
    spread = np.sqrt(model.noise)
    design = np.vstack([np.kron(model.root, np.eye(k)), np.kron(model.root, model.loadings / spread)])
    answers = np.kron(model.root, np.eye(width)) @ (rows - model.mean).ravel() / spread
    inverse = np.linalg.pinv(design)
    prior = np.zeros(len(design) - len(answers))
    return Gaussian(inverse @ np.concatenate([prior, answers]), inverse @ inverse.T)


def em_step(model: RelationalModel, rows: Array) -> RelationalModel:
    """One textbook EM iteration for (W, μ, σ²), feature by feature, from the joint posterior of all latent variables.

    The M-step minimises E|R(t − μ1 − Zw)|² for every feature, an ordinary least-squares problem: the rows
    R(E[Z], 1) → Rt, and K rows (Fᵀ, 0) → 0 with FFᵀ = Σ_ij Δ_ij Cov(z_i, z_j).
    """
    samples, k = len(rows), model.loadings.shape[1]
    posterior = latent_given(model, rows)
    scores = posterior.mean.reshape(samples, k)
    between = posterior.covariance.reshape(samples, k, samples, k)
    spread = np.einsum("ij,iajb->ab", model.root.T @ model.root, between)
    factor = np.linalg.cholesky(spread).T
    design = np.vstack([model.root @ np.column_stack([scores, np.ones(samples)]), np.pad(factor, ((0, 0), (0, 1)))])
    answers = np.vstack([model.root @ rows, np.zeros((k, rows.shape[1]))])
    found = np.linalg.lstsq(design, answers, rcond=None)[0]
    noise = ((answers - design @ found) ** 2).sum() / rows.size
    return RelationalModel(found[:k].T, found[k], float(noise), model.root)


def principal_components(root: Array, rows: Array, n_components: int) -> RelationalModel:
    """The maximum of the likelihood, from singular vectors of R(T − 1μᵀ); that it is one shows in the gradient."""
    width = rows.shape[1]
    start = RelationalModel(np.zeros((width, 0)), np.zeros(width), 1.0, root)
    mean = best_mean(start, rows)
    _, singular, axes = np.linalg.svd(root @ (rows - mean))
    variances = np.zeros(width)
    variances[: len(singular)] = singular**2 / len(rows)
    noise = float(variances[n_components:].mean())
    loadings = axes[:n_components].T * np.sqrt(variances[:n_components] - noise)
    return RelationalModel(loadings, mean, noise, root)


def _feature_whitener(model: RelationalModel) -> Array:
    """F (D, D) with FᵀF = (WWᵀ + σ²I)⁻¹."""
    covariance = model.loadings @ model.loadings.T + model.noise * np.eye(len(model.mean))
    return np.linalg.inv(np.linalg.cholesky(covariance))
