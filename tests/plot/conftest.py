"""A fitted model with names, and figures that need no screen."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import xarray as xr

import dlatent

pyplot = pytest.importorskip("matplotlib.pyplot", reason="pictures need matplotlib, which is not installed")


@pytest.fixture(autouse=True)
def _without_screen() -> Iterator[None]:
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


@pytest.fixture(scope="session")
def data() -> xr.DataArray:
    rng = np.random.default_rng(5)
    values = rng.standard_normal((80, 3)) @ rng.standard_normal((3, 12)) + 0.1 * rng.standard_normal((80, 12))
    names = [f"gene{j}" for j in range(12)]
    return xr.DataArray(values, dims=("cell", "gene"), coords={"gene": names})


@pytest.fixture(scope="session")
def model(data: xr.DataArray) -> dlatent.PPCA:
    return dlatent.PPCA(3, solver="krylov").fit(data)
