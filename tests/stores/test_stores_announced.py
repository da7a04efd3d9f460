"""A chunk that announces far more than its array has is refused before that is allocated."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import zlib
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from google_crc32c import value as crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, ShardingCodec, ZstdCodec
from zarr.codecs import numcodecs as zarr3

import dlatent
from dlatent.errors import StoreError
from dlatent.stores.announced import FREE_BYTES, ChunkLayout, check_chunk
from dlatent.stores.chunked import new_array, read_all
from dlatent.stores.open import open as open_data
from dlatent.stores.open import open_node
from tests.memory import taking_at_most

BOMB = 32 << 20
"""What a bomb unpacks to: far more than an array with chunks of 240 bytes."""

X = np.arange(60.0).reshape(10, 6)

ZEROS = bytes(BOMB)

PACK: dict[str, Any] = {
    "gzip": lambda data: gzip.compress(data),
    "zlib": lambda data: zlib.compress(data),
    "bz2": lambda data: bz2.compress(data),
    "lzma": lambda data: lzma.compress(data, preset=0),
    "blosc": lambda data: bytes(numcodecs.Blosc().encode(data)),
    "zstd": lambda data: bytes(numcodecs.Zstd().encode(data)),
    "lz4": lambda data: bytes(numcodecs.LZ4().encode(data)),
}
CORE = {"gzip": GzipCodec(), "blosc": BloscCodec(), "zstd": ZstdCodec()}
OTHER = {"zlib": zarr3.Zlib, "bz2": zarr3.BZ2, "lzma": zarr3.LZMA, "lz4": zarr3.LZ4}


def refused(read: Any, message: str) -> None:
    """Refused, and little memory was taken."""
    with taking_at_most(BOMB // 2), pytest.raises(StoreError, match=message):
        read()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", PACK)
def test_a_chunk_that_unpacks_to_more_than_its_array_has(name: str, version: int, tmp_path: Path) -> None:
    if version == 2:
        codec: Any = numcodecs.get_codec({"id": name})
    else:
        codec = CORE[name] if name in CORE else OTHER[name]()
    array = zarr.create_array(tmp_path / "a.zarr", data=X, chunks=(5, 6), compressors=codec, zarr_format=version)
    np.testing.assert_array_equal(open_data(tmp_path / "a.zarr").blocks[0].load(), X)
    key = array.metadata.encode_chunk_key((1, 0))
    (tmp_path / "a.zarr" / key).write_bytes(PACK[name](ZEROS))
    source = open_data(tmp_path / "a.zarr")
    refused(
        lambda: source.blocks[0].load(), f"chunk {key} of .*a.zarr unpacks to .* bytes or more, where .* 240 bytes in"
    )


@pytest.mark.parametrize("between", [b"", PACK["gzip"](b"")], ids=["at once", "behind an empty one"])
def test_a_bomb_behind_another_stream(between: bytes, tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=X, chunks=(5, 6), compressors=GzipCodec())
    (tmp_path / "a.zarr" / "c/0/0").write_bytes(gzip.compress(bytes(240)) + between + PACK["gzip"](ZEROS))
    refused(open_data(tmp_path / "a.zarr").blocks[0].load, "chunk c/0/0 of .* unpacks to")


@pytest.mark.parametrize("outer", ["zstd", "gzip"])
def test_a_bomb_inside_of_another_codec(outer: str, tmp_path: Path) -> None:
    codecs = [BloscCodec(), CORE[outer]]
    zarr.create_array(tmp_path / "a.zarr", data=X, chunks=(5, 6), compressors=codecs)
    (tmp_path / "a.zarr" / "c/0/0").write_bytes(PACK[outer](PACK["blosc"](ZEROS)))
    refused(open_data(tmp_path / "a.zarr").blocks[0].load, "chunk c/0/0 of .* unpacks to 33,554,432 bytes")


@pytest.mark.parametrize("place", ["start", "end"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_bomb_in_a_shard(place: Any, whole: bool, tmp_path: Path) -> None:
    sharding = ShardingCodec(chunk_shape=(5, 6), codecs=[BytesCodec(), ZstdCodec()], index_location=place)
    zarr.create_array(tmp_path / "a.zarr", data=X, chunks=(10, 6), serializer=sharding, compressors=None)
    np.testing.assert_array_equal(open_data(tmp_path / "a.zarr").blocks[0].load(), X)
    shard, bomb = tmp_path / "a.zarr" / "c/0/0", PACK["zstd"](ZEROS)
    begin = 36 if place == "start" else 0
    index = np.array([begin, len(bomb), begin, len(bomb)], "<u8").tobytes()
    index += crc32c(index).to_bytes(4, "little")
    shard.write_bytes(index + bomb if place == "start" else bomb + index)
    array = open_node(tmp_path / "a.zarr")
    refused((lambda: read_all(array)) if whole else (lambda: array[:2]), "chunk c/0/0 of .* unpacks to 33,554,432")


def announcing(count: int) -> bytes:
    return count.to_bytes(4, "little") + bytes(40)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("count", [1 << 24, (1 << 32) - 1])
def test_texts_that_are_not_there(version: int, count: int, tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "a.zarr", shape=(3,), dtype=str, chunks=(3,), zarr_format=version)
    array[:] = np.array(["oak", "fir", ""], object)
    opened = open_node(tmp_path / "a.zarr")
    assert read_all(opened).tolist() == ["oak", "fir", ""]
    (tmp_path / "a.zarr" / array.metadata.encode_chunk_key((0,))).write_bytes(PACK["zstd"](announcing(count)))
    if version == 2:
        assert array.metadata.compressor.codec_id == "zstd"
    refused(lambda: read_all(opened), f"announces {count:,} texts, where it holds 44 bytes .* 3 values in a chunk")


def test_texts_of_a_model_and_of_an_array_of_any_length(tmp_path: Path) -> None:
    model = dlatent.PPCA(2).fit(np.random.default_rng(0).normal(size=(30, 4)), client="serial")
    model.save(tmp_path / "m.zarr")
    path = next(path.parent for path in (tmp_path / "m.zarr").glob("*/zarr.json") if '"string"' in path.read_text())
    body = PACK["zstd"](announcing((1 << 32) - 1))
    (path / "c/0").write_bytes(body + crc32c(body).to_bytes(4, "little"))
    refused(lambda: dlatent.load(tmp_path / "m.zarr"), f"{path.name}.* announces 4,294,967,295 texts")
    document = json.loads((path / "zarr.json").read_text())
    document["shape"] = document["chunk_grid"]["configuration"]["chunk_shape"] = [(1 << 32) - 1]
    (path / "zarr.json").write_text(json.dumps(document))
    with pytest.raises(StoreError):
        dlatent.load(tmp_path / "m.zarr", max_bytes=1 << 50)


def test_arrays_that_are_known_from_consolidated_metadata_only(tmp_path: Path) -> None:
    for version in (2, 3):
        root = tmp_path / f"{version}.zarr"
        group = zarr.create_group(root, zarr_format=version)
        codec: Any = numcodecs.Zstd() if version == 2 else ZstdCodec()
        array = group.create_array("deep/names", shape=(3,), dtype=str, chunks=(3,), compressors=codec)
        array[:] = np.array(["oak", "fir", ""], object)
        zarr.consolidate_metadata(root)
        (root / "deep/names" / array.metadata.encode_chunk_key((0,))).write_bytes(PACK["zstd"](announcing(1 << 24)))
        opened: Any = dlatent.stores.strict.strict(zarr.open_consolidated(root))
        refused(lambda: read_all(opened["deep/names"]), "announces 16,777,216 texts")  # noqa: B023


@settings(deadline=None)
@given(st.binary(max_size=80), st.sampled_from(["blosc", "zstd", "lz4", "gzip", "zlib", "bz2", "lzma", "vlen-utf8"]))
def test_damage_is_left_to_the_codec_or_refused(data: bytes, name: str) -> None:
    for size in (8, None):
        layout = ChunkLayout(10, size, ({"name": "vlen-utf8"}, {"name": name}))
        with contextlib.suppress(StoreError):
            check_chunk(layout, memoryview(data), "the chunk")


@pytest.mark.slow
@pytest.mark.parametrize("name", PACK)
@settings(max_examples=20, deadline=None)
@given(size=st.integers(1, 2 * FREE_BYTES))
def test_what_fits_is_never_refused(name: str, size: int) -> None:
    data = np.random.default_rng(size).integers(0, 3, size).astype(np.uint8).tobytes()
    check_chunk(ChunkLayout(size, 1, ({"name": "bytes"}, {"name": name})), memoryview(PACK[name](data)), "the chunk")


def test_every_array_of_dlatent_is_read(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "g.zarr")
    texts = np.array(["a" * length for length in range(300)], object)
    new_array(group, "texts", (300,), str, (7,))[:] = texts
    for kind in ("f8", "f4", "i8", "u1", "?", "c16"):
        new_array(group, kind, X.shape, kind, (3, 6))[:] = X.astype(kind)
    opened = open_node(tmp_path / "g.zarr")
    assert read_all(opened["texts"]).tolist() == texts.tolist()
    for kind in ("f8", "f4", "i8", "u1", "?", "c16"):
        np.testing.assert_array_equal(read_all(opened[kind]), X.astype(kind))
