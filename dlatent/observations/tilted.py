"""The tilted bound of E[log(1 + exp η)] for a normal η with mean m and variance v:

    f = ½ a² v + log(1 + exp(m + (1 − 2a) v/2)),   a = σ(m + (1 − 2a) v/2)

with the a that makes it smallest, which is also its slope by m; its curvature is a(1 − a).
Sources: Saul, Jaakkola and Jordan (1996); Knowles and Minka (2011).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from dlatent.arrays import Array

STEPS = 4
"""Newton steps; the error is squared by each."""


class Tilted(NamedTuple):
    """The bound, its slope a and its curvature, of the shape of m."""

    bound: Array
    slope: Array
    curvature: Array


def tilted(m: Array, v: Array) -> Tilted:
    """The bound at means m and variances v."""
    # t = m + (1 − 2a) v/2 solves t + v σ(t) = m + v/2, which is concave beyond 0: from below Newton's steps stay below.
    size = np.abs(m)
    t = np.maximum(size / (1.0 + 0.25 * v), size - 0.5 * v)
    for _ in range(STEPS):
        at = expit(t)
        t = t - (t + v * (at - 0.5) - size) / (1.0 + v * at * (1.0 - at))
    a = expit(np.copysign(t, m))
    return Tilted(0.5 * a * a * v + np.logaddexp(0.0, m + (0.5 - a) * v), a, a * (1.0 - a))
