"""Graphs of any size into stores of edges: sorted on disk, made symmetric, checked once and for all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import zarr

from dlatent.arrays import Graph
from dlatent.errors import DataError, masked
from dlatent.stores.atomic import new_store, require_writable
from dlatent.stores.checked import MissingChunks
from dlatent.stores.files import directory_size
from dlatent.stores.graph.adjacency import Counts, check_adjacency
from dlatent.stores.graph.direction import (
    Direction,
    Halves,
    adjacency_rows,
    check_direction,
    common_neighbour_rows,
    pattern,
    symmetric,
)
from dlatent.stores.graph.edges import Edges, Placed, kept
from dlatent.stores.graph.lookup import Lookup
from dlatent.stores.graph.matrices import BLOCK_BYTES, CHECKED, adjacency_group, entries_of
from dlatent.stores.graph.open import NO_LIST, edges_of, located, named, open_graph, open_precision
from dlatent.stores.ingest.matrices import TripleSpill
from dlatent.stores.ingest.run import scratch
from dlatent.stores.lazy import is_dask_array
from dlatent.stores.location import guarded, guarded_each, place_text
from dlatent.stores.open import open_data
from dlatent.stores.places import require_apart
from dlatent.stores.sparse import CsrWriter, entries_where, open_csr, row_numbers

ROWS = 1 << 16
"""Rows of a graph that are copied at once."""

BATCH_BYTES = 1 << 24
"""Bytes of edges that are sorted at one time; they take about ten times as much memory."""

MOST_PAIRS = 10**9
"""Pairs of samples that common neighbours may visit unless the caller says otherwise."""


@dataclass(frozen=True)
class GraphReport:
    """Report of a written graph.

    Parameters
    ----------
    destination : str
        The new store.
    samples : int
        N.
    edges : int
        Edges between different samples.
    weighted : bool
        Whether edges have weights other than 1.
    self_loops_dropped : int
        Edges of a sample to itself.
    duplicates_merged : int
        Edges that occurred more than once.
    zeros_dropped : int
        Edges of weight 0.
    isolated : int
        Samples without an edge.
    median_degree : float
        Median number of edges of a sample.
    largest_degree : int
        Largest number of edges of a sample.
    bytes_written : int or None
        Of the store; None where nobody can tell.
    seconds : float
        Wall time.
    notes : tuple of str
        What was dropped or merged on the way.
    """

    destination: str
    samples: int
    edges: int
    weighted: bool
    self_loops_dropped: int
    duplicates_merged: int
    zeros_dropped: int
    isolated: int
    median_degree: float
    largest_degree: int
    bytes_written: int | None
    seconds: float
    notes: tuple[str, ...]


def ingest_graph(
    source: object,
    out: str | os.PathLike[str],
    *,
    samples: int | None = None,
    data: object = None,
    direction: Direction | None = None,
    ids: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    most_pairs: int = MOST_PAIRS,
    missing_chunks: MissingChunks = "raise",
    precision: bool = False,
    overwrite: bool = False,
) -> GraphReport:
    """Write a graph of any size as a symmetric adjacency matrix in a Zarr store, which `open_graph` opens unchecked.

    Edges are read in pieces, sorted by row in temporary files beside the destination (about 50 bytes an edge), merged
    and written; memory holds one piece and about 50 bytes for each sample, and its label where there are labels.

    Parameters
    ----------
    source : sparse matrix, array or table of edges, networkx graph, Zarr group, path or URL
        As `graph` of `open_graph`.
    out : path or URL
        The new store.
    samples : int, optional
        N, the number of rows of the data.
    data : optional
        The data that the graph belongs to, anything that can be fitted; says N and the labels of the samples.
    direction : {"symmetrise", "undirected", "common_neighbours"}, optional
        As for `open_graph`.
    ids : array of shape (n_samples,), optional
        As for `open_graph`.
    weights : array of shape (m,), optional
        As for `open_graph`.
    most_pairs : int, default 1000000000
        Common neighbours are refused where they would visit more pairs of samples than this, Σ in-degree² + Σ
        out-degree², because a sample with many edges joins all its neighbours with each other.
    missing_chunks : {"raise", "fill"}, default "raise"
        As for `open_graph`.
    precision : bool, default False
        Whether the source is a precision matrix, as for `open_precision`, which then opens the store unchecked.
    overwrite : bool, default False
        Replace a store at the destination, once the new one is complete.

    Returns
    -------
    GraphReport
        What was written.

    Raises
    ------
    DataError
        As `open_graph`, or as `open_precision`; for a direction of a precision.
    StoreError
        Where the destination cannot be written.

    Examples
    --------
    >>> import tempfile, dlatent
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dlatent.ingest_graph([[0, 1], [1, 2]], folder + "/graph.zarr", samples=3, direction="undirected").edges
    2
    """
    started = time.perf_counter()
    check_direction(direction)
    if precision and direction is not None:
        raise DataError(f"direction={direction!r} belongs to edges; a precision is symmetric already")
    require_apart(out, source, data)
    require_writable(out, overwrite=overwrite)
    origin = None
    if data is not None:
        opened = open_data(data, missing_chunks=missing_chunks)
        Lookup(samples).check_samples(opened.shape[0], opened.description)
        samples, ids = opened.shape[0], opened.labels.samples if ids is None else ids
        origin = opened.labels.origin
    with new_store(out, kind=CHECKED[precision], overwrite=overwrite) as root, scratch(out) as directory:
        with guarded(named(source)):
            edges = _edges(source, Lookup(samples, ids, origin), weights, missing_chunks, precision)
        place, counts = edges.place, Counts()
        spill, weighted = _spilled(edges, directory, counts, precision)
        halves = _halves(spill, weighted, counts)
        common = partial(
            common_neighbour_rows, samples=edges.samples, most_pairs=most_pairs, directory=directory, place=place
        )
        rows = (
            (symmetric(half, place) for half in halves)
            if precision
            else adjacency_rows(halves, direction, common, weighted=weighted, one_order=edges.one_order, place=place)
        )
        weighted = weighted and direction != "common_neighbours"
        degrees = write_graph(root, rows, edges.samples, weighted=weighted, precision=precision)
    counts.isolated = int(np.count_nonzero(degrees == 0))
    return GraphReport(
        destination=masked(place_text(out)),
        samples=edges.samples,
        edges=int(degrees.sum()) // 2,
        weighted=weighted,
        self_loops_dropped=counts.self_loops,
        duplicates_merged=counts.duplicates,
        zeros_dropped=counts.zeros,
        isolated=counts.isolated,
        median_degree=float(np.median(degrees)),
        largest_degree=int(degrees.max()),
        bytes_written=directory_size(place_text(out)),
        seconds=time.perf_counter() - started,
        notes=(*edges.notes, *counts.notes()),
    )


def write_graph(
    group: zarr.Group, rows: Iterable[sp.csr_array], samples: int, *, weighted: bool, precision: bool = False
) -> npt.NDArray[np.int64]:
    """Write the rows of A or of Δ, which are trusted, and leave word that they were checked; returns how many others
    each sample meets (N,)."""
    writer = CsrWriter(group, columns=samples, dtype=np.float64 if weighted else np.float32)
    degrees, start = [], 0
    for block in rows:
        writer.append(block)
        on_diagonal = block.diagonal(start) != 0 if precision else 0
        degrees.append(np.diff(block.indptr).astype(np.int64) - on_diagonal)
        start += block.shape[0]
    writer.close()
    others = np.concatenate(degrees)
    group.attrs[CHECKED[precision]] = {"entries": writer.nnz, "isolated": int(np.count_nonzero(others == 0))}
    return others


def _edges(
    source: Any, lookup: Lookup, weights: npt.ArrayLike | None, missing_chunks: MissingChunks, precision: bool
) -> Edges:
    always = True if precision else None
    if isinstance(source, Graph):
        graph = (open_precision if precision else open_graph)(source, samples=lookup.samples)
        return Edges(graph.description, graph.samples, _rows_of(graph), always, not precision)
    source = located(source, weights, missing_chunks)
    stored = isinstance(source, zarr.Group | zarr.Array)
    if stored or sp.issparse(source) or is_dask_array(source):
        matrix = (
            open_csr(adjacency_group(source), BLOCK_BYTES) if stored else open_data(source, block_bytes=BLOCK_BYTES)
        )
        check_adjacency(matrix.shape, matrix.dtype, lookup, matrix.description)
        return Edges(matrix.description, matrix.shape[0], entries_of(matrix, precision=precision), always)
    if precision:
        raise DataError(f"{named(source)} cannot be read as a precision, {NO_LIST}")
    return edges_of(source, lookup, weights)


def _rows_of(graph: Graph) -> Iterator[Placed]:
    for start in range(0, graph.samples, ROWS):
        rows = graph.rows.load(start, min(start + ROWS, graph.samples))
        yield Placed(start + row_numbers(rows), rows.indices.astype(np.int64), rows.data)


def _spilled(edges: Edges, directory: Path, counts: Counts, precision: bool) -> tuple[TripleSpill, bool]:
    """All edges, sorted on disk, and whether they are weighted.

    Each edge lies there twice, in row i as column 2 j and in row j as column 2 i + 1, so that rows of D and of Dᵀ are
    read together.
    """
    dtype = np.uint8 if edges.weighted is False else np.float64
    spill, heavy = TripleSpill(directory, edges.samples, 2 * edges.samples, dtype), False
    for placed in guarded_each(edges.placed, edges.place):
        sources, targets, weights = kept(placed, counts, precision=precision)
        heavy = heavy or bool(np.any(weights != 1))
        spill.add(sources, 2 * targets, weights)
        spill.add(targets, 2 * sources + 1, weights)
    return spill, heavy if edges.weighted is None else edges.weighted


def _halves(spill: TripleSpill, weighted: bool, counts: Counts) -> Iterator[Halves]:
    """Rows of D and of Dᵀ, block by block, with repeated edges merged."""
    for start, both in spill.batches(BATCH_BYTES):
        half = Halves(start, *(_merged(both, odd, weighted) for odd in (0, 1)))
        counts.duplicates += int(np.count_nonzero((both.indices & 1) == 0)) - len(half.forward.data)
        yield half


def _merged(both: sp.csr_array, odd: int, weighted: bool) -> sp.csr_array:
    half = entries_where(both, (both.indices & 1) == odd)
    shape = (both.shape[0], both.shape[1] // 2)
    half = sp.csr_array((half.data.astype(np.float64), half.indices >> 1, half.indptr), shape)
    half.sum_duplicates()
    return half if weighted else pattern(half)
