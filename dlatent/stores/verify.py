"""Reading all of a store, a model or a checkpoint, to see whether it is whole; and a little of a store, from one of
several processes, to see whether it is the same for all, and how fast it is read."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from time import perf_counter
from typing import Any, cast

import zarr

from dlatent.errors import DataError, StoreError
from dlatent.stores.atomic import GRAPH, PRECISION, RESULT, kind_of
from dlatent.stores.checked import COPY_AGAIN, FILL, CheckedStore, MissingChunks, place_of, protocols_of
from dlatent.stores.checkpoint import damaged_results, read_header, recorded
from dlatent.stores.checkpoint_codec import fingerprint
from dlatent.stores.chunked import ZarrArray, lacking_chunks, nodes_below, read_rows, readable
from dlatent.stores.graph.open import open_graph, open_precision
from dlatent.stores.location import DOCUMENTS, filesystem_at, guarded, local_path, place_text, zarr_location
from dlatent.stores.nodes import Node, ZarrRows, check_complete, open_node
from dlatent.stores.open import open_data
from dlatent.stores.results import load

PIECE_BYTES = 64 * 2**20
"""About how many bytes of an array are read at a time; at least a row of chunks."""
MANY_CHUNKS = 100_000
"""Of so many chunks the last are read first."""
MOST_SAID = 100
"""Damages that are listed; after so many nothing more is read."""
OPENED: dict[str, Callable[[Any], Any]] = {
    RESULT: load,
    "data": open_data,
    PRECISION: open_precision,
    GRAPH: open_graph,
}
"""Functions that open each kind of store, and refuse one that lacks an array or contradicts itself."""

READ_SECONDS, READ_BYTES = 3.0, 10**9
"""A process that probes a store reads until it has spent so long, or has read so much."""


@dataclass
class VerifyReport:
    """Report of the reading of a store, with its damages.

    Parameters
    ----------
    place : str
        The store, model or checkpoint.
    kind : str
        Which of these it is.
    arrays : int
        How many arrays were read; of a checkpoint, results.
    nbytes : int
        Their bytes.
    damages : list of str
        What is damaged, one sentence each.
    """

    place: str
    kind: str
    arrays: int = 0
    nbytes: int = 0
    damages: list[str] = field(default_factory=list)

    @property
    def intact(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damages


def verify(place: str | os.PathLike[str], *, missing_chunks: MissingChunks = "raise") -> VerifyReport:
    """Read every chunk of a store, every variable of a model, or every result of a checkpoint.

    Parameters
    ----------
    place : path or URL
        Path or URL of a Zarr store or a checkpoint.
    missing_chunks : {"raise", "fill"}, default "raise"
        "fill" where the writer of a store leaves out chunks of the fill value alone.

    Returns
    -------
    VerifyReport
        What was read, with each damaged chunk by its name.

    Raises
    ------
    StoreError
        Where nothing is there that could be read.

    Examples
    --------
    >>> import tempfile, numpy as np, dlatent
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dlatent.PPCA(1).fit(np.random.default_rng(0).normal(size=(50, 4))).save(folder + "/model.zarr")
    ...     report = dlatent.verify(folder + "/model.zarr")
    >>> report.kind, report.intact
    ('model', True)
    """
    text = place_text(place)
    if read_header(place) is not None:
        count, size = recorded(place)
        return VerifyReport(text, "checkpoint", count, size, damaged_results(place))
    node = open_node(place, missing_chunks)
    kind = kind_of(node)
    if kind != RESULT:
        check_complete(node)
    report = VerifyReport(text, "model" if kind == RESULT else kind or "store")
    with guarded(text, StoreError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of files that belong to nothing, which `_strays` finds
        members = [*nodes_below(node).values()]
        arrays = [member for member in members if isinstance(member, zarr.Array)]
        if isinstance(node, zarr.Group):
            report.damages += _strays(place, members)
    if not arrays and "http" in protocols_of(node.store):
        raise StoreError(f"{text} lists no array, as web servers need not; verify a copy of the store, or its arrays")
    for array in arrays:
        _read(array, report)
    if report.intact and kind in OPENED:
        with _noted(report, text):
            OPENED[kind](place)
    return report


@contextmanager
def _noted(report: VerifyReport, place: str) -> Iterator[None]:
    """A context that ends where something is damaged, which the report then says."""
    try:
        with guarded(place, StoreError):
            yield
    except DataError as error:
        report.damages.append(str(error))


def _strays(place: str | os.PathLike[str], members: list[Node]) -> list[str]:
    """Nodes and chunks of a store above which the metadata of a node are lost, a sentence for each of these."""
    names = [PurePosixPath(name) for name in _files(zarr_location(place))]
    nodes = {name.parent for name in names if name.name in DOCUMENTS}
    arrays, groups = (
        {PurePosixPath(member.path) for member in members if isinstance(member, kind)}
        for kind in (zarr.Array, zarr.Group)
    )
    lost = {above for at in nodes for above in at.parents if above not in nodes}
    for name in names:
        # What lies in a group itself is no chunk.
        if name.name not in DOCUMENTS and name.parent not in groups and arrays.isdisjoint(name.parents):
            lost.add(next(above for above in name.parents if above.parent in nodes))
    return [f"{place}/{name}: its metadata are lost; copy the store again" for name in sorted(lost)]


def _files(place: str) -> Iterator[str]:
    """The names of all files below a place, also in directories that are links; each directory once, as links may lead
    in a circle."""
    if (path := local_path(place)) is None:
        filesystem, root = filesystem_at(place)
        yield from (str(name).removeprefix(root).lstrip("/") for name in filesystem.find(root))
        return
    seen = set[str]()
    for folder, folders, files in os.walk(path, followlinks=True):
        if (real := os.path.realpath(folder)) in seen:
            folders.clear()
            continue
        seen.add(real)
        yield from (os.path.relpath(os.path.join(folder, name), path) for name in files)


def _read(array: ZarrArray, report: VerifyReport) -> None:
    """Read an array a few rows of chunks at a time, and go on behind what is damaged."""
    report.arrays += 1
    rows, place = array.shape[0] if array.shape else 1, place_of(array)
    with _noted(report, place):
        array = readable(array)
        # Of fewer chunks each that is not there is named when it is read.
        if array.nchunks > MANY_CHUNKS:
            read_rows(array, rows - 1, rows)  # counting takes long where none is there
            strict = cast(CheckedStore, array.store).missing_chunks == "raise"
            if strict and (lacking := lacking_chunks(array)):
                raise StoreError(f"{place} lacks {lacking} of its {array.nchunks} chunks; {COPY_AGAIN}.  {FILL}")
        along = (array.shards or array.chunks)[0] if array.shape else 1
        each = max(1, array.nbytes // max(rows, 1))
        step = along * max(1, PIECE_BYTES // (each * along))
        for start in range(0, rows, step):
            if len(report.damages) == MOST_SAID:
                return
            with _noted(report, place):
                report.nbytes += read_rows(array, start, min(start + step, rows)).nbytes


def probe(
    place: str | os.PathLike[str],
    missing_chunks: MissingChunks = "raise",
    *,
    number: int = 0,
    processes: int = 1,
    threads: int = 1,
) -> dict[str, Any]:
    """Open a store as a fit does, and read a few of the blocks that come to this one of so many processes.

    Returns: digests of the `metadata` and of the `first` block; bytes as they are `stored` and as they are `loaded`, of
    `blocks` that were read in so many `seconds`.
    Errors: those of `open_data`, and of reads.
    """
    node = open_node(place, missing_chunks)
    source = open_data(node)
    block: Any = source.blocks[0]
    arrays = [block.array] if isinstance(block, ZarrRows) else [block.arrays.data, block.arrays.indices]

    def stored() -> int:
        return sum(cast(CheckedStore, array.store).bytes_read for array in arrays)

    documents = fingerprint(sorted(cast(CheckedStore, node.store).digests.items()))
    first, before, started = fingerprint(block.load()), stored(), perf_counter()

    def read(thread: int) -> list[int]:
        sizes = list[int]()
        for block in source.blocks[number + processes * thread :: processes * threads] or source.blocks[-1:]:
            block.load()
            sizes.append(block.nbytes)
            if perf_counter() - started > READ_SECONDS or stored() - before > READ_BYTES:
                break
        return sizes

    with ThreadPoolExecutor(threads) as pool:
        sizes = [size for each in pool.map(read, range(threads)) for size in each]
    return {
        "metadata": documents,
        "first": first,
        "blocks": len(sizes),
        "stored": stored() - before,
        "loaded": sum(sizes),
        "seconds": perf_counter() - started,
    }
