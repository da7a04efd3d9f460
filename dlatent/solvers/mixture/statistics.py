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
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, cast

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array, Block, Features, add
from dlatent.gaussian.canonical import canonical
from dlatent.gaussian.expectation import LOG_2PI, Latent, Projection, joined, projection
from dlatent.gaussian.maximisation import maximise, slope
from dlatent.gaussian.moments import MomentRequest
from dlatent.gaussian.products import CHUNK_BYTES, SMALLEST_CHUNK, FeatureSums
from dlatent.gaussian.products import block_feature_sums as feature_sums
from dlatent.gaussian.specification import LARGEST_LOG, Parameters, Specification
from dlatent.operators.sparse import entries_squared, far_mean, rows_about, sparse_times, times

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
    log_likelihood: float

    @property
    def counts(self) -> Array:
        """Σ r (M,)."""
        return self.second[:, -1, -1]

    def latent(self, number: int) -> Latent:
        """The statistics of one component as those of a model by itself."""
        return Latent(self.second[number], self.cross[number].T, self.energy[number], self.log_likelihood)


class _Compared(NamedTuple):
    """A mixture that rows are compared with: the posterior map of each component, and the columns (D, M(K+1)) that rows
    meet at one time, B_cᵀ of all components, then Ψ_c⁻¹μ_c."""

    mixture: Mixture
    maps: tuple[Projection, ...]
    columns: Array


def _compared(mixture: Mixture) -> _Compared:
    noise = np.broadcast_to(mixture.noise_variance, mixture.mean.shape)
    maps = tuple(projection(w, psi) for w, psi in zip(mixture.loadings, noise, strict=True))
    rows = np.vstack([*(each.coefficients for each in maps), mixture.mean / noise])
    return _Compared(mixture, maps, np.ascontiguousarray(rows.T))


def _squares(rows: Features, groups: int) -> Features | Array:
    """x² as the noise asks for it: ‖x‖² (n, 1) of one group, (n, D) of one for each feature."""
    if isinstance(rows, np.ndarray):
        return np.einsum("ij,ij->i", rows, rows)[:, None] if groups == 1 else rows * rows
    squared = entries_squared(rows)
    return squared if groups > 1 else np.asarray(squared.sum(axis=1), dtype=np.float64)[:, None]


def _met(rows: Features, squares: Features | Array, about: _Compared) -> tuple[Array, list[Array]]:
    """log π_c p(x | c) (n, M) and E[z | x, c] (n, K) of each component."""
    mixture, products = about.mixture, times(rows, about.columns)
    count, width, k = mixture.loadings.shape
    inverse = 1.0 / mixture.noise_variance
    squared = inverse * mixture.mean**2 if inverse.shape[1] > 1 else inverse * (mixture.mean**2).sum(axis=1)[:, None]
    distance = times(squares, inverse.T) - 2.0 * products[:, count * k :] + squared.sum(axis=1)
    # Of so small a noise the terms of a distance would cancel each other.
    squares_of_features = (mixture.loadings**2).sum(axis=2) + mixture.mean**2
    small, scores = (mixture.noise_variance < SMALL_NOISE * squares_of_features).any(axis=1), []
    for m, map_ in enumerate(about.maps):
        if small[m] and isinstance(rows, np.ndarray):
            centred = rows - mixture.mean[m]
            z = centred @ map_.coefficients.T
            centred -= z @ mixture.loadings[m].T
            # (x−μ)ᵀC⁻¹(x−μ) = (x−μ−Wz)ᵀΨ⁻¹(x−μ−Wz) + zᵀz
            distance[:, m] = np.square(centred, out=centred) @ np.broadcast_to(inverse[m], width)
            distance[:, m] += np.einsum("ij,ij->i", z, z)
        else:
            z = products[:, m * k : (m + 1) * k] - map_.coefficients @ mixture.mean[m]
            # zᵀMz with M = (M⁻¹)⁻¹; z = M⁻¹WᵀΨ⁻¹(x−μ)
            distance[:, m] -= np.einsum("ij,ij->i", z, z @ la.inv(map_.covariance))
        scores.append(z)
    constant = np.array([each.constant for each in about.maps]) + width * LOG_2PI
    return _log_weights(mixture.weights) - 0.5 * (constant + distance), scores


def _log_weights(weights: Array) -> Array:
    return np.asarray(np.log(np.maximum(weights, SMALLEST_WEIGHT)))


def _responsibilities(log_joint: Array) -> tuple[Array, Array]:
    """r (n, M) and log p(x) (n,) by log-sum-exp."""
    peak = log_joint.max(axis=1)
    densities = np.exp(log_joint - peak[:, None])
    total = densities.sum(axis=1)
    return densities / total[:, None], peak + np.log(total)


def _pieces(x: Features, request: MixtureRequest) -> Iterator[tuple[slice, Features, _Compared]]:
    """Some rows about the shift at a time, and what they are compared with."""
    dense, about = isinstance(x, np.ndarray), _compared(request.mixture)
    x, shift = rows_about(x, request.shift)
    thin = 3 * about.columns.shape[1]
    step = max(SMALLEST_CHUNK, CHUNK_BYTES // (8 * (max(x.shape[1], thin) if dense else thin)))
    buffer = np.empty((min(x.shape[0], step), x.shape[1] if dense else 0))
    for start in range(0, x.shape[0], step):
        place = slice(start, min(start + step, x.shape[0]))
        if isinstance(x, np.ndarray):
            yield place, np.subtract(x[place], shift, out=buffer[: place.stop - start]), about
        else:
            yield place, x[place], about


def _transposed_times(x: Features | Array, weights: Array) -> Array:
    """wᵀx (m, D)."""
    return np.asarray(weights.T @ x) if isinstance(x, np.ndarray) else sparse_times(x.T, weights).T


def mixture_sums(x: Features, request: MixtureRequest, assigned: Array | None = None) -> MixtureSums:
    """E-step of rows (n, D); additive over samples, O(nnz K M) or O(n D K M).

    `assigned` (n, M) takes the place of the responsibilities where these are known.
    """
    count, width, k = request.mixture.loadings.shape
    groups = request.mixture.noise_variance.shape[1]
    second, cross = np.zeros((count, k + 1, k + 1)), np.zeros((count * (k + 1), width))
    energy, value = np.zeros((count, groups)), 0.0
    for place, rows, about in _pieces(x, request):
        squares = _squares(rows, groups)
        log_joint, scores = _met(rows, squares, about)
        shares, logs = _responsibilities(log_joint)
        shares = shares if assigned is None else assigned[place]
        weighted = np.empty((len(logs), count * (k + 1)))
        for m, (z, map_) in enumerate(zip(scores, about.maps, strict=True)):
            part = weighted[:, m * (k + 1) : (m + 1) * (k + 1)]
            part[:, :k], part[:, k] = z * shares[:, m, None], shares[:, m]
            total = float(shares[:, m].sum())
            second[m] += joined(z.T @ part[:, :k] + total * map_.covariance, part[:, :k].sum(axis=0), total)
        cross += _transposed_times(rows, weighted)
        energy += _transposed_times(squares, shares)
        value += float(logs.sum())
    return MixtureSums(second, cross.reshape(count, k + 1, width), energy, value)


def block_mixture(block: Block, request: MixtureRequest) -> MixtureSums:
    """E-step of a block, as `mixture_sums`."""
    return mixture_sums(block.features, request)


def maximise_mixture(
    sums: MixtureSums, before: Mixture, specification: Specification, *, expand: bool = True
) -> Mixture:
    """M-step: of each component that of the model by itself; the likelihood does not fall.

    `specification` is that of one component.  A component that has nothing left of the samples, or too little for its
    equations to be solved, keeps its parameters, and only its weight follows.
    """
    counts, components = sums.counts, []
    for m, parameters in enumerate(before.components):
        if counts[m] > FADED:
            with suppress(la.LinAlgError):
                parameters = maximise((sums.latent(m),), specification, expand=expand)
        components.append(parameters)
    return mixture_of(counts / counts.sum(), tuple(components))


def mixture_slope(sums: MixtureSums, mixture: Mixture, specification: Specification) -> Array:
    """Gradient of the log-likelihood by (W, μ, log ψ, log π) as `Mixture.flatten` has them, from the E-step there;
    ∂/∂log π_c = N_c − N π_c, as the weights add up to 1."""
    width, k = mixture.loadings.shape[1:]
    each = [slope((sums.latent(m),), parameters, specification) for m, parameters in enumerate(mixture.components)]
    by_loadings, by_mean, by_noise = zip(*(np.split(one, [width * k, width * (k + 1)]) for one in each), strict=True)
    by_weights = sums.counts - sums.counts.sum() * mixture.weights
    return np.concatenate([*by_loadings, *by_mean, *by_noise, by_weights])


class SubsetRequest(NamedTuple):
    """Increasing numbers of the rows that are wanted, the shift of the features, whether all-zero rows are refused."""

    rows: np.ndarray
    shift: Array
    refuse_zero_rows: bool


class Subset(NamedTuple):
    """First and second sums of each feature over all samples, and some rows as they are, in order."""

    sums: FeatureSums
    rows: tuple[Features, ...]


def block_subset(block: Block, request: SubsetRequest) -> Subset:
    """Sums of a block, and those of the rows that lie in it.

    Raises DataError for NaN or infinity, and for all-zero rows where asked.
    """
    (sums,) = feature_sums(block, MomentRequest(request.shift, ((0,),), request.refuse_zero_rows))
    first, last = np.searchsorted(request.rows, [block.start, block.start + block.rows])
    inside = request.rows[first:last] - block.start
    return Subset(sums, (cast(Features, block.features[inside]),) if len(inside) else ())


def joined_subsets(left: Subset, right: Subset) -> Subset:
    """The sums added, and the rows one after the other."""
    return Subset(add(left.sums, right.sums), left.rows + right.rows)


def _of_rows(x: Features, mixture: Mixture) -> Iterator[tuple[Array, list[Array]]]:
    """log π_c p(x | c) and E[z | x, c] of some rows at a time; sparse rows are not densified."""
    middle = mixture.weights @ mixture.mean
    groups = mixture.noise_variance.shape[1]
    if not isinstance(x, np.ndarray):
        around = (mixture.loadings**2).sum(axis=2) + mixture.noise_variance + (mixture.mean - middle) ** 2
        middle = far_mean(middle, mixture.weights @ around)
    for _, rows, about in _pieces(x, MixtureRequest(mixture.moved(-middle), middle)):
        yield _met(rows, _squares(rows, groups), about)


@dataclass(frozen=True)
class MixtureRows:
    """The mixture given single rows x (n, D); `lengths` (M, K) are what scores of each component are multiplied by,
    None for 1."""

    mixture: Mixture
    lengths: Array | None = None
    holes: ClassVar[bool] = False

    def responsibilities(self, x: Features, y: Array | None) -> Array:
        """p(c | x) (n, M)."""
        empty = np.zeros((0, len(self.mixture.weights)))
        return np.vstack([empty, *(_responsibilities(joint)[0] for joint, _ in _of_rows(x, self.mixture))])

    def likeliest(self, x: Features, y: Array | None) -> Array:
        """The component with the largest responsibility (n,)."""
        return np.concatenate([np.zeros(0), *(joint.argmax(axis=1) for joint, _ in _of_rows(x, self.mixture))])

    def scores(self, x: Features, y: Array | None) -> Array:
        """E[z | x, c] in that component (n, K), times its lengths."""
        scores = [np.zeros((0, self.mixture.loadings.shape[2]))]
        for joint, each in _of_rows(x, self.mixture):
            chosen = joint.argmax(axis=1)
            latent = np.stack(each)[chosen, np.arange(len(joint))]
            scores.append(latent if self.lengths is None else latent * self.lengths[chosen])
        return np.vstack(scores)

    def reconstructions(self, x: Features, y: Array | None) -> Array:
        """W_c E[z | x, c] + μ_c in that component (n, D)."""
        rows, start = np.empty((x.shape[0], self.mixture.mean.shape[1])), 0
        for joint, each in _of_rows(x, self.mixture):
            chosen, place = joint.argmax(axis=1), rows[start : start + len(joint)]
            for m, z in enumerate(each):
                place[chosen == m] = z[chosen == m] @ self.mixture.loadings[m].T + self.mixture.mean[m]
            start += len(joint)
        return rows

    def log_density(self, x: Features, y: Array | None) -> Array:
        """log p(x) (n,), in nats."""
        return np.concatenate([np.zeros(0), *(_responsibilities(joint)[1] for joint, _ in _of_rows(x, self.mixture))])
