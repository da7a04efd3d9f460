"""A store in other chunks holds what it held, in chunks of the size that was asked for, within the memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata
import fsspec
import fsspec.implementations.local
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import taking_at_most

from dlatent import PPCA, ingest, ingest_graph, open_data, open_graph, rechunk, reorder, verify
from dlatent.errors import DataError, StoreError
from tests.law_examples import examples
from tests.sparse_stores import write_csr

RNG = np.random.default_rng(0)


def members(place: Any) -> dict[str, Any]:
    return {"": zarr.open_group(place, mode="r", use_consolidated=False)} | dict(
        zarr.open_group(place, mode="r", use_consolidated=False).members(max_depth=None)
    )


def test_all_of_an_annotated_store_comes_along(tmp_path: Path) -> None:
    rows = sp.random_array((300, 40), density=0.2, format="csr", rng=RNG, dtype=np.float32)
    frame = pd.DataFrame({"kind": pd.Categorical(["a", "b", None] * 100), "size": RNG.normal(size=300)})
    frame.index = [f"cell {i} ü" for i in range(300)]
    data = anndata.AnnData(rows, obs=frame, obsm={"Y": RNG.normal(size=(300, 3))}, uns={"one": 1.5, "text": "é"})
    data.layers["dense"] = rows.toarray()
    data.write_zarr(tmp_path / "a.zarr")
    report = rechunk(tmp_path / "a.zarr", tmp_path / "b.zarr", chunk_bytes=5000, missing_chunks="fill")
    found = anndata.read_zarr(tmp_path / "b.zarr")
    pd.testing.assert_frame_equal(found.obs, data.obs)
    assert (found.X != data.X).nnz == 0
    assert found.X.dtype == np.float32
    np.testing.assert_array_equal(found.layers["dense"], data.layers["dense"])
    np.testing.assert_array_equal(found.obsm["Y"], data.obsm["Y"])
    assert found.uns["one"] == 1.5
    assert found.uns["text"] == "é"
    assert report.arrays == sum(isinstance(one, zarr.Array) for one in members(tmp_path / "a.zarr").values())
    for name, member in members(tmp_path / "b.zarr").items():
        if isinstance(member, zarr.Array) and member.dtype.kind in "fi" and member.shape:
            assert np.prod(member.chunks) * member.dtype.itemsize <= 5000, name
    assert zarr.open_array(tmp_path / "b.zarr/layers/dense").chunks == (31, 40)


def test_data_of_this_library_stay_what_they_are(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=RNG.normal(size=(500, 12)), topic=np.arange(500) % 3)
    ingest(tmp_path / "a.npz", tmp_path / "a.zarr", labels="topic", block_bytes=960)
    rechunk(tmp_path / "a.zarr", tmp_path / "b.zarr", chunk_bytes=9600, shard_bytes=30_000)
    array = zarr.open_array(tmp_path / "b.zarr/X", mode="r")
    assert (array.chunks, array.shards) == ((100, 12), (300, 12))
    before, after = ({name: dict(one.attrs) for name, one in members(tmp_path / f"{x}.zarr").items()} for x in "ab")
    for name, own in after.items():
        own.pop("all_chunks_written", None)
        before[name].pop("all_chunks_written", None)
        assert own == before[name], name
    assert verify(tmp_path / "b.zarr").intact
    (tmp_path / "b.zarr/X/c/1/0").rename(tmp_path / "shard")
    with pytest.raises(StoreError, match="lacks 1 of its 2 chunks"):
        open_data(tmp_path / "b.zarr")
    (tmp_path / "shard").rename(tmp_path / "b.zarr/X/c/1/0")
    one, two = (PPCA(2).fit(open_data(tmp_path / f"{x}.zarr", block_bytes=9600), client="serial") for x in "ab")
    assert one.log_likelihood_ == two.log_likelihood_


def test_edges_stay_edges(tmp_path: Path) -> None:
    path = sp.csr_array(sp.diags_array([np.ones(99), np.ones(99)], offsets=[-1, 1]))
    ingest_graph(path, tmp_path / "g.zarr")
    rechunk(tmp_path / "g.zarr", tmp_path / "h.zarr", chunk_bytes=256)
    found = open_graph(tmp_path / "h.zarr")
    assert found.entries == 2 * 99
    assert (found.rows.load(0, 100) != path).nnz == 0


def test_names_and_fill_values_of_xarray_come_along(tmp_path: Path) -> None:
    values = np.where(RNG.random((40, 6, 5)) < 0.1, np.nan, RNG.normal(size=(40, 6, 5)))
    coordinates = {"time": pd.date_range("2001", periods=40), "latitude": np.linspace(-30, 30, 6)}
    field = xr.Dataset({"t": (("time", "latitude", "longitude"), values, {"units": "K"})}, coordinates)
    for version in (2, 3):
        field.to_zarr(
            tmp_path / f"{version}.zarr", zarr_format=version, consolidated=False, encoding={"t": {"chunks": (3, 2, 5)}}
        )
        rechunk(tmp_path / f"{version}.zarr", tmp_path / f"{version}b.zarr", chunk_bytes=2000, missing_chunks="fill")
        before, after = members(tmp_path / f"{version}.zarr"), members(tmp_path / f"{version}b.zarr")
        assert after.keys() == before.keys()
        for name, array in before.items():
            attributes = dict(array.attrs)
            dims = attributes.pop("_ARRAY_DIMENSIONS", None) or getattr(array.metadata, "dimension_names", None)
            marks = ("dlatent", "all_chunks_written")
            assert {key: one for key, one in after[name].attrs.items() if key not in marks} == attributes
            if isinstance(array, zarr.Array):
                np.testing.assert_array_equal(after[name][...], array[...])
                if array.fill_value is not None:
                    np.testing.assert_array_equal(after[name].fill_value, array.fill_value)
                assert list(after[name].metadata.dimension_names) == list(dims)
    found = xr.open_zarr(tmp_path / "2b.zarr", consolidated=False)["t"]
    xr.testing.assert_equal(found, field["t"])
    assert zarr.open_array(tmp_path / "2b.zarr/t", mode="r").chunks == (8, 6, 5)


def test_an_array_becomes_X(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=np.arange(600.0).reshape(50, 12), chunks=(50, 1))
    rechunk(tmp_path / "a.zarr", tmp_path / "b.zarr", chunk_bytes=960)
    assert zarr.open_array(tmp_path / "b.zarr/X", mode="r").chunks == (10, 12)
    np.testing.assert_array_equal(open_data(tmp_path / "b.zarr").blocks[0].load()[:2, :3], [[0, 1, 2], [12, 13, 14]])


@settings(max_examples=examples(30))
@given(st.data())
def test_values_do_not_depend_on_chunks_shards_and_memory(tmp_path_factory: pytest.TempPathFactory, drawn: Any) -> None:
    shape = tuple(drawn.draw(st.lists(st.integers(0, 9), min_size=0, max_size=3)))
    before = tuple(max(1, drawn.draw(st.integers(1, 9))) for _ in shape)
    chunk = drawn.draw(st.integers(1, 400))
    shard = drawn.draw(st.none() | st.integers(1, 1600))
    values = np.arange(float(np.prod(shape, dtype=int))).reshape(shape)
    folder = tmp_path_factory.mktemp("rechunk")
    root = zarr.open_group(folder / "a.zarr", mode="w")
    root.create_array("X", shape=shape, dtype=float, chunks=before)[...] = values
    # Of memory the least that is enough, found by what the refusal says.
    memory = 1
    while True:
        try:
            report = rechunk(
                folder / "a.zarr",
                folder / "b.zarr",
                chunk_bytes=chunk,
                shard_bytes=shard,
                memory_bytes=memory,
                missing_chunks="fill",
            )
            break
        except DataError as error:
            needed = int(str(error).partition("take ")[2].partition(" bytes")[0].replace(",", ""))
            assert needed > memory
            memory = needed
    made = zarr.open_array(folder / "b.zarr/X", mode="r")
    np.testing.assert_array_equal(made[...], values)
    assert report.chunks == made.chunks
    assert np.prod(made.chunks) * 8 <= max(chunk, 8)
    if made.shards is not None:
        assert np.prod(made.shards) * 8 <= shard
        assert all(outer % inner == 0 for outer, inner in zip(made.shards, made.chunks, strict=True))


@pytest.mark.slow
def test_memory_is_bounded_and_tall_chunks_are_read_again(tmp_path: Path) -> None:
    values = np.arange(20e6).reshape(200_000, 100)
    zarr.create_array(tmp_path / "a.zarr", data=values, chunks=(20_000, 1))
    places, chunks = (tmp_path / "a.zarr", tmp_path / "b.zarr"), 2**20
    rechunk(*places, chunk_bytes=chunks)  # which imports all that it needs
    for memory, reads in ((2**24, 4), (2**26, 1)):
        with taking_at_most(memory + 3 * 2**24):  # what threads keep is not told by arrays
            report = rechunk(*places, chunk_bytes=chunks, memory_bytes=memory, overwrite=True)
        assert report.reads == reads
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "b.zarr/X", mode="r")[...], values)


def test_what_is_refused(tmp_path: Path) -> None:
    model = PPCA(1).fit(RNG.normal(size=(20, 4)), client="serial")
    model.save(tmp_path / "m.zarr")
    with pytest.raises(StoreError, match="saved result and no data"):
        rechunk(tmp_path / "m.zarr", tmp_path / "b.zarr")
    zarr.open_group(tmp_path / "empty.zarr", mode="w")
    with pytest.raises(StoreError, match="has no arrays"):
        rechunk(tmp_path / "empty.zarr", tmp_path / "b.zarr")
    with pytest.raises(DataError, match="chunk_bytes is 0"):
        rechunk(tmp_path / "empty.zarr", tmp_path / "b.zarr", chunk_bytes=0)


def test_an_object_store_is_not_removed_before_it_is_read(tmp_path: Path) -> None:
    place = f"memory://{tmp_path.name}/a.zarr"
    np.save(tmp_path / "a.npy", RNG.normal(size=(20, 4)))
    ingest(tmp_path / "a.npy", place)
    again = {
        "rechunk": lambda: rechunk(place, place, overwrite=True),
        "rechunk of a member": lambda: rechunk(f"{place}/X", f"{place}/", overwrite=True),
        "ingest": lambda: ingest(place, place, overwrite=True),
        "ingest_graph": lambda: ingest_graph(place, place, overwrite=True),
        "reorder": lambda: reorder(place, sp.csr_array((20, 20)), place, tmp_path / "g.zarr", overwrite=True),
    }
    for name, call in again.items():
        with pytest.raises(StoreError, match="which is read; choose another place"):
            call()
        assert open_data(place).shape == (20, 4), name
    rechunk(place, f"memory://{tmp_path.name}/b.zarr", chunk_bytes=64)
    assert open_data(f"memory://{tmp_path.name}/b.zarr").shape == (20, 4)


class Bucket(fsspec.implementations.local.LocalFileSystem):
    """Files of this machine that pass for those of a server."""

    protocol = "bucket"

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return str(super()._strip_protocol(str(path).removeprefix("bucket://")))


@pytest.mark.parametrize("sparse", [False, True])
def test_the_plan_tells_of_small_chunks_on_a_server(tmp_path: Path, sparse: bool) -> None:
    fsspec.register_implementation("bucket", Bucket, clobber=True)
    root = zarr.open_group(tmp_path / "a.zarr", mode="w")
    if sparse:
        write_csr(root, [sp.random_array((400, 30), density=0.5, format="csr", rng=0)])
    else:
        root.create_array("X", data=RNG.normal(size=(400, 30)))
    rechunk(tmp_path / "a.zarr", tmp_path / "b.zarr", chunk_bytes=240)
    small = {
        place: str(PPCA(2).plan(place, client="serial"))
        for place in (f"bucket://{tmp_path}/b.zarr", tmp_path / "b.zarr")
    }
    assert [("dlatent rechunk writes larger ones" in one) for one in small.values()] == [True, False]
    assert "dlatent rechunk" not in str(PPCA(2).plan(f"bucket://{tmp_path}/a.zarr", client="serial"))
