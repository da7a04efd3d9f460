"""Targets as a fitted model keeps them: how they are encoded, and what predicts them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array
from dlatent.fitted.stored import attribute, part, stored
from dlatent.fitted.targets import TargetEncoding
from dlatent.gaussian.head import Head
from dlatent.gaussian.parameters import Parameters


@dataclass(frozen=True, eq=False)
class EstimatedHead:
    """The predictor of targets from scores, where it was estimated after the fit."""

    coefficients: Array = stored("component", "target", name="head_coefficients")
    offset: Array = stored("target", name="head_offset")
    noise_variance: Array | None = stored("target", name="head_noise_variance")
    lengths: Array | None = stored("component", "component_2", name="head_lengths")

    @classmethod
    def of(cls, head: Head, *, classes: bool) -> EstimatedHead:
        """The head, whose noise variances classes do not have."""
        return cls(head.coefficients, head.offsets, None if classes else head.noise, head.lengths)

    @property
    def head(self) -> Head:
        """The head as the mathematics has it."""
        noise = np.zeros(0) if self.noise_variance is None else self.noise_variance
        return Head(self.coefficients, self.offset, noise, self.lengths)


@dataclass(frozen=True, eq=False)
class Targets:
    """The last view: targets on their rank, how they are encoded, and what predicts them."""

    kind: str = attribute()
    rank_loadings: Array = stored("target_rank", "component")
    rank_mean: Array = stored("target_rank")
    centre: Array = stored("target", name="target_centre")
    rotation: Array = stored("target", "target_rank", name="target_rotation")
    names: npt.NDArray[Any] = stored("target", name="target")
    loadings: Array = stored("target", "component", name="target_loadings")
    mean: Array = stored("target", name="target_mean")
    rank_loadings_covariance: Array | None = stored("target_rank", "component_pair", default=None)
    head: EstimatedHead | None = part(default=None)

    @classmethod
    def of(cls, encoding: TargetEncoding, parameters: Parameters, view: slice) -> Targets:
        """The targets of a fit, which are a view of the stacked features."""
        loadings, mean = parameters.loadings[view], parameters.mean[view]
        return cls(
            encoding.kind,
            loadings,
            mean,
            encoding.centre,
            encoding.rotation,
            np.asarray(encoding.names),
            encoding.rotation @ loadings,
            encoding.decode(mean),
            parameters.covariance_of(view),
        )

    @property
    def classes(self) -> bool:
        """Whether the targets are classes."""
        return self.kind == "class"

    @cached_property
    def encoding(self) -> TargetEncoding:
        """How targets are encoded."""
        return TargetEncoding(self.kind, self.centre, self.rotation, self.names, self.names if self.classes else None)
