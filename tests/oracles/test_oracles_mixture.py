"""Mixtures beside dense normal distributions, the models that they are with one component, and another library."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp, softmax
from scipy.stats import norm
from sklearn.mixture import GaussianMixture

from dlatent import PPCA, FactorAnalysis, PPCAMixture
from dlatent.arrays import Block
from dlatent.engine.connect import connect
from dlatent.gaussian.specification import Specification, View
from dlatent.solvers.mixture.rows import MixtureRows
from dlatent.solvers.mixture.solver import MIXTURE_SOLVERS, Mixtures, MixtureSolver
from dlatent.solvers.mixture.statistics import (
    Mixture,
    MixtureRequest,
    NoisePrior,
    block_mixture,
    maximise_mixture,
    mixture_slope,
)
from dlatent.solvers.planner import make_plan
from dlatent.stores.open import open_data
from tests.oracles.dense import DenseModel, latent_given, numerical_gradient
from tests.oracles.mixture import joint_log_densities, mixture_log_densities, simulate_mixture

NOISES = pytest.mark.parametrize("own_noise", [False, True], ids=["isotropic", "diagonal"])
FORMS = pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])


def case(own_noise, samples=40, features=6, *, separation=2.0, seed=0):
    data = simulate_mixture(samples, features, own_noise=own_noise, separation=separation, random_state=seed)
    view = View("features", features, 0.0, shared=not own_noise)
    return data, Specification((view,), ((0,),), 2)


def dense_model(mixture, number):
    own = mixture.components[number]
    return DenseModel(own.loadings, own.mean, np.broadcast_to(own.noise_variance, own.mean.shape))


@FORMS
@NOISES
def test_densities_and_responsibilities_are_those_of_the_definition(own_noise, form):
    data, _ = case(own_noise)
    joint = joint_log_densities(data.mixture, data.features)
    rows = form(data.features)
    np.testing.assert_allclose(MixtureRows(data.mixture).log_density(rows, None), logsumexp(joint, axis=1), rtol=1e-11)
    np.testing.assert_allclose(
        MixtureRows(data.mixture).responsibilities(rows, None), softmax(joint, axis=1), atol=1e-11
    )


@NOISES
def test_densities_keep_their_digits_where_noise_is_next_to_nothing(own_noise):
    data, _ = case(own_noise)
    small = data.mixture._replace(noise_variance=data.mixture.noise_variance * 1e-9)
    rows = simulate_mixture(30, 6, noise=2e-10, own_noise=own_noise, separation=2.0).features
    # C of condition 1e10 leaves the dense density few digits; in high precision it has them.
    expected = [_log_density_in_quadruple(small, row) for row in rows]
    np.testing.assert_allclose(MixtureRows(small).log_density(rows, None), expected, rtol=1e-9)


def _log_density_in_quadruple(mixture, row):
    mpmath = pytest.importorskip("mpmath", reason="mpmath, which comes with nothing that is installed, is not here")
    with mpmath.workdps(60):
        total = mpmath.mpf(0)
        for weight, own in zip(mixture.weights, mixture.components, strict=True):
            loadings = mpmath.matrix(own.loadings.tolist())
            noise = np.broadcast_to(own.noise_variance, own.mean.shape).tolist()
            covariance = loadings * loadings.T + mpmath.diag(noise)
            apart = mpmath.matrix([mpmath.mpf(x) - mpmath.mpf(m) for x, m in zip(row, own.mean, strict=True)])
            distance = (apart.T * mpmath.lu_solve(covariance, apart))[0]
            scale = mpmath.sqrt((2 * mpmath.pi) ** len(noise) * mpmath.det(covariance))
            total += mpmath.mpf(float(weight)) * mpmath.exp(-distance / 2) / scale
        return float(mpmath.log(total))


@FORMS
@NOISES
def test_scores_are_those_of_the_likeliest_component(own_noise, form):
    data, _ = case(own_noise)
    rows, x = MixtureRows(data.mixture), form(data.features)
    found, again = rows.scores(x, None), rows.reconstructions(x, None)
    for row, z, x in zip(data.features, found, again, strict=True):
        best = int(joint_log_densities(data.mixture, row[None])[0].argmax())
        expected = latent_given(dense_model(data.mixture, best), row).mean
        np.testing.assert_allclose(z, expected, rtol=1e-9, atol=1e-11)
        own = data.mixture.components[best]
        np.testing.assert_allclose(x, own.loadings @ expected + own.mean, rtol=1e-9, atol=1e-11)


@FORMS
@NOISES
def test_an_iteration_is_the_weighted_regression_of_the_definition(own_noise, form):
    """M-step by least squares: each feature on (E[z], 1), rows weighted by r, with K rows for the uncertainty of z."""
    data, specification = case(own_noise, seed=3)
    start = data.mixture._replace(mean=data.mixture.mean + 0.3)
    shift = np.full(6, 0.7)
    request = MixtureRequest(start.moved(-shift), shift)
    sums = block_mixture(Block(0, 0, form(data.features)), request)
    found = maximise_mixture(sums, request.mixture, specification, expand=False).moved(shift)
    shares = softmax(joint_log_densities(start, data.features), axis=1)
    np.testing.assert_allclose(found.weights, shares.mean(axis=0), rtol=1e-10)
    for m in range(3):
        posteriors = [latent_given(dense_model(start, m), row) for row in data.features]
        design, answers = [], []
        for share, row, z in zip(shares[:, m], data.features, posteriors, strict=True):
            root = np.linalg.cholesky(z.covariance).T
            top = np.vstack([np.append(z.mean, 1.0), np.hstack([root, np.zeros((2, 1))])])
            design.append(np.sqrt(share) * top)
            answers.append(np.sqrt(share) * np.vstack([row, np.zeros((2, 6))]))
        a, b = np.vstack(design), np.vstack(answers)
        solved = np.linalg.lstsq(a, b, rcond=None)[0]
        residual = ((b - a @ solved) ** 2).sum(axis=0) / shares[:, m].sum()
        np.testing.assert_allclose(found.loadings[m].T, solved[:2], rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(found.mean[m], solved[2], rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(found.noise_variance[m], residual if own_noise else [residual.mean()], rtol=1e-8)


@NOISES
def test_the_gradient_is_that_of_the_dense_likelihood(own_noise):
    data, specification = case(own_noise, seed=5)
    sums = block_mixture(Block(0, 0, data.features), MixtureRequest(data.mixture, np.zeros(6)))
    point = data.mixture.flatten()

    def value(vector):
        return float(mixture_log_densities(data.mixture.unflatten(vector), data.features).sum())

    found = mixture_slope(sums, data.mixture, specification)
    np.testing.assert_allclose(found, numerical_gradient(value, point), rtol=1e-6, atol=1e-5)


@NOISES
def test_the_prior_of_the_noise_is_that_of_rows_at_its_centre(own_noise):
    """n rows that say (x − μ)² = s of every feature of a component, and nothing else, less what they say at ψ = s."""
    data, specification = case(own_noise, seed=6)
    centre = np.linspace(0.5, 2.0, 6) if own_noise else np.array([0.8])
    prior = NoisePrior(3.0, centre)

    def value(vector):
        mixture = data.mixture.unflatten(vector)
        spread, middle = np.broadcast_to(mixture.noise_variance, (3, 6)), np.broadcast_to(centre, 6)
        pseudo = norm.logpdf(np.sqrt(middle), scale=np.sqrt(spread)) - norm.logpdf(
            np.sqrt(middle), scale=np.sqrt(middle)
        )
        return float(mixture_log_densities(mixture, data.features).sum() + 3.0 * pseudo.sum())

    sums = block_mixture(Block(0, 0, data.features), MixtureRequest(data.mixture, np.zeros(6)))
    point = data.mixture.flatten()
    assert sums.log_likelihood + prior.log_density(data.mixture, specification) == pytest.approx(value(point))
    found = mixture_slope(sums, data.mixture, specification, prior)
    np.testing.assert_allclose(found, numerical_gradient(value, point), rtol=1e-6, atol=1e-5)
    for expand in (True, False):
        image = maximise_mixture(sums, data.mixture, specification, prior, expand=expand)
        assert value(image.flatten()) > value(point)


@NOISES
def test_no_direction_leads_up_from_the_maximum(own_noise):
    data, _ = case(own_noise, 300, 10, separation=3.0, seed=1)
    model = PPCAMixture(2, 3, noise="diagonal" if own_noise else "isotropic", tol=1e-13, noise_prior=0.0).fit(
        data.features
    )
    assert not model.at_floor_.any()
    noise = model.noise_variance_ if own_noise else model.noise_variance_[:, None]
    found = Mixture(model.weights_, model.components_.transpose(0, 2, 1), model.means_, noise)

    def value(vector):
        return float(mixture_log_densities(found.unflatten(vector), data.features).sum())

    gradient = numerical_gradient(value, found.flatten())
    # The root of what is left to gain, 1e-13 of the likelihood, times the root of the curvature, N / ψ.
    assert abs(gradient).max() < 1e-2
    np.testing.assert_allclose(model.log_likelihood_, value(found.flatten()), rtol=1e-11)


def by_the_route(data, specification):
    """A mixture by its own route, which the planner does not take for one component."""
    model = PPCAMixture(specification.n_components, 1, tol=1e-13, max_iter=300, noise_floor=1e-6)
    task = replace(model._task(open_data(data)), specification=specification, family=Mixtures(1, 2))
    with connect(task.source, client="serial") as session:
        plan = make_plan(task, session.available, MIXTURE_SOLVERS)
        return MixtureSolver().fit(task, plan, data.mean(axis=0), session.run)


@pytest.mark.parametrize(("kind", "own_noise"), [(PPCA, False), (FactorAnalysis, True)])
def test_one_component_is_the_model_by_itself(kind, own_noise):
    data = simulate_mixture(200, 7, weights=(1.0,), own_noise=own_noise, noise=0.5, random_state=1).features
    expected = kind(2, tol=1e-12).fit(data)
    specification = Specification((View("features", 7, shared=not own_noise),), ((0,),), 2)
    found = by_the_route(data, specification)
    np.testing.assert_allclose(found.log_likelihood, expected.log_likelihood_, rtol=1e-12)
    np.testing.assert_allclose(found.parameters.loadings[0].T, expected.components_, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.parameters.mean[0], expected.mean_, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found.parameters.noise_variance[0], expected.noise_variance_, rtol=1e-5)


@pytest.mark.parametrize(("kind", "noise"), [(PPCA, "isotropic"), (FactorAnalysis, "diagonal")])
def test_a_mixture_of_one_is_fitted_as_what_it_is(kind, noise):
    data = simulate_mixture(80, 7, weights=(1.0,), random_state=1).features
    one, other = PPCAMixture(2, 1, noise=noise).fit(data), kind(2).fit(data)
    np.testing.assert_array_equal(one.components_[0], other.components_)
    np.testing.assert_array_equal(one.noise_variance_[0], other.noise_variance_)
    assert one.log_likelihood_ == other.log_likelihood_
    np.testing.assert_allclose(one.score_samples(data), other.score_samples(data), rtol=1e-9)
    assert one.predict(data).tolist() == [0] * 80


@pytest.mark.filterwarnings("ignore::dlatent.NoiseFloorWarning")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
@pytest.mark.parametrize(("kind", "own_noise"), [(PPCA, False), (FactorAnalysis, True)])
def test_clusters_far_apart_are_fitted_as_by_themselves(kind, own_noise, seed):
    """The best of several maxima of each cluster, among them those with a noise variance at its floor (Heywood)."""
    data = simulate_mixture(300, 6, own_noise=own_noise, separation=12.0, random_state=seed)
    x, labels = data.features, data.labels
    noise = "diagonal" if own_noise else "isotropic"
    model = PPCAMixture(2, 3, noise=noise, tol=1e-11, noise_floor=1e-8, noise_prior=0.0).fit(x)
    expected = 0.0
    for c in range(3):
        own = x[labels == c]
        # The floor is a fraction of the variance of all rows, which is larger.
        floor = float(np.median(1e-8 * x.var(axis=0) / own.var(axis=0)))
        expected += kind(2, tol=1e-12, noise_floor=floor).fit(own).log_likelihood_ + len(own) * np.log(len(own) / 300)
    assert model.log_likelihood_ == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(np.sort(model.weights_), np.sort(np.bincount(labels) / 300), rtol=1e-12)


def test_with_all_but_one_dimension_it_is_the_mixture_of_full_covariances():
    """WWᵀ + σ²I with K = D − 1 is any covariance."""
    data = simulate_mixture(400, 3, 2, separation=3.0, noise=0.3, random_state=4).features
    model = PPCAMixture(2, 3, tol=1e-12).fit(data)
    other = GaussianMixture(3, tol=1e-12, max_iter=5000, n_init=2, random_state=0, reg_covar=0.0).fit(data)
    assert model.log_likelihood_ == pytest.approx(other.score(data) * 400, rel=1e-9)
    order = np.argsort(-other.weights_)
    np.testing.assert_allclose(model.weights_, other.weights_[order], rtol=1e-4)
    for m, at in enumerate(order):
        covariance = model.components_[m].T @ model.components_[m] + model.noise_variance_[m] * np.eye(3)
        np.testing.assert_allclose(covariance, other.covariances_[at], rtol=1e-3, atol=1e-4)
    assert model.n_parameters_ == other._n_parameters()
    assert model.bic(data) == pytest.approx(other.bic(data), rel=1e-9)
    assert model.aic(data) == pytest.approx(other.aic(data), rel=1e-9)
