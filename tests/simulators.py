"""Data drawn from the models themselves, small and reproducible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array
from dlatent.gaussian.specification import Parameters, Specification, View


class Simulated(NamedTuple):
    """Draws from a model: features (N, D), targets (N, L) (L = 0 for one view), latent variables (N, K), and the
    truth."""

    features: Array
    targets: Array
    latent: Array
    parameters: Parameters
    specification: Specification

    @property
    def stacked(self) -> Array:
        """Features and targets side by side (N, D + L)."""
        return np.hstack([self.features, self.targets])


def specification_of(
    sizes: Sequence[int], n_components: int, *, unlabelled: bool = False, floors: Sequence[float] | None = None
) -> Specification:
    """The model with views of these sizes; with `unlabelled` samples may lack every view but the first."""
    names = ("features", "targets", *(f"view {number}" for number in range(2, len(sizes))))
    lows = [0.0] * len(sizes) if floors is None else list(floors)
    views = tuple(View(name, size, low) for name, size, low in zip(names, sizes, lows, strict=False))
    everything = tuple(range(len(sizes)))
    return Specification(views, (everything, (0,)) if unlabelled else (everything,), n_components)


def random_parameters(
    sizes: Sequence[int],
    n_components: int,
    *,
    noise: Sequence[float] | None = None,
    strength: float = 1.0,
    offset: float = 1.0,
    random_state: Any = 0,
) -> Parameters:
    """Normal loadings times `strength` with columns of decreasing scale, normal means times `offset`, given noise
    variances."""
    rng = np.random.default_rng(random_state)
    scale = strength * np.linspace(1.6, 0.8, n_components)
    loadings = rng.standard_normal((sum(sizes), n_components)) * scale
    variances = np.full(len(sizes), 0.25) if noise is None else np.asarray(noise, dtype=float)
    return Parameters(loadings, offset * rng.standard_normal(sum(sizes)), variances)


def draw(parameters: Parameters, specification: Specification, samples: int, random_state: Any = 0) -> Simulated:
    """Samples from the model's definition: z ~ N(0, I), x = Wz + μ + ε."""
    rng = np.random.default_rng(random_state)
    latent = rng.standard_normal((samples, parameters.loadings.shape[1]))
    spread = np.sqrt(specification.per_feature(parameters.noise_variance))
    stacked = latent @ parameters.loadings.T + parameters.mean
    stacked = stacked + rng.standard_normal(stacked.shape) * spread
    own = specification.slices[0]
    return Simulated(stacked[:, own], stacked[:, own.stop :], latent, parameters, specification)


def simulate(
    samples: int,
    sizes: Sequence[int] = (8,),
    n_components: int = 2,
    *,
    noise: Sequence[float] | None = None,
    strength: float = 1.0,
    offset: float = 1.0,
    random_state: Any = 0,
) -> Simulated:
    """Samples of a model with random parameters; see `random_parameters` and `draw`."""
    parameters = random_parameters(
        sizes, n_components, noise=noise, strength=strength, offset=offset, random_state=random_state
    )
    seed = np.random.default_rng(random_state).integers(2**31)
    return draw(parameters, specification_of(sizes, n_components), samples, seed)


def plain_features(samples: int = 48, features: int = 7, random_state: Any = 0) -> Array:
    """Dense features with three strong directions, a mean away from zero, and no zero entry."""
    return simulate(samples, (features,), 3, noise=(0.3,), offset=3.0, random_state=random_state).features


def hide(targets: npt.ArrayLike, labelled: npt.NDArray[np.bool_]) -> Array:
    """The targets with NaN in the rows that are not labelled."""
    hidden = np.array(targets, dtype=np.float64)
    hidden[~labelled] = np.nan
    return hidden


def first_of_each(labels: npt.NDArray[Any], count: int) -> npt.NDArray[np.bool_]:
    """True for the first `count` samples of every class."""
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        chosen[np.flatnonzero(labels == label)[:count]] = True
    return chosen


class Documents(NamedTuple):
    """Sparse rows (N, D) of unit norm, none of them empty, and their classes (N,)."""

    features: sp.csr_array
    labels: npt.NDArray[np.int64]


def documents(samples: int, words: int, classes: int = 3, *, length: int = 12, random_state: Any = 0) -> Documents:
    """Text-like data: every class prefers words of its own, a document holds `length` draws of words."""
    rng = np.random.default_rng(random_state)
    common = 1.0 / np.arange(1, words + 1)
    topics = np.stack([common * rng.gamma(0.3, size=words) + 1e-3 * common for _ in range(classes)])
    topics /= topics.sum(axis=1, keepdims=True)
    labels = np.arange(samples) % classes
    counts = np.stack([rng.multinomial(length, topics[label]) for label in labels]).astype(float)
    counts /= np.sqrt((counts**2).sum(axis=1, keepdims=True))
    return Documents(sp.csr_array(counts), labels)
