"""Mixtures on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr

import dlatent
from dlatent import PPCAMixture


@pytest.fixture(params=["isotropic", "diagonal"])
def saved(request, run, store: Path, tmp_path: Path) -> tuple[str, Path]:
    words = ["-k", "2", "-m", "2", "--noise", request.param, "--starts", "3", "--seed", "4"]
    said = run("fit", "mixture", store, *words, "-o", tmp_path / "m.zarr")
    assert said.status == 0, said.err
    weights = dlatent.load(tmp_path / "m.zarr").weights_
    assert f"weights {weights[0]:.3g}, {weights[1]:.3g}" in said.out
    assert f"a noise variance for each component{' and feature' * (request.param == 'diagonal')}" in said.out
    assert "solver mixture" in said.err
    return request.param, tmp_path / "m.zarr"


def test_fit_saves_what_the_library_fits(saved, store: Path) -> None:
    noise, path = saved
    fitted = PPCAMixture(2, 2, noise=noise, n_init=3, random_state=4).fit(store)
    loaded = dlatent.load(path)
    assert loaded.get_params() == fitted.get_params()
    np.testing.assert_array_equal(loaded.components_, fitted.components_)
    np.testing.assert_array_equal(loaded.predict(store), fitted.predict(store))


def test_inspect_tells_of_each_component(saved, run) -> None:
    noise, path = saved
    said = run("inspect", path)
    assert said.status == 0, said.err
    mean = " (mean)" if noise == "diagonal" else ""
    for words in (f"component 0{mean}", f"component 1{mean}", "by mixture"):
        assert words in said.out
    tables = [line[:2] for line in map(str.split, said.out.splitlines())]
    assert all([str(m), str(k)] in tables for m in range(2) for k in range(2))
    found = run("inspect", path, "--json").json
    assert sum(found["mixture"]) == pytest.approx(1.0)
    assert sum(one["samples"] for one in found["noise"]) == 120
    assert [(c["mixture"], c["component"]) for c in found["components"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert found["features"] == 9


def test_transform_writes_the_scores(saved, run, store: Path, tmp_path: Path) -> None:
    _, path = saved
    said = run("transform", path, store, "-o", tmp_path / "z.zarr", "--json")
    assert said.json["components"] == 2
    np.testing.assert_array_equal(zarr.open(tmp_path / "z.zarr")["scores"][:], dlatent.load(path).transform(store))


def test_plan_is_that_of_the_library(run, store: Path) -> None:
    assert run("plan", "mixture", store, "-k", "2", "-m", "3").out == f"{PPCAMixture(2, 3).plan(store)}\n"
    found = run("plan", "mixture", store, "-k", "2", "--solver", "em", "--json").json
    assert found["task"]["mixture"]["components"] == 2
    assert found["passes"] == 2001


def test_json_of_a_fit(run, store: Path, tmp_path: Path) -> None:
    found = run("fit", "mixture", store, "-k", "1", "-m", "2", "-o", tmp_path / "m.zarr", "--json").json
    assert len(found["mixture"]) == len(found["noise"]) == 2
    assert "mixture" not in run("fit", "ppca", store, "-k", "1", "-o", tmp_path / "p.zarr", "--json").json


def test_options_of_other_models_are_refused(run, store: Path, tmp_path: Path) -> None:
    for words in (["--missing", "nan"], ["--solver", "accelerated_em"], ["--noise", "zero"]):
        assert run("fit", "mixture", store, "-k", "1", "-o", tmp_path / "m.zarr", *words).status == 2
