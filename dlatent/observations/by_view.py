"""Entries of several views, the distribution of each its own: all that a model says it says view by view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlatent.arrays import Array
from dlatent.gaussian.specification import slices_of
from dlatent.observations.model import ObservationModel, Parts
from dlatent.observations.posterior import Own, Posterior, Terms

Function = Callable[[ObservationModel, slice, Own], Any]
"""What a model says of the entries of its view, by where their features are and what they have beside z."""


@dataclass(frozen=True)
class ByView(ObservationModel):
    """Views of these sizes side by side.  Each feature has a parameter of shape, 1 where its distribution has none, and
    all of a view the same where they share one."""

    models: tuple[ObservationModel, ...]
    sizes: tuple[int, ...]
    name, noise, shapes = "by view", True, "each"

    def parts(self, features: int) -> Parts:
        """The distribution of each view, and where its features are."""
        return tuple(zip(self.models, slices_of(self.sizes), strict=True))

    def _each(self, own: Own, function: Function) -> list[Any]:
        parts, shape = self.parts(len(own.noise)), own.shape
        shapes = (None if shape is None or model.shapes == "none" else shape[at] for model, at in parts)
        return [function(model, at, Own(own.noise[at], some)) for (model, at), some in zip(parts, shapes, strict=True)]

    def _beside(self, own: Own, function: Function) -> Array:
        return np.concatenate(self._each(own, function), axis=-1)

    def starts(self, own: Own) -> list[Array | None]:
        """Those of views with several, where others know nothing of z."""
        each = self._each(own, lambda model, at, part: model.starts(part))
        if all(start is None for (start, *_) in each):
            return [None]
        starts = np.zeros((max(map(len, each)), len(own.noise)))
        for (_, at), some in zip(self.parts(len(own.noise)), each, strict=True):
            for whole, start in zip(starts, some, strict=False):
                whole[at] = 0.0 if start is None else start
        return [*starts]

    def terms(self, x: Array, e: Array, v: Array, own: Own) -> Terms:
        """Those of each view."""
        each = self._each(own, lambda model, at, part: model.terms(x[:, at], e[:, at], v[:, at], part))
        return Terms(*(np.concatenate(some, axis=1) for some in zip(*each, strict=True)))

    def bound(self, x: Array, e: Array, v: Array, own: Own, terms: Terms) -> Array:
        """That of each view."""

        def of_view(model: ObservationModel, at: slice, part: Own) -> Array:
            return model.bound(x[:, at], e[:, at], v[:, at], part, terms.of(at))

        return self._beside(own, of_view)

    def constant(self, x: Array, own: Own) -> Array:
        """That of each view."""

        def of_view(model: ObservationModel, at: slice, part: Own) -> Array:
            return np.broadcast_to(model.constant(x[:, at], part), x[:, at].shape)

        return self._beside(own, of_view)

    def first_shape(self, features: int) -> Array | None:
        """Those of each view; None where no view has any."""
        each = [model.first_shape(size) for model, size in zip(self.models, self.sizes, strict=True)]
        if all(shape is None for shape in each):
            return None
        filled = (1.0 if shape is None else shape for shape in each)
        return np.concatenate([np.broadcast_to(part, size) for part, size in zip(filled, self.sizes, strict=True)])

    def mean(self, e: Array, v: Array) -> Array:
        """That of each view."""
        return np.concatenate([model.mean(e[:, at], v[:, at]) for model, at in self.parts(e.shape[1])], axis=1)

    def variance(self, e: Array, v: Array, own: Own) -> Array:
        """That of each view."""
        return self._beside(own, lambda model, at, part: model.variance(e[:, at], v[:, at], part))

    def drawn(self, predictor: Array, own: Own, rng: Any) -> Array:
        """Entries of each view."""
        return self._beside(own, lambda model, at, part: model.drawn(predictor[:, at], part, rng))

    def noise_sums(self, terms: Terms, x: Array, e: Array, v: Array, seen: Array, own: Own) -> Array:
        """Those of views with noise, else zeros."""

        def of_view(model: ObservationModel, at: slice, part: Own) -> Array:
            if not model.noise:
                return np.zeros((3, len(part.noise)))
            return model.noise_sums(terms.of(at), x[:, at], e[:, at], v[:, at], seen[:, at], part)

        return self._beside(own, of_view)

    def shape_sums(self, x: Array, about: Posterior, seen: Array, own: Own) -> Array:
        """Those of views with parameters of shape, the same part for each feature where one is that of all."""

        def of_view(model: ObservationModel, at: slice, part: Own) -> Array:
            if part.shape is None:
                return np.zeros((2, len(part.noise)))
            view = about._replace(e=about.e[:, at], v=about.v[:, at], terms=about.terms.of(at))
            sums = model.shape_sums(x[:, at], view, seen[:, at], part)
            return sums if model.shapes == "each" else np.broadcast_to(sums.mean(axis=1)[:, None], sums.shape)

        return self._beside(own, of_view)

    def bounded(self, shape: Array) -> Array:
        """Parameters of each view within its range, or 1."""
        each = ((model.shapes, model.bounded(shape[at])) for model, at in self.parts(len(shape)))
        return np.concatenate([np.ones(len(part)) if shapes == "none" else part for shapes, part in each])
