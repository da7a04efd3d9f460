"""The mean of several rules, its weights, and logistic regression: against definitions and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logsumexp, softmax
from sklearn.linear_model import LogisticRegression

from dlatent.gaussian.classes import OFFSET_VARIANCE, VARIANCES, logistic
from dlatent.gaussian.head import LabelledRows, output_head, output_sums
from dlatent.gaussian.stack import PRIOR_ROWS, Stack, stacking_weights


@given(st.integers(0, 200), st.integers(1, 6), st.integers(1, 40), st.floats(0.1, 30.0))
def test_the_weights_are_the_most_probable_ones(seed, rules, rows, scale):
    """No other weights make the rows and themselves more probable, whose prior is as two rows that all rules tell
    alike."""
    rng = np.random.default_rng(seed)
    log_p = -scale * rng.exponential(size=(rules, rows))

    def height(weights):
        prior = PRIOR_ROWS / rules * np.log(weights).sum()
        return logsumexp(log_p, b=weights[:, None], axis=0).sum() + prior

    weights = stacking_weights(log_p)
    assert weights.sum() == pytest.approx(1.0)
    top = height(weights)
    others = [*rng.dirichlet(np.ones(rules), size=20), *(0.99 * weights + 0.01 * np.eye(rules))]
    assert max(height(other) for other in others) <= top + 1e-4 * rows


def test_a_row_that_is_told_by_chance_decides_nothing():
    """Of few rows a rule that is sure and right has no more than its share of what the prior leaves; of many, all."""
    few, many = (stacking_weights(np.repeat([[np.log(0.5)], [0.0]], rows, axis=1)) for rows in (4, 400))
    assert few[1] < 0.9 < 0.98 < many[1]


def stack(classes, seed=0, rules=3, k=4, width=5):
    rng = np.random.default_rng(seed)
    lengths = np.stack([np.zeros((k, k)), np.eye(k), rng.normal(size=(k, k))])
    parts = rng.normal(size=(rules, k, width)), rng.normal(size=(rules, width)), lengths
    weights = rng.dirichlet(np.ones(rules), size=width if not classes else 1).T
    return Stack(*parts, np.broadcast_to(weights, (rules, width)), classes, rng.normal(size=(7, width)))


@pytest.mark.parametrize("classes", [True, False])
def test_a_stack_is_the_mean_of_the_probabilities_of_its_rules(classes):
    rules, rng = stack(classes), np.random.default_rng(1)
    z, x, expected = 3.0 * rng.normal(size=(6, 4)), rng.normal(size=(6, 7)), 0.0
    for m in range(3):
        u = z if m == 0 else z / np.linalg.norm(z @ rules.lengths[m], axis=1, keepdims=True)
        outputs = u @ rules.coefficients[m] + rules.offsets[m] + (x @ rules.features if m == 2 else 0.0)
        expected = expected + rules.weights[m] * (softmax(outputs, axis=1) if classes else expit(outputs))
    found = rules.decisions(z, x=x)
    np.testing.assert_allclose(np.exp(found) if classes else expit(found), expected, rtol=1e-10)
    mean = rng.normal(size=7)
    np.testing.assert_allclose(rules.about(mean).decisions(z, x=x), rules.decisions(z, x=x - mean), rtol=1e-10)


def labels(seed, n=80, k=3):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, k)) * np.linspace(2.0, 0.5, k)
    return x, (rng.random(n) < expit(x @ rng.normal(size=k) - 0.5)).astype(float)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_logistic_regression_is_that_of_scikit_learn_with_the_variance_that_rows_left_out_choose(seed):
    x, y = labels(seed)
    scaled, found, losses = x / np.sqrt(np.mean(x**2)), logistic(x, y), []
    for variance in VARIANCES:
        options = {"C": variance, "tol": 1e-8, "max_iter": 1000}
        total = 0.0
        for row in range(len(y)):
            rest = np.arange(len(y)) != row
            model = LogisticRegression(**options).fit(scaled[rest], y[rest])
            total += model.predict_log_proba(scaled[row : row + 1])[0, int(y[row])]
        losses.append(total / len(y))
    assert found.left_out.mean() == pytest.approx(max(losses), abs=5e-3)
    best = min(VARIANCES, key=lambda v: np.abs(coefficients(scaled, y, v) - found_weights(found, x)).max())
    np.testing.assert_allclose(found_weights(found, x), coefficients(scaled, y, best), atol=5e-3)
    assert losses[list(VARIANCES).index(best)] == pytest.approx(max(losses), abs=5e-3)


def found_weights(found, x):
    return np.append(found.coefficients * np.sqrt(np.mean(x**2)), found.offsets)


def coefficients(scaled, y, variance):
    """By scikit-learn, whose offset has no prior; that of ours is wide."""
    assert OFFSET_VARIANCE > 100.0
    model = LogisticRegression(C=variance, tol=1e-9, max_iter=1000).fit(scaled, y)
    return np.append(model.coef_, model.intercept_)


@pytest.mark.parametrize("y", [np.zeros(5), np.ones(5), np.array([1.0, 0.0, 0.0, 0.0, 0.0])])
def test_labels_that_hardly_occur_have_probabilities(y):
    found = logistic(np.random.default_rng(0).normal(size=(5, 8)), y)
    assert np.isfinite(found.coefficients).all()
    assert np.isfinite(found.left_out).all()
    assert np.abs(found.offsets) < 20.0


@pytest.mark.parametrize("wide", [False, True])
def test_numbers_are_learned_from_rows_or_from_sums_alike(wide):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(20, 30 if wide else 6))
    z, t = x[:, :2] + 0.1 * rng.normal(size=(20, 2)), x[:, 2:4] + 0.2 * rng.normal(size=(20, 2))
    t -= t.mean(axis=0)
    rows = LabelledRows(z, t, np.zeros((2, 2)), None, x)
    one = output_head(rows, np.eye(2), np.array([3.0, 4.0]), np.eye(2))
    other = output_head(rows._replace(sums=output_sums(z, x, t)), np.eye(2), np.array([3.0, 4.0]), np.eye(2))
    new = rng.normal(size=x.shape)
    assert one.features is not None
    if (
        not wide
    ):  # else the prior variances of the two are others, as those of the features are relative to their number
        np.testing.assert_allclose(one.outputs(new[:, :2], new), other.outputs(new[:, :2], new), rtol=1e-6)
    assert np.mean((one.outputs(z, x) - t - [3.0, 4.0]) ** 2) < 0.1
