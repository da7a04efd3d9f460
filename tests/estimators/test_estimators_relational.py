"""Relational models: what only they can do, and what only they can be given wrong."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import xarray as xr
from scipy.stats import multivariate_normal

from dlatent import PPCA, RelationalPPCA, RelationalSupervisedPPCA, SupervisedPPCA, load
from dlatent.errors import DataError, PlanError
from dlatent.operators import graph_precision
from tests.graphs import power_law_graph
from tests.one_solver import only_solver
from tests.simulators import plain_features

X = plain_features(60, 6)
GRAPH = power_law_graph(60, 150, random_state=4)
Y = X[:, :2] @ np.array([[1.0, 0.3], [-0.5, 1.0]]) + np.random.default_rng(1).standard_normal((60, 2))
ROUTES = ["covariance", "krylov"]


def precision_of(graph, alpha, gamma):
    inner = alpha * np.eye(graph.shape[0]) + graph.toarray()
    return gamma * np.eye(len(inner)) + inner @ inner


@pytest.mark.parametrize("solver", ROUTES)
def test_the_supervised_maximum_is_that_of_weighted_data(solver):
    """With R₁ᵀR₁ = Δ and the mean taken off, the rows R₁(T − 1μᵀ) are ordinary samples of the supervised model."""
    graph = 0.4 * GRAPH
    delta = precision_of(graph, 1.0, 0.5)
    weights = delta.sum(axis=0) / delta.sum()
    root = np.linalg.cholesky(delta).T
    both = np.hstack([X, Y])
    rows = root @ (both - weights @ both)
    # Every row beside its negative has mean zero; twice the samples, twice the log-likelihood.
    twice = np.vstack([rows, -rows])
    options = {"n_components": 2, "tol": 1e-13, "solver": solver, "target_type": "regression"}
    plain = SupervisedPPCA(**options).fit(twice[:, :6], twice[:, 6:])
    found = RelationalSupervisedPPCA(gamma=0.5, **options).fit(X, Y, graph=graph)
    np.testing.assert_allclose(found.log_likelihood_, plain.log_likelihood_ / 2, rtol=1e-8)
    np.testing.assert_allclose(found.components_.T @ found.target_components_, cross(plain), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.noise_variance_, plain.noise_variance_, rtol=1e-5)
    np.testing.assert_allclose(found.mean_, weights @ X, rtol=1e-9)
    np.testing.assert_allclose(found.target_mean_, weights @ Y, rtol=1e-9)


def cross(model):
    return model.components_.T @ model.target_components_


def test_posterior_and_likelihood_of_samples_without_edges():
    model = RelationalPPCA(2, alpha=0.7, gamma=0.2, whiten=True).fit(X, graph=GRAPH)
    covariance = model.get_covariance() / (0.7**2 + 0.2)
    np.testing.assert_allclose(
        model.score_samples(X), multivariate_normal(model.mean_, covariance).logpdf(X), rtol=1e-9
    )
    posterior = model.posterior(X)
    gain = np.linalg.solve(model.get_covariance(), model.components_.T).T
    np.testing.assert_allclose(posterior["scores"].values, (X - model.mean_) @ gain.T, rtol=1e-8, atol=1e-9)
    each = np.eye(2) - gain @ model.components_.T
    np.testing.assert_allclose(posterior["covariance"].values, each, atol=1e-10)
    np.testing.assert_allclose(posterior["node_variance"].values, 1 / (0.7**2 + 0.2))
    drawn = model.sample(20_000, random_state=0)
    np.testing.assert_allclose(np.cov(drawn.T), covariance, rtol=0.2, atol=0.05 * covariance.max())


def test_posterior_of_graph_samples_has_a_variance_each():
    model = RelationalPPCA(2, gamma=0.1).fit(X, graph=GRAPH)
    expected = np.diag(np.linalg.inv(precision_of(GRAPH, 1.0, 0.1)))
    np.testing.assert_allclose(model.posterior(X, graph=GRAPH)["node_variance"].values, expected, rtol=1e-8)
    np.testing.assert_allclose(model.node_variance(GRAPH, [3, 7]), expected[[3, 7]], rtol=1e-8)
    with pytest.raises(DataError, match="join 60 samples, but 50"):
        model.posterior(X[:50], graph=GRAPH)


def test_gamma_zero_has_the_rank_in_the_place_of_the_samples():
    pairs = sp.block_diag([np.array([[0, 1], [1, 0.0]])] * 5 + [np.zeros((50, 50))], format="csr")
    model = RelationalPPCA(2, gamma=0.0).fit(X, graph=pairs)
    assert (model.precision_rank_, model.n_samples_) == (55, 60)
    near = RelationalPPCA(2, gamma=1e-9).fit(X, graph=pairs)
    np.testing.assert_allclose(near.noise_variance_ * 60 / 55, model.noise_variance_, rtol=1e-5)
    angle = np.linalg.svd(*[_basis(near).T @ _basis(model)], compute_uv=False).min()
    assert angle > 1 - 1e-9
    assert model.log_determinant(pairs).value == pytest.approx(5 * 2 * np.log(2))
    with pytest.raises(DataError, match="gamma > 0"):
        model.node_variance(pairs)


def _basis(model):
    return np.linalg.qr(model.components_.T)[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the noise variance")  # 1e-6 is below the floor of these data
def test_the_papers_em_begins_at_pca():
    """PRPCA's setting: one step from PCA with σ² = 1e-6 changes the loadings, many reach the closed form."""
    start = RelationalPPCA(2, solver="em", start="pca", start_noise=1e-6, max_iter=1)
    best = RelationalPPCA(2, tol=1e-12).fit(X, graph=GRAPH)
    with only_solver("krylov"), pytest.warns(match="stopped after 1 iteration"):
        start.fit(X, graph=GRAPH)
    plain = PPCA(2).fit(X)
    np.testing.assert_allclose(_span(start), _span(plain), atol=1e-6)
    assert start.noise_variance_ == pytest.approx(1e-6)
    for solver in ROUTES:
        long = RelationalPPCA(2, solver="em", start="pca", start_noise=1e-6, tol=1e-14, max_iter=20_000)
        with only_solver(solver):
            long.fit(X, graph=GRAPH)
        np.testing.assert_allclose(_span(long), _span(best), atol=1e-4)
        assert long.log_likelihood_ == pytest.approx(best.log_likelihood_, rel=1e-8)


def _span(model):
    basis = _basis(model)
    return basis @ basis.T


def test_few_columns_at_a_time_and_many_column_blocks_change_rounding_only(monkeypatch):
    expected = RelationalPPCA(2, solver="krylov", tol=1e-12).fit(X, graph=GRAPH)
    monkeypatch.setattr("dlatent.solvers.moments.solver.exchange_room", lambda machine, held: 3000)
    for data in (X, sp.csr_array(X)):
        model = RelationalPPCA(2, solver="krylov", tol=1e-12)
        plan = model.plan(data, graph=GRAPH)
        assert plan.columns_at_once < 3
        assert plan.column_blocks > 1
        model.fit(data, graph=GRAPH)
        assert model.n_passes_ > expected.n_passes_ + 3
        np.testing.assert_allclose(model.components_, expected.components_, rtol=1e-7, atol=1e-7)
        assert model.noise_variance_ == pytest.approx(expected.noise_variance_, rel=1e-9)


def test_labels_of_samples_name_the_ends_of_edges():
    names = [f"paper {i}" for i in range(60)]
    graph = nx.from_scipy_sparse_array(GRAPH)
    graph = nx.relabel_nodes(graph, dict(enumerate(names)))
    data = xr.DataArray(X, dims=("paper", "word"), coords={"paper": names})
    expected = RelationalPPCA(2).fit(X, graph=GRAPH)
    np.testing.assert_array_equal(RelationalPPCA(2).fit(data, graph=graph).components_, expected.components_)
    wrong = nx.relabel_nodes(graph, {"paper 3": "paper x"})
    with pytest.raises(DataError, match="paper x"):
        RelationalPPCA(2).fit(data, graph=wrong)


def test_a_hub_is_fitted_without_its_neighbours_meeting_one_by_one():
    """A star of 20,000: A² would have 4·10⁸ entries."""
    n = 20_000
    star = sp.coo_array((np.ones(n - 1), (np.zeros(n - 1, dtype=int), np.arange(1, n))), shape=(n, n))
    graph = sp.csr_array(star + star.T)
    x = np.random.default_rng(0).standard_normal((n, 5)) + 1.0
    model = RelationalPPCA(2).fit(x, graph=graph)
    centred = x - model.mean_
    met = np.vstack([centred.sum(axis=0), centred[1:] + centred[0]])
    h = (met.T @ met + 1e-6 * centred.T @ centred) / n
    np.testing.assert_allclose(np.sort(np.linalg.eigvalsh(h))[::-1][:2], model.explained_variance_, rtol=1e-9)
    assert model.log_determinant(graph).standard_error == 0


def test_stochastic_determinants_come_with_their_error(monkeypatch):
    graph = power_law_graph(800, 2400, random_state=1)
    model = RelationalPPCA(2, gamma=0.01)
    exact = model.log_determinant(graph).value
    for held in (10**6, 0):
        monkeypatch.setattr(graph_precision, "MEMORY_ENTRIES", held)
        monkeypatch.setattr(graph_precision, "GRAPH_BLOCK_ENTRIES", 1000)
        found = model.log_determinant(graph, method="lanczos")
        assert abs(found.value - exact) < 4 * found.standard_error < 0.2 * abs(exact)
    with pytest.raises(DataError, match="'auto', 'exact' or 'lanczos'"):
        model.log_determinant(graph, method="guess")
    with pytest.raises(DataError, match="2 of each"):
        model.log_determinant(graph, method="lanczos", probes=1)


BAD = [
    ({"alpha": -1.0}, GRAPH, "alpha is -1.0"),
    ({"gamma": np.nan}, GRAPH, "gamma is nan"),
    ({"start": "middle"}, GRAPH, "start is 'middle'"),
    ({"start_noise": 0.0}, GRAPH, "start_noise is 0.0"),
    ({"start_noise": 1e-6}, GRAPH, "belongs to start='pca'"),
    ({}, None, "edges are missing"),
    ({}, GRAPH[:50][:, :50], "50 samples|60"),
    ({}, sp.triu(GRAPH), "direction"),
    ({"alpha": 0.0, "gamma": 0.0}, sp.csr_array((60, 60)), "Δ is zero"),
    ({}, GRAPH * -1.0, "-1"),
    ({}, GRAPH * np.nan, "nan"),
]


@pytest.mark.parametrize(("options", "graph", "words"), BAD)
def test_what_cannot_be_fitted_is_refused(options, graph, words):
    with pytest.raises(DataError, match=words):
        RelationalPPCA(2, **options).fit(X, graph=graph)


def partly_labelled():
    y = Y.copy()
    y[5::3] = np.nan
    return y


def test_what_samples_without_targets_do_not_allow_is_refused(monkeypatch):
    y = partly_labelled()
    with pytest.raises(DataError, match="gamma=1e-6"):
        RelationalSupervisedPPCA(2, gamma=0.0).fit(X, y, graph=GRAPH)
    with pytest.raises(PlanError, match="some of the samples in the graph have no targets; take covariance"):
        RelationalSupervisedPPCA(2, solver="krylov").plan(X, y, graph=GRAPH)
    assert RelationalSupervisedPPCA(2, solver="krylov").plan(X, Y, graph=GRAPH).solver == "krylov"
    model = RelationalSupervisedPPCA(2).fit(X, Y, graph=GRAPH)
    monkeypatch.setattr("dlatent.models.between.EXACT_SAMPLES", 59)
    for use in (lambda: model.plan(X, y, graph=GRAPH), lambda: model.log_likelihood(X, y, GRAPH)):
        with pytest.raises(DataError, match="done up to 59 samples: use SupervisedPPCA without"):
            use()
    model.fit(X, Y, graph=GRAPH)


def test_which_rows_are_labelled_can_be_said_in_every_way():
    classes, there = np.where(Y[:, 0] > 0, "up", "down").astype(object), ~np.isnan(partly_labelled()[:, 0])
    marked = RelationalSupervisedPPCA(1).fit(X, classes, labelled=there, graph=GRAPH)
    unnamed = RelationalSupervisedPPCA(1).fit(X, np.where(there, classes, None), graph=GRAPH)
    np.testing.assert_array_equal(marked.target_components_, unnamed.target_components_)
    np.testing.assert_array_equal(marked.target_mean_, unnamed.target_mean_)
    assert set(marked.predict(X)) == {"down", "up"}
    whole = RelationalSupervisedPPCA(1).fit(X, classes, labelled=np.ones(60, dtype=bool), graph=GRAPH)
    plain = RelationalSupervisedPPCA(1).fit(X, classes, graph=GRAPH)
    np.testing.assert_array_equal(whole.target_components_, plain.target_components_)


def test_em_of_samples_without_targets_can_begin_at_pca():
    y = partly_labelled()
    model = RelationalSupervisedPPCA(2, solver="em", start="pca", start_noise=0.1, max_iter=5000).fit(X, y, graph=GRAPH)
    best = RelationalSupervisedPPCA(2).fit(X, y, graph=GRAPH)
    np.testing.assert_allclose(model.log_likelihood_, best.log_likelihood_, rtol=1e-6)


DELTA = sp.csr_array(sp.diags_array([-0.5, 1.25, -0.5], offsets=[-1, 0, 1], shape=(60, 60)))


def test_a_loaded_model_of_a_given_precision_can_be_fitted_to_a_graph(tmp_path):
    RelationalPPCA(2).fit(X, precision=DELTA).save(tmp_path / "m.zarr")
    again = load(tmp_path / "m.zarr").fit(X, graph=GRAPH)
    np.testing.assert_array_equal(again.score_samples(X), RelationalPPCA(2).fit(X, graph=GRAPH).score_samples(X))


GIVEN_WRONG = [
    ({"alpha": 2.0}, {"precision": DELTA}, "alpha makes a precision of a graph"),
    ({"gamma": 0.0}, {"precision": DELTA}, "gamma makes a precision of a graph"),
    ({}, {"precision": DELTA, "graph": GRAPH}, "give one of them"),
    ({}, {"precision": GRAPH}, "given as graph="),
    ({}, {"precision": DELTA[:50][:, :50]}, "50 samples, but the data have 60"),
    ({}, {"precision": sp.csr_array(np.ones((60, 60)))}, "Δ has rank 1; use fewer"),
    ({}, {"precision": GRAPH + 3.0 * sp.eye_array(60)}, "smallest eigenvalue is -"),
]


@pytest.mark.parametrize(("options", "given", "words"), GIVEN_WRONG)
def test_a_precision_that_cannot_be_fitted_is_refused(options, given, words):
    for of in (RelationalPPCA(2, **options).fit, RelationalPPCA(2, **options).plan):
        with pytest.raises(DataError, match=words):
            of(X, **given)


def test_a_stochastic_determinant_of_a_given_precision_comes_with_its_error():
    delta, model = sp.diags_array([-0.5, 1.25, -0.5], offsets=[-1, 0, 1], shape=(800, 800)), RelationalPPCA(2)
    exact, found = (model.log_determinant(precision=delta, method=method) for method in ("exact", "lanczos"))
    assert exact.value == pytest.approx(np.linalg.slogdet(delta.toarray())[1])
    assert abs(found.value - exact.value) < 4 * found.standard_error
