"""A model of the family by its views, which of them a sample can lack, and how the noise is shared; and its parameters.

    x = W z + μ + ε,   z ~ N(0, I_K),   ε ~ N(0, Ψ),  Ψ diagonal

The features are split into *views* (blocks of features that are observed together).  A view shares one noise variance,
or has one for each feature; features with one variance are a *noise group*.  PPCA and factor analysis have one view; a
supervised model has two, the features and the targets, and an unlabelled sample is one that lacks the second view.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array
from dlatent.operators.symmetric import congruent

LARGEST_LOG = 700.0
"""Logarithm of a noise variance that a double can hold; extrapolations may go beyond."""


def slices_of(sizes: Iterable[int]) -> tuple[slice, ...]:
    """Where pieces of these sizes lie, one after the other."""
    return tuple(slice(a, b) for a, b in pairwise([0, *accumulate(sizes)]))


@dataclass(frozen=True)
class View:
    """A block of `size` features with one noise variance, never below `floor`; with `shared` False each feature has a
    variance and a floor of its own (then `floor` is one number for all of them, or a tuple).  With `fixed` the noise
    variance is the floor.  `leveled`, whether levels of samples, where these have any, are in its features."""

    name: str
    size: int
    floor: float | tuple[float, ...] = 0.0
    shared: bool = True
    fixed: bool = False
    leveled: bool = True

    @property
    def groups(self) -> int:
        """Number of noise variances."""
        return 1 if self.shared else self.size


@dataclass(frozen=True)
class Specification:
    """Views, the patterns of views that occur (each a tuple of view numbers), and the number of components.

    The stacked feature vector of the model has the views in order; `slices` says where each of them lies.  With
    `row_effects` the last component has one loading for all features of leveled views, a level of each sample.
    """

    views: tuple[View, ...]
    patterns: tuple[tuple[int, ...], ...]
    n_components: int
    row_effects: bool = False

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of features of each view."""
        return tuple(view.size for view in self.views)

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Position of each view in the stacked feature vector."""
        return slices_of(self.sizes)

    @cached_property
    def floors(self) -> Array:
        """Floor of each noise variance."""
        return np.concatenate([np.broadcast_to(np.asarray(view.floor), view.groups) for view in self.views])

    @property
    def leveled(self) -> Array:
        """1 for features that levels of samples move, 0 for others (D,)."""
        return np.repeat([float(view.leveled) for view in self.views], self.sizes)

    @property
    def single(self) -> bool:
        """Whether there is one view and every sample has it."""
        return len(self.views) == len(self.patterns) == 1

    @property
    def fixed(self) -> bool:
        """Whether the noise variances are given, by the floors."""
        return all(view.fixed for view in self.views)

    def freed(self, floors: Array) -> Specification:
        """The model with noise variances that are to be found, above other floors."""
        free = replace(self, views=tuple(replace(view, fixed=False) for view in self.views))
        return free.with_floors(floors)

    @cached_property
    def group_sizes(self) -> tuple[int, ...]:
        """Number of features of each noise group."""
        return tuple(size for view in self.views for size in ((view.size,) if view.shared else (1,) * view.size))

    @property
    def group_slices(self) -> tuple[slice, ...]:
        """Position of each noise group in the stacked feature vector."""
        return slices_of(self.group_sizes)

    @property
    def group_starts(self) -> list[int]:
        """Where each noise group begins in the stacked feature vector."""
        return [at.start for at in self.group_slices]

    @cached_property
    def noise_slices(self) -> tuple[slice, ...]:
        """Position of each view in the vector of noise variances."""
        return slices_of(view.groups for view in self.views)

    def slices_within(self, pattern: tuple[int, ...]) -> dict[int, slice]:
        """Position of each view of a pattern among the features that are observed under it, by view number."""
        return dict(zip(pattern, slices_of(self.sizes[view] for view in pattern), strict=True))

    def features_of(self, pattern: tuple[int, ...]) -> slice | np.ndarray:
        """Positions of the features observed under `pattern`: a slice where they are contiguous, else indices."""
        slices = [self.slices[view] for view in pattern]
        if all(a.stop == b.start for a, b in pairwise(slices)):
            return slice(slices[0].start, slices[-1].stop)
        return np.concatenate([np.arange(s.start, s.stop) for s in slices])

    @property
    def shared(self) -> npt.NDArray[np.bool_]:
        """Whether each noise variance (groups,) is that of all features of a view."""
        return np.repeat([view.shared for view in self.views], [view.groups for view in self.views])

    def per_feature(self, noise_variance: Array) -> Array:
        """Repeat one number per noise group to one number per stacked feature."""
        return np.repeat(noise_variance, self.group_sizes)

    def per_group(self, values: Array) -> Array:
        """Sums of numbers of the stacked features (D,) over each noise group."""
        return np.asarray(np.add.reduceat(values, self.group_starts))

    def resized(self, sizes: tuple[int, ...]) -> Specification:
        """The model over views with other numbers of features (for compressed views)."""
        views = tuple(replace(v, size=n) for v, n in zip(self.views, sizes, strict=True))
        return replace(self, views=views)

    def with_floors(self, floors: Array) -> Specification:
        """The model with other noise floors, one for each noise variance."""
        each = [floors[at].tolist() for at in self.noise_slices]
        views = tuple(replace(v, floor=f[0] if v.shared else tuple(f)) for v, f in zip(self.views, each, strict=True))
        return replace(self, views=views)


class Parameters(NamedTuple):
    """Loadings W (D, K), mean μ (D,) and noise variance (noise groups,), in units of the data (noise: squared).

    Where the loadings have a prior, W are their posterior means, and `loadings_covariance` (D, K(K+1)/2) the packed
    posterior covariances Σ_j of each feature's, or (1, K(K+1)/2) where all are one; None where W is all that is known.
    Where the mean has a prior, μ is its posterior mean, and `mean_variance` (D,) the posterior variances s².  `shape`,
    (D,) or (1,), are positive parameters of the distribution of entries, where it has any beside the noise.  `effects`
    (D, C) are coefficients of covariates c, where rows have any: the mean is then μ + Bc.
    """

    loadings: Array
    mean: Array
    noise_variance: Array
    loadings_covariance: Array | None = None
    mean_variance: Array | None = None
    shape: Array | None = None
    effects: Array | None = None

    def of(self, features: Any) -> Parameters:
        """Those of some features, by an index of theirs; the noise variances are those of all."""
        variance = self.mean_variance
        return Parameters(
            self.loadings[features],
            self.mean[features],
            self.noise_variance,
            self.covariance_of(features),
            None if variance is None else variance[features],
            self.shape if self.shape is None or len(self.shape) == 1 else self.shape[features],
            None if self.effects is None else self.effects[features],
        )

    def uncertainty(self, noise: Array) -> Array:
        """s²/ψ (D,) for the noise variances of the features (D,): what an entry loses as the mean is uncertain."""
        return np.zeros(len(noise)) if self.mean_variance is None else self.mean_variance / noise

    def covariance_of(self, features: Any) -> Array | None:
        """`loadings_covariance` of some features, by an index of theirs."""
        spread = self.loadings_covariance
        return spread if spread is None or len(spread) == 1 else spread[features]

    def flatten(self) -> Array:
        """One vector (W, μ, B, log ψ, log shape), the coordinates in which the driver extrapolates."""
        effects = [] if self.effects is None else [self.effects.ravel()]
        own = [np.log(each).ravel() for each in (self.noise_variance, self.shape) if each is not None]
        return np.concatenate([self.loadings.ravel(), self.mean.ravel(), *effects, *own])

    def unflatten(self, vector: Array) -> Parameters:
        """Inverse of `flatten` with the shapes of `self`, and its uncertainty."""
        size, width, groups = self.loadings.size, self.mean.size, self.noise_variance.size
        at = size + width
        ends = at if self.effects is None else at + self.effects.size
        own = np.exp(np.clip(vector[ends:], -LARGEST_LOG, LARGEST_LOG))
        return Parameters(
            vector[:size].reshape(self.loadings.shape),
            vector[size:at].reshape(self.mean.shape),
            own[:groups].reshape(self.noise_variance.shape),
            self.loadings_covariance,
            self.mean_variance,
            None if self.shape is None else own[groups:],
            None if self.effects is None else vector[at:ends].reshape(self.effects.shape),
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
            self.shape,
            None if self.effects is None else self.effects * features[:, None],
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
