"""Relational PPCA with a precision that is given, against one dense Gaussian vector, PRPCA and PPCA."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dlatent import PPCA, RelationalPPCA
from dlatent.errors import DataError
from tests.graphs import power_law_graph
from tests.law_examples import examples
from tests.oracles.relational import RelationalModel, em_step, latent_given, log_density, principal_components
from tests.simulators import simulate

CLOSE = 1e-9


def rows_of(samples=14, features=6, seed=0):
    """Rows with strong directions, and a mean away from zero."""
    return simulate(samples, (features,), 3, noise=(0.3,), offset=3.0, random_state=seed).features


def chain(samples, seed=0):
    """A random root R with two bands, and Δ = RᵀR, which has entries of either sign on three diagonals."""
    random = np.random.default_rng(seed)
    root = np.diag(random.uniform(0.5, 2.0, samples)) + np.diag(random.normal(size=samples - 1), 1)
    return root, sp.csr_array(root.T @ root)


def fit(rows, precision, k=2, **options):
    return RelationalPPCA(k, **{"tol": 1e-13, "whiten": True, **options}).fit(
        rows, precision=precision, client="serial"
    )


def assert_is(model, best, rtol=CLOSE):
    """Equal in mean, noise and WWᵀ, which no rotation changes."""
    np.testing.assert_allclose(model.mean_, best.mean, rtol=rtol, atol=rtol * abs(best.mean).max())
    assert model.noise_variance_ == pytest.approx(best.noise, rel=rtol)
    spanned = best.loadings @ best.loadings.T
    found = model.components_.T @ model.components_
    np.testing.assert_allclose(found, spanned, rtol=rtol, atol=rtol * abs(spanned).max())


@pytest.mark.parametrize("solver", ["covariance", "krylov"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_fit_is_the_maximum(solver, kind):
    """Parameters and log-likelihood, log|Δ| included, are those of the dense maximum."""
    rows, (root, precision) = rows_of(), chain(14)
    data = rows if kind == "dense" else sp.csr_array(rows)
    model, best = fit(data, precision, solver=solver), principal_components(root, rows, 2)
    assert_is(model, best)
    value = model.log_likelihood(data, precision=precision, client="serial")
    assert value.value == pytest.approx(log_density(best, rows), rel=CLOSE)
    assert value.standard_error == 0.0
    constant = 0.5 * rows.shape[1] * np.linalg.slogdet(precision.toarray())[1]
    assert model.log_likelihood_ + constant == pytest.approx(value.value, rel=CLOSE)


def test_the_posterior_is_that_of_the_whole_vector():
    rows, (root, precision) = rows_of(), chain(14)
    model = fit(rows, precision)
    oracle = RelationalModel(model.components_.T, model.mean_, float(model.noise_variance_), root)
    expected, found = latent_given(oracle, rows), model.posterior(rows, precision=precision)
    np.testing.assert_allclose(found["scores"].values.ravel(), expected.mean, rtol=1e-8, atol=1e-9)
    own = np.einsum("iaib->iab", expected.covariance.reshape(14, 2, 14, 2))
    each = found["node_variance"].values[:, None, None] * found["covariance"].values
    np.testing.assert_allclose(each, own, rtol=1e-8, atol=1e-10)
    np.testing.assert_array_equal(model.posterior(rows)["node_variance"].values, 1.0)


def test_iterations_are_those_of_the_dense_vector():
    """One EM iteration more moves the parameters as the oracle's does, whose mean is the weighted one."""
    rows, (root, precision) = rows_of(), chain(14)
    options = {"solver": "em", "random_state": 3}
    with pytest.warns(match="stopped after"):
        before, after = (fit(rows, precision, max_iter=n, **options) for n in (4, 5))
    step = RelationalModel(before.components_.T, before.mean_, float(before.noise_variance_), root)
    assert_is(after, em_step(step, rows), 1e-8)


@settings(max_examples=examples(20))
@given(
    samples=st.integers(6, 16),
    features=st.integers(3, 8),
    alpha=st.floats(0.0, 3.0),
    gamma=st.floats(1e-3, 2.0),
    seed=st.integers(0, 1000),
    solver=st.sampled_from(["covariance", "krylov"]),
)
def test_the_precision_of_a_graph_gives_what_the_graph_gives(samples, features, alpha, gamma, seed, solver):
    """With γI + (αI + A)² formed, and an A of real weights."""
    rows, edges = rows_of(samples, features, seed), power_law_graph(samples, samples, random_state=seed).toarray()
    drawn = np.random.default_rng(seed).uniform(0.2, 3.0, edges.shape)
    graph = edges * (drawn + drawn.T)
    inner = alpha * np.eye(samples) + graph
    precision = gamma * np.eye(samples) + inner @ inner
    precision = sp.csr_array((precision + precision.T) / 2)
    options = {"tol": 1e-13, "solver": solver}
    by_graph = RelationalPPCA(2, alpha=alpha, gamma=gamma, **options).fit(rows, graph=sp.csr_array(graph))
    found = RelationalPPCA(2, **options).fit(rows, precision=precision)
    expected = RelationalModel(by_graph.components_.T, by_graph.mean_, float(by_graph.noise_variance_), np.eye(1))
    assert_is(found, expected, 1e-8)
    assert found.log_likelihood_ == pytest.approx(by_graph.log_likelihood_, rel=1e-9)
    together = by_graph.log_likelihood(rows, sp.csr_array(graph)).value
    assert found.log_likelihood(rows, precision=precision).value == pytest.approx(together, rel=1e-9)


@pytest.mark.parametrize("solver", ["covariance", "krylov"])
def test_the_unit_matrix_gives_ppca(solver):
    rows = rows_of(40)
    found, plain = fit(rows, sp.eye_array(40), solver=solver), PPCA(2, tol=1e-13, solver=solver).fit(rows)
    np.testing.assert_allclose(found.components_, plain.components_, rtol=1e-7, atol=1e-8)
    assert found.noise_variance_ == pytest.approx(plain.noise_variance_, rel=1e-11)
    assert found.log_likelihood_ == pytest.approx(plain.log_likelihood_, rel=1e-12)
    np.testing.assert_allclose(found.score_samples(rows), plain.score_samples(rows), rtol=1e-9)
    np.testing.assert_array_equal(found.sample(5, random_state=0).shape, plain.sample(5, random_state=0).shape)


@pytest.mark.parametrize("solver", ["covariance", "krylov"])
def test_a_singular_precision_has_its_rank_in_the_place_of_the_samples(solver):
    """Samples whose rows of Δ are zero are as if they were not there."""
    rows, (_, precision) = rows_of(14), chain(11)
    padded = sp.csr_array(sp.block_diag([precision, sp.csr_array((3, 3))]))
    found, fewer = fit(rows, padded, solver=solver), fit(rows[:11], precision, solver=solver)
    assert (found.precision_rank_, found.n_samples_) == (11, 14)
    assert found.noise_variance_ == pytest.approx(fewer.noise_variance_, rel=1e-9)
    assert found.log_likelihood_ == pytest.approx(fewer.log_likelihood_, rel=1e-9)
    np.testing.assert_allclose(found.mean_, fewer.mean_, rtol=1e-9)


@pytest.mark.parametrize("solver", ["covariance", "krylov"])
@pytest.mark.parametrize("negative", [-3.0, -0.5])
def test_a_negative_variance_that_a_fit_finds_is_named(solver, negative, monkeypatch):
    """Of a precision too large to be factorised: two samples that differ in one feature have a negative eigenvalue."""
    monkeypatch.setattr("dlatent.models.between.EXACT_COMPONENT", 10)
    rows = rows_of(40)
    rows[:2, 5] = 100.0, -100.0
    pair = np.array([[0.5, 0.5 - negative], [0.5 - negative, 0.5]])
    precision = sp.csr_array(sp.block_diag([pair, sp.eye_array(38)]))
    with pytest.raises(DataError, match="not positive semi-definite: it gives the features a variance of -"):
        fit(rows, precision, solver=solver)
