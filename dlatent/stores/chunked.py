"""Arrays as this library writes and reads them: all chunks there, each with a checksum, and errors that name them.

A Zarr store names its codecs itself, and some of them (`pickle`) run what is in the data.  Law (tested in
tests/stores/test_stores_codecs.py): no chunk of an array that names a codec which is not in `HARMLESS` is decoded.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec

from dlatent.errors import StoreError, cause, interrupt
from dlatent.stores.checked import ALL_CHUNKS, checked, place_of, protocols_of, unwrapped
from dlatent.stores.documents import store_at, written_here

ZarrArray: TypeAlias = "zarr.Array[Any]"
"""A Zarr array of any format."""

ALL_WRITTEN: Final[dict[str, Any]] = {ALL_CHUNKS: True}
"""The attribute with which a writer says so of an array."""

MOST_CHUNKS = 10_000_000
"""No array is stored in more pieces."""

MOST_CHUNK_BYTES = 1 << 36
"""No chunk takes more, 64 GiB, once it is decoded."""

SMALL_CHUNK, FEW_CHUNKS = 2**20, 100
"""Smaller chunks than this, in bytes, and more of them are told of where a server is asked for them."""

NEAR = frozenset(("file", "local", "memory"))
"""Protocols of fsspec behind which there is no server."""

HARMLESS = frozenset(
    (
        *("bytes", "endian", "transpose", "sharding_indexed", "vlen-utf8", "vlen-bytes"),
        *("crc32c", "crc32", "adler32", "fletcher32", "jenkins_lookup3"),
        *("zstd", "gzip", "zlib", "blosc", "lz4", "lzma", "bz2", "pcodec", "zfpy"),
        *("shuffle", "delta", "fixedscaleoffset", "bitround", "quantize", "packbits", "astype"),
    )
)
"""Names of codecs, in Zarr v3 also behind `numcodecs.`."""

_WRITE_ALL: Final[Any] = {"write_empty_chunks": True}


def new_array(
    group: zarr.Group,
    name: str,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    chunks: tuple[int, ...],
    *,
    shards: tuple[int, ...] | None = None,
    fill_value: Any = None,
    dims: tuple[str, ...] | None = None,
    attributes: Mapping[str, Any] | None = None,
    compress: bool = True,
    overwrite: bool = False,
) -> ZarrArray:
    """A new array in a group, the only way in which this library makes one; `dtype` str is text of any length.

    Law: every chunk is written, also one of zeros, and each has a CRC32C behind its compressed bytes, so that a chunk
    that was lost or changed later is an error.

    Numbers are compressed by Blosc-lz4 with byte shuffle.  Measured on term counts and tf-idf weights: it decodes
    1.6-2.5 GB/s a thread where zstd level 0, which text gets, decodes 1.0, for 14 % more bytes on disk.
    """
    codec = ZstdCodec(level=0) if dtype is str else BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")
    return group.create_array(
        name,
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        shards=shards,
        fill_value=fill_value,
        compressors=[codec, Crc32cCodec()] if compress else [Crc32cCodec()],
        dimension_names=dims,
        attributes=dict(attributes or {}),
        overwrite=overwrite,
        config=_WRITE_ALL,
    )


def write_array(
    group: zarr.Group,
    name: str,
    values: npt.NDArray[Any],
    chunks: tuple[int, ...],
    *,
    dims: tuple[str, ...] | None = None,
    attributes: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """A new array with all its values; text of any kind becomes text of any length."""
    text = values.dtype.kind in "OTU"
    dtype = str if text else values.dtype
    array = new_array(group, name, values.shape, dtype, chunks, dims=dims, attributes=attributes, overwrite=overwrite)
    if values.size:
        array[...] = values.astype(object) if text else values


class GrowingArray:
    """A new array of unknown length, written in whole chunks of rows; rows that do not fill one wait in memory.

    Parameters: `chunk`, the rows of a chunk; `columns`, none for a vector; `dtype` as for `new_array`: where it is
    text, integers become text; `fits`, whether an array that stays shorter than a chunk has one of its own size.
    """

    def __init__(
        self,
        group: zarr.Group,
        name: str,
        dtype: npt.DTypeLike,
        chunk: int,
        *,
        columns: tuple[int, ...] = (),
        attributes: Mapping[str, Any],
        fits: bool = False,
    ) -> None:
        self._group, self._name, self._dtype, self._attributes = group, name, dtype, attributes
        self._chunk, self._fits = chunk, fits
        self._waiting = np.empty((0, *columns), dtype=object if dtype is str else dtype)
        self._count = 0
        self._array: ZarrArray | None = None

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Add rows; whole chunks are written, several at once where they are numbers."""
        chunk, text = self._chunk, self._dtype is str
        while len(rows):
            full = 0 if self._count or text else len(rows) // chunk * chunk
            part, rows = np.split(rows, [full or chunk - self._count])
            if full:
                self._write(np.asarray(part, dtype=self._dtype))
                continue
            part = part.astype(str) if text and part.dtype.kind in "iu" else part
            count = self._count + len(part)
            if count > len(self._waiting):
                self._waiting.resize((min(2 * count, chunk), *part.shape[1:]), refcheck=False)
            self._waiting[self._count : count] = part
            self._count = count
            if count == chunk:
                self.close()

    def close(self) -> None:
        """Write what still waits."""
        if self._count or self._array is None:
            self._write(self._waiting[: self._count])
            self._count = 0

    def _write(self, rows: npt.NDArray[Any]) -> None:
        columns = rows.shape[1:]
        if self._array is None:
            chunk = min(len(rows), self._chunk) if self._fits else self._chunk
            chunks, shape = tuple(max(size, 1) for size in (chunk, *columns)), (0, *columns)
            self._array = new_array(self._group, self._name, shape, self._dtype, chunks, attributes=self._attributes)
        start = self._array.shape[0]
        self._array.resize((start + len(rows), *columns))
        if rows.size:
            self._array[start : start + len(rows)] = rows


def open_to_write(location: str, name: str) -> ZarrArray:
    """An array of the store at a location, for any process that writes into it; chunks of zeros are written, too."""
    # Zarr does not store this configuration, and takes none where it opens an array.
    array = zarr.open_array(written_here(location) or store_at(location), path=name, mode="r+", zarr_format=3)
    return zarr.Array(zarr.AsyncArray(array.metadata, array.store_path, _WRITE_ALL))


def harmless(array: Any) -> ZarrArray:
    """The array, if nothing but plain codecs would decode it, inside of shards too.

    Errors: StoreError that names the array and the codec; for what is no array.
    """
    if not isinstance(array, zarr.Array):
        raise StoreError(f"{place_of(array)} is a group, where an array was expected; write the store again")
    for name in _names(array.metadata):
        if name.removeprefix("numcodecs.") not in HARMLESS:
            raise StoreError(
                f"{place_of(array)} is encoded by {name!r}, which is not decoded here, as it could run what is in the "
                "data; if you trust the store, read the array with zarr where that codec is at home, and write it "
                "again with plain ones, such as zstd"
            )
    return array


def check_below(node: Any) -> None:
    """Check a node and all arrays below it, before another library reads them. Errors: as `harmless`."""
    for array in arrays_below(node):
        harmless(array)


def nodes_below(node: Any) -> dict[str, Any]:
    """A node itself, under "", and all that a group holds, by their paths in it."""
    return {"": node} | (dict(sorted(node.members(max_depth=None))) if isinstance(node, zarr.Group) else {})


def arrays_below(node: Any) -> list[ZarrArray]:
    """An array itself, or all arrays of a group."""
    return [member for member in nodes_below(node).values() if isinstance(member, zarr.Array)]


def _names(metadata: Any) -> Iterator[str]:
    if metadata.zarr_format == 2:
        yield from (
            str(codec.get_config()["id"]) for codec in (*(metadata.filters or ()), metadata.compressor) if codec
        )
        return
    waiting = [codec.to_dict() for codec in metadata.codecs]
    while waiting:
        codec = waiting.pop()
        yield str(codec["name"])
        inside = codec.get("configuration") or {}
        waiting += [*inside.get("codecs", ()), *inside.get("index_codecs", ())]


def readable(array: ZarrArray) -> ZarrArray:
    """The array for reading its chunks, each of which must be there.

    Errors: StoreError for more chunks than a store has, whose names would fill the memory, for larger ones, and where
    some were lost although the writer left word that all were written; as `harmless`.
    """
    objects, chunk = _stored_objects(harmless(array)), math.prod(array.chunks) * array.dtype.itemsize
    if objects > MOST_CHUNKS:
        raise StoreError(f"{place_of(array)} announces {objects:,} chunks; it is damaged, or write it in larger chunks")
    if chunk > MOST_CHUNK_BYTES:
        raise StoreError(f"{place_of(array)} announces chunks of {chunk:,} bytes; it is damaged, or write smaller ones")
    if array.attrs.get(ALL_CHUNKS) is True and (lacking := lacking_chunks(array)):
        raise StoreError(
            f"{place_of(array)} lacks {lacking} of its {objects} chunks; the store was not copied as a "
            "whole or is damaged, copy it again or write it again"
        )
    return checked(array)


def lacking_chunks(array: ZarrArray) -> int:
    """Number of chunks, or of shards, that are not in the store; Zarr reads them silently as fill values.

    None of a store on a web server, which need not list what it has: there they are found when they are read.
    """
    if not array.size or "http" in protocols_of(array.store):
        return 0
    # Zarr counts the chunks that the shards have room for.
    shared = math.prod(array.shards or array.chunks) // math.prod(array.chunks)
    return _stored_objects(array) - array.nchunks_initialized // shared


def _stored_objects(array: ZarrArray) -> int:
    """Number of chunks, or of shards where there are any, that a store has of an array."""
    outer = array.shards or array.chunks
    return math.prod(-(-size // width) for size, width in zip(array.shape, outer, strict=True))


def box(shape: Sequence[int], items: int) -> tuple[int, ...]:
    """The shape of about so many items, at most, which are next to each other in a row-major array of this shape."""
    widths: list[int] = []
    for size in reversed(shape):
        widths.append(max(1, min(size, items)))
        items //= widths[-1]
    return tuple(reversed(widths))


def read_rows(array: ZarrArray, start: int, stop: int, rows: str | None = None) -> npt.NDArray[Any]:
    """Rows `[start, stop)` of an array, or all of one that has no dimensions.

    Parameters: `rows`, what an error calls them, where they are other rows of the data than of the array.
    Errors: StoreError that names the array, the rows, and the first chunk among them that fails; MemoryError that
    names the array and the rows; as `harmless`.
    """
    harmless(array)
    what = f"{place_of(array)}: cannot read {f'rows {start}:{stop}' if rows is None else rows}"
    try:
        return np.asarray(array[start:stop] if array.ndim else array[...])
    except MemoryError as error:
        raise MemoryError(f"{what}: there is not enough memory ({error})") from error
    except StoreError as error:
        raise StoreError(f"{what}: {error}") from cause(error)
    except Exception as error:
        chunk = _failing_chunk(array, start, stop)
        raise StoreError(
            f"{what}{chunk}: {error}; the file is damaged or out of reach, write the store again or copy it once more"
        ) from cause(error)
    except BaseException:
        interrupt()
        raise


def read_all(array: ZarrArray) -> npt.NDArray[Any]:
    """All values of an array of any number of dimensions, with the errors of `read_rows`."""
    shape = harmless(array).shape
    return read_rows(array, 0, shape[0] if shape else 1)


def small_chunks(array: ZarrArray) -> str:
    """Return the note on an array whose requests to a server are many and small; nothing of others."""
    chunk = math.prod(array.chunks) * array.dtype.itemsize
    if chunk >= SMALL_CHUNK or array.nchunks <= FEW_CHUNKS or {*protocols_of(array.store)} <= NEAR:
        return ""
    return (
        f" (its {array.nchunks:,} chunks of {chunk / 1e6:.2g} MB are small for a server, which is asked for each: "
        "dlatent rechunk writes larger ones)"
    )


def decoding_bytes(arrays: Iterable[ZarrArray], start: int, stop: int, nbytes: int) -> int:
    """Bytes needed to read rows `[start, stop)` of one array after the other, besides their own `nbytes`: chunks that
    are larger, as they are stored and decoded."""
    decoded = max(_decoded_bytes(array, start, stop) for array in arrays)
    return 2 * decoded if decoded > nbytes else 0


def _decoded_bytes(array: ZarrArray, start: int, stop: int) -> int:
    """Bytes of the chunks that are decoded at a time: each as a whole (of a shard its inner chunks), however little of
    it is wanted, and many of them at once."""
    across = math.prod(-(-size // width) for size, width in zip(array.shape[1:], array.chunks[1:], strict=True))
    along = -(-stop // array.chunks[0]) - start // array.chunks[0]
    at_once = min(along * across, int(zarr.config.get("async.concurrency")))
    return at_once * math.prod(array.chunks) * array.dtype.itemsize


def process_local(array: ZarrArray) -> bool:
    """Whether the array lives in the memory of this process, so that no other process could open it again."""
    kinds = ("MemoryStore", "ManagedMemoryStore", "GpuMemoryStore")
    return "memory" in protocols_of(array.store) or type(unwrapped(array.store)).__name__ in kinds


def _failing_chunk(array: ZarrArray, start: int, stop: int) -> str:
    """`" (chunk KEY)"` of the first chunk in the rows that cannot be read by itself, or nothing."""
    shape, outer = array.shape, array.shards or array.chunks
    ranges = [range(start // width, -(-stop // width)) for width in outer[:1]]
    ranges += [range(-(-size // width)) for size, width in zip(shape[1:], outer[1:], strict=True)]
    for index in itertools.islice(itertools.product(*ranges), 1000):
        part = tuple(slice(i * w, min((i + 1) * w, s)) for i, w, s in zip(index, outer, shape, strict=True))
        try:
            array[part]
        except Exception:
            return f" (chunk {array.metadata.encode_chunk_key(index)})"
    return ""
