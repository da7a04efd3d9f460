"""What an observation model is: how an entry x is distributed given its linear predictor η = wᵀz + b."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.observations.posterior import Own, Posterior, Terms, expectation

Parts: TypeAlias = "tuple[tuple[ObservationModel, slice], ...]"
"""Distributions of entries, and which features are theirs."""


@dataclass(frozen=True)
class ObservationModel:
    """Entries of one distribution; a subclass is one file.

    Parameters
    ----------
    name : the value of `likelihood` that asks for it.
    values : which values entries may have, in words.
    noise : whether it has noise variances ψ, as the normal distribution has.
    level : whether rows have a level of their own unless a user says otherwise.
    closed : whether q(z) has a closed form.
    exact : whether B is the best of quadratic bounds with the precision p, so that whole steps never lower the bound.
    shapes : parameters of shape: none, one of all features, or one of each.
    range : the logarithms between which these are.
    """

    name: ClassVar[str]
    values: ClassVar[str] = "a number"
    noise: ClassVar[bool] = False
    level: ClassVar[bool] = False
    closed: ClassVar[bool] = False
    exact: ClassVar[bool] = False
    shapes: ClassVar[str] = "none"
    range: ClassVar[tuple[float, float]] = (0.0, 0.0)

    def parts(self, features: int) -> Parts:
        """The distributions of so many features: this one of all, unless views have others."""
        return ((self, slice(0, features)),)

    def terms(self, x: Array, e: Array, v: Array, own: Own) -> Terms:
        """Slopes and precisions of entries x (n, D) whose predictors have means e and variances v."""
        raise NotImplementedError

    def bound(self, x: Array, e: Array, v: Array, own: Own, terms: Terms) -> Array:
        """The bound of entries, with the terms there, but for `constant`."""
        raise NotImplementedError

    def constant(self, x: Array, own: Own) -> Array | float:
        """What log p has beside `bound`, whatever the predictors are: it is needed once and not at each step."""
        return 0.0

    def expectation(self, x: Array, seen: Array, parameters: Parameters, own: Own, rough: float = 0.0) -> Posterior:
        """q(z) of rows x (n, D), of which `seen` is 1 at the observed entries; `rough` is what part of the bound of a
        row may be left to gain."""
        return expectation(self, x, seen, parameters, own, self.starts(own), rough)

    def starts(self, own: Own) -> list[Array | None]:
        """Where maxima of the bound are looked for: weights of the entries (D,), or None for the mean 0."""
        return [None]

    def allowed(self, x: Array) -> npt.NDArray[np.bool_]:
        """Whether each value may be an entry."""
        return np.ones(x.shape, dtype=np.bool_)

    def first_shape(self, features: int) -> Array | None:
        """Where the parameters of shape begin."""
        return None

    def mean(self, e: Array, v: Array) -> Array:
        """The mean of entries whose predictors are normal with means e and variances v."""
        return e

    def variance(self, e: Array, v: Array, own: Own) -> Array:
        """Their variance."""
        return np.asarray(v + own.noise)

    def drawn(self, predictor: Array, own: Own, rng: Any) -> Array:
        """Entries drawn at random, given their predictors (n, D)."""
        raise NotImplementedError

    def sample(self, samples: int, parameters: Parameters, own: Own, rng: Any) -> Array:
        """Rows drawn at random (n, D), NaN where nothing is known of a feature."""
        z, unknown = rng.standard_normal((samples, parameters.loadings.shape[1])), np.isnan(parameters.mean)
        rows = self.drawn(z @ parameters.loadings.T + np.nan_to_num(parameters.mean), own, rng)
        return np.where(unknown, np.nan, rows)

    def working(self, x: Array, mean: Array, offset: Array) -> tuple[Array, Array]:
        """Rows x (n, D), NaN where missing, of features with these means (D,) and offsets of their predictors, on a
        scale on which their principal axes are a start; and the predictors without offsets (D,)."""
        return x - offset - mean, mean

    def noise_sums(self, terms: Terms, x: Array, e: Array, v: Array, seen: Array, own: Own) -> Array:
        """Σ u((x − e)² + v), Σ u, and ∂B/∂log ψ, sums over the rows (3, D), with u = p ψ."""
        weight = terms.precision * own.noise
        energy = weight * ((x - e) ** 2 + v)
        return np.stack([energy.sum(axis=0), weight.sum(axis=0), 0.5 * (energy / own.noise - seen).sum(axis=0)])

    def shape_sums(self, x: Array, about: Posterior, seen: Array, own: Own) -> Array:
        """First and second derivatives of the bound by the logarithms of the parameters of shape, sums over the rows
        (2, D)."""
        raise NotImplementedError

    def updated(self, image: Parameters, noise: Array, shape: Array, specification: Specification) -> Parameters:
        """The image with noise variances and parameters of shape from their sums: ψ = Σu((x − e)² + v)/Σu (PX-EM), at
        most halved, and a Newton step along the logarithms of the shapes."""
        if self.noise:
            energy, weight = (specification.per_group(each) for each in noise[:2])
            variance = np.where(weight > 0.0, energy / np.where(weight > 0.0, weight, 1.0), image.noise_variance)
            variance = np.maximum(variance, 0.5 * image.noise_variance)
            image = image._replace(noise_variance=np.maximum(variance, specification.floors))
        if image.shape is None:
            return image
        rise, curvature = _pooled(shape, len(image.shape))
        newton = -rise / np.where(curvature < 0.0, curvature, 1.0)
        step = np.clip(np.where(curvature < 0.0, newton, np.sign(rise)), -1.0, 1.0)
        return image._replace(shape=self.bounded(image.shape * np.exp(step)))

    def bounded(self, shape: Array) -> Array:
        """Parameters of shape within their range."""
        return np.asarray(np.exp(np.clip(np.log(shape), *self.range)))

    def own_slope(self, noise: Array, shape: Array, parameters: Parameters, specification: Specification) -> Array:
        """∂B/∂(log ψ, log shape), in the order of `Parameters.flatten`."""
        slope = specification.per_group(noise[2]) if self.noise else np.zeros(len(parameters.noise_variance))
        if parameters.shape is None:
            return slope
        return np.concatenate([slope, _pooled(shape, len(parameters.shape))[0]])


def _pooled(sums: Array, size: int) -> Array:
    """Sums (2, D) of each feature, or of all where they share a parameter of shape."""
    return sums if size == sums.shape[1] else sums.sum(axis=1, keepdims=True)
