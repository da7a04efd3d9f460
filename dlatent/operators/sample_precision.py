"""A precision Δ (N, N) between samples, known by what it does to thin rows, hop by hop: nothing of its size is formed.

Rows R₀ go over the edges some hops, R_k = share + B R_{k−1}, where B is the adjacency matrix A of the graph, or where Δ
is `normalised` S = D^(−½) A D^(−½) with the degrees D.  After `hops` of them they are F R₀, after twice as many F²R₀,
up to a factor.  Of a Δ that is not `squared` no F is known: B is Δ, and after `hops` the rows are ΔR₀.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Rows


class SamplePrecision(Protocol):
    """Δ between samples as an immutable value, which travels with the parameters of a pass.

    `gamma` γ is what Δ has of each row itself beside F².  `hops` are those of F, or where Δ is not `squared` of Δ.
    `squared` says whether Δ is γI + F², so that R₀ᵀΔR₀ is a sum of squares, γR₀ᵀR₀ + (F R₀)ᵀ(F R₀).  `normalised` says
    whether S takes the place of A.  `share` is what hop `hop` = 1 … `hops` adds of the rows themselves, R₀ and R_{k−1},
    as an array of its own; `factor` is F R₀, F²R₀ or ΔR₀ over what the rows are after so many hops.
    """

    @property
    def gamma(self) -> float: ...
    @property
    def hops(self) -> int: ...
    @property
    def squared(self) -> bool: ...
    @property
    def normalised(self) -> bool: ...
    def share(self, first: Rows, last: Rows, hop: int, hops: int) -> Rows: ...
    def factor(self, hops: int) -> float: ...


@dataclass(frozen=True)
class Precision:
    """Δ = γI + (αI + A)² of a graph: F is αI + A.

    Parameters
    ----------
    alpha : float
        α, the weight of a sample beside its neighbours.
    gamma : float
        γ, the weight of the features alone.
    """

    alpha: float
    gamma: float
    hops: ClassVar[int] = 1
    squared: ClassVar[bool] = True
    normalised: ClassVar[bool] = False

    def share(self, first: Rows, last: Rows, hop: int, hops: int) -> Rows:
        return last * self.alpha

    def factor(self, hops: int) -> float:
        return 1.0

    def spectrum(self, values: Array) -> Array:
        """The eigenvalues γ + (α + λ)² of Δ from those of A."""
        return np.asarray(self.gamma + (self.alpha + values) ** 2)


@dataclass(frozen=True)
class UserPrecision:
    """Δ that is given as a matrix, whose rows are what rows meet: one hop gives ΔR₀, a row's own part included."""

    gamma: ClassVar[float] = 0.0
    hops: ClassVar[int] = 1
    squared: ClassVar[bool] = False
    normalised: ClassVar[bool] = False

    def share(self, first: Rows, last: Rows, hop: int, hops: int) -> Rows:
        return sp.csr_array(last.shape) if isinstance(last, sp.csr_array) else np.zeros_like(last)

    def factor(self, hops: int) -> float:
        return 1.0

    def spectrum(self, values: Array) -> Array:
        """The eigenvalues of Δ themselves."""
        return values


@dataclass(frozen=True)
class SmoothFilter:
    """Δ = f(S)² of a smooth filter f(S) = Σ_{k≤h} λᵏ Sᵏ of a graph.

    The eigenvalues of S lie in [−1, 1], where f is positive if h is even or λ < 1.  A sample without edges keeps its
    row, f = 1.

    Parameters
    ----------
    smoothing : float
        λ > 0, the weight of the neighbours beside the sample.
    hops : int
        h, how far neighbours reach.
    """

    smoothing: float
    hops: int
    gamma: ClassVar[float] = 0.0
    squared: ClassVar[bool] = True
    normalised: ClassVar[bool] = True

    def share(self, first: Rows, last: Rows, hop: int, hops: int) -> Rows:
        # Horner's scheme, all coefficients divided by the last.
        terms = self._coefficients(hops)
        return first * float(terms[hops - hop] / terms[hops])

    def factor(self, hops: int) -> float:
        return float(self._coefficients(hops)[hops])

    def _coefficients(self, hops: int) -> Array:
        once = coefficients(self.smoothing, self.hops)
        return once if hops == self.hops else np.convolve(once, once)


def coefficients(smoothing: float, hops: int) -> Array:
    """λᵏ for k = 0 … h (h + 1,)."""
    return np.asarray(smoothing ** np.arange(hops + 1.0))
