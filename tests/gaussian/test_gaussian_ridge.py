"""Regression with a prior by evidence, against dense normal densities, scikit-learn, and rows really left out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg as la
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.linear_model import Ridge as PlainRidge

from dlatent.gaussian.ridge import Axes, RidgeSums, prior_variances
from dlatent.gaussian.ridge import ridge as of_sums


def ridge(x, y):
    sums = RidgeSums.of(x, y)
    return of_sums(sums, Axes.of(sums, x), y)


def case(seed, n=14, k=4, noise=0.5):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, k)) * np.linspace(2.0, 0.5, k) + 3.0
    return x, x @ rng.normal(size=k) + 10.0 + noise * rng.normal(size=n)


def evidence_of_dense(x, y):
    """The logarithms of the densities of the contrasts of y, for each prior variance, and these."""
    n = len(y)
    contrasts, found = la.null_space(np.ones((1, n))).T, []
    ratios = prior_variances(RidgeSums.of(x, y))
    for ratio in ratios:
        shape = np.eye(n - 1) + ratio * contrasts @ x @ x.T @ contrasts.T
        seen = contrasts @ y
        noise = seen @ la.solve(shape, seen, assume_a="pos") / (n - 1)
        found.append(multivariate_normal(None, noise * shape).logpdf(seen))
    return np.array(found), ratios


@pytest.mark.parametrize(("seed", "n", "k", "noise"), [(0, 14, 4, 0.5), (1, 6, 9, 0.2), (2, 20, 3, 20.0)])
def test_the_mean_over_prior_variances_by_the_density_of_the_contrasts(seed, n, k, noise):
    x, y = case(seed, n, k, noise)
    evidence, ratios = evidence_of_dense(x, y)
    found, shares = ridge(x, y), np.exp(evidence - logsumexp(evidence))
    assert found.evidence == pytest.approx(logsumexp(evidence), abs=1e-7)
    plain = [PlainRidge(alpha=1.0 / ratio).fit(x, y) for ratio in ratios]
    expected = shares @ np.array([each.coef_ for each in plain])
    np.testing.assert_allclose(found.coefficients, expected, rtol=1e-6, atol=1e-9)
    assert found.offset == pytest.approx(shares @ [each.intercept_ for each in plain], rel=1e-7)
    for row in range(n):
        rest = np.arange(n) != row
        said = [PlainRidge(alpha=1.0 / r).fit(x[rest], y[rest]).predict(x[row : row + 1])[0] for r in ratios]
        assert found.left_out[row] == pytest.approx(y[row] - shares @ said, rel=1e-5)


@given(st.integers(0, 50), st.floats(-10, 10))
def test_sums_of_outputs_are_those_of_the_rows(seed, weight):
    x, y = case(seed)
    targets = np.column_stack([y, np.random.default_rng(seed + 1).normal(size=len(y))])
    joint, output, root = (
        np.column_stack([np.ones(len(y)), x, targets]),
        np.array([1.0, weight]),
        np.eye(4)[:, :2] * 3.0,
    )
    found = RidgeSums.within(joint.T @ joint, slice(1, 5), output).turned(root)
    for one, other in zip(found, RidgeSums.of(x @ root, targets @ output), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_noise_alone_is_told_from_a_signal():
    rng = np.random.default_rng(5)
    x, parts = rng.normal(size=(60, 5)), []
    np.testing.assert_allclose(ridge(x, x @ np.arange(5.0)).coefficients, np.arange(5.0), atol=1e-3)
    for _ in range(20):
        y = rng.normal(size=60)
        least_squares = np.linalg.lstsq(x - x.mean(axis=0), y - y.mean(), rcond=None)[0]
        parts.append(np.linalg.norm(ridge(x, y).coefficients) / np.linalg.norm(least_squares))
    assert np.median(parts) < 0.5
    assert max(parts) < 1.0


@given(st.integers(0, 50), st.floats(-50, 50), st.floats(0.01, 100))
def test_units_change_nothing_else(seed, shift, scale):
    x, y = case(seed)
    found, other = ridge(x, y), ridge(scale * x, scale * y + shift)
    np.testing.assert_allclose(other.coefficients, found.coefficients, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(other.left_out, scale * found.left_out, rtol=1e-5, atol=1e-8 * scale)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_what_tells_nothing_gives_the_mean(n):
    found = ridge(np.ones((n, 3)), np.arange(float(n)))
    np.testing.assert_array_equal(found.coefficients, 0.0)
    assert found.offset == pytest.approx((n - 1) / 2)
    constant = ridge(np.random.default_rng(0).normal(size=(n, 3)), np.full(n, 2.0))
    np.testing.assert_allclose(constant.coefficients, 0.0, atol=1e-12)
    assert np.isfinite(constant.left_out).all()
