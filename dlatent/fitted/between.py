"""What is between the samples of a fit: smoothed over a graph, or joined by a precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dlatent.arrays import Array
from dlatent.errors import StoreError
from dlatent.fitted.stored import attribute, part, stored


@dataclass(frozen=True, eq=False)
class Compared:
    """Results of each strength of smoothing that was compared."""

    smoothing: Array = stored("smoothing")
    correlation: Array = stored("smoothing", name="smoothing_correlation")
    error: Array = stored("smoothing", name="smoothing_error")


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Rows were smoothed over a graph with λ; a row is itself a sample."""

    smoothing: float = attribute()
    hops: int = attribute()
    edges: int = attribute()
    compared: Compared | None = part(default=None)
    isolated: ClassVar[float] = 1.0
    """The precision of a row by itself."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.smoothing < np.inf or self.hops < 1:
            raise StoreError(f"rows were smoothed with λ = {self.smoothing} over {self.hops} hops, which no fit does")


@dataclass(frozen=True, eq=False)
class Edges:
    """A graph makes the precision Δ = γI + (αI + A)² between the samples, whose rank is known."""

    alpha: float = attribute()
    gamma: float = attribute()
    edges: int = attribute()
    rank: int = attribute()

    def __post_init__(self) -> None:
        if not 0.0 <= self.isolated < np.inf:
            raise StoreError(f"a sample without edges has the precision {self.isolated}, which no fit leaves")

    @property
    def isolated(self) -> float:
        """Δ_ii of a sample without edges, γ + α²."""
        return self.gamma + self.alpha**2


@dataclass(frozen=True, eq=False)
class Entries:
    """A precision between the samples was given, of so many stored entries and this rank."""

    entries: int = attribute()
    rank: int = attribute()
    isolated: ClassVar[float] = 1.0
    """The precision of a sample beside those of the fit."""
