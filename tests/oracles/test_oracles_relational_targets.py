"""Samples in a graph of which some have targets, against one dense Gaussian vector without its missing entries."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from dlatent import RelationalSupervisedPPCA, SupervisedPPCA
from tests.fitted import view_samples_of
from tests.graphs import power_law_graph
from tests.law_examples import examples
from tests.oracles.dense import numerical_gradient
from tests.oracles.relational import precision_root
from tests.simulators import simulate

PRECISIONS = [(1.0, 1e-6), (1.0, 0.3), (0.0, 0.1), (2.5, 1e-3)]
"""α and γ: the defaults of the paper, and others."""


def case(samples=14, features=4, targets=2, labelled=8, seed=0):
    """Rows [X Y] that share strong directions, NaN where a target is missing; a graph that leaves some alone."""
    rows = simulate(samples, (features, targets), 2, noise=(0.3, 0.5), offset=3.0, random_state=seed).stacked
    missing = np.random.default_rng(seed).permutation(samples)[labelled:]
    rows[missing, features:] = np.nan
    return rows, sp.csr_array(power_law_graph(samples, samples, random_state=seed))


def fit(rows, graph, k=1, features=4, **options):
    options = {"tol": 1e-13, "target_type": "regression", **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = RelationalSupervisedPPCA(k, **options)
        return model.fit(rows[:, :features], rows[:, features:], graph=graph, client="serial")


def density(point, rows, root, k, features):
    """log p of the entries of vec T that are there, T ~ N(1μᵀ, Δ⁻¹, C), at the parameters (W, μ, log σ²).

    The triangular factor of the whitened vector, missing entries first, has a root of the marginal's precision below.
    """
    width = rows.shape[1]
    loadings, mean, logs = point[: width * k].reshape(width, k), point[width * k : -2], point[-2:]
    noise = np.exp(np.repeat(logs, (features, width - features)))
    whitener = np.linalg.inv(np.linalg.cholesky(loadings @ loadings.T + np.diag(noise)))
    whole, values = np.kron(root, whitener), (rows - mean).ravel()
    missing = np.isnan(values)
    own = np.linalg.qr(np.hstack([whole[:, missing], whole[:, ~missing]]), mode="r")[missing.sum() :, missing.sum() :]
    whitened = own @ values[~missing]
    return np.log(np.abs(np.diag(own))).sum() - 0.5 * (whitened @ whitened + len(own) * np.log(2 * np.pi))


def point_of(model):
    """The parameters of a fit in the oracle's hands."""
    loadings = np.hstack([model.components_, model.target_components_]).T
    noises = np.log([model.noise_variance_, model.target_noise_variance_])
    return np.concatenate([loadings.ravel(), model.mean_, model.target_mean_, noises])


def oracle(model, rows, graph):
    """The oracle's density as a function of the parameters."""
    root = precision_root(graph.toarray(), model.alpha, model.gamma)
    return lambda point: density(point, rows, root, model.n_components, model.n_features_in_)


def test_the_oracle_is_the_marginal_of_the_stacked_vector():
    rows, graph = case()
    root, random = precision_root(graph.toarray(), 1.0, 0.3), np.random.default_rng(1)
    loadings, mean = random.standard_normal((6, 2)), random.standard_normal(6)
    within = loadings @ loadings.T + np.diag([0.4] * 4 + [0.7] * 2)
    covariance, there = np.kron(np.linalg.inv(root.T @ root), within), ~np.isnan(rows.ravel())
    vector = multivariate_normal(np.tile(mean, 14)[there], covariance[np.ix_(there, there)])
    point = np.concatenate([loadings.ravel(), mean, np.log([0.4, 0.7])])
    assert density(point, rows, root, 2, 4) == pytest.approx(vector.logpdf(rows.ravel()[there]), rel=1e-10)


@pytest.mark.parametrize(("alpha", "gamma"), PRECISIONS)
@pytest.mark.parametrize("labelled", [3, 8, 13])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_likelihood_is_that_of_the_definition(alpha, gamma, labelled, kind):
    """`log_likelihood` is that of all that is there; `log_likelihood_` lacks a constant of the graph and of U."""
    rows, graph = case(labelled=labelled)
    model = fit(rows, graph, alpha=alpha, gamma=gamma)
    x = sp.csr_array(rows[:, :4]) if kind == "sparse" else rows[:, :4]
    expected = oracle(model, rows, graph)(point_of(model))
    value = model.log_likelihood(x, rows[:, 4:], graph, client="serial")
    assert value.value == pytest.approx(expected, rel=1e-9)
    assert value.standard_error == 0.0
    root, missing = precision_root(graph.toarray(), alpha, gamma), np.isnan(rows[:, 4])
    whole, rest = (np.log(np.linalg.svd(part, compute_uv=False)).sum() for part in (root, root[:, missing]))
    assert model.log_likelihood_ + 6 * whole - 2 * rest == pytest.approx(expected, rel=1e-9)
    assert view_samples_of(model) == (14, labelled)


@pytest.mark.parametrize(("alpha", "gamma"), PRECISIONS)
@pytest.mark.parametrize(("labelled", "k"), [(5, 1), (8, 1), (8, 2), (13, 2)])
def test_the_fit_has_no_slope(alpha, gamma, labelled, k):
    rows, graph = case(labelled=labelled, seed=2)
    model = fit(rows, graph, k, alpha=alpha, gamma=gamma, target_noise_floor=1e-9)
    value, at = oracle(model, rows, graph), point_of(model)
    assert not any(model.at_floor_)
    top = value(at)
    np.testing.assert_allclose(numerical_gradient(value, at), 0.0, atol=1e-6 * abs(top))
    random = np.random.default_rng(1)
    assert all(value(at + 0.03 * random.standard_normal(len(at))) < top for _ in range(20))


@pytest.mark.parametrize("gamma", [1e-6, 0.3])
def test_no_other_way_finds_more(gamma):
    """A general optimiser of the oracle from random points, and EM."""
    rows, graph = case(9, 3, 1, labelled=6, seed=3)
    model = fit(rows, graph, features=3, gamma=gamma)
    value = oracle(model, rows, graph)
    top, random = value(point_of(model)), np.random.default_rng(0)
    found = [
        -minimize(lambda point: -value(point), point_of(model) + random.standard_normal(10), method="BFGS").fun
        for _ in range(6)
    ]
    assert max(found) == pytest.approx(top, rel=1e-6)
    slow = fit(rows, graph, features=3, gamma=gamma, solver="em", max_iter=3000)
    assert (np.diff(slow.history_["iteration_log_likelihood"]) >= -1e-9 * abs(top)).all()
    assert value(point_of(slow)) == pytest.approx(top, rel=1e-6)
    assert value(point_of(slow)) <= top + 1e-9 * abs(top)


@settings(max_examples=examples(20))
@given(
    samples=st.integers(6, 12),
    labelled=st.integers(3, 5),
    alpha=st.floats(0.0, 2.0),
    gamma=st.floats(1e-6, 2.0),
    seed=st.integers(0, 1000),
)
def test_any_shape_of_labels(samples, labelled, alpha, gamma, seed):
    rows, graph = case(samples, 3, 1, labelled=labelled, seed=seed)
    model = fit(rows, graph, features=3, alpha=alpha, gamma=gamma)
    value, at = oracle(model, rows, graph), point_of(model)
    top = value(at)
    assert model.log_likelihood(rows[:, :3], rows[:, 3:], graph, client="serial").value == pytest.approx(top, rel=1e-7)
    # The means have no slope, floors or not.
    slope = numerical_gradient(lambda mean: value(np.concatenate([at[:4], mean, at[8:]])), at[4:8])
    np.testing.assert_allclose(slope, 0.0, atol=1e-5 * max(abs(top), np.abs(slope).max() * 1e-3))


def test_without_edges_it_is_semi_supervised_ppca():
    rows, _ = case(60, labelled=25)
    none = sp.csr_array((60, 60))
    found = fit(rows, none, 2, alpha=0.0, gamma=1.0)
    plain = SupervisedPPCA(2, tol=1e-13, solver="covariance", target_type="regression").fit(rows[:, :4], rows[:, 4:])
    assert found.log_likelihood_ == pytest.approx(plain.log_likelihood_, rel=1e-11)
    np.testing.assert_allclose(found.components_, plain.components_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.target_components_, plain.target_components_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.mean_, plain.mean_, rtol=1e-9)
    np.testing.assert_allclose(found.target_mean_, plain.target_mean_, rtol=1e-7)


def test_all_targets_may_be_missing_in_a_likelihood():
    rows, graph = case()
    model = fit(rows, graph)
    none = np.full((14, 2), np.nan)
    missing = np.hstack([rows[:, :4], none])
    expected = oracle(model, missing, graph)(point_of(model))
    assert model.log_likelihood(rows[:, :4], none, graph, client="serial").value == pytest.approx(expected, rel=1e-9)
