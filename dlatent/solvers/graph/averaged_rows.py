"""Rows with missing entries, averaged over a graph: each cell over those of the samples near by that have it.

    y_ij = Σ_m f_im o_mj x_mj / Σ_m f_im o_mj,   f = f(S)

with o_mj = 1 where x_mj is observed, 0 where it is missing; y_ij is missing where no sample within the hops has feature
j, and is x_ij of a sample without edges.  The rows [o(x − s), o] go over the edges side by side, once.

It is a weighted mean, and no posterior mean: as a precision between samples f(S)² makes linked samples differ, so that
what it says of a missing cell is the opposite of what its neighbours have.
Source: Knutsson and Westin (1993), "Normalized and differential convolution", for signals on a grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Rows
from dlatent.gaussian.missing_entries import incomplete
from dlatent.gaussian.missing_entries.incomplete import FOLDS, Hiding, held_out_cells, hidden
from dlatent.gaussian.missing_entries.observed import chunks, observed, require_not_infinite
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.operators.sample_precision import SamplePrecision
from dlatent.operators.sparse import with_data
from dlatent.passes import Pass, Run
from dlatent.solvers.graph.statistics import exchange_of

S = TypeVar("S")


class Averaging(NamedTuple):
    """How rows are averaged: f = f(S) (None: nothing meets), the shift s (D,), and cells that are hidden before."""

    smooth: SamplePrecision | None
    shift: Array
    hiding: Hiding | None = None


class AverageRequest(NamedTuple):
    """How rows are averaged, and what is done with them: a function of blocks, and its parameters."""

    averaging: Averaging
    map: Callable[[Block, Any], Any]
    parameters: Any

    @property
    def precision(self) -> SamplePrecision:
        """Δ = f(S)²."""
        assert self.averaging.smooth is not None
        return self.averaging.smooth


def over_averages(pass_: Pass[Any, S], averaging: Averaging, *, with_rows: bool = False) -> Pass[AverageRequest, S]:
    """The pass over averaged rows in the place of the rows; `with_rows` it gets both, the rows as they are."""
    request = AverageRequest(averaging, pass_.map, pass_.parameters)
    exchange = pass_.exchange
    if averaging.smooth is not None:
        exchange = replace(exchange_of(_sent, averaging.smooth), features=with_rows)
    return replace(pass_, map=_of_rows if with_rows else _of_averages, parameters=request, exchange=exchange)


def _sent(block: Block, request: AverageRequest) -> Rows:
    return observed_rows(_visible(block, request.averaging), request.averaging.shift)


def _visible(block: Block, averaging: Averaging) -> Block:
    if averaging.hiding is None:
        return block
    return replace(block, features=hidden(block.features, block.start, averaging.hiding))


def _of_rows(block: Block, request: AverageRequest) -> Any:
    return request.map(block, request.parameters)


def _of_averages(block: Block, request: AverageRequest) -> Any:
    return request.map(_averaged_block(block, request.averaging), request.parameters)


def _averaged_block(block: Block, averaging: Averaging) -> Block:
    if block.exchanged is None:
        return _visible(block, averaging)
    return replace(block, features=averaged_rows(block, averaging.shift), exchanged=None)


def observed_rows(block: Block, shift: Array) -> Rows:
    """[o(x − s), o] (n, 2D) of the rows of a block; of sparse rows the stored entries are the observed ones.

    Raises DataError for infinite entries.
    """
    x, width = block.features, len(shift)
    if np.isinf(x.data if isinstance(x, sp.csr_array) else x).any():
        require_not_infinite(block, x, np.array([np.inf]))
    if isinstance(x, sp.csr_array):
        away = cast(sp.csr_array, observed(x, shift, np.ones(width)).residuals)
        return sp.csr_array(sp.hstack([away, with_data(away, np.ones(away.nnz))], format="csr"))
    pairs = np.empty((block.rows, 2 * width))
    values, missing = pairs[:, :width], np.isnan(x)
    np.subtract(x, shift, out=values)
    values[missing] = 0.0
    pairs[:, width:] = ~missing
    return pairs


def averaged_rows(block: Block, shift: Array) -> Array | sp.csr_array:
    """y (n, D) of a block whose `observed_rows` have met; where nobody has the cell NaN, or of sparse rows nothing."""
    assert block.exchanged is not None
    met = block.exchanged.met
    if isinstance(met, sp.csr_array):
        return _averaged_sparse(met, shift)
    sums, weights = np.split(met, 2, axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray(shift + sums / weights)


def _averaged_sparse(met: sp.csr_array, shift: Array) -> sp.csr_array:
    """Averages of sparse rows: what is stored of the weights is what somebody has; sums of it that are zero are not."""
    met.sum_duplicates()
    rows, columns = np.repeat(np.arange(met.shape[0]), np.diff(met.indptr)), met.indices.astype(np.int64)
    weighing = columns >= len(shift)
    places = rows * len(shift) + columns % len(shift)
    sums = np.zeros(int(weighing.sum()))
    sums[np.searchsorted(places[weighing], places[~weighing])] = met.data[~weighing]
    ends = np.concatenate([[0], np.cumsum(weighing)])[met.indptr]
    features = columns[weighing] - len(shift)
    return sp.csr_array((shift[features] + sums / met.data[weighing], features, ends), shape=(met.shape[0], len(shift)))


class ExpectedRequest(NamedTuple):
    """A model of averaged rows, and how these were made, with hidden cells."""

    parameters: Parameters
    specification: Specification
    averaging: Averaging


def expected_cells(request: ExpectedRequest) -> Pass[AverageRequest, Array]:
    """The pass for the sums of 1, x, x², p, p² and xp over hidden cells x and what the model expects there, p, of each
    set of rows (1, FOLDS, 6), both about the shift; see `smoothing.compared`."""
    return over_averages(Pass(_fold_expected, request, name="hidden cells"), request.averaging, with_rows=True)


def _fold_expected(block: Block, request: ExpectedRequest) -> Array:
    parameters, specification, averaging = request
    assert averaging.hiding is not None
    scores = incomplete.scores(_averaged_block(block, averaging).features, None, parameters, specification)
    sums, middle = np.zeros((1, FOLDS, 6)), parameters.mean - averaging.shift
    for at in chunks(block.features, 2 * scores.shape[1]):
        start, z = block.start + at.start, scores[at]
        rows, columns, values = held_out_cells(block.features[at], start, averaging.hiding)
        x = values - averaging.shift[columns]
        p = np.einsum("ik,ik->i", z[rows], parameters.loadings[columns]) + middle[columns]
        np.add.at(sums[0], (start + rows) % FOLDS, np.column_stack([np.ones(len(x)), x, x * x, p, p * p, x * p]))
    return sums


def averaged(run: Run, averaging: Averaging) -> Run:
    """Runs passes over rows that are averaged over a graph."""

    def over(pass_: Pass[Any, S], /) -> S:
        return run(over_averages(pass_, averaging))

    return over
