"""A store gives the numbers that xarray gives of it, or is refused with the way to have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

from dlatent import PPCA, ingest_graph, open_data, open_graph, read_labels, rechunk
from dlatent.errors import DataError

VALUES = np.where(np.random.default_rng(0).random((30, 4)) < 0.1, np.nan, np.arange(120.0).reshape(30, 4))
ENCODED = {
    "a sentinel": {"_FillValue": -9999.0},
    "a missing value": {"missing_value": -9999.0},
    "a sentinel of integers": {"dtype": "int16", "_FillValue": -1},
    "packed": {"dtype": "int16", "scale_factor": 0.5, "add_offset": 3.0, "_FillValue": -32768},
    "unsigned": {"dtype": "int8", "_Unsigned": "true", "_FillValue": -1},
}
PLAIN = {
    "floats": {},
    "NaN": {"_FillValue": np.nan, "missing_value": np.nan},
    "packed by nothing": {"scale_factor": 1.0, "add_offset": 0.0},
}
COMPLETE = PPCA(1).fit(np.random.default_rng(0).normal(size=(20, VALUES.shape[1])))
VERSIONS = pytest.mark.parametrize("version", [2, 3])


def written(place: Path, version: Any, encoding: dict[str, Any]) -> xr.Dataset:
    data = xr.Dataset({"X": (("n", "d"), VALUES)})
    data.to_zarr(place, zarr_format=version, encoding={"X": encoding}, consolidated=False)
    return xr.open_zarr(place, consolidated=False)


@VERSIONS
@pytest.mark.parametrize("kind", ENCODED)
def test_encoded_values_are_refused_by_every_door(tmp_path: Path, kind: str, version: int) -> None:
    store = tmp_path / "a.zarr"
    found = written(store, version, ENCODED[kind])
    name = min(ENCODED[kind].keys() - {"dtype", "add_offset", "_Unsigned"})
    message = rf"a\.zarr/X holds encoded values .*{name}=-?\d.*ds = xarray.open_zarr\('{store}'\), then pass ds\['X'\]"
    for door in (store, store / "X", zarr.open_array(store / "X"), zarr.open_group(store)):
        with pytest.raises(DataError, match=message):
            open_data(door, missing_chunks="fill")
    read = da.from_array(zarr.open_array(store / "X"))
    for lazy in (read, read.rechunk(-1).astype("f8"), da.from_array(zarr.open_array(store / "X"), inline_array=True)):
        with pytest.raises(DataError, match=message):
            open_data(lazy)
        with pytest.raises(DataError, match=message):
            COMPLETE.transform(lazy)
    with pytest.raises(DataError, match=message):
        read_labels(store / "X", missing_chunks="fill")
    for decoded in (found["X"].data, found.chunk()["X"].data, da.where(read == -9999, np.nan, read)):
        open_data(decoded)  # what somebody has done with the numbers is his
    found.drop_encoding().to_zarr(tmp_path / "decoded.zarr", consolidated=False)
    (block,) = open_data(tmp_path / "decoded.zarr").blocks
    np.testing.assert_array_equal(block.load(), VALUES)


@VERSIONS
@pytest.mark.parametrize("kind", PLAIN)
def test_values_that_stand_for_themselves_are_read(tmp_path: Path, kind: str, version: int) -> None:
    found = written(tmp_path / "a.zarr", version, PLAIN[kind])
    (block,) = open_data(tmp_path / "a.zarr").blocks
    np.testing.assert_array_equal(block.load(), found["X"])
    np.testing.assert_array_equal(block.load(), VALUES)


def test_fill_values_of_arrays_that_are_none_of_xarray_are_no_sentinels(tmp_path: Path) -> None:
    for version, fill in ((2, 0.0), (3, 5.0)):
        place = tmp_path / f"{version}.zarr"
        zarr.create_array(place, data=np.zeros((3, 2)), fill_value=fill, zarr_format=version)  # type: ignore[arg-type]
        np.testing.assert_array_equal(open_data(place, missing_chunks="fill").blocks[0].load(), 0)


@VERSIONS
@pytest.mark.parametrize("kind", ENCODED)
def test_rechunk_keeps_what_values_stand_for(tmp_path: Path, kind: str, version: int) -> None:
    found = written(tmp_path / "a.zarr", version, ENCODED[kind])
    rechunk(tmp_path / "a.zarr", tmp_path / "b.zarr", chunk_bytes=64)
    xr.testing.assert_equal(xr.open_zarr(tmp_path / "b.zarr", consolidated=False), found)
    with pytest.raises(DataError, match="holds encoded values"):
        open_data(tmp_path / "b.zarr")


def test_weights_of_edges_are_no_packed_values(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("from,to\n0,1\n1,2\n")
    ingest_graph(tmp_path / "edges.csv", tmp_path / "g.zarr", samples=3, direction="symmetrise")
    zarr.open_array(tmp_path / "g.zarr/data", mode="r+").attrs["scale_factor"] = 0.5
    with pytest.raises(DataError, match=r"data holds encoded values \(scale_factor=0.5\)"):
        open_graph(tmp_path / "g.zarr")
