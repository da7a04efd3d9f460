"""PPCA of rows smoothed over a graph: against PPCA of the dense smoothed rows, and what only it can do."""

from __future__ import annotations

import dask.array as da
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.sparse as sp
import xarray as xr

from dlatent import PPCA, GraphPPCA, NotFittedError, load, plot
from dlatent.errors import DataError
from dlatent.solvers.graph import costs
from tests.graphs import power_law_graph
from tests.simulators import plain_features

mpl.use("Agg")
X = plain_features(60, 6)
GRAPH = sp.csr_array(np.pad(power_law_graph(58, 150, random_state=4).toarray(), (0, 2)))  # two samples without edges
S = GRAPH.toarray() / np.sqrt(np.outer(GRAPH.sum(axis=1), GRAPH.sum(axis=1)) + (GRAPH.toarray() == 0))
OPTIONS = {"tol": 1e-13}


def smooth(smoothing, hops):
    return sum(smoothing**k * np.linalg.matrix_power(S, k) for k in range(hops + 1))


@pytest.mark.parametrize("solver", ["covariance", "krylov"])
@pytest.mark.parametrize(("smoothing", "hops"), [(3.0, 2), (0.3, 1), (20.0, 3)])
def test_the_fit_is_ppca_of_smoothed_rows(smoothing, hops, solver):
    f = smooth(smoothing, hops)
    weights = (f @ f).sum(axis=0)
    mean = weights @ X / weights.sum()
    rows = f @ (X - mean)
    twice = PPCA(2, **OPTIONS).fit(np.vstack([rows, -rows]))  # with mean zero
    model = GraphPPCA(2, smoothing=smoothing, hops=hops, solver=solver, **OPTIONS).fit(X, graph=GRAPH)
    np.testing.assert_allclose(model.mean_, mean, rtol=1e-9)
    np.testing.assert_allclose(model.get_covariance(), twice.get_covariance(), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(model.log_likelihood_, twice.log_likelihood_ / 2, rtol=1e-9)
    np.testing.assert_allclose(model.transform(X, graph=GRAPH), model.transform(rows + mean), rtol=1e-8, atol=1e-9)


def test_without_smoothing_it_is_ppca_to_the_bit():
    plain = PPCA(2).fit(X)
    for graph in (None, GRAPH):
        model = GraphPPCA(2, smoothing=0).fit(X, graph=graph)
        np.testing.assert_array_equal(model.components_, plain.components_)
        assert model.log_likelihood_ == plain.log_likelihood_
        np.testing.assert_array_equal(model.transform(X, graph=graph), plain.transform(X))


def test_fit_transform_gives_the_scores_with_the_edges_of_the_fit():
    model = GraphPPCA(2, smoothing=3.0)
    np.testing.assert_array_equal(model.fit_transform(X, graph=GRAPH), model.transform(X, graph=GRAPH))


def test_new_samples_come_with_their_edges():
    some = np.arange(40)
    model = GraphPPCA(2, smoothing=3.0).fit(X[some], graph=GRAPH[some][:, some])
    np.testing.assert_allclose(
        model.transform(X, graph=GRAPH), smooth(3.0, 2) @ model.transform(X), rtol=1e-9, atol=1e-10
    )


def test_posterior_has_the_scores_of_smoothed_rows_and_the_covariance_of_all():
    data = xr.DataArray(X, dims=("paper", "word"), coords={"paper": np.arange(60) + 100})
    model = GraphPPCA(2, smoothing=3.0).fit(data, graph=GRAPH)
    found, scores = model.posterior(data, graph=GRAPH), model.transform(data, graph=GRAPH)
    xr.testing.assert_equal(found["scores"], scores)
    assert scores["paper"].values[0] == 100
    np.testing.assert_array_equal(found["covariance"].values, model.posterior(X)["covariance"].values)


def test_a_model_says_how_it_smooths():
    model = GraphPPCA(2, smoothing=3.0, hops=1).fit(X, graph=GRAPH)
    assert (model.smoothing_, model._summary()["graph"]) == (3.0, {"edges": 150, "smoothing": 3.0, "hops": 1})
    assert "of the smoothed rows" in str(model._summary_lines())


REFUSED = {
    "no graph": ({"smoothing": 1.0}, None, "edges are missing"),
    "a graph of others": ({"smoothing": 1.0}, GRAPH[:50][:, :50], "50 samples"),
    "a negative smoothing": ({"smoothing": -1.0}, GRAPH, "smoothing is -1.0"),
    "no hops": ({"smoothing": 1.0, "hops": 0}, GRAPH, "hops is 0"),
    "too little": ({"smoothing": 1e-80}, GRAPH, "double precision"),
    "too much": ({"smoothing": 1e80}, GRAPH, "double precision"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_misuse_is_refused(name):
    options, graph, words = REFUSED[name]
    with pytest.raises(DataError, match=words):
        GraphPPCA(2, **options).fit(X, graph=graph)


def test_scores_need_a_fit_and_a_graph_of_their_samples():
    with pytest.raises(NotFittedError):
        GraphPPCA(2, smoothing=1.0).transform(X, graph=GRAPH)
    model = GraphPPCA(2, smoothing=1.0).fit(X, graph=GRAPH)
    with pytest.raises(DataError, match="60 samples"):
        model.transform(X[:50], graph=GRAPH)


def topics(samples=400, features=30, seed=0):
    """Rows about two topics, mostly noise, and edges inside the topics."""
    rng = np.random.default_rng(seed)
    topic = np.arange(samples) % 2
    rows = np.outer(2 * topic - 1, rng.normal(size=features)) * 0.5 + rng.normal(size=(samples, features))
    ends = rng.integers(0, samples // 2, (4 * samples, 2)) * 2 + rng.integers(0, 2, (4 * samples, 1))
    return rows, of_edges(ends, samples)


def of_edges(ends, samples):
    half = sp.csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(samples, samples))
    both = (half + half.T).toarray() > 0
    np.fill_diagonal(both, False)
    return sp.csr_array(both.astype(float))


def rewired(graph, seed=0):
    """The same degrees, near enough, and edges that say nothing."""
    ends = np.array(sp.triu(graph).nonzero()).T.ravel()
    return of_edges(np.random.default_rng(seed).permutation(ends).reshape(-1, 2), graph.shape[0])


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("solver", ["covariance", "krylov"])
def test_smoothing_is_chosen_where_edges_help_and_left_out_where_they_mislead(form, solver):
    rows, graph = topics()
    model = GraphPPCA(1, solver=solver).fit(form(rows), graph=graph)
    assert model.smoothing_ >= 1.0
    scores = model.smoothing_scores_
    assert scores["smoothing"].values.tolist() == [0.0, 0.25, 0.5, 1.0, 2.0, 4.0]
    gained = scores["smoothing_correlation"].max() - scores["smoothing_correlation"][0]
    assert gained > 3 * scores["smoothing_error"][0]
    given = GraphPPCA(1, smoothing=model.smoothing_, solver=solver).fit(form(rows), graph=graph)
    np.testing.assert_array_equal(model.components_, given.components_)
    assert given.smoothing_scores_ is None
    misled, plain = GraphPPCA(1, solver=solver).fit(form(rows), graph=rewired(graph)), PPCA(1, solver=solver)
    assert misled.smoothing_ == 0.0
    np.testing.assert_array_equal(misled.components_, plain.fit(form(rows)).components_)
    np.testing.assert_array_equal(misled.transform(form(rows), graph=graph), plain.transform(form(rows)))


def test_how_rows_are_cut_does_not_matter_to_the_choice(monkeypatch):
    rows, graph = topics()
    whole, cut = (
        GraphPPCA(2).fit(da.from_array(rows, chunks=(size, -1)), graph=graph).smoothing_scores_ for size in (400, 37)
    )
    xr.testing.assert_allclose(whole, cut, rtol=1e-9)
    monkeypatch.setattr(costs, "COMPARED_NUMBERS", 0)  # two candidates in a pass
    few = GraphPPCA(2).fit(rows, graph=graph)
    xr.testing.assert_allclose(few.smoothing_scores_, whole, rtol=1e-9)
    assert few.n_passes_ == 1 + 5 * 5 + 1


def test_a_chosen_smoothing_is_saved_told_and_drawn(tmp_path):
    rows, graph = topics()
    model = GraphPPCA(2).fit(rows, graph=graph)
    assert "λ of 6 by hidden cells" in str(GraphPPCA(2).plan(rows, graph=graph))
    assert "choice" not in str(GraphPPCA(2, smoothing=1.0).plan(rows, graph=graph))
    model.save(tmp_path / "m.zarr")
    again = load(tmp_path / "m.zarr")
    xr.testing.assert_identical(again.smoothing_scores_, model.smoothing_scores_)
    assert again.smoothing_ == model.smoothing_
    assert f"(λ = {model.smoothing_:g})" in again._summary_lines()["smoothing"]
    assert again._summary()["graph"]["compared"]["smoothing"] == [0.0, 0.25, 0.5, 1.0, 2.0, 4.0]
    (line, *_), axes = plot.smoothing(again).lines, plt.gca()
    np.testing.assert_array_equal(line.get_ydata(), model.smoothing_scores_["smoothing_correlation"].values)
    assert f"λ = {model.smoothing_:g} chosen" in [text.get_text() for text in axes.get_legend().texts]
    plt.close()
    with pytest.raises(ValueError, match="was given"):
        plot.smoothing(GraphPPCA(2, smoothing=1.0).fit(rows, graph=graph))


def test_the_choice_finds_bad_values_where_they_are():
    bad = X.copy()
    bad[7, 3] = np.inf
    with pytest.raises(DataError, match="row 7, column 3"):
        GraphPPCA(2).fit(bad, graph=GRAPH)
    with pytest.raises(DataError, match="constant"):
        GraphPPCA(2).fit(np.ones_like(X), graph=GRAPH)


def test_scores_with_edges_are_written_and_resumed(tmp_path):
    model = GraphPPCA(2, smoothing=3.0).fit(X, graph=GRAPH)
    scores = model.transform(X, graph=GRAPH)
    for options in ({}, {"overwrite": True}, {"overwrite": True, "resume": True}):
        path = model.transform(X, graph=GRAPH, out=tmp_path / "s.zarr", **options)
        np.testing.assert_array_equal(xr.open_zarr(path)["scores"].values, scores)
