"""What stands between samples: a precision Δ = γI + F² (N, N), known by what it does to thin rows, hop by hop.

Nothing of size N × N is formed.  Rows R₀ go over the edges some hops, R_k = share + B R_{k−1}, where B is the adjacency
matrix A of the graph, or where Δ is `normalised` S = D^(−½) A D^(−½) with the degrees D.  After `hops` of them they are
F R₀, after twice as many F²R₀, up to a factor.  Of a Δ that is not `squared` no F is known: B is Δ, and after `hops`
the rows are ΔR₀.

The smooth filter of a graph, f(S) = Σ_{k≤h} (λ/(1+λ))ᵏ Sᵏ, is such a precision, Δ = f(S)².  The eigenvalues of S lie in
[−1, 1], where f is positive.  A sample without edges keeps its row, f = 1.  f(S) is (1 + λ)(I + λL)⁻¹ cut after h
terms, L = I − S.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from dlatent.arrays import Array, Rows


class SamplePrecision(Protocol):
    """Δ between samples as an immutable value, which travels with the parameters of a pass."""

    @property
    def gamma(self) -> float:
        """γ, what Δ has of each row itself beside F²."""
        ...

    @property
    def hops(self) -> int:
        """Hops of F, or where Δ is not `squared` of Δ."""
        ...

    @property
    def squared(self) -> bool:
        """Whether Δ is γI + F², so that R₀ᵀΔR₀ is a sum of squares, γR₀ᵀR₀ + (F R₀)ᵀ(F R₀)."""
        ...

    @property
    def normalised(self) -> bool:
        """Whether S takes the place of A."""
        ...

    def share(self, first: Rows, last: Rows, hop: int, hops: int) -> Rows:
        """What hop `hop` = 1 … `hops` adds of the rows themselves, R₀ and R_{k−1}, as an array of its own."""
        ...

    def factor(self, hops: int) -> float:
        """F R₀, F²R₀ or ΔR₀ over what the rows are after so many hops."""
        ...


class SmoothFilter(NamedTuple):
    """Δ = f(S)².

    Parameters
    ----------
    smoothing : float
        λ > 0, the weight of the neighbours beside the sample.
    hops : int
        h, how far neighbours reach.
    """

    smoothing: float
    hops: int

    @property
    def gamma(self) -> float:
        """0: all of Δ is f(S)²."""
        return 0.0

    @property
    def squared(self) -> bool:
        """True."""
        return True

    @property
    def normalised(self) -> bool:
        """True."""
        return True

    def share(self, first: Rows, last: Rows, hop: int, hops: int) -> Rows:
        """The coefficient of degree `hops` − `hop` over the last one, times the first rows: Horner's scheme."""
        found = self._coefficients(hops)
        return first * float(found[hops - hop] / found[hops])

    def factor(self, hops: int) -> float:
        """The last coefficient, by which the others were divided."""
        return float(self._coefficients(hops)[hops])

    def _coefficients(self, hops: int) -> Array:
        once = coefficients(self.smoothing, self.hops)
        return once if hops == self.hops else np.convolve(once, once)


def coefficients(smoothing: float, hops: int) -> Array:
    """(λ/(1+λ))ᵏ for k = 0 … h (h + 1,)."""
    return np.asarray((smoothing / (1.0 + smoothing)) ** np.arange(hops + 1))
