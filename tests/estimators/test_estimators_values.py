"""Values that are no numbers are errors that name row and column, wherever rows are asked for and however late."""

from __future__ import annotations

from itertools import product

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import xarray as xr
import zarr
from estimator_cases import HOLES, D, N, X, Y

from dlatent import (
    PPCA,
    CorrespondenceFactorAnalysis,
    CorrespondenceLLE,
    CorrespondencePPCA,
    DataError,
    DataWarning,
    FactorAnalysis,
    KernelPPCA,
    KernelSupervisedPPCA,
    LocallyLinearEmbedding,
    PPCAMixture,
    RelationalPPCA,
    RelationalSupervisedPPCA,
    SupervisedPPCA,
)
from tests.fitted import FirstUse

RING = sp.csr_array((np.ones(N), (np.arange(N), (np.arange(N) + 1) % N)), shape=(N, N))
GRAPH = sp.csr_array(RING + RING.T)
PAIRS = np.column_stack([np.arange(40), np.arange(40)])
OTHER = np.column_stack([X[:, 0] + 0.3 * X[:, 1], X[:, 2] - X[:, 3], X[:, 4]]) + 0.1 * Y[:, :1]
ROW, COLUMN = 47, 5
BAD = {"NaN": (np.nan, "is nan"), "infinity": (np.inf, "is inf"), "minus infinity": (-np.inf, "is -inf")}
KERNELS = ["linear", "rbf", "polynomial", "cosine", "laplacian"]

MODELS = FirstUse(
    {
        "PPCA": lambda: PPCA(2).fit(X),
        "FactorAnalysis": lambda: FactorAnalysis(2).fit(X),
        "PPCAMixture": lambda: PPCAMixture(1, 2).fit(X),
        "SupervisedPPCA": lambda: SupervisedPPCA(2).fit(X, Y),
        "RelationalPPCA": lambda: RelationalPPCA(2).fit(X, graph=GRAPH),
        "RelationalSupervisedPPCA": lambda: RelationalSupervisedPPCA(2).fit(X, Y, graph=GRAPH),
        "KernelSupervisedPPCA": lambda: KernelSupervisedPPCA(2).fit(X, Y),
        "LocallyLinearEmbedding": lambda: LocallyLinearEmbedding(n_neighbors=8).fit(X),
        **{f"KernelPPCA {kernel}": lambda kernel=kernel: KernelPPCA(2, kernel=kernel).fit(X) for kernel in KERNELS},
    }
)
METHODS = {
    "transform": lambda m, x: m.transform(x),
    "posterior": lambda m, x: m.posterior(x)["scores"],
    "score_samples": lambda m, x: m.score_samples(x),
    "score": lambda m, x: m.score(x),
    "predict": lambda m, x: m.predict(x),
    "predict_proba": lambda m, x: m.predict_proba(x),
    "decision_function": lambda m, x: m.decision_function(x),
    "bartlett": lambda m, x: m.transform(x, scores="bartlett"),
    "log_likelihood": lambda m, x: m.log_likelihood(x, GRAPH),
}


def methods_of(name):
    found = [method for method in METHODS if hasattr(MODELS[name], method)]
    if name == "RelationalSupervisedPPCA":
        found.remove("log_likelihood")  # wants targets
    return [METHODS[method] for method in found + ["bartlett"] * (name == "FactorAnalysis")]


def lazy_methods_of(name):
    return [method for method in methods_of(name) if method not in (METHODS["score"], METHODS["log_likelihood"])]


def spoiled(value, row=ROW, column=COLUMN, x=X):
    x = x.copy()
    x[row, column] = value
    return x


def as_zarr(x, folder):
    zarr.create_array(folder / "x.zarr", data=x, chunks=(7, 3))
    return str(folder / "x.zarr")


KINDS = {"numpy": lambda x, _: x, "sparse": lambda x, _: sp.csr_array(x), "zarr": as_zarr}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("kind", "bad"), [("numpy", "NaN"), ("numpy", "infinity"), ("sparse", "NaN"), ("zarr", "NaN")])
@pytest.mark.parametrize("name", MODELS)
def test_rows_that_are_asked_for_must_be_finite(name, kind, bad, tmp_path):
    value, words = BAD[bad]
    rows = KINDS[kind](spoiled(value), tmp_path)
    for method in methods_of(name):
        with pytest.raises(DataError, match=rf"row {ROW}, column {COLUMN}\b.* {words}.*fill or remove them"):
            method(MODELS[name], rows)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_lazy_results_raise_when_they_are_computed(name, sparse):
    x = da.from_array(spoiled(np.nan), chunks=(13, 3))
    if sparse:
        x = x.rechunk((13, D)).map_blocks(sp.csr_array, meta=sp.csr_array((0, 0)))
    forms = (x,) if sparse else (x, xr.DataArray(x, dims=("row", "band")))
    for method, data in product(lazy_methods_of(name), forms):
        found = method(MODELS[name], data)
        assert found[:13].compute().shape[0] == 13, "other chunks are not concerned"
        with pytest.raises(DataError, match=rf"row {ROW}, column {COLUMN} is nan, and 1 entry of rows 39–51 is"):
            found.compute()


def test_lazy_results_count_rows_in_their_chunk_where_sizes_are_unknown():
    x = da.from_array(spoiled(np.nan), chunks=(20, D))
    x = x[da.from_array(np.ones(N, dtype=bool), chunks=20)]
    with pytest.raises(DataError, match=rf"row {ROW - 40} of chunk 2, column {COLUMN} is nan"):
        MODELS["PPCA"].transform(x).compute()


def test_lazy_results_on_a_cluster(two_workers):
    found = MODELS["PPCA"].transform(da.from_array(spoiled(np.nan), chunks=(13, D)))
    with pytest.raises(DataError, match=f"row {ROW}, column {COLUMN} is nan"):
        two_workers.compute(found).result()


@pytest.fixture(scope="module")
def two_workers():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.mark.parametrize("client", ["serial", None, "cluster"])
def test_stores_of_rows_and_of_results(client, tmp_path, request):
    client = request.getfixturevalue("two_workers") if client == "cluster" else client
    place = as_zarr(spoiled(np.nan), tmp_path)
    for options in ({}, {"out": tmp_path / "scores.zarr"}):
        with pytest.raises(DataError, match=f"row {ROW}, column {COLUMN} is nan"):
            MODELS["PPCA"].transform(place, client=client, **options)
    assert not list(tmp_path.glob("*scores*")), "nothing is left behind"


def test_targets_do_not_hide_what_is_wrong_with_the_features():
    x = da.from_array(spoiled(np.nan), chunks=(13, 3))
    for data in (spoiled(np.nan), x):
        with pytest.raises(DataError, match=f"row {ROW}, column {COLUMN}"):
            MODELS["SupervisedPPCA"].transform(data, Y)


@pytest.mark.parametrize(
    "kind", [CorrespondencePPCA, pytest.param(CorrespondenceFactorAnalysis, marks=pytest.mark.slow), CorrespondenceLLE]
)
def test_views_are_named(kind):
    model = kind(n_components=2).fit({"left": X, "right": OTHER}, correspondence=PAIRS)
    bad, place = spoiled(np.nan, 12, 1, OTHER), "view 'right', row 12, column 1 is nan"
    with pytest.raises(DataError, match=place):
        model.reconstruct(bad, "right", "left")
    if kind is CorrespondenceLLE:
        with pytest.raises(DataError, match=place):
            model.transform(bad, "right")
        return
    for method in ("transform", "score", "score_samples", "posterior"):
        with pytest.raises(DataError, match=place):
            getattr(model, method)({"right": bad})
        with pytest.raises(DataError, match=place):
            getattr(model, method)({"left": X, "right": bad}, correspondence=PAIRS)
    lazy = model.transform({"right": da.from_array(bad, chunks=(7, 3))})
    with pytest.raises(DataError, match=place):
        lazy.compute()


def test_a_given_kernel_must_be_finite():
    model = KernelPPCA(2, kernel="precomputed").fit(X @ X.T)
    with pytest.raises(DataError, match="row 3, column 9 is nan"):
        model.transform(spoiled(np.nan, 3, 9, X @ X.T))


@pytest.mark.parametrize("method", ["transform", "score_samples", "score", "posterior", "impute", "impute_variance"])
def test_missing_entries_are_no_error_where_the_model_takes_them_but_infinity_is(method):
    holes = np.where(HOLES, np.nan, X)
    model = PPCA(2, missing="nan").fit(holes)
    getattr(model, method)(holes)
    said = rf"row {ROW}, column {COLUMN} is inf, and 1 entry of rows \d+–\d+ is infinite; make them NaN if they"
    with pytest.raises(DataError, match=said):
        getattr(model, method)(spoiled(np.inf, x=holes))


def test_a_model_of_complete_data_fills_in_entries():
    filled = MODELS["PPCA"].impute(spoiled(np.nan))
    assert np.isfinite(filled).all()
    with pytest.raises(DataError, match=f"row {ROW}, column {COLUMN} is inf"):
        MODELS["PPCA"].impute(spoiled(np.inf))


def test_large_values_whose_sum_overflows_are_numbers():
    large = np.full((4, D), 1e308)
    assert MODELS["LocallyLinearEmbedding"].transform(X[:4] * 1e200).shape == (4, 2)
    with np.errstate(over="ignore", invalid="ignore"):
        assert MODELS["PPCA"].transform(large).shape == (4, 2)
    single = np.full((4, D), 1e38, dtype=np.float32)
    assert np.isfinite(MODELS["PPCA"].transform(single)).all()


def test_results_beyond_single_precision_are_refused_and_not_infinite(tmp_path):
    model = MODELS["PPCA"]
    rows = np.zeros((6, D), dtype=np.float32)
    rows[4] = 3.3e38 * np.sign(model.components_[0])
    message = r"a result of row 4 is .*e\+38, beyond the largest number of float32, .* give the data as float64"
    with pytest.raises(DataError, match=message):
        model.transform(rows)
    with pytest.raises(DataError, match=message):
        model.transform(da.from_array(rows, chunks=(3, D))).compute()
    with pytest.raises(DataError, match=message):
        model.transform(rows, out=tmp_path / "scores.zarr")
    assert not (tmp_path / "scores.zarr").exists()
    assert np.isfinite(model.transform(rows.astype(np.float64))).all()


FITS = {
    "PPCA covariance": lambda x: PPCA(2, solver="covariance").fit(x),
    "PPCA krylov": lambda x: PPCA(2, solver="krylov").fit(x),
    "PPCA gram": lambda x: PPCA(2, solver="gram").fit(np.hstack([x] * 10)),
    "PPCA EM": lambda x: PPCA(2, solver="em").fit(x),
    "FactorAnalysis covariance": lambda x: FactorAnalysis(2, solver="covariance").fit(x),
    "FactorAnalysis accelerated EM": lambda x: FactorAnalysis(2, solver="accelerated_em").fit(x),
    "FactorAnalysis EM": lambda x: FactorAnalysis(2, solver="em").fit(x),
    "PPCAMixture": lambda x: PPCAMixture(1, 2).fit(x),
    "RelationalPPCA covariance": lambda x: RelationalPPCA(2, solver="covariance").fit(x, graph=GRAPH),
    "RelationalPPCA krylov": lambda x: RelationalPPCA(2, solver="krylov").fit(x, graph=GRAPH),
    **{
        f"KernelPPCA {kernel} {solver}": lambda x, kernel=kernel, solver=solver: KernelPPCA(
            2, kernel=kernel, solver=solver
        ).fit(x)
        for kernel in KERNELS
        for solver in ("memory", "recomputed")
    },
    "KernelPPCA landmarks": lambda x: KernelPPCA(2, landmarks=20).fit(x),
    "LocallyLinearEmbedding": lambda x: LocallyLinearEmbedding(n_neighbors=8).fit(x),
    "CorrespondenceFactorAnalysis": lambda x: CorrespondenceFactorAnalysis(2, solver="accelerated_em").fit(
        {"left": OTHER, "right": x}, correspondence=PAIRS
    ),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", FITS)
def test_every_fit_names_row_and_column(name, bad):
    value, words = BAD[bad]
    with pytest.raises(DataError, match=rf"row {ROW}, column {COLUMN}\b.* ({words}|is infinite)"):
        FITS[name](spoiled(value))


def test_factor_analysis_by_rows_refuses_rows_of_zeros_as_other_routes_do():
    x = X.copy()
    x[ROW] = 0.0
    with pytest.raises(DataError, match=rf"row {ROW} .* is all zeros"):
        FactorAnalysis(2, solver="accelerated_em", zero_rows="raise").fit(x)
    with pytest.warns(DataWarning, match="^1 row is all zeros"):
        assert FactorAnalysis(2, solver="accelerated_em").fit(x).n_samples_ == N


@pytest.mark.slow
def test_errors_of_dask_stay_errors_of_the_library():
    with dask.config.set(scheduler="processes"):
        found = MODELS["PPCA"].score_samples(da.from_array(spoiled(np.inf), chunks=(30, D)))
        with pytest.raises(DataError, match=f"row {ROW}, column {COLUMN} is inf"):
            found.compute()
