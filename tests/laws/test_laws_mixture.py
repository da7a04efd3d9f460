"""A fit of a mixture has the same bits on every engine, from every kind of input, with and without a cache."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from law_cases import as_dask

from dlatent import PPCAMixture
from tests.oracles.mixture import simulate_mixture

X = simulate_mixture(200, 24, separation=2.0).features
ROWS = (50, 3, 1, 70, 26, 30, 20)
FITTED = ("components_", "means_", "weights_", "noise_variance_", "log_likelihood_")


@pytest.fixture(params=["threads", pytest.param("one_worker", marks=pytest.mark.slow), "two_workers"])
def client(request):
    return None if request.param == "threads" else request.getfixturevalue(request.param)


def fitted(data, client, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PPCAMixture(2, 3, n_init=2, **options).fit(data, client=client)


def same_bits(one, other):
    lines = [model.history_["iteration_log_likelihood"].values for model in (one, other)]
    return np.array_equal(*lines) and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in FITTED)


@pytest.mark.parametrize("noise", ["isotropic", "diagonal"])
@pytest.mark.parametrize("solver", ["auto", "em"])
def test_fits_of_dask_arrays_have_the_same_bits(client, noise, solver):
    options = {"noise": noise, "solver": solver, "max_iter": 8}
    expected = fitted(as_dask(X, ROWS), "serial", **options)
    assert same_bits(fitted(as_dask(X, ROWS), client, **options), expected)


@pytest.mark.slow
def test_fits_of_sparse_and_single_precision_rows_have_the_same_bits(client):
    rows = np.where(np.random.default_rng(0).random(X.shape) < 0.6, 0.0, X)
    for data in (as_dask(sp.csr_array(rows), ROWS), as_dask(X.astype(np.float32), ROWS)):
        assert same_bits(fitted(data, client), fitted(data, "serial"))


def test_fits_of_stores_have_the_same_bits_and_so_have_results(client, tmp_path):
    array = zarr.create_array(tmp_path / "x.zarr", shape=X.shape, chunks=(30, 10), dtype=X.dtype)
    array[:] = X
    path = str(tmp_path / "x.zarr")
    model = fitted(path, "serial")
    assert same_bits(fitted(path, client), model)
    for function in (model.transform, model.predict_proba, model.score_samples, model.predict, model.reconstruct):
        np.testing.assert_array_equal(function(path, client=client), function(path, client="serial"))
    out = model.predict_proba(path, out=tmp_path / "r.zarr", client=client)
    np.testing.assert_array_equal(zarr.open(out)["responsibilities"][:], model.predict_proba(path, client="serial"))
