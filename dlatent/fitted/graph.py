"""What is between the samples of a fit: a graph over which rows are smoothed, or a precision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlatent.arrays import Array
from dlatent.errors import StoreError, number_of
from dlatent.fitted.facts import Facts
from dlatent.fitted.stored import fact, part, stored, variables


@dataclass(frozen=True, eq=False)
class Compared:
    """What is known of each strength of smoothing that was compared."""

    smoothing: Array = stored("smoothing")
    correlation: Array = stored("smoothing", name="smoothing_correlation")
    error: Array = stored("smoothing", name="smoothing_error")


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Rows were smoothed over a graph with λ; a row is itself a sample."""

    smoothing: float = fact()
    hops: int = fact()
    edges: int = fact()
    compared: Compared | None = part(default=None)

    def __post_init__(self) -> None:
        if not 0.0 <= self.smoothing < np.inf or self.hops < 1:
            raise StoreError(f"rows were smoothed with λ = {self.smoothing} over {self.hops} hops, which no fit does")

    @property
    def isolated(self) -> float:
        """The precision of a row by itself: 1."""
        return 1.0

    def told(self) -> Facts:
        """The graph, and the strengths of smoothing that were compared."""
        graph: Facts = {"edges": self.edges, "smoothing": self.smoothing, "hops": self.hops}
        if self.compared is not None:
            graph["compared"] = {name: each.values.tolist() for name, each in variables(self.compared).items()}
        return {"graph": graph}

    def told_in_words(self, samples: int, likelihood: str) -> dict[str, str]:
        """The lines for that, and that of the likelihood."""
        lines = dict[str, str]()
        if self.compared is not None:
            pairs = zip(self.compared.smoothing, self.compared.correlation, strict=True)
            text = ", ".join(f"{correlation:.4f} (λ = {smoothing:g})" for smoothing, correlation in pairs)
            lines["smoothing"] = f"correlation with hidden cells {text}"
        if not self.smoothing:
            return {**lines, "graph": "not used, as λ = 0"}
        text = f"{self.edges:,} edges, with λ = {self.smoothing:g} and {number_of(self.hops, 'hop', 'hops')}"
        return {**lines, "log-likelihood": f"{likelihood} of the smoothed rows", "graph": text}


@dataclass(frozen=True, eq=False)
class Edges:
    """A graph makes the precision Δ = γI + (αI + A)² between the samples, whose rank is known."""

    alpha: float = fact()
    gamma: float = fact()
    edges: int = fact()
    rank: int = fact()

    def __post_init__(self) -> None:
        if not 0.0 <= self.isolated < np.inf:
            raise StoreError(f"a sample without edges has the precision {self.isolated}, which no fit leaves")

    @property
    def isolated(self) -> float:
        """Δ_ii of a sample without edges, γ + α²."""
        return self.gamma + self.alpha**2

    def told(self) -> Facts:
        """The graph and its numbers."""
        return {"graph": {"edges": self.edges, "alpha": self.alpha, "gamma": self.gamma, "rank": self.rank}}

    def told_in_words(self, samples: int, likelihood: str) -> dict[str, str]:
        """The line for the graph, and that of the likelihood."""
        text = f"{self.edges:,}, with α = {self.alpha:g} and γ = {self.gamma:g}{_rank(self.rank, samples)}"
        return {"log-likelihood": f"{likelihood} without ½ D log|Δ| of the graph", "graph": text}


@dataclass(frozen=True, eq=False)
class Entries:
    """A precision between the samples was given, of so many stored entries and this rank."""

    entries: int = fact()
    rank: int = fact()

    @property
    def isolated(self) -> float:
        """The precision of a sample beside those of the fit: 1."""
        return 1.0

    def told(self) -> Facts:
        """The precision."""
        return {"precision": {"entries": self.entries, "rank": self.rank}}

    def told_in_words(self, samples: int, likelihood: str) -> dict[str, str]:
        """The line for the precision, and that of the likelihood."""
        text = f"given, {self.entries:,} entries{_rank(self.rank, samples)}"
        return {"log-likelihood": f"{likelihood} without ½ D log|Δ|", "precision": text}


def _rank(rank: int, samples: int) -> str:
    return "" if rank == samples else f", rank of Δ {rank:,}"
