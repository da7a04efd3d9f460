"""The tilted bound of E[log(1 + exp η)] for a normal η with mean m and variance v:

    f = ½ a² v + log(1 + exp(m + (1 − 2a) v/2)),   a = σ(m + (1 − 2a) v/2)

with the a that makes it smallest, which is also its slope by m; its curvature is a(1 − a).
Sources: Saul, Jaakkola and Jordan (1996); Knowles and Minka (2011).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dlatent.arrays import Array

STEPS = 2
"""Steps by Halley's method; the error is cubed by each, and is that of rounding where v is less than 3."""


class Tilted(NamedTuple):
    """The bound, its slope a and its curvature, of the shape of m."""

    bound: Array
    slope: Array
    curvature: Array


def tilted(m: Array, v: Array) -> Tilted:
    """The bound at means m and variances v."""
    # t = m + (1 − 2a) v/2 solves t + v σ(t) = m + v/2, where m is not negative; f(−m) = f(m) − m.
    size, half = np.abs(m), 0.5 * v
    aim, t = size + half, np.maximum(size / (1.0 + 0.5 * half), size - half)
    for _ in range(STEPS):
        a = 1.0 / (1.0 + np.exp(-t))
        pulled = v * a
        curvature = pulled - pulled * a
        slope = 1.0 + curvature
        step = (t + pulled - aim) / slope
        t = t - step / (1.0 - step * curvature * (0.5 - a) / slope)
    away = np.exp(-t)
    a = 1.0 / (1.0 + away)
    bound = half * a * a - np.log(a) + t + a * (aim - v * a - t) + np.minimum(m, 0.0)
    rest = away * a
    return Tilted(bound, np.where(m < 0.0, rest, a), rest * a)
