"""Results that older versions saved keep opening.

`model_version_N.zarr` was written by `write_newest` at the time of layout version N, and is never written again.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from dlatent.stores.results import MODEL_VERSION, load, save
from dlatent.stores.schema import Variable

HERE = Path(__file__).parent
FEATURES, COMPONENTS = 5, 2

LOADINGS = np.arange(FEATURES * COMPONENTS).reshape(FEATURES, COMPONENTS) / 7 - 0.5
VARIABLES = {
    "loadings": Variable(("feature", "component"), LOADINGS),
    "mean": Variable(("feature",), np.array([0.0, -0.0, 1e-300, np.pi, np.inf])),
    "noise_variance": Variable(("view",), np.array([0.25, 1e-9])),
    "at_floor": Variable(("view",), np.array([False, True])),
    "eigenvalues": Variable(("component",), np.array([3.5, 1.25])),
    "target_loadings": Variable(("target", "component"), np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])),
    "target_mean": Variable(("target",), np.array([1 / 3, 1 / 3, 1 / 3])),
    "target_rotation": Variable(("target", "target_rank"), np.eye(3)[:, :2]),
    "classes": Variable(("class",), np.array(["alt.atheism", "Füße", ""])),
    "feature": Variable(("feature",), np.array(["a", "bb", "ccc", "δ", "語"])),
    "feature_view": Variable(("feature",), np.array(["start", "start", "end", "end", ""])),
    "smoothing_error": Variable(("smoothing",), np.array([-1234.5, -1200.25, np.nan])),
    "view_samples": Variable(("view",), np.array([0, 2**40])),
}
ATTRIBUTES = {
    "n_components": COMPONENTS,
    "tolerance": 1e-8,
    "log_likelihood": float("-inf"),
    "dims": ["document", "word"],
    "route": {"name": "krylov", "reason": None, "exact": True},
}


def write_newest(path: Path) -> None:
    """How the committed stores were made, each when its version was the newest."""
    save(path, kind="supervised_ppca", attributes=ATTRIBUTES, variables=VARIABLES)


@pytest.mark.parametrize("version", range(1, MODEL_VERSION + 1))
def test_results_of_every_version_open(version: int) -> None:
    result = load(HERE / f"model_version_{version}.zarr")
    assert (result.kind, result.attributes) == ("supervised_ppca", ATTRIBUTES)
    assert set(result.variables) == set(VARIABLES)
    for name, expected in VARIABLES.items():
        found = result.variables[name]
        assert found.dims == expected.dims
        np.testing.assert_array_equal(found.values, expected.values)
        assert found.values.dtype.kind == expected.values.dtype.kind
        if expected.values.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(found.values), np.signbit(expected.values))


@pytest.mark.parametrize("version", range(1, MODEL_VERSION + 1))
def test_xarray_opens_results_of_every_version(version: int) -> None:
    data = xr.open_zarr(HERE / f"model_version_{version}.zarr", consolidated=False)
    np.testing.assert_array_equal(data["loadings"].values, LOADINGS)
    assert data["feature"].values.tolist() == VARIABLES["feature"].values.tolist()
