"""Adjacency matrices that are not in memory: in Zarr stores and in Dask arrays."""

from __future__ import annotations

from typing import Any, cast
from uuid import uuid4

import scipy.sparse as sp
import zarr

from dlatent.arrays import AxisLabels, DataSource, Graph
from dlatent.errors import DataError, StoreError
from dlatent.stores.atomic import PRECISION
from dlatent.stores.chunked import process_local
from dlatent.stores.csr import CsrRows, open_csr
from dlatent.stores.graph.checks import check_adjacency
from dlatent.stores.graph.counts import Counts
from dlatent.stores.graph.direction import Direction
from dlatent.stores.graph.matrices import graph_of_matrix, precision_of_matrix
from dlatent.stores.graph.rows import StoredRows
from dlatent.stores.graph.symmetry import check_symmetric
from dlatent.stores.lazy import open_dask
from dlatent.stores.open import check_complete
from dlatent.stores.sparse import canonical
from dlatent.stores.strict import place_of

READ_BYTES = 256 * 10**6
"""Edges that are not in memory are read into it, where their direction must go, up to this size."""

CHECKED = "graph"
"""Attribute of an adjacency matrix that `ingest_graph` has written: symmetric, without self-loops and zeros.  That of a
precision is named as its kind."""

BLOCK_BYTES = 1 << 23
"""Bytes of the row blocks in which a graph is checked or copied; they take about ten times as much memory."""

ENTRY_BYTES = 12
"""Bytes of an edge in memory: a weight and the number of a sample."""


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
        found = {name: group for name, group in inside.groups() if group.attrs.get("encoding-type") == "csr_matrix"}
        if len(found) == 1:
            return next(iter(found.values()))
        if found:
            choice = ", ".join(f"{place_of(inside)}/{name}" for name in sorted(found))
            raise StoreError(f"{place} has {len(found)} sparse matrices; open one of {choice}")
    raise StoreError(f"{place} holds no csr_matrix; write the graph as a sparse matrix by rows")


def graph_of_group(group: zarr.Group, samples: int | None, direction: Direction | None) -> Graph:
    """The graph of a csr_matrix group, which is checked in one pass unless its writer has left word of that."""
    source = open_csr(group, BLOCK_BYTES)
    place = source.description
    if PRECISION in group.attrs:
        raise DataError(f"{place} holds a precision, not a graph; give it as precision=…")
    check_adjacency(source.shape, source.dtype, samples, place)
    if direction is not None:
        return graph_of_matrix(_read(source, direction), samples, direction, place)
    entries, rows = int(source.nnz or 0), StoredRows(cast(CsrRows, source.blocks[0]).arrays, clean=True)
    marked = group.attrs.get(CHECKED)
    if isinstance(marked, dict) and marked.get("entries") == entries:
        counts = Counts(isolated=int(marked["isolated"]))
    else:
        entries, counts = check_symmetric(source)
        rows = StoredRows(rows.arrays, clean=not (counts.self_loops or counts.zeros))
    local, notes = process_local(rows.arrays.data), tuple(counts.notes())
    return Graph(source.shape[0], entries, rows, uuid4().hex, place, local, notes, rows.arrays.unchanged)


def precision_of_group(group: zarr.Group, samples: int | None) -> Graph:
    """The precision in a csr_matrix group, which is checked as a graph is."""
    source = open_csr(group, BLOCK_BYTES)
    place = source.description
    if CHECKED in group.attrs:
        raise DataError(f"{place} holds a graph, not a precision; give it as graph=…")
    check_adjacency(source.shape, source.dtype, samples, place)
    arrays, entries = cast(CsrRows, source.blocks[0]).arrays, int(source.nnz or 0)
    marked = group.attrs.get(PRECISION)
    if not isinstance(marked, dict) or marked.get("entries") != entries:
        check_symmetric(source, precision=True)
    rows, local = StoredRows(arrays, clean=True), process_local(arrays.data)
    return Graph(source.shape[0], entries, rows, uuid4().hex, place, local, (), arrays.unchanged, precision=True)


def precision_of_dask(array: Any, samples: int | None) -> Graph:
    """The precision in a Dask array of samples × samples, which is read into memory."""
    source = open_dask(array, AxisLabels())
    check_adjacency(source.shape, source.dtype, samples, source.description)
    return precision_of_matrix(_read(source, None, "precision=True"), samples, source.description)


def graph_of_dask(array: Any, samples: int | None, direction: Direction | None) -> Graph:
    """The graph of a Dask array of samples × samples, which is read into memory."""
    source = open_dask(array, AxisLabels())
    check_adjacency(source.shape, source.dtype, samples, source.description)
    return graph_of_matrix(_read(source, direction), samples, direction, source.description)


def _read(source: DataSource, direction: Direction | None, option: str = "") -> sp.csr_array:
    """The whole matrix, if it is small.

    Errors: DataError where it is larger than `READ_BYTES`.
    """
    blocks, total = [], 0
    if not source.sparse or source.nnz is None or source.nnz * ENTRY_BYTES <= READ_BYTES:
        for block in source.blocks:
            blocks.append(canonical(block.load()))
            total += int(blocks[-1].nnz) * ENTRY_BYTES
            if total > READ_BYTES:
                break
        else:
            return sp.csr_array(sp.vstack(blocks, format="csr"))
    option = option if direction is None else f"direction={direction!r}"
    raise DataError(
        f"{source.description} has more than {READ_BYTES // 10**6:,} MB of edges, which are not read into memory; "
        f"write them to a store first, with ingest_graph(..., 'edges.zarr'{', ' * bool(option)}{option}) or dlatent "
        "ingest-graph"
    )
