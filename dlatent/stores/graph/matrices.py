"""Graphs and precisions from matrices and lists: in memory, in Dask arrays, and in Zarr stores, which stay there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import zarr

from dlatent.arrays import Array, DataSource, Graph
from dlatent.containers import check_parts
from dlatent.errors import DataError, StoreError
from dlatent.stores.atomic import PRECISION
from dlatent.stores.checked import place_of
from dlatent.stores.chunked import process_local
from dlatent.stores.graph.adjacency import (
    Counts,
    MemoryRows,
    StoredRows,
    check_adjacency,
    checked_rows,
    refuse_kind,
    without,
)
from dlatent.stores.graph.direction import (
    Direction,
    Halves,
    adjacency_rows,
    check_pairs,
    common_neighbours,
    pattern,
    symmetric,
    undirected,
)
from dlatent.stores.graph.edges import NOTHING, Edges, Placed, kept
from dlatent.stores.graph.lookup import Lookup
from dlatent.stores.nodes import check_complete
from dlatent.stores.rows import canonical
from dlatent.stores.sparse import CsrRows, open_csr, row_numbers

LISTING = ("coo", "csr", "csc")
"""Formats of scipy.sparse whose entries are those that were listed: places may be repeated, values may be zero."""

MOST_PAIRS = 10**8
"""Pairs that common neighbours may visit in memory; each can become an entry of 12 bytes."""

READ_BYTES = 256 * 10**6
"""Edges that are not in memory are read into it, where their direction must go, up to this size."""

ENTRY_BYTES = 12
"""Bytes of an edge in memory: a weight and the number of a sample."""

CHECKED = {False: "graph", True: PRECISION}
"""Attribute of what `ingest_graph` has written: of an adjacency matrix, symmetric, without self-loops and zeros, and of
a precision."""

BLOCK_BYTES = 1 << 23
"""Bytes of the row blocks in which a graph is checked or copied; they take about ten times as much memory."""

PARTS = 1 << 12
"""Parts of all pairs of samples whose sums of hashes are kept apart."""

_ODD = tuple(np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))


def of_matrix(
    matrix: Any, lookup: Lookup, direction: Direction | None, place: str, *, precision: bool = False
) -> Graph:
    """The graph of an adjacency matrix in memory, which is unweighted where all entries are 1; or a precision, whose
    entries stay as they are."""
    check_adjacency(matrix.shape, matrix.dtype, lookup, place)
    check_parts(matrix, f"the {CHECKED[precision]}, a {place}")
    entries = canonical(matrix)
    counts = Counts()
    if matrix.format in LISTING:
        counts.duplicates, counts.zeros = int(matrix.nnz - entries.nnz), int(np.count_nonzero(entries.data == 0))
    entries = entries if entries.dtype == np.float64 else entries.astype(np.float64)
    list(checked_rows([(0, entries)], place, precision=precision))
    if precision:
        rows = MemoryRows(symmetric(Halves(0, entries, canonical(entries.T)), place))
        return Graph(entries.shape[0], int(entries.nnz), rows, uuid4().hex, place, in_memory=True, precision=True)
    counts.self_loops = int(np.count_nonzero(entries.diagonal()))
    forward = without(entries)
    return _of_edges(forward, direction, counts, weighted=bool(np.any(forward.data != 1)), place=place)


def of_list(edges: Edges, direction: Direction | None) -> Graph:
    """The graph of a list of edges that fits into memory."""
    counts = Counts()
    sources, targets, weights = _joined([kept(placed, counts) for placed in edges.placed])
    forward = canonical(sp.coo_array((weights, (sources, targets)), (edges.samples, edges.samples)))
    counts.duplicates = len(weights) - int(forward.nnz)
    forward, weighted = (forward, True) if edges.weighted else (pattern(forward), False)
    graph = _of_edges(forward, direction, counts, weighted=weighted, place=edges.place, one_order=edges.one_order)
    return replace(graph, notes=(*edges.notes, *graph.notes))


def _of_edges(
    forward: sp.csr_array,
    direction: Direction | None,
    counts: Counts,
    *,
    weighted: bool,
    place: str,
    one_order: bool = False,
) -> Graph:
    """The graph of D (N, N), canonical CSR in float64 with checked weights, without self-loops and zeros."""

    def common(halves: Iterable[Halves]) -> Iterator[sp.csr_array]:
        hint = (
            "leave them out, or write the edges to disk: ingest_graph(..., direction='common_neighbours', "
            "most_pairs=...)"
        )
        for half in halves:
            check_pairs(np.diff(half.forward.indptr), np.diff(half.backward.indptr), MOST_PAIRS, place, hint)
            yield common_neighbours(half, half.backward, half.forward)

    halves = [Halves(0, forward, canonical(forward.T))]
    (adjacency,) = adjacency_rows(halves, direction, common, weighted=weighted, one_order=one_order, place=place)
    counts.isolated = int(np.count_nonzero(np.diff(adjacency.indptr) == 0))
    rows, notes = MemoryRows(adjacency), tuple(counts.notes())
    return Graph(forward.shape[0], int(adjacency.nnz), rows, uuid4().hex, place, in_memory=True, notes=notes)


def of_source(source: DataSource, lookup: Lookup, direction: Direction | None, *, precision: bool = False) -> Graph:
    """The graph, or the precision, of a matrix of samples × samples that is read into memory, if it is small."""
    check_adjacency(source.shape, source.dtype, lookup, source.description)
    option = "precision=True" if precision else f"direction={direction!r}" if direction else ""
    return of_matrix(_read(source, option), lookup, direction, source.description, precision=precision)


def of_group(group: zarr.Group, lookup: Lookup, direction: Direction | None, *, precision: bool = False) -> Graph:
    """The graph, or the precision, of a csr_matrix group, which is checked in one pass unless its writer has left word
    of that."""
    source = open_csr(group, BLOCK_BYTES)
    place = source.description
    if CHECKED[not precision] in group.attrs:
        refuse_kind(f"{place} holds", precision=not precision)
    if direction is not None:
        return of_source(source, lookup, direction)
    check_adjacency(source.shape, source.dtype, lookup, place)
    entries, counts, arrays = int(source.nnz or 0), Counts(), cast(CsrRows, source.blocks[0]).arrays
    marked = group.attrs.get(CHECKED[precision])
    if isinstance(marked, dict) and marked.get("entries") == entries:
        counts.isolated = int(marked["isolated"])
    else:
        listed, counts = check_symmetric(source, precision=precision)
        entries = entries if precision else listed
    rows = StoredRows(arrays, clean=precision or not (counts.self_loops or counts.zeros))
    return Graph(
        source.shape[0],
        entries,
        rows,
        uuid4().hex,
        place,
        process_local(arrays.data),
        () if precision else tuple(counts.notes()),
        arrays.unchanged,
        precision=precision,
    )


def adjacency_group(node: Any) -> zarr.Group:
    """The group with the csr_matrix of a graph: the node itself, or the only one in `obsp` of an AnnData store.

    Errors: StoreError where there is none, or there are several to choose from.
    """
    check_complete(node)
    place = place_of(node)
    if isinstance(node, zarr.Group):
        if node.attrs.get("encoding-type") == "csr_matrix":
            return node
        above = node.get("obsp")
        inside = above if isinstance(above, zarr.Group) else node
        groups = {name: group for name, group in inside.groups() if group.attrs.get("encoding-type") == "csr_matrix"}
        if len(groups) == 1:
            return next(iter(groups.values()))
        if groups:
            paths = ", ".join(f"{place_of(inside)}/{name}" for name in sorted(groups))
            raise StoreError(f"{place} has {len(groups)} sparse matrices; open one of {paths}")
    raise StoreError(f"{place} holds no csr_matrix; write the graph as a sparse matrix by rows")


def _read(source: DataSource, option: str) -> sp.csr_array:
    """The matrix, if it is small.

    Errors: DataError where it is larger than `READ_BYTES`, with the `option` of `ingest_graph` that it then needs.
    """
    blocks = list[sp.csr_array]()
    for block in source.blocks:
        blocks.append(canonical(block.load()))
        if max(sum(int(rows.nnz) for rows in blocks), source.nnz or 0) * ENTRY_BYTES > READ_BYTES:
            raise DataError(
                f"{source.description} has more than {READ_BYTES // 10**6:,} MB of edges, which are not read into "
                f"memory; write them to a store first, with ingest_graph(..., 'edges.zarr'{', ' * bool(option)}"
                f"{option}) or dlatent ingest-graph"
            )
    return sp.csr_array(sp.vstack(blocks, format="csr"))


def check_symmetric(source: DataSource, *, precision: bool = False) -> tuple[int, Counts]:
    """Check weights and symmetry of an adjacency matrix, or of a precision, in one pass over its row blocks, and count
    its entries.

    The pairs of samples are divided into parts.  For each part the sum of a 64-bit hash of (i, j, weight) over i < j,
    modulo 2⁶⁴, must be that of (j, i, weight).  So memory does not grow with the matrix, and one that is not symmetric
    passes with a probability of about 2⁻⁶⁴.  A second pass is made only to name a pair that differs.
    Returns: the number of entries that are not zero, without the diagonal of an adjacency matrix, and the counts.
    Errors: DataError naming a weight that is no weight, or a pair whose two weights differ; as `checked_rows`.
    """
    sums, counts, total, entries, joined = np.zeros(PARTS, dtype=np.uint64), Counts(), 0, 0, 0
    for placed in entries_of(source, precision=precision):
        edges = kept(placed, counts, precision=precision)
        total += len(placed.weights)
        entries += len(edges.weights)
        joined += len(edges.sources) and 1 + int(np.count_nonzero(np.diff(edges.sources)))
        signs = np.sign(edges.targets - edges.sources).astype(np.uint64)  # -1 is 2⁶⁴ - 1
        np.add.at(sums, _part_of_pair(edges, source), signs * _mixed(edges))
    if sums.any():
        _refuse_difference(source, int(np.flatnonzero(sums)[0]), precision)
    counts.isolated = source.shape[0] - joined
    counts.duplicates = (source.nnz or total) - total
    return entries, counts


def entries_of(source: DataSource, *, precision: bool = False) -> Iterator[Placed]:
    """The entries of each row block of an adjacency matrix, or of a precision, in order, checked."""
    blocks = ((block.start, canonical(block.load()).astype(np.float64, copy=False)) for block in source.blocks)
    for start, rows in checked_rows(blocks, source.description, precision=precision):
        yield Placed(start + row_numbers(rows), rows.indices.astype(np.int64), rows.data)


def _part_of_pair(edges: Placed, source: DataSource) -> npt.NDArray[np.int64]:
    """The part of a pair of samples, one for both of its orders, by the first of the two samples."""
    return np.minimum(edges.sources, edges.targets) * PARTS // source.shape[0]


def _mixed(edges: Placed) -> npt.NDArray[np.uint64]:
    """A hash of each edge, one for both of its orders: a sum with odd factors and the finalizer of SplitMix64."""
    low, high = np.minimum(edges.sources, edges.targets), np.maximum(edges.sources, edges.targets)
    mixed = np.full(len(low), _ODD[0])
    for column, factor in zip((low, high, edges.weights), _ODD, strict=True):
        mixed += column.view(np.uint64) * factor
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _refuse_difference(source: DataSource, part: int, precision: bool) -> None:
    """Collect the edges of one part, which is known to differ, and name the first pair whose weights are not equal."""
    edges = []
    for placed in entries_of(source, precision=precision):
        here = _part_of_pair(placed, source) == part
        edges.append(Placed(*(column[here] for column in placed)))
    rows, columns, weights = _joined(edges)
    forward = canonical(sp.coo_array((weights, (rows, columns)), source.shape))
    half = Halves(0, forward, canonical(forward.T))
    if precision:
        symmetric(half, source.description)
    else:
        undirected(half, None, weighted=True, place=source.description)
    raise AssertionError("sums of hashes differ, but no pair does")


def _joined(parts: list[Placed]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Array]:
    sources, targets, weights = (np.concatenate(column) for column in zip(*(parts or [NOTHING]), strict=True))
    return sources, targets, weights
