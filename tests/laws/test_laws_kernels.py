"""Fits by inner products have the bits of the serial engine on any number of workers, wherever their kernel is."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from dlatent import PPCA, KernelPPCA, KernelSupervisedPPCA, SupervisedPPCA
from tests.simulators import simulate

DATA = simulate(50, (60, 2), 3, noise=(0.3, 0.4), random_state=0)
X = DATA.features
PARTLY = np.where(np.arange(50)[:, None] % 3 == 0, DATA.targets, np.nan)
CASES = {
    "gram": (PPCA(3, solver="gram"), None),
    "dual, semi-supervised": (SupervisedPPCA(2, solver="gram"), PARTLY),
    "memory": (KernelPPCA(3), None),
    "recomputed": (KernelSupervisedPPCA(2, solver="recomputed"), PARTLY),
    "stored": (KernelSupervisedPPCA(2, solver="stored"), PARTLY),
    "landmarks": (KernelSupervisedPPCA(2, landmarks=20), PARTLY),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Ten chunks of rows."""
    path = tmp_path_factory.mktemp("kernels") / "x.zarr"
    zarr.create_array(path, data=X, chunks=(5, 60))
    return str(path)


def fitted(name, data, folder, **options):
    model, targets = CASES[name]
    if name == "stored":
        model.set_params(kernel_store=str(folder / "k.zarr"))
    return model.fit(data, *(() if targets is None else (targets,)), **options)


def said(model):
    own = model.dual_components_ if hasattr(model, "dual_components_") else model.components_
    return own.copy(), model.log_likelihood_, model.transform(X[:6])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("engine", ["threads", pytest.param("one_worker", marks=pytest.mark.slow), "two_workers"])
def test_the_engine_changes_no_bit(name, engine, store, tmp_path, request):
    expected = said(fitted(name, store, tmp_path, client="serial"))
    client = None if engine == "threads" else request.getfixturevalue(engine)
    found = said(fitted(name, store, tmp_path, client=client))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", CASES)
def test_cuts_and_storage_of_the_rows_change_rounding_only(name, store, tmp_path):
    whole = said(fitted(name, X, tmp_path))
    for other in (store, sp.csr_array(X)):
        model = fitted(name, other, tmp_path)
        assert model.log_likelihood_ == pytest.approx(whole[1], rel=1e-9)
        scale = abs(whole[2]).max()
        new = sp.csr_array(X[:6]) if sp.issparse(other) else X[:6]
        np.testing.assert_allclose(model.transform(new), whole[2], atol=2e-4 * scale)
