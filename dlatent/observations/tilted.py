"""The tilted bound of E[log(1 + exp η)] for a normal η with mean m and variance v:

    f = ½ a² v + log(1 + exp(m + (1 − 2a) v/2)),   a = σ(m + (1 − 2a) v/2)

with the a that makes it smallest, which is also its slope by m; its curvature is a(1 − a).
Sources: Saul, Jaakkola and Jordan (1996); Knowles and Minka (2011).
"""

from __future__ import annotations

import numpy as np

from dlatent.arrays import Array

SINGLE, DOUBLE = 1, 2
"""Steps by Halley's method in single and in double precision; the error is cubed by each, and is that of rounding after
two where v is less than 3."""


def tilted(m: Array, v: Array) -> tuple[Array, Array]:
    """The slope a of the bound at means m and variances v, and its curvature."""
    # t = m + (1 − 2a) v/2 solves t + v σ(t) = m + v/2, where m is not negative; f(−m) = f(m) − m.
    size, half = np.abs(m), 0.5 * v
    aim, t = size + half, np.maximum(size / (1.0 + 0.5 * half), size - half)
    for _ in range(SINGLE if m.dtype == np.float32 else DOUBLE):
        a = 1.0 / (1.0 + np.exp(-t))
        pulled = v * a
        curvature = pulled - pulled * a
        slope = 1.0 + curvature
        step = (t + pulled - aim) / slope
        t = t - step / (1.0 - step * curvature * (0.5 - a) / slope)
    a = 1.0 / (1.0 + np.exp(-np.copysign(t, m)))
    return a, a - a * a


def tilted_bound(m: Array, v: Array, a: Array) -> Array:
    """The bound at means m and variances v with some a."""
    t = m + (0.5 - a) * v
    return np.asarray(0.5 * v * a * a + np.maximum(t, 0.0) + np.log1p(np.exp(-np.abs(t))))
