from __future__ import annotations

import numpy as np
import pytest

from dlatent.gaussian.expectation import projection
from dlatent.operators.symmetric import top_eigenpairs, top_eigenvalues


@pytest.mark.parametrize("noise", [1e-6, 1.0, 1e4])
def test_a_projection_is_that_of_the_dense_matrix(noise):
    rng = np.random.default_rng(0)
    factor, diagonal = rng.normal(size=(12, 3)), noise * rng.uniform(0.5, 2.0, size=12)
    dense = factor @ factor.T + np.diag(diagonal)
    coefficients, covariance, log_determinant = projection(factor, diagonal)
    assert log_determinant == pytest.approx(np.linalg.slogdet(dense)[1], rel=1e-10)
    np.testing.assert_allclose(coefficients, np.linalg.solve(dense, factor).T, rtol=1e-7, atol=1e-9)
    # The covariance of z given x, from the joint normal distribution of both.
    conditional = np.eye(3) - factor.T @ np.linalg.solve(dense, factor)
    np.testing.assert_allclose(covariance, conditional, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("size", [9, 40])
def test_top_eigenpairs_are_the_last_of_all(size):
    rng = np.random.default_rng(1)
    half = rng.normal(size=(size, size))
    values, vectors = top_eigenpairs(half @ half.T, 4)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(half @ half.T)[::-1][:4])
    np.testing.assert_allclose(half @ half.T @ vectors, vectors * values, atol=1e-9)


@pytest.mark.parametrize("size", [1, 2, 15, 40])
@pytest.mark.parametrize("rounding", [0.0, 1e-17, 1e-16, 1e-15, 1e-12])
def test_top_eigenpairs_of_nearly_equal_eigenvalues_are_found(size, rounding):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        noise = rounding * rng.normal(size=(size, size))
        matrix = np.eye(size) + noise + noise.T
        for count in (0, 1, min(10, size), size + 3):
            values, vectors = top_eigenpairs(matrix, count)
            assert values.shape == (min(count, size),)
            np.testing.assert_allclose(values, 1.0, atol=1e-10)
            np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(values)), atol=1e-10)
            np.testing.assert_allclose(top_eigenvalues(matrix, count), values, atol=1e-13)


@pytest.mark.parametrize("failure", ["error", "none", "not orthogonal"])
def test_what_lapack_does_not_find_quickly_is_found(failure, monkeypatch):
    def failing(matrix, **_):
        if failure == "error":
            raise np.linalg.LinAlgError("Internal Error.")
        if failure == "none":
            return np.zeros(0), np.zeros((40, 0))
        values, vectors = np.linalg.eigh(matrix)
        vectors[:, -1] = vectors[:, -2]
        return values[-4:], vectors[:, -4:]

    monkeypatch.setattr("scipy.linalg.eigh", failing)
    half = np.random.default_rng(1).normal(size=(40, 40))
    values, vectors = top_eigenpairs(half @ half.T, 4)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(half @ half.T)[::-1][:4])
    np.testing.assert_allclose(half @ half.T @ vectors, vectors * values, atol=1e-9)
