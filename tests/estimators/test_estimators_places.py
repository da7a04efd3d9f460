"""Nothing that a model writes takes the place of what it reads."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

import dlatent
from dlatent import ingest, ingest_graph, open_data, open_graph, reorder
from dlatent.errors import StoreError
from tests.cli.test_cli_places import digest

ROWS, COLUMNS = 40, 5


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data in several forms, a graph and a model."""
    folder = tmp_path_factory.mktemp("made")
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)) + np.arange(COLUMNS)
    np.save(folder / "x.npy", x)
    ingest(folder / "x.npy", folder / "a.zarr")
    ingest(folder / "x.npy", folder / "b.zarr")
    xr.Dataset({"X": (("time", "place"), x)}).to_zarr(folder / "x.zarr", zarr_format=3, consolidated=False)
    anndata.AnnData(x).write_h5ad(folder / "a.h5ad")
    ingest_graph([[i, i + 1] for i in range(ROWS - 1)], folder / "g.zarr", samples=ROWS, direction="undirected")
    dlatent.PPCA(2).fit(x).save(folder / "m.zarr")
    return folder


def saved(data: Any, at: Path, *more: Any, model: Any = None, **options: Any) -> None:
    """Fit and save onto a place."""
    (dlatent.PPCA(2) if model is None else model).fit(data, *more, **options).save(at, overwrite=True)


def transformed(data: Any, at: Path, folder: Path, **options: Any) -> None:
    """Scores by a model of other data onto a place."""
    dlatent.PPCA(2).fit(np.load(folder / "x.npy")).transform(data, out=at, overwrite=True, **options)


def lazy(at: Path, **options: Any) -> Any:
    return da.from_array(zarr.open_array(at / "x.zarr" / "X", mode="r"), **options)


def dataset(at: Path, **options: Any) -> xr.Dataset:
    return xr.open_dataset(at / "x.zarr", engine="zarr", consolidated=False, **options)


PAIRS = np.repeat(np.arange(ROWS)[:, None], 2, axis=1)
CALLS: dict[str, Callable[[Path], Any]] = {
    "save of an array": lambda at: saved(zarr.open_array(at / "a.zarr" / "X", mode="r"), at / "a.zarr"),
    "save of an open source": lambda at: saved(open_data(at / "a.zarr"), at / "a.zarr"),
    "save of dask": lambda at: saved(lazy(at), at / "x.zarr"),
    "save of dask inline": lambda at: saved(lazy(at, inline_array=True), at / "x.zarr"),
    "save of dask from a path": lambda at: saved(2 * da.from_zarr(str(at / "x.zarr" / "X")) + 1, at / "x.zarr"),
    "save of a Dataset": lambda at: saved(dataset(at), at / "x.zarr"),
    "save of a DataArray": lambda at: saved(dataset(at)["X"], at / "x.zarr"),
    "save of a DataArray of dask": lambda at: saved(dataset(at, chunks={})["X"] + 1, at / "x.zarr"),
    "save of a path along a dimension": lambda at: saved(at / "x.zarr", at / "x.zarr", dim="time"),
    "save of lazy AnnData": lambda at: saved(anndata.experimental.read_lazy(at / "a.zarr"), at / "a.zarr"),
    "save of an embedding": lambda at: saved(
        at / "a.zarr", at / "a.zarr", model=dlatent.LocallyLinearEmbedding(n_components=2, n_neighbors=8)
    ),
    "save over targets": lambda at: saved(
        np.load(at / "x.npy"), at / "x.zarr", dataset(at)["X"], model=dlatent.SupervisedPPCA(2)
    ),
    "checkpoint of an embedding": lambda at: dlatent.LocallyLinearEmbedding(n_components=2, n_neighbors=8).fit(
        at / "a.zarr", checkpoint=at / "a.zarr" / "c"
    ),
    "transform of dask": lambda at: transformed(lazy(at), at / "x.zarr", at),
    "transform of a DataArray": lambda at: transformed(dataset(at)["X"], at / "x.zarr" / "scores", at),
    "transform of a file": lambda at: transformed(
        anndata.read_h5ad(at / "a.h5ad", backed="r"), at / "a.h5ad" / "scores", at
    ),
    "impute": lambda at: (
        dlatent.PPCA(2, missing="nan").fit(at / "b.zarr").impute(at / "a.zarr", out=at / "a.zarr", overwrite=True)
    ),
    "reorder of open ones": lambda at: reorder(
        open_data(at / "a.zarr"), open_graph(at / "g.zarr"), at / "g.zarr", at / "new.zarr", overwrite=True
    ),
    "ingest_graph": lambda at: ingest_graph(open_graph(at / "g.zarr"), at / "g.zarr", overwrite=True),
    "ingest_graph of data": lambda at: ingest_graph(
        [[0, 1], [1, 0]], at / "a.zarr", data=open_data(at / "a.zarr"), overwrite=True
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_what_is_read_is_not_written(name: str, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "copy")
    before = digest(tmp_path / "copy")
    with pytest.raises(StoreError, match=r"is the same place as|lies in|holds|cannot write"):
        CALLS[name](tmp_path / "copy")
    assert digest(tmp_path / "copy") == before


def test_what_lies_apart_is_written(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "copy")
    at = tmp_path / "copy"
    model = dlatent.load(at / "m.zarr")
    model.save(at / "m.zarr", overwrite=True)  # all of it is in memory
    model = dlatent.PPCA(2).fit(at / "a.zarr")
    model.save(at / "m.zarr", overwrite=True)
    model.transform(at / "a.zarr", out=at / "scores.zarr")
    model.transform(at / "a.zarr", out=at / "scores.zarr", overwrite=True)
    assert xr.open_zarr(at / "scores.zarr")["scores"].shape == (ROWS, 2)
