"""The models as dense Gaussians, written from their definition alone: slow, small, and obviously right.

Nothing here uses a formula of `dlatent.gaussian`.  (z, x) is one Gaussian vector with the covariance

    [ I    Wᵀ      ]
    [ W    WWᵀ + Ψ ]

and every question is a marginal or a conditional of it: rows and columns of what is not observed are deleted.
Rows of data are stacked features of all views, NaN where an entry is not observed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import multivariate_normal

from dlatent.arrays import Array
from dlatent.gaussian.specification import Parameters, Specification


class Gaussian(NamedTuple):
    """A mean (n,) and a covariance (n, n)."""

    mean: Array
    covariance: Array


class DenseModel(NamedTuple):
    """Loadings (D, K), mean (D,) and one noise variance for each stacked feature (D,)."""

    loadings: Array
    mean: Array
    noise: Array

    @property
    def observed(self) -> Gaussian:
        """The distribution of the stacked features."""
        return Gaussian(self.mean, self.loadings @ self.loadings.T + np.diag(self.noise))

    @property
    def joint(self) -> Gaussian:
        """The distribution of (z, x)."""
        k = self.loadings.shape[1]
        covariance = np.block([[np.eye(k), self.loadings.T], [self.loadings, self.observed.covariance]])
        return Gaussian(np.concatenate([np.zeros(k), self.mean]), covariance)


def dense(parameters: Parameters, sizes: Sequence[int]) -> DenseModel:
    """The model with every noise variance written out; `sizes`, the number of features that share each of them."""
    noise = np.concatenate([np.full(n, v) for n, v in zip(sizes, parameters.noise_variance, strict=True)])
    return DenseModel(parameters.loadings, parameters.mean, noise)


def condition(joint: Gaussian, known: npt.NDArray[np.bool_], values: Array) -> Gaussian:
    """The distribution of the unknown coordinates given the values (n,) of the known ones."""
    inner = joint.covariance[np.ix_(known, known)]
    across = joint.covariance[np.ix_(~known, known)]
    weights = np.linalg.solve(inner, across.T).T
    mean = joint.mean[~known] + weights @ (values - joint.mean[known])
    return Gaussian(mean, joint.covariance[np.ix_(~known, ~known)] - weights @ across.T)


def log_densities(model: DenseModel, rows: Array) -> Array:
    """log p of the observed entries of every row (N,), in nats."""
    values, whole = np.empty(len(rows)), model.observed
    masks = ~np.isnan(rows)
    for mask in np.unique(masks, axis=0):
        at = (masks == mask).all(axis=1)
        density = multivariate_normal(whole.mean[mask], whole.covariance[np.ix_(mask, mask)])
        values[at] = density.logpdf(rows[at][:, mask])
    return values


def latent_given(model: DenseModel, row: Array) -> Gaussian:
    """The distribution of z given the observed entries of a row."""
    k, seen = model.loadings.shape[1], ~np.isnan(row)
    known = np.concatenate([np.zeros(k, dtype=bool), seen])
    found = condition(model.joint, known, row[seen])
    return Gaussian(found.mean[:k], found.covariance[:k, :k])


def missing_given(model: DenseModel, row: Array) -> Gaussian:
    """The distribution of the entries of a row that are NaN given the others."""
    seen = ~np.isnan(row)
    return condition(model.observed, seen, row[seen])


def em_step(model: DenseModel, rows: Array, sizes: Sequence[int]) -> DenseModel:
    """One textbook EM iteration, sample by sample and feature by feature, for one noise variance per view.

    The M-step minimises the expected squared residual of every feature.  With E[zzᵀ] = mmᵀ + CCᵀ that is an ordinary
    least-squares problem: one row (m, 1) → x for each sample, and the K rows of (Cᵀ, 0) → 0.
    """
    posteriors = [latent_given(model, row) for row in rows]
    k, width = model.loadings.shape[1], len(model.mean)
    loadings, mean, residual, count = np.empty((width, k)), np.empty(width), np.empty(width), np.empty(width)
    for feature in range(width):
        seen = np.flatnonzero(~np.isnan(rows[:, feature]))
        design = np.vstack([_design(posteriors[i]) for i in seen])
        answers = np.concatenate([np.concatenate([[rows[i, feature]], np.zeros(k)]) for i in seen])
        found = np.linalg.lstsq(design, answers, rcond=None)[0]
        loadings[feature], mean[feature] = found[:k], found[k]
        residual[feature], count[feature] = ((answers - design @ found) ** 2).sum(), len(seen)
    bounds = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    variance = np.add.reduceat(residual, bounds) / np.add.reduceat(count, bounds)
    return DenseModel(loadings, mean, np.repeat(variance, sizes))


def naive_em(rows: Array, sizes: Sequence[int], k: int, iterations: int) -> DenseModel:
    """Textbook EM from a random start."""
    rng, scale = np.random.default_rng(0), np.nanstd(rows, axis=0)
    loadings = rng.standard_normal((rows.shape[1], k)) * scale[:, None]
    model = DenseModel(loadings, np.nanmean(rows, axis=0), 0.3 * scale**2)
    for _ in range(iterations):
        model = em_step(model, rows, sizes)
    return model


def _design(posterior: Gaussian) -> Array:
    k = len(posterior.mean)
    top = np.concatenate([posterior.mean, [1.0]])
    return np.vstack([top, np.hstack([np.linalg.cholesky(posterior.covariance).T, np.zeros((k, 1))])])


def numerical_gradient(function: Callable[[Array], float], at: Array, step: float = 1e-5) -> Array:
    """Central differences of fourth order, ∂f/∂v_i, with steps relative to `max(1, |v_i|)`."""
    gradient = np.empty(len(at))
    for i in range(len(at)):
        h = step * max(1.0, abs(at[i]))
        values = []
        for times in (-2, -1, 1, 2):
            moved = at.copy()
            moved[i] += times * h
            values.append(function(moved))
        gradient[i] = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)
    return gradient


def score_vector(parameters: Parameters, specification: Specification, rows: Array, step: float = 1e-4) -> Array:
    """Gradient of the log-likelihood per sample by (W, μ, log noise variances), by finite differences."""

    def value(vector: Array) -> float:
        point = parameters.unflatten(vector)
        return float(log_densities(dense(point, specification.group_sizes), rows).mean())

    return numerical_gradient(value, parameters.flatten(), step)


def principal_components(rows: Array, n_components: int) -> DenseModel:
    """The maximum-likelihood PPCA (Tipping and Bishop 1999, (7)–(8)) from a dense covariance with divisor N.

    Correct for N < D too: the noise is the mean of all D − K discarded eigenvalues, zeros included.
    """
    mean = rows.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(rows.T, bias=True))
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    noise = values[n_components:].mean()
    loadings = vectors[:, :n_components] * np.sqrt(values[:n_components] - noise)
    return DenseModel(loadings, mean, np.full(len(mean), noise))
