"""A chunk that is not there is an error at every read, in every process, unless the reader says that it is fill."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import xarray as xr
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec
from zarr.storage import MemoryStore, ZipStore

import dlatent
from dlatent import ingest, ingest_graph, open_data, open_graph, read_labels, rechunk, verify
from dlatent.arrays import DataSource
from dlatent.errors import DataError, StoreError
from dlatent.stores.atomic import new_store
from dlatent.stores.checked import place_of
from dlatent.stores.chunked import process_local
from dlatent.stores.nodes import open_node
from dlatent.stores.sinks import RowSink, TileSink, open_tiles
from tests.memory import taking_at_most
from tests.sparse_stores import write_csr

X = np.random.default_rng(0).normal(size=(60, 12))


def foreign(path: Path, values: np.ndarray[Any, Any] = X, **options: Any) -> Path:
    """A store as other programs write it: no marks, chunks along both axes, no chunk where all is fill."""
    array = zarr.create_array(path, shape=values.shape, dtype=values.dtype, **({"chunks": (20, 4)} | options))
    array[...] = values
    return path


def sparse_store(path: Path) -> Path:
    with new_store(path) as group:
        write_csr(group, [sp.csr_array(np.where(X > 0.5, X, 0))])
    return path


def loaded(source: DataSource) -> np.ndarray[Any, Any]:
    rows: list[Any] = [block.load() for block in source.blocks]
    return np.concatenate([part.toarray() if sp.issparse(part) else part for part in rows])


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("kind", ["path", "URL", "array", "group", "reopened elsewhere"])
def test_a_chunk_lost_after_opening_is_named(kind: str, version: int, tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "g.zarr", zarr_format=version)
    group.create_array("x", shape=X.shape, dtype=X.dtype, chunks=(20, 4))[...] = X
    path = tmp_path / "g.zarr" / "x"
    given: dict[str, Callable[[], Any]] = {
        "path": lambda: path,
        "URL": lambda: f"local://{path}",
        "array": lambda: zarr.open_array(path),
        "group": lambda: zarr.open_group(tmp_path / "g.zarr"),
        "reopened elsewhere": lambda: path,
    }
    source = open_data(given[kind](), block_bytes=20 * 12 * 8)
    (path / ("c/1/2" if version == 3 else "1.2")).unlink()
    if kind == "reopened elsewhere":
        source = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(source.blocks[0].load(), X[:20])  # type: ignore[arg-type]
    with pytest.raises(StoreError, match=r"x: cannot read rows 20:40: the chunk .*1.2 of .*missing_chunks='fill'"):
        source.blocks[1].load()


@pytest.mark.parametrize("codec", [BloscCodec(), ZstdCodec(), GzipCodec()], ids=["blosc", "zstd", "gzip"])
def test_a_flipped_bit_in_the_header_of_a_chunk_takes_no_memory_and_is_named_by_its_codec(
    codec: Any, tmp_path: Path
) -> None:
    """Of other programs' chunks, which have no checksum; a codec may also read numbers, other ones or the same."""
    block = open_data(foreign(tmp_path / "x", X[:10], chunks=(5, 12), compressors=codec)).blocks[0]
    chunk, refused = tmp_path / "x" / "c/0/0", list[str]()
    content = chunk.read_bytes()
    for bit in range(0, 128, 3):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        chunk.write_bytes(damaged)
        with taking_at_most(16 << 20):
            try:
                block.load()
            except StoreError as error:
                refused.append(str(error))
    assert len(refused) > 10
    assert all("(chunk c/0/0)" in text for text in refused)


def test_fill_values_are_data_where_the_reader_says_so(tmp_path: Path) -> None:
    holes = X.copy()
    holes[20:40, 4:8] = 0
    source = open_data(foreign(tmp_path / "x", holes), missing_chunks="fill")
    np.testing.assert_array_equal(loaded(pickle.loads(pickle.dumps(source))), holes)
    array = zarr.open_array(tmp_path / "x", mode="r")
    np.testing.assert_array_equal(loaded(open_data(array, missing_chunks="fill")), holes)
    with pytest.raises(StoreError, match="the chunk c/1/1 of"):
        loaded(open_data(array))
    with pytest.raises(DataError, match="missing_chunks is 'zero'; expected 'raise' or 'fill'"):
        open_data(array, missing_chunks="zero")  # type: ignore[arg-type]
    shutil.rmtree(tmp_path / "x")
    with pytest.raises(StoreError, match="is not there any more"):
        loaded(source)


def test_fill_does_not_hide_what_is_lost_of_a_store_of_this_library(tmp_path: Path) -> None:
    source = open_data(sparse_store(tmp_path / "c.zarr"), missing_chunks="fill")
    (tmp_path / "c.zarr" / "data" / "c" / "0").unlink()
    with pytest.raises(StoreError, match=r"data: cannot read rows 0:60: the chunk data/c/0 of") as raised:
        loaded(source)
    assert "missing_chunks" not in str(raised.value)


def test_zeros_are_written_as_chunks(tmp_path: Path) -> None:
    """What this library writes never needs the option, whatever the values are."""
    sink = RowSink.create(
        tmp_path / "s.zarr", (50, 3), starts=[0, 20], coordinates={"sample": np.zeros(50), "component": ["", "", ""]}
    )  # fmt: skip
    sink.write(0, np.zeros((20, 3)))
    sink.write(20, np.zeros((30, 3)))
    sink.join()
    sink.finish()
    assert not loaded(open_data(tmp_path / "s.zarr")).any()
    np.save(tmp_path / "x.npy", np.zeros((8, 3)))
    np.save(tmp_path / "y.npy", np.zeros(8, dtype=int))
    ingest(tmp_path / "x.npy", tmp_path / "d.zarr", labels=str(tmp_path / "y.npy"), dtype="float32")
    assert not loaded(open_data(tmp_path / "d.zarr")).any()
    assert not read_labels(tmp_path / "d.zarr").any()
    tiles = TileSink.create(tmp_path / "k.zarr", [0, 4, 8], dtype="f8")
    for start in (0, 4):
        tiles.write(start, start, np.zeros((4, 8 - start)))
    tiles.finish()
    assert not any(block.load().any() for block in open_tiles(tmp_path / "k.zarr").blocks)  # type: ignore[union-attr]
    for name in ("s", "d", "k"):
        for _, array in zarr.open_group(tmp_path / f"{name}.zarr", mode="r").members(max_depth=None):
            assert not isinstance(array, zarr.Array) or array.nchunks_initialized == array.nchunks


def graph(path: Path) -> Callable[[], Any]:
    ingest_graph(np.stack([np.arange(59), np.arange(1, 60)], axis=1), path, samples=60, direction="undirected")
    rows = open_graph(path).rows
    return lambda: rows.load(0, 60)


def kernel(path: Path) -> Callable[[], Any]:
    sink = TileSink.create(path, [0, 60], dtype="f8")
    sink.write(0, 0, X @ X.T)
    sink.finish()
    source = open_tiles(path)
    return lambda: [block.load() for block in source.blocks]


def labels(path: Path) -> Callable[[], Any]:
    np.save(path.with_suffix(".npy"), X)
    np.save(path.with_suffix(".y.npy"), np.arange(60) % 4)
    ingest(path.with_suffix(".npy"), path, labels=str(path.with_suffix(".y.npy")))
    return lambda: read_labels(path)


def sparse(path: Path) -> Callable[[], Any]:
    source = open_data(sparse_store(path))
    return lambda: loaded(source)


KINDS = [
    (sparse, "data"),
    (sparse, "indices"),
    (sparse, "indptr"),
    (graph, "data"),
    (kernel, "rows-0"),
    (labels, "obs/label"),
]


@pytest.mark.parametrize(("make", "member"), KINDS)
def test_every_kind_of_store(make: Callable[[Path], Callable[[], Any]], member: str, tmp_path: Path) -> None:
    read = make(tmp_path / "s.zarr")
    read()
    shutil.rmtree(tmp_path / "s.zarr" / member / "c")
    with pytest.raises(StoreError, match=rf"s\.zarr/{member}: cannot read rows .*the chunk {member}/c/0"):
        read()


def test_shards(tmp_path: Path) -> None:
    """An inner chunk that a shard's index leaves out is the writer's word; a shard that is not there is none."""
    holes = X.copy()
    holes[:10, :4] = 0
    path = foreign(tmp_path / "x", holes, chunks=(10, 4), shards=(20, 12))
    source = open_data(path)
    np.testing.assert_array_equal(loaded(source), holes)
    (path / "c" / "2" / "0").unlink()
    with pytest.raises(StoreError, match="the chunk c/2/0 of"):
        loaded(source)


def test_a_shard_that_is_cut_off_is_no_fill(tmp_path: Path) -> None:
    sharding = zarr.codecs.ShardingCodec(
        chunk_shape=(10, 4), codecs=[zarr.codecs.BytesCodec(), zarr.codecs.ZstdCodec()], index_location="start"
    )
    array = zarr.create(
        store=tmp_path / "x", shape=X.shape, chunks=(20, 12), dtype=X.dtype, codecs=[sharding], zarr_format=3
    )
    array[...] = X
    shard = tmp_path / "x" / "c" / "0" / "0"
    whole = shard.read_bytes()
    source = open_data(tmp_path / "x", block_bytes=10 * 12 * 8)
    shard.write_bytes(whole[: 16 * 6 + 4 + 10])
    with pytest.raises(StoreError, match="rows 0:10"):
        source.blocks[0].load()


def test_another_store_at_the_same_path_is_refused_in_another_process(tmp_path: Path) -> None:
    """Equal shapes and chunks do not make it the same: every store that this library writes has a mark of its own."""
    source = open_data(sparse_store(tmp_path / "c.zarr"))
    (tmp_path / "source").write_bytes(pickle.dumps(source))
    shutil.rmtree(tmp_path / "c.zarr")
    sparse_store(tmp_path / "c.zarr")
    script = "import pickle, sys; [block.load() for block in pickle.load(open(sys.argv[1], 'rb')).blocks]"
    said = subprocess.run([sys.executable, "-c", script, str(tmp_path / "source")], capture_output=True, text=True)
    assert said.returncode == 1
    assert "but had " in said.stderr
    assert f"opened by process {os.getpid()} on " in said.stderr
    assert "mount the same store at the same path" in said.stderr


def test_stores_of_all_kinds_keep_their_names_and_travel(tmp_path: Path) -> None:
    with ZipStore(tmp_path / "x.zip", mode="w") as store:
        zarr.create_array(store, data=X, chunks=(20, 4))
    zipped = open_data(zarr.open_array(ZipStore(tmp_path / "x.zip", mode="r"), mode="r"))
    np.testing.assert_array_equal(loaded(pickle.loads(pickle.dumps(zipped))), X)
    memory = zarr.create_array(MemoryStore(), data=X, chunks=(20, 4))
    np.testing.assert_array_equal(loaded(pickle.loads(pickle.dumps(open_data(memory)))), X)
    node = open_node(foreign(tmp_path / "x"))
    assert place_of(node) == str(tmp_path / "x")
    assert (process_local(node), process_local(open_node_in_memory())) == (False, True)  # type: ignore[arg-type]
    assert str(tmp_path / "x") in str(node.store_path)


def open_node_in_memory() -> Any:
    zarr.create_array("memory://strict/x", data=X, overwrite=True)
    return open_node("memory://strict/x")


def test_metadata_that_are_no_json_are_named(tmp_path: Path) -> None:
    path = sparse_store(tmp_path / "c.zarr")
    (path / "indices" / "zarr.json").write_text("{")
    with pytest.raises(StoreError, match=r"indices/zarr\.json: the metadata are damaged"):
        open_data(path)


def test_metadata_that_another_program_changed_are_not_refused(tmp_path: Path) -> None:
    path = sparse_store(tmp_path / "c.zarr")
    zarr.open_group(path, mode="r+").attrs["note"] = "mine"
    assert json.loads((path / "zarr.json").read_bytes())["attributes"]["note"] == "mine"
    zarr.consolidate_metadata(path)
    assert open_data(path).shape == X.shape


def test_what_is_no_file_is_no_store_and_no_table(tmp_path: Path) -> None:
    for name in ("a.zarr", "a.csv", "a.npz", "a.parquet", "a.nc"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(StoreError, match="is a pipe, a socket or a device and no Zarr store"):
        open_data(tmp_path / "a.zarr")
    with pytest.raises(DataError, match="is a pipe, a socket or a device; write what comes from it to a file"):
        dlatent.PPCA(1).fit(tmp_path / "a.nc", dim="time")
    for name in ("a.csv", "a.npz", "a.parquet"):
        for work in (lambda place: ingest(place, tmp_path / "b.zarr"), lambda place: open_graph(place, samples=3)):
            with pytest.raises(DataError, match="is a pipe, a socket or a device; write what comes from it to a file"):
                work(tmp_path / name)


SILENT = """
import os, signal, sys, threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
import numpy as np
import zarr
from dlatent import PPCA
from dlatent import rechunk

os.chdir(sys.argv[1])
zarr.create_array("a.zarr", data=np.random.default_rng(0).normal(size=(40, 3)), chunks=(10, 3))

class Silent(SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path.endswith("c/3/0"):
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            threading.Event().wait()
        super().do_GET()

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Silent)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
url, model = f"http://127.0.0.1:{server.server_port}/a.zarr", PPCA(1).fit("a.zarr")
works = [lambda: PPCA(1).fit(url)] * (os.cpu_count() + 1)
works += [lambda: PPCA(1).fit(url, client="serial"), lambda: model.transform(url, out="b.zarr")]
works += [lambda: rechunk(url, "c.zarr")]
for work in works:
    try:
        work()
    except KeyboardInterrupt:
        print("interrupted", PPCA(1).fit("a.zarr").log_likelihood_ == model.log_likelihood_, sorted(os.listdir()))
"""


def test_after_an_interrupted_read_the_process_goes_on_and_ends(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", SILENT, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert set(ended.stdout.splitlines()) == {"interrupted True ['a.zarr']"}
    assert len(ended.stdout.splitlines()) == (os.cpu_count() or 1) + 4


@pytest.mark.parametrize("make", [os.mkfifo, lambda place: place.symlink_to("/dev/zero")], ids=["pipe", "device"])
@pytest.mark.parametrize("member", ["zarr.json", "c/3/0"])
def test_what_is_no_file_is_not_opened(make: Callable[[Path], None], member: str, tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=np.ones((40, 3)), chunks=(10, 3))
    (tmp_path / "a.zarr" / member).unlink()
    make(tmp_path / "a.zarr" / member)
    message = rf"{member} of .*a\.zarr is a pipe, a socket or a device"
    for place in (tmp_path / "a.zarr", f"file://{tmp_path}/a.zarr", f"local://{tmp_path}/a.zarr"):
        with pytest.raises(StoreError, match=message):
            open_data(place).blocks[0].load()
    with pytest.raises(StoreError, match=message):
        rechunk(tmp_path / "a.zarr", tmp_path / "b.zarr")
    if member != "zarr.json":
        with pytest.raises(StoreError, match=message):
            read_labels(tmp_path / "a.zarr")
        assert re.search(message, verify(tmp_path / "a.zarr").damages[0])


def test_a_dataset_with_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    data = xr.Dataset({"x": (("time", "place"), np.random.default_rng(0).normal(size=(40, 3)))}).chunk(time=10)
    data.to_zarr(tmp_path / "a.zarr", consolidated=False)
    (tmp_path / "a.zarr/x/c/3/0").unlink()
    os.mkfifo(tmp_path / "a.zarr/x/c/3/0")
    with pytest.raises(StoreError, match=r"c/3/0 of .*a\.zarr is a pipe"):
        dlatent.PPCA(1).fit(tmp_path / "a.zarr", dim="time")
