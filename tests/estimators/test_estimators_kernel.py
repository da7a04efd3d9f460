"""Kernel models: kinds of kernels and inputs, where K is, landmarks, choice of parameters, and what is refused."""

from __future__ import annotations

from functools import partial

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import xarray as xr
from sklearn.model_selection import GridSearchCV

from dlatent import (
    PPCA,
    DataError,
    KernelPPCA,
    KernelSupervisedPPCA,
    LocallyLinearEmbedding,
    PlanError,
    StoreError,
    SupervisedPPCA,
    load,
    open_data,
)
from tests.fitted import map_of
from tests.simulators import documents, simulate

DATA = simulate(60, (5, 2), 2, noise=(0.3, 0.4), random_state=0)
X, Y = DATA.features, DATA.targets
PARTLY = np.where(np.arange(60)[:, None] % 3 == 0, Y, np.nan)
NEW = X[:7] + 0.1


def square(x, y):
    return np.asarray((x @ y.T + 1.0) ** 2)


def rings(count=240, seed=0):
    """Two classes that no line separates: rings around each other."""
    rng = np.random.default_rng(seed)
    classes = np.arange(count) % 2
    angle, radius = rng.uniform(0, 2 * np.pi, count), 1.0 + 2.0 * classes + 0.2 * rng.standard_normal(count)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), classes


@pytest.mark.parametrize("solver", ["recomputed", "stored"])
@pytest.mark.parametrize("client", [None, "serial"])
def test_where_the_kernel_is_changes_nothing(solver, client, tmp_path):
    options = {"kernel_store": tmp_path / "k.zarr"} if solver == "stored" else {}
    here = KernelSupervisedPPCA(2, solver="memory", tol=1e-13).fit(X, PARTLY)
    there = KernelSupervisedPPCA(2, solver=solver, tol=1e-13, **options).fit(X, PARTLY, client=client)
    np.testing.assert_allclose(there.transform(NEW), here.transform(NEW), rtol=1e-5, atol=1e-6)
    assert there.log_likelihood_ == pytest.approx(here.log_likelihood_, rel=1e-10)
    assert there.n_passes_ > here.n_passes_ == 3
    assert list(tmp_path.iterdir()) == [], "the kernel is kept for the fit only"


def test_a_stored_kernel_of_many_blocks(tmp_path):
    """Blocks of a few rows, kernels in single precision."""
    source = open_data(X, block_bytes=300)
    assert len(source.blocks) > 6
    exact = KernelPPCA(3, solver="memory").fit(X)
    single = KernelPPCA(3, solver="stored", kernel_store=tmp_path / "k.zarr", kernel_dtype="float32").fit(source)
    double = KernelPPCA(3, solver="stored", kernel_store=tmp_path / "k.zarr", tol=1e-15).fit(source)
    np.testing.assert_allclose(double.dual_components_, exact.dual_components_, atol=1e-6)
    np.testing.assert_allclose(single.noise_variance_, exact.noise_variance_, rtol=1e-4)
    assert abs(single.noise_variance_ / exact.noise_variance_ - 1) > 1e-12, "it was kept in single precision"
    recomputed = KernelPPCA(3, solver="recomputed", tol=1e-15).fit(source)
    np.testing.assert_allclose(recomputed.dual_components_, exact.dual_components_, atol=1e-6)


@pytest.mark.parametrize("kernel", ["rbf", "polynomial", "cosine", "laplacian", "linear", square])
def test_likelihood_of_the_rows_is_that_of_the_fit(kernel):
    model = KernelSupervisedPPCA(2, kernel=kernel).fit(X, PARTLY)
    assert np.sum(model.score_samples(X, PARTLY)) == pytest.approx(model.log_likelihood_, rel=1e-9)


def test_sparse_rows_are_not_densified(monkeypatch):
    text = documents(60, 3000, classes=3, random_state=0)
    dense = KernelPPCA(2, kernel="cosine").fit(text.features.toarray())
    monkeypatch.setattr(sp.csr_array, "toarray", _small_only(sp.csr_array.toarray))
    sparse = KernelPPCA(2, kernel="cosine").fit(text.features)
    np.testing.assert_allclose(sparse.dual_components_, dense.dual_components_, atol=1e-9)
    np.testing.assert_allclose(sparse.transform(text.features[:5]), dense.transform(text.features[:5]), atol=1e-9)


def _small_only(toarray):
    def guarded(self, *options, **more):
        assert self.shape[1] <= 60, "a block of kernels, and no block of words"
        return toarray(self, *options, **more)

    return guarded


@pytest.mark.parametrize("solver", ["memory", "recomputed"])
def test_a_given_kernel_is_that_of_its_rows(solver):
    named = KernelSupervisedPPCA(2, gamma=0.1, tol=1e-13).fit(X, PARTLY)
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    kernel = da.from_array(np.exp(-0.1 * squares), chunks=(25, 60))
    given = KernelSupervisedPPCA(2, kernel="precomputed", solver=solver, tol=1e-13).fit(kernel, PARTLY)
    rows = np.exp(-0.1 * ((NEW[:, None] - X[None]) ** 2).sum(axis=2))
    np.testing.assert_allclose(given.transform(rows), named.transform(NEW), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(given.predict(rows), named.predict(NEW), rtol=1e-5, atol=1e-6)
    with pytest.raises(DataError, match="do not tell k"):
        given.score_samples(rows)


def test_a_given_kernel_that_is_none_is_refused():
    kernel = np.exp(-0.1 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    crooked = kernel.copy()
    crooked[3, 8] += 0.5
    with pytest.raises(DataError, match=r"not symmetric \(seen at row [38]:"):
        KernelPPCA(2, kernel="precomputed").fit(crooked)
    with pytest.raises(DataError, match="not positive semi-definite"):
        KernelPPCA(2, kernel="precomputed").fit(kernel - 0.5 * np.eye(60))
    with pytest.raises(DataError, match="as many columns as rows"):
        KernelPPCA(2, kernel="precomputed").fit(kernel[:, :50])


@pytest.mark.parametrize("targets", [None, Y, PARTLY], ids=["unsupervised", "complete", "semi-supervised"])
def test_landmarks_bound_the_likelihood_from_below(targets):
    """Loadings in the span of some rows: the more rows, the higher the maximum, up to that of all."""
    kind, more = (KernelPPCA, ()) if targets is None else (KernelSupervisedPPCA, (targets,))
    whole = kind(2, gamma=0.05, feature_dimension=80).fit(X, *more)
    values, errors = [], []
    for count in (8, 20, 60):
        part = kind(2, gamma=0.05, feature_dimension=80, landmarks=count).fit(X, *more)
        np.testing.assert_allclose(np.sum(part.score_samples(X, *more)), part.log_likelihood_, rtol=1e-9)
        values.append(part.log_likelihood_)
        errors.append(part.trace_error_)
    assert values[0] < values[1] < values[2] + 1e-6
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-9
    assert values[2] == pytest.approx(whole.log_likelihood_, rel=1e-6)
    np.testing.assert_allclose(abs(part.transform(NEW)), abs(whole.transform(NEW)), rtol=1e-2, atol=1e-3)


def test_the_trace_error_is_that_of_the_approximation():
    model = KernelPPCA(2, gamma=0.05, landmarks=10).fit(X)
    chosen = np.sort(np.random.default_rng(0).permutation(60)[:10])
    kernel = np.exp(-0.05 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    near = kernel[:, chosen] @ np.linalg.solve(kernel[np.ix_(chosen, chosen)], kernel[chosen])
    assert model.trace_error_ == pytest.approx(np.trace(kernel - near) / np.trace(kernel), rel=1e-6)
    assert model.dual_components_.shape == (2, 10)


@pytest.mark.parametrize("landmarks", [None, 30])
def test_a_saved_model_knows_its_sparse_rows(tmp_path, landmarks):
    model = KernelSupervisedPPCA(2, kernel="linear", landmarks=landmarks).fit(sp.csr_array(X), PARTLY)
    model.save(tmp_path / "m.zarr")
    again, new = load(tmp_path / "m.zarr"), sp.csr_array(NEW)
    np.testing.assert_array_equal(again.transform(new), model.transform(new))
    assert set(model.result_.dims) >= {"training", "coordinate", "component"}


def test_a_saved_model_of_a_given_kernel_needs_no_rows(tmp_path):
    model = KernelSupervisedPPCA(2, kernel="precomputed").fit(square(X, X), PARTLY)
    model.save(tmp_path / "m.zarr")
    again = load(tmp_path / "m.zarr")
    np.testing.assert_array_equal(again.predict(square(NEW, X)), model.predict(square(NEW, X)))
    assert map_of(again).rows == ()


def test_a_function_cannot_be_saved(tmp_path):
    with pytest.raises(StoreError, match="is a function cannot be saved"):
        KernelPPCA(2, kernel=square).fit(X).save(tmp_path / "m.zarr")
    assert list(tmp_path.iterdir()) == []


def test_rings_are_told_apart():
    """What no linear model can: a third of the rows labelled, the classes of the others predicted."""
    rows, classes = rings()
    labels = np.where(np.arange(len(classes)) % 3 == 0, classes, -1)
    kernel, linear = KernelSupervisedPPCA(6).fit(rows, labels), SupervisedPPCA(1).fit(rows, labels)
    hidden = labels < 0
    assert (kernel.predict(rows) == classes)[hidden].mean() > 0.95
    assert (linear.predict(rows) == classes)[hidden].mean() < 0.8


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dlatent.NoiseFloorWarning")
def test_gamma_is_chosen_by_prediction_in_a_grid_search():
    rows, classes = rings()
    grid = {"gamma": [0.5, 500.0]}
    search = GridSearchCV(KernelSupervisedPPCA(6), grid, scoring="accuracy", cv=3).fit(rows, classes)
    assert search.best_params_ == {"gamma": 0.5}
    assert search.best_score_ > 0.95
    squares = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    model, kernel = KernelSupervisedPPCA(kernel="precomputed"), np.exp(-0.5 * squares)
    given = GridSearchCV(model, {"n_components": [6]}, scoring="accuracy", cv=3).fit(kernel, classes)
    assert given.best_score_ == search.best_score_, "rows and columns of a given kernel are split together"


REFUSED = {
    "kernel": ({"kernel": "sigmoid"}, "expected a function of two blocks"),
    "gamma": ({"gamma": -1.0}, "expected a positive number, or 'median'"),
    "degree": ({"degree": 0}, "integer of at least 1"),
    "landmarks": ({"landmarks": 2}, "landmarks is 2; expected an integer above n_components"),
    "more landmarks than rows": ({"landmarks": 100}, "there are 60 samples"),
    "dimension": ({"feature_dimension": 1}, "feature_dimension is 1"),
    "components": ({"n_components": 59}, "allow at most 58"),
    "dtype": ({"kernel_dtype": "float16"}, "expected 'float64' or 'float32'"),
    "landmarks and em": ({"landmarks": 10, "solver": "em"}, "for the whole kernel"),
    "solver": ({"solver": "krylov"}, "expected 'auto', 'memory', 'recomputed', 'stored' or 'em'"),
    "small dimension": ({"feature_dimension": 5, "kernel": "rbf"}, "more than the 5 that feature_dimension allows"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    options, words = REFUSED[name]
    with pytest.raises(DataError, match=words):
        KernelPPCA(**{"n_components": 2, **options}).fit(X)


@pytest.mark.filterwarnings("ignore::dlatent.NoiseFloorWarning")
@pytest.mark.filterwarnings("ignore::dlatent.PrecisionWarning")
@pytest.mark.parametrize("labelled", [60, 20])
def test_components_vanish_where_there_are_too_few_dimensions(labelled):
    """Rows of three kinds span two dimensions about their mean, and a third component has nothing to explain; nor has
    the noise, so that likelihoods have no bound, and a value to compare at a floor alone."""
    few = np.repeat(X[:3], 20, axis=0)
    model = KernelPPCA(3, gamma=0.1).fit(few)
    sizes = np.linalg.norm(model.dual_components_, axis=1)
    assert sizes[2] < 1e-6 * sizes[1]
    wide = np.hstack([few, few] * 7)
    dual, primal = (PPCA(3, solver=solver, noise_floor=1e-6).fit(wide) for solver in ("gram", "krylov"))
    assert dual.log_likelihood_ == pytest.approx(primal.log_likelihood_, rel=1e-6)
    targets = np.where(np.arange(60)[:, None] % (60 // labelled) == 0, Y, np.nan)
    assert np.isfinite(SupervisedPPCA(4, solver="gram").fit(wide, targets).transform(wide)).all()


def test_landmarks_must_span_the_components():
    few = np.repeat(X[:3], 20, axis=0)
    with pytest.raises(DataError, match="the landmarks span"):
        KernelPPCA(3, gamma=0.1, landmarks=20).fit(few)


def test_a_stored_kernel_needs_a_place():
    with pytest.raises(PlanError, match="kernel_store"):
        KernelPPCA(2, solver="stored").plan(X)


@pytest.mark.parametrize("kind", [np.array, pd.DataFrame, xr.DataArray, sp.csr_array])
@pytest.mark.parametrize(
    "make",
    [
        partial(KernelPPCA, 2),
        partial(KernelSupervisedPPCA, 2),
        partial(KernelPPCA, 2, landmarks=60),
        LocallyLinearEmbedding,
    ],
)
def test_a_model_does_not_look_into_the_data_of_its_fit_again(make, kind, tmp_path):
    """New rows are compared with those of the fit as they were, whatever becomes of the arrays that held them."""
    mine, labels = kind(X.copy()), Y.copy()
    model = make().fit(mine, labels)
    before = model.transform(NEW)
    values = mine.data if sp.issparse(mine) else mine.values if hasattr(mine, "values") else mine
    values[...] = 7.0
    labels[...] = 0.0
    np.testing.assert_array_equal(model.transform(NEW), before)
    if kind is np.array:
        model.save(tmp_path / "m.zarr")
        np.testing.assert_array_equal(load(tmp_path / "m.zarr").transform(NEW), before)


def test_a_plan_counts_the_rows_that_a_model_keeps():
    wide = np.zeros((100, 200_000), dtype=np.float32)
    assert KernelPPCA(2, gamma=1.0).plan(wide).driver_memory > wide.nbytes
