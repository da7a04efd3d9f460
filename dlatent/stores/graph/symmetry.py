"""Whether an adjacency matrix that is never held as a whole is symmetric."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, DataSource, Integers
from dlatent.stores.graph.checks import PrecisionCheck, check_weights
from dlatent.stores.graph.counts import Counts
from dlatent.stores.graph.direction import symmetric, undirected
from dlatent.stores.graph.edges import NOTHING, Placed, kept
from dlatent.stores.sparse import canonical, row_numbers

PARTS = 1 << 12
"""Parts of all pairs of samples whose sums of hashes are kept apart."""

_ODD = tuple(np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))


def check_symmetric(source: DataSource, *, precision: bool = False) -> tuple[int, Counts]:
    """Check weights and symmetry of an adjacency matrix, or of a precision, in one pass over its row blocks, and count
    its entries.

    The pairs of samples are divided into parts.  For each part the sum of a 64-bit hash of (i, j, weight), modulo
    2⁶⁴, must be that of (j, i, weight).  So memory does not grow with the matrix, and one that is not symmetric passes
    with a probability of about 2⁻⁶⁴.  A second pass is made only to name a pair that differs.
    Returns: the number of entries that are not zero, without the diagonal of an adjacency matrix, and the counts.
    Errors: DataError naming a weight that is no weight, or a pair whose two weights differ; as `PrecisionCheck`.
    """
    total = 0
    sums, counts, entries, joined = np.zeros(PARTS, dtype=np.uint64), Counts(), 0, 0
    for placed in block_graph(source, precision=precision):
        graph = kept(placed, counts, precision=precision)
        total += len(placed.weights)
        entries += len(graph.weights)
        joined += len(graph.sources) and 1 + int(np.count_nonzero(np.diff(graph.sources)))
        part = _part(graph)
        np.add.at(sums, part, _hash(graph.sources, graph.targets, graph.weights))
        np.subtract.at(sums, part, _hash(graph.targets, graph.sources, graph.weights))
    if sums.any():
        _refuse_difference(source, int(np.flatnonzero(sums)[0]), precision)
    counts.isolated = source.shape[0] - joined
    counts.duplicates = (source.nnz or total) - total
    return entries, counts


def block_graph(source: DataSource, *, precision: bool = False) -> Iterator[Placed]:
    """The entries of each row block of an adjacency matrix, or of a precision, in order, checked."""
    check = PrecisionCheck(source.description)
    for block in source.blocks:
        rows = canonical(block.load()).astype(np.float64, copy=False)
        placed = Placed(block.start + row_numbers(rows), rows.indices.astype(np.int64), rows.data)
        if precision:
            check.rows(rows, block.start)
        else:
            check_weights(placed.weights, source.description, partial(_name, placed))
        yield placed
    if precision:
        check.finish()


def _name(graph: Placed, at: int) -> str:
    return f"the edge from {graph.sources[at]} to {graph.targets[at]}"


def _part(graph: Placed) -> npt.NDArray[np.int64]:
    """The part of a pair of samples, the same for both of its orders."""
    low, high = np.minimum(graph.sources, graph.targets), np.maximum(graph.sources, graph.targets)
    return (_mixed(low, high) >> np.uint64(52)).astype(np.int64)


def _hash(rows: Integers, columns: Integers, weights: Array) -> npt.NDArray[np.uint64]:
    return _mixed(rows, columns, weights.view(np.uint64))


def _mixed(*columns: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """A hash of each row of columns of 64-bit integers: a sum with odd factors and the finalizer of SplitMix64."""
    mixed = np.full(len(columns[0]), _ODD[0])
    for column, factor in zip(columns, _ODD, strict=False):
        mixed += column.astype(np.uint64) * factor
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _refuse_difference(source: DataSource, part: int, precision: bool) -> None:
    """Collect the edges of one part, which is known to differ, and name the first pair whose weights are not equal."""
    found = [NOTHING]
    for placed in block_graph(source, precision=precision):
        here = _part(placed) == part
        found.append(Placed(*(column[here] for column in placed)))
    rows, columns, weights = (np.concatenate(column) for column in zip(*found, strict=True))
    forward = canonical(sp.coo_array((weights, (rows, columns)), source.shape))
    backward = canonical(forward.T)
    if precision:
        symmetric(forward, backward, source.description, 0)
    else:
        undirected(forward, backward, None, weighted=True, place=source.description, start=0)
    raise AssertionError("sums of hashes differ, but no pair does")
