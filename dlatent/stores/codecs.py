"""What the chunks of a foreign array may be decoded by: codecs that make numbers or text, and run nothing.

A Zarr store names its codecs itself, and some of them (`pickle`) run what is in the data.  Law (tested in
tests/stores/test_stores_codecs.py): no chunk of an array that names a codec which is not listed here is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import zarr

from dlatent.errors import StoreError
from dlatent.stores.strict import place_of

HARMLESS = frozenset(
    (
        *("bytes", "endian", "transpose", "sharding_indexed", "vlen-utf8", "vlen-bytes"),
        *("crc32c", "crc32", "adler32", "fletcher32", "jenkins_lookup3"),
        *("zstd", "gzip", "zlib", "blosc", "lz4", "lzma", "bz2", "pcodec", "zfpy"),
        *("shuffle", "delta", "fixedscaleoffset", "bitround", "quantize", "packbits", "astype"),
    )
)
"""Names of codecs, in Zarr v3 also behind `numcodecs.`."""


def harmless(array: Any) -> zarr.Array[Any]:
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


def arrays_below(node: Any) -> list[zarr.Array[Any]]:
    """An array itself, or all arrays of a group."""
    members = [found for _, found in node.members(max_depth=None)] if isinstance(node, zarr.Group) else [node]
    return [member for member in members if isinstance(member, zarr.Array)]


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
