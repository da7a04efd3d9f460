"""Adjacency matrices that fit into memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Graph
from dlatent.containers import check_parts
from dlatent.stores.graph.checks import PrecisionCheck, check_adjacency, check_weights
from dlatent.stores.graph.counts import Counts
from dlatent.stores.graph.direction import Direction, check_pairs, common_neighbours, symmetric, undirected
from dlatent.stores.graph.edges import NOTHING, EdgeList, kept, resolve
from dlatent.stores.graph.lookup import Lookup
from dlatent.stores.graph.rows import MemoryRows, without
from dlatent.stores.sparse import canonical

LISTING = ("coo", "csr", "csc")
"""Formats of scipy.sparse whose entries are those that were listed: places may be repeated, values may be zero."""

MOST_PAIRS = 10**8
"""Pairs that common neighbours may visit in memory; each can become an entry of 12 bytes."""


def graph_of_matrix(matrix: Any, samples: int | None, direction: Direction | None, place: str) -> Graph:
    """The graph of an adjacency matrix in memory, which is unweighted where all entries are 1."""
    check_adjacency(matrix.shape, matrix.dtype, samples, place)
    check_parts(matrix, f"the graph, a {place}")
    whole = canonical(matrix)
    counts = Counts()
    if matrix.format in LISTING:
        counts.duplicates, counts.zeros = int(matrix.nnz - whole.nnz), int(np.count_nonzero(whole.data == 0))

    def name(at: int) -> str:
        return f"the edge from {np.searchsorted(whole.indptr, at, side='right') - 1} to {whole.indices[at]}"

    check_weights(whole.data, place, name)
    whole = whole if whole.dtype == np.float64 else whole.astype(np.float64)
    counts.self_loops = int(np.count_nonzero(whole.diagonal()))
    forward = without(whole)
    return graph_of(forward, direction, counts, weighted=bool(np.any(forward.data != 1)), place=place)


def precision_of_matrix(matrix: Any, samples: int | None, place: str) -> Graph:
    """A precision in memory, whose entries stay as they are."""
    check_adjacency(matrix.shape, matrix.dtype, samples, place)
    check_parts(matrix, f"the precision, a {place}")
    whole = canonical(matrix).astype(np.float64, copy=False)
    check = PrecisionCheck(place)
    check.rows(whole, 0)
    check.finish()
    whole = symmetric(whole, canonical(whole.T), place, 0)
    return Graph(whole.shape[0], int(whole.nnz), MemoryRows(whole), uuid4().hex, place, True, precision=True)


def graph_of_list(edges: EdgeList, lookup: Lookup, direction: Direction | None) -> Graph:
    """The graph of a list of edges that fits into memory."""
    lookup, notes = resolve(edges, lookup)
    samples, counts = lookup.size, Counts()
    parts = [kept(placed, counts) for placed in edges.placed(lookup)] or [NOTHING]
    sources, targets, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    forward = canonical(sp.coo_array((weights, (sources, targets)), (samples, samples)))
    counts.duplicates = len(weights) - int(forward.nnz)
    forward.data = forward.data if edges.weighted else np.ones_like(forward.data)
    graph = graph_of(
        forward, direction, counts, weighted=bool(edges.weighted), place=edges.place, one_order=edges.undirected
    )
    return replace(graph, notes=(*notes, *graph.notes))


def graph_of(
    forward: sp.csr_array,
    direction: Direction | None,
    counts: Counts,
    *,
    weighted: bool,
    place: str,
    one_order: bool = False,
) -> Graph:
    """The graph of D (N, N), canonical CSR in float64 with checked weights, without self-loops and zeros.

    `one_order` says that the edges have no direction, and that D holds each of them in one of its orders or in both.
    """
    samples = int(forward.shape[0])
    backward = canonical(forward.T)
    if one_order:
        forward = backward = undirected(forward, backward, "undirected", weighted=weighted, place=place, start=0)
    if direction == "common_neighbours":
        check_pairs(np.diff(forward.indptr), np.diff(backward.indptr), MOST_PAIRS, place, _WITHOUT_HUBS)
        made = common_neighbours(forward, backward, backward, forward, 0)
    else:
        rule = None if one_order else direction
        made = undirected(forward, backward, rule, weighted=weighted, place=place, start=0)
    counts.isolated = int(np.count_nonzero(np.diff(made.indptr) == 0))
    return Graph(samples, int(made.nnz), MemoryRows(made), uuid4().hex, place, True, tuple(counts.notes()))


_WITHOUT_HUBS = (
    "leave them out, or write the edges to disk: ingest_graph(..., direction='common_neighbours', most_pairs=...)"
)
