"""Single rows with missing entries: scores, likelihood, the missing entries, and how well cells held out are predicted.

Every row has a posterior of its own, z | x_o ~ N(m, C), from its observed entries o, with `entries.posterior`:

    log p(x_o) = −½ Σ_{j∈o} (log 2πψ_j + r_j²/ψ_j) − ½ log|C⁻¹| + ½ mᵀC⁻¹m
    x_j | x_o ~ N(μ_j + w_jᵀm, w_jᵀC w_j + ψ_j)  for a missing j      (the note on missing data, (12)–(14), errata 1)

Where loadings and means are uncertain (`prior`), the likelihood is its lower bound, and a missing entry has the
variance w_jᵀC w_j + mᵀΣ_j m + tr Σ_jC + s_j² + ψ_j.

Which cells are held out of a fit is a function of their place and a seed alone, so that every pass, on any machine,
hides the same ones, and nothing has to be stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Features, Integers
from dlatent.gaussian.expectation import LOG_2PI
from dlatent.gaussian.likelihood import LatentFunction
from dlatent.gaussian.missing_entries.entries import Posterior, posterior, weights_of
from dlatent.gaussian.missing_entries.observed import Observed, chunks, observed, stacked
from dlatent.gaussian.specification import Parameters, Specification, View
from dlatent.gaussian.views import Parts, rows_of_all_views
from dlatent.operators.symmetric import doubled, packed_squares, triangle

FOLDS = 10
"""Every tenth row belongs together: what is left without one of ten such sets tells the standard error."""

RowsFunction = Callable[[Observed, Posterior], Array]


def _each(
    x: Features,
    y: Array | None,
    parameters: Parameters,
    specification: Specification,
    function: RowsFunction,
    width: int,
) -> Array:
    """A function of observed rows and their posterior, over chunks of rows (n, D) and, where given, targets (n, L′)."""
    features = slice(0, specification.slices[0].stop if y is None else len(parameters.mean))
    known = parameters.of(features)
    noise = specification.per_feature(parameters.noise_variance)[features]
    weights = weights_of(known.loadings, noise, known.loadings_covariance)
    centre = np.where(_unknown(known, specification), np.nan, known.mean)
    results = np.empty((x.shape[0], width))
    for at in chunks(x, len(weights.pairs) + 1):
        rows = observed(stacked(x[at], None if y is None else y[at]), centre, np.ones(len(noise)))
        results[at] = function(rows, posterior(rows, weights))
    return results


def _unknown(parameters: Parameters, specification: Specification) -> npt.NDArray[np.bool_]:
    """Features (D,) that no row of the fit observed, of which a prior alone is known: their entries say nothing."""
    spread, free = parameters.loadings_covariance, parameters.loadings.shape[1] - int(specification.row_effects)
    if parameters.mean_variance is None or spread is None:
        return np.zeros(len(parameters.mean), dtype=np.bool_)
    return np.asarray(~parameters.loadings[:, :free].any(axis=1) & spread.any(axis=1))


def scores(x: Features, y: Array | None, parameters: Parameters, specification: Specification) -> Array:
    """E[z | observed entries] (n, K) of rows (n, D) and, where given, targets (n, L′); 0 where nothing is observed."""
    return _each(x, y, parameters, specification, lambda _, about: about.mean.T, parameters.loadings.shape[1])


def log_likelihoods(x: Features, y: Array | None, parameters: Parameters, specification: Specification) -> Array:
    """log p of the observed entries of each row (n,), in nats; 0 where nothing is observed."""
    noise = specification.per_feature(parameters.noise_variance)
    constants = LOG_2PI + np.log(noise) + parameters.uncertainty(noise)

    def likelihoods(rows: Observed, about: Posterior) -> Array:
        width = rows.residuals.shape[1]
        total = rows.spread(rows.masked(constants[None, :width])[0]) + rows.distances(1.0 / noise[:width])
        explained = np.einsum("in,in->n", about.projected, about.mean)
        return np.asarray(-0.5 * (total + rows.spread(about.log_determinant) - explained))[:, None]

    return _each(x, y, parameters, specification, likelihoods, 1)[:, 0]


def covariances(x: Features, y: Array | None, parameters: Parameters, specification: Specification) -> Array:
    """Cov[z | observed entries] of each row, (n, K²) row by row."""

    def of_rows(rows: Observed, about: Posterior) -> Array:
        return rows.spread(about.covariance).reshape(-1, about.mean.shape[1]).T

    return _each(x, y, parameters, specification, of_rows, parameters.loadings.shape[1] ** 2)


def posterior_rows(
    x: Features, parameters: Parameters, specification: Specification, function: LatentFunction, width: int
) -> Array:
    """A function of the posterior means (n, K) and covariances (n, K, K) of rows given their observed features:
    (n, width)."""

    def applied(rows: Observed, about: Posterior) -> Array:
        return function(about.mean.T, np.moveaxis(rows.spread(about.covariance), -1, 0))

    return _each(x, None, parameters, specification, applied, width)


def bartlett(x: Features, y: Array | None, parameters: Parameters, specification: Specification) -> Array:
    """Bartlett's scores (n, K) from the observed entries of rows; NaN where these are fewer than the factors."""
    k = parameters.loadings.shape[1]

    def unbiased(rows: Observed, about: Posterior) -> Array:
        enough = rows.spread(rows.masked(np.ones((1, rows.residuals.shape[1])))[0]) > k - 0.5
        precision = np.linalg.inv(np.moveaxis(rows.spread(about.covariance), -1, 0)[enough]) - np.eye(k)
        scores = np.full((len(enough), k), np.nan)
        scores[enough] = np.linalg.solve(precision, about.projected.T[enough][:, :, None])[:, :, 0]
        return scores

    return _each(x, y, parameters, specification, unbiased, k)


def _expected(x: Features, y: Array | None, parameters: Parameters, specification: Specification) -> Array:
    """The expectation of every entry of the rows (n, D), WE[z] + μ given the observed ones."""
    features = specification.slices[0]
    z = scores(x, y, parameters, specification)
    return np.asarray(z @ parameters.loadings[features].T + parameters.mean[features])


def imputed(x: Features, y: Array | None, parameters: Parameters, specification: Specification) -> Array:
    """The rows (n, D) with every missing entry replaced by its mean given the observed ones."""
    filled = _expected(x, y, parameters, specification)
    if isinstance(x, sp.csr_array):
        filled[x.tocoo().coords] = x.data
        return filled
    return np.where(np.isnan(x), filled, x)


def views_imputed(
    parts: Parts, pattern: tuple[int, ...], parameters: Parameters, specification: Specification
) -> Array:
    """Rows of all views side by side, of which a pattern is given, with every missing entry replaced by its mean given
    the observed ones of all views."""
    rows = rows_of_all_views(parts, pattern, specification.sizes)
    noise = specification.per_feature(parameters.noise_variance)
    table = Specification((View("all", len(noise), shared=False),), ((0,),), specification.n_components)
    return imputed(rows, None, parameters._replace(noise_variance=noise), table)


def graph_imputed(x: Features, near: Array | None, parameters: Parameters, specification: Specification) -> Array:
    """Dense rows (n, D) with every missing entry replaced by what is expected there given other rows, `near` (n, D)."""
    assert near is not None
    rows = np.asarray(x)
    return np.where(np.isnan(rows), _expected(near, None, parameters, specification), rows)


def imputed_variances(x: Features, y: Array | None, parameters: Parameters, specification: Specification) -> Array:
    """The variance of every missing entry given the observed ones (n, D), noise included; 0 for observed entries."""
    features = specification.slices[0]
    noise = specification.per_feature(parameters.noise_variance)[features]
    known = parameters.of(features)
    variances = linear_variances(x, y, parameters, specification, known.loadings, known.loadings_covariance)
    variances += noise * (1.0 + known.uncertainty(noise))
    if isinstance(x, sp.csr_array):
        variances[x.tocoo().coords] = 0.0
        return variances
    return np.where(np.isnan(x), variances, 0.0)


def linear_variances(
    x: Features,
    y: Array | None,
    parameters: Parameters,
    specification: Specification,
    loadings: Array,
    spread: Array | None = None,
) -> Array:
    """Var[w_jᵀz | observed entries] of each row (n, L), for loadings w_j (L, K), of covariances (L, K(K+1)/2) where
    these are uncertain."""
    first, second = triangle(loadings.shape[1])
    twice, more = _forms(loadings, spread)

    def variances(rows: Observed, about: Posterior) -> Array:
        each = np.asarray(rows.spread(about.covariance[first, second]).T @ twice.T)
        return each if more is None else each + (about.mean[first] * about.mean[second]).T @ more.T

    return _each(x, y, parameters, specification, variances, len(loadings))


def _forms(loadings: Array, spread: Array | None) -> tuple[Array, Array | None]:
    """E[w_j w_jᵀ] and Σ_j, None where nothing is uncertain, packed: products with packed symmetric S are traces of
    products with S."""
    twice, squares = doubled(loadings.shape[1]), packed_squares(loadings)
    return (squares * twice, None) if spread is None else ((squares + spread) * twice, spread * twice)


class Hiding(NamedTuple):
    """The fraction of the cells that is held out, and the seed of their choice."""

    part: float
    seed: int


class HeldOut(NamedTuple):
    """Sums over held-out cells, additive, for each set of rows (FOLDS,): their number, Σ log p(x_ij given the rest of
    row i), and Σ squared errors."""

    cells: Array
    log_likelihood: Array
    squared_error: Array


class HeldOutRequest(NamedTuple):
    """The fitted model, and the hiding that its fit did not see through."""

    parameters: Parameters
    specification: Specification
    hiding: Hiding


def chosen(rows: npt.NDArray[np.uint64], columns: npt.NDArray[np.uint64], hiding: Hiding) -> npt.NDArray[np.bool_]:
    """Whether the cells at rows and columns (broadcast against each other) are held out: splitmix64 of their place."""
    start = np.random.SeedSequence(hiding.seed).generate_state(1, np.uint64)[0]
    state = (rows * np.uint64(0x9E3779B97F4A7C15)) ^ (columns * np.uint64(0xC2B2AE3D27D4EB4F)) ^ start
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state = state ^ (state >> np.uint64(31))
    return np.asarray((state >> np.uint64(11)).astype(np.float64) * 2.0**-53 < hiding.part)


def hidden_cells(features: Features, start: int, hiding: Hiding) -> npt.NDArray[np.bool_]:
    """The held-out cells of rows that begin at `start`: (n, D), or for each stored entry of sparse rows."""
    rows = np.arange(start, start + features.shape[0], dtype=np.uint64)
    if isinstance(features, sp.csr_array):
        return chosen(np.repeat(rows, np.diff(features.indptr)), features.indices.astype(np.uint64), hiding)
    return chosen(rows[:, None], np.arange(features.shape[1], dtype=np.uint64), hiding)


def hidden(features: Features, start: int, hiding: Hiding) -> Features:
    """The rows without their held-out cells: NaN there, or of sparse rows not stored."""
    if not isinstance(features, sp.csr_array):
        seen = np.array(features)
        for at in chunks(features, 1):
            seen[at][hidden_cells(features[at], start + at.start, hiding)] = np.nan
        return seen
    places = hidden_cells(features, start, hiding)
    ends = np.concatenate([[0], np.cumsum(~places)])[features.indptr].astype(features.indptr.dtype)
    rest = sp.csr_array((features.data[~places], features.indices[~places], ends), shape=features.shape)
    rest.has_canonical_format = True
    return rest


class Cells(NamedTuple):
    """Some cells of a block: their rows and columns, and values (m,)."""

    rows: npt.NDArray[np.intp]
    columns: npt.NDArray[np.integer[Any]]
    values: Array


def held_out_cells(features: Features, start: int, hiding: Hiding) -> Cells:
    """The held-out cells of rows that begin at `start`, where they are known."""
    places = hidden_cells(features, start, hiding)
    if isinstance(features, sp.csr_array):
        rows = np.repeat(np.arange(features.shape[0]), np.diff(features.indptr))[places]
        return Cells(rows, features.indices[places], np.asarray(features.data[places], dtype=np.float64))
    rows, columns = np.nonzero(places & ~np.isnan(features))
    return Cells(rows, columns, np.asarray(features[rows, columns], dtype=np.float64))


def predicted_cells(
    x: Features,
    y: Array | None,
    rows: Integers,
    columns: Integers,
    parameters: Parameters,
    specification: Specification,
) -> tuple[Array, Array]:
    """Mean and variance, noise included, of some cells (m,) given the observed entries of their rows, whether these
    cells are among them or not; O(K²) a cell."""
    inside, k = specification.slices[0], parameters.loadings.shape[1]
    seen, noise = parameters.of(inside), specification.per_feature(parameters.noise_variance)[inside]
    alone = noise * (1.0 + seen.uncertainty(noise))
    (first, second), (twice, more) = triangle(k), _forms(seen.loadings, seen.loadings_covariance)
    z = scores(x, y, parameters, specification)
    spread = covariances(x, y, parameters, specification)[:, first * k + second]
    mean = seen.mean[columns] + np.einsum("ik,ik->i", z[rows], seen.loadings[columns])
    variance = alone[columns] + np.einsum("ik,ik->i", spread[rows], twice[columns])
    if more is not None:
        each = np.broadcast_to(more, twice.shape)[columns]
        variance += np.einsum("ik,ik->i", packed_squares(z)[rows], each)
    return mean, variance


def block_held_out(block: Block, request: HeldOutRequest) -> HeldOut:
    """How well the held-out cells of a block are predicted from its other cells and its targets; additive."""
    parameters, specification, hiding = request
    k, sums = parameters.loadings.shape[1], np.zeros((3, FOLDS))
    for at in chunks(block.features, k * k + k):
        x, y = block.features[at], None if block.targets is None else block.targets[at]
        rows, columns, values = held_out_cells(x, block.start + at.start, hiding)
        rest = hidden(x, block.start + at.start, hiding)
        mean, variance = predicted_cells(rest, y, rows, columns, parameters, specification)
        away = values - mean
        known = ~np.isnan(away)
        away, variance, sets = away[known], variance[known], (block.start + at.start + rows[known]) % FOLDS
        values = -0.5 * (LOG_2PI + np.log(variance) + away**2 / variance)
        sums += [np.bincount(sets, each, minlength=FOLDS) for each in (np.ones(len(away)), values, away**2)]
    return HeldOut(*sums)
