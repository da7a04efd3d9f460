"""Adjacency matrices that fit into memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Links
from dlatent.stores.links.checks import check_instances, check_square, check_weights
from dlatent.stores.links.counts import Counts
from dlatent.stores.links.direction import Direction, check_pairs, co_links, undirected
from dlatent.stores.links.edges import NOTHING, EdgeList, kept, resolve
from dlatent.stores.links.lookup import Lookup
from dlatent.stores.links.rows import MemoryRows, without
from dlatent.stores.sparse import canonical

LISTING = ("coo", "csr", "csc")
"""Formats of scipy.sparse whose entries are those that were listed: places may be repeated, values may be zero."""

MOST_PAIRS = 10**8
"""Pairs that co-links may visit in memory; each can become an entry of 12 bytes."""


def links_of_matrix(matrix: Any, instances: int | None, direction: Direction | None, place: str) -> Links:
    """The graph of an adjacency matrix in memory, which is unweighted where all entries are 1."""
    check_square(matrix.shape, matrix.dtype, place)
    check_instances(matrix.shape[0], instances, place)
    whole = canonical(matrix)
    counts = Counts()
    if matrix.format in LISTING:
        counts.duplicates, counts.zeros = int(matrix.nnz - whole.nnz), int(np.count_nonzero(whole.data == 0))

    def name(at: int) -> str:
        return f"the link from {np.searchsorted(whole.indptr, at, side='right') - 1} to {whole.indices[at]}"

    check_weights(whole.data, place, name)
    whole = whole if whole.dtype == np.float64 else whole.astype(np.float64)
    counts.self_links = int(np.count_nonzero(whole.diagonal()))
    forward = without(whole)
    return links_of(forward, direction, counts, weighted=bool(np.any(forward.data != 1)), place=place)


def links_of_list(edges: EdgeList, lookup: Lookup, direction: Direction | None) -> Links:
    """The graph of a list of links that fits into memory."""
    lookup, notes = resolve(edges, lookup)
    instances, counts = lookup.size, Counts()
    parts = [kept(placed, counts) for placed in edges.placed(lookup)] or [NOTHING]
    sources, targets, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    forward = canonical(sp.coo_array((weights, (sources, targets)), (instances, instances)))
    counts.duplicates = len(weights) - int(forward.nnz)
    forward.data = forward.data if edges.weighted else np.ones_like(forward.data)
    links = links_of(
        forward, direction, counts, weighted=bool(edges.weighted), place=edges.place, one_order=edges.undirected
    )
    return replace(links, notes=(*notes, *links.notes))


def links_of(
    forward: sp.csr_array,
    direction: Direction | None,
    counts: Counts,
    *,
    weighted: bool,
    place: str,
    one_order: bool = False,
) -> Links:
    """The graph of D (N, N), canonical CSR in float64 with checked weights, without self-links and zeros.

    `one_order` says that the links have no direction, and that D holds each of them in one of its orders or in both.
    """
    instances = int(forward.shape[0])
    backward = canonical(forward.T)
    if one_order:
        forward = backward = undirected(forward, backward, "undirected", weighted=weighted, place=place, start=0)
    if direction == "co_links":
        check_pairs(np.diff(forward.indptr), np.diff(backward.indptr), MOST_PAIRS, place, _WITHOUT_HUBS)
        made = co_links(forward, backward, backward, forward, 0)
    else:
        rule = None if one_order else direction
        made = undirected(forward, backward, rule, weighted=weighted, place=place, start=0)
    counts.isolated = int(np.count_nonzero(np.diff(made.indptr) == 0))
    return Links(instances, int(made.nnz), MemoryRows(made), uuid4().hex, place, True, tuple(counts.notes()))


_WITHOUT_HUBS = "leave them out, or write the links to disk: ingest_links(..., direction='co_links', most_pairs=...)"
