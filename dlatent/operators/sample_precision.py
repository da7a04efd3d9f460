"""What stands between samples: a precision Δ = γI + F² (N, N), known by what it does to thin rows, hop by hop.

Nothing of size N × N is formed.  Rows R₀ go over the edges some hops, R_k = share + B R_{k−1}, where B is the adjacency
matrix A of the graph, or where Δ is `normalised` S = D^(−½) A D^(−½) with the degrees D.  After `hops` of them they are
F R₀, after twice as many F²R₀, up to a factor.  Of a Δ that is not `squared` no F is known: B is Δ, and after `hops`
the rows are ΔR₀.
"""

from __future__ import annotations

from typing import Protocol

from dlatent.arrays import Rows


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
