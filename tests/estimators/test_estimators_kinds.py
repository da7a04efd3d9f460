"""The result has the kind of the input, lazy input stays lazy, and results larger than memory go into a store."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import xarray as xr
import zarr
from dask.callbacks import Callback
from estimator_cases import CLASSES, LABELLED, PARTLY, D, N, X, texts

from dlatent import PPCA, CorrespondencePPCA, KernelPPCA, PPCAMixture, SupervisedPPCA, open_data

PLAIN = PPCA(2).fit(X)
SEMI = SupervisedPPCA(2).fit(X, PARTLY)
CLASSIFIER = SupervisedPPCA(2).fit(X, np.where(LABELLED, CLASSES, -1))
NAMES = [f"doc {i}" for i in range(N)]
LABELLED_ARRAY = xr.DataArray(
    X, dims=("doc", "word"), coords={"doc": NAMES, "word": list("abcdefgh"), "year": ("doc", np.arange(N))}
)


class Counter(Callback):
    """Counts the tasks that Dask runs."""

    def __init__(self):
        self.tasks = 0

    def _pretask(self, key, dsk, state):
        self.tasks += 1


@pytest.fixture
def counted():
    with Counter() as counter:
        yield counter


PAIRS = np.column_stack([np.arange(N)] * 2)
VIEWS = CorrespondencePPCA(1).fit({"left": X[:, :4], "right": X[:, 4:]}, correspondence=PAIRS)
SINGLE = X.astype(np.float32)
MIXTURE, HOLED = PPCAMixture(1, 2).fit(X), PPCA(2, missing="nan").fit(X)
ROWS_LIKE_THE_DATA = {
    "scores": PLAIN.transform,
    "scores of targets": SEMI.transform,
    "scores of a mixture": MIXTURE.transform,
    "reconstructed": MIXTURE.reconstruct,
    "imputed": HOLED.impute,
    "scores of kernels": KernelPPCA(2).fit(X).transform,
    "scores of a view": lambda rows: VIEWS.transform({"left": rows[:, :4]}),
    "another view": lambda rows: VIEWS.reconstruct(rows[:, :4], "left", "right"),
}
"""Methods whose results are in units of the data or of latent variables."""


@pytest.mark.parametrize("name", ROWS_LIKE_THE_DATA)
def test_single_precision_gives_single_precision_that_is_computed_in_double(name):
    method = ROWS_LIKE_THE_DATA[name]
    found = method(SINGLE)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, method(SINGLE.astype(np.float64)).astype(np.float32))
    assert method(np.round(X).astype(np.int64)).dtype == np.float64


def test_lazy_results_and_stores_have_the_precision_of_the_data(tmp_path):
    rows = da.from_array(SINGLE, chunks=(7, D))
    lazy = PLAIN.transform(rows)
    assert lazy.dtype == lazy.compute().dtype == np.float32
    PLAIN.transform(rows, out=tmp_path / "scores.zarr")
    stored = zarr.open_group(tmp_path / "scores.zarr")["scores"]
    assert stored.dtype == np.float32
    np.testing.assert_array_equal(stored[:], PLAIN.transform(SINGLE))
    assert PLAIN.transform(sp.csr_array(SINGLE)).dtype == np.float32


def test_features_of_scores_in_single_precision_are_in_single_precision():
    for model, more in ((PLAIN, ()), (MIXTURE, (MIXTURE.predict(SINGLE),))):
        features = model.inverse_transform(model.transform(SINGLE), *more)
        assert features.dtype == np.float32
        expected = model.inverse_transform(model.transform(SINGLE).astype(np.float64), *more)
        np.testing.assert_array_equal(features, expected.astype(np.float32))


def test_likelihoods_and_probabilities_are_in_double_precision():
    assert PLAIN.score_samples(SINGLE).dtype == np.float64
    assert MIXTURE.predict_proba(SINGLE).dtype == CLASSIFIER.predict_proba(SINGLE).dtype == np.float64


LAZY = {
    "transform": lambda m, x: m.transform(x),
    "score_samples": lambda m, x: m.score_samples(x),
    "decision_function": lambda m, x: m.decision_function(x),
    "predict": lambda m, x: m.predict(x),
}


@pytest.mark.parametrize("name", LAZY)
@pytest.mark.parametrize("chunks", [(13, 8), (20, 3)], ids=["rows", "rows and columns"])
def test_dask_gives_lazy_dask(name, chunks, counted):
    x = da.from_array(X, chunks=chunks)
    found = LAZY[name](SEMI, x)
    assert isinstance(found, da.Array)
    assert counted.tasks == 0, "nothing was computed"
    assert found.chunks[0] == x.chunks[0]
    values = found.compute()
    assert counted.tasks > 0
    np.testing.assert_allclose(values, LAZY[name](SEMI, X), rtol=1e-10, atol=1e-12)


def test_predicted_classes_of_dask_are_lazy(counted):
    found = CLASSIFIER.predict(da.from_array(X, chunks=(13, 8)))
    assert isinstance(found, da.Array)
    assert counted.tasks == 0
    np.testing.assert_array_equal(found.compute(), CLASSIFIER.predict(X))


def test_dask_with_sparse_chunks_gives_lazy_dask(counted):
    x, labels = texts()
    model = SupervisedPPCA(2).fit(x, labels)
    lazy = da.from_array(x.toarray(), chunks=(20, 50)).map_blocks(sp.csr_array, meta=sp.csr_array((0, 0)))
    counted.tasks = 0
    found = model.transform(lazy)
    assert counted.tasks == 0
    np.testing.assert_allclose(found.compute(), model.transform(x), rtol=1e-9, atol=1e-10)


def test_xarray_keeps_names_and_coordinates():
    found = PLAIN.transform(LABELLED_ARRAY)
    assert isinstance(found, xr.DataArray)
    assert found.dims == ("doc", "component")
    assert found["doc"].values.tolist() == NAMES
    assert found["year"].dims == ("doc",)
    assert found["component"].values.tolist() == [0, 1]
    assert "word" not in found.coords
    np.testing.assert_array_equal(found.values, PLAIN.transform(X))
    samples = PLAIN.score_samples(LABELLED_ARRAY)
    assert samples.dims == ("doc",)
    assert samples["doc"].values.tolist() == NAMES
    means = SEMI.decision_function(LABELLED_ARRAY)
    assert means.dims == ("doc", "target")


def test_predictions_of_xarray_are_xarray():
    for model in (SEMI, CLASSIFIER):
        found = model.predict(LABELLED_ARRAY)
        assert isinstance(found, xr.DataArray)
        assert found["doc"].values.tolist() == NAMES
        np.testing.assert_array_equal(found.values, model.predict(X))


def test_a_dataset_of_one_matrix_is_that_matrix():
    found = PLAIN.transform(LABELLED_ARRAY.to_dataset(name="x"))
    xr.testing.assert_identical(found, PLAIN.transform(LABELLED_ARRAY))


def test_xarray_of_dask_stays_lazy(counted):
    lazy = LABELLED_ARRAY.chunk({"doc": 11, "word": 8})
    found = PLAIN.transform(lazy)
    samples = SEMI.score_samples(lazy)
    assert counted.tasks == 0
    assert found.chunks[0] == (11,) * 5 + (5,)
    assert found["doc"].values.tolist() == NAMES
    np.testing.assert_allclose(found.values, PLAIN.transform(X), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(samples.values, SEMI.score_samples(X), rtol=1e-10)


@pytest.fixture
def stored(tmp_path):
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(13, 5))
    return tmp_path / "x.zarr"


DATA = {
    "numpy": lambda _: X,
    "sparse": lambda _: sp.csr_array(X),
    "dask": lambda _: da.from_array(X, chunks=(7, 3)),
    "zarr": lambda stored: stored,
    "xarray": lambda _: LABELLED_ARRAY,
    "xarray of dask": lambda _: LABELLED_ARRAY.chunk({"doc": 11}),
}


@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("with_y", [False, True])
def test_results_go_into_a_store(kind, with_y, stored, tmp_path):
    data = DATA[kind](stored)
    options = {"y": PARTLY} if with_y else {}
    out = SEMI.transform(data, out=tmp_path / "z.zarr", **options)
    assert out == str(tmp_path / "z.zarr")
    expected = SEMI.transform(X, *options.values())
    written = xr.open_zarr(out)["scores"]
    rows = "doc" if kind.startswith("xarray") else "sample"
    assert written.dims == (rows, "component")
    np.testing.assert_allclose(written.values, expected, rtol=1e-9, atol=1e-10)
    assert written["component"].values.tolist() == [0, 1]
    if kind.startswith("xarray"):
        assert written["doc"].values.tolist() == NAMES
    np.testing.assert_array_equal(zarr.open(out)["scores"][:], written.values)
    assert open_data(out).shape == (N, 2), "the scores are data that can be opened again"


@pytest.mark.parametrize("kind", DATA)
def test_targets_are_used_whatever_holds_the_features(kind, stored):
    found = SEMI.transform(DATA[kind](stored), PARTLY)
    np.testing.assert_allclose(np.asarray(found), SEMI.transform(X, PARTLY), rtol=1e-9, atol=1e-10)
    values = SEMI.score_samples(DATA[kind](stored), PARTLY)
    np.testing.assert_allclose(np.asarray(values), SEMI.score_samples(X, PARTLY), rtol=1e-9)
    assert SEMI.score(DATA[kind](stored), PARTLY) == pytest.approx(values.mean().item(), rel=1e-9)


def test_posterior_is_a_dataset_with_the_names_of_the_data():
    alone = PLAIN.posterior(LABELLED_ARRAY)
    assert alone["scores"].dims == ("doc", "component")
    assert alone["covariance"].dims == ("component", "component_2")
    both = SEMI.posterior(LABELLED_ARRAY, PARTLY)
    assert both["covariance"].dims == ("pattern", "component", "component_2")
    np.testing.assert_array_equal(both["pattern_of"].values == 0, LABELLED)
    certain, uncertain = (np.trace(c) for c in both["covariance"].values)
    assert certain < uncertain, "targets tell more of the latent variables"


def test_planning_reads_nothing(counted):
    def refuse(block):
        raise AssertionError("a block was read")

    lazy = da.from_array(X, chunks=(13, 8)).map_blocks(refuse, dtype=float, meta=np.empty((0, 0)))
    plan = SupervisedPPCA(2).plan(lazy, PARTLY)
    assert counted.tasks == 0
    assert plan.task.data.samples == N
    assert plan.task.data.features == D


def test_fits_leave_the_input_alone():
    x, y = X.copy(), PARTLY.copy()
    x.flags.writeable = y.flags.writeable = False
    SupervisedPPCA(2).fit(x, y).transform(x, y)
    matrix = sp.csr_array(X)
    before = matrix.data.copy()
    with dask.config.set(scheduler="synchronous"):
        PPCA(2).fit(matrix).score(matrix)
    np.testing.assert_array_equal(matrix.data, before)
