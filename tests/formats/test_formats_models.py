"""Models that dlatent 0.1 saved open, compute what they did, and are saved again in the format of today.

`models_version_1.tar.xz` holds a model of each kind as 0.1 wrote it, and `expected.npz`: the data X of their fits, the
scores and the log-likelihood that 0.1 found.  It is never written again.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import xarray as xr

import dlatent
from dlatent.cli.main import main
from dlatent.stores.format_1 import from_format_1
from dlatent.stores.results import MODEL_VERSION
from dlatent.stores.results import load as load_stored
from dlatent.stores.schema import Variable

PLAN = {"solver", "reason", "passes", "bytes_per_pass", "bytes_total", "worker_memory", "driver_memory", "machine"}
KINDS = {
    "ppca": "PPCA",
    "ppca_missing": "PPCA",
    "ppca_em": "PPCA",
    "ppca_krylov": "PPCA",
    "supervised_classes": "SupervisedPPCA",
    "supervised_regression": "SupervisedPPCA",
    "factors": "FactorAnalysis",
    "relational": "RelationalPPCA",
    "relational_supervised": "RelationalSupervisedPPCA",
    "views": "CorrespondencePPCA",
    "views_without_noise": "CorrespondencePPCA",
    "view_factors": "CorrespondenceFactorAnalysis",
    "kernel": "KernelPPCA",
    "kernel_sparse": "KernelPPCA",
    "kernel_supervised": "KernelSupervisedPPCA",
    "lle": "LocallyLinearEmbedding",
    "lle_views": "CorrespondenceLLE",
}


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    folder = tmp_path_factory.mktemp("version_1")
    with tarfile.open(Path(__file__).parent / "models_version_1.tar.xz") as archive:
        # The first releases of Python 3.11 have no filter, and take none.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return folder


def scores(kind, model, X):
    if kind.startswith("view"):
        return model.transform({"a": xr.DataArray(X[:20, :3], coords={"word": ["x", "y", "z"]}, dims=("doc", "word"))})
    if kind == "lle_views":
        return model.transform(X[:20, :3], "a")
    if kind == "kernel_sparse":
        return model.transform(sp.csr_array(np.where(np.abs(X) > 1.5, X, 0.0)))
    if kind == "ppca":
        return model.transform(xr.DataArray(X, coords={"word": [f"w{i}" for i in range(6)]}, dims=("doc", "word")))
    return model.transform(X)


def test_every_model_of_today_has_an_old_one_here():
    assert {model.name for model in dlatent.models.MODELS} >= set(KINDS.values())
    assert len(set(KINDS.values())) == 11


@pytest.mark.parametrize("kind", KINDS)
def test_models_of_format_1_compute_what_they_did(kind, old, tmp_path, capsys):
    expected, path = np.load(old / "expected.npz"), old / f"{kind}.zarr"
    assert load_stored(path).version == 1
    model = dlatent.load(path)
    assert type(model).__name__ == KINDS[kind]
    found = np.asarray(scores(kind, model, expected["X"]))
    np.testing.assert_allclose(found, expected[kind], rtol=1e-10, atol=1e-10)
    assert getattr(model, "head", "likelihood") == "likelihood"
    if f"{kind}.log_likelihood" in expected:
        assert model.log_likelihood_ == float(expected[f"{kind}.log_likelihood"])
        assert set(model.plan_) == PLAN
    model.save(tmp_path / "new.zarr")
    stored = load_stored(tmp_path / "new.zarr")
    assert stored.version == MODEL_VERSION
    again = dlatent.load(tmp_path / "new.zarr")
    np.testing.assert_array_equal(np.asarray(scores(kind, again, expected["X"])), found)
    xr.testing.assert_identical(again.result_, model.result_)
    assert again.get_params() == model.get_params()
    assert main(["inspect", str(path)]) == 0
    words = capsys.readouterr().out.replace(str(path), "")
    assert main(["inspect", str(tmp_path / "new.zarr")]) == 0
    assert capsys.readouterr().out.replace(str(tmp_path / "new.zarr"), "") == words


def test_a_changed_model_of_format_1_is_refused(old):
    chunk = old / "factors.zarr" / "loadings" / "c" / "0" / "0"
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    with pytest.raises(dlatent.StoreError):
        dlatent.load(old / "factors.zarr")
    chunk.write_bytes(whole)


def test_the_format_says_nothing_of_the_planner(old, tmp_path):
    dlatent.load(old / "relational.zarr").save(tmp_path / "m.zarr")
    stored = load_stored(tmp_path / "m.zarr")
    assert all(isinstance(value, (int, str)) for value in stored.attributes["plan"].values())
    assert stored.attributes["edges"] == 50
    assert stored.attributes["view_sizes"] == [6]


def test_what_was_renamed_is_read_under_its_name_of_today():
    parameters = {"suspect_data": "refuse", "disconnected": "refuse", "solver": "auto", "route": "moments", "tol": 1e-9}
    attributes, variables = from_format_1(
        {"parameters": parameters, "instances": 7},
        {
            "view_instances": Variable(("view",), np.array([7])),
            "embedding": Variable(("instance", "component"), np.zeros((7, 1))),
            "pass_name": Variable(("pass",), np.array(["pilot", "moments"])),
        },
    )
    renamed = {"zero_rows": "raise", "disconnected": "raise", "solver": "covariance", "tol": 1e-9}
    assert attributes == {"parameters": renamed, "samples": 7}
    assert {name: v.dims for name, v in variables.items()} == {
        "view_samples": ("view",),
        "embedding": ("sample", "component"),
        "pass_name": ("pass",),
    }
    assert variables["pass_name"].values.tolist() == ["initial mean", "moments"]
