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


def test_weights_of_more_columns_than_the_caches_hold():
    """In pieces by columns, where some columns of the weights are taken at a time."""
    x = sp.random_array((80_000, 3), density=0.01, format="csr", rng=RANDOM)
    weights = RANDOM.standard_normal((80_000, 40))
    held = sparse.Columns((x[:40_000].tocsc(), x[40_000:].tocsc()), x.shape)
    found = sparse.weighted(held, lambda rows, place: weights[place])
    np.testing.assert_allclose(found, x.T @ weights, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(sparse.weighted(x, lambda rows, place: weights[place]), found, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_array])
def test_less_is_the_dense_difference(make):
    for places in ([], [0, 4], [1], range(5)):
        shift = np.zeros(5)
        shift[list(places)] = RANDOM.standard_normal(len(places))
        for matrix in (MATRIX, np.where(np.arange(5) < 3, MATRIX, 0.0), MATRIX + 1.0):
            np.testing.assert_allclose(sparse.less(make(matrix), shift).toarray(), matrix - shift, rtol=1e-14)


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_units_do_not_say_which_columns_are_far_from_zero(unit):
    mean, variance = np.array([9.9, 10.1, -30.0, 0.0]), np.array([1.0, 1.0, 4.0, 0.0])
    np.testing.assert_array_equal(sparse.far_mean(unit * mean, unit**2 * variance), unit * mean * [0, 1, 1, 0])
