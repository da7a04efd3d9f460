"""Many small symmetric matrices at a time."""

from __future__ import annotations

import numpy as np
import pytest

from dlatent.operators import batched


@pytest.mark.parametrize("size", [1, 2, 5, 11, 20])
@pytest.mark.parametrize("count", [1, 3, 700])
def test_inverses_and_determinants(size, count):
    rng = np.random.default_rng(size + count)
    roots = rng.standard_normal((count, size, size + 2)) * rng.uniform(0.01, 100.0, (count, 1, 1))
    matrices = roots @ roots.transpose(0, 2, 1) + np.eye(size)
    inverse, log_determinant = batched.inverted(np.moveaxis(matrices, 0, -1).copy())
    np.testing.assert_allclose(log_determinant, np.linalg.slogdet(matrices)[1], rtol=1e-12, atol=1e-12)
    product = np.moveaxis(inverse, -1, 0) @ matrices
    worst = np.linalg.cond(matrices).max()
    np.testing.assert_allclose(product, np.broadcast_to(np.eye(size), product.shape), atol=1e-14 * worst)


def test_large_determinants_do_not_overflow():
    matrices = np.repeat((1e60 * np.eye(12))[:, :, None], 4, axis=2)
    np.testing.assert_allclose(batched.inverted(matrices)[1], 12 * 60 * np.log(10), rtol=1e-13)


def test_packed_squares_unpack_to_outer_products():
    rows = np.random.default_rng(0).standard_normal((6, 4))
    found = batched.unpacked(batched.packed_squares(rows).T, 4)
    np.testing.assert_array_equal(found, np.einsum("na,nb->abn", rows, rows))
