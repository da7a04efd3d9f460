"""Kernel models from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import dlatent
from dlatent.models.hyperparameters import KernelName
from dlatent.operators.kernels import NAMES


def test_kernels_are_those_of_the_library() -> None:
    assert sorted(get_args(KernelName)) == sorted(NAMES)


def test_a_kernel_fit_is_that_of_the_library(run, store: Path, tmp_path: Path) -> None:
    words = ["kernel", store, "-k", "3", "--kernel", "polynomial", "--degree", "2", "--gamma", "0.1"]
    plan = dlatent.KernelPPCA(3, kernel="polynomial", degree=2, gamma=0.1).plan(store)
    assert run("plan", *words).out == f"{plan}\n"
    said = run("fit", *words, "-o", tmp_path / "m.zarr", "--json")
    assert said.status == 0, said.err
    fitted = dlatent.KernelPPCA(3, kernel="polynomial", degree=2, gamma=0.1).fit(store)
    loaded = dlatent.load(tmp_path / "m.zarr")
    assert loaded.get_params() == fitted.get_params()
    np.testing.assert_array_equal(loaded.dual_components_, fitted.dual_components_)
    assert len(said.json["components"]) == 3
    assert said.json["kernel"]["degree"] == 2


def test_a_supervised_kernel_model_is_used_and_shown(run, store: Path, tmp_path: Path) -> None:
    model, words = tmp_path / "m.zarr", ["-k", "2", "--landmarks", "40", "--feature-dimension", "500"]
    said = run("fit", "kernel-supervised", store, *words, "-o", model, "--quiet")
    assert said.status == 0, said.err
    assert "trace error of the landmarks 0." in said.out
    shown = run("inspect", model)
    assert "kernel" in shown.out
    assert "500 features; trace error of the landmarks" in shown.out
    found = run("inspect", model, "--json").json
    assert found["kernel"]["name"] == "rbf"
    assert found["features"] == 9
    assert sum(one["share"] for one in found["components"]) < 1
    said = run("transform", model, store, "-o", tmp_path / "scores.zarr", "--json")
    assert said.json["components"] == 2
    refused = run("impute", model, store, "-o", tmp_path / "filled.zarr")
    assert refused.status != 0
    assert "cannot fill in rows" in refused.err
    assert not (tmp_path / "filled.zarr").exists()


@pytest.mark.parametrize("words", [["--gamma", "wide"], ["--kernel", "sigmoid"], ["--solver", "krylov"]])
def test_options_that_make_no_sense(run, store: Path, tmp_path: Path, words: list[str]) -> None:
    said = run("fit", "kernel", store, "-k", "2", "-o", tmp_path / "m.zarr", *words)
    assert said.status == 2
    assert not (tmp_path / "m.zarr").exists()
