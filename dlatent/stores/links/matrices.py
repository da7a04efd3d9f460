"""Adjacency matrices that fit into memory."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Links
from dlatent.stores.links.checks import check_square, check_weights
from dlatent.stores.links.counts import Counts
from dlatent.stores.links.direction import Direction, check_pairs, co_links, undirected
from dlatent.stores.links.rows import MemoryRows, without
from dlatent.stores.sparse import canonical

REPEATING = ("coo", "csr", "csc")
"""Formats of scipy.sparse that can hold several entries of one place, which count as their sum."""

MOST_PAIRS = 10**8
"""Pairs that co-links may visit in memory; each can become an entry of 12 bytes."""


def links_of_matrix(matrix: Any, direction: Direction | None, place: str) -> Links:
    """The graph of an adjacency matrix in memory, which is unweighted where all entries are 1."""
    check_square(matrix.shape, matrix.dtype, place)
    whole = canonical(matrix)
    counts = Counts(duplicates=int(matrix.nnz - whole.nnz) if matrix.format in REPEATING else 0)

    def name(at: int) -> str:
        return f"the link from {np.searchsorted(whole.indptr, at, side='right') - 1} to {whole.indices[at]}"

    check_weights(whole.data, place, name)
    whole = whole if whole.dtype == np.float64 else whole.astype(np.float64)
    counts.self_links = int(np.count_nonzero(whole.diagonal()))
    forward = without(whole)
    return links_of(forward, direction, counts, weighted=bool(np.any(forward.data != 1)), place=place)


def links_of(
    forward: sp.csr_array, direction: Direction | None, counts: Counts, *, weighted: bool, place: str
) -> Links:
    """The graph of D (N, N), canonical CSR in float64 with checked weights, without self-links and zeros."""
    instances = int(forward.shape[0])
    backward = canonical(forward.T)
    if direction == "co_links":
        check_pairs(np.diff(forward.indptr), np.diff(backward.indptr), MOST_PAIRS, place, _WITHOUT_HUBS)
        made = co_links(forward, backward, backward, forward, 0)
    else:
        made = undirected(forward, backward, direction, weighted=weighted, place=place, start=0)
    counts.isolated = int(np.count_nonzero(np.diff(made.indptr) == 0))
    return Links(instances, int(made.nnz), MemoryRows(made), uuid4().hex, place, True, tuple(counts.notes()))


_WITHOUT_HUBS = "leave them out, or write the links to disk: ingest_links(..., direction='co_links', most_pairs=...)"
