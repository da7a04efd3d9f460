"""Relational PPCA against one dense Gaussian vector: density, mean, EM step, maximum and posterior."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dlatent import PPCA, RelationalPPCA
from tests.graphs import power_law_graph
from tests.law_examples import examples
from tests.one_solver import only_solver
from tests.oracles.relational import (
    RelationalModel,
    em_step,
    latent_given,
    log_density,
    precision_root,
    principal_components,
)
from tests.simulators import simulate

CLOSE = 1e-9
PRECISIONS = [(1.0, 1e-6), (1.0, 0.3), (0.0, 0.1), (2.5, 1e-3)]
"""α and γ: the defaults of the paper, and others."""


def case(samples=14, features=6, seed=0, weighted=False):
    """Rows with strong directions and a mean away from zero; a graph that leaves some samples alone."""
    rows = simulate(samples, (features,), 3, noise=(0.3,), offset=3.0, random_state=seed).features
    graph = power_law_graph(samples, samples, random_state=seed)
    if weighted:
        weights = np.random.default_rng(seed).uniform(0.2, 3.0, graph.shape)
        graph = graph.multiply(weights + weights.T).tocsr()
    return rows, sp.csr_array(graph)


def fit(rows, graph, k=2, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return RelationalPPCA(k, **{"tol": 1e-13, "whiten": True, **options}).fit(rows, graph=graph, client="serial")


def found(model, root):
    """The fitted parameters in the oracle's hands."""
    return RelationalModel(model.components_.T, model.mean_, float(model.noise_variance_), root)


def assert_same_density(model, rows, graph, expected, rtol=CLOSE):
    """`log_likelihood` is log p(T); `log_likelihood_` lacks the constant of the graph."""
    value = model.log_likelihood(rows, graph, client="serial")
    assert value.value == pytest.approx(expected, rel=rtol)
    assert value.standard_error == 0.0
    root = precision_root(graph.toarray(), model.alpha, model.gamma)
    constant = rows.shape[1] * np.log(np.linalg.svd(root, compute_uv=False)).sum()
    assert model.log_likelihood_ + constant == pytest.approx(expected, rel=rtol)


def assert_same_model(one, other, rtol=CLOSE):
    """Equal in mean, noise and WWᵀ, which no rotation changes."""
    np.testing.assert_allclose(one.mean, other.mean, rtol=rtol, atol=rtol * abs(other.mean).max())
    assert one.noise == pytest.approx(other.noise, rel=rtol)
    spanned = other.loadings @ other.loadings.T
    np.testing.assert_allclose(one.loadings @ one.loadings.T, spanned, rtol=rtol, atol=rtol * abs(spanned).max())


@pytest.mark.parametrize(("alpha", "gamma"), PRECISIONS)
@pytest.mark.parametrize("solver", ["covariance", "krylov"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_fit_is_the_maximum(alpha, gamma, solver, kind):
    """Parameters and log-likelihood, log|Δ| included, are those of the dense maximum."""
    rows, graph = case()
    root = precision_root(graph.toarray(), alpha, gamma)
    given = rows if kind == "dense" else sp.csr_array(rows)
    model = fit(given, graph, alpha=alpha, gamma=gamma, solver=solver)
    best = principal_components(root, rows, 2)
    assert_same_model(found(model, root), best)
    assert_same_density(model, given, graph, log_density(best, rows))


@settings(max_examples=examples(12))
@given(
    samples=st.integers(6, 16),
    features=st.integers(3, 8),
    k=st.integers(1, 2),
    alpha=st.floats(0.0, 3.0),
    gamma=st.floats(1e-4, 2.0),
    seed=st.integers(0, 1000),
)
def test_any_shape_and_weights_of_edges(samples, features, k, alpha, gamma, seed):
    rows, graph = case(samples, features, seed, weighted=True)
    root = precision_root(graph.toarray(), alpha, gamma)
    model = fit(rows, graph, k, alpha=alpha, gamma=gamma)
    best = principal_components(root, rows, k)
    assert_same_model(found(model, root), best, 1e-8)
    assert_same_density(model, rows, graph, log_density(best, rows), 1e-8)


@pytest.mark.parametrize(("alpha", "gamma"), PRECISIONS)
def test_posterior_of_all_latent_variables(alpha, gamma):
    """Δ drops out of the means, M⁻¹Wᵀ(x − μ) row by row, and the covariance of vec Z is Δ⁻¹ ⊗ M⁻¹ (PRPCA (17))."""
    rows, graph = case()
    root = precision_root(graph.toarray(), alpha, gamma)
    model = fit(rows, graph, alpha=alpha, gamma=gamma)
    expected = latent_given(found(model, root), rows)
    scores = model.transform(rows)
    np.testing.assert_allclose(scores.ravel(), expected.mean, rtol=CLOSE, atol=CLOSE * abs(scores).max())
    posterior = model.posterior(rows, graph=graph, client="serial")
    np.testing.assert_array_equal(posterior["scores"], scores)
    each = expected.covariance.reshape(len(rows), 2, len(rows), 2)
    for i, variance in enumerate(posterior["node_variance"].values):
        np.testing.assert_allclose(variance * posterior["covariance"], each[i, :, i], rtol=1e-8, atol=1e-8 * variance)


@pytest.mark.parametrize(("alpha", "gamma"), PRECISIONS)
@pytest.mark.parametrize("route", ["covariance", "krylov"])
@pytest.mark.parametrize("start", ["random", "pca"])
def test_em_makes_the_steps_of_the_definition(alpha, gamma, route, start):
    """Errata 15: (22) has the new W.  A fit of m + 1 iterations has made m M-steps, and tells their likelihood."""
    rows, graph = case()
    root = precision_root(graph.toarray(), alpha, gamma)
    options = {"solver": "em", "alpha": alpha, "gamma": gamma, "start": start}
    with only_solver(route):
        stepped = found(fit(rows, graph, max_iter=1, **options), root)
    for iterations in range(2, 6):
        stepped = em_step(stepped, rows)
        with only_solver(route):
            model = fit(rows, graph, max_iter=iterations, **options)
        assert_same_model(found(model, root), stepped)
        assert_same_density(model, rows, graph, log_density(stepped, rows))


@pytest.mark.parametrize("noise", [None, 1e-6])
def test_em_can_start_from_principal_components(noise):
    rows, graph = case()
    model = fit(rows, graph, solver="em", start="pca", start_noise=noise, max_iter=1)
    plain = PPCA(2).fit(rows)
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-7, atol=1e-7)
    assert model.noise_variance_ == pytest.approx(plain.noise_variance_ if noise is None else noise, rel=CLOSE)


@pytest.mark.parametrize("route", ["covariance", "krylov"])
@pytest.mark.parametrize("solver", ["auto", "em"])
def test_without_edges_it_is_ppca(route, solver):
    """A = 0, α = 0, γ = 1: the same model, likelihood and scores."""
    rows, _ = case(40, 9)
    options = {"solver": solver, "tol": 1e-13, "max_iter": 30}
    with only_solver(route), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fit(rows, sp.csr_array((40, 40)), alpha=0.0, gamma=1.0, **options)
        plain = PPCA(2, whiten=True, **options).fit(rows, client="serial")
    for name in ("components_", "mean_", "noise_variance_", "log_likelihood_"):
        np.testing.assert_allclose(getattr(model, name), getattr(plain, name), rtol=1e-12, atol=1e-12, err_msg=name)
    np.testing.assert_allclose(model.transform(rows), plain.transform(rows), rtol=1e-12, atol=1e-12)


def test_an_isolated_pair_makes_a_singular_precision_of_smaller_rank():
    """Errata 17, γ = 0: (x₁ + x₂) counts once; N becomes rank Δ, and the density is that on the range of Δ."""
    rows, _ = case(10, 4)
    graph = sp.csr_array(np.kron(np.diag([1.0, 0, 0, 0, 0]), [[0.0, 1.0], [1.0, 0.0]]))
    model = fit(rows, graph, 1, gamma=0.0)
    merged = np.vstack([(rows[0] + rows[1]) / 2.0, rows[2:]])
    root = np.diag([np.sqrt(8.0)] + [1.0] * 8)
    best = principal_components(root, merged, 1)
    assert_same_model(found(model, root), best)
    # (x₁ + x₂)/√2 has the precision 4, the mean of the two 8: half a log 2 for each of 4 features.
    value = model.log_likelihood(rows, graph, client="serial").value
    assert value == pytest.approx(log_density(best, merged) - 2.0 * np.log(2.0), rel=CLOSE)
