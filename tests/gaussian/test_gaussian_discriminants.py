"""Normal classes with one covariance and a prior by evidence, against t distributions row by row, and rows really left
out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg as la
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from scipy.stats import multivariate_t
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from dlatent.gaussian.classes import (
    COVARIANCE_ROWS,
    MEAN_ROWS,
    SCALES,
    ClassSums,
    Prior,
    discriminants,
    prior,
    temperature,
)


def case(seed, n=18, k=3, classes=3, spread=1.5):
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % classes
    return rng.normal(size=(n, k)) * np.linspace(1.0, 0.3, k) + spread * rng.normal(size=(classes, k))[codes], codes


def fitted(x, codes, classes, found):
    """Means, their weights and the scatter of rows, from the definition."""
    k = x.shape[1]
    weights, means, scatter = np.zeros(classes), np.zeros((classes, k)), found.scale * np.eye(k)
    for code in range(classes):
        own = x[codes == code]
        weights[code] = found.mean_rows + len(own)
        means[code] = own.sum(axis=0) / weights[code]
        scatter += (own - means[code]).T @ (own - means[code]) + found.mean_rows * np.outer(means[code], means[code])
    return means, weights, scatter


def evidence_row_by_row(x, codes, classes, found):
    """log p(x), each row given those before it: a t distribution."""
    k, total = x.shape[1], 0.0
    for row in range(len(x)):
        means, weights, scatter = fitted(x[:row], codes[:row], classes, found)
        mean, weight = means[codes[row]], weights[codes[row]]
        degrees = found.degrees + row - k + 1
        shape = scatter * (weight + 1) / (weight * degrees)
        total += multivariate_t(mean, shape, df=degrees).logpdf(x[row])
    return total


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_evidence_is_the_density_of_the_rows_and_no_other_prior_has_more(seed):
    x, codes = case(seed)
    found = prior(ClassSums.of(x, codes, 3))
    assert found.evidence == pytest.approx(evidence_row_by_row(x, codes, 3, found), abs=1e-8)
    rng, scales = np.random.default_rng(seed), SCALES * (x**2).mean()
    for _ in range(10):
        other = Prior(rng.choice(MEAN_ROWS), rng.choice(COVARIANCE_ROWS) + 4.0, rng.choice(scales), 0.0)
        assert evidence_row_by_row(x, codes, 3, other) <= found.evidence + 1e-8


@pytest.mark.parametrize(("seed", "each"), [(0, 6), (1, 6), (2, 1)])
def test_rows_that_are_left_out_are_as_if_they_had_not_been_there(seed, each):
    x, codes = case(seed, n=3 * each)
    shares = np.array([0.5, 0.3, 0.2])
    sums = ClassSums.of(x, codes, 3)
    known, found = prior(sums), discriminants(sums, x, codes, shares)

    def log_odds(rows, own, new):
        means, _, scatter = fitted(rows, own, 3, known)
        precision = la.inv(scatter) * (known.degrees - 4.0 + len(rows))
        return [new @ precision @ m - 0.5 * m @ precision @ m + np.log(p) for m, p in zip(means, shares, strict=True)]

    whole = np.array([log_odds(x, codes, row) for row in x])
    odds = x @ found.coefficients + found.offsets
    cool = odds[0, 0] / whole[0, 0]
    assert 0 < cool <= 1 + 1e-12
    np.testing.assert_allclose(odds, cool * whole, rtol=1e-7)
    rest = [np.arange(len(x)) != row for row in range(len(x))]
    without = np.array([log_odds(x[own], codes[own], row) for own, row in zip(rest, x, strict=True)])
    expected = log_softmax(cool * without, axis=1)[np.arange(len(x)), codes]
    np.testing.assert_allclose(found.left_out, expected, rtol=1e-6, atol=1e-9)


def test_with_many_rows_it_is_discriminant_analysis():
    x, codes = case(3, n=3000, spread=0.7)
    found = discriminants(ClassSums.of(x, codes, 3), x, codes, np.full(3, 1 / 3))
    plain = LinearDiscriminantAnalysis().fit(x, codes)
    odds = x @ found.coefficients + found.offsets
    np.testing.assert_allclose(softmax(odds, axis=1), plain.predict_proba(x), atol=0.01)


@given(st.integers(0, 30), st.floats(0.01, 100))
@settings(max_examples=10)
def test_units_and_rotations_change_nothing(seed, scale):
    x, codes = case(seed)
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))[0]
    shares = np.full(3, 1 / 3)
    found, other = (discriminants(ClassSums.of(rows, codes, 3), rows, codes, shares) for rows in (x, scale * x @ turn))
    np.testing.assert_allclose(
        scale * x @ turn @ other.coefficients + other.offsets, x @ found.coefficients + found.offsets, atol=1e-4
    )


def test_the_temperature_is_that_of_the_largest_probability_and_never_sharpens():
    rng = np.random.default_rng(4)
    odds, codes = 3.0 * rng.normal(size=(200, 3)), rng.integers(0, 3, 200)
    codes[:120] = odds[:120].argmax(axis=1)
    found = temperature(odds, codes)

    def loss(factor):
        return -log_softmax(factor * odds, axis=1)[np.arange(200), codes].sum()

    assert found < 0.9
    assert all(loss(found) <= loss(found * factor) + 1e-9 for factor in (0.9, 0.99, 1.01, 1.1))
    assert temperature(odds, odds.argmax(axis=1)) == 1.0
