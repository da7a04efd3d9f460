"""AnnData and data frames: in memory, backed by a file, or lazy, they give the fit of their matrix."""

from __future__ import annotations

import anndata
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from anndata.experimental import read_lazy

from dlatent import (
    PPCA,
    GraphPPCA,
    KernelPPCA,
    PPCAMixture,
    RelationalPPCA,
    SupervisedPPCA,
    annotate,
    load,
    read_labels,
    verify,
)
from dlatent.errors import DataError

N, D = 60, 9
RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(RNG.gamma(1.0, size=(N, 2)) @ RNG.gamma(1.0, size=(2, D)) + 0.2).astype(np.float32)
KIND = np.where(COUNTS[:, 0] > np.median(COUNTS[:, 0]), "T", "B")
VARIABLE = np.arange(D) % 3 != 1


def cells(matrix: object = COUNTS) -> anndata.AnnData:
    obs = pd.DataFrame({"kind": pd.Categorical(KIND)}, index=[f"cell{i}" for i in range(N)])
    var = pd.DataFrame({"highly_variable": VARIABLE}, index=[f"gene{i}" for i in range(D)])
    return anndata.AnnData(matrix, obs=obs, var=var, layers={"log": np.log1p(COUNTS)})


FORMS = ("memory", "backed", "lazy", "h5ad", "zarr")


def in_form(form: str, matrix: object, folder: object) -> object:
    adata, path, store = cells(matrix), f"{folder}/cells.h5ad", f"{folder}/cells.zarr"
    if form == "memory":
        return adata
    if form == "zarr":
        adata.write_zarr(store)
        return store
    adata.write_h5ad(path)
    return {"backed": lambda: anndata.read_h5ad(path, backed="r"), "lazy": lambda: read_lazy(path)}.get(
        form, lambda: path
    )()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_every_form_is_its_matrix(form, kind, tmp_path):
    matrix = COUNTS if kind == "dense" else sp.csr_matrix(COUNTS)
    data, plain = in_form(form, matrix, tmp_path), PPCA(2).fit(matrix)
    model = PPCA(2).fit(data)
    assert model.log_likelihood_ == pytest.approx(plain.log_likelihood_, rel=1e-9)
    assert model.feature_names_in_.tolist() == [f"gene{i}" for i in range(D)]
    found = model.transform(data)
    assert type(found) is np.ndarray
    np.testing.assert_allclose(found, model.transform(pd.DataFrame(COUNTS, columns=model.feature_names_in_)), rtol=1e-5)


@pytest.mark.parametrize("form", ["memory", "backed"])
def test_results_are_put_into_the_annotated_data(form, tmp_path):
    adata = in_form(form, sp.csr_matrix(COUNTS), tmp_path)
    model = annotate(adata, PPCA(2))
    plain = PPCA(2).fit(sp.csr_matrix(COUNTS))
    np.testing.assert_allclose(adata.obsm["X_ppca"], plain.transform(COUNTS), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(adata.varm["ppca_loadings"], plain.components_.T, rtol=1e-6)
    np.testing.assert_allclose(adata.uns["ppca"]["explained_variance_ratio"], plain.explained_variance_ratio_)
    assert adata.uns["ppca"]["params"]["n_components"] == 2
    assert model.feature_names_in_[0] == "gene0"
    adata.write_h5ad(tmp_path / "again.h5ad")
    again = anndata.read_h5ad(tmp_path / "again.h5ad")
    np.testing.assert_array_equal(again.obsm["X_ppca"], adata.obsm["X_ppca"])
    assert again.uns["ppca"]["log_likelihood"] == model.log_likelihood_


def test_a_layer_and_some_of_the_variables():
    adata = cells()
    annotate(adata, PPCA(2), layer="log", mask_var="highly_variable", key="log")
    plain = PPCA(2).fit(np.log1p(COUNTS)[:, VARIABLE])
    np.testing.assert_allclose(adata.obsm["X_log"], plain.transform(np.log1p(COUNTS)[:, VARIABLE]), rtol=1e-9)
    np.testing.assert_array_equal(adata.varm["log_loadings"][VARIABLE], plain.components_.T)
    assert np.isnan(adata.varm["log_loadings"][~VARIABLE]).all()
    assert adata.uns["log"]["params"]["layer"] == "log"


def test_targets_graphs_and_models_without_loadings():
    adata = cells()
    model = annotate(adata, SupervisedPPCA(2), y="kind")
    assert model.classes_.tolist() == ["B", "T"]
    assert adata.varm["supervisedppca_loadings"].shape == (D, 2)
    adata.obsp["connectivities"] = sp.csr_matrix(np.eye(N, k=1) + np.eye(N, k=-1))
    annotate(adata, RelationalPPCA(2), graph=adata.obsp["connectivities"])
    model = annotate(adata, GraphPPCA(2, smoothing=1.0), graph=adata.obsp["connectivities"])
    np.testing.assert_array_equal(
        adata.obsm["X_graphppca"], model.transform(adata.X, graph=adata.obsp["connectivities"])
    )
    annotate(adata, KernelPPCA(2))
    annotate(adata, PPCAMixture(1, 2))
    assert {"X_relationalppca", "X_kernelppca", "X_ppcamixture"} <= set(adata.obsm)
    assert "kernelppca_loadings" not in adata.varm


REFUSED = {
    "no AnnData": (lambda: annotate(COUNTS, PPCA(2)), "annotate takes an AnnData or a MuData, not a ndarray"),
    "no layer": (lambda: annotate(cells(), PPCA(2), layer="raw"), r"no layer 'raw'; it has \['log'\]"),
    "no column": (lambda: annotate(cells(), PPCA(2), y="type"), "obs has no column 'type'; it has kind"),
    "no mask": (lambda: annotate(cells(), PPCA(2), mask_var=np.ones(3, bool)), "one truth value for each of the 9"),
    "no X": (lambda: PPCA(2).fit(anndata.AnnData(shape=(4, 3))), "the AnnData has no X"),
    "other genes": (lambda: PPCA(2).fit(cells()).transform(cells()[:, ::-1]), "must be in the same order"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    call, words = REFUSED[case]
    with pytest.raises(DataError, match=words):
        call()


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "cells.h5ad").write_bytes(b"no HDF5" * 100)
    with pytest.raises(DataError, match=r"cells\.h5ad is no h5ad file that anndata reads"):
        PPCA(2).fit(tmp_path / "cells.h5ad")


def test_data_frames_of_every_kind():
    names = [f"gene{i}" for i in range(D)]
    frame = pd.DataFrame(COUNTS.astype(np.float64), columns=names)
    holes = frame.convert_dtypes()
    holes.iloc[3, 2] = pd.NA
    plain = PPCA(2).fit(COUNTS.astype(np.float64))
    for data in (frame, frame.convert_dtypes(), pl.from_pandas(frame), frame.astype("Int64")):
        model = PPCA(2).fit(data)
        assert model.log_likelihood_ == plain.log_likelihood_
        assert model.feature_names_in_.tolist() == names
    assert PPCA(2, missing="nan").fit(holes).log_likelihood_ != plain.log_likelihood_


def test_a_dask_data_frame_is_read_in_its_partitions():
    frame = pd.DataFrame(COUNTS.astype(np.float64), columns=[f"gene{i}" for i in range(D)])
    lazy = dd.from_pandas(frame, npartitions=4)
    model = PPCA(2).fit(lazy)
    assert model.history_["pass_blocks"].values.max() == 4
    assert model.log_likelihood_ == pytest.approx(PPCA(2).fit(frame).log_likelihood_, rel=1e-10)
    found = model.transform(lazy)
    assert hasattr(found, "dask")
    np.testing.assert_allclose(found.compute(), model.transform(frame), rtol=1e-6)


class Modalities:
    """What annotate sees of a MuData."""

    mod, obs_names, var_names, obsm = {"rna": cells()}, [], [], {}


def test_what_is_no_place_is_refused_at_every_door(tmp_path):
    store, model = {"zarr.json": b"{}"}, PPCA(2).fit(COUNTS)
    doors = (load, model.save, read_labels, verify, lambda own: model.transform(COUNTS, out=own))
    for door in (*doors, lambda own: PPCA(2).fit(COUNTS, checkpoint=own)):
        with pytest.raises(DataError, match=r"a place is given as a builtins\.dict; give a path or URL"):
            door(store)
    for door in (PPCA(2).fit, model.transform):
        with pytest.raises(DataError, match=r"cannot read data of type builtins\.dict; give"):
            door(store)
    with pytest.raises(DataError, match=r"PPCA has no scores of several views.*mdata\.mod\[name\]"):
        annotate(Modalities(), PPCA(2))
