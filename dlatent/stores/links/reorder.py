"""An order of the instances in which linked ones lie near each other."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee

from dlatent.errors import DataError, masked
from dlatent.stores.atomic import new_store, require_writable
from dlatent.stores.ingest.run import scratch
from dlatent.stores.ingest.writer import write_vector
from dlatent.stores.labels import ORIGINAL
from dlatent.stores.links.carry import Reordering, carry
from dlatent.stores.links.direction import Direction
from dlatent.stores.links.ingest import write_links
from dlatent.stores.links.open import open_links
from dlatent.stores.links.rows import row_numbers
from dlatent.stores.open import open, open_node
from dlatent.stores.strict import MissingChunks

Method = Literal["rcm"]
"""Reverse Cuthill-McKee: breadth first from an instance at the rim, instances with few links first."""

ROWS = 1 << 16
"""Rows of the graph that are written at once."""


@dataclass(frozen=True)
class ReorderReport:
    """What was written; the distance of a link is the difference of its two row numbers, before and after."""

    data: str
    links: str
    instances: int
    median_distance: tuple[float, float]
    largest_distance: tuple[int, int]
    seconds: float
    notes: tuple[str, ...]


def reorder(
    data: Any,
    links: Any,
    out_data: str | os.PathLike[str],
    out_links: str | os.PathLike[str],
    *,
    method: Method = "rcm",
    direction: Direction | None = None,
    missing_chunks: MissingChunks = "raise",
    overwrite: bool = False,
) -> ReorderReport:
    """Write data and graph with their instances in an order in which linked ones lie near each other.

    A block of rows then meets few other blocks through its links.  The model of a fit is the same but for rounding;
    rows of results come in the new order.  The vector `original_position` (N,), in `uns` of the data and beside the
    graph, says at which position each row lay before: `before[original_position] = after`.

    Parameters
    ----------
    data : anything that can be fitted.  Of an AnnData store, which `ingest` writes, labels and targets of the
        instances come along; rows without labels are named by the position at which they lay before.
    links : a graph as for `open_links`, which is held in memory; its instances are named by the labels of the data.
    out_data, out_links : paths or fsspec URLs of the new stores.
    method : "rcm", reverse Cuthill-McKee.
    direction, missing_chunks : as for `open_links`.
    overwrite : replace stores at the destinations, once the new ones are complete.

    Returns: the report.
    Errors: those of `open` and `open_links`; StoreError where a destination cannot be written.
    """
    started = time.perf_counter()
    if method != "rcm":
        raise DataError(f"method is {method!r}; expected 'rcm'")
    if os.path.abspath(os.fspath(out_data)) == os.path.abspath(os.fspath(out_links)):
        raise DataError(f"data and links cannot both be written to {out_data}; give two places")
    for place in (out_data, out_links):
        require_writable(place, overwrite=overwrite)
    node = open_node(data, missing_chunks) if isinstance(data, str | os.PathLike) else data
    source = open(node, missing_chunks=missing_chunks)
    graph = open_links(
        links,
        instances=source.shape[0],
        ids=source.labels.instances,
        direction=direction,
        missing_chunks=missing_chunks,
        origin=source.labels.origin,
    )
    before = graph.rows.load(0, graph.instances)
    order = nearest_order(before)
    after = before[order][:, order]
    after.sort_indices()
    with (
        new_store(out_links, kind="links", overwrite=overwrite) as root_links,
        new_store(out_data, kind="data", overwrite=overwrite) as root,
        scratch(out_data) as directory,
    ):
        notes = carry(node, source, root, Reordering(order, directory))
        rows = (after[start : start + ROWS] for start in range(0, graph.instances, ROWS))
        write_links(root_links, rows, graph.instances, weighted=bool(np.any(after.data != 1)))
        write_vector(root_links, ORIGINAL, order)
    old, moved = _distances(before), _distances(after)
    return ReorderReport(
        data=masked(os.fspath(out_data)),
        links=masked(os.fspath(out_links)),
        instances=graph.instances,
        median_distance=(float(np.median(old)), float(np.median(moved))),
        largest_distance=(int(old.max()), int(moved.max())),
        seconds=time.perf_counter() - started,
        notes=(*graph.notes, *notes),
    )


def nearest_order(adjacency: sp.csr_array) -> npt.NDArray[np.int64]:
    """The reverse Cuthill-McKee order (N,) of a symmetric matrix: old positions in their new order."""
    return reverse_cuthill_mckee(sp.csr_matrix(adjacency), symmetric_mode=True).astype(np.int64)


def _distances(adjacency: sp.csr_array) -> npt.NDArray[np.int64]:
    """Difference of row numbers of all links; 0 where there are none."""
    found = np.abs(row_numbers(adjacency) - adjacency.indices)
    return found if len(found) else np.zeros(1, dtype=np.int64)
