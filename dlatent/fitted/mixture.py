"""Fitted mixtures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array, Integers
from dlatent.errors import DataError, StoreError
from dlatent.fitted.fit import FittedModel, Summary, component_summaries, noise_summary
from dlatent.fitted.parts import FeatureLabels
from dlatent.fitted.stored import part, stored
from dlatent.gaussian.specification import Parameters
from dlatent.solvers.mixture.rows import MixtureRows
from dlatent.solvers.mixture.statistics import Mixture as MixtureParameters
from dlatent.solvers.solver import Solution


@dataclass(frozen=True, eq=False)
class ComponentNoise:
    """A noise variance for each component of the mixture."""

    variance: Array = stored("mixture", name="mixture_noise_variance")
    floor: Array = stored("view", name="noise_floor")
    at_floor: Array = stored("mixture", name="mixture_at_floor")


@dataclass(frozen=True, eq=False)
class ComponentFeatureNoise:
    """A noise variance for each feature in each component of the mixture."""

    variance: Array = stored("mixture", "feature", name="mixture_feature_noise_variance")
    floor: Array = stored("feature", name="feature_noise_floor")
    at_floor: Array = stored("mixture", "feature", name="mixture_feature_at_floor")


@dataclass(frozen=True, eq=False, kw_only=True)
class Mixture(FittedModel):
    """c ~ π, x = W_c z + μ_c + ε.

    With `units` the fit was that of x/units; then a noise variance that features share is in these units, and
    everything else is in those of the features.
    """

    mixture: Integers = stored("mixture")
    weights: Array = stored("mixture", name="mixture_weight")
    loadings: Array = stored("mixture", "feature", "component", name="mixture_loadings")
    mean: Array = stored("mixture", "feature", name="mixture_mean")
    noise: ComponentNoise | ComponentFeatureNoise = part()
    views: npt.NDArray[np.str_] = stored("view", name="view")
    component: Integers = stored("component")
    view_samples: Integers = stored("view")
    total_variance: Array = stored("view")
    labels: FeatureLabels = part()
    units: Array | None = stored("feature", name="feature_scale", default=None)

    def __post_init__(self) -> None:
        """Refuse what does not fit together.  Errors: StoreError."""
        if abs(self.weights.sum() - 1.0) > 1e-9:
            raise StoreError(f"the weights of the mixture add up to {self.weights.sum():.10g}, not to 1")
        if not self.loadings.shape[2]:
            raise StoreError("the model has no component")

    @classmethod
    def of(cls, solution: Solution, labels: FeatureLabels) -> Mixture:
        """The mixture of a solution; one component is fitted as PPCA or factor analysis, and has no weight."""
        specification = solution.specification
        weights, (loadings, mean, variance) = solution.weights, solution.parameters[:3]
        if weights is None:
            weights, loadings, mean, variance = np.ones(1), loadings[None], mean[None], variance[None]
        shared = specification.views[0].shared
        variance = variance[:, 0] if shared else variance
        noise = variance, specification.floors, np.array(solution.at_floor).reshape(variance.shape)
        return cls(
            mixture=np.arange(len(weights)),
            weights=weights,
            loadings=loadings,
            mean=mean,
            noise=ComponentNoise(*noise) if shared else ComponentFeatureNoise(*noise),
            views=np.array([view.name for view in specification.views]),
            component=np.arange(specification.n_components),
            view_samples=np.array(solution.view_samples),
            total_variance=np.array(solution.total_variance),
            labels=labels,
        )

    @property
    def lengths(self) -> Array:
        """How long the loadings of each component are (M, K), in the units of the fit."""
        return np.asarray(np.linalg.norm(self.fitted_loadings, axis=1))

    @property
    def fitted_loadings(self) -> Array:
        """The loadings in the units of the fit."""
        return self.loadings if self.units is None else np.asarray(self.loadings / self.units[:, None])

    def in_data_units(self, units: Array) -> Mixture:
        """The model of features x, of a fit to x/units."""
        noise = self.noise
        if isinstance(noise, ComponentFeatureNoise):
            noise = ComponentFeatureNoise(noise.variance * units**2, noise.floor * units**2, noise.at_floor)
        return replace(self, loadings=self.loadings * units[:, None], mean=self.mean * units, noise=noise, units=units)

    def conditional_means(self, scores: Array, chosen: npt.NDArray[Any], *, whiten: bool) -> Array:
        """The means of the features (n, D) given the scores and the component of each row.  Errors: DataError."""
        if chosen.shape != (len(scores),) or chosen.dtype.kind not in "iu" or not np.isin(chosen, self.mixture).all():
            raise DataError(
                f"the labels must be {len(scores)} whole numbers from 0 to {len(self.weights) - 1}, as `predict` gives "
                "them"
            )
        means, lengths = np.empty((len(scores), self.mean.shape[1])), self.lengths
        latent = scores if whiten else scores / np.where(lengths > 0.0, lengths, np.inf)[chosen]
        for c in self.mixture:
            means[chosen == c] = latent[chosen == c] @ self.components[c] + self.mean[c]
        return means

    @property
    def noise_variances(self) -> Array:
        """Those of each component of the mixture, shared (M, 1) in the units of the fit, or of features (M, D)."""
        return self.noise.variance.reshape(len(self.weights), -1)

    @cached_property
    def parameters(self) -> MixtureParameters:
        """Those of all components of the mixture."""
        noise = self.noise_variances
        if self.units is not None and noise.shape[1] == 1:
            noise = noise * self.units**2
        return MixtureParameters(self.weights, self.loadings, self.mean, noise)

    @cached_property
    def components(self) -> Array:
        """W_cᵀ (M, K, D)."""
        return np.ascontiguousarray(self.loadings.transpose(0, 2, 1))

    @property
    def rows(self) -> MixtureRows:
        """Functions of single rows."""
        return MixtureRows(self.parameters)

    def summary(self, samples: int) -> Summary:
        """The weights, the noise of each component of the mixture, where features have their own its mean, and their
        latent variables, with the features of the largest loadings."""
        width, shared = self.mean.shape[1], isinstance(self.noise, ComponentNoise)
        each = self.noise_variances
        names, total = self.labels.display_names(width), float(self.total_variance[0]) * width
        low = self.noise.at_floor.reshape(each.shape)
        noise = [
            noise_summary(f"component {m}", each[m], low[m], round(weight * samples), shared=shared)
            for m, weight in zip(self.mixture, self.weights, strict=True)
        ]
        components = [
            {"mixture": m} | one
            for m, loadings in zip(self.mixture.tolist(), self.fitted_loadings, strict=True)
            for one in component_summaries(loadings, names, total)
        ]
        return {"features": width, "noise": noise, "components": components, "mixture": self.weights}

    @property
    def start(self) -> MixtureParameters | Parameters:
        """The start of a warm start, in the units of the fit; one component is fitted as PPCA or factor analysis."""
        units = 1.0 if self.units is None else self.units
        each = self.noise_variances
        noise = each if each.shape[1] == 1 else each / units**2
        fitted = MixtureParameters(self.weights, self.fitted_loadings, self.mean / units, noise)
        return fitted if len(self.weights) > 1 else fitted.components[0]
