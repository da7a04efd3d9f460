"""Saved results come back to the last bit, and what cannot be read is refused by name."""

from __future__ import annotations

import json
import math
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlatent.errors import StoreError
from dlatent.stores import results
from dlatent.stores.atomic import new_store
from dlatent.stores.results import MODEL_VERSION, load, save
from dlatent.stores.schema import Variable
from tests.law_examples import examples

RNG = np.random.default_rng(11)
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, np.nextafter(1, 2), -np.nan])
VARIABLES = {
    "loadings": Variable(("feature", "component"), RNG.normal(size=(8, 3)), {"units": "counts", "scale": math.inf}),
    "mean": Variable(("feature",), SPECIAL),
    "feature_scale": Variable(("feature",), SPECIAL.astype(np.float32)),
    "feature": Variable(("feature",), np.array([f"größe {n}" for n in range(8)])),
    "noise_variance": Variable(("view",), np.array([0.1, 0.2])),
    "at_floor": Variable(("view",), np.array([True, False])),
    "eigenvalues": Variable(("component",), np.zeros(3)),
    "classes": Variable(("class",), np.array([3, -1, 2**62])),
    "class_counts": Variable(("class",), np.array([1, 2, 3], dtype=np.uint16)),
    "sample": Variable(("sample",), np.array(["2020-01-01", "NaT"], dtype="datetime64[ns]")),
    "target": Variable(("target",), np.array([], dtype="U1")),
    "target_mean": Variable(("target",), np.array([])),
}
ATTRIBUTES = {
    "n_components": 3,
    "tol": 0.1 + 0.2,
    "solver": "krylov",
    "nothing": None,
    "deep": {"list": [1, True, "ü"]},
}


def same_bits(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> bool:
    if left.dtype.kind == "U":
        return left.shape == right.shape and bool((left == right).all())
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_what_is_saved_is_loaded_to_the_last_bit(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "m.zarr") if kind == "local" else f"memory://{tmp_path.name}/m.zarr"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(path, kind="ppca", attributes=ATTRIBUTES, variables=VARIABLES)
        result = load(path)
    assert (result.kind, result.attributes) == ("ppca", ATTRIBUTES)
    assert set(result.variables) == set(VARIABLES)
    for name, variable in VARIABLES.items():
        assert result.variables[name].dims == variable.dims
        assert result.variables[name].attrs == variable.attrs
        assert same_bits(result.variables[name].values, variable.values), name


def test_large_variables_are_split_into_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "CHUNK_BYTES", 50)
    save(tmp_path / "m.zarr", kind="ppca", attributes={}, variables=VARIABLES)
    assert len(list((tmp_path / "m.zarr" / "loadings" / "c").rglob("0"))) > 3
    assert same_bits(load(tmp_path / "m.zarr").variables["loadings"].values, VARIABLES["loadings"].values)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(attributes=st.dictionaries(st.text(max_size=4), json_values, max_size=4))
def test_any_json_attributes_survive(attributes: dict[str, Any], tmp_path: Path) -> None:
    save(tmp_path / "m.zarr", kind="x", attributes=attributes, variables={}, overwrite=True)
    assert load(tmp_path / "m.zarr").attributes == attributes
    text = (tmp_path / "m.zarr" / "zarr.json").read_text()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_numpy_scalars_and_nan_attributes(tmp_path: Path) -> None:
    given_attributes = {"a": np.float32(0.5), "b": np.int64(3), "c": np.bool_(True), "d": (1, 2), "e": [math.nan]}
    save(tmp_path / "m.zarr", kind="x", attributes=given_attributes, variables={})
    found = load(tmp_path / "m.zarr").attributes
    assert (found["a"], found["b"], found["c"], found["d"]) == (0.5, 3, True, [1, 2])
    assert math.isnan(found["e"][0])


def test_xarray_opens_the_store(tmp_path: Path) -> None:
    save(tmp_path / "m.zarr", kind="ppca", attributes=ATTRIBUTES, variables=VARIABLES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = xr.open_zarr(tmp_path / "m.zarr").load()
    for name in ("loadings", "mean", "noise_variance", "at_floor", "class_counts"):
        assert data[name].dims == VARIABLES[name].dims
        np.testing.assert_array_equal(data[name].values, VARIABLES[name].values)
    assert data["feature"].values.tolist() == VARIABLES["feature"].values.tolist()


def test_text_may_come_as_objects(tmp_path: Path) -> None:
    names = np.array(["a", "", "longer"], dtype=object)
    save(tmp_path / "m.zarr", kind="x", attributes={}, variables={"classes": Variable(("class",), names)})
    loaded = load(tmp_path / "m.zarr").variables["classes"].values
    assert loaded.dtype.kind == "U"
    assert loaded.tolist() == ["a", "", "longer"]


BAD_VARIABLES = {
    "unknown variable 'loading'": {"loading": Variable(("feature", "component"), np.ones((2, 2)))},
    r"expected dimensions \('feature', 'component'\)": {
        "loadings": Variable(("component", "feature"), np.ones((2, 2)))
    },
    r"shape \(2,\); expected dimensions": {"loadings": Variable(("feature", "component"), np.ones(2))},
    "dtype int64; expected floating point": {"mean": Variable(("feature",), np.arange(2))},
    "length 3 in 'loadings', but 2 in 'mean'": {
        "mean": Variable(("feature",), np.ones(2)),
        "loadings": Variable(("feature", "component"), np.ones((3, 1))),
    },
    "'classes' holds Python objects": {"classes": Variable(("class",), np.array([1, "a"], dtype=object))},
    "complex128": {"mean": Variable(("feature",), np.ones(2, dtype=complex))},
}


@pytest.mark.parametrize("words", BAD_VARIABLES)
def test_variables_outside_the_registry_are_refused(words: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=words):
        save(tmp_path / "m.zarr", kind="x", attributes={}, variables=BAD_VARIABLES[words])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("value", [object(), {1: 2}, {"__float__": "nan"}, [{"deep": b"bytes"}], np.ones(2)])
def test_attributes_that_are_no_json_are_refused(value: Any, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"attributes\.odd"):
        save(tmp_path / "m.zarr", kind="x", attributes={"odd": value}, variables={})
    assert os.listdir(tmp_path) == []


def test_what_is_no_complete_result_of_a_known_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.zarr"
    with pytest.raises(StoreError, match="does not exist"):
        load(path)
    save(path, kind="ppca", attributes={}, variables=VARIABLES)
    with pytest.raises(StoreError, match="already exists"):
        save(path, kind="ppca", attributes={}, variables=VARIABLES)
    file = path / "zarr.json"
    whole = file.read_text().rstrip()  # without the digest, as another program would write it
    for old, new, words in (
        ('"complete": true', '"complete": false', "half-written"),
        (f'"version": {MODEL_VERSION}', '"version": 99', "version 99.*install a newer dlatent"),
        ('"result": {', '"other": {', "missing or damaged"),
        ('"dlatent": {', '"other": {', "no saved result"),
    ):
        assert old in whole
        file.write_text(whole.replace(old, new))
        with pytest.raises(StoreError, match=words):
            load(path)
    file.write_text(whole)
    (path / "mean" / "c" / "0").unlink()
    with pytest.raises(StoreError, match=r"the chunk mean/c/0 of .* is not there; .* as a whole: copy it again$"):
        load(path)
    (path / "mean" / "c" / "0").write_bytes(b"garbage")
    with pytest.raises(StoreError, match=r"mean: cannot read rows 0:\d+ \(chunk c/0\)"):
        load(path)


def test_a_matrix_is_no_result(tmp_path: Path) -> None:
    with new_store(tmp_path / "d.zarr") as group:
        group.create_array("x", data=np.ones((2, 2)))
    with pytest.raises(StoreError, match="kind 'matrix'; expected 'result'"):
        load(tmp_path / "d.zarr")
