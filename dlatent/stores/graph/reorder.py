"""An order of the samples in which neighbours lie near each other, and data with all that belongs to them in it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import zarr
from scipy.sparse.csgraph import reverse_cuthill_mckee

from dlatent.arrays import DataSource
from dlatent.errors import DataError, StoreError, masked
from dlatent.stores.atomic import MARKER, new_store, require_writable, writing
from dlatent.stores.checked import MissingChunks
from dlatent.stores.chunked import read_all, write_array
from dlatent.stores.graph.direction import Direction
from dlatent.stores.graph.ingest import write_graph
from dlatent.stores.graph.open import open_graph
from dlatent.stores.ingest.matrices import TripleSpill
from dlatent.stores.ingest.run import scratch
from dlatent.stores.ingest.writer import DenseWriter, start_layout, write_before, write_feature_names, write_vector
from dlatent.stores.labels import BEFORE, DIMENSIONS, ORIGINAL
from dlatent.stores.location import guarded, place_text
from dlatent.stores.nodes import open_node
from dlatent.stores.open import open_data
from dlatent.stores.places import require_apart, require_separate
from dlatent.stores.rows import canonical
from dlatent.stores.sparse import CsrWriter, row_numbers

Method = Literal["rcm"]
"""Reverse Cuthill-McKee: breadth first from a sample at the rim, samples with few edges first."""

ROWS = 1 << 16
"""Rows of the graph that are written at once."""

BLOCK_BYTES = 32 << 20
"""Bytes of rows of the data that are put in order at one time."""

BY_ROW = ("obs", "obsm", "layers")
"""Groups of an AnnData store that have one row for each sample."""

SPARSE = ("csr_matrix", "csc_matrix")


@dataclass(frozen=True)
class ReorderReport:
    """Report of a store that was written in a new order.

    Parameters
    ----------
    data : str
        The new store of the data.
    graph : str
        The new store of the graph.
    samples : int
        N.
    median_distance : tuple of float
        Median distance of an edge, the difference of its two row numbers, before and after.
    largest_distance : tuple of int
        The largest, before and after.
    seconds : float
        Wall time.
    notes : tuple of str
        What was decided on the way.
    """

    data: str
    graph: str
    samples: int
    median_distance: tuple[float, float]
    largest_distance: tuple[int, int]
    seconds: float
    notes: tuple[str, ...]


def reorder(
    data: object,
    graph: object,
    out_data: str | os.PathLike[str],
    out_graph: str | os.PathLike[str],
    *,
    method: Method = "rcm",
    direction: Direction | None = None,
    missing_chunks: MissingChunks = "raise",
    overwrite: bool = False,
) -> ReorderReport:
    """Write data and graph with their samples in an order in which neighbours lie near each other.

    A block of rows then meets few other blocks through its edges.  The model of a fit is the same but for rounding;
    rows of results come in the new order.  The vector `original_position` (N,), in `uns` of the data and beside the
    graph, says at which position each row lay before: `before[original_position] = after`.

    Parameters
    ----------
    data : array, sparse matrix, Zarr array or group, AnnData, path or URL
        Anything that can be fitted.  Of an AnnData store, which `ingest` writes, labels and targets of the samples come
        along; rows without labels are named by the position at which they lay before.
    graph : sparse matrix, array or table of edges, networkx graph, Zarr group, path or URL
        As for `open_graph`; it is held in memory.  Its samples are named by the labels of the data.
    out_data : path or URL
        The new store of the data.
    out_graph : path or URL
        The new store of the graph.
    method : {"rcm"}, default "rcm"
        Reverse Cuthill-McKee.
    direction : {"symmetrise", "undirected", "common_neighbours"}, optional
        As for `open_graph`.
    missing_chunks : {"raise", "fill"}, default "raise"
        As for `open_graph`.
    overwrite : bool, default False
        Replace stores at the destinations, once the new ones are complete.

    Returns
    -------
    ReorderReport
        What was written.

    Raises
    ------
    DataError
        As `open_data` and `open_graph`.
    StoreError
        Where a destination cannot be written.

    Examples
    --------
    >>> import tempfile, numpy as np, dlatent
    >>> path = [[0, 2], [2, 1], [1, 3]]
    >>> graph = dlatent.open_graph(path, samples=4, direction="undirected")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dlatent.reorder(np.eye(4), graph, folder + "/data.zarr", folder + "/graph.zarr").largest_distance
    (2, 1)
    """
    started = time.perf_counter()
    if method != "rcm":
        raise DataError(f"method is {method!r}; expected 'rcm'")
    require_separate(out_data, out_graph)
    for place in (out_data, out_graph):
        require_apart(place, data, graph)
        require_writable(place, overwrite=overwrite)
    node = open_node(data, missing_chunks) if isinstance(data, str | os.PathLike) else data
    source = open_data(node, missing_chunks=missing_chunks)
    graph = open_graph(
        graph,
        samples=source.shape[0],
        ids=source.labels.samples,
        direction=direction,
        missing_chunks=missing_chunks,
        origin=source.labels.origin,
    )
    before = graph.rows.load(0, graph.samples)
    order = reverse_cuthill_mckee(sp.csr_matrix(before), symmetric_mode=True).astype(np.int64)
    after = before[order][:, order]
    after.sort_indices()
    with (
        new_store(out_graph, kind="graph", overwrite=overwrite) as root_graph,
        new_store(out_data, kind="data", overwrite=overwrite) as root,
        scratch(out_data) as directory,
    ):
        with guarded(source.description, StoreError), writing(out_data):
            notes = _carry(node, source, root, Reordering(order, directory))
        rows = (after[start : start + ROWS] for start in range(0, graph.samples, ROWS))
        write_graph(root_graph, rows, graph.samples, weighted=bool(np.any(after.data != 1)))
        write_vector(root_graph, ORIGINAL, order)
    old, moved = _distances(before), _distances(after)
    return ReorderReport(
        data=masked(place_text(out_data)),
        graph=masked(place_text(out_graph)),
        samples=graph.samples,
        median_distance=(float(np.median(old)), float(np.median(moved))),
        largest_distance=(int(old.max()), int(moved.max())),
        seconds=time.perf_counter() - started,
        notes=(*graph.notes, *notes),
    )


def _distances(adjacency: sp.csr_array) -> npt.NDArray[np.int64]:
    """Difference of row numbers of all edges; 0 where there are none."""
    distances = np.abs(row_numbers(adjacency) - adjacency.indices)
    return distances if len(distances) else np.zeros(1, dtype=np.int64)


@dataclass(frozen=True)
class Reordering:
    """Row i of the new data is row `order[i]` of the old; `directory` is for temporary files."""

    order: npt.NDArray[np.int64]
    directory: Path


def _carry(node: Any, source: DataSource, root: zarr.Group, new: Reordering) -> list[str]:
    """Write the rows of the data into a new store in the layout of AnnData; returns notes.

    Of an AnnData store all is carried but `obsp`; of other data the matrix, and the labels of both axes.
    """
    start_layout(root)
    annotated = isinstance(node, zarr.Group) and node.attrs.get("encoding-type") == "anndata"
    _write_matrix(source, root, "X", _stored_dtype(node["X"] if annotated else node, source), new)
    notes = _carry_annotations(node, root, new) if annotated else []
    if not annotated:  # rows without labels are named by the position at which they lay before
        labels = source.labels
        names = new.order if labels.samples is None else labels.samples[new.order]
        write_vector(cast(zarr.Group, root["obs"]), "_index", names.astype(str))
        write_feature_names(root, None if labels.features is None else labels.features.astype(str), source.shape[1])
        root["X"].attrs[DIMENSIONS] = list(labels.dims)
    write_vector(cast(zarr.Group, root["uns"]), ORIGINAL, new.order)
    if (origin := source.labels.origin) is not None:
        write_before(root, origin.load()[new.order], origin.rows)
    return notes


def _carry_annotations(old: zarr.Group, root: zarr.Group, new: Reordering) -> list[str]:
    if isinstance(marker := old.attrs.get(MARKER), dict):
        root.attrs[MARKER] = {**marker, **cast(dict[str, Any], root.attrs[MARKER])}
    for name, member in old.groups():
        if name in ("X", "obsp"):
            continue
        group = root.require_group(name)
        group.attrs.update(dict(member.attrs))
        for key, value in member.members():
            if name != "uns" or key not in (ORIGINAL, BEFORE):
                _copy(value, group, key, new if name in BY_ROW else None)
    left_out = sorted(name for name, _ in cast(zarr.Group, old["obsp"]).members()) if "obsp" in old else []
    return [f"obsp ({', '.join(left_out)}) was left out; the graph is in the store of edges"] if left_out else []


def _copy(member: Any, group: zarr.Group, name: str, new: Reordering | None) -> None:
    """Copy an array or a group, its rows in the new order where there is one."""
    encoding = member.attrs.get("encoding-type")
    if new is not None and (encoding in SPARSE or (isinstance(member, zarr.Array) and member.ndim == 2)):
        source = open_data(member)
        _write_matrix(source, group, name, _stored_dtype(member, source), new)
    elif isinstance(member, zarr.Array):
        values = read_all(member)
        ordered = values if new is None else values[new.order]
        write_array(group, name, ordered, member.chunks, attributes=dict(member.attrs))
    else:
        copied = group.create_group(name, attributes=dict(member.attrs))
        for key, value in member.members():
            _copy(value, copied, key, None if (encoding, key) == ("categorical", "categories") else new)


def _stored_dtype(member: Any, source: DataSource) -> np.dtype[Any]:
    """The dtype of dense values on disk, which is kept; sparse values are floats."""
    return member.dtype if isinstance(member, zarr.Array) and not source.sparse else source.dtype


def _write_matrix(source: DataSource, group: zarr.Group, name: str, dtype: np.dtype[Any], new: Reordering) -> None:
    """Write the rows of a matrix in the new order; they are sorted in files, and memory holds a few blocks."""
    rows, columns = source.shape
    positions = np.argsort(new.order)
    writer: CsrWriter | DenseWriter
    if source.sparse:
        entries = TripleSpill(new.directory, rows, columns, dtype)
        for block in source.blocks:
            part = canonical(block.load())
            entries.add(positions[block.start + row_numbers(part)], part.indices, part.data)
        writer = CsrWriter(group.create_group(name), columns=columns, dtype=dtype)
        batches: Iterator[Any] = (batch for _, batch in entries.batches(BLOCK_BYTES))
    else:  # one entry is a whole row
        entries = TripleSpill(new.directory, rows, 1, np.dtype((dtype, (columns,))))
        for block in source.blocks:
            entries.add(positions[block.start : block.stop], 0, block.load())
        writer = DenseWriter(group, name, columns, dtype, BLOCK_BYTES)
        batches = (records["value"] for _, _, records in entries.records(BLOCK_BYTES))
    for batch in batches:
        writer.append(batch)
    writer.close()
