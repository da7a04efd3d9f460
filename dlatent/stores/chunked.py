"""Reading rows of Zarr arrays, with errors that name the rows and the chunk that cannot be read."""

from __future__ import annotations

import itertools
import math
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import zarr
from zarr.storage import FsspecStore, LocalStore

from dlatent.errors import StoreError

ZarrArray: TypeAlias = "zarr.Array[Any]"
"""A Zarr array of any format."""

WRITE_ALL: Final[Any] = {"write_empty_chunks": True}
"""Array configuration under which chunks of zeros are written too."""

ALL_CHUNKS: Final[dict[str, Any]] = {"all_chunks_written": True}
"""Attribute of arrays that were written under `WRITE_ALL`: a chunk that is not there is damage, and not zeros."""


def read_rows(array: ZarrArray, start: int, stop: int) -> npt.NDArray[Any]:
    """Rows `[start, stop)` of an array of one or two dimensions.

    Errors: StoreError that names the array, the rows, and the first chunk among them that fails.
    """
    try:
        return np.asarray(array[start:stop])
    except MemoryError:
        raise
    except Exception as error:
        chunk = _failing_chunk(array, start, stop)
        raise StoreError(
            f"{array.store_path}: cannot read rows {start}:{stop}{chunk}: {error}; "
            "the file is damaged or out of reach, write the store again or copy it once more"
        ) from error


def lacking_chunks(array: ZarrArray) -> int:
    """Number of chunks that are not in the store; Zarr reads them silently as fill values."""
    return int(array.nchunks - array.nchunks_initialized) if array.size else 0


def check_chunks(array: ZarrArray) -> None:
    """Refuse an array of which chunks were lost, as far as its writer left word that all were written."""
    if array.attrs.get("all_chunks_written") is True and (lacking := lacking_chunks(array)):
        raise StoreError(
            f"{place_of(array)} lacks {lacking} of its {array.nchunks} chunks; the store was not copied as a whole "
            "or is damaged, copy it again or write it again"
        )


def decoded_bytes(array: ZarrArray, start: int, stop: int) -> int:
    """Bytes of the chunks that are decoded at a time to read rows `[start, stop)`: each as a whole (of a shard its
    inner chunks), however little of it is wanted, and many of them at once."""
    across = math.prod(-(-size // width) for size, width in zip(array.shape[1:], array.chunks[1:], strict=True))
    along = -(-stop // array.chunks[0]) - start // array.chunks[0]
    at_once = min(along * across, int(zarr.config.get("async.concurrency")))
    return at_once * math.prod(array.chunks) * array.dtype.itemsize


def process_local(array: ZarrArray) -> bool:
    """Whether the array lives in the memory of this process, so that no other process could open it again."""
    store = array.store
    if isinstance(store, FsspecStore):
        filesystem = getattr(store.fs, "sync_fs", store.fs)
        return "memory" in np.atleast_1d(filesystem.protocol)
    return type(store).__name__ in ("MemoryStore", "ManagedMemoryStore", "GpuMemoryStore")


def place_of(node: ZarrArray | zarr.Group) -> str:
    """The path or URL of a node for messages."""
    store, inside = node.store, node.path
    if isinstance(store, LocalStore):
        root = str(store.root)
    elif isinstance(store, FsspecStore):
        root = str(getattr(store.fs, "sync_fs", store.fs).unstrip_protocol(store.path))
    else:
        root = str(store)
    return f"{root}/{inside}" if inside else root


def _failing_chunk(array: ZarrArray, start: int, stop: int) -> str:
    """`" (chunk KEY)"` of the first chunk in the rows that cannot be read by itself, or nothing."""
    shape, outer = array.shape, array.shards or array.chunks
    ranges = [range(start // outer[0], -(-stop // outer[0]))]
    ranges += [range(-(-size // width)) for size, width in zip(shape[1:], outer[1:], strict=True)]
    for index in itertools.islice(itertools.product(*ranges), 1000):
        part = tuple(slice(i * w, min((i + 1) * w, s)) for i, w, s in zip(index, outer, shape, strict=True))
        try:
            array[part]
        except Exception:
            return f" (chunk {array.metadata.encode_chunk_key(index)})"
    return ""
