"""One representative of all rotations of the latent space: the law that makes two fits comparable.

The likelihood does not change when W becomes WR with R orthogonal.  The canonical form has WᵀΨ⁻¹W diagonal and
decreasing (SPPCA, section 5.1, with the noise weights of errata 10) and the entry of largest magnitude of every column
of the first view positive.  Where loadings are uncertain, Σ_j E[w_j w_jᵀ]/ψ_j is diagonal, or what a prior asks for:
its variance is a number for each component along its own axes alone.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg as la

from dlatent.arrays import Array
from dlatent.linear_gaussian.parameters import Parameters
from dlatent.linear_gaussian.specification import Specification
from dlatent.operators.batched import congruent, unpacked


def column_signs(loadings: Array) -> Array:
    """The sign of each column's entry of largest magnitude (+1 for a zero column)."""
    largest = np.abs(loadings).argmax(axis=0)
    signs = np.sign(loadings[largest, np.arange(loadings.shape[1])])
    return np.where(signs == 0, 1.0, signs)


def canonical(parameters: Parameters, specification: Specification, weight: Array | None = None) -> Parameters:
    """The same model with canonical rotation, order and signs; `weight` (K, K) is made diagonal in the place of the
    above, a level of the samples aside."""
    spread, k = parameters.loadings_covariance, parameters.loadings.shape[1]
    free = k - int(specification.row_effects)
    if weight is None:
        noise = specification.per_feature(parameters.noise_variance)
        scaled = parameters.loadings / np.sqrt(noise)[:, None]
        weight = scaled.T @ scaled
        if spread is not None:
            weight += unpacked((spread / noise[:, None]).sum(axis=0), len(weight))
    # A level of the samples is an axis of its own.
    rotation = np.eye(k)
    rotation[:free, :free] = la.eigh(weight[:free, :free])[1][:, ::-1] if free else 0.0
    loadings = parameters.loadings @ rotation
    signs = column_signs(loadings[specification.slices[0]])
    turned = parameters._replace(loadings=loadings * signs)
    return turned if spread is None else turned._replace(loadings_covariance=congruent(spread, rotation * signs))
