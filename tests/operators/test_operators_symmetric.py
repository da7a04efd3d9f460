"""Many small symmetric matrices at a time."""

from __future__ import annotations

import numpy as np
import pytest

from dlatent.operators import symmetric


@pytest.mark.parametrize("size", [1, 2, 5, 11, symmetric.SWEPT, symmetric.SWEPT + 1, 40])
@pytest.mark.parametrize("count", [1, 3, 300])
def test_inverses_and_determinants(size, count):
    rng = np.random.default_rng(size + count)
    roots = rng.standard_normal((count, size, size + 2)) * rng.uniform(0.01, 100.0, (count, 1, 1))
    matrices = roots @ roots.transpose(0, 2, 1) + np.eye(size)
    inverse, log_determinant = symmetric.inverted(np.moveaxis(matrices, 0, -1).copy())
    np.testing.assert_allclose(log_determinant, np.linalg.slogdet(matrices)[1], rtol=1e-12, atol=1e-12)
    product = np.moveaxis(inverse, -1, 0) @ matrices
    worst = np.linalg.cond(matrices).max()
    np.testing.assert_allclose(product, np.broadcast_to(np.eye(size), product.shape), atol=1e-14 * worst)


@pytest.mark.parametrize("size", [1, 2, 30])
def test_the_solution_with_a_positive_matrix(size):
    rng = np.random.default_rng(size)
    root, right = rng.standard_normal((size, size + 3)), rng.standard_normal((size, 4))
    matrix = root @ root.T
    given = matrix.copy(), right.copy()
    solution, log_determinant = symmetric.positive_solve(matrix, right)
    np.testing.assert_allclose(solution, np.linalg.solve(matrix, right), rtol=1e-10)
    assert log_determinant == pytest.approx(np.linalg.slogdet(matrix)[1], abs=1e-10)
    np.testing.assert_array_equal(matrix, given[0])
    np.testing.assert_array_equal(right, given[1])


@pytest.mark.parametrize("number", [-1.0, 0.0, np.nan, np.inf])
def test_there_is_no_solution_with_another_matrix(number):
    with pytest.raises(np.linalg.LinAlgError):
        symmetric.positive_solve(np.diag([1.0, number, 2.0]), np.ones((3, 1)))


@pytest.mark.parametrize("size", [12, 30])
def test_large_determinants_do_not_overflow(size):
    matrices = np.repeat((1e60 * np.eye(size))[:, :, None], 4, axis=2)
    np.testing.assert_allclose(symmetric.inverted(matrices)[1], size * 60 * np.log(10), rtol=1e-13)


@pytest.mark.parametrize("size", [12, 30])
def test_what_is_not_finite_has_no_inverse_and_is_no_error(size):
    """A step of an iteration that goes astray is given up by its likelihood."""
    matrices = np.repeat(np.eye(size)[:, :, None], 3, axis=2)
    matrices[0, 0, 1] = np.nan
    inverse, log_determinant = symmetric.inverted(matrices)
    assert np.isnan(inverse[:, :, 1]).any()
    assert np.isnan(log_determinant[1])


@pytest.mark.parametrize("size", [4, 25])
def test_an_inverse_depends_on_its_own_matrix_only(size):
    """To the last bit, however many are inverted together: results may not depend on the cut into blocks of a group."""
    roots = np.random.default_rng(3).standard_normal((150, size, size + 2))
    matrices = np.moveaxis(roots @ roots.transpose(0, 2, 1), 0, -1)
    whole, _ = symmetric.inverted(matrices.copy())
    for at in (slice(0, 1), slice(37, 90)):
        np.testing.assert_array_equal(symmetric.inverted(matrices[:, :, at].copy())[0], whole[:, :, at])


def test_packed_squares_unpack_to_outer_products():
    rows = np.random.default_rng(0).standard_normal((6, 4))
    found = symmetric.unpacked(symmetric.packed_squares(rows).T, 4)
    np.testing.assert_array_equal(found, np.einsum("na,nb->abn", rows, rows))


@pytest.mark.parametrize("by", [np.eye(4, 3), np.eye(4, 6), np.eye(4)[:, [2, 0]], np.eye(4)[:, [1, 1]], np.eye(0, 2)])
def test_chosen_components_are_those_of_the_product(by):
    """A matrix of ones and zeros chooses, any other multiplies."""
    rng, size = np.random.default_rng(0), len(by)
    matrices = rng.standard_normal((5, size, size))
    matrices += matrices.transpose(0, 2, 1)
    for factor in (by, 2.0 * by):
        first, second = symmetric.triangle(size)
        product = symmetric.congruent(matrices[:, first, second], factor)
        expected = np.einsum("ak,nab,bl->nkl", factor, matrices, factor)
        np.testing.assert_array_equal(np.moveaxis(symmetric.unpacked(product.T, by.shape[1]), -1, 0), expected)
