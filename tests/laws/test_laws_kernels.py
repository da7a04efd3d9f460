"""A fit by a kernel in a store has the bits of the serial engine, and with landmarks cuts change rounding only."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from dlatent import KernelSupervisedPPCA
from tests.simulators import simulate

DATA = simulate(50, (60, 2), 3, noise=(0.3, 0.4), random_state=0)
X = DATA.features
PARTLY = np.where(np.arange(50)[:, None] % 3 == 0, DATA.targets, np.nan)


@pytest.fixture
def store(tmp_path):
    """Ten chunks of rows."""
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(5, 60))
    return str(tmp_path / "x.zarr")


@pytest.mark.parametrize("engine", ["threads", pytest.param("one_worker", marks=pytest.mark.slow), "two_workers"])
def test_the_engine_changes_no_bit(engine, store, tmp_path, request):
    client = None if engine == "threads" else request.getfixturevalue(engine)
    model = KernelSupervisedPPCA(2, solver="stored", kernel_store=str(tmp_path / "k.zarr"))
    expected = model.fit(store, PARTLY, client="serial").dual_components_.copy(), model.transform(X[:6])
    found = model.fit(store, PARTLY, client=client).dual_components_, model.transform(X[:6])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("options", [{"solver": "stored"}, {"landmarks": 20}], ids=str)
def test_cuts_and_storage_of_the_rows_change_rounding_only(options, store, tmp_path):
    if "solver" in options:
        options = options | {"kernel_store": str(tmp_path / "k.zarr")}
    model = KernelSupervisedPPCA(2, **options).fit(X, PARTLY)
    scores, height = model.transform(X[:6]), model.log_likelihood_
    for other in (store, sp.csr_array(X)):
        model.fit(other, PARTLY)
        assert model.log_likelihood_ == pytest.approx(height, rel=1e-9)
        new = sp.csr_array(X[:6]) if sp.issparse(other) else X[:6]
        np.testing.assert_allclose(model.transform(new), scores, atol=2e-4 * abs(scores).max())
