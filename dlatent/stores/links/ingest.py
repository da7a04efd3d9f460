"""Graphs of any size into stores of links: sorted on disk, made symmetric, checked once and for all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import zarr

from dlatent.arrays import AxisLabels, DataSource, Links
from dlatent.errors import masked
from dlatent.stores.atomic import new_store, require_writable
from dlatent.stores.csr import open_csr
from dlatent.stores.guard import guarded, guarded_each
from dlatent.stores.ingest.run import scratch
from dlatent.stores.ingest.source import directory_size
from dlatent.stores.ingest.spill import TripleSpill
from dlatent.stores.lazy import is_dask_array, open_dask
from dlatent.stores.links.checks import check_instances, check_square, explained
from dlatent.stores.links.co_links import Halves, co_linked_rows
from dlatent.stores.links.counts import Counts
from dlatent.stores.links.direction import Direction, check_direction, undirected
from dlatent.stores.links.edges import Placed, kept, resolve
from dlatent.stores.links.lookup import Lookup
from dlatent.stores.links.open import list_of, located, named
from dlatent.stores.links.rows import row_numbers
from dlatent.stores.links.stored import BLOCK_BYTES, CHECKED, adjacency_group
from dlatent.stores.links.symmetry import block_links
from dlatent.stores.memory import open_scipy
from dlatent.stores.open import open
from dlatent.stores.sparse import CsrWriter
from dlatent.stores.strict import MissingChunks

ROWS = 1 << 16
"""Rows of a graph that are copied at once."""

BATCH_BYTES = 1 << 24
"""Bytes of links that are sorted at one time; they take about ten times as much memory."""

MOST_PAIRS = 10**9
"""Pairs of instances that co-links may visit unless the caller says otherwise."""


@dataclass(frozen=True)
class LinksReport:
    """What was written: `links` between `instances`, degrees, and what was dropped or merged on the way."""

    destination: str
    instances: int
    links: int
    weighted: bool
    self_links_dropped: int
    duplicates_merged: int
    zeros_dropped: int
    isolated: int
    median_degree: float
    largest_degree: int
    bytes_written: int | None
    seconds: float
    notes: tuple[str, ...]


def ingest_links(
    source: Any,
    out: str | os.PathLike[str],
    *,
    instances: int | None = None,
    data: Any = None,
    direction: Direction | None = None,
    ids: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    most_pairs: int = MOST_PAIRS,
    missing_chunks: MissingChunks = "raise",
    overwrite: bool = False,
) -> LinksReport:
    """Write a graph of any size as a symmetric adjacency matrix in a Zarr store, which `open_links` opens unchecked.

    Links are read in pieces, sorted by row in temporary files beside the destination (about 50 bytes a link), merged
    and written; memory holds one piece and about 50 bytes for each instance, and its label where there are labels.

    Parameters
    ----------
    source, instances, direction, ids, weights, missing_chunks : as for `open_links`.
    out : path or fsspec URL of the new store.
    data : the data that the graph belongs to, anything that can be fitted; says N and the labels of the instances.
    most_pairs : co-links are refused where they would visit more pairs of instances than this,
        Σ in-degree² + Σ out-degree², because an instance with many links links all its neighbours with each other.
    overwrite : replace a store at the destination, once the new one is complete.

    Returns: the report.
    Errors: those of `open_links`; StoreError where the destination cannot be written.
    """
    started = time.perf_counter()
    check_direction(direction)
    require_writable(out, overwrite=overwrite)
    origin = None
    if data is not None:
        opened = open(data, missing_chunks=missing_chunks)
        check_instances(opened.shape[0], instances, opened.description)
        instances, ids = opened.shape[0], opened.labels.instances if ids is None else ids
        origin = opened.labels.origin
    with new_store(out, kind="links", overwrite=overwrite) as root, scratch(out) as directory:
        with guarded(named(source)), explained(origin):
            given, counts = _given(source, Lookup(instances, ids, origin), weights, missing_chunks), Counts()
        given = given._replace(placed=guarded_each(given.placed, given.place))
        spill, weighted = _spilled(given, directory, counts)
        halves = _halves(spill, given, weighted, counts)
        if direction == "co_links":
            weighted = False
            rows = co_linked_rows(halves, given.instances, most_pairs, directory, given.place)
        else:
            rule = None if given.one_order else direction
            rows = (
                undirected(half.forward, half.backward, rule, weighted=weighted, place=given.place, start=half.start)
                for half in halves
            )
        degrees = write_links(root, rows, given.instances, weighted=weighted)
    counts.isolated = int(np.count_nonzero(degrees == 0))
    return LinksReport(
        destination=masked(os.fspath(out)),
        instances=given.instances,
        links=int(degrees.sum()) // 2,
        weighted=weighted,
        self_links_dropped=counts.self_links,
        duplicates_merged=counts.duplicates,
        zeros_dropped=counts.zeros,
        isolated=counts.isolated,
        median_degree=float(np.median(degrees)),
        largest_degree=int(degrees.max()),
        bytes_written=directory_size(os.fspath(out)),
        seconds=time.perf_counter() - started,
        notes=(*given.notes, *counts.notes()),
    )


def write_links(
    group: zarr.Group, rows: Iterable[sp.csr_array], instances: int, *, weighted: bool
) -> npt.NDArray[np.int64]:
    """Write the rows of A, which are trusted, and leave word that they were checked; returns the degrees (N,)."""
    writer = CsrWriter(group, columns=instances, dtype=np.float64 if weighted else np.float32)
    degrees = []
    for block in rows:
        writer.append(block)
        degrees.append(np.diff(block.indptr).astype(np.int64))
    writer.close()
    found = np.concatenate(degrees)
    group.attrs[CHECKED] = {"entries": int(found.sum()), "isolated": int(np.count_nonzero(found == 0))}
    return found


class _Given(NamedTuple):
    """Links by position as they come: `weighted` None says that the weights are none where all are 1."""

    place: str
    instances: int
    placed: Iterator[Placed]
    weighted: bool | None
    one_order: bool = False
    notes: tuple[str, ...] = ()


def _given(source: Any, lookup: Lookup, weights: npt.ArrayLike | None, missing_chunks: MissingChunks) -> _Given:
    if isinstance(source, Links):
        check_instances(source.instances, lookup.instances, source.description)
        return _Given(source.description, source.instances, _rows_of(source), None, one_order=True)
    source = located(source, weights, missing_chunks)
    if isinstance(source, zarr.Group | zarr.Array):
        return _matrix(open_csr(adjacency_group(source), BLOCK_BYTES), lookup)
    if sp.issparse(source):
        return _matrix(open_scipy(source, BLOCK_BYTES, AxisLabels()), lookup)
    if is_dask_array(source):
        return _matrix(open_dask(source, AxisLabels()), lookup)
    edges = list_of(source, lookup, weights)
    lookup, notes = resolve(edges, lookup)
    return _Given(edges.place, lookup.size, edges.placed(lookup), edges.weighted, edges.undirected, notes)


def _matrix(source: DataSource, lookup: Lookup) -> _Given:
    check_square(source.shape, source.dtype, source.description)
    check_instances(source.shape[0], lookup.instances, source.description)
    return _Given(source.description, source.shape[0], block_links(source), None)


def _rows_of(links: Links) -> Iterator[Placed]:
    for start in range(0, links.instances, ROWS):
        rows = links.rows.load(start, min(start + ROWS, links.instances))
        yield Placed(start + row_numbers(rows), rows.indices.astype(np.int64), rows.data)


def _spilled(given: _Given, directory: Path, counts: Counts) -> tuple[TripleSpill, bool]:
    """All links, sorted on disk, and whether they are weighted.

    Each link lies there twice, in row i as column 2 j and in row j as column 2 i + 1, so that rows of D and of Dᵀ are
    read together.
    """
    spill = TripleSpill(
        directory, given.instances, 2 * given.instances, np.uint8 if given.weighted is False else np.float64
    )
    heavy = False
    for placed in given.placed:
        links = kept(placed, counts)
        heavy = heavy or bool(np.any(links.weights != 1))
        spill.add(links.sources, 2 * links.targets, links.weights)
        spill.add(links.targets, 2 * links.sources + 1, links.weights)
    return spill, heavy if given.weighted is None else given.weighted


def _halves(spill: TripleSpill, given: _Given, weighted: bool, counts: Counts) -> Iterator[Halves]:
    """Rows of D and of Dᵀ, block by block, with repeated links merged; equal for links without direction."""
    for start, both in spill.batches(BATCH_BYTES):
        forward, backward = _half(both, 0), _half(both, 1)
        listed = len(forward.data)
        for half in (forward, backward):
            half.sum_duplicates()
            half.data = half.data if weighted else np.ones_like(half.data)
        counts.duplicates += listed - len(forward.data)
        if given.one_order:
            forward = backward = undirected(
                forward, backward, "undirected", weighted=weighted, place=given.place, start=start
            )
        yield Halves(start, forward, backward)


def _half(both: sp.csr_array, odd: int) -> sp.csr_array:
    keep = (both.indices & 1) == odd
    pointers = np.concatenate([[0], np.cumsum(keep)])[both.indptr]
    shape = (both.shape[0], both.shape[1] // 2)
    return sp.csr_array((both.data[keep].astype(np.float64), both.indices[keep] >> 1, pointers), shape)
