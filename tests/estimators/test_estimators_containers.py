"""One fit from every container: the bits of NumPy, names that are kept and checked, and results of its own kind."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import anndata
import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import xarray as xr
import zarr
from anndata.experimental import read_lazy
from distributed import Client, LocalCluster

from dlatent import PPCA, CorrespondencePPCA, CorrespondenceSupervisedPPCA, annotate, load, verify
from dlatent.errors import DataError, StoreError

N, D = 60, 6
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2)) @ RNG.normal(size=(2, D)) + 0.2 * RNG.normal(size=(N, D))
NAMES, ROWS = [f"gene{i}" for i in range(D)], [f"cell{i}" for i in range(N)]
FRAME = pd.DataFrame(X, index=ROWS, columns=NAMES)


def array(frame: pd.DataFrame) -> xr.DataArray:
    coords = {"cell": frame.index.to_numpy(), "gene": frame.columns.to_numpy()}
    return xr.DataArray(frame.to_numpy(), dims=("cell", "gene"), coords=coords, name="counts")


def cells(frame: pd.DataFrame) -> anndata.AnnData:
    return anndata.AnnData(frame.to_numpy(), obs=pd.DataFrame(index=frame.index), var=pd.DataFrame(index=frame.columns))


def h5ad(frame: pd.DataFrame, folder: Path) -> Path:
    cells(frame).write_h5ad(folder / "cells.h5ad")
    return folder / "cells.h5ad"


def relation(frame: pd.DataFrame, _: Path) -> Any:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed here")
    return duckdb.connect().from_arrow(pa.Table.from_pandas(frame, preserve_index=False))


def memory(_: Path) -> Any:
    return zarr.storage.MemoryStore()


def bucket(folder: Path) -> Any:
    obstore = pytest.importorskip("obstore", reason="obstore is not installed here")
    return zarr.storage.ObjectStore(obstore.store.LocalStore(tempfile.mkdtemp(dir=folder)))


def versioned(_: Path) -> Any:
    icechunk = pytest.importorskip("icechunk", reason="icechunk is not installed here")
    return icechunk.Repository.create(icechunk.in_memory_storage()).writable_session("main").store


STORES = {"memory": memory, "obstore": bucket, "icechunk": versioned}


def written(frame: pd.DataFrame, store: Any) -> Any:
    array(frame).to_dataset().to_zarr(store, mode="w", zarr_format=3, consolidated=False)
    return store


UNNAMED, TABLE, FIELD, LAZY = "NumPy without names", "NumPy", "xarray", "Dask"
CONTAINERS: dict[str, tuple[str, Any]] = {
    "NumPy": (UNNAMED, lambda frame, _: frame.to_numpy()),
    "SciPy": (UNNAMED, lambda frame, _: sp.csr_array(frame.to_numpy())),
    "Dask": (LAZY, lambda frame, _: da.from_array(frame.to_numpy(), chunks=(N, 2))),
    "zarr.Array": (TABLE, lambda frame, folder: zarr.open_group(written(frame, str(folder / "X")), mode="r")["counts"]),
    "path": (TABLE, lambda frame, folder: written(frame, folder / "X")),
    "URL": (TABLE, lambda frame, folder: f"file://{written(frame, folder / 'X')}"),
    "store in memory": (TABLE, lambda frame, folder: written(frame, memory(folder))),
    "store of icechunk": (TABLE, lambda frame, folder: written(frame, versioned(folder))),
    "store of obstore": (TABLE, lambda frame, folder: written(frame, bucket(folder))),
    "DataArray": (FIELD, lambda frame, _: array(frame)),
    "Dataset": (FIELD, lambda frame, _: array(frame).to_dataset("gene")),
    "node of a DataTree": (FIELD, lambda frame, _: xr.DataTree(array(frame).to_dataset("gene"))),
    "AnnData": (TABLE, lambda frame, _: cells(frame)),
    "AnnData backed": (TABLE, lambda frame, folder: anndata.read_h5ad(h5ad(frame, folder), backed="r")),
    "AnnData lazy": (TABLE, lambda frame, folder: read_lazy(h5ad(frame, folder))),
    "h5ad": (TABLE, h5ad),
    "pandas": (TABLE, lambda frame, _: frame),
    "polars": (TABLE, lambda frame, _: pl.from_pandas(frame)),
    "polars lazy": (TABLE, lambda frame, _: pl.from_pandas(frame).lazy()),
    "pyarrow": (TABLE, lambda frame, _: pa.Table.from_pandas(frame)),
    "DuckDB": (TABLE, relation),
}
KINDS = {UNNAMED: np.ndarray, TABLE: np.ndarray, FIELD: xr.DataArray, LAZY: da.Array}


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_gives_the_fit_of_its_numbers(container: str, tmp_path: Path) -> None:
    kind, make = CONTAINERS[container]
    data, plain = make(FRAME, tmp_path), PPCA(2).fit(X)
    model = PPCA(2).fit(data)
    scores = model.transform(data)
    assert isinstance(scores, KINDS[kind])
    if container == "SciPy":  # whose sums pass over what is not stored
        np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-12)
        np.testing.assert_allclose(scores, plain.transform(X), rtol=1e-10)
        assert model.log_likelihood_ == pytest.approx(plain.log_likelihood_, rel=1e-14)
        return
    np.testing.assert_array_equal(model.components_, plain.components_)
    assert model.log_likelihood_ == plain.log_likelihood_
    np.testing.assert_array_equal(np.asarray(scores), plain.transform(X))
    if kind == FIELD:
        assert scores.dims == ("cell", "component")
        assert scores["cell"].values.tolist() == ROWS


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_brings_its_names_and_has_them_checked(container: str, tmp_path: Path) -> None:
    kind, make = CONTAINERS[container]
    named, turned = PPCA(2).fit(FRAME), FRAME[NAMES[::-1]]
    if kind in (UNNAMED, LAZY):
        assert not hasattr(PPCA(2).fit(make(FRAME, tmp_path)), "feature_names_in_")
        with pytest.warns(UserWarning, match="X does not have valid feature names"):
            named.transform(make(turned, tmp_path))
        return
    model = PPCA(2).fit(make(FRAME, tmp_path))
    assert model.feature_names_in_.tolist() == NAMES
    with pytest.raises(DataError, match=r"must be in the same order"):
        model.transform(turned)
    if container in ("Dataset", "node of a DataTree"):  # whose variables have names and no order
        np.testing.assert_array_equal(model.transform(make(turned, tmp_path)), model.transform(FRAME))
        with pytest.raises(DataError, match="the Dataset lacks the variable 'gene0'"):
            model.transform(make(FRAME[NAMES[1:]], tmp_path))
        return
    if container.startswith("AnnData") or container == "h5ad":  # of which the genes of the fit are taken
        np.testing.assert_allclose(named.transform(make(turned, tmp_path)), named.transform(FRAME), rtol=1e-9)
        with pytest.raises(DataError, match=r"yet now missing:\n- gene0"):
            named.transform(make(FRAME[NAMES[1:]], tmp_path))
        return
    with pytest.raises(DataError, match=r"must be in the same order"):
        named.transform(make(turned, tmp_path))


FIELDS = xr.Dataset(
    {
        "wind": (("day", "lat", "lon"), RNG.normal(size=(40, 3, 2))),
        "rain": (("lat", "lon", "day"), RNG.normal(size=(3, 2, 40))),
        "name": ("day", [f"d{i}" for i in range(40)]),
    },
    coords={"lat": [10.0, 20.0, 30.0]},
)
STACKED = np.stack([FIELDS["wind"], FIELDS["rain"].transpose("day", ...)], axis=-1)


def test_several_variables_are_one_field() -> None:
    plain, model = PPCA(2).fit(STACKED.reshape(40, -1)), PPCA(2).fit(FIELDS, dim="day")
    np.testing.assert_array_equal(model.components_, plain.components_)
    assert model.result_["loadings"].dims == ("lat", "lon", "variable", "component")
    assert model.result_["variable"].values.tolist() == ["wind", "rain"]
    turned = FIELDS[["name", "rain", "wind"]].chunk(day=10)
    scores = model.transform(turned)
    assert isinstance(scores.data, da.Array)
    np.testing.assert_array_equal(scores, plain.transform(STACKED.reshape(40, -1)))
    back = model.inverse_transform(scores)
    assert isinstance(back.data, da.Array)
    assert back.dims == ("day", "lat", "lon", "variable")
    np.testing.assert_allclose(
        back.sel(variable="rain").values.ravel(),
        plain.inverse_transform(scores.values).reshape(STACKED.shape)[..., 1].ravel(),
    )


def test_variables_of_encoded_values_are_no_field() -> None:
    encoded = FIELDS.assign(rain=FIELDS["rain"].assign_attrs(scale_factor=0.1))
    with pytest.raises(DataError, match="encoded values"):
        PPCA(2).fit(encoded, dim="day")


CORRESPONDENCE = np.tile(np.arange(N)[:, None], 2)
PARTS = {"rna": FRAME[NAMES[:4]], "protein": FRAME[NAMES[4:]]}
VIEWS = CorrespondencePPCA(1).fit(
    {name: part.to_numpy() for name, part in PARTS.items()}, correspondence=CORRESPONDENCE
)


def test_the_nodes_of_a_tree_are_views() -> None:
    tree = xr.DataTree.from_dict({name: array(part).to_dataset("gene") for name, part in PARTS.items()})
    for how in ({"correspondence": CORRESPONDENCE}, {"on": "cell"}):
        model = CorrespondencePPCA(1).fit(tree, **how)
        assert model.log_likelihood_ == VIEWS.log_likelihood_
        assert model.feature_names_in_["protein"].tolist() == NAMES[4:]
        assert model.transform(tree, **how).dims == ("sample", "component")
        assert model.transform({"rna": tree["rna"]}).dims == ("cell", "component")


def multimodal(keep: Any = slice(None)) -> Any:
    mudata = pytest.importorskip("mudata", reason="mudata is not installed here")
    with mudata.set_options(pull_on_update=False):
        return mudata.MuData({"rna": cells(PARTS["rna"]), "protein": cells(PARTS["protein"].iloc[keep])})


def test_the_modalities_of_a_MuData_are_views() -> None:
    data = multimodal()
    model = CorrespondencePPCA(1).fit(data)
    assert model.log_likelihood_ == VIEWS.log_likelihood_
    for name, part in PARTS.items():
        np.testing.assert_array_equal(model.components_[name], VIEWS.components_[name])
        assert model.feature_names_in_[name].tolist() == list(part)
    scores = model.transform(data)
    assert scores.dims == ("sample", "component")
    other = data.copy()
    other.mod["rna"] = other.mod["rna"][:, ::-1].copy()
    np.testing.assert_allclose(model.transform(other), scores)  # genes are known by their names
    other.mod["rna"] = other.mod["rna"][:, 1:].copy()
    with pytest.raises(DataError, match=r"(?s)view 'rna'.*yet now missing:\n- gene3"):
        model.transform(other)


def test_results_are_put_into_a_MuData(tmp_path: Path) -> None:
    order = np.random.default_rng(1).permutation(N)[: N // 2]
    data = multimodal(order)
    model = annotate(data, CorrespondencePPCA(1), key="joint")
    pairs = np.column_stack([order, np.arange(len(order))])
    parts = {"rna": PARTS["rna"], "protein": PARTS["protein"].iloc[order]}
    by_hand = CorrespondencePPCA(1).fit(parts, correspondence=pairs)
    assert model.log_likelihood_ == pytest.approx(by_hand.log_likelihood_, rel=1e-12)
    expected = by_hand.transform(parts, correspondence=pairs)
    lines = data.obs_names.get_indexer(np.array(ROWS)[expected["row_rna"].values])
    np.testing.assert_allclose(data.obsm["X_joint"][lines], expected, rtol=1e-6)
    for name in parts:
        np.testing.assert_array_equal(data[name].varm["joint_loadings"], model.components_[name].T)
    data.write(tmp_path / "data.h5mu")
    assert data.uns["joint"]["variance_ratio"]["rna"].shape == (1,)


def test_modalities_know_their_layer_and_variables(tmp_path: Path) -> None:
    data = multimodal()
    data.mod["rna"].var["highly_variable"] = np.arange(4) != 1
    for part in data.mod.values():
        part.layers["half"] = part.X / 2
    model = annotate(data, CorrespondencePPCA(1), layer="half")
    model.save(tmp_path / "model.zarr")
    for each in (model, load(tmp_path / "model.zarr")):
        np.testing.assert_allclose(each.transform(data), data.obsm["X_correspondenceppca"])
        rna = each.transform({"rna": data.mod["rna"]})
        np.testing.assert_allclose(rna, each.transform({"rna": PARTS["rna"].iloc[:, [0, 2, 3]] / 2}))


def test_variables_are_chosen_and_classes_predicted_in_a_MuData(tmp_path: Path) -> None:
    order = np.random.default_rng(1).permutation(N)[: N // 2]
    data = multimodal(order)
    chosen = np.arange(4) != 1
    data.mod["rna"].var["highly_variable"] = chosen
    kinds = np.where(data.obs_names.isin(ROWS[: N // 3]), "a", "b")
    model = annotate(data, CorrespondenceSupervisedPPCA(1), y=kinds, key="joint")
    assert model.components_["rna"].shape == (1, 3)
    assert data.uns["joint"]["params"]["mask_var"] == {"rna": "highly_variable"}
    with pytest.raises(DataError, match=r"takes no targets; .*as CorrespondenceSupervisedPPCA"):
        annotate(data, CorrespondencePPCA(1), y=kinds)
    np.testing.assert_array_equal(data["rna"].varm["joint_loadings"][chosen], model.components_["rna"].T)
    assert not data["rna"].varm["joint_loadings"][~chosen].any()
    parts = {"rna": PARTS["rna"].loc[:, chosen], "protein": PARTS["protein"].iloc[order]}
    pairs = np.column_stack([order, np.arange(len(order))])
    expected = model.predict_proba(parts, correspondence=pairs)
    lines = data.obs_names.get_indexer(np.array(ROWS)[expected["row_rna"].values])
    np.testing.assert_allclose(data.obsm["joint_probabilities"].to_numpy()[lines], expected, rtol=1e-6)
    assert data.obs["joint"].tolist() == np.where(data.obsm["joint_probabilities"]["a"] > 0.5, "a", "b").tolist()
    data.write(tmp_path / "data.h5mu")


def test_a_MuData_is_read_by_names_that_are_unique() -> None:
    data = multimodal()
    data.mod["rna"].obs_names = ["same"] * N
    with pytest.raises(DataError, match="names of observations are not unique in the modality 'rna'"):
        CorrespondencePPCA(1).fit(data)
    with pytest.raises(DataError, match=r"PPCA has no scores of several views; .* as mdata\.mod\[name\]"):
        annotate(data, PPCA(1))


HOLES = FRAME.mask(np.random.default_rng(2).random((N, D)) < 0.1)


@pytest.mark.parametrize("method", ["impute", "impute_variance"])
def test_filled_rows_have_the_container_that_was_asked_for(method: str) -> None:
    model = PPCA(2, missing="nan").fit(HOLES)
    plain = getattr(model, method)(HOLES)
    assert type(plain) is np.ndarray
    frame = getattr(model.set_output(transform="pandas"), method)(HOLES)
    pd.testing.assert_frame_equal(frame, pd.DataFrame(plain, index=ROWS, columns=NAMES))
    polars = getattr(model.set_output(transform="polars"), method)(pl.from_pandas(HOLES))
    assert isinstance(polars, pl.DataFrame)
    assert polars.columns == NAMES
    unnamed = PPCA(2, missing="nan").fit(HOLES.to_numpy()).set_output(transform="pandas")
    assert list(getattr(unnamed, method)(HOLES.to_numpy())) == [f"x{i}" for i in range(D)]


def test_the_features_of_lazy_scores_are_lazy() -> None:
    model = PPCA(2).fit(FRAME)
    views = CorrespondencePPCA(1).fit(PARTS, correspondence=CORRESPONDENCE)
    scores = RNG.normal(size=(N, 2))
    lazy = da.from_array(scores, chunks=(13, 1))
    for whiten in (True, False):
        model.whiten = whiten
        back = model.inverse_transform(lazy)
        assert isinstance(back, da.Array)
        assert back.chunks[0] == lazy.chunks[0]
        np.testing.assert_allclose(back.compute(), model.inverse_transform(scores), rtol=1e-13)
    back = views.inverse_transform(lazy[:, :1], "protein")
    assert isinstance(back, da.Array)
    np.testing.assert_allclose(back.compute(), views.inverse_transform(scores[:, :1], "protein"), rtol=1e-13)
    with pytest.raises(DataError, match=r"the scores have shape \(60, 1\); expected samples × 2 components"):
        model.inverse_transform(lazy[:, :1])


@pytest.fixture(params=STORES)
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return lambda: STORES[request.param](tmp_path)


def test_models_and_results_go_into_open_stores(new_store: Any) -> None:
    model, place, out = PPCA(2).fit(X), new_store(), new_store()
    model.save(place)
    np.testing.assert_array_equal(load(place).transform(X), model.transform(X))
    with pytest.raises(StoreError, match="already exists; pass overwrite=True"):
        model.save(place)
    PPCA(1).fit(X).save(place, overwrite=True)
    assert load(place).n_components_ == 1
    for _ in range(2):
        url = model.transform(written(FRAME, new_store()), out=out, overwrite=True)
        np.testing.assert_array_equal(xr.open_zarr(out, consolidated=False)["scores"], model.transform(X))
        np.testing.assert_array_equal(xr.open_zarr(url, consolidated=False)["scores"], model.transform(X))
        assert PPCA(1).fit(out).n_features_in_ == PPCA(1).fit(url).n_features_in_ == 2
    with pytest.raises(DataError, match="is an open store, and a checkpoint lies beside its store"):
        model.transform(X, out=new_store(), resume=True)


def test_an_open_store_that_is_read_is_not_written(new_store: Any) -> None:
    store = written(FRAME, new_store())
    model = PPCA(2).fit(store)
    for call in (model.save, lambda to, **options: model.transform(store, out=to, **options)):
        with pytest.raises(StoreError, match=r"is the same place as .*, which is read"):
            call(store, overwrite=True)
    if not type(store).__module__.startswith("icechunk"):  # whose copies nothing tells from other stores
        with pytest.raises(StoreError, match="is the same place as"):
            model.save(store.with_read_only(True), overwrite=True)
    np.testing.assert_array_equal(xr.open_zarr(store, consolidated=False)["counts"], X)


@pytest.mark.parametrize("kind", ["memory", "obstore"])
def test_an_open_store_holds_a_checkpoint(kind: str, tmp_path: Path) -> None:
    place, model = STORES[kind](tmp_path), PPCA(2, solver="krylov")
    model.fit(X, checkpoint=place)
    with pytest.raises(StoreError, match="is the checkpoint of a fit"):
        model.fit(X, checkpoint=place)
    assert not verify(place).damages
    again = PPCA(2, solver="krylov").fit(X, checkpoint=place, resume=True)
    np.testing.assert_array_equal(again.components_, model.components_)


def test_other_processes_write_into_an_open_store(tmp_path: Path) -> None:
    store, model = bucket(tmp_path), PPCA(2).fit(X)
    source = written(FRAME, bucket(tmp_path))
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        model.transform(source, out=store, client=client)
    np.testing.assert_array_equal(xr.open_zarr(store, consolidated=False)["scores"], model.transform(X))


def test_a_store_that_was_closed_is_no_place(tmp_path: Path) -> None:
    url = PPCA(2).fit(X).transform(X, out=memory(tmp_path))
    with pytest.raises(StoreError, match=r"openstore://MemoryStore-[\w-]+ is not open in this process"):
        PPCA(1).fit(url)
