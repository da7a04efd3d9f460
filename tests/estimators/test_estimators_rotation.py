"""Rotated components of PPCA: the same variance in other axes, and those of xeofs."""

from __future__ import annotations

import warnings

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import xarray as xr

from dlatent import PPCA, FactorAnalysis, GraphPPCA, RelationalPPCA
from dlatent.errors import DataError

N, LAT, LON, K = 90, 6, 9, 3
RNG = np.random.default_rng(3)
PATTERNS = np.kron(np.eye(3), np.ones(LAT * LON // 3)) + 0.3 * RNG.normal(size=(3, LAT * LON))
VALUES = RNG.normal(size=(N, 3)) * [3.0, 2.5, 2.0] @ PATTERNS + RNG.normal(size=(N, LAT * LON)) + 5.0
X = xr.DataArray(
    VALUES.reshape(N, LAT, LON),
    dims=("time", "lat", "lon"),
    coords={"time": np.arange(N), "lat": np.linspace(-50, 60, LAT), "lon": np.arange(LON) * 10.0},
    name="sst",
    attrs={"units": "K"},
)
CHAIN = sp.csr_array(np.eye(N, k=1) + np.eye(N, k=-1))
MODELS = {
    "ppca": (PPCA(K), {}),
    "whitened": (PPCA(K, whiten=True), {}),
    "scaled": (PPCA(K, scale="spread"), {}),
    "relational": (RelationalPPCA(K), {"graph": CHAIN}),
    "graph": (GraphPPCA(K, smoothing=1.0), {"graph": CHAIN}),
}


@pytest.mark.parametrize("method", ["varimax", "quartimax", "promax", "oblimin"])
@pytest.mark.parametrize("name", MODELS)
def test_the_variance_along_the_components_is_that_of_the_rotated_ones(name, method):
    model, more = MODELS[name]
    found = model.fit(VALUES, **more).rotated(method)
    loadings, between = found["loadings"].values, found["correlations"].values
    units = model.result_["feature_scale"].values if name == "scaled" else np.ones(LAT * LON)
    directions = model.components_ / units
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    covariance = directions.T * model.explained_variance_ @ directions * units[:, None] * units
    np.testing.assert_allclose(loadings @ between @ loadings.T, covariance, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.diag(between), 1.0, rtol=1e-9)
    ratios = found["explained_variance_ratio"].values
    assert ratios.sum() == pytest.approx(model.explained_variance_ratio_.sum(), rel=1e-9)
    if method in ("varimax", "quartimax"):
        assert (np.diff(ratios) < 0).all()
        np.testing.assert_allclose(between, np.eye(K), atol=1e-12)


@pytest.mark.parametrize("method", ["varimax", "promax"])
@pytest.mark.parametrize("name", ["ppca", "whitened", "scaled"])
def test_rotated_scores_have_variance_one_and_their_correlations(name, method):
    model = MODELS[name][0].fit(VALUES)
    found = model.rotated(method)
    scores = model.transform(VALUES) @ np.linalg.inv(found["transformation"].values).T
    np.testing.assert_allclose(np.cov(scores.T, bias=True), found["correlations"].values, rtol=1e-9, atol=1e-9)


METHODS = ["varimax", "quartimax", "promax", "oblimin"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("weights", [None, "coslat"])
def test_rotated_scores_times_loadings_are_the_field_projected_onto_the_components(method, whiten, weights):
    roots = np.ones((LAT, LON)) if weights is None else np.sqrt(np.cos(np.deg2rad(X["lat"]))).values[:, None]
    centred = (X - X.mean("time")).values * roots
    axes = np.linalg.svd(centred.reshape(N, -1))[2][:K]
    projected = (centred.reshape(N, -1) @ axes.T @ axes).reshape(X.shape) / roots + X.mean("time").values
    model = PPCA(K, whiten=whiten).fit(X, dim="time", weights=weights)
    found = model.rotated(method, model.transform(X))
    back = found["scores"] @ found["loadings"] + model.result_["mean"]
    np.testing.assert_allclose(back.transpose(*X.dims), projected, rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rotation", [None, "promax"])
@pytest.mark.parametrize("scores", ["regression", "bartlett"])
def test_rotated_scores_of_factors_times_loadings_are_what_the_factors_expect(method, rotation, scores):
    model = FactorAnalysis(K, rotation=rotation).fit(X, dim="time")
    own = model.transform(X, scores=scores)
    found = model.rotated(method, own)
    back = found["scores"] @ found["loadings"] + model.result_["mean"]
    np.testing.assert_allclose(back.transpose(*X.dims), model.inverse_transform(own), rtol=1e-9)


def test_rotated_scores_have_names_coordinates_and_units_and_stay_lazy():
    months = X.assign_coords(month=("time", np.arange(N) % 12))
    model = PPCA(K).fit(months, dim="time")
    found = model.rotated("promax", model.transform(months))
    scores = found["scores"]
    assert scores.dims == ("time", "component")
    assert scores.attrs == {"long_name": "scores of sst", "units": "1"}
    assert found["loadings"].attrs["units"] == "K"
    xr.testing.assert_equal(scores["month"].drop_vars("month"), months["month"].drop_vars("month"))
    np.testing.assert_array_equal(scores["component"], np.arange(K))
    lazy = model.rotated("promax", model.transform(months.chunk({"time": 30}).astype(np.float32)))["scores"]
    assert isinstance(lazy.data, da.Array)
    assert lazy.dtype == np.float32
    np.testing.assert_allclose(lazy.compute(), scores, rtol=1e-3, atol=1e-4)
    plain = model.rotated("promax", model.transform(months).values)["scores"]
    assert plain.dims == ("sample", "component")
    np.testing.assert_array_equal(plain, scores.values)
    members = xr.concat([X, X + 1.0], dim="member")
    both = model.rotated("promax", model.transform(members))["scores"]
    assert both.dims == ("member", "time", "component")
    np.testing.assert_allclose(both[0].values, scores.values, rtol=1e-9, atol=1e-12)
    with pytest.raises(DataError, match=r"the scores have shape \(90, 2\)"):
        model.rotated("promax", model.transform(months).values[:, :2])


@pytest.mark.parametrize(("method", "power"), [("varimax", 1), ("promax", 2), ("promax", 4)])
def test_rotated_components_are_those_of_xeofs(method, power):
    xeofs = pytest.importorskip("xeofs", reason="xeofs is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = xeofs.single.EOF(n_modes=K, use_coslat=True, solver="full").fit(X, dim="time")
        turned = xeofs.single.EOFRotator(n_modes=K, power=power, rtol=1e-14, max_iter=10_000).fit(theirs)
        maps, series, shares = turned.components(), turned.scores(), turned.explained_variance_ratio()
        correlations = turned.data["phi_matrix"].values
    model = PPCA(K).fit(X, dim="time", weights="coslat")
    found = model.rotated(method, power=power)
    assert found["loadings"].dims == ("lat", "lon", "component")
    assert found["loadings"].attrs == {"units": "K", "long_name": "loadings of sst"}
    weighted = (found["loadings"] * np.sqrt(np.cos(np.deg2rad(X["lat"])))).values.reshape(-1, K)
    other = maps.transpose("lat", "lon", "mode").values.reshape(-1, K) * np.sqrt(
        (weighted**2).sum(axis=0)
    )  # xeofs gives them length 1
    signs = np.sign((weighted * other).sum(axis=0))
    np.testing.assert_allclose(weighted * signs, other, atol=1e-5)
    inverse = np.linalg.inv(found["transformation"].values).T
    ours = model.transform(X).values @ inverse * signs
    both = series.transpose("time", "mode").values
    np.testing.assert_allclose(ours, both / both.std(axis=0), atol=1e-5)
    if method == "varimax":  # theirs of oblique ones is Σ λ², whatever the correlations
        np.testing.assert_allclose(found["explained_variance_ratio"], shares, rtol=1e-5)
    both = (np.sort(np.abs(each), axis=None) for each in (found["correlations"].values, correlations))
    np.testing.assert_allclose(next(both), next(both), atol=1e-5)


def test_components_that_are_off_and_levels_of_rows_stay_as_they_are():
    rng = np.random.default_rng(4)
    holes = VALUES + 2.0 * rng.normal(size=(N, 1))
    holes[rng.random(VALUES.shape) < 0.1] = np.nan
    model = PPCA(5, missing="nan", row_effects=True, scale="none").fit(holes)
    turn = model.rotated()["transformation"].values
    off = np.flatnonzero(~model.components_[:5].any(axis=0)).tolist()
    np.testing.assert_array_equal(model.rotated()["loadings"].values[:, -1], model.components_[-1])
    assert np.count_nonzero(turn[-1]) == np.count_nonzero(turn[:, -1]) == 1
    assert off == []


def test_another_method_is_refused():
    with pytest.raises(DataError, match=r"method is 'equamax'; expected 'varimax', .* or 'oblimin'"):
        PPCA(K).fit(VALUES).rotated("equamax")
