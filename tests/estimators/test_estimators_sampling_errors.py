"""Standard errors of eigenvalues and components: North's rule, and a bootstrap that is one of refits."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import xarray as xr
from scipy.optimize import linear_sum_assignment

from dlatent import PPCA
from dlatent.errors import DataError

RNG = np.random.default_rng(5)
K, R = 3, 40
TALL = RNG.normal(size=(70, 3)) * [4.0, 2.5, 1.5] @ RNG.normal(size=(3, 8)) + 0.7 * RNG.normal(size=(70, 8)) + 20.0
WIDE = RNG.normal(size=(24, 3)) * [4.0, 2.5, 1.5] @ RNG.normal(size=(3, 60)) + 0.7 * RNG.normal(size=(24, 60)) + 20.0


def exactly(eigenvalues, samples, seed=0):
    """Samples whose covariance has just these eigenvalues."""
    rng, d = np.random.default_rng(seed), len(eigenvalues)
    white = np.linalg.qr(np.column_stack([np.ones(samples), rng.normal(size=(samples, d))]))[0][:, 1:]
    return white * np.sqrt(samples) * np.sqrt(eigenvalues) @ np.linalg.qr(rng.normal(size=(d, d)))[0]


def blocks(sizes, axis, length, replicates, seed=0):
    """The rows of each replicate: blocks that begin anywhere along an axis."""
    rng, samples = np.random.default_rng(seed), int(np.prod(sizes))
    runs = np.moveaxis(np.arange(samples).reshape(sizes), axis, -1).reshape(-1, sizes[axis])
    for _ in range(replicates):
        pieces = []
        for start in rng.integers(len(runs) * (sizes[axis] - length + 1), size=int(np.ceil(samples / length))):
            run, first = divmod(start, sizes[axis] - length + 1)
            pieces.append(runs[run, first : first + length])
        yield np.concatenate(pieces)[:samples]


def refits(x, rows_of_replicates, model):
    """Standard deviations of the loadings and of the ratios of PPCA fitted to the rows of each replicate."""
    loadings, ratios = [], []
    for rows in rows_of_replicates:
        about = x[rows] - x[rows].mean(axis=0)
        _, lengths, directions = np.linalg.svd(about, full_matrices=False)
        values = lengths**2 / len(x)
        noise = values[K:].sum() / (x.shape[1] - K)
        alike = model.components_ / np.linalg.norm(model.components_, axis=1)[:, None] @ directions[:K].T
        _, order = linear_sum_assignment(-np.abs(alike))
        signs = np.sign(alike[np.arange(K), order])
        loadings.append((directions[order].T * signs * np.sqrt(values[order] - noise)).T)
        ratios.append(values[order] / values.sum())
    return np.std(loadings, axis=0, ddof=1), np.array(ratios)


@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize("x", [TALL, WIDE], ids=["tall", "wide"])
def test_the_bootstrap_is_that_of_refits(x, length):
    model = PPCA(K).fit(x)
    found = model.bootstrap(x, block_length=length, n_replicates=R)
    errors, ratios = refits(x, blocks(x.shape[:1], 0, length, R), model)
    np.testing.assert_allclose(found["loadings_error"].values, errors.T, rtol=1e-6)
    np.testing.assert_allclose(found["replicate_ratio"].values, ratios, rtol=1e-9)
    np.testing.assert_allclose(found["explained_variance_ratio_error"], ratios.std(axis=0, ddof=1), rtol=1e-7)
    np.testing.assert_array_equal(found["loadings"].values, model.components_.T)
    np.testing.assert_array_equal(found["explained_variance_ratio"], model.explained_variance_ratio_)
    assert found.attrs == {"block_length": length, "n_replicates": R}


def test_blocks_stay_within_the_members_of_an_ensemble():
    data = xr.DataArray(
        np.stack([WIDE, WIDE[::-1]]).reshape(2, 24, 6, 10) + np.random.default_rng(7).normal(size=(2, 24, 6, 10)),
        dims=("member", "time", "lat", "lon"),
        coords={"time": pd.date_range("2001-01", periods=24, freq="MS"), "lat": np.linspace(-50, 60, 6)},
        name="sst",
        attrs={"units": "K"},
    )
    model = PPCA(K).fit(data, dim=("member", "time"), weights="coslat")
    roots = np.sqrt(np.cos(np.deg2rad(data["lat"]))).values[:, None]
    x = (data.values * roots).reshape(48, -1)
    for dim, axis, length in ((None, 1, 6), ("time", 1, 24), ("member", 0, 2)):
        found = model.bootstrap(data, block_length=length, n_replicates=R, dim=dim)
        errors, ratios = refits(x, blocks((2, 24), axis, length, R), model)
        np.testing.assert_allclose(found["replicate_ratio"].values, ratios, rtol=1e-9)
        assert found["loadings_error"].dims == ("lat", "lon", "component")
        assert found["loadings_error"].attrs == {"units": "K", "long_name": "loadings error of sst"}
        expected = errors.T.reshape(6, 10, K) / roots[:, :, None]
        np.testing.assert_allclose(found["loadings_error"].values, expected, rtol=1e-6)


def test_one_block_of_all_samples_is_the_fit_itself():
    model = PPCA(K).fit(TALL)
    found = model.bootstrap(TALL, block_length=len(TALL), n_replicates=5)
    np.testing.assert_allclose(found["replicate_ratio"], np.tile(model.explained_variance_ratio_, (5, 1)), rtol=1e-9)
    assert float(found["loadings_error"].max()) < 1e-9


def test_errors_of_independent_samples_are_those_of_theory():
    """The delta method for λ_1/Σλ, where var λ_j = 2λ_j²/N as North's rule has it."""
    values, n = np.array([9.0, 4.0, 1.0, 0.5, 0.3, 0.2]), 2000
    x = exactly(values, n, seed=1)
    found = PPCA(2).fit(x).bootstrap(x, block_length=1, n_replicates=600)
    share = values / values.sum()
    expected = np.sqrt(2 / n) * share * np.sqrt(1 - 2 * share + (share**2).sum())
    np.testing.assert_allclose(found["explained_variance_ratio_error"], expected[:2], rtol=0.12)


def test_blocks_find_the_errors_of_a_slow_series_larger():
    rng = np.random.default_rng(8)
    slow = np.repeat(rng.normal(size=(60, 2)), 10, axis=0) * [3.0, 1.5]
    x = slow @ rng.normal(size=(2, 6)) + 0.3 * rng.normal(size=(600, 6))
    model = PPCA(2).fit(x)
    one, many = (model.bootstrap(x, block_length=length)["explained_variance_ratio_error"] for length in (1, 30))
    assert (many.values[:1] > 2.0 * one.values[:1]).all()


def test_fewer_axes_give_the_errors_of_what_lies_along_them():
    model = PPCA(K).fit(WIDE)
    whole, some = (model.bootstrap(WIDE, block_length=2, n_axes=n) for n in (500, 12))
    np.testing.assert_allclose(
        some["explained_variance_ratio_error"], whole["explained_variance_ratio_error"], rtol=0.05
    )
    assert (some["loadings_error"].mean("feature") < whole["loadings_error"].mean("feature")).all()


def test_lazy_data_have_the_same_errors():
    dask = pytest.importorskip("dask.array", reason="dask is not installed")
    lazy = dask.from_array(TALL, chunks=(20, 8))
    model = PPCA(K).fit(TALL)
    usual = model.bootstrap(TALL, block_length=5, n_replicates=R)
    xr.testing.assert_allclose(model.bootstrap(lazy, block_length=5, n_replicates=R), usual, rtol=1e-6)


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
def test_in_units_of_spreads_errors_are_those_of_data_in_these_units(layout):
    x = TALL * np.geomspace(1e-3, 1e3, 8)
    model = PPCA(K, scale="spread").fit(layout(x))
    units = model.result_["feature_scale"].values
    found = model.bootstrap(layout(x), block_length=5, n_replicates=R)
    expected = PPCA(K).fit(x / units).bootstrap(x / units, block_length=5, n_replicates=R)
    np.testing.assert_allclose(found["loadings_error"], expected["loadings_error"] * units[:, None], rtol=1e-6)
    np.testing.assert_allclose(found["replicate_ratio"], expected["replicate_ratio"], rtol=1e-8)
    np.testing.assert_array_equal(found["loadings"].values, model.components_.T)


REFUSED = {
    "long blocks": ({"block_length": 71}, "block_length is 71; expected 1 to 70, the samples along 'sample'"),
    "no blocks": ({"block_length": 0}, "block_length is 0"),
    "one replicate": ({"block_length": 5, "n_replicates": 1}, "n_replicates is 1"),
    "few axes": ({"block_length": 5, "n_axes": 2}, "n_axes 2; expected at least 2, and 3 components"),
    "another dim": ({"block_length": 5, "dim": "time"}, r"dim is 'time'; the samples lie along \('sample',\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    options, words = REFUSED[case]
    with pytest.raises(DataError, match=words):
        PPCA(K).fit(TALL).bootstrap(TALL, **options)


def test_other_data_and_models_are_refused():
    with pytest.raises(DataError, match="expecting 8 features"):
        PPCA(K).fit(TALL).bootstrap(TALL[:, 1:], block_length=2)
    assert not hasattr(PPCA(K, missing="nan").fit(TALL), "bootstrap")


NORTH = [14.02, 12.61, 10.67, 10.43, 3.0, 1.0]


@pytest.mark.parametrize(("samples", "pairs"), [(300, {(0, 1), (2, 3)}), (1000, {(2, 3)})])
def test_north_and_others_find_the_neighbours_of_their_example(samples, pairs):
    """The example of North et al. (1982): of the eigenvalues 14.02, 12.61, 10.67 and 10.43 the patterns of both pairs
    are mixed with 300 samples, and with 1,000 those of the second pair alone."""
    model = PPCA(4).fit(exactly(NORTH, samples))
    found = model.north_rule()
    np.testing.assert_allclose(found["eigenvalue"], NORTH[:4], rtol=1e-9)
    np.testing.assert_allclose(found["eigenvalue_error"], np.array(NORTH[:4]) * np.sqrt(2 / samples), rtol=1e-9)
    mixed = {tuple(sorted(pair)) for pair in np.argwhere(found["overlaps"].values).tolist()}
    assert mixed == pairs
    np.testing.assert_array_equal(found["overlaps"], found["overlaps"].T)
    assert not np.diag(found["overlaps"]).any()


def test_samples_that_are_not_independent_count_less():
    model = PPCA(4).fit(exactly(NORTH, 1000))
    xr.testing.assert_allclose(
        model.north_rule(n_effective=300)["eigenvalue_error"],
        PPCA(4).fit(exactly(NORTH, 300)).north_rule()["eigenvalue_error"],
    )
    with pytest.raises(DataError, match="n_effective is 0"):
        model.north_rule(n_effective=0)
