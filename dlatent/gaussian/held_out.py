"""Cells that are held out of a fit, and how well a model fitted to the rest predicts them.

Which cells are held out is a function of their place and a seed alone, so that every pass, on any machine, hides the
same ones, and nothing has to be stored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Features
from dlatent.gaussian.expectation import LOG_2PI
from dlatent.gaussian.missing_entries import incomplete
from dlatent.gaussian.missing_entries.observed import chunks
from dlatent.gaussian.parameters import Parameters
from dlatent.gaussian.specification import Specification
from dlatent.operators.batched import packed_squares, triangle

FOLDS = 10
"""Every tenth row belongs together: what is left without one of ten such sets tells the standard error."""


class Hiding(NamedTuple):
    """Which part of the cells is held out, and the seed of their choice."""

    part: float
    seed: int


class HeldOut(NamedTuple):
    """Sums over held-out cells, additive: their number, Σ log p(x_ij given the rest of row i), and Σ squared errors."""

    cells: float
    log_likelihood: float
    squared_error: float


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


def block_held_out(block: Block, request: HeldOutRequest) -> HeldOut:
    """How well the held-out cells of a block are predicted from its other cells and its targets; additive."""
    parameters, specification, hiding = request
    own, k = specification.slices[0], parameters.loadings.shape[1]
    loadings, mean = parameters.loadings[own], parameters.mean[own]
    noise = specification.per_feature(parameters.noise_variance)[own]
    alone = noise * (1.0 + parameters.of(own).uncertainty(noise))
    first, second = triangle(k)
    doubled, uncertain = np.where(first == second, 1.0, 2.0), parameters.loadings_covariance
    more = (
        np.zeros((1, len(first)))
        if uncertain is None
        else np.broadcast_to(uncertain, (len(parameters.loadings), len(first)))[own] * doubled
    )
    twice = packed_squares(loadings) * doubled + more
    found = np.zeros(3)
    for at in chunks(block.features, k * k + k):
        x, y = block.features[at], None if block.targets is None else block.targets[at]
        rows, columns, values = held_out_cells(x, block.start + at.start, hiding)
        rest = hidden(x, block.start + at.start, hiding)
        z = incomplete.scores(rest, y, parameters, specification)
        spread = incomplete.covariances(rest, y, parameters, specification)[:, first * k + second]
        away = values - mean[columns] - np.einsum("ik,ik->i", z[rows], loadings[columns])
        variance = alone[columns] + np.einsum("ik,ik->i", spread[rows], twice[columns])
        if uncertain is not None:
            variance += np.einsum("ik,ik->i", packed_squares(z)[rows], more[columns])
        known = ~np.isnan(away)
        away, variance = away[known], variance[known]
        value = -0.5 * float((LOG_2PI + np.log(variance) + away**2 / variance).sum())
        found += (float(len(away)), value, float(away @ away))
    return HeldOut(*found.tolist())
