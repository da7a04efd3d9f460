"""What a member of the family is: its views, which of them an instance can lack, and how the noise is shared.

    x = W z + μ + ε,   z ~ N(0, I_K),   ε ~ N(0, Ψ),  Ψ diagonal

The features are split into *views* (blocks of features that are observed together) and every view shares one noise
variance.  PPCA has one view; a supervised model has two, the features and the targets, and an unlabelled instance is
one that lacks the second view.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dlatent.arrays import Array


@dataclass(frozen=True)
class View:
    """A block of `size` features with one noise variance, never below `floor`."""

    name: str
    size: int
    floor: float = 0.0


@dataclass(frozen=True)
class Specification:
    """Views, the patterns of views that occur (each a tuple of view numbers), and the number of components.

    The stacked feature vector of the model has the views in order; `slices` says where each of them lies.
    """

    views: tuple[View, ...]
    patterns: tuple[tuple[int, ...], ...]
    n_components: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of features of each view."""
        return tuple(view.size for view in self.views)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Position of each view in the stacked feature vector."""
        edges = np.concatenate([[0], np.cumsum(self.sizes)]).tolist()
        return tuple(slice(a, b) for a, b in pairwise(edges))

    @property
    def floors(self) -> Array:
        """Noise floor of each view."""
        return np.array([view.floor for view in self.views])

    def features_of(self, pattern: tuple[int, ...]) -> slice | np.ndarray:
        """Positions of the features observed under `pattern`: a slice where they are contiguous, else indices."""
        slices = [self.slices[view] for view in pattern]
        if all(a.stop == b.start for a, b in pairwise(slices)):
            return slice(slices[0].start, slices[-1].stop)
        return np.concatenate([np.arange(s.start, s.stop) for s in slices])

    def per_feature(self, noise_variance: Array) -> Array:
        """Repeat one number per view to one number per stacked feature."""
        return np.repeat(noise_variance, self.sizes)

    def resized(self, sizes: tuple[int, ...]) -> Specification:
        """The same model over views with other numbers of features (for compressed views)."""
        views = tuple(View(v.name, n, v.floor) for v, n in zip(self.views, sizes, strict=True))
        return Specification(views, self.patterns, self.n_components)

    def with_floors(self, floors: Array) -> Specification:
        """The same model with other noise floors."""
        views = tuple(View(v.name, v.size, float(f)) for v, f in zip(self.views, floors, strict=True))
        return Specification(views, self.patterns, self.n_components)
