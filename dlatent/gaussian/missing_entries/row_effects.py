"""A level of each row: a component whose loadings are one number τ, x_ij = a_i + w_jᵀz_i + μ_j + ε, a_i = τ z_i,K+1.

To the E-step it is a component like others, the last.  The M-step regresses the features, less the level, on the other
components; the variance τ² of the levels is found by parameter expansion, as the units of the other components are.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array
from dlatent.gaussian.maximisation import expanded
from dlatent.gaussian.missing_entries.entries import Entries, maximise_entries
from dlatent.gaussian.missing_entries.prior import EVIDENCE, Priors, maximise_bound
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.operators.symmetric import triangle, unpacked

SMALLEST_LEVEL = 0.1
"""Deviation of the levels that a start has at least, in units in which features have variance 1, or in those of
predictors."""


def others(parameters: Parameters, specification: Specification) -> Parameters:
    """The parameters without the component of the levels, where there is one."""
    k = parameters.loadings.shape[1]
    return parameters.turned(np.eye(k, k - 1)) if specification.row_effects else parameters


def with_level(parameters: Parameters, level: Array | float) -> Parameters:
    """The parameters with a last component of the loadings τ, of all features or of each (D,), of which nothing is
    uncertain."""
    k = parameters.loadings.shape[1]
    wider = parameters.turned(np.eye(k, k + 1))
    wider.loadings[:, k] = level
    return wider


def level_of(parameters: Parameters) -> float:
    """τ: the loadings are equal but for rounding, and zero for features that were never observed."""
    each = parameters.loadings[:, -1]
    return float(each[np.abs(each).argmax()])


def start_with_level(parameters: Parameters) -> Parameters:
    """A start whose level is what its components have in common in all features."""
    common = parameters.loadings.mean(axis=0)
    level = max(float(la.norm(common)), SMALLEST_LEVEL)
    return with_level(parameters._replace(loadings=parameters.loadings - common), level)


def filled(parameters: Parameters, specification: Specification) -> Parameters:
    """The parameters with components of zeros after those that are on, K in all, the level of the rows among them."""
    on, wanted = parameters.loadings.shape[1], specification.n_components
    if on == wanted:
        return parameters
    places = [*range(on - 1), wanted - 1] if specification.row_effects else range(on)
    return parameters.turned(np.eye(wanted)[list(places)])


def without_level(sums: Entries, level: Array | float, after: int = 1) -> Entries:
    """The statistics of the rows less their levels, of the other components; what stands `after` the levels, and is
    kept, is 1, or covariates and 1."""
    size = len(sums.cross)
    at = size - 1 - after
    keep = np.delete(np.arange(size), at)
    second, latent = unpacked(sums.second, size), unpacked(sums.latent, size)
    first, other = triangle(size - 1)
    places = keep[first], keep[other]
    return sums._replace(
        second=second[places],
        cross=sums.cross[keep] - level * second[keep, at],
        energy=sums.energy - 2.0 * level * sums.cross[at] + level**2 * second[at, at],
        latent=latent[places],
        evidence=sums.evidence[:at],
    )


def maximise_levels(
    sums: Entries,
    parameters: Parameters,
    specification: Specification,
    priors: Priors = EVIDENCE,
    *,
    expand: bool = True,
) -> Parameters:
    """M-step with levels: that of the likelihood, or of the bound where the loadings are uncertain."""
    level, rest = level_of(parameters), others(parameters, specification)
    less, latent = without_level(sums, level), unpacked(sums.latent, len(sums.cross))
    at, count = len(latent) - 2, latent[-1, -1]
    centre = latent[at, -1] / count if expand else 0.0
    spread = np.sqrt(latent[at, at] / count - centre**2)
    if rest.loadings_covariance is not None:
        # The prior of the loadings is about 0: levels must not move into them.
        image = maximise_bound(less, rest, specification, priors, expand=expand)
        return with_level(image.moved(np.full(len(image.mean), level * centre)), level * spread)
    return with_new_level(maximise_entries(less, rest, specification, expand=False), latent, level, expand=expand)


def with_new_level(image: Parameters, latent: Array, level: Array | float, *, expand: bool) -> Parameters:
    """The image of the other components with levels of another variance, as Σ E[z̃z̃ᵀ] (K+1, K+1) says; with `expand`
    all components have another."""
    if expand:  # the levels are last, so that a triangular root leaves their loadings equal
        return expanded(with_level(image, level), latent)
    return with_level(image, level * float(np.sqrt(latent[-2, -2] / latent[-1, -1])))
