"""Means of features with a prior, of which the evidence chooses where it is and how wide.

    μ_j ~ N(m, τ²),   q(μ_j) = N(μ̂_j, s_j²),   m = mean_j μ̂_j,   τ² = mean_j ((μ̂_j − m)² + s_j²)

The bound on the log-likelihood loses ½ n_j s_j²/ψ_j on the n_j entries of each feature, and the divergences from the
prior, which at the best m and τ² are ½ Σ_j log τ²/s_j².  Where the entries alone, with the best loadings for each mean,
say y_j ± √c_j, the best are

    μ̂_j = (y_j/c_j + m/τ²)/(1/c_j + 1/τ²),   s_j² = 1/(n_j/ψ_j + 1/τ²)

and the bound is −½ Σ_j [(y_j − m)²/(c_j + τ²) + log(1 + n_j τ²/ψ_j)], but for what does not depend on m and τ².
Source: Efron and Morris (1975), "Data analysis using Stein's estimator and its generalizations", for unequal c_j.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.optimize as opt

from dlatent.arrays import Array

SMALLEST = 1e-8
"""The smallest τ² that is compared, as a part of the smallest c_j: it stands for zero, to which iterations would
creep."""
SCANNED = 100
"""Values of τ² in the first scan."""


class MeanPrior(NamedTuple):
    """m and τ²."""

    centre: float
    variance: float


class Means(NamedTuple):
    """μ̂ and s² (D,) of the features that some row observes, in units that all have in common."""

    mean: Array
    variance: Array


def mean_prior(means: Means) -> MeanPrior:
    """The best prior of means."""
    centre = means.mean.mean()
    return MeanPrior(float(centre), float(((means.mean - centre) ** 2 + means.variance).mean()))


def mean_divergence(means: Means) -> float:
    """Σ_j KL(q(μ_j) ‖ N(m, τ²)) at the best prior."""
    return 0.5 * float(np.log(mean_prior(means).variance / means.variance).sum())


def shrunk_means(alone: Array, uncertainty: Array, precision: Array, before: float) -> Means:
    """The best means for the best prior, from y and c (D,) and n/ψ (D,); `before` is a τ² that is compared, too."""

    def bound(variance: Array) -> Array:
        weight = 1.0 / (uncertainty + variance[:, None])
        away = alone - ((weight @ alone) / weight.sum(axis=1))[:, None]
        return np.asarray(-0.5 * (weight * away**2 + np.log1p(precision * variance[:, None])).sum(axis=1))

    least = float(uncertainty.min())
    most = max(float(alone.var() + uncertainty.max()), before)
    scan = np.sort(np.append(np.geomspace(SMALLEST * least, most, SCANNED), before))
    best = int(bound(scan).argmax())
    low, high = np.log(scan[max(best - 1, 0)]), np.log(scan[min(best + 1, SCANNED)])
    found = opt.minimize_scalar(
        lambda at: -float(bound(np.exp([at]))[0]), bounds=(low, high), method="bounded", options={"xatol": 1e-10}
    )
    ends = np.array([np.exp(found.x), scan[best]])
    variance = float(ends[int(bound(ends).argmax())])
    weight = 1.0 / (uncertainty + variance)
    centre = float(weight @ alone / weight.sum())
    mean = centre + (alone - centre) * variance * weight
    return Means(mean, 1.0 / (precision + 1.0 / variance))
