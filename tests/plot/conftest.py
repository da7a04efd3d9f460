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


@pytest.fixture(scope="session")
def field() -> xr.DataArray:
    """Two patterns over a grid of which a corner is land."""
    rng = np.random.default_rng(3)
    lat, lon = np.array([-60.0, 0.0, 60.0]), np.array([10.0, 20.0, 30.0, 40.0])
    values = rng.standard_normal((50, 2)) @ rng.standard_normal((2, 12)) + 0.1 * rng.standard_normal((50, 12))
    values[:, 0] = np.nan
    shape = ("time", "lat", "lon")
    return xr.DataArray(values.reshape(50, 3, 4), dims=shape, coords={"lat": lat, "lon": lon}, attrs={"units": "K"})
