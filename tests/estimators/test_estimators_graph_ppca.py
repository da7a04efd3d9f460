"""PPCA of rows smoothed over a graph: against PPCA of the dense smoothed rows, and what only it can do."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import xarray as xr

from dlatent import PPCA, GraphPPCA, NotFittedError, load
from dlatent.errors import DataError
from dlatent.testing.conformance import plain_features
from dlatent.testing.graphs import power_law_graph

X = plain_features(60, 6)
GRAPH = sp.csr_array(np.pad(power_law_graph(58, 150, random_state=4).toarray(), (0, 2)))  # two samples without edges
S = GRAPH.toarray() / np.sqrt(np.outer(GRAPH.sum(axis=1), GRAPH.sum(axis=1)) + (GRAPH.toarray() == 0))
OPTIONS = {"tol": 1e-13}


def smooth(smoothing, hops):
    return sum((smoothing / (1 + smoothing)) ** k * np.linalg.matrix_power(S, k) for k in range(hops + 1))


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


def test_samples_without_edges_have_the_scores_of_their_rows():
    model = GraphPPCA(2, smoothing=3.0).fit(X, graph=GRAPH)
    scores, alone = model.transform(X, graph=GRAPH), model.transform(X)
    np.testing.assert_allclose(scores[-2:], alone[-2:], rtol=1e-12)
    assert np.abs(scores[:-2] - alone[:-2]).max() > 0.1


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


def test_a_saved_model_knows_how_it_smooths(tmp_path):
    model = GraphPPCA(2, smoothing=3.0, hops=1).fit(X, graph=GRAPH)
    model.save(tmp_path / "m.zarr")
    again = load(tmp_path / "m.zarr")
    assert (again.smoothing_, again._facts()["graph"]) == (3.0, {"edges": 150, "smoothing": 3.0, "hops": 1})
    np.testing.assert_array_equal(again.transform(X, graph=GRAPH), model.transform(X, graph=GRAPH))
    assert "of the smoothed rows" in str(again._words())


REFUSED = {
    "no graph": ({"smoothing": 1.0}, None, "edges are missing"),
    "a graph of others": ({"smoothing": 1.0}, GRAPH[:50][:, :50], "50 samples"),
    "a negative smoothing": ({"smoothing": -1.0}, GRAPH, "smoothing is -1.0"),
    "no hops": ({"smoothing": 1.0, "hops": 0}, GRAPH, "hops is 0"),
    "too little": ({"smoothing": 1e-80}, GRAPH, "double precision"),
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
