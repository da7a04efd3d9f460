"""Features over several dimensions: fits are those of the stacked matrix, and results come back as the data lay."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from dlatent import (
    PPCA,
    CorrespondencePPCA,
    FactorAnalysis,
    GraphPPCA,
    KernelPPCA,
    LocallyLinearEmbedding,
    PPCAMixture,
    RelationalPPCA,
    SupervisedPPCA,
    load,
    select_n_components,
)
from dlatent.arrays import AxisLabels
from dlatent.errors import DataError
from dlatent.fitted.cells import features_of
from dlatent.fitted.grid import flattened, grid_of, spread
from dlatent.models.labelled import unwrap

T, LAT, LON = 40, 5, 4
SEA = np.ones((LAT, LON), dtype=bool)
SEA[1, 2] = SEA[4, :2] = False


def field(seed: int = 0) -> xr.DataArray:
    """A field of rank 2 with noise, land where nothing was ever measured, coordinates of every kind, and units."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(T, 2)) @ rng.normal(size=(2, LAT * LON)) + 0.1 * rng.normal(size=(T, LAT * LON)) + 3.0
    coords = {
        "time": pd.date_range("2001-01-01", periods=T, freq="D"),
        "month": ("time", np.arange(T) % 12),
        "lat": ("lat", np.linspace(-60.0, 60.0, LAT), {"units": "degrees_north"}),
        "lon": np.arange(LON) * 10,
        "region": (("lat", "lon"), np.where(np.arange(LON) < 2, "west", "east") + np.zeros((LAT, 1), dtype="<U1")),
        "depth": 5.0,
    }
    attrs = {"units": "K", "long_name": "temperature", "valid_range": np.array([0.0, 9.0]), "odd": object()}
    whole = xr.DataArray(values.reshape(T, LAT, LON), dims=("time", "lat", "lon"), coords=coords, name="sst")
    return whole.where(xr.DataArray(SEA, dims=("lat", "lon"))).assign_attrs(attrs)


X = field()
MATRIX = X.values.reshape(T, -1)[:, SEA.ravel()]
WEIGHTS = np.cos(np.deg2rad(X["lat"]))
ROOTS = np.sqrt(np.broadcast_to(WEIGHTS.values[:, None], (LAT, LON))[SEA])
CELLS = X.stack(cell=("lat", "lon")).isel(cell=np.flatnonzero(SEA))
X2 = MATRIX[:, :7].copy()
LABELS = np.where(np.arange(T) < 30, np.arange(T) % 2, -1)
CHAIN = sp.csr_array(np.eye(T, k=1) + np.eye(T, k=-1))
MODELS = {
    "ppca": (PPCA(2), {}),
    "missing": (PPCA(2, missing="nan"), {}),
    "factors": (FactorAnalysis(2), {}),
    "kernel": (KernelPPCA(2), {}),
    "mixture": (PPCAMixture(2, 1), {}),
    "supervised": (SupervisedPPCA(2), {"y": LABELS}),
    "relational": (RelationalPPCA(2), {"graph": CHAIN}),
    "smoothed": (GraphPPCA(2, smoothing=1.0), {"graph": CHAIN}),
}
INPUTS = {
    "as it is": X,
    "time last": X.transpose("lat", "lon", "time"),
    "time between": X.transpose("lon", "time", "lat"),
    "dask": X.chunk({"time": T}),
    "dask in pieces": X.chunk({"time": T, "lat": 2, "lon": 3}),
    "a dataset": X.to_dataset().assign(depths=("lat", np.zeros(LAT))),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_fit_is_that_of_the_stacked_matrix(name):
    model, more = MODELS[name]
    plain, own = model.fit(MATRIX, **more), type(model)(**model.get_params()).fit(X, dim="time", **more)
    assert own.log_likelihood_ == plain.log_likelihood_
    assert own.n_features_in_ == SEA.sum()
    found = own.transform(X)
    assert found.dims == ("time", "component")
    np.testing.assert_array_equal(found, plain.transform(MATRIX))
    xr.testing.assert_identical(
        found["month"].drop_vars(["time", "depth"], errors="ignore"), X["month"].drop_vars(["time", "depth"])
    )


@pytest.mark.parametrize("kind", ["as it is", "time last", "a dataset"])
def test_an_embedding_is_that_of_the_stacked_matrix(kind, tmp_path):
    own = LocallyLinearEmbedding(n_neighbors=8).fit(INPUTS[kind], dim="time")
    rows = MATRIX if kind != "time last" else INPUTS[kind].transpose("time", ...).values.reshape(T, -1)[:, SEA.ravel()]
    plain = LocallyLinearEmbedding(n_neighbors=8).fit(rows)
    np.testing.assert_array_equal(own.embedding_, plain.embedding_)
    found, new = own.transform(X[:5].transpose("lon", "time", "lat")), plain.transform(rows[:5])
    assert found.dims == ("time", "component")
    np.testing.assert_array_equal(found, new)
    own.save(tmp_path / "m.zarr")
    np.testing.assert_array_equal(load(tmp_path / "m.zarr").transform(X[:5]), new)
    with pytest.raises(DataError, match=r"'lat' is .* at position 0"):
        own.transform(X[:5].isel(lat=slice(None, None, -1)))


def test_the_weights_of_cells_are_those_of_their_distances():
    own = LocallyLinearEmbedding(n_neighbors=8).fit(X, dim="time", weights=WEIGHTS)
    plain = LocallyLinearEmbedding(n_neighbors=8).fit(MATRIX * ROOTS)
    np.testing.assert_array_equal(own.embedding_, plain.embedding_)
    np.testing.assert_array_equal(own.transform(X[:5]), plain.transform(MATRIX[:5] * ROOTS))
    same = LocallyLinearEmbedding(n_neighbors=8).fit_transform(X, dim="time", weights=WEIGHTS)
    np.testing.assert_array_equal(same, own.embedding_)
    assert str(own.plan(X, dim="time")) == str(own.plan(MATRIX))
    with pytest.raises(DataError, match=r"cell lat=-60\.0 lon=10"):
        own.fit(X.where((X["month"] > 0) | (X["lon"] != 10) | (X["lat"] > -60)), dim="time")


@pytest.mark.parametrize("kind", INPUTS)
def test_the_order_of_dimensions_and_the_kind_of_input_change_nothing(kind):
    usual, own = PPCA(2).fit(X, dim="time"), PPCA(2).fit(INPUTS[kind], dim="time")
    data = usual.result_[["loadings", "mean"]]
    xr.testing.assert_allclose(own.result_[["loadings", "mean"]].transpose(*data.sizes), data, rtol=1e-10)
    np.testing.assert_allclose(own.transform(X), usual.transform(INPUTS[kind]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("ending", ["zarr", "nc"])
def test_a_path_of_a_dataset_is_opened(ending, tmp_path):
    data, place = X.drop_attrs().to_dataset(), tmp_path / f"sst.{ending}"
    if ending == "nc":
        pytest.importorskip("h5netcdf", reason="xarray reads netCDF 4 by h5netcdf, and it is not installed")
        data.to_netcdf(place, engine="h5netcdf")
    else:
        data.chunk({"time": 10}).to_zarr(place, zarr_format=2)  # the oldest xarray reads no newer one
    with pytest.raises(DataError, match=rf"fit\('.*{ending}', dim='time'\)"):
        PPCA(2).fit(place)
    own, usual = PPCA(2).fit(str(place), dim="time", weights=WEIGHTS), PPCA(2).fit(X, dim="time", weights=WEIGHTS)
    np.testing.assert_allclose(own.components_, usual.components_, rtol=1e-10, atol=1e-12)
    own.save(tmp_path / "model.zarr")
    xr.testing.assert_allclose(load(tmp_path / "model.zarr").transform(place), usual.transform(X.drop_attrs()))


def test_results_lie_over_the_dimensions_of_the_data():
    model = FactorAnalysis(2).fit(X, dim="time")
    plain = FactorAnalysis(2).fit(MATRIX)
    found = model.result_
    assert found["loadings"].dims == ("lat", "lon", "component")
    assert found["feature_noise_variance"].dims == ("lat", "lon")
    np.testing.assert_array_equal(found["loadings"].values[SEA], plain.components_.T)
    assert np.isnan(found["loadings"].values[~SEA]).all()
    np.testing.assert_array_equal(found["feature_noise_variance"].values[SEA], plain.noise_variance_)
    assert found["feature_at_floor"].dtype == bool
    for name in ("lat", "lon", "region"):
        xr.testing.assert_equal(found[name].drop_vars("depth", errors="ignore"), X[name].drop_vars("depth"))
    assert found["lat"].attrs == {"units": "degrees_north"}
    assert found["mean"].attrs["units"] == "K"
    assert found["feature_noise_variance"].attrs["units"] == "(K)^2"
    assert found["loadings"].attrs["long_name"] == "loadings of temperature"
    turned = model.rotated()["loadings"]
    assert turned.dims == ("lat", "lon", "component")
    assert np.isnan(turned.values[~SEA]).all()
    assert len(model.result_.data_vars) == len(plain.result_.data_vars)


def test_scores_lead_back_to_the_field():
    model = PPCA(2).fit(X, dim="time")
    back = model.inverse_transform(model.transform(X))
    assert back.dims == X.dims
    assert back.name == "sst"
    assert back.attrs["units"] == "K"
    assert back.attrs["valid_range"] == [0.0, 9.0]
    xr.testing.assert_equal(back["time"].drop_vars("month"), X["time"].drop_vars(["month", "depth"]))
    np.testing.assert_array_equal(np.isnan(back), np.isnan(X))
    assert float(np.abs(back - X).max()) < 0.6
    unlabelled = model.inverse_transform(model.transform(X).values)
    np.testing.assert_array_equal(unlabelled.values, back.values)
    assert unlabelled.dims == ("sample", "lat", "lon")
    assert model.sample(3, random_state=0).sizes == {"sample": 3, "lat": LAT, "lon": LON}
    assert SupervisedPPCA(2).fit(X, LABELS, dim="time").sample(3)[0].dims == ("sample", "lat", "lon")
    assert RelationalPPCA(2).fit(X, graph=CHAIN, dim="time").sample(3).dims == ("sample", "lat", "lon")
    mixed = PPCAMixture(2, 1).fit(X, dim="time")
    assert mixed.reconstruct(X).dims == X.dims
    assert mixed.sample(3)[0].dims == ("sample", "lat", "lon")


@pytest.mark.parametrize(("start", "step"), [(0.0, 10.0), (5e6, 10.0), (-1.0, 0.25), (3.0, 0.0)])
def test_coordinates_may_differ_by_a_hundredth_of_a_step(start, step):
    lengths = {"lat": LAT, "lon": LON if step else 1}
    values = np.random.default_rng(1).normal(size=(T, *lengths.values()))
    own = xr.DataArray(values, dims=("time", *lengths), coords={"lon": start + step * np.arange(lengths["lon"])})
    model = PPCA(2).fit(own, dim="time")
    for near in (-1.3e-8, 0.009 * step, -0.009 * step):
        moved = model.transform(own.assign_coords(lon=own["lon"] + near))
        np.testing.assert_array_equal(moved, model.transform(own))
    np.testing.assert_array_equal(model.transform(own.assign_coords(lon=own["lon"].astype(np.float32))), moved)
    for far in (0.1 * (step or 1.0), step or 1.0):
        with pytest.raises(DataError, match=r"the coordinate 'lon' is .* at position 0, where the model was fitted to"):
            model.transform(own.assign_coords(lon=own["lon"] + far))


def test_one_sample_without_its_dimension_is_refused_with_the_way_out():
    model = PPCA(2).fit(X, dim="time")
    with pytest.raises(DataError, match=r"those of one sample; .* X\.expand_dims\('time'\), .* X\.isel\(time=\[0\]\)"):
        model.transform(X.isel(time=0))
    expected = model.transform(X)[:1].values
    np.testing.assert_allclose(model.transform(X.isel(time=0).expand_dims("time")), expected, rtol=1e-12)
    np.testing.assert_allclose(model.transform(X.isel(time=[0])), expected, rtol=1e-12)


def test_results_of_a_field_of_several_variables_become_a_Dataset_that_the_model_takes():
    fields = xr.Dataset({"sst": X, "slp": (X * 2.0).assign_attrs(units="hPa")})
    model = PPCA(2, scale="spread").fit(fields, dim="time")
    back = model.inverse_transform(model.transform(fields)).to_dataset("variable")
    assert {*back.data_vars} == {"slp", "sst"}
    assert model.transform(back).dims == ("time", "component")


@pytest.mark.parametrize("options", [{}, {"weights": WEIGHTS}, {"scale": "spread"}], ids=str)
def test_loadings_multiply_whitened_scores_and_inverse_transform_takes_both(options):
    scale = options.pop("scale", "none")
    model = PPCA(2, scale=scale).fit(X, dim="time", **options)
    back = model.inverse_transform(model.transform(X))
    model.whiten = True
    latent, result = model.transform(X), model.result_
    xr.testing.assert_allclose(back, latent @ result["loadings"] + result["mean"], rtol=1e-12)
    xr.testing.assert_allclose(back, model.inverse_transform(latent), rtol=1e-12)


PARTS = {
    "units": (PPCA(3), ()),
    "whitened": (PPCA(3, whiten=True), ()),
    "oblique": (FactorAnalysis(3, rotation="oblimin"), ()),
    "kernel": (KernelPPCA(3), ()),
    "mixture": (PPCAMixture(3, 2), (np.zeros(T, dtype=int),)),
    "views": (CorrespondencePPCA(3), ("sst",)),
}


@pytest.mark.parametrize("name", PARTS)
def test_components_without_a_label_in_the_scores_are_zero(name):
    model, more = PARTS[name]
    if name == "views":
        model = model.fit(xr.Dataset({"sst": X, "other": X * 2.0}), on="time")
        scores = model.transform({"sst": X})
        scores = xr.DataArray(np.asarray(scores), dims=("time", "component"), coords={"component": np.arange(3)})
    else:
        model = model.fit(X, dim="time")
        scores = model.transform(X)
    for some in ([0], [0, 2], [1]):
        others = [number for number in range(3) if number not in some]
        known = scores.copy()
        known.loc[{"component": others}] = 0.0
        found = model.inverse_transform(scores.sel(component=some), *more)
        assert found.dims == ("time", "lat", "lon")
        xr.testing.assert_allclose(found, model.inverse_transform(known, *more), rtol=1e-12)
    with pytest.raises(DataError, match=r"those of the model in another order \(first at 0: 2, the model has 0\)"):
        model.inverse_transform(scores.sel(component=[2, 0]), *more)
    with pytest.raises(DataError, match=r"shape \(40, 2\); expected samples × 3 components; of some of them"):
        model.inverse_transform(scores.values[:, :2], *more)
    with pytest.raises(DataError, match="shape"):
        model.inverse_transform(scores.isel(component=[0, 0]), *more)
    with pytest.raises(DataError, match=r"of component 1, without a dimension for it; .*sel\(component=\[1\]\)"):
        model.inverse_transform(scores.sel(component=1), *more)


def test_some_components_of_lazy_scores_stay_lazy_in_their_precision():
    model = PPCA(3).fit(X, dim="time")
    scores = model.transform(X.chunk({"time": 8}).astype(np.float32)).sel(component=[0, 2])
    found = model.inverse_transform(scores)
    assert isinstance(found.data, da.Array)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.compute(), model.inverse_transform(scores.compute()))


def test_weights_are_square_roots_on_the_features_and_results_are_without_them():
    own, by_hand = PPCA(2).fit(X, dim="time", weights=WEIGHTS), PPCA(2).fit(MATRIX * ROOTS)
    assert own.log_likelihood_ == by_hand.log_likelihood_
    np.testing.assert_array_equal(own.transform(X), by_hand.transform(MATRIX * ROOTS))
    expected = by_hand.inverse_transform(by_hand.transform(MATRIX * ROOTS)) / ROOTS
    np.testing.assert_allclose(own.inverse_transform(own.transform(X)).values[:, SEA], expected, rtol=1e-12)
    np.testing.assert_allclose(own.result_["mean"].values[SEA], MATRIX.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(own.result_["loadings"].values[SEA], by_hand.components_.T / ROOTS[:, None], rtol=1e-12)
    factors = FactorAnalysis(2).fit(X, dim="time", weights=WEIGHTS).result_["feature_noise_variance"]
    noise = FactorAnalysis(2).fit(MATRIX * ROOTS).noise_variance_
    np.testing.assert_allclose(factors.values[SEA], noise / ROOTS**2, rtol=1e-12)


def test_cells_of_weight_zero_are_no_features():
    weights = xr.DataArray(np.array([0.0, 1.0, 1.0, 4.0, 1.0]), dims="lat", coords={"lat": X["lat"]})
    model = PPCA(2).fit(X, dim="time", weights=weights)
    assert model.n_features_in_ == SEA[1:].sum()
    assert np.isnan(model.result_["mean"].values[0]).all()


@pytest.mark.parametrize("chunked", [False, True])
def test_holes_are_filled_where_the_data_lay(chunked, tmp_path):
    rng = np.random.default_rng(1)
    data = X.where(xr.DataArray(rng.random(X.shape) > 0.1, dims=X.dims))
    data[0] = X[0]
    holes = np.isnan(data.values[:, SEA])
    model, plain = (PPCA(2, missing="nan") for _ in range(2))
    plain.fit(data.values[:, SEA])
    given = data.chunk({"time": 17, "lon": 2}) if chunked else data
    model.fit(data, dim="time", weights=WEIGHTS * 0 + 4.0)
    filled, spreads = model.impute(given), model.impute_variance(given)
    assert filled.dims == X.dims
    assert dask.is_dask_collection(filled.data) is chunked
    np.testing.assert_allclose(filled.values[:, SEA], plain.impute(data.values[:, SEA]), rtol=1e-5)
    np.testing.assert_allclose(spreads.values[:, SEA], plain.impute_variance(data.values[:, SEA]), rtol=1e-4)
    assert np.isnan(filled.values[:, ~SEA]).all()
    assert (spreads.values[:, SEA][holes] > 0).all()
    assert filled.attrs["units"] == "K"
    assert spreads.attrs["units"] == "(K)^2"
    for name, method, found in (("imputed", "impute", filled), ("imputed_variance", "impute_variance", spreads)):
        getattr(model, method)(given, out=tmp_path / f"{name}.zarr")
        stored = xr.open_zarr(tmp_path / f"{name}.zarr")[name]
        np.testing.assert_allclose(stored.values, found.values[:, SEA], rtol=1e-12)


def test_a_cell_that_only_the_first_sample_lacks_is_a_feature():
    late = X.copy()
    late[0, 0, 0] = np.nan
    model = PPCA(2, missing="nan").fit(late, dim="time")
    assert model.n_features_in_ == SEA.sum()
    assert not np.isnan(model.result_["mean"].values[0, 0])


def test_a_model_is_saved_with_its_grid(tmp_path):
    for number, (data, weights) in enumerate([(X, WEIGHTS), (X, None), (X[:, 0], None), (CELLS, None)]):
        model = PPCA(2).fit(data, dim="time", weights=weights)
        model.save(tmp_path / f"{number}.zarr")
        again = load(tmp_path / f"{number}.zarr")
        xr.testing.assert_identical(again.result_, model.result_)
        xr.testing.assert_identical(again.transform(data), model.transform(data))
        xr.testing.assert_identical(
            again.inverse_transform(model.transform(data)), model.inverse_transform(model.transform(data))
        )
    assert isinstance(again.result_.indexes["cell"], pd.MultiIndex)
    xr.testing.assert_equal(again.result_["loadings"].unstack("cell")["lat"], X["lat"].drop_vars("depth"))


def test_samples_along_a_multi_index_can_be_unstacked():
    double = xr.concat([X, field(1)], dim="member").stack(sample=("member", "time"))
    scores = PPCA(2).fit(double, dim="sample").transform(double)
    assert scores.unstack("sample").sizes == {"component": 2, "member": 2, "time": T}
    first = scores.unstack("sample").sel(member=0).transpose("time", ...)
    np.testing.assert_array_equal(first, scores.values[:T])


def test_two_dimensions_by_name():
    flat = xr.DataArray(MATRIX.T, dims=("band", "site"), coords={"band": [f"b{i}" for i in range(MATRIX.shape[1])]})
    own, plain = PPCA(2).fit(flat, dim="site"), PPCA(2).fit(MATRIX)
    np.testing.assert_array_equal(own.components_, plain.components_)
    assert own.feature_names_in_[:2].tolist() == ["b0", "b1"]
    assert own.result_["loadings"].dims == ("band", "component")
    assert own.transform(flat).dims == ("site", "component")
    assert type(own.inverse_transform(np.zeros((2, 2)))) is np.ndarray
    labelled = own.inverse_transform(own.transform(flat))
    assert labelled.dims == ("site", "band")
    assert labelled["band"].values.tolist() == flat["band"].values.tolist()


def test_facts_name_cells_by_their_coordinates():
    largest = PPCA(2).fit(X, dim="time")._summary()["components"][0]["largest"][0]["feature"]
    where = dict(part.split("=") for part in largest.split())
    found = np.abs(PPCA(2).fit(X, dim="time").result_["loadings"][..., 0])
    at = found.argmax(("lat", "lon"))
    assert where == {name: str(X[name].values[at[name].item()]) for name in ("lat", "lon")}


def test_variables_of_a_dataset_are_views(tmp_path):
    both = xr.Dataset({"sst": X, "flat": (("time", "band"), MATRIX[:, :5])})
    by_hand = CorrespondencePPCA(2).fit([MATRIX, MATRIX[:, :5]], correspondence=np.tile(np.arange(T)[:, None], 2))
    model = CorrespondencePPCA(2).fit(both, on="time")
    assert model.log_likelihood_ == by_hand.log_likelihood_
    model.save(tmp_path / "model.zarr")
    for own in (model, load(tmp_path / "model.zarr")):
        back = own.reconstruct(both["flat"], "flat", "sst")
        assert back.dims == ("time", "lat", "lon")
        np.testing.assert_array_equal(back.values[:, SEA], by_hand.reconstruct(MATRIX[:, :5], "1", "0"))
        np.testing.assert_array_equal(own.transform(both, on="time"), model.transform(both, on="time"))
        assert own.inverse_transform(np.zeros((1, 2)), "sst").dims == ("sample", "lat", "lon")


def test_the_number_of_components_is_chosen_over_a_grid():
    found = select_n_components(PPCA(), X, [1, 2, 3], dim="time")
    by_hand = select_n_components(PPCA(), MATRIX, [1, 2, 3])
    xr.testing.assert_equal(found, by_hand)
    assert found.attrs["best"] == 2


def test_a_plan_knows_the_features():
    assert str(PPCA(2).plan(X, dim="time")) == str(PPCA(2).plan(MATRIX))


REFUSED = {
    "no dim": (lambda: PPCA(2).fit(X), r"dimensions \('time', 'lat', 'lon'\).*fit\(X, dim='time'\)"),
    "unknown dim": (lambda: PPCA(2).fit(X, dim="day"), "dim is 'day'; the DataArray 'sst' has dimensions"),
    "numpy": (lambda: PPCA(2).fit(MATRIX, dim="time"), "dim is for an xarray DataArray or Dataset.*ndarray"),
    "several variables": (
        lambda: PPCA(2).fit(xr.Dataset({"a": X, "b": X.mean("lon")}), dim="time"),
        r"2 variables that may be meant, \['a', 'b'\]; pass one of them",
    ),
    "no dataset": (lambda: PPCA(2).fit("nowhere.nc", dim="time"), "xarray cannot open nowhere.nc.*install h5netcdf"),
    "no value": (lambda: PPCA(2).fit(X * np.nan, dim="time"), "no cell of the DataArray 'sst' has a value"),
    "no weight": (lambda: PPCA(2).fit(X, dim="time", weights=WEIGHTS * 0), "has a value and a weight"),
    "turned levels": (
        lambda: PPCA(2).fit(CELLS, dim="time").transform(CELLS[:, ::-1]),
        "'lat' is 60.0 at position 0.*fitted to -60.0",
    ),
    "weights of time": (
        lambda: PPCA(2).fit(X, dim="time", weights=X["month"]), "weights have the dimension 'time'",
    ),
    "negative weights": (lambda: PPCA(2).fit(X, dim="time", weights=-WEIGHTS), "finite numbers of at least 0"),
    "weights elsewhere": (
        lambda: PPCA(2).fit(X, dim="time", weights=WEIGHTS.assign_coords(lat=WEIGHTS["lat"] + 1)), "other coordinates",
    ),
    "weights of numpy": (lambda: PPCA(2).fit(X, dim="time", weights=np.ones(LAT)), "weights are of type ndarray"),
    "plain rows for weights": (
        lambda: PPCA(2).fit(X, dim="time", weights=WEIGHTS).transform(MATRIX), "give new data as a DataArray",
    ),
    "other dimensions": (
        lambda: PPCA(2).fit(X, dim="time").transform(X.rename(lon="x")), r"over \('lat', 'lon'\), so give these",
    ),
    "fewer cells": (lambda: PPCA(2).fit(X, dim="time").transform(X[:, 1:]), "'lat' has length 4.*fitted to 5"),
    "turned": (
        lambda: PPCA(2).fit(X, dim="time").transform(X[:, ::-1]), "'lat' is 60.0 at position 0.*fitted to -60.0",
    ),
    "a hole": (
        lambda: PPCA(2).fit(X, dim="time").transform(X.where(X["time"] != X["time"][3])),
        "row 3, cell lat=-60.0 lon=0, column 0 of the features is nan",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    call, words = REFUSED[case]
    with pytest.raises(DataError, match=words):
        call()


def with_entry(value: float) -> xr.DataArray:
    """The field with an entry at one time and place, behind some land."""
    found = X.copy(deep=True)
    found[7, 2, 3] = value
    return found


BAD_ENTRIES = {
    "fit": lambda bad: PPCA(2).fit(bad(np.nan), dim="time"),
    "fit of Dask": lambda bad: PPCA(2).fit(bad(np.nan).chunk({"time": 5}), dim="time"),
    "fit with weights": lambda bad: PPCA(2).fit(bad(np.nan), dim="time", weights=WEIGHTS),
    "fit around NaN": lambda bad: PPCA(2, missing="nan").fit(bad(np.inf), dim="time"),
    "mixture": lambda bad: PPCAMixture(2, 2).fit(bad(np.nan), dim="time"),
    "transform": lambda bad: PPCA(2).fit(X, dim="time").transform(bad(np.nan)),
    "transform of Dask": lambda bad: PPCA(2).fit(X, dim="time").transform(bad(np.nan).chunk({"time": 5})).compute(),
    "transform to a store": lambda bad: PPCA(2).fit(X, dim="time").transform(bad(np.nan), out="scores.zarr"),
}


@pytest.mark.parametrize("case", BAD_ENTRIES)
def test_an_entry_that_is_refused_is_named_by_its_cell(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"row 7, cell lat=0\.0 lon=30, column 10 of the features .*(nan|infinite)"):
        BAD_ENTRIES[case](with_entry)


BAD_VIEWS = {
    "fit": lambda good, bad: CorrespondencePPCA(2).fit(bad, on="time"),
    "fit of Dask": lambda good, bad: CorrespondencePPCA(2).fit(bad.chunk({"time": 5}), on="time"),
    "transform": lambda good, bad: CorrespondencePPCA(2).fit(good, on="time").transform(bad, on="time"),
    "one view": lambda good, bad: CorrespondencePPCA(2).fit(good, on="time").transform({"sst": bad["sst"]}),
}


@pytest.mark.parametrize("case", BAD_VIEWS)
def test_an_entry_of_a_view_is_named_by_its_cell(case):
    good, bad = (xr.Dataset({"sst": own, "flat": (("time", "band"), MATRIX[:, :5])}) for own in (X, with_entry(np.nan)))
    with pytest.raises(DataError, match=r"view 'sst', row 7, cell lat=0\.0 lon=30, column 10 of the features .*nan"):
        BAD_VIEWS[case](good, bad)


@given(
    order=st.permutations(["t", "a", "b", "c"]),
    mask=st.lists(st.booleans(), min_size=12, max_size=12).filter(any),
    lazy=st.booleans(),
)
def test_spread_leads_back(order, mask, lazy):
    good = np.array(mask).reshape(2, 3, 2)
    values = np.arange(3 * 12, dtype=np.float64).reshape(3, 2, 3, 2)
    values = np.where(good, values, np.nan)
    data = xr.DataArray(da.from_array(values, chunks=2) if lazy else values, dims=("t", "a", "b", "c"))
    data = data.transpose(*order)
    grid = features_of(data, ("t",), grid_of(data, ("t",)), None)
    turned = data.transpose("t", ...)
    rows = flattened(turned, grid)
    assert rows.shape == (3, good.sum())
    found = spread(xr.DataArray(rows, dims=("t", "feature")), "feature", grid)
    xr.testing.assert_equal(found.compute(), turned.compute())
    np.testing.assert_array_equal(np.asarray(unwrap(data, known=AxisLabels(grid=grid)).data), np.asarray(rows))


@pytest.mark.parametrize("model", [PPCA(1), FactorAnalysis(1), PPCAMixture(1, 2), KernelPPCA(1)])
def test_scores_are_data_of_another_model(model):
    scores = PPCA(3).fit_transform(xr.DataArray(X2, dims=("place", "band")))
    fitted = model.fit(scores)
    result = fitted.result_
    assert "component" in result.dims
    if "loadings" in result:
        assert result["loadings"].dims == ("input_component", "component")
    twice = fitted.transform(scores)
    assert twice.dims == ("place", "component")
    np.testing.assert_array_equal(twice, model.fit(scores.values).transform(scores.values))


@pytest.mark.parametrize("name", ["component", "view", "iteration", "pass", "target", "class", "pattern", "loadings"])
@pytest.mark.parametrize("axis", [0, 1])
def test_dimensions_may_have_the_names_of_results(name, axis, tmp_path):
    dims = ("place", name) if axis else (name, "band")
    data = xr.DataArray(X2, dims=dims, coords={name: np.arange(X2.shape[axis]) * 2, "mean": (dims[1], X2[0])})
    # A supervised model has the results of all others but for the patterns of missing entries.
    incomplete = [PPCA(2, missing="nan").fit(data)] * (name == "pattern")
    for model in (SupervisedPPCA(2).fit(data, X2[:, :2]), *incomplete):
        model.save(tmp_path / "model.zarr", overwrite=True)
        for each in (model, load(tmp_path / "model.zarr")):
            own = f"input_{name}" if axis else "band"
            assert each.result_["loadings"].dims == (own, "component")
            assert each.result_["mean"].dims == (own,)
            assert each.transform(data).dims == ("place" if axis else f"input_{name}", "component")
            assert each.posterior(data)["scores"].dims[1] == "component"
            each.inverse_transform(each.transform(data))
    store = tmp_path / "data.zarr"
    data.drop_vars("mean").rename("x").to_dataset().to_zarr(store, zarr_format=3, consolidated=False)
    assert PPCA(2).fit(store).result_.sizes["component"] == 2


def test_features_may_be_along_samples():
    data = xr.DataArray(X2, dims=("place", "sample"))
    model = PPCA(2).fit(data)
    filled = model.inverse_transform(model.transform(data))
    assert filled.dims == ("place", "input_sample")
    assert PPCA(2).fit(data.T).transform(data.T).dims == ("sample", "component")


def test_the_dimension_of_samples_may_have_the_name_of_a_result():
    data = xr.DataArray(X2, dims=("place", "pass"))
    model = PPCA(2).fit(data, dim="pass")
    assert model.transform(data).dims == ("input_pass", "component")
    np.testing.assert_array_equal(model.transform(data), PPCA(2).fit(X2.T).transform(X2.T))


def test_a_tree_of_tables_is_no_table():
    tree = xr.DataTree.from_dict({"/a": xr.Dataset({"x": (("place", "band"), X2)})})
    model = PPCA(2).fit(tree["a"])
    for call in (PPCA(2).fit, PPCA(2).plan, model.transform, model.score):
        with pytest.raises(DataError, match=r"a DataTree has many tables, .* tree\[path\]"):
            call(tree)


MEMBERS, STEPS = ("one", "two", "three"), 14
ENSEMBLE = xr.DataArray(
    np.concatenate([MATRIX, MATRIX[:2]]).reshape(3, STEPS, -1),
    dims=("member", "time", "cell"),
    coords={
        "member": list(MEMBERS),
        "time": pd.date_range("2001-01-01", periods=STEPS, freq="MS"),
        "season": ("time", np.arange(STEPS) % 4),
        "warm": (("member", "time"), np.arange(3 * STEPS).reshape(3, STEPS) % 2 == 0),
    },
    name="sst",
    attrs={"units": "K"},
)
STACKED = ENSEMBLE.values.reshape(3 * STEPS, -1)
FULL = ENSEMBLE[..., :15].drop_vars("warm")
GRIDDED = xr.DataArray(
    FULL.values.reshape(3, STEPS, 5, 3), dims=("member", "time", "lat", "lon"), coords=FULL.coords, name="sst"
)
KINDS = {
    "members first": lambda x: x,
    "members last": lambda x: x.transpose("cell", "time", "member"),
    "dask": lambda x: x.chunk({"member": 2, "time": 5}),
    "a dataset": lambda x: x.to_dataset().assign(other=("time", np.arange(float(STEPS)))),
}
OVER_ROWS = {
    "ppca": (PPCA(2), {}),
    "missing": (PPCA(2, missing="nan"), {}),
    "factors": (FactorAnalysis(2), {}),
    "kernel": (KernelPPCA(2), {}),
    "mixture": (PPCAMixture(2, 1), {}),
    "classes": (SupervisedPPCA(2), {"y": np.arange(3 * STEPS) % 3}),
    "number": (SupervisedPPCA(2), {"y": np.arange(3.0 * STEPS) / 7}),
    "two classes": (SupervisedPPCA(2), {"y": np.arange(3 * STEPS) % 2}),
    "relational": (RelationalPPCA(2), {"graph": sp.csr_array(np.eye(42, k=1) + np.eye(42, k=-1))}),
}
METHODS = ("transform", "posterior", "score_samples", "impute", "impute_variance", "predict", "predict_proba")
METHODS += ("decision_function", "responsibilities", "score", "bic")


@pytest.mark.parametrize("name", OVER_ROWS)
def test_samples_lie_over_several_dimensions(name):
    model, more = OVER_ROWS[name]
    plain, own = model.fit(STACKED, **more), type(model)(**model.get_params())
    own.fit(ENSEMBLE, dim=("member", "time"), **more)
    assert own.log_likelihood_ == plain.log_likelihood_
    for method in METHODS:
        if not hasattr(own, method) or (method == "predict_proba" and name == "number"):
            continue
        found, flat = getattr(own, method)(ENSEMBLE), getattr(plain, method)(STACKED)
        if isinstance(flat, float):
            assert found == pytest.approx(flat, rel=1e-12)
            continue
        pairs = {method: (found, flat)} if isinstance(flat, np.ndarray) else {k: (found[k], flat[k]) for k in flat}
        for one, other in pairs.values():
            if one.ndim == np.ndim(other) and "member" not in one.dims:
                np.testing.assert_array_equal(one, other)
                continue
            assert one.dims[:2] == ("member", "time")
            np.testing.assert_array_equal(one.values.reshape(np.shape(other)), other)
            for label in ("member", "time", "season", "warm"):
                xr.testing.assert_equal(one[label].variable, ENSEMBLE[label].variable)


@pytest.mark.parametrize("kind", KINDS)
def test_the_dimensions_of_samples_may_lie_in_any_order(kind):
    data = KINDS[kind](ENSEMBLE)
    own, usual = PPCA(2).fit(data, dim=["member", "time"]), PPCA(2).fit(STACKED)
    np.testing.assert_allclose(own.components_, usual.components_, rtol=1e-9, atol=1e-12)
    found = own.transform(data).transpose("member", "time", "component")
    np.testing.assert_allclose(found.values.reshape(3 * STEPS, 2), usual.transform(STACKED), rtol=1e-9, atol=1e-12)
    if kind == "dask":
        assert found.chunks is not None


def test_members_in_chunks_stay_in_pieces_as_small():
    data = FULL.chunk({"member": 2, "time": 5})
    scores = PPCA(2).fit(data, dim=("member", "time")).transform(data)
    assert scores.data.chunksize[:2] == (1, 5)
    together = PPCA(2).fit(data, dim=("time", "member")).transform(FULL.chunk({"time": 5}).transpose("time", ...))
    assert together.data.chunksize[:2] == (5, 3)


def test_an_ensemble_of_fields_leads_back_to_itself(tmp_path):
    model = PPCA(2).fit(GRIDDED, dim=("member", "time"))
    assert model.result_["loadings"].dims == ("lat", "lon", "component")
    scores = model.transform(GRIDDED)
    back = model.inverse_transform(scores)
    assert back.dims == ("member", "time", "lat", "lon")
    xr.testing.assert_equal(back["season"], GRIDDED["season"])
    flat = PPCA(2).fit(GRIDDED.values.reshape(3 * STEPS, -1))
    expected = flat.inverse_transform(flat.transform(GRIDDED.values.reshape(3 * STEPS, -1)))
    np.testing.assert_array_equal(back.values.reshape(expected.shape), expected)
    model.save(tmp_path / "m.zarr")
    again = load(tmp_path / "m.zarr")
    xr.testing.assert_equal(again.transform(GRIDDED), scores)
    one = again.transform(GRIDDED.sel(member="two"))  # a member by itself, over time alone
    assert one.dims == ("time", "component")
    np.testing.assert_allclose(one, scores.sel(member="two"), rtol=1e-12)


def test_what_comes_beside_several_dimensions_is_matched_by_them():
    y = xr.DataArray(np.arange(3.0 * STEPS).reshape(3, STEPS), dims=("member", "time")).assign_coords(
        time=ENSEMBLE["time"]
    )
    model = SupervisedPPCA(2, target_type="regression")
    plain = clone(model).fit(STACKED, y.values.ravel())
    own = model.fit(ENSEMBLE, y.transpose("time", "member"), dim=("member", "time"))
    assert own.log_likelihood_ == plain.log_likelihood_
    weights = xr.ones_like(y).where(y["time"] != y["time"][0], 0.0)
    weighted = PPCA(2).fit(ENSEMBLE, dim=("member", "time"), sample_weight=weights)
    assert weighted.log_likelihood_ == PPCA(2).fit(STACKED, sample_weight=weights.values.ravel()).log_likelihood_
    late = y.assign_coords(time=y["time"] + pd.Timedelta("1D"))
    with pytest.raises(DataError, match="other labels along 'time'"):
        model.fit(ENSEMBLE, late, dim=("member", "time"))
    with pytest.raises(DataError, match=r"the targets have dimensions .*'time': 14.*lie along .*'member': 3"):
        model.fit(ENSEMBLE, y[0], dim=("member", "time"))


@pytest.mark.parametrize("dim", [("member", "day"), ("member", "time", "cell"), ("time", "time"), ()])
def test_dimensions_that_are_none_of_the_samples_are_refused(dim):
    with pytest.raises(DataError, match=r"dim is .*name those of the samples"):
        PPCA(2).fit(ENSEMBLE, dim=dim)


def test_coslat_weighs_cells_by_the_cosine_of_their_latitude():
    usual = PPCA(2).fit(X, dim="time", weights=WEIGHTS)
    named = {"latitude": {}, "y": {"units": "degrees_north"}, "j": {"standard_name": "latitude"}}
    fields = [X, *(X.rename(lat=name).assign_coords({name: (name, X["lat"].values, at)}) for name, at in named.items())]
    curved = (
        X.rename(lat="row")
        .drop_vars("row")
        .assign_coords(lat=(("row", "lon"), X["lat"].values[:, None] + np.zeros(LON)))
    )
    for data in (*fields, curved, X.stack(cell=("lat", "lon"))):
        np.testing.assert_array_equal(PPCA(2).fit(data, dim="time", weights="coslat").components_, usual.components_)
    poles = X.assign_coords(lat=("lat", np.linspace(-60, 90, LAT).astype(np.float32)))
    assert PPCA(2).fit(poles, dim="time", weights="coslat").n_features_in_ == SEA.sum()


COSLAT = {
    "none": (X.drop_vars("lat"), r"one coordinate of latitude .*'sst' has none: call it lat"),
    "two": (X.assign_coords(latitude=("lon", np.zeros(LON))), r"has \['lat', 'latitude'\]"),
    "one number": (X.isel(lat=0), r"one coordinate of latitude"),
    "too far": (X.assign_coords(lat=X["lat"] * 10), "between -90 and 90"),
}


@pytest.mark.parametrize("case", COSLAT)
def test_latitudes_that_are_none_are_refused(case):
    data, words = COSLAT[case]
    with pytest.raises(DataError, match=words):
        PPCA(2).fit(data, dim="time", weights="coslat")
    with pytest.raises(DataError, match=r"weights are of type str.*'coslat'"):
        PPCA(2).fit(X, dim="time", weights="cosine")


def test_means_of_a_mixture_lie_over_the_dimensions_of_the_samples():
    own, plain = PPCAMixture(2, 1).fit(ENSEMBLE, dim=("member", "time")), PPCAMixture(2, 1).fit(STACKED)
    found = own.inverse_transform(own.transform(ENSEMBLE), own.predict(ENSEMBLE))
    assert found.dims == ("member", "time", "cell")
    expected = plain.inverse_transform(plain.transform(STACKED), plain.predict(STACKED))
    np.testing.assert_array_equal(found.values.reshape(expected.shape), expected)


def test_scores_say_what_they_are_and_in_which_units():
    model = PPCA(2).fit(X, dim="time")
    assert model.transform(X).attrs == {"long_name": "scores of temperature", "units": "K"}
    assert model.posterior(X)["scores"].attrs["units"] == "K"
    assert model.set_params(whiten=True).transform(X).attrs == {"long_name": "scores of temperature"}
    for other in (PPCA(2, scale="spread"), FactorAnalysis(2)):
        assert other.fit(X, dim="time").transform(X.drop_attrs()).attrs == {"long_name": "scores of temperature"}
    assert PPCA(2).fit(xr.DataArray(X2)).transform(xr.DataArray(X2)).attrs == {}


BY_DAY = xr.DataArray(
    MATRIX[:, :6],
    dims=("place", "time"),
    coords={
        "time": pd.date_range("2001-01-30", periods=6, freq="D"),
        "place": pd.date_range("1990", periods=T, freq="h"),
    },
    name="sst",
)


def test_dates_are_printed_as_dates():
    days = {f"2001-01-{day}" for day in (30, 31)} | {f"2001-02-0{day}" for day in (1, 2, 3, 4)}
    named = PPCA(2).fit(BY_DAY)._summary()["components"][0]["largest"]
    assert {each["feature"] for each in named} == days
    over = BY_DAY.expand_dims(level=[5]).transpose("place", "level", "time")
    named = PPCA(2).fit(over, dim="place")._summary()["components"][0]["largest"]
    assert {each["feature"] for each in named} == {f"level=5 time={day}" for day in days}
    with pytest.raises(DataError, match=r"'time' is 2001-02-04 at position 0, where .* fitted to 2001-01-30;"):
        PPCA(2).fit(over, dim="place").transform(over[..., ::-1])
    late = xr.DataArray(np.arange(float(T)), dims="place", coords={"place": BY_DAY["place"] + pd.Timedelta("1h")})
    with pytest.raises(DataError, match="labelled '1990-01-01T01:00:00', the data '1990-01-01'"):
        SupervisedPPCA(2, target_type="regression").fit(BY_DAY, late)


def test_pictures_name_features_by_their_dates():
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    from dlatent import plot

    model = PPCA(2, missing="nan").fit(BY_DAY)
    ticks = plot.loadings(model).get_yticklabels()
    assert "2001-01-30" in [tick.get_text() for tick in ticks]
    assert plot.imputation(model, BY_DAY, 2).get_ylabel() == "time 2001-02-01"
    pyplot.close("all")


@pytest.mark.parametrize("lazy", [False, True])
def test_predictions_have_the_name_and_the_attributes_of_the_targets(lazy, tmp_path):
    told = {
        "units": "K",
        "long_name": "temperature",
        "valid_range": np.array([0.0, 9.0]),
        "scales": np.array([1.0, 2.0]),
    }
    nino = (X.isel(lat=0, lon=0, drop=True) * 2.0).rename("nino").assign_attrs(told)
    nino = nino.chunk() if lazy else nino
    data = X.chunk({"time": 8}) if lazy else X
    model = SupervisedPPCA(2).fit(X, nino, dim="time")
    model.save(tmp_path / "model.zarr")
    for each in (model, load(tmp_path / "model.zarr")):
        found = each.predict(data)
        assert found.name == "nino"
        assert found.attrs == {
            "units": "K",
            "long_name": "temperature",
            "valid_range": [0.0, 9.0],
            "scales": [1.0, 2.0],
        }
    phase = xr.DataArray(LABELS[:T] % 2, dims="time", name="phase")
    assert SupervisedPPCA(2).fit(X, phase, dim="time").predict(X).name == "phase"
    assert SupervisedPPCA(2).fit(X, pd.Series(phase.values, name="phase"), dim="time").predict(X).name == "phase"
    unnamed = SupervisedPPCA(2).fit(X, nino.values, dim="time").predict(X)
    assert (unnamed.name, unnamed.attrs) == ("outputs", {})
    unnamed = SupervisedPPCA(2).fit(X, nino.rename(None).drop_attrs(), dim="time").predict(X)
    assert (unnamed.name, unnamed.attrs) == ("outputs", {})


def test_a_store_of_results_has_the_coordinates_and_attributes_of_results_in_memory(tmp_path):
    data = X.assign_coords(season=("time", np.where(np.arange(T) % 2, "wet", "dry"), {"long_name": "season"}))
    data = data.assign_coords({"two words": ("time", np.arange(T))})
    data["time"].attrs["long_name"] = "day"
    model = PPCA(2, missing="nan").fit(data, dim="time")
    found = xr.open_zarr(model.transform(data, out=tmp_path / "scores.zarr"))["scores"].load()
    expected = model.transform(data).drop_vars("two words")
    assert set(found.coords) == {"time", "month", "season", "component"}
    for name in found.coords:
        np.testing.assert_array_equal(found[name].values.astype(expected[name].dtype), expected[name].values)
        assert found[name].attrs == expected[name].attrs
    assert {name: found.attrs[name] for name in expected.attrs} == expected.attrs
    assert expected.attrs["long_name"] == "scores of temperature"
    np.testing.assert_array_equal(found.values, expected.values)
    filled = xr.open_zarr(model.impute(data, out=tmp_path / "filled.zarr"))["imputed"]
    assert filled.attrs["units"] == "K"
    assert set(filled["season"].values) == {"wet", "dry"}
    again = PPCA(1).fit(str(tmp_path / "scores.zarr"))
    np.testing.assert_array_equal(again.mean_, PPCA(1).fit(expected.values).mean_)
    members = xr.concat([data, data + 1.0], dim="member")
    assert set(xr.open_zarr(model.transform(members, out=tmp_path / "both.zarr")).coords) == {"component"}
