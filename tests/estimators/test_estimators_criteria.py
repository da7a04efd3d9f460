"""Criteria and the inverse covariance of linear models, beside other programs and definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.mixture import GaussianMixture

from dlatent import PPCA, FactorAnalysis, PPCAMixture, RelationalPPCA, SupervisedPPCA

N, D, K = 300, 7, 2


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    rng = np.random.default_rng(5)
    spread = rng.uniform(0.3, 0.6, D)
    return rng.normal(size=(N, K)) @ rng.normal(size=(K, D)) + spread * rng.normal(size=(N, D)) + rng.normal(size=D)


@pytest.mark.parametrize("model", [PPCA(K), FactorAnalysis(K), PPCA(D)], ids=["ppca", "fa", "as many as features"])
def test_the_precision_is_the_inverse_of_the_covariance(X: np.ndarray, model: Any) -> None:
    model.fit(X)
    precision = model.get_precision()
    np.testing.assert_allclose(precision @ model.get_covariance(), np.eye(D), atol=1e-9)
    assert np.array_equal(precision, precision.T)
    # What a graphical model says of two features given the others.
    dense = multivariate_normal(model.mean_, np.linalg.inv(precision))
    np.testing.assert_allclose(model.score_samples(X), dense.logpdf(X), rtol=1e-8)


def test_the_precision_of_ppca_is_that_of_scikit_learn(X: np.ndarray) -> None:
    # Its covariance is divided by N - 1 instead of N.
    other = PCA(K).fit(X)
    np.testing.assert_allclose(PPCA(K).fit(X).get_precision(), other.get_precision() * N / (N - 1), rtol=1e-8)


def test_the_precision_of_supervised_models_is_that_of_the_features(X: np.ndarray) -> None:
    model = SupervisedPPCA(K).fit(X, X[:, 0] + 1.0)
    np.testing.assert_allclose(model.get_precision() @ model.get_covariance(), np.eye(D), atol=1e-9)


def test_all_components_are_one_full_gaussian(X: np.ndarray) -> None:
    """With K = D - 1 PPCA has as many free numbers as the full covariance matrix, and its maximum."""
    model, full = PPCA(D - 1).fit(X), GaussianMixture(1, reg_covar=0.0).fit(X)
    assert model.n_parameters_ == full._n_parameters()
    assert model.bic(X) == pytest.approx(full.bic(X), rel=1e-9)
    assert model.aic(X) == pytest.approx(full.aic(X), rel=1e-9)


@pytest.mark.parametrize(("isotropic", "model"), [(True, PPCA), (False, FactorAnalysis)])
def test_one_model_is_a_mixture_of_one(X: np.ndarray, isotropic: bool, model: Any) -> None:
    mixture = PPCAMixture(K, 1, noise="isotropic" if isotropic else "diagonal").fit(X)
    fitted = model(K).fit(X)
    assert fitted.n_parameters_ == mixture.n_parameters_ == D * K - 1 + D + (1 if isotropic else D)
    assert fitted.bic(X) == pytest.approx(mixture.bic(X), rel=1e-8)


def test_the_criterion_finds_the_planted_number_of_components() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 3)) @ rng.normal(size=(3, 12)) + 0.5 * rng.normal(size=(2000, 12))
    assert min(range(1, 7), key=lambda k: PPCA(k).fit(X).bic(X)) == 3


def test_missing_entries_count_by_what_was_observed(X: np.ndarray) -> None:
    holes = X.copy()
    holes[::3, 1] = np.nan
    model = PPCA(K, missing="nan", prior="ml").fit(holes)
    assert model.aic(holes) == pytest.approx(-2 * model.log_likelihood_ + 2 * model.n_parameters_, rel=1e-9)


def test_samples_in_a_graph_are_not_independent() -> None:
    assert not hasattr(RelationalPPCA(2), "bic")


@pytest.mark.parametrize("name", ["n_parameters_", "bic", "aic", "get_precision"])
def test_not_before_a_fit(X: np.ndarray, name: str) -> None:
    arguments = (X,) if name in ("bic", "aic") else ()
    with pytest.raises(NotFittedError):
        getattr(PPCA(2), name)(*arguments)
