"""Dimension names and coordinates travel from the store to the source."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import xarray as xr
import zarr

from dlatent import open_data
from dlatent.errors import StoreError
from dlatent.stores.atomic import new_store
from tests.sparse_stores import write_csr

MATRIX = sp.random_array((30, 8), density=0.3, format="csr", rng=np.random.default_rng(5), dtype=np.float32)
DENSE = MATRIX.toarray()
ROWS = [f"Zelle {n}" for n in range(30)]
COLUMNS = [f"gène {n}" for n in range(8)]


def gathered(path: str | Path) -> Any:
    loaded = [block.load() for block in open_data(path, block_bytes=200).blocks]
    return sp.vstack(loaded).toarray() if sp.issparse(loaded[0]) else np.concatenate(loaded)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [2, 3])
def test_xarray_stores_keep_names_and_coordinates(tmp_path: Path, version: Any) -> None:
    data = xr.DataArray(DENSE, dims=("cell", "gene"), coords={"cell": ROWS, "gene": np.arange(8) * 10}, name="x")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data.to_dataset().to_zarr(tmp_path / "x", zarr_format=version)
    labels = open_data(tmp_path / "x").labels
    assert labels.dims == ("cell", "gene")
    assert labels.samples is not None
    assert labels.features is not None
    assert labels.samples.tolist() == ROWS
    assert labels.features.tolist() == [0, 10, 20, 30, 40, 50, 60, 70]
    assert open_data(tmp_path / "x", dims=("row", "column")).labels.dims == ("row", "column")
    np.testing.assert_array_equal(open_data(tmp_path / "x", dims=("row", "column")).labels.samples, ROWS)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_anndata_stores_open(tmp_path: Path, version: Any, kind: str) -> None:
    values = sp.csr_matrix(MATRIX) if kind == "sparse" else DENSE
    data = anndata.AnnData(values, obs=pd.DataFrame(index=ROWS), var=pd.DataFrame(index=COLUMNS))
    data.layers["counts"] = values * 2
    path = tmp_path / "a.zarr"
    with warnings.catch_warnings(), anndata.settings.override(zarr_write_format=version):
        warnings.simplefilter("ignore")
        data.write_zarr(path, chunks=(7, 3)) if kind == "dense" else data.write_zarr(path)
    for place, expected in ((path, DENSE), (path / "X", DENSE), (path / "layers" / "counts", 2 * DENSE)):
        source = open_data(place)
        assert source.dtype == np.float32
        assert source.sparse == (kind == "sparse")
        np.testing.assert_array_equal(gathered(place), expected)
        assert source.labels.dims == ("sample", "feature")
        np.testing.assert_array_equal(source.labels.samples, ROWS)
        np.testing.assert_array_equal(source.labels.features, COLUMNS)


def test_an_anndata_store_without_x_lists_its_layers(tmp_path: Path) -> None:
    data = anndata.AnnData(obs=pd.DataFrame(index=ROWS), var=pd.DataFrame(index=COLUMNS))
    data.layers["counts"] = sp.csr_matrix(MATRIX)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data.write_zarr(tmp_path / "a.zarr")
    with pytest.raises(StoreError, match=r"no matrix X; open one of .*a\.zarr/layers/counts"):
        open_data(tmp_path / "a.zarr")


def test_an_unfinished_anndata_store_refuses_its_layers_too(tmp_path: Path) -> None:
    with new_store(tmp_path / "a.zarr") as root:
        write_csr(root.create_group("layers").create_group("counts"), [MATRIX])
    zarr.open_group(tmp_path / "a.zarr").attrs["dlatent"] = {"kind": "data", "version": 1, "complete": False}
    with pytest.raises(StoreError, match="half-written"):
        open_data(tmp_path / "a.zarr" / "layers" / "counts")


def test_a_sparse_group_has_coordinates_in_it_or_beside_it(tmp_path: Path) -> None:
    with new_store(tmp_path / "c.zarr") as root:
        group = root.create_group("tfidf", attributes={"_ARRAY_DIMENSIONS": ["document", "word"]})
        write_csr(group, [MATRIX])
        group.create_array("word", data=np.arange(8))
        root.create_array("document", data=np.arange(30))
        root.create_array("feature", data=np.arange(3))
    labels = open_data(tmp_path / "c.zarr").labels
    assert labels.dims == ("document", "word")
    np.testing.assert_array_equal(labels.samples, np.arange(30))
    np.testing.assert_array_equal(labels.features, np.arange(8))


def test_coordinates_of_another_length_are_left_alone(tmp_path: Path) -> None:
    with new_store(tmp_path / "c.zarr") as root:
        write_csr(root.create_group("x"), [MATRIX])
        root.create_array("feature", data=np.arange(3))
    assert open_data(tmp_path / "c.zarr").labels.features is None
