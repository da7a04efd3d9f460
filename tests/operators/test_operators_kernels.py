"""Kernels against their formulas, and centring against features that are written down."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import pairwise

from dlatent.errors import DataError
from dlatent.operators.kernels import COLUMN_BYTES, Kernel, LandmarkMap, centred_kernel, median_gamma, products_about
from tests.law_examples import examples

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((9, 5)), RNG.standard_normal((7, 5))
X[:, 1], Y[:3, 2] = 0.0, 0.0


def differences(x, y):
    return x[:, None] - y


EXPECTED = {
    "linear": lambda x, y: x @ y.T,
    "rbf": lambda x, y: np.exp(-0.3 * (differences(x, y) ** 2).sum(axis=-1)),
    "polynomial": lambda x, y: (0.3 * x @ y.T + 0.7) ** 3,
    "cosine": lambda x, y: x @ y.T / np.linalg.norm(x, axis=1)[:, None] / np.linalg.norm(y, axis=1),
    "laplacian": lambda x, y: np.exp(-0.3 * abs(differences(x, y)).sum(axis=-1)),
}


def cube(x, y):
    return np.asarray((x @ y.T) ** 3)


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_kernels_are_their_formulas(name, sparse):
    kernel = Kernel(name, gamma=0.3, degree=3, coef0=0.7)
    x, y = (sp.csr_array(X), sp.csr_array(Y)) if sparse else (X, Y)
    np.testing.assert_allclose(kernel(x, y), EXPECTED[name](X, Y), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(kernel.diagonal(x), np.diag(EXPECTED[name](X, X)), rtol=1e-12)
    np.testing.assert_allclose(kernel(x[:4], x), kernel(x, x[:4]).T, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", EXPECTED)
def test_float32_rows_give_float64_kernels(name):
    found = Kernel(name, gamma=0.3, coef0=0.7)(X.astype(np.float32), Y.astype(np.float32))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, EXPECTED[name](X, Y), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", EXPECTED)
def test_sparse_rows_may_have_wide_indices(name):
    wide = sp.csr_array(X)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    found = Kernel(name, gamma=0.3, coef0=0.7)(wide, sp.csr_array(Y))
    np.testing.assert_allclose(found, EXPECTED[name](X, Y), rtol=1e-12, atol=1e-14)


def test_rows_of_zeros_have_no_direction():
    rows = np.vstack([X[:2], np.zeros((1, 5))])
    kernel = Kernel("cosine")
    assert (kernel(rows, X)[2] == 0).all()
    np.testing.assert_array_equal(kernel.diagonal(rows), [1, 1, 0])


def test_distances_keep_their_digits_far_from_zero():
    far = Kernel("rbf", gamma=0.3)(X + 1e6, Y + 1e6)
    np.testing.assert_allclose(far, EXPECTED["rbf"](X, Y), rtol=1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_about_a_shift_keep_their_digits_over_many_columns(dtype):
    """Exact sums by `math.fsum` of rows far from zero, which are wider than what is multiplied at a time."""
    rng, wide = np.random.default_rng(4), COLUMN_BYTES // (8 * 6) + 7
    x, y = (1e6 + rng.standard_normal((rows, wide)).astype(dtype) for rows in (4, 2))
    shift = np.full(wide, 1e6)
    expected = [[math.fsum((a - shift) * (b - shift)) for b in y] for a in x]
    for left, right in (([x], [y]), ([x[:1], x[1:]], [y[:1], y[1:]])):
        found = products_about(left, right, shift)
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-9)
        assert found.dtype == np.float64


def test_products_of_rows_with_themselves_are_symmetric():
    pieces = [RNG.standard_normal((rows, 301)) for rows in (3, 1, 5)]
    found = products_about(pieces, pieces, RNG.standard_normal(301))
    np.testing.assert_array_equal(found, found.T)


def test_a_shift_changes_no_centred_linear_kernel():
    shift = RNG.standard_normal(5)
    plain, moved = Kernel("linear")(X, X), Kernel("linear", shift=shift)(X, X)
    assert abs(plain - moved).max() > 0.1
    np.testing.assert_allclose(centred_kernel(moved), centred_kernel(plain), atol=1e-12)


def test_a_function_is_a_kernel_and_is_checked():
    kernel = Kernel("callable", function=cube)
    np.testing.assert_array_equal(kernel(X, Y), cube(X, Y))
    np.testing.assert_allclose(kernel.diagonal(np.vstack([X] * 20)), np.diag(cube(*[np.vstack([X] * 20)] * 2)))
    with pytest.raises(DataError, match=r"shape \(5, 7\) for 9 and 7 rows"):
        Kernel("callable", function=lambda x, y: cube(x, y)[:5])(X, Y)
    with pytest.raises(DataError, match="not finite"):
        Kernel("callable", function=lambda x, y: cube(x, y) * np.nan)(X, Y)


def quadratic_features(rows):
    """φ(x) with φ(x)ᵀφ(x') = (x₁ᵀx' + 1)², written down."""
    first, second = np.triu_indices(rows.shape[1])
    products = rows[:, first] * rows[:, second] * np.where(first == second, 1.0, np.sqrt(2.0))
    return np.hstack([np.ones((len(rows), 1)), np.sqrt(2.0) * rows, products])


@settings(max_examples=examples(25))
@given(seed=st.integers(0, 10_000), rows=st.integers(2, 12))
def test_centring_is_that_of_the_features(seed, rows):
    """(27), against features that are written down."""
    x = np.random.default_rng(seed).standard_normal((rows, 3))
    features = quadratic_features(x) - quadratic_features(x).mean(axis=0)
    kernel = Kernel("polynomial", gamma=1.0, degree=2, coef0=1.0)
    np.testing.assert_allclose(centred_kernel(kernel(x, x)), features @ features.T, atol=1e-9)


def test_the_known_dimensions_are_the_ranks_of_many_rows():
    many = np.random.default_rng(1).standard_normal((80, 3))
    for kernel in (Kernel("linear"), Kernel("polynomial", degree=2), Kernel("polynomial", degree=3)):
        assert np.linalg.matrix_rank(centred_kernel(kernel(many, many))) == kernel.dimension(3)
    assert Kernel("rbf").dimension(3) is None


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_the_median_heuristic(sparse):
    rows = sp.csr_array(X) if sparse else X
    pairs = np.triu_indices(len(X), 1)
    squared = pairwise.euclidean_distances(X, squared=True)[pairs]
    assert median_gamma("rbf", rows) == pytest.approx(1 / (2 * np.median(squared)))
    taxi = pairwise.manhattan_distances(X)[pairs]
    assert median_gamma("laplacian", rows) == pytest.approx(1 / np.median(taxi))
    assert median_gamma("polynomial", rows) == pytest.approx(1 / np.median((X**2).sum(axis=1)))
    assert median_gamma("cosine", rows) == 1.0
    with pytest.raises(DataError, match="constant; give a number"):
        median_gamma("rbf", np.ones((5, 2)))


def test_landmarks_project_features():
    """c(x)ᵀc(x') = φ(x)ᵀ P φ(x') with P the projection on the span of the landmarks' features."""
    kernel = Kernel("polynomial", gamma=1.0, degree=2, coef0=1.0)
    inside = LandmarkMap.of(kernel, X[:6])
    span, _ = np.linalg.qr(quadratic_features(X[:6]).T)
    fresh = quadratic_features(Y)
    np.testing.assert_allclose(inside(Y) @ inside(Y).T, fresh @ span @ span.T @ fresh.T, atol=1e-9)
    doubled = LandmarkMap.of(kernel, np.vstack([X[:6], X[:6]]))
    assert doubled.width == inside.width == 6
