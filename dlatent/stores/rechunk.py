"""Stores written anew in other chunks, with all that is in them."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import zarr

from dlatent.errors import DataError, StoreError, masked
from dlatent.stores.atomic import MARKER, STORE_VERSION, new_store, writing
from dlatent.stores.checked import MissingChunks, place_of
from dlatent.stores.chunked import (
    ALL_WRITTEN,
    ZarrArray,
    box,
    decoding_bytes,
    new_array,
    nodes_below,
    read_rows,
    readable,
)
from dlatent.stores.files import directory_size
from dlatent.stores.ingest.job import Progress
from dlatent.stores.labels import DIMENSIONS, cf_attributes
from dlatent.stores.location import guarded, place_text
from dlatent.stores.nodes import check_complete, open_node
from dlatent.stores.places import require_apart

CHUNK_BYTES = 8 * 2**20
"""So much takes an object store longer to send than a request waits."""

MEMORY_BYTES = 2**30

TEXT_BYTES = 512
"""A text is counted as so many bytes, as its length is not known before it is read."""


@dataclass(frozen=True)
class RechunkReport:
    """Report of a rewritten store.

    Parameters
    ----------
    destination : str
        The new store.
    arrays : int
        Their number.
    largest : str
        The name of the largest array.
    chunks_before : tuple of int
        Shape of the chunks of the largest array in the source.
    chunks : tuple of int
        The same in the new store.
    shards : tuple of int or None
        Shape of its shards, None without.
    reads : int
        How often a chunk of the source was read because its rows did not fit into the memory together.
    bytes_read : int
        Of the source.
    bytes_written : int or None
        Of the store; None where nobody can tell.
    seconds : float
        Wall time.
    """

    destination: str
    arrays: int
    largest: str
    chunks_before: tuple[int, ...]
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None
    reads: int
    bytes_read: int
    bytes_written: int | None
    seconds: float


@dataclass(frozen=True)
class _Copy:
    """An array on its way; `step` rows of it are in memory at a time."""

    name: str
    source: ZarrArray
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None
    step: int

    def carry_out(self, root: zarr.Group, target: str | os.PathLike[str]) -> Iterator[int]:
        """Write the array into the store at `target`; yields the rows that are done."""
        source, text = self.source, _is_text(self.source)
        named: Any = getattr(source.metadata, "dimension_names", None) or source.attrs.get(DIMENSIONS)
        attributes, dropped = cf_attributes(source), (DIMENSIONS, MARKER)
        with guarded(place_of(source), StoreError), writing(target):
            copy = new_array(
                root,
                self.name,
                source.shape,
                str if text else source.dtype,
                self.chunks,
                shards=self.shards,
                fill_value=None if text else source.fill_value,
                dims=tuple(named) if named else None,
                attributes={key: value for key, value in attributes.items() if key not in dropped} | ALL_WRITTEN,
            )
        for start in range(0, _rows(source), self.step):
            stop = min(start + self.step, _rows(source))
            values = read_rows(source, start, stop)
            copy[slice(start, stop) if source.shape else ...] = values.astype(object) if text else values
            yield stop


def rechunk(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    chunk_bytes: int = CHUNK_BYTES,
    shard_bytes: int | None = None,
    memory_bytes: int = MEMORY_BYTES,
    missing_chunks: MissingChunks = "raise",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> RechunkReport:
    """Write a store anew in other chunks, with all its groups, arrays, attributes and names.

    A chunk holds whole rows where one fits.  The values, their types and their order stay.  The new store is Zarr v3,
    with a checksum in every chunk; until the end it lies aside and does not open, and an error leaves nothing.

    Parameters
    ----------
    source : str or path-like
        Path or fsspec URL of a Zarr store (v2 or v3) of data or edges, or of a group or an array in one.
    destination : str or path-like
        Path or fsspec URL of the new store.  An array becomes its member `X`.
    chunk_bytes : int, default 8388608
        Largest size of a chunk in bytes, before it is compressed; by default 8 MiB.
    shard_bytes : int, optional
        Largest size in bytes of a shard, one object with many chunks, before it is compressed.  Without it each chunk
        is an object.
    memory_bytes : int, default 1073741824
        Most memory in bytes for the rows on their way and the chunks that they are in; by default 1 GiB.
    missing_chunks : {"raise", "fill"}, default "raise"
        As for `dlatent.open_data`.
    overwrite : bool, default False
        Whether a store at the destination is replaced, once the new one is complete.
    progress : callable, optional
        Called with the bytes done, the bytes in all, and the rows done of an array.

    Returns
    -------
    RechunkReport
        Report of a rewritten store.

    Raises
    ------
    StoreError
        Where the source is no complete store of data, a chunk of it cannot be read, or the destination not be written.
    DataError
        Where a row of chunks, or of shards, does not fit into the memory.

    Examples
    --------
    >>> import tempfile, numpy as np, zarr, dlatent
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     array = zarr.create_array(folder + "/columns.zarr", data=np.ones((100, 4)), chunks=(100, 1))
    ...     dlatent.rechunk(folder + "/columns.zarr", folder + "/rows.zarr", chunk_bytes=800).chunks
    (25, 4)
    """
    started = time.perf_counter()
    for option, size in (("chunk_bytes", chunk_bytes), ("shard_bytes", shard_bytes), ("memory_bytes", memory_bytes)):
        if size is not None and size < 1:
            raise DataError(f"{option} is {size}; expected at least 1")
    require_apart(destination, source)
    place = masked(place_text(source))
    with guarded(place, StoreError):
        node = open_node(source, missing_chunks)
        check_complete(node)
        below = nodes_below(node)
        arrays = {name or "X": readable(member) for name, member in below.items() if isinstance(member, zarr.Array)}
        copies = [_planned(name, array, chunk_bytes, shard_bytes, memory_bytes) for name, array in arrays.items()]
        # What the writer of a store has said of it, if it was dlatent.
        marker = {"kind": "data", "version": STORE_VERSION, **cast(Mapping[str, Any], node.attrs.get(MARKER, {}))}
    if not copies:
        raise StoreError(f"{place} has no arrays; give the path of a store of data")
    total, done = sum(copy.source.nbytes for copy in copies), 0
    with new_store(destination, kind=marker["kind"], version=marker["version"], overwrite=overwrite) as root:
        root.attrs[MARKER] = {**marker, "complete": False}
        for name, group in below.items():
            if isinstance(group, zarr.Group):
                member = root.require_group(name) if name else root
                member.attrs.update({key: value for key, value in group.attrs.items() if key != MARKER})
        for copy in copies:
            for rows in copy.carry_out(root, destination):
                if progress is not None:
                    progress(done + copy.source.nbytes * rows // _rows(copy.source), total, rows)
            done += copy.source.nbytes
    largest = max(copies, key=lambda copy: copy.source.nbytes)
    return RechunkReport(
        destination=masked(place_text(destination)),
        arrays=len(copies),
        largest=largest.name,
        chunks_before=tuple(largest.source.chunks),
        chunks=largest.chunks,
        shards=largest.shards,
        reads=max(-(-copy.source.chunks[0] // copy.step) if copy.source.shape else 1 for copy in copies),
        bytes_read=total,
        bytes_written=directory_size(place_text(destination)),
        seconds=time.perf_counter() - started,
    )


def _is_text(array: ZarrArray) -> bool:
    return array.dtype.kind in "OTU"


def _planned(name: str, array: ZarrArray, chunk_bytes: int, shard_bytes: int | None, memory_bytes: int) -> _Copy:
    """Chunks, shards and rows in memory of an array.

    Errors: DataError where the memory is too small for them.
    """
    item = TEXT_BYTES if _is_text(array) else array.dtype.itemsize
    chunks = box(array.shape, chunk_bytes // item)
    shards = None
    if shard_bytes is not None and not _is_text(array):
        counts = [-(-size // width) for size, width in zip(array.shape, chunks, strict=True)]
        together = box(counts, shard_bytes // (item * math.prod(chunks)))
        if math.prod(together) > 1:
            shards = tuple(count * width for count, width in zip(together, chunks, strict=True))
    if not (items := math.prod(array.shape)):
        return _Copy(name, array, chunks, shards, 1)
    # Rows are there as they are, compressed, and compressed with a checksum.
    row_bytes, height = 3 * items * item // _rows(array), (shards or chunks or (1,))[0]
    step = min(max(memory_bytes // row_bytes // height, 1) * height, _rows(array))
    decoding = decoding_bytes([array], 0, step, step * row_bytes // 3) if array.shape else 0
    step = min(step, max((memory_bytes - decoding) // row_bytes // height, 1) * height)
    if (needed := step * row_bytes + decoding) > memory_bytes:
        what = "shard" if shards else "chunk"
        raise DataError(
            f"{place_of(array)}: {step:,} rows of a {what}, and the chunks that they are read from, take {needed:,} "
            f"bytes, but may take {memory_bytes:,} (memory_bytes); give more memory, or make smaller {what}s"
        )
    return _Copy(name, array, chunks, shards, step)


def _rows(array: ZarrArray) -> int:
    return int(array.shape[0]) if array.shape else 1
