"""Samples in a graph of which some have no targets: what their rows become, two patterns of second moments.

With T = [X Y] ~ N(1μᵀ, Δ⁻¹, C), labelled samples L and all others U, rows of Y given X covary by Δ⁻¹ too, so that

    p(X, Y_L) = p([X_L Y_L]; Δ̃) · p(X; Δ) / p(X_L; Δ̃),      Δ̃ = Δ_LL − Δ_LU Δ_UU⁻¹ Δ_UL,

where Δ̃ is the precision of the marginal of L.  The last two factors are the density of the |U| rows E = X_U − X̂_U
with the precision Δ_UU, where X̂_U = −Δ_UU⁻¹Δ_UL X_L is what the others say of them:

    tr C⁻¹[X_L Y_L]ᵀΔ̃[X_L Y_L] + tr C_x⁻¹EᵀΔ_UU E,      |L| and |U| samples,      ½ [(D + L) log|Δ| − L log|Δ_UU|]

This is semi-supervised PPCA with two Gram matrices.  Means: 1̂_U and 1_U − 1̂_U stand where X̂_U and E do.  The mean of X
is that of all samples, μ_x = XᵀΔ1 / 1ᵀΔ1, and of Y it is the regression of the labelled ones taken to μ_x,
μ_y = ȳ_L + C_yx C_x⁻¹ (μ_x − x̄_L).  Both follow from no more than W, σ_x², σ_y²; put into the likelihood they leave the
Gram matrices about x̄_L, ȳ_L and about μ_x.  Own derivation (docs/models/relational.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Block
from dlatent.gaussian.expectation import expect_moments, pattern_projection
from dlatent.gaussian.moments import Moments, PatternMoments, recentred
from dlatent.gaussian.parameters import Parameters
from dlatent.gaussian.specification import Specification
from dlatent.operators.graph_precision import completed
from dlatent.operators.sample_precision import Precision
from dlatent.solvers.graph.statistics import GraphRequest, moment_rows


class PartlyLabelledGrams(NamedTuple):
    """RᵀΔ̃R (D + L + 1)² of labelled rows R = [X−s, Y, 1], EᵀΔ_UU E (D + 1)² of what unlabelled rows [X−s, 1] differ by
    from what the others say of them, the numbers of both, and log|Δ_UU|."""

    labelled: Array
    unlabelled: Array
    samples: tuple[int, int]
    log_determinant: float


def block_moment_rows(block: Block, request: GraphRequest) -> tuple[tuple[int, Array], ...]:
    """The place of a block and its rows [X−s, Y, 1]. Raises DataError for bad values."""
    return ((block.start, moment_rows(block, request)),)


def partly_labelled_grams(
    rows: Array, features: int, adjacency: sp.csr_array, precision: Precision
) -> PartlyLabelledGrams:
    """Gram matrices of rows [X−s, Y, 1] (N, D + L + 1), Y NaN where unlabelled, of `features` D columns X.

    As sums of squares of (αI + A)R and √γR, so that they are positive semidefinite.
    Errors: DataError where γ is too small.
    """
    known = ~np.isnan(rows[:, features])
    given = rows[known]
    others, log_determinant = completed(adjacency, precision, known, given)
    both = [*range(features), -1]
    apart = rows[~known][:, both] - others[:, both]
    inner = sp.csr_array(adjacency + precision.alpha * sp.eye_array(len(rows), format="csr"))

    def gram(met: Array, *own: Array) -> Array:
        found = met.T @ met
        for part in own:
            found += precision.gamma * (part.T @ part)
        return np.asarray(found)

    labelled = gram(inner[:, known] @ given + inner[:, ~known] @ others, given, others)
    unlabelled = gram(inner[:, ~known] @ apart, apart)
    return PartlyLabelledGrams(labelled, unlabelled, (len(given), len(apart)), log_determinant)


def partly_labelled_moments(
    found: PartlyLabelledGrams, shift: Array, specification: Specification
) -> tuple[Moments, Array]:
    """Second moments about the best means, for patterns (features, targets) and (features), and μ_x − x̄_L (D,).

    `Moments.shift` is (μ_x, ȳ_L); see `with_target_mean`.
    """
    size, weight, total = specification.sizes[0], float(found.labelled[-1, -1]), found.labelled[:-1, -1]
    mean = total / weight
    first = found.labelled[:-1, :-1] - np.outer(total, mean)
    rest = found.unlabelled
    # About x̄_L, then about μ_x together with the labelled samples: Σ over both is that of all about μ_x.
    moved = recentred(PatternMoments(float(rest[-1, -1]), rest[:-1, -1], rest[:-1, :-1]), mean[:size])
    apart = moved.total / (weight + moved.samples)
    second = moved.gram - np.outer(moved.total, apart)
    mean[:size] += apart
    patterns = tuple(
        PatternMoments(float(count), np.zeros(len(gram)), (gram + gram.T) / 2)
        for count, gram in zip(found.samples, (first, second), strict=True)
    )
    mean[:size] += shift
    return Moments(patterns, mean, np.zeros(2), np.zeros(2)), apart


def with_target_mean(parameters: Parameters, apart: Array, specification: Specification) -> Parameters:
    """The parameters with μ_y = ȳ_L + C_yx C_x⁻¹(μ_x − x̄_L) in the place of ȳ_L, for `apart` = μ_x − x̄_L (D,)."""
    own = specification.slices[1]
    scores = pattern_projection(parameters, specification, (0,)).coefficients @ apart
    mean = parameters.mean.copy()
    mean[own] += parameters.loadings[own] @ scores
    return parameters._replace(mean=mean)


def partly_labelled_log_likelihood(
    found: PartlyLabelledGrams, parameters: Parameters, specification: Specification
) -> float:
    """Log-likelihood from Gram matrices of rows about the mean of the parameters, without ½ (D + L) log|Δ|."""
    patterns = tuple(
        PatternMoments(float(count), np.zeros(len(gram) - 1), gram[:-1, :-1])
        for count, gram in zip(found.samples, (found.labelled, found.unlabelled), strict=True)
    )
    mean = np.zeros(len(parameters.mean))
    moments = Moments(patterns, mean, np.zeros(2), np.zeros(2))
    latent = expect_moments(parameters._replace(mean=mean), moments, specification)
    value = sum(part.log_likelihood for part in latent)
    return float(value - 0.5 * specification.sizes[1] * found.log_determinant)
