"""A linear rule for classes with a normal prior: against the definition, scikit-learn, and rows really left out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from dlatent.gaussian import classes as rule
from dlatent.gaussian.classes import FOLDS, OFFSET_VARIANCE, VARIANCES, softmax

CLASSES = 4


def case(seed=0, n=120, k=3):
    """Rows of classes that lie in sectors, of which no two have one covariance."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, k))
    turned = np.arctan2(x[:, 0], x[:, 1]) + 0.4 * rng.normal(size=n)
    return 5.0 * x, (2.0 * (turned / np.pi + 1.0)).astype(int) % CLASSES


def log_posterior(weights, x, codes, variance):
    """Σ log p(c | x) + log N(A | 0, vI) + log N(b | 0, …), but for constants; [A; b] of rows of mean square 1."""
    scaled = x / np.sqrt(np.mean(x**2))
    own = log_softmax(scaled @ weights[:-1] + weights[-1], axis=1)[np.arange(len(x)), codes].sum()
    return own - 0.5 * (weights[:-1] ** 2).sum() / variance - 0.5 * (weights[-1] ** 2).sum() / OFFSET_VARIANCE


def of_sklearn(x, codes, variance):
    scaled = x / np.sqrt(np.mean(x**2))
    return LogisticRegression(C=variance, max_iter=1000, tol=1e-8).fit(scaled, codes), scaled


def left_out(x, codes, variance):
    """Mean log-probability of rows of which each fold has every fifth, class after class, by scikit-learn."""
    scaled, total = x / np.sqrt(np.mean(x**2)), 0.0
    place = np.argsort(np.argsort(codes, kind="stable")) % FOLDS
    for fold in range(FOLDS):
        out = place == fold
        model = LogisticRegression(C=variance, max_iter=1000, tol=1e-8).fit(scaled[~out], codes[~out])
        total += model.predict_log_proba(scaled[out])[np.arange(out.sum()), codes[out]].sum()
    return total / len(codes)


def test_the_rule_is_the_most_probable_one_and_rows_that_are_left_out_choose_it(monkeypatch):
    monkeypatch.setattr(rule, "SETTLED", 1e-13)
    x, codes = case()
    found = softmax(x, codes, CLASSES)
    scores = [left_out(x, codes, variance) for variance in VARIANCES]
    assert found.left_out.mean() == pytest.approx(max(scores), abs=1e-3)
    best = VARIANCES[int(np.argmax(scores))]
    assert VARIANCES[0] < best < VARIANCES[-1]
    weights = np.vstack([found.coefficients * np.sqrt(np.mean(x**2)), found.offsets])
    top, rng = log_posterior(weights, x, codes, best), np.random.default_rng(1)
    for _ in range(20):
        assert log_posterior(weights + 1e-2 * rng.normal(size=weights.shape), x, codes, best) < top
    theirs, scaled = of_sklearn(x, codes, best)
    mine = log_softmax(x @ found.coefficients + found.offsets, axis=1)
    np.testing.assert_allclose(np.exp(mine), theirs.predict_proba(scaled), atol=2e-3)


def test_units_of_the_rows_do_not_matter():
    x, codes = case(1)
    one, other = softmax(x, codes, CLASSES), softmax(1e6 * x, codes, CLASSES)
    np.testing.assert_allclose(other.coefficients, 1e-6 * one.coefficients, rtol=1e-6)
    np.testing.assert_allclose(other.left_out, one.left_out, rtol=1e-6)


def test_rows_of_zeros_have_the_shares_of_the_classes():
    codes = np.arange(60) % 3 % 2
    found = softmax(np.zeros((60, 2)), codes, 2)
    np.testing.assert_allclose(np.exp(log_softmax(found.offsets)), [2 / 3, 1 / 3], atol=1e-2)
    assert not found.coefficients.any()
