"""Class probabilities beside linear discriminant analysis and beside Bayes' rule with dense normal distributions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import multivariate_normal
from sklearn.datasets import load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.preprocessing import scale

from dlatent.fitted.targets import encode_targets
from dlatent.gaussian import likelihood
from dlatent.gaussian.classes import ClassRule
from dlatent.gaussian.missing_entries import incomplete
from dlatent.gaussian.specification import Parameters, Specification, View

D, L, K, C = 4, 2, 3, 3
RNG = np.random.default_rng(7)
LOADINGS, MEAN, NOISE = RNG.standard_normal((D + L, K)), RNG.standard_normal(D + L), np.array([0.6, 0.2])
CODES, SHARES = RNG.standard_normal((C, L)), np.array([0.2, 0.5, 0.3])
X = RNG.standard_normal((9, D)) + MEAN[:D]
SPECIFICATION = Specification((View("features", D), View("targets", L)), ((0, 1),), K)


def rule(precision: float = 1.0) -> ClassRule:
    return ClassRule.of(CODES, SHARES, LOADINGS[D:], MEAN[D:], float(NOISE[1]), precision)


def by_bayes(x: np.ndarray, precision: float = 1.0) -> np.ndarray:
    """log p(c | the features of x that are no NaN), from the dense joint covariance."""
    noise = np.repeat(NOISE, (D, L))
    joint = (LOADINGS @ LOADINGS.T + np.diag(noise)) / precision
    found = []
    for row in x:
        seen = np.flatnonzero(~np.isnan(row))
        towards = joint[np.ix_(seen, range(D, D + L))] @ np.linalg.inv(joint[D:, D:])
        rest = joint[np.ix_(seen, seen)] - towards @ joint[np.ix_(range(D, D + L), seen)]
        beside = [multivariate_normal(MEAN[seen] + towards @ (code - MEAN[D:]), rest) for code in CODES]
        found.append(log_softmax(np.log(SHARES) + [one.logpdf(row[seen]) for one in beside]))
    return np.array(found)


@pytest.mark.parametrize("precision", [1.0, 2.5])
def test_probabilities_are_those_of_dense_normal_distributions(precision: float) -> None:
    parameters = Parameters(LOADINGS, MEAN, NOISE)
    found = likelihood.posterior_rows(X, parameters, SPECIFICATION, rule(precision).decisions, C)
    np.testing.assert_allclose(found, by_bayes(X, precision), atol=1e-10)


def test_rows_with_missing_entries_have_probabilities_of_their_own() -> None:
    parameters = Parameters(LOADINGS, MEAN, NOISE)
    holes = np.where(np.random.default_rng(0).random(X.shape) < 0.3, np.nan, X)
    holes[0] = np.nan
    holes[1, 0] = X[1, 0]
    found = incomplete.posterior_rows(holes, parameters, SPECIFICATION, rule().decisions, C)
    np.testing.assert_allclose(found[1:], by_bayes(holes[1:]), atol=1e-10)
    np.testing.assert_allclose(found[0], np.log(SHARES), atol=1e-12)


@pytest.mark.parametrize("read", [load_iris, load_wine])
def test_a_model_of_the_whole_covariance_is_linear_discriminant_analysis(read) -> None:
    """With as many factors as features and targets the joint distribution of both is any normal one: take that of the
    data."""
    x, y = scale(read().data), read().target
    encoded = encode_targets(y, len(y), "class")
    rows = np.column_stack([x, encoded.encoding.encode(y, len(y))])
    width, own = x.shape[1], encoded.encoding.rank
    covariance, little = np.cov(rows.T, bias=True), 1e-9
    loadings = np.linalg.cholesky(covariance - little * np.eye(width + own))
    parameters = Parameters(loadings, rows.mean(axis=0), np.full(2, little))
    whole = Specification((View("features", width), View("targets", own)), ((0, 1),), width + own)
    codes, shares = encoded.encoding.table(), encoded.encoding.centre
    told = ClassRule.of(codes, shares, loadings[width:], parameters.mean[width:], little, 1.0)
    found = np.exp(likelihood.posterior_rows(x, parameters, whole, told.decisions, len(codes)))
    np.testing.assert_allclose(found, LinearDiscriminantAnalysis(solver="lsqr").fit(x, y).predict_proba(x), atol=1e-5)
