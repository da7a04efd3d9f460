"""The dense oracle of probabilistic relational PCA against scipy's normal density, by hand, and by its own gradient."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from tests.graphs import power_law_graph
from tests.law_examples import examples
from tests.oracles import dense as oracles
from tests.oracles.dense import DenseModel, condition, numerical_gradient
from tests.oracles.relational import (
    RelationalModel,
    best_mean,
    em_step,
    latent_given,
    log_density,
    precision_root,
    principal_components,
)


def case(samples=7, features=4, k=2, *, alpha=1.0, gamma=0.3, noise=0.4, seed=0):
    rng = np.random.default_rng(seed)
    graph = power_law_graph(samples, samples // 2, random_state=seed).toarray()
    model = RelationalModel(
        rng.standard_normal((features, k)), rng.standard_normal(features), noise, precision_root(graph, alpha, gamma)
    )
    return model, rng.standard_normal((samples, features)) + 2.0


def covariance_of(model):
    """Δ⁻¹ ⊗ (WWᵀ + σ²I), as it is written."""
    across = model.loadings @ model.loadings.T + model.noise * np.eye(len(model.mean))
    return np.kron(np.linalg.inv(model.root.T @ model.root), across)


def test_the_root_is_one_of_the_precision():
    graph = np.array([[0.0, 2.0, 0.0], [2.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    root = precision_root(graph, alpha=0.5, gamma=0.1)
    shifted = 0.5 * np.eye(3) + graph
    np.testing.assert_allclose(root.T @ root, 0.1 * np.eye(3) + shifted.T @ shifted, rtol=1e-14)


def test_an_isolated_pair_is_negatively_correlated():
    """Errata 18: under the model samples in a graph differ; Δ = [[γ + 2, 2], [2, γ + 2]] for α = 1."""
    root = precision_root([[0.0, 1.0], [1.0, 0.0]], gamma=1e-6)
    covariance = np.linalg.inv(root.T @ root)
    assert covariance[0, 1] / covariance[0, 0] == pytest.approx(-0.9999995, abs=1e-7)


@pytest.mark.parametrize("noise", [1e-2, 0.4, 5.0])
def test_density_is_that_of_the_stacked_vector(noise):
    model, rows = case(noise=noise)
    expected = multivariate_normal(np.tile(model.mean, len(rows)), covariance_of(model)).logpdf(rows.ravel())
    assert log_density(model, rows) == pytest.approx(expected, rel=1e-11)


def test_posterior_is_the_conditional_of_the_joint_vector():
    """(vec Z, vec T) is one Gaussian vector, with the covariance Δ⁻¹ ⊗ that of one independent sample."""
    model, rows = case()
    (n, width), k = rows.shape, model.loadings.shape[1]
    between = np.linalg.inv(model.root.T @ model.root)
    top = np.hstack([np.kron(between, np.eye(k)), np.kron(between, model.loadings.T)])
    bottom = np.hstack([np.kron(between, model.loadings), covariance_of(model)])
    joint = oracles.Gaussian(np.concatenate([np.zeros(n * k), np.tile(model.mean, n)]), np.vstack([top, bottom]))
    expected = condition(joint, np.arange(n * (k + width)) >= n * k, rows.ravel())
    found = latent_given(model, rows)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-8, atol=1e-10)


def test_no_other_mean_is_better():
    model, rows = case()
    best = model._replace(mean=best_mean(model, rows))
    slope = numerical_gradient(lambda mean: log_density(best._replace(mean=mean), rows), best.mean)
    np.testing.assert_allclose(slope, 0.0, atol=1e-6 * abs(log_density(best, rows)))
    assert log_density(best, rows) > log_density(model, rows) + 1.0


def test_without_edges_it_is_independent_rows():
    """A = 0, α = 0, γ = 1: density, posterior and EM step of `tests.oracles.dense`."""
    model, rows = case()
    model = model._replace(root=precision_root(np.zeros((len(rows), len(rows))), alpha=0.0, gamma=1.0))
    plain = DenseModel(model.loadings, model.mean, np.full(len(model.mean), model.noise))
    assert log_density(model, rows) == pytest.approx(oracles.log_densities(plain, rows).sum(), rel=1e-12)
    scores = latent_given(model, rows).mean.reshape(len(rows), -1)
    np.testing.assert_allclose(scores, [oracles.latent_given(plain, row).mean for row in rows], rtol=1e-10)
    found, expected = em_step(model, rows), oracles.em_step(plain, rows, (rows.shape[1],))
    np.testing.assert_allclose(found.loadings, expected.loadings, rtol=1e-10)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-10)
    assert found.noise == pytest.approx(expected.noise[0], rel=1e-10)


@settings(max_examples=examples(20))
@given(
    samples=st.integers(4, 9),
    k=st.integers(1, 3),
    alpha=st.floats(0.0, 2.0),
    gamma=st.floats(1e-6, 2.0),
    seed=st.integers(0, 1000),
)
def test_em_never_loses_likelihood(samples, k, alpha, gamma, seed):
    model, rows = case(samples, 4, k, alpha=alpha, gamma=gamma, seed=seed)
    values = [log_density(model, rows)]
    for _ in range(4):
        model = em_step(model, rows)
        values.append(log_density(model, rows))
    assert (np.diff(values) >= -1e-9 * np.abs(values[:-1])).all()


@pytest.mark.parametrize("gamma", [1e-6, 0.3])
def test_the_maximum_has_no_slope_and_em_stays_there(gamma):
    model, rows = case(9, 5, gamma=gamma)
    best = principal_components(model.root, rows, 2)
    shape = best.loadings.shape

    def value(point):
        return log_density(RelationalModel(point[:10].reshape(shape), point[10:15], np.exp(point[15]), best.root), rows)

    at = np.concatenate([best.loadings.ravel(), best.mean, [np.log(best.noise)]])
    top = value(at)
    np.testing.assert_allclose(numerical_gradient(value, at), 0.0, atol=1e-6 * abs(top))
    rng = np.random.default_rng(1)
    assert all(value(at + 0.05 * rng.standard_normal(len(at))) < top for _ in range(20))
    after = em_step(best, rows)
    assert log_density(after, rows) == pytest.approx(top, rel=1e-11)
    np.testing.assert_allclose(after.noise, best.noise, rtol=1e-7)
