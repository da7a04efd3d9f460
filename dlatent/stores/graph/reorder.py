"""An order of the samples in which neighbours lie near each other."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee

from dlatent.errors import DataError, StoreError, masked
from dlatent.stores.atomic import new_store, require_writable, with_room
from dlatent.stores.graph.carry import Reordering, carry
from dlatent.stores.graph.direction import Direction
from dlatent.stores.graph.ingest import write_graph
from dlatent.stores.graph.open import open_graph
from dlatent.stores.guard import guarded
from dlatent.stores.ingest.run import scratch
from dlatent.stores.ingest.writer import write_vector
from dlatent.stores.labels import ORIGINAL
from dlatent.stores.open import open_data, open_node
from dlatent.stores.places import require_apart, require_separate
from dlatent.stores.sparse import row_numbers
from dlatent.stores.strict import MissingChunks

Method = Literal["rcm"]
"""Reverse Cuthill-McKee: breadth first from a sample at the rim, samples with few edges first."""

ROWS = 1 << 16
"""Rows of the graph that are written at once."""


@dataclass(frozen=True)
class ReorderReport:
    """What was written in a new order.

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
    order = nearest_order(before)
    after = before[order][:, order]
    after.sort_indices()
    with (
        new_store(out_graph, kind="graph", overwrite=overwrite) as root_graph,
        new_store(out_data, kind="data", overwrite=overwrite) as root,
        scratch(out_data) as directory,
    ):
        with guarded(source.description, StoreError), with_room(out_data):
            notes = carry(node, source, root, Reordering(order, directory))
        rows = (after[start : start + ROWS] for start in range(0, graph.samples, ROWS))
        write_graph(root_graph, rows, graph.samples, weighted=bool(np.any(after.data != 1)))
        write_vector(root_graph, ORIGINAL, order)
    old, moved = _distances(before), _distances(after)
    return ReorderReport(
        data=masked(os.fspath(out_data)),
        graph=masked(os.fspath(out_graph)),
        samples=graph.samples,
        median_distance=(float(np.median(old)), float(np.median(moved))),
        largest_distance=(int(old.max()), int(moved.max())),
        seconds=time.perf_counter() - started,
        notes=(*graph.notes, *notes),
    )


def nearest_order(adjacency: sp.csr_array) -> npt.NDArray[np.int64]:
    """The reverse Cuthill-McKee order (N,) of a symmetric matrix: old positions in their new order."""
    return reverse_cuthill_mckee(sp.csr_matrix(adjacency), symmetric_mode=True).astype(np.int64)


def _distances(adjacency: sp.csr_array) -> npt.NDArray[np.int64]:
    """Difference of row numbers of all edges; 0 where there are none."""
    found = np.abs(row_numbers(adjacency) - adjacency.indices)
    return found if len(found) else np.zeros(1, dtype=np.int64)
