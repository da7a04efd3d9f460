"""Products added in place: equal to dense ones, by SciPy's kernels and by its public products."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dlatent.operators import sparse


@pytest.fixture(params=["kernels", "public products"], autouse=True)
def way(request, monkeypatch):
    if request.param == "public products":
        monkeypatch.setattr(sparse, "_kernel", lambda name: None)


RANDOM = np.random.default_rng(0)
MATRIX = RANDOM.standard_normal((7, 5)) * (RANDOM.random((7, 5)) < 0.4)


@pytest.mark.parametrize("width", [1, 3])
def test_coordinates(width):
    total, rows = RANDOM.standard_normal((7, width)), RANDOM.standard_normal((5, width))
    expected = total + MATRIX @ rows
    sparse.add_coordinates(total, sp.coo_array(MATRIX), rows)
    np.testing.assert_allclose(total, expected, rtol=1e-14)


@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_transposed(shape):
    total, rows = RANDOM.standard_normal((5, *shape)), RANDOM.standard_normal((7, *shape))
    expected = total + MATRIX.T @ rows
    sparse.add_transposed(total, sp.csc_array(MATRIX), rows)
    np.testing.assert_allclose(total, expected, rtol=1e-13)


def test_the_kernels_are_there():
    """Where a new SciPy has none, the public products are slower: then this module wants a look."""
    names = ("coo_matmat_dense", "csr_matvec", "csr_matvecs")
    assert sparse._kernel(names[0]) is None or all(sparse._kernel(name) for name in names)
