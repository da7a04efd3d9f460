"""Saved models: labels and names that travel, what other programs see of the store, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
import zarr
from estimator_cases import CLASSES, LABELLED, MODELS, D, N, X

import dlatent
from dlatent import PPCA, DataError, NotFittedError, StoreError, SupervisedPPCA


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param]()


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    place = tmp_path_factory.mktemp("saved") / "model.zarr"
    model.save(place)
    return place


def test_labels_of_new_rows_are_understood_after_loading(tmp_path):
    y = np.where(LABELLED, np.array(["ant", "bee", "cow"], dtype=object)[CLASSES], None)
    model = SupervisedPPCA(1).fit(X, y)
    model.save(tmp_path / "model.zarr")
    again = dlatent.load(tmp_path / "model.zarr")
    np.testing.assert_array_equal(again.transform(X, y), model.transform(X, y))
    np.testing.assert_array_equal(again.score_samples(X, y), model.score_samples(X, y))
    with pytest.raises(DataError, match="row 0: the label 'dog' is not among"):
        again.transform(X[:1], ["dog"])


LABELS = [CLASSES > 0, CLASSES.astype(np.int16), CLASSES * 2.0, np.array(["é", "語"])[CLASSES % 2]]


@pytest.mark.parametrize("labels", LABELS, ids=["bool", "int16", "float", "text"])
def test_classes_of_every_dtype_survive(labels, tmp_path):
    model = SupervisedPPCA(1).fit(X, labels)
    model.save(tmp_path / "m.zarr")
    again = dlatent.load(tmp_path / "m.zarr")
    assert again.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.transform(X, labels), model.transform(X, labels))


def test_the_store_is_open_to_xarray_and_zarr(model, saved):
    data = xr.open_zarr(saved, consolidated=False)
    np.testing.assert_array_equal(data["loadings"].values.T, model.components_)
    group = zarr.open_group(saved, mode="r")
    assert group.attrs["dlatent"]["complete"] is True
    assert not list(saved.rglob("*.pkl"))


def test_names_of_the_features_travel_with_the_model(tmp_path):
    names = [f"word {i}" for i in range(D)]
    data = xr.DataArray(X, dims=("doc", "word"), coords={"word": names})
    model = PPCA(2).fit(data)
    model.save(tmp_path / "m.zarr")
    for found in (model.result_, dlatent.load(tmp_path / "m.zarr").result_):
        assert found["loadings"].dims == ("word", "component")
        assert found["word"].values.tolist() == names
        assert found["mean"].sel(word="word 3") == model.mean_[3]


def test_result_is_documented_and_complete():
    found = MODELS["regression"]().result_
    assert {"loadings", "mean", "noise_variance", "target_loadings", "target_mean"} <= set(found.variables)
    assert found.attrs["model"] == "SupervisedPPCA"
    assert found.sizes["feature"] == D
    assert found["view_samples"].values.tolist() == [N, int(LABELLED.sum())]
    assert found["view"].values.tolist() == ["features", "targets"]


def test_a_model_that_cannot_be_written_leaves_nothing(tmp_path):
    model = PPCA(2, random_state=np.random.default_rng(0)).fit(X)
    with pytest.raises(StoreError, match="random_state"):
        model.save(tmp_path / "m.zarr")
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_fitted_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError, match="call fit first"):
        PPCA(2).save(tmp_path / "m.zarr")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(StoreError, match="does not exist"):
        dlatent.load(tmp_path / "nothing.zarr")
    zarr.create_array(tmp_path / "data.zarr", shape=(3, 3), dtype=float)
    with pytest.raises(StoreError):
        dlatent.load(tmp_path / "data.zarr")
    MODELS["ppca"]().save(tmp_path / "m.zarr")
    group = zarr.open_group(tmp_path / "m.zarr", mode="r+")
    marker = dict(group.attrs["dlatent"])
    group.attrs["dlatent"] = marker | {"version": 99}
    with pytest.raises(StoreError, match=r"version 99, but this dlatent reads.*install a newer dlatent"):
        dlatent.load(tmp_path / "m.zarr")
    group.attrs["dlatent"] = marker | {"complete": False}
    with pytest.raises(StoreError, match="half-written store"):
        dlatent.load(tmp_path / "m.zarr")
    group.attrs["dlatent"] = marker
    group.attrs["result"] = dict(group.attrs["result"]) | {"kind": "Kriging"}
    with pytest.raises(StoreError, match="has been changed since it was saved"):
        dlatent.load(tmp_path / "m.zarr")
    group.attrs["result"] = {k: v for k, v in dict(group.attrs["result"]).items() if k != "digest"}
    with pytest.raises(StoreError, match="holds a 'Kriging'; this version of dlatent knows PPCA, SupervisedPPCA"):
        dlatent.load(tmp_path / "m.zarr")
    with pytest.raises(StoreError, match="is a saved result and no data"):
        PPCA(1).fit(str(tmp_path / "m.zarr"))


def test_what_is_done_to_a_result_does_not_reach_the_model():
    model = PPCA(2).fit(X)
    before, result = model.transform(X), model.result_
    for name in ("loadings", "mean", "noise_variance"):
        result[name].values[...] = 7.0
    np.testing.assert_array_equal(model.transform(X), before)


def test_truth_values_of_the_data_are_written_as_numbers(tmp_path):
    """Zarr has truth values among attributes, netCDF has none."""
    pytest.importorskip("h5netcdf")
    data = xr.DataArray(np.asarray(X), dims=("time", "x"), attrs={"clean": True, "units": "K"})
    PPCA(1).fit(data.expand_dims(y=1), dim="time").result_.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
