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
from sklearn.decomposition import PCA

from dlatent import (
    PPCA,
    GraphPPCA,
    KernelPPCA,
    LocallyLinearEmbedding,
    PPCAMixture,
    RelationalPPCA,
    SupervisedPPCA,
    annotate,
    load,
    read_labels,
    select_n_components,
    verify,
)
from dlatent.errors import DataError

N, D = 60, 9
RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(RNG.gamma(1.0, size=(N, 2)) @ RNG.gamma(1.0, size=(2, D)) + 0.2).astype(np.float32)
KIND = np.where(COUNTS[:, 0] > np.median(COUNTS[:, 0]), "T", "B")
VARIABLE = np.arange(D) % 3 != 1
CHAIN = sp.csr_matrix(np.eye(N, k=1) + np.eye(N, k=-1))


def cells(matrix: object = COUNTS) -> anndata.AnnData:
    obs = pd.DataFrame({"kind": pd.Categorical(KIND)}, index=[f"cell{i}" for i in range(N)])
    var = pd.DataFrame({"highly_variable": VARIABLE}, index=[f"gene{i}" for i in range(D)])
    return anndata.AnnData(matrix, obs=obs, var=var, layers={"log": np.log1p(COUNTS)})


FORMS = ("memory", "backed", "lazy", "h5ad", "zarr")


def in_form(form: str, matrix: object, folder: object, obsp: object = None) -> object:
    adata, path, store = cells(matrix), f"{folder}/cells.h5ad", f"{folder}/cells.zarr"
    adata.obsp.update(obsp or {})
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
    model = annotate(adata, PPCA(2), mask_var=None)
    plain = PPCA(2).fit(sp.csr_matrix(COUNTS))
    np.testing.assert_allclose(adata.obsm["X_ppca"], plain.transform(COUNTS), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(adata.varm["ppca_loadings"], plain.components_.T, rtol=1e-6)
    np.testing.assert_allclose(adata.uns["ppca"]["variance"], plain.explained_variance_)
    np.testing.assert_allclose(adata.uns["ppca"]["variance_ratio"], plain.explained_variance_ratio_)
    assert adata.uns["ppca"]["params"]["n_components"] == 2
    assert "mask_var" not in adata.uns["ppca"]["params"]
    assert model.feature_names_in_[0] == "gene0"
    adata.write_h5ad(tmp_path / "again.h5ad")
    again = anndata.read_h5ad(tmp_path / "again.h5ad")
    np.testing.assert_array_equal(again.obsm["X_ppca"], adata.obsm["X_ppca"])
    assert again.uns["ppca"]["log_likelihood"] == model.log_likelihood_


@pytest.mark.parametrize("mask_var", ["auto", "highly_variable", VARIABLE])
def test_a_layer_and_some_of_the_variables(mask_var):
    adata = cells()
    annotate(adata, PPCA(2), layer="log", mask_var=mask_var, key="log")
    plain = PPCA(2).fit(np.log1p(COUNTS)[:, VARIABLE])
    np.testing.assert_allclose(adata.obsm["X_log"], plain.transform(np.log1p(COUNTS)[:, VARIABLE]), rtol=1e-9)
    np.testing.assert_array_equal(adata.varm["log_loadings"][VARIABLE], plain.components_.T)
    assert not adata.varm["log_loadings"][~VARIABLE].any()
    assert adata.uns["log"]["params"]["layer"] == "log"
    named = "highly_variable" if isinstance(mask_var, str) else None
    assert adata.uns["log"]["params"].get("mask_var") == named


@pytest.mark.parametrize("form", ["memory", "backed", "lazy", "h5ad"])
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_rows_of_the_fitted_genes_are_taken_by_name(form, kind, tmp_path):
    matrix, plain = COUNTS if kind == "dense" else sp.csr_matrix(COUNTS), PPCA(2).fit(COUNTS[:, VARIABLE])
    data = in_form(form, matrix, tmp_path)
    model = annotate(cells(matrix), PPCA(2))
    for name in ("transform", "score_samples"):
        expected = getattr(plain, name)(COUNTS[:, VARIABLE])
        np.testing.assert_allclose(getattr(model, name)(data), expected, rtol=1e-4, atol=1e-5)
    if kind == "dense":
        found = PPCA(2, missing="nan").fit(cells()[:, VARIABLE]).predict_cells(data, rows=[3, 7], columns=[1, 2])
        assert found["mean"].values.tolist() == [COUNTS[3, 2], COUNTS[7, 3]]


def test_genes_in_another_order_of_some_of_the_cells_are_those_of_the_fit():
    holes = COUNTS.astype(np.float64)
    holes[::4, 2] = np.nan
    model, chosen = annotate(cells(holes), PPCA(2, missing="nan")), np.arange(N)[5:40:3]
    expected = PPCA(2, missing="nan").fit(holes[:, VARIABLE]).impute(holes[chosen][:, VARIABLE])
    other = cells(holes)[chosen, ::-1]
    np.testing.assert_allclose(model.impute(other), expected, rtol=1e-9)
    frame = model.set_output(transform="pandas").impute(other.copy())
    assert frame.columns.tolist() == [f"gene{i}" for i in np.flatnonzero(VARIABLE)]
    np.testing.assert_allclose(frame, expected, rtol=1e-9)


def test_a_key_is_used_again(tmp_path):
    cells().write_h5ad(tmp_path / "cells.h5ad")
    adata = anndata.read_h5ad(tmp_path / "cells.h5ad")
    adata.uns["pca"] = {"params": {"use_highly_variable": True}, "variance": np.ones(3)}
    for key in ("pca", "ppca"):
        annotate(adata, PPCA(3), key=key)
        adata.write_h5ad(tmp_path / "cells.h5ad")
        adata = anndata.read_h5ad(tmp_path / "cells.h5ad")
        annotate(adata, PPCA(2), key=key)
        assert adata.uns[key]["variance"].shape == (2,)


@pytest.mark.parametrize("form", FORMS)
def test_the_layer_of_a_fit_is_that_of_its_rows(form, tmp_path):
    data, layer = in_form(form, COUNTS, tmp_path), np.log1p(COUNTS)
    for mask_var, inside in (("auto", VARIABLE), (None, np.ones(D, dtype=bool))):
        model = annotate(cells(), PPCA(2), layer="log", mask_var=mask_var)
        expected = PPCA(2).fit(layer[:, inside]).transform(layer[:, inside])
        model.save(tmp_path / "model.zarr", overwrite=True)
        for each in (model, load(tmp_path / "model.zarr")):
            np.testing.assert_allclose(each.transform(data), expected, rtol=1e-4, atol=1e-6)
    bare = anndata.AnnData(COUNTS, var=cells().var)
    with pytest.raises(DataError, match="no layer 'log'; it has none"):
        model.transform(bare)
    frame = pd.DataFrame(layer, columns=cells().var_names)
    np.testing.assert_allclose(model.transform(frame), expected, rtol=1e-4, atol=1e-6)


def test_embeddings_know_their_layer_too(tmp_path):
    layer = np.log1p(COUNTS) + 1e-3 * RNG.normal(size=(N, D)).astype(np.float32)
    adata = cells()
    adata.layers["log"] = layer
    model = annotate(adata, LocallyLinearEmbedding(), layer="log", mask_var=None)
    model.save(tmp_path / "model.zarr")
    expected = LocallyLinearEmbedding().fit(layer).transform(layer)
    for each in (model, load(tmp_path / "model.zarr")):
        np.testing.assert_allclose(abs(each.transform(adata)), abs(expected), atol=1e-6)


def test_all_variables_are_fitted_where_nobody_has_chosen_some():
    adata = cells()
    del adata.var["highly_variable"]
    assert annotate(adata, PPCA(2)).n_features_in_ == D
    assert adata.varm["ppca_loadings"].all()


def test_results_lie_where_scanpy_looks_for_principal_components():
    sc = pytest.importorskip("scanpy", reason="scanpy is not installed here")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    theirs, ours = cells(COUNTS.astype(np.float64)), cells(COUNTS.astype(np.float64))
    sc.pp.pca(theirs, n_comps=3, svd_solver="full", dtype="float64")
    annotate(ours, PPCA(3), key="pca")
    np.testing.assert_allclose(abs(ours.varm["PCs"]), abs(theirs.varm["PCs"]), atol=1e-9)
    scores, principal = ours.obsm["X_pca"], theirs.obsm["X_pca"]
    correlations = np.corrcoef(scores.T, principal.T)[:3, 3:]
    variance = ours.uns["pca"]["variance"]
    shrunk = (variance - ours.uns["pca"]["noise_variance"]) / variance
    np.testing.assert_allclose(abs(scores), abs(principal) * shrunk, atol=1e-5)
    np.testing.assert_allclose(abs(correlations), np.eye(3), atol=1e-9)
    np.testing.assert_allclose(ours.uns["pca"]["variance"], theirs.uns["pca"]["variance"] * (N - 1) / N)
    np.testing.assert_allclose(ours.uns["pca"]["variance_ratio"], theirs.uns["pca"]["variance_ratio"])
    sc.pl.pca_variance_ratio(ours, n_pcs=3, show=False)
    assert [text.get_text() for text in pyplot.gca().texts] == ["PC1", "PC2", "PC3"]
    sc.pl.pca_loadings(ours, components="1,2", n_points=1, include_lowest=False, show=False)
    largest = f"gene{int(np.argmax(ours.varm['PCs'][:, 1]))}"
    assert pyplot.gca().texts[0].get_text() == largest
    pyplot.close("all")


def test_graphs_and_models_without_loadings():
    adata = cells()
    adata.obsp["connectivities"] = CHAIN
    annotate(adata, RelationalPPCA(2), graph="connectivities", mask_var=None)
    model = annotate(adata, GraphPPCA(2, smoothing=1.0), graph="connectivities", mask_var=None)
    np.testing.assert_array_equal(adata.obsm["X_graphppca"], model.transform(adata, graph=CHAIN))
    annotate(adata, KernelPPCA(2))
    assert {"X_relationalppca", "X_kernelppca"} <= set(adata.obsm)
    assert "kernelppca_loadings" not in adata.varm


@pytest.mark.parametrize("form", ["memory", "backed", "lazy", "h5ad"])
def test_an_entry_of_obsp_is_a_graph_by_its_name(form, tmp_path):
    plain = GraphPPCA(2, smoothing=1.0).fit(COUNTS, graph=CHAIN)
    data = in_form(form, COUNTS, tmp_path, obsp={"connectivities": CHAIN})
    model = GraphPPCA(2, smoothing=1.0).fit(data, graph="connectivities")
    assert model.log_likelihood_ == pytest.approx(plain.log_likelihood_, rel=1e-9)
    scores = model.transform(data, graph="connectivities")
    np.testing.assert_allclose(scores, plain.transform(COUNTS, graph=CHAIN), rtol=1e-5, atol=1e-6)
    with pytest.raises(DataError, match=r"obsp has no entry 'conectivities', .*; obsp has 'connectivities'"):
        model.transform(data, graph="conectivities")


def test_an_array_of_obsp_is_a_matrix_and_a_path_is_still_a_path(tmp_path):
    plain, dense = RelationalPPCA(2).fit(COUNTS, graph=CHAIN), sp.csr_array(CHAIN).toarray()
    adata = in_form("memory", COUNTS, tmp_path, obsp={"dense": dense, "delta": 3.0 * np.eye(N) - dense})
    sp.save_npz(tmp_path / "edges.npz", CHAIN)
    for graph in ("dense", f"{tmp_path}/edges.npz", CHAIN):
        assert RelationalPPCA(2).fit(adata, graph=graph).log_likelihood_ == plain.log_likelihood_
    given = RelationalPPCA(2).fit(COUNTS, precision=sp.csr_array(adata.obsp["delta"]))
    assert RelationalPPCA(2).fit(adata, precision="delta").log_likelihood_ == given.log_likelihood_
    pairs = ((adata, "dense"), (COUNTS, CHAIN))
    ours, theirs = (select_n_components(RelationalPPCA(), data, [1, 2], graph=graph) for data, graph in pairs)
    np.testing.assert_array_equal(ours[ours.attrs["score"]], theirs[ours.attrs["score"]])


def test_classes_are_predicted_into_obs_with_their_probabilities(tmp_path):
    adata = cells()
    adata.obs.loc[adata.obs_names[::3], "kind"] = np.nan
    model = annotate(adata, SupervisedPPCA(2), y="kind", key="guess")
    assert adata.varm["guess_loadings"].shape == (D, 2)
    values = COUNTS[:, VARIABLE]
    assert adata.obs["guess"].cat.categories.tolist() == model.classes_.tolist() == ["B", "T"]
    with pytest.warns(UserWarning, match="feature names"):
        labels, probabilities = model.predict(values), model.predict_proba(values)
    assert adata.obs["guess"].tolist() == labels.tolist()
    np.testing.assert_allclose(adata.obsm["guess_probabilities"][["B", "T"]], probabilities, rtol=1e-6)
    adata.write_h5ad(tmp_path / "again.h5ad")
    again = anndata.read_h5ad(tmp_path / "again.h5ad")
    pd.testing.assert_frame_equal(again.obsm["guess_probabilities"], adata.obsm["guess_probabilities"])
    pd.testing.assert_series_equal(again.obs["guess"], adata.obs["guess"])


def test_clusters_of_a_mixture_are_categories(tmp_path):
    adata = cells()
    model = annotate(adata, PPCAMixture(1, 3, random_state=1), mask_var=None)
    assert adata.obs["ppcamixture"].cat.categories.tolist() == ["0", "1", "2"]
    assert adata.obs["ppcamixture"].astype(int).tolist() == model.predict(adata).tolist()
    np.testing.assert_array_equal(adata.obsm["ppcamixture_probabilities"], model.predict_proba(adata))
    adata.write_h5ad(tmp_path / "again.h5ad")
    assert anndata.read_h5ad(tmp_path / "again.h5ad").obs["ppcamixture"].dtype == adata.obs["ppcamixture"].dtype


def test_numbers_and_several_labels_are_predicted():
    adata, numbers = cells(), np.log1p(COUNTS[:, [1, 4]].astype(np.float64))
    adata.obs["size"] = numbers[:, 0] + 0.5
    model = annotate(adata, SupervisedPPCA(2, target_type="regression"), y="size", key="one")
    assert adata.obs["one"].tolist() == model.predict(adata[:, VARIABLE]).tolist()
    assert not any(name.startswith("one_") for name in adata.obsm)
    model = annotate(adata, SupervisedPPCA(2, target_type="regression"), y=numbers, key="two")
    assert adata.obsm["two_predictions"].columns.tolist() == ["0", "1"]
    np.testing.assert_array_equal(adata.obsm["two_predictions"], model.predict(adata[:, VARIABLE]))
    marks = (numbers > np.median(numbers, axis=0)).astype(int)
    model = annotate(adata, SupervisedPPCA(2), y=marks, key="marks")
    np.testing.assert_array_equal(adata.obsm["marks_probabilities"], model.predict_proba(adata[:, VARIABLE]))
    assert not {"two", "marks"} & {*adata.obs}


def repeated(adata):
    adata.var_names = ["gene0", "gene0", *adata.var_names[2:]]
    return adata


def neighboured():
    adata = cells()
    adata.uns["neighbors"] = {"connectivities_key": "connectivities", "params": {"n_neighbors": 15}}
    return adata


def without_genes():
    adata = cells()
    adata.var["highly_variable"] = False
    return adata


REFUSED = {
    "no AnnData": (lambda: annotate(COUNTS, PPCA(2)), "annotate takes an AnnData or a MuData, not a ndarray"),
    "no layer": (lambda: annotate(cells(), PPCA(2), layer="raw"), r"no layer 'raw'; it has \['log'\]"),
    "no column": (lambda: annotate(cells(), SupervisedPPCA(2), y="type"), "obs has no column 'type'; it has kind"),
    "targets of a model without": (
        lambda: annotate(cells(), PPCA(2), y="kind"),
        r"PPCA takes no targets; leave out y, or give a model that does, as SupervisedPPCA\(20\)",
    ),
    "a key with a slash": (lambda: annotate(cells(), PPCA(2), key="a/b"), "key is 'a/b'; files take no names with '/'"),
    "a key of others": (lambda: annotate(neighboured(), PPCA(2), key="neighbors"), r"uns\['neighbors'\] is there, and"),
    "a class": (lambda: annotate(cells(), PPCA), r"annotate takes a model, not its class; pass PPCA\(…\)"),
    "a model of others": (
        lambda: annotate(cells(), PCA(2)),
        r"a model of dlatent, as PPCA\(20\), not a sklearn.*\.PCA",
    ),
    "nothing chosen": (lambda: annotate(without_genes(), PPCA(2)), r"var\['highly_variable'\] is true of no variable"),
    "nothing in a mask": (lambda: annotate(cells(), PPCA(2), mask_var=~np.ones(D, bool)), "mask_var is true of no var"),
    "a name as targets": (
        lambda: SupervisedPPCA(2).fit(cells(), "kind"),
        r"y is the text 'kind'; give a value for each sample, as adata\.obs\['kind'\] \(annotate takes the name\)",
    ),
    "no mask": (lambda: annotate(cells(), PPCA(2), mask_var=np.ones(3, bool)), "one truth value for each of the 9"),
    "targets lost": (lambda: annotate(cells(), SupervisedPPCA(2), y="kind", key="kind"), "give another key"),
    "no graph": (lambda: annotate(cells(), GraphPPCA(2), graph="connectivities"), "'connectivities', .*obsp has none"),
    "no X": (lambda: PPCA(2).fit(anndata.AnnData(shape=(4, 3))), "the AnnData has no X"),
    "fewer genes": (lambda: PPCA(2).fit(cells()).transform(cells()[:, 1:]), r"yet now missing:\n- gene0"),
    "repeated genes": (lambda: PPCA(2).fit(cells()).transform(repeated(cells())), r"yet now missing:\n- gene1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    call, words = REFUSED[case]
    with pytest.raises(DataError, match=words):
        call()


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "cells.h5ad").write_bytes(b"no HDF5" * 100)
    with pytest.raises(DataError, match=r"cells\.h5ad is no h5ad file or Zarr store that anndata reads"):
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


def test_counts_of_a_layer_with_covariates_of_cells() -> None:
    """The level of a cell, how much of it was read, is no score: neighbours would be cells of one depth."""
    rng = np.random.default_rng(0)
    depth = rng.normal(size=(200, 1))
    batch = np.arange(200) % 2.0
    predictors = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 12)) + depth + batch[:, None]
    counts = rng.poisson(np.exp(np.minimum(predictors, 5.0)))
    adata = anndata.AnnData(np.log1p(counts), layers={"counts": counts}, obs=pd.DataFrame({"batch": batch, "age": 3.0}))
    adata.obs_names = [f"c{number}" for number in range(200)]
    model = annotate(adata, PPCA(2, likelihood="poisson"), layer="counts", covariates=["batch"])
    expected = PPCA(2, likelihood="poisson").fit(counts, covariates=batch)
    np.testing.assert_allclose(adata.obsm["X_ppca"], expected.transform(counts, covariates=batch)[:, :2], atol=1e-6)
    assert adata.varm["ppca_loadings"].shape == (12, 2)
    assert np.corrcoef(adata.obs["ppca_level"], depth[:, 0])[0, 1] > 0.9
    assert model.result_["effects"].sel(covariate="batch").shape == (12,)
    adata.layers["sd"] = 0.1 + rng.random((200, 12))
    some = np.arange(12) < 8
    annotate(adata, PPCA(2), mask_var=some, uncertainty="sd", key="measured")
    plain = PPCA(2).fit(adata.X[:, some], uncertainty=adata.layers["sd"][:, some])
    scores = plain.transform(adata.X[:, some], uncertainty=adata.layers["sd"][:, some])
    np.testing.assert_allclose(adata.obsm["X_measured"], scores, atol=1e-8)
    with pytest.raises(DataError, match="obs has no column 'sex'"):
        annotate(adata, PPCA(2), covariates="sex")
