"""A mixture of linear-Gaussian models: every sample comes from one of M components, and which one is not known.

    c ~ π,   x | c = W_c z + μ_c + ε,   z ~ N(0, I_K),   ε ~ N(0, Ψ_c),  Ψ_c diagonal

The E-step gives each sample its responsibilities r_c = π_c p(x | c) / Σ π_c' p(x | c'), in O(D K M) by Woodbury's
identity, and the sums of each component are those of the model by itself with rows weighted by r_c; so is its M-step.
Source: Tipping and Bishop, "Mixtures of probabilistic principal component analysers" (1999), with loadings and mean
found together; for diagonal noise Ghahramani and Hinton, "The EM algorithm for mixtures of factor analyzers" (1996).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from dlatent.arrays import Array, Block, Features, Integers
from dlatent.gaussian.canonical import canonical
from dlatent.gaussian.expectation import LOG_2PI
from dlatent.gaussian.products import CHUNK_BYTES, SMALLEST_CHUNK
from dlatent.gaussian.specification import LARGEST_LOG, Parameters, Specification
from dlatent.operators.sparse import entries_squared, rows_about, sparse_times, times

SMALLEST_WEIGHT = 1e-300
"""Stands for the weight 0 in logarithms."""
FADED = 1e-8
"""Samples in all below which a component keeps its parameters: nothing is left to estimate them from."""
SMALL_NOISE = 1e-4
"""Noise over a feature's mean square that distances need to keep twelve digits as sums of products."""
TIES = 6
"""Decimals of the weights that decide the order of the components."""


class Mixture(NamedTuple):
    """Weights π (M,), loadings W (M, D, K), means μ (M, D) and noise variances (M, groups): one group of all features,
    or one for each of them; in units of the data (noise: squared)."""

    weights: Array
    loadings: Array
    mean: Array
    noise_variance: Array

    def flatten(self) -> Array:
        """One vector (W, μ, log ψ, log π), the coordinates in which the driver extrapolates."""
        return np.concatenate([self.stacked.flatten(), _log_weights(self.weights)])

    def unflatten(self, vector: Array) -> Mixture:
        """Inverse of `flatten` with the shapes of `self`; weights add up to 1."""
        components, logs = np.split(vector, [-len(self.weights)])
        raised = np.exp(np.maximum(logs - logs.max(), -LARGEST_LOG))
        return Mixture(raised / raised.sum(), *self.stacked.unflatten(components)[:3])

    @property
    def stacked(self) -> Parameters:
        """The parameters of all components, with a first axis of these."""
        return Parameters(self.loadings, self.mean, self.noise_variance)

    @property
    def components(self) -> tuple[Parameters, ...]:
        """The parameters of each of them."""
        return tuple(map(Parameters, *self.stacked[:3]))

    def moved(self, by: Array) -> Mixture:
        """The mixture with (D,) added to all means."""
        return self._replace(mean=self.mean + by)

    def rescaled(self, unit: Array) -> Mixture:
        """The mixture for features multiplied by (D,), which are equal within a noise group."""
        groups = unit if self.noise_variance.shape[1] > 1 else unit[:1]
        return Mixture(self.weights, *self.stacked.rescaled(unit, groups)[:3])

    def at_least(self, noise: Array) -> Mixture:
        """The mixture with noise variances of at least (groups,)."""
        return self._replace(noise_variance=np.maximum(self.noise_variance, noise))

    @property
    def flat(self) -> Mixture:
        """The components of several mixtures (…, M, …) one after the other (C, …)."""
        axes = self.weights.ndim
        return Mixture(*(part.reshape(self.weights.size, *part.shape[axes:]) for part in self))


class NoisePrior(NamedTuple):
    """What is known of each noise variance before: as much as so many rows say whose noise has the variance `centre`
    (groups,), which makes p(ψ) inverse gamma in 1/ψ."""

    rows: float
    centre: Array

    def log_density(self, mixture: Mixture, specification: Specification) -> Array:
        """Σ −½ n D_g (log(ψ/s) + s/ψ − 1) of each mixture (…): 0 where all are at the centre."""
        if not self.rows:
            return np.zeros(mixture.weights.shape[:-1])
        ratio = mixture.noise_variance / self.centre
        each = -0.5 * self.rows * np.array(specification.group_sizes) * (np.log(ratio) + 1.0 / ratio - 1.0)
        return np.asarray(each.sum(axis=(-2, -1)))


FLAT = NoisePrior(0.0, np.zeros(1))
"""None."""


def mixture_of(weights: Array, components: tuple[Parameters, ...]) -> Mixture:
    """A mixture from the parameters of its components."""
    return Mixture(weights, *map(np.stack, zip(*(each[:3] for each in components), strict=True)))


def canonical_mixture(mixture: Mixture, specification: Specification) -> Mixture:
    """The model with components in decreasing order of their weights, those of (nearly) equal weights in order of
    their means, and the loadings of each in canonical form."""
    # The last key counts most.
    order = np.lexsort((*mixture.mean.T[::-1], -mixture.weights.round(TIES)))
    components = mixture.components
    return mixture_of(mixture.weights[order], tuple(canonical(components[m], specification) for m in order))


class MixtureRequest(NamedTuple):
    """A mixture with means about the shift (D,) of the features, and that shift."""

    mixture: Mixture
    shift: Array


class MixtureSums(NamedTuple):
    """Sufficient statistics, additive over samples, with z̃ = (z, 1): for each component Σ r E[z̃z̃ᵀ] (M, K+1, K+1),
    Σ r E[z̃] (x−s)ᵀ (M, K+1, D) and Σ r (x−s)² per noise group (M, groups); and Σ log p(x) at the parameters that the
    expectations were taken with."""

    second: Array
    cross: Array
    energy: Array
    log_likelihood: Any

    @property
    def counts(self) -> Array:
        """Σ r (M,)."""
        return self.second[:, -1, -1]


class Compared(NamedTuple):
    """A mixture that rows are compared with, all components one after the other (C): G = L⁻¹ (C, K, K) of the Cholesky
    factor of M_c = LLᵀ = I + W_cᵀΨ_c⁻¹W_c, which makes u = G W_cᵀΨ_c⁻¹(x − μ_c) and E[z | x, c] = Gᵀu; the log
    determinants of W_cW_cᵀ + Ψ_c (C,); and the columns (D, C(K+1)) that rows meet at one time, Ψ_c⁻¹W_cGᵀ of all
    components, then Ψ_c⁻¹μ_c."""

    mixture: Mixture
    roots: Array
    determinants: Array
    columns: Array


def compared(mixture: Mixture) -> Compared:
    """What rows meet of a mixture, or of several."""
    flat = mixture.flat
    noise = np.broadcast_to(flat.noise_variance, flat.mean.shape)
    weighted = flat.loadings / noise[:, :, None]
    factors = np.linalg.cholesky(np.eye(weighted.shape[2]) + flat.loadings.transpose(0, 2, 1) @ weighted)
    roots = np.linalg.inv(factors)
    # log|WWᵀ + Ψ| = log|Ψ| + log|M|
    determinants = np.log(noise).sum(axis=1) + 2.0 * np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
    rows = roots @ weighted.transpose(0, 2, 1)
    columns = np.vstack([rows.reshape(-1, noise.shape[1]), flat.mean / noise])
    return Compared(flat, roots, determinants, np.ascontiguousarray(columns.T))


def squares_of(rows: Features, groups: int) -> Features | Array:
    """x² as the noise asks for it: ‖x‖² (n, 1) of one group, (n, D) of one for each feature."""
    if isinstance(rows, np.ndarray):
        return np.einsum("ij,ij->i", rows, rows)[:, None] if groups == 1 else rows * rows
    squared = entries_squared(rows)
    return squared if groups > 1 else np.asarray(squared.sum(axis=1), dtype=np.float64)[:, None]


def met(rows: Features, squares: Features | Array, about: Compared) -> tuple[Array, Array]:
    """log π_c p(x | c) (n, C), and u (n, C, K)."""
    mixture, products = about.mixture, times(rows, about.columns)
    count, width, k = mixture.loadings.shape
    inverse = 1.0 / mixture.noise_variance
    squared = inverse * mixture.mean**2 if inverse.shape[1] > 1 else inverse * (mixture.mean**2).sum(axis=1)[:, None]
    distance = times(squares, inverse.T) - 2.0 * products[:, count * k :] + squared.sum(axis=1)
    maps = about.columns[:, : count * k]
    u = products[:, : count * k] - np.einsum("dck,cd->ck", maps.reshape(width, count, k), mixture.mean).ravel()
    u = u.reshape(-1, count, k)
    distance -= np.einsum("nck,nck->nc", u, u)
    # Of so small a noise the terms of a distance would cancel each other.
    squares_of_features = (mixture.loadings**2).sum(axis=2) + mixture.mean**2
    small = (mixture.noise_variance < SMALL_NOISE * squares_of_features).any(axis=1)
    for m in np.flatnonzero(small) if isinstance(rows, np.ndarray) else ():
        centred = rows - mixture.mean[m]
        u[:, m] = centred @ maps[:, m * k : (m + 1) * k]
        z = u[:, m] @ about.roots[m]
        centred -= z @ mixture.loadings[m].T
        # (x−μ)ᵀC⁻¹(x−μ) = (x−μ−Wz)ᵀΨ⁻¹(x−μ−Wz) + zᵀz
        distance[:, m] = np.square(centred, out=centred) @ np.broadcast_to(inverse[m], width)
        distance[:, m] += np.einsum("ij,ij->i", z, z)
    return _log_weights(mixture.weights) - 0.5 * (about.determinants + width * LOG_2PI + distance), u


def _log_weights(weights: Array) -> Array:
    return np.asarray(np.log(np.maximum(weights, SMALLEST_WEIGHT)))


def responsibilities(log_joint: Array) -> tuple[Array, Array]:
    """r (…, M) and log p(x) (…) by log-sum-exp."""
    # NumPy reduces a short last axis number by number.
    peak = np.ascontiguousarray(log_joint.T).max(axis=0).T
    densities = np.exp(log_joint - peak[..., None])
    total = densities @ np.ones(log_joint.shape[-1])
    return densities / total[..., None], peak + np.log(total)


def pieces(x: Features, shift: Array, about: Compared) -> Iterator[tuple[slice, Features]]:
    """Some rows about the shift at a time, as many as may be compared with all components."""
    dense = isinstance(x, np.ndarray)
    x, shift = rows_about(x, shift)
    thin = 3 * about.columns.shape[1]
    step = max(SMALLEST_CHUNK, CHUNK_BYTES // (8 * (max(x.shape[1], thin) if dense else thin)))
    buffer = np.empty((min(x.shape[0], step), x.shape[1] if dense else 0))
    for start in range(0, x.shape[0], step):
        place = slice(start, min(start + step, x.shape[0]))
        if isinstance(x, np.ndarray):
            yield place, np.subtract(x[place], shift, out=buffer[: place.stop - start])
        else:
            yield place, x[place]


def _transposed_times(x: Features | Array, weights: Array) -> Array:
    """wᵀx (m, D)."""
    return np.asarray(weights.T @ x) if isinstance(x, np.ndarray) else sparse_times(x.T, weights).T


def mixture_sums(x: Features, request: MixtureRequest, assigned: Array | None = None) -> MixtureSums:
    """E-step of rows (n, D); additive over samples, O(nnz K M) or O(n D K M).

    `assigned` (n, C) takes the place of the responsibilities where these are known.
    """
    shape, groups = request.mixture.weights.shape, request.mixture.noise_variance.shape[-1]
    width, k = request.mixture.loadings.shape[-2:]
    count, about = request.mixture.weights.size, compared(request.mixture)
    second, cross = np.zeros((count, k + 1, k + 1)), np.zeros((count * (k + 1), width))
    energy, value = np.zeros((count, groups)), np.zeros(shape[:-1])
    for place, rows in pieces(x, request.shift, about):
        squares = squares_of(rows, groups)
        log_joint, u = met(rows, squares, about)
        shares, logs = responsibilities(log_joint.reshape(-1, *shape))
        shares = shares.reshape(-1, count) if assigned is None else assigned[place]
        # The last column is that of the mean.
        extended = np.concatenate([u, np.ones((*shares.shape, 1))], axis=2)
        weighted = extended * shares[:, :, None]
        second += extended.transpose(1, 2, 0) @ weighted.transpose(1, 0, 2)
        cross += _transposed_times(rows, weighted.reshape(len(shares), -1))
        energy += _transposed_times(squares, shares)
        value += logs.sum(axis=0)
    # From u to z, and the covariance GᵀG of each sample.
    turn = np.zeros_like(second)
    turn[:, :k, :k], turn[:, k, k] = about.roots, 1.0
    totals = second[:, k, k, None, None]
    second = turn.transpose(0, 2, 1) @ second @ turn
    second[:, :k, :k] += totals * (about.roots.transpose(0, 2, 1) @ about.roots)
    cross = turn.transpose(0, 2, 1) @ cross.reshape(count, k + 1, width)
    return MixtureSums(second, cross, energy, value if shape[:-1] else float(value))


def block_mixture(block: Block, request: MixtureRequest) -> MixtureSums:
    """E-step of a block, as `mixture_sums`."""
    return mixture_sums(block.features, request)


def maximise_mixture(
    sums: MixtureSums, before: Mixture, specification: Specification, prior: NoisePrior = FLAT, *, expand: bool = True
) -> Mixture:
    """M-step: of each component that of the model by itself; the likelihood, with the prior, does not fall.

    `specification` is that of one component.  A component that has nothing left of the samples, or too little for its
    equations to be solved, keeps its parameters, and only its weight follows.
    """
    flat, counts = before.flat, sums.counts
    loadings, mean, noise = flat.loadings.copy(), flat.mean.copy(), flat.noise_variance.copy()
    alive = np.flatnonzero(counts > FADED)
    for at in _solvable(sums.second, alive):
        second, cross = sums.second[at], sums.cross[at]
        k = second.shape[1] - 1
        solution = np.linalg.solve(second, cross)
        explained = (solution * cross).sum(axis=1)
        explained = explained if noise.shape[1] > 1 else explained.sum(axis=1, keepdims=True)
        sizes = np.array(specification.group_sizes)
        residual = sums.energy[at] - explained + prior.rows * sizes * prior.centre
        noise[at] = np.maximum(residual / (sizes * (counts[at, None] + prior.rows)), specification.floors)
        wide, mean[at] = solution[:, :k].transpose(0, 2, 1), solution[:, k]
        if expand:
            # PX-EM, as in `gaussian.maximisation.expanded`.
            shift = second[:, :k, k] / counts[at, None]
            covariance = second[:, :k, :k] / counts[at, None, None] - shift[:, :, None] * shift[:, None, :]
            mean[at] += (wide @ shift[:, :, None])[:, :, 0]
            wide = wide @ np.linalg.cholesky(covariance)
        loadings[at] = wide
    weights = counts.reshape(before.weights.shape)
    weights = weights / weights.sum(axis=-1, keepdims=True)
    return Mixture(
        weights, *(new.reshape(old.shape) for new, old in zip((loadings, mean, noise), before[1:], strict=True))
    )


def _solvable(second: Array, numbers: Integers) -> list[Integers]:
    """The components whose equations can be solved, all at one time where all can."""

    def definite(at: Integers) -> bool:
        with suppress(np.linalg.LinAlgError):
            return bool(np.isfinite(np.linalg.cholesky(second[at])).all())
        return False

    return [numbers] if definite(numbers) else [at for at in numbers[:, None] if definite(at)]


def mixture_slope(sums: MixtureSums, mixture: Mixture, specification: Specification, prior: NoisePrior = FLAT) -> Array:
    """Gradient of the log-likelihood, and of the prior's, by (W, μ, log ψ, log π) as `Mixture.flatten` has them, from
    the E-step there; ∂/∂log π_c = N_c − N π_c, as the weights add up to 1."""
    sizes, noise = np.array(specification.group_sizes), mixture.noise_variance
    wide = np.concatenate([mixture.loadings, mixture.mean[:, :, None]], axis=2).transpose(0, 2, 1)
    moved = sums.second @ wide
    residuals = (sums.cross - moved) / noise[:, None, :]
    rest = ((moved - 2.0 * sums.cross) * wide).sum(axis=1)
    rest = sums.energy + (rest if noise.shape[1] > 1 else rest.sum(axis=1, keepdims=True))
    by_noise = 0.5 * (rest / noise - sizes * sums.counts[:, None])
    by_noise += 0.5 * prior.rows * sizes * (prior.centre / noise - 1.0)
    by_weights = sums.counts - sums.counts.sum() * mixture.weights
    by_loadings = residuals[:, :-1].transpose(0, 2, 1)
    return np.concatenate([by_loadings.ravel(), residuals[:, -1].ravel(), by_noise.ravel(), by_weights])
