"""Mixtures in the tests: draws from the model, its densities from their definition, and the conformance suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.special import logsumexp

from dlatent.arrays import Array
from dlatent.solvers.mixture.statistics import Mixture
from dlatent.testing.conformance import Preset, Values
from tests.oracles.dense import DenseModel, log_densities


class SimulatedMixture(NamedTuple):
    """Draws from a mixture: features (N, D), the component of each sample (N,), and the truth."""

    features: Array
    labels: npt.NDArray[np.int64]
    mixture: Mixture


def simulate_mixture(
    samples: int,
    features: int = 8,
    n_components: int = 2,
    *,
    weights: Sequence[float] = (0.5, 0.3, 0.2),
    noise: float = 0.2,
    own_noise: bool = False,
    separation: float = 4.0,
    random_state: Any = 0,
) -> SimulatedMixture:
    """Samples from the model's definition, c ~ π, x = W_c z + μ_c + ε.

    Loadings are normal, means normal times `separation`, and noise variances about `noise`, with `own_noise` one for
    each feature.
    """
    rng = np.random.default_rng(random_state)
    count, groups = len(weights), features if own_noise else 1
    loadings = rng.standard_normal((count, features, n_components)) * np.linspace(1.4, 0.7, n_components)
    mean = separation * rng.standard_normal((count, features))
    variances = noise * rng.uniform(0.5, 1.5, size=(count, groups))
    labels = rng.choice(count, size=samples, p=np.array(weights))
    latent = rng.standard_normal((samples, n_components))
    drawn = np.einsum("ndk,nk->nd", loadings[labels], latent) + mean[labels]
    drawn += rng.standard_normal(drawn.shape) * np.sqrt(variances)[labels]
    return SimulatedMixture(drawn, labels, Mixture(np.array(weights, dtype=float), loadings, mean, variances))


def joint_log_densities(mixture: Mixture, rows: Array) -> Array:
    """log π_c + log N(x | μ_c, W_c W_cᵀ + Ψ_c) of every row and component (N, M), from dense covariances."""
    found = []
    for weight, own in zip(mixture.weights, mixture.components, strict=True):
        noise = np.broadcast_to(own.noise_variance, own.mean.shape)
        found.append(np.log(weight) + log_densities(DenseModel(own.loadings, own.mean, noise), rows))
    return np.stack(found, axis=1)


def mixture_log_densities(mixture: Mixture, rows: Array) -> Array:
    """log p(x) of every row (N,), in nats."""
    return np.asarray(logsumexp(joint_log_densities(mixture, rows), axis=1))


@dataclass(frozen=True)
class MixturePreset(Preset):
    """A mixture in the conformance suite: its parameters have a first axis of `mixtures` components."""

    mixtures: int = 2
    solvers: tuple[str, str] = ("mixture", "mixture")

    @property
    def leading(self) -> tuple[int, ...]:
        return (self.mixtures,)

    def fit(self, features: Any = None, **options: Any) -> Any:
        """The estimator fitted to its own data, or to other features; it has no choice of solvers."""
        options.pop("solver", None)
        return super().fit(features, **options)

    def values(self, model: Any) -> Values:
        """The fitted parameters of all components of the mixture, the weights beside the noise variances."""
        noise = np.append(np.ravel(model.noise_variance_), model.weights_)
        return Values(model.components_, model.means_, noise, model.log_likelihood_)

    def middle(self, model: Any) -> Array:
        return np.asarray(model.weights_ @ model.means_)

    def diagonal(self, model: Any) -> Array:
        """The posterior covariance in the component with the largest weight (K, K)."""
        loadings, noise = model.components_[0], np.broadcast_to(model.noise_variance_[0], model.means_[0].shape)
        return np.asarray(np.linalg.inv(np.eye(len(loadings)) + (loadings / noise) @ loadings.T))

    def first_components(self, model: Any) -> Array:
        """All loadings, one below the other."""
        return np.asarray(np.concatenate(model.components_))

    def sample(self, model: Any, count: int, seed: int) -> tuple[Array, Array]:
        drawn, _ = model.sample(count, random_state=seed)
        apart = model.means_ - self.middle(model)
        noise = np.broadcast_to(np.asarray(model.noise_variance_).reshape(self.mixtures, -1), apart.shape)
        inner = np.einsum("m,mkd,mke->de", model.weights_, model.components_, model.components_)
        return drawn, inner + (model.weights_ * apart.T) @ apart + np.diag(model.weights_ @ noise)

    def check_names(self) -> None:
        rows = [f"r{i}" for i in range(len(self.features))]
        data = xr.DataArray(self.features, dims=("row", "column"), coords={"row": rows})
        model = self.fitted
        for function, columns in ((model.transform, "component"), (model.predict_proba, "mixture")):
            found = function(data)
            assert found.dims == ("row", columns)
            assert found["row"].values.tolist() == rows
            np.testing.assert_array_equal(found.values, function(self.features))
        assert self.fit(data).result_["mixture_loadings"].dims == ("mixture", "column", "component")
