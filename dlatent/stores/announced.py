"""What an encoded chunk says of its size, compared with its array before a library allocates it.

Zarr and its codecs believe the chunk: a few bytes that announce 4 billion texts, or that unpack to gigabytes, take the
memory of the process before anything is compared with the shape of the chunk.

Law (tested in tests/stores/test_stores_announced.py): a chunk that Blosc, zstd, lz4, gzip, zlib, bz2 or lzma would
unpack to far more than its array says, or that announces more texts than it holds, is a StoreError, and nothing of
that size is allocated.  What cannot be told beforehand is decoded: zstd frames that do not announce their size, and
chunks of pcodec and zfpy.
"""

from __future__ import annotations

import bz2
import json
import lzma
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numcodecs import get_codec

from dlatent.errors import StoreError

SLACK = 16
"""How many times the bytes of its values an encoded form of a chunk may take: filters change the types of values."""

FREE_BYTES = 1 << 20
"""What a chunk of numbers may always unpack to."""

FREE_TEXT_BYTES = 256 << 20
"""What a chunk of texts, whose lengths nothing tells, may always unpack to."""

TEXT_EXPANSION = 1000
"""How many times its own bytes a larger chunk of texts may unpack to."""

_NOTHING = (1 << 64) - 1


@dataclass(frozen=True)
class ChunkLayout:
    """What the metadata of an array say of its chunks.

    Parameters: `items`, values of a chunk; `itemsize`, bytes of each (None: texts of any length); `codecs`, in the
    order of encoding.
    """

    items: int
    itemsize: int | None
    codecs: tuple[Mapping[str, Any], ...]

    @property
    def slow(self) -> bool:
        """Whether chunks are unpacked to see their size."""
        names = [name for name in map(_name, self.codecs) if name in _UNPACKED or name in _ANNOUNCED]
        inside = (tuple(_options(codec).get("codecs", ())) for codec in self.codecs)
        return (
            self.itemsize is None
            or len(names) > 1
            or any(name in _UNPACKED for name in names)
            or any(ChunkLayout(self.items, self.itemsize, codecs).slow for codecs in inside if codecs)
        )


def layouts(key: str, document: bytes) -> dict[str, ChunkLayout]:
    """The arrays that a document of metadata describes, by their paths; none where it is damaged."""
    folder, _, name = key.rpartition("/")
    try:
        found = json.loads(document)
        inside = found.get("metadata", {}) if name == ".zmetadata" else _consolidated(found)
        documents = {f"{folder}/{path}".strip("/"): value for path, value in inside.items()} | {key: found}
        return dict(_described(documents))
    except (ValueError, TypeError, AttributeError):
        return {}


def check_chunk(layout: ChunkLayout, chunk: memoryview, place: str, start: int | None = None) -> None:
    """Refuse a chunk that would unpack to far more than its array says.

    Parameters: `start`, where in a shard the chunk lies, of a chunk that was read by itself.
    Errors: StoreError that begins with `place`.  What is damaged otherwise is left to the codec, which says it.
    """
    try:
        _check(layout, chunk, place, start)
    except StoreError:
        raise
    except Exception:
        return


def _check(layout: ChunkLayout, chunk: memoryview, place: str, start: int | None = None) -> None:
    text = layout.itemsize is None
    values = layout.items * (layout.itemsize or 1)
    most = max(FREE_TEXT_BYTES, TEXT_EXPANSION * len(chunk)) if text else max(FREE_BYTES, SLACK * values)
    waiting = list(layout.codecs)
    while waiting:
        codec = waiting.pop()
        name, options = _name(codec), _options(codec)
        deeper = any(_name(inner) in _DEEPER for inner in waiting)
        if name in _CHECKSUMS:
            chunk = chunk[4:] if options.get("location", _CHECKSUMS[name]) == "start" else chunk[:-4]
        elif name in _ANNOUNCED:
            _compare(_ANNOUNCED[name](chunk), most, place, layout)
            if not deeper:
                return
            chunk = _decoded({"id": name}, chunk)
        elif name in _UNPACKED:
            begin, ratio = _UNPACKED[name]
            if not deeper and len(chunk) * ratio <= most:
                return
            made = _unpacked(partial(begin, options), chunk, most)
            _compare(len(made), most, place, layout)
            chunk = memoryview(made)
        elif name in ("vlen-utf8", "vlen-bytes"):
            count = int.from_bytes(chunk[:4], "little")
            if 4 * count > len(chunk) - 4 or count > layout.items:
                raise StoreError(
                    f"{place} announces {count:,} texts, where it holds {len(chunk):,} bytes and its array has "
                    f"{layout.items:,} values in a chunk; {_WAY_OUT}"
                )
            return
        elif name == "sharding_indexed":
            _check_shard(layout, options, chunk, place, start)
            return
        elif name != "shuffle":
            return
        elif deeper:
            chunk = _decoded({**options, "id": name}, chunk)


def _check_shard(
    layout: ChunkLayout, options: Mapping[str, Any], shard: memoryview, place: str, start: int | None
) -> None:
    """Check the chunks of a whole shard, or one that was read by itself."""
    at_start = options.get("index_location", "end") == "start"
    items = math.prod(options["chunk_shape"])
    inner = ChunkLayout(items, layout.itemsize, tuple(options["codecs"]))
    if start is not None:
        if start or not at_start:  # else it is the index
            _check(inner, shard, place)
        return
    if [_name(codec) for codec in options["index_codecs"]] != ["bytes", "crc32c"]:
        return
    size = 16 * (layout.items // max(items, 1))
    index = shard[:size] if at_start else shard[len(shard) - size - 4 : len(shard) - 4]
    if len(index) == size:
        for offset, length in np.frombuffer(index, "<u8").reshape(-1, 2).tolist():
            if offset != _NOTHING:
                _check(inner, shard[offset : offset + length], place)


def _compare(size: int, most: int, place: str, layout: ChunkLayout) -> None:
    if size <= most:
        return
    if layout.itemsize is None:
        raise StoreError(
            f"{place} unpacks to {size:,} bytes or more of text, over {TEXT_EXPANSION} times what is stored; if it is "
            "no damage, write the array again in smaller chunks"
        )
    raise StoreError(
        f"{place} unpacks to {size:,} bytes or more, where its array has {layout.items * layout.itemsize:,} bytes in a "
        f"chunk; {_WAY_OUT}"
    )


def _unpacked(begin: Callable[[], Any], data: memoryview, most: int) -> bytes:
    """What streams one behind the other unpack to, of which little more than `most` bytes are made."""
    rest, made = bytes(data), b""
    while rest and len(made) <= most:
        stream = begin()
        made += stream.decompress(rest, most + 1 - len(made))
        rest = stream.unused_data
    return made


def _decoded(codec: dict[str, Any], chunk: memoryview) -> memoryview:
    return np.ascontiguousarray(get_codec(codec).decode(chunk)).reshape(-1).view(np.uint8).data


def _zstd_bytes(chunk: memoryview) -> int:
    """The size of the content that a zstd frame announces (RFC 8878, section 3.1.1); 0 where it does not."""
    if len(chunk) < 6 or bytes(chunk[:4]) != b"\x28\xb5\x2f\xfd":
        return 0
    single = chunk[4] >> 5 & 1
    length = (single, 2, 4, 8)[chunk[4] >> 6]
    at = 5 + (1 - single) + (0, 1, 2, 4)[chunk[4] & 3]
    return int.from_bytes(chunk[at : at + length], "little") + 256 * (length == 2)


def _lzma_stream(options: Mapping[str, Any]) -> Any:
    kind = options.get("format", lzma.FORMAT_XZ)
    filters = options.get("filters") if kind == lzma.FORMAT_RAW else None
    return lzma.LZMADecompressor(lzma.FORMAT_AUTO if kind == lzma.FORMAT_XZ else kind, filters=filters)


_ANNOUNCED: dict[str, Callable[[memoryview], int]] = {
    "blosc": lambda chunk: int.from_bytes(chunk[4:8], "little"),
    "lz4": lambda chunk: int.from_bytes(chunk[:4], "little"),
    "zstd": _zstd_bytes,
}

_UNPACKED: dict[str, tuple[Callable[[Mapping[str, Any]], Any], int]] = {
    "gzip": (lambda options: zlib.decompressobj(31), 1032),
    "zlib": (lambda options: zlib.decompressobj(), 1032),
    "bz2": (lambda options: bz2.BZ2Decompressor(), 1 << 16),
    "lzma": (_lzma_stream, 1 << 14),
}
"""Codecs that announce nothing: what decodes a stream of them, and how many times their size they unpack to at most."""

_DEEPER = frozenset((*_ANNOUNCED, *_UNPACKED, "vlen-utf8", "vlen-bytes", "sharding_indexed"))

_CHECKSUMS = {"crc32c": "end", "crc32": "start", "adler32": "start", "fletcher32": "end", "jenkins_lookup3": "end"}

_WAY_OUT = "it is damaged, copy the store again or write it again"


def _name(codec: Mapping[str, Any]) -> str:
    return str(codec.get("name", codec.get("id"))).removeprefix("numcodecs.")


def _options(codec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options of a codec, which Zarr v2 keeps beside its name."""
    return codec if "id" in codec else codec.get("configuration") or {}


def _consolidated(found: Any) -> dict[str, Any]:
    inside = (found.get("consolidated_metadata") or {}).get("metadata") or {}
    return {f"{path}/zarr.json": value for path, value in inside.items()}


def _described(documents: Mapping[str, Any]) -> Iterator[tuple[str, ChunkLayout]]:
    for key, found in documents.items():
        folder, _, name = key.rpartition("/")
        if name == ".zarray":
            dtype = np.dtype(found["dtype"]) if isinstance(found["dtype"], str) else None
            size = None if dtype is None or dtype.kind == "O" else dtype.itemsize
            codecs = (*(found.get("filters") or ()), *filter(None, (found.get("compressor"),)))
            yield folder, ChunkLayout(math.prod(found["chunks"]), size, codecs)
        elif name == "zarr.json" and found.get("node_type") == "array":
            items = math.prod(found["chunk_grid"]["configuration"]["chunk_shape"])
            yield folder, ChunkLayout(items, _itemsize(found["data_type"]), tuple(found["codecs"]))


def _itemsize(kind: Any) -> int | None:
    """Bytes of a value of a Zarr v3 type, or None for texts of any length."""
    if isinstance(kind, Mapping):
        return int((kind.get("configuration") or {}).get("length_bytes", 16))
    if kind in ("string", "bytes", "variable_length_bytes"):
        return None
    bits = "".join(letter for letter in str(kind) if letter.isdigit())
    return max(int(bits or 8) // 8, 1)
