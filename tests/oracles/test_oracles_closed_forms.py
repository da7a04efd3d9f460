"""Whole fits against closed forms and scikit-learn, on every route."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg as la
from sklearn.decomposition import PCA

from dlatent import PPCA
from tests.fitted import parameters_of, specification_of
from tests.oracles import dense as oracles
from tests.simulators import simulate

ROUTES = ["covariance", "krylov"]


def decaying(n, d, seed=0, mean=5.0):
    """Dense rows with a decaying spectrum, no gap, and a mean far from zero."""
    rng = np.random.default_rng(seed)
    turn = la.qr(rng.standard_normal((d, d)))[0]
    return rng.standard_normal((n, d)) * np.linspace(3.0, 0.3, d) @ turn + mean * rng.standard_normal(d)


def largest_angle(one, other):
    return np.max(la.subspace_angles(one, other))


def model_of(fitted):
    width = len(fitted.mean_)
    return oracles.DenseModel(fitted.components_.T, fitted.mean_, np.full(width, fitted.noise_variance_))


@pytest.mark.parametrize("solver", ROUTES)
@pytest.mark.parametrize(("n", "d", "k"), [(300, 40, 5), (200, 60, 12), (1000, 8, 7), (50, 10, 1)])
def test_more_samples_than_features_agree_with_scikit_learn(solver, n, d, k):
    """Scikit-learn divides by N − 1; with that undone its components and noise are those of maximum likelihood."""
    x = decaying(n, d)
    ours = PPCA(k, solver=solver, tol=1e-12).fit(x)
    theirs = PCA(k, svd_solver="full").fit(x)
    assert largest_angle(ours.components_.T, theirs.components_.T) < 1e-6
    shrink = (n - 1) / n
    assert ours.noise_variance_ == pytest.approx(theirs.noise_variance_ * shrink, rel=1e-8)
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_ * shrink, rtol=1e-7)
    np.testing.assert_allclose(ours.get_covariance(), theirs.get_covariance() * shrink, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ours.mean_, theirs.mean_, rtol=1e-12, atol=1e-12)
    at_their_parameters = oracles.log_densities(oracles.principal_components(x, k)._replace(mean=theirs.mean_), x).sum()
    assert ours.log_likelihood_ == pytest.approx(at_their_parameters, rel=1e-9)
    assert ours.log_likelihood_ >= theirs.score(x) * n


@pytest.mark.parametrize("solver", ROUTES)
@pytest.mark.parametrize(("n", "d", "k"), [(20, 60, 3), (12, 400, 6), (15, 15, 4)])
def test_fewer_samples_than_features_agree_with_the_closed_form(solver, n, d, k):
    """The noise is the mean of D − K discarded eigenvalues; scikit-learn's is that of min(N, D) − K, no maximum."""
    x = decaying(n, d)
    ours = PPCA(k, solver=solver, tol=1e-12).fit(x)
    closed = oracles.principal_components(x, k)
    assert ours.log_likelihood_ == pytest.approx(oracles.log_densities(closed, x).sum(), rel=1e-9)
    assert largest_angle(ours.components_.T, closed.loadings) < 1e-6
    assert ours.noise_variance_ == pytest.approx(closed.noise[0], rel=1e-8)
    theirs = PCA(k, svd_solver="full").fit(x)
    if n < d:
        expected = theirs.noise_variance_ * (n - 1) / n * (min(n, d) - k) / (d - k)
        assert ours.noise_variance_ == pytest.approx(expected, rel=1e-7)
        assert ours.score(x) > theirs.score(x)


@pytest.mark.parametrize("solver", ROUTES)
def test_score_samples_and_covariance_are_those_of_the_dense_gaussian(solver):
    x = decaying(80, 9)
    fitted = PPCA(3, solver=solver).fit(x)
    expected = oracles.log_densities(model_of(fitted), x)
    np.testing.assert_allclose(fitted.score_samples(x), expected, rtol=1e-10)
    np.testing.assert_allclose(fitted.get_covariance(), model_of(fitted).observed.covariance, rtol=1e-12)
    assert fitted.log_likelihood_ == pytest.approx(expected.sum(), rel=1e-10)
    assert fitted.score(x) == pytest.approx(expected.mean(), rel=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_transform_is_the_dense_conditional_mean(seed):
    data = simulate(30, (7,), 2, random_state=seed)
    fitted = PPCA(2, whiten=True).fit(data.features)
    expected = [oracles.latent_given(model_of(fitted), row) for row in data.features]
    np.testing.assert_allclose(fitted.transform(data.features), [e.mean for e in expected], rtol=1e-9, atol=1e-10)
    about = fitted.posterior(data.features)
    np.testing.assert_allclose(about["covariance"], expected[0].covariance, rtol=1e-9, atol=1e-12)
    z = fitted.transform(data.features)
    np.testing.assert_allclose(fitted.inverse_transform(z), z @ fitted.components_ + fitted.mean_)


@pytest.mark.parametrize("solver", ROUTES)
def test_the_slope_at_a_ppca_is_zero(solver):
    data = simulate(40, (6,), 2, noise=(0.4,))
    fitted = PPCA(2, solver=solver, tol=1e-13).fit(data.features)
    slope = oracles.score_vector(parameters_of(fitted), specification_of(fitted), data.features)
    assert abs(slope).max() < 1e-7
    wrong = parameters_of(fitted)._replace(mean=parameters_of(fitted).mean + 0.1)
    assert abs(oracles.score_vector(wrong, specification_of(fitted), data.features)).max() > 1e-3


def test_the_simulated_truth_is_found():
    data = simulate(20_000, (6,), 2, noise=(0.3,), random_state=5)
    fitted = PPCA(2).fit(data.features)
    truth = oracles.dense(data.parameters, (6,))
    np.testing.assert_allclose(fitted.get_covariance(), truth.observed.covariance, rtol=0.1, atol=0.1)
    assert fitted.noise_variance_ == pytest.approx(0.3, rel=0.02)


def test_samples_have_the_moments_of_the_model():
    fitted = PPCA(2).fit(simulate(200, (5,), 2).features)
    drawn = fitted.sample(40_000, random_state=1)
    np.testing.assert_allclose(drawn.mean(axis=0), fitted.mean_, atol=0.06)
    np.testing.assert_allclose(np.cov(drawn.T), fitted.get_covariance(), rtol=0.05, atol=0.08)
    np.testing.assert_array_equal(fitted.sample(3, random_state=4), fitted.sample(3, random_state=4))
