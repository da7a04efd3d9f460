"""Work on the rows of blocks by a fitted model, with what goes over the edges of a graph; it travels to the rows.

A worker that unpacks it imports neither xarray nor scikit-learn, which takes longer than most passes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Features, Integers
from dlatent.containers import precision_of
from dlatent.engine.cache import ReferenceCache
from dlatent.engine.machine import cache_share
from dlatent.engine.session import Session
from dlatent.fitted.features import KnownFeatures, cells_named
from dlatent.fitted.rows import RowFunction, compares
from dlatent.gaussian.missing_entries.incomplete import Cells, predicted_cells
from dlatent.gaussian.missing_entries.observed import chunks
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.gaussian.spread import bad_genotype
from dlatent.gaussian.views import first_bad_entry
from dlatent.operators.sample_precision import SamplePrecision
from dlatent.passes import ExchangePattern, NoExchange, Pass
from dlatent.solvers.graph.averaged_rows import averaged_rows, observed_rows
from dlatent.solvers.graph.statistics import exchange_of

if TYPE_CHECKING:
    from dlatent.stores.sinks import RowSink


class GraphFilter(NamedTuple):
    """A filter of rows over the edges of a graph with Δ = F² between its samples: values of rows become F times them.

    With a `shift` (D,) it is the rows themselves, with missing entries, that are averaged before the function sees
    them; `with_rows` it gets the rows and, in the place of targets, their averages.
    """

    precision: SamplePrecision
    shift: Array | None = None
    with_rows: bool = False


class RowWork(NamedTuple):
    """Work on every block: a function of its rows, once these are known to be finite, and where there are any a sink
    and a filter over the edges of a graph."""

    function: RowFunction
    features: KnownFeatures
    sink: RowSink | None = None
    graph_filter: GraphFilter | None = None

    @property
    def precision(self) -> SamplePrecision:
        """The precision between the samples of a graph, as statistics of graphs ask for it."""
        assert self.graph_filter is not None
        return self.graph_filter.precision

    def over(self, session: Session, name: str) -> Pass[RowWork, Any]:
        """The pass over all blocks; a function that compares rows with others may keep of these what engines keep in
        their cache, which is empty in a pass that sees each block once."""
        exchange: ExchangePattern = NoExchange()
        if self.graph_filter is not None:
            rows = _row_values if self.graph_filter.shift is None else _observed
            exchange = replace(exchange_of(rows, self.precision), features=self.graph_filter.with_rows)
        work = self
        if compares(self.function):
            cache = ReferenceCache(cache_share(session.resources.worker_memory))
            work = self._replace(function=self.function.with_cache(cache))
        return Pass(_kept, work, combine=operator.add, exchange=exchange, name=name)


def _of_block(block: Block, work: RowWork) -> Array:
    if block.exchanged is None:
        return _row_values(block, work)
    assert work.graph_filter is not None
    precision, shift, with_rows = work.graph_filter
    if shift is None:
        return np.asarray(precision.factor(precision.hops) * block.exchanged.met)
    averages = averaged_rows(block, shift)
    if not with_rows:
        return work.function(averages, None)
    assert isinstance(averages, np.ndarray)
    return work.function(block.features, averages)


def _observed(block: Block, work: RowWork) -> Array | sp.csr_array:
    work.features.check_values(block.features, block.start)
    assert work.graph_filter is not None
    assert work.graph_filter.shift is not None
    return observed_rows(block, work.graph_filter.shift)


def _row_values(block: Block, work: RowWork) -> Array:
    work.features.check_values(block.features, block.start)
    return work.function(block.features, block.targets)


def _kept(block: Block, work: RowWork) -> tuple[tuple[int, Array], ...] | int:
    values = _of_block(block, work)
    if work.sink is None:
        return ((block.start, values),)
    return work.sink.write(block.start, values if values.ndim == 2 else values[:, None])


def check_chunk(x: Features, start: int | None, chunk: int, features: KnownFeatures) -> None:
    """As `KnownFeatures.check_values`, with the names of cells.  Errors: DataError."""
    with cells_named({None: features.grid}):
        features.check_values(x, start, chunk)


def without_targets(features: Features, function: RowFunction, single: bool) -> Array:
    """A function of rows alone; a `single` number of each as a column."""
    values = function(features, None)
    return values[:, None] if single else values


def in_data_units(features: Features, targets: Array | None, function: RowFunction, scale: Array) -> Array:
    """A function of rows whose columns are features, in the units of the input."""
    return function(features, targets) / scale


def cached_function(function: Any, single: bool) -> Callable[[Features], Array]:
    """The function of rows alone, with a place for what it compares them with."""
    return partial(without_targets, function=function.with_cache(ReferenceCache()), single=single)


class CellsRequest(NamedTuple):
    """A model, what it asks of the data, the numbers (u,) that the rows have there, and of each cell, in the order of
    rows, which of these it is in, and its column (m,)."""

    parameters: Parameters
    specification: Specification
    features: KnownFeatures
    numbers: Integers
    rows: Integers
    columns: Integers


def block_cells(block: Block, request: CellsRequest) -> tuple[tuple[int, Array], ...]:
    """The first cell of a block of rows, and mean and variance (m, 2) of all its cells."""
    parameters, specification, features, numbers, rows, columns = request
    x, width = block.features, parameters.loadings.shape[1] ** 2
    bad = first_bad_entry(x, holes=features.holes) or (bad_genotype(x) if features.genotypes else None)
    if bad is not None:
        features.check_values(x[[bad.row]], int(numbers[block.start + bad.row]))
    first, pieces = int(np.searchsorted(rows, block.start)), []
    for at in chunks(x, width):
        here = slice(*np.searchsorted(rows, [block.start + at.start, block.start + at.stop]))
        inside, of, y = rows[here] - block.start - at.start, columns[here], block.targets
        found = predicted_cells(x[at], None if y is None else y[at], inside, of, parameters, specification)
        known = _observed_cells(x[at], inside, of)
        values = np.column_stack(found)
        values[known.rows] = np.column_stack([known.values, np.zeros(len(known.values))])
        pieces.append(values)
    return ((first, np.concatenate(pieces)),)


def _observed_cells(x: Features, rows: Integers, columns: Integers) -> Cells:
    """Those of some cells that are observed, by their number in the place of rows."""
    if isinstance(x, sp.csr_array):
        places = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr)) * x.shape[1] + x.indices
        wanted = rows * x.shape[1] + columns
        at = np.minimum(np.searchsorted(places, wanted), len(places) - 1)
        known = np.flatnonzero(places[at] == wanted) if len(places) else np.zeros(0, dtype=np.intp)
        return Cells(known, columns[known], np.asarray(x.data[at[known]], dtype=np.float64))
    values = np.asarray(x[rows, columns], dtype=np.float64)
    known = np.flatnonzero(~np.isnan(values))
    return Cells(known, columns[known], values[known])


def expected_rows(scores: Any, loadings: Array, mean: Array, means: Callable[[Array], Array] = np.asarray) -> Array:
    """Wz + μ for each row z of the scores, or the `means` of entries with these predictors, in their precision."""
    return np.asarray(means(scores @ loadings.T + mean), dtype=precision_of(scores))
