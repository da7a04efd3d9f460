"""What a fit of samples in a graph returns: a model of smoothed rows, or of rows that depend on each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dlatent.arrays import Array, Features
from dlatent.errors import DataError, StoreError
from dlatent.fitted.facts import Facts
from dlatent.fitted.linear import LinearGaussian
from dlatent.fitted.rows import Complete
from dlatent.fitted.stored import fact, part, stored, variables
from dlatent.gaussian.expectation import LOG_2PI, pattern_projection


@dataclass(frozen=True, eq=False)
class Compared:
    """What is known of each strength of smoothing that was compared."""

    smoothing: Array = stored("smoothing")
    correlation: Array = stored("smoothing", name="smoothing_correlation")
    error: Array = stored("smoothing", name="smoothing_error")


@dataclass(frozen=True, eq=False, kw_only=True)
class Smoothed(LinearGaussian):
    """A model of rows that were smoothed over a graph."""

    smoothing: float = fact()
    hops: int = fact()
    edges: int = fact()
    compared: Compared | None = part(default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.smoothing < np.inf or self.hops < 1:
            raise StoreError(f"rows were smoothed with λ = {self.smoothing} over {self.hops} hops, which no fit does")

    def summary(self, samples: int) -> Facts:
        """The graph, too, and the strengths of smoothing that were compared."""
        graph: Facts = {"edges": self.edges, "smoothing": self.smoothing, "hops": self.hops}
        if self.compared is not None:
            graph["compared"] = {name: each.values.tolist() for name, each in variables(self.compared).items()}
        return super().summary(samples) | {"graph": graph}


@dataclass(frozen=True, eq=False)
class Edges:
    """A graph that makes the precision Δ = γI + (αI + A)²."""

    alpha: float = fact()
    gamma: float = fact()
    edges: int = fact()

    @property
    def isolated(self) -> float:
        """Δ_ii of a sample without edges, γ + α²."""
        return self.gamma + self.alpha**2


@dataclass(frozen=True, eq=False)
class Entries:
    """A precision that was given, of so many stored entries."""

    entries: int = fact()

    @property
    def isolated(self) -> float:
        """The precision of a sample beside those of the fit: 1."""
        return 1.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Related(LinearGaussian):
    """A model of samples that depend on each other: Δ, whose rank is known, is the precision between them."""

    between: Edges | Entries = part()
    rank: int = fact()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.between.isolated < np.inf:
            raise StoreError(f"a sample without edges has the precision {self.between.isolated}, which no fit leaves")

    @cached_property
    def rows(self) -> IsolatedRows:
        """What the model says of single rows, which have no edges."""
        return IsolatedRows(self.parameters, self.specification, self.between.isolated)

    @property
    def row_precision(self) -> float:
        """The precision of a sample without edges, by which covariances are divided.  Errors: DataError where it is
        0."""
        return positive(self.between.isolated)

    def summary(self, samples: int) -> Facts:
        """The graph, too, or the precision."""
        between = self.between
        if isinstance(between, Entries):
            return super().summary(samples) | {"precision": {"entries": between.entries, "rank": self.rank}}
        graph = {"edges": between.edges, "alpha": between.alpha, "gamma": between.gamma, "rank": self.rank}
        return super().summary(samples) | {"graph": graph}


def positive(precision: float) -> float:
    """The precision of a sample without edges.  Errors: DataError where it is 0."""
    if precision == 0.0:
        raise DataError("with alpha = 0 and gamma = 0 a sample without edges has no distribution")
    return precision


@dataclass(frozen=True)
class IsolatedRows(Complete):
    """Rows without edges, of which C/δ is the covariance, with the precision δ of such a sample."""

    precision: float

    def log_density(self, x: Features, y: Array | None) -> Array:
        """log p(x, y), or log p(x) of rows without targets (n,)."""
        values, precision = super().log_density(x, y), positive(self.precision)
        if precision == 1.0:
            return values
        labelled = np.zeros(len(values), dtype=bool) if y is None else ~np.isnan(y[:, 0])
        for pattern, at in (((0,), ~labelled), ((0, 1), labelled)):
            if not at.any():
                continue
            size = sum(self.specification.sizes[view] for view in pattern)
            constant = pattern_projection(self.parameters, self.specification, pattern).constant
            distance = -2.0 * values[at] - size * LOG_2PI - constant
            values[at] += 0.5 * size * np.log(precision) - 0.5 * (precision - 1.0) * distance
        return values
