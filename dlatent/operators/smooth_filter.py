"""The smooth filter of a graph, f(S) = Σ_{k≤h} (λ/(1+λ))ᵏ Sᵏ, as the precision Δ = f(S)² between samples.

S = D^(−½) A D^(−½) is the adjacency matrix over the square roots of both degrees; its eigenvalues lie in [−1, 1], where
f is positive.  A sample without edges keeps its row, f = 1.  f(S) is (1 + λ)(I + λL)⁻¹ cut after h terms, L = I − S.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dlatent.arrays import Array, Rows


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
