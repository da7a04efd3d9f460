"""Edges change no law: the same bits on every engine, and nothing depends on how rows and edges are cut or ordered."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_cases import ROUTES, as_dask, assert_same_maximum, numbers, same_bits, texts

from dlatent import GraphPPCA, RelationalPPCA, RelationalSupervisedPPCA, ingest_graph
from tests.graphs import power_law_graph
from tests.one_solver import only_solver

X, Y, _ = numbers(n=120, d=12)
N, D = X.shape
GRAPH = power_law_graph(N, 300, random_state=1)
DELTA = sp.csr_array((sp.eye_array(N) - 0.3 * GRAPH) @ (sp.eye_array(N) - 0.3 * GRAPH) + 0.1 * sp.eye_array(N))
KINDS = ("relational", "supervised", "precision given")
FEW = settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def fit(kind, x, graph, *, client=None, solver="krylov", **options):
    if kind == "precision given":
        between = DELTA if isinstance(graph, sp.csr_array) else graph.replace("edges.zarr", "delta.zarr")
        return RelationalPPCA(2, tol=1e-11, solver=solver, **options).fit(x, precision=between, client=client)
    if kind == "supervised":
        return RelationalSupervisedPPCA(2, tol=1e-11, solver=solver, **options).fit(x, Y, graph=graph, client=client)
    return RelationalPPCA(2, tol=1e-11, solver=solver, **options).fit(x, graph=graph, client=client)


@pytest.fixture(params=["threads", "one_worker", "two_workers"])
def client(request):
    return None if request.param == "threads" else request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graph")
    array = zarr.create_array(folder / "x.zarr", shape=X.shape, chunks=(13, 5), dtype=X.dtype)
    array[:] = X
    ingest_graph(GRAPH, folder / "edges.zarr", samples=N)
    ingest_graph(DELTA, folder / "delta.zarr", samples=N, precision=True)
    return str(folder / "x.zarr"), str(folder / "edges.zarr")


@pytest.mark.slow
@pytest.mark.parametrize("solver", ROUTES)
@pytest.mark.parametrize("kind", KINDS)
def test_stores_and_memory_have_the_same_bits_on_every_engine(client, stored, kind, solver):
    data, place = stored
    for x, graph in ((data, place), (X, GRAPH), (as_dask(X, (50, 1, 40, 29)), place)):
        expected = fit(kind, x, graph, client="serial", solver=solver)
        assert same_bits(fit(kind, x, graph, client=client, solver=solver), expected)


def test_a_given_precision_has_the_same_bits_on_every_engine(client, stored):
    data, place = stored
    for solver in ROUTES:
        assert same_bits(*(fit("precision given", data, place, client=c, solver=solver) for c in ("serial", client)))


def test_smoothed_rows_have_the_same_bits_on_every_engine(client, stored, tmp_path):
    data, place = stored
    expected, found = (GraphPPCA(2, solver="krylov").fit(data, graph=place, client=c) for c in ("serial", client))
    assert same_bits(found, expected)
    assert found.smoothing_scores_.identical(expected.smoothing_scores_)
    model = GraphPPCA(2, smoothing=3.0).fit(as_dask(X, (50, 1, 40, 29)), graph=place, client=client)
    scores = model.transform(data, graph=place, client="serial")
    path = model.transform(data, graph=place, client=client, out=tmp_path / "scores.zarr")
    np.testing.assert_array_equal(zarr.open_group(path, mode="r")["scores"][:], scores)


def test_averaged_rows_have_the_same_bits_on_every_engine(client, stored, tmp_path):
    _, place = stored
    gone = np.random.default_rng(2).random(X.shape) < 0.5
    holes = np.where(gone, np.nan, X)
    seen = sp.csr_array((X[~gone], np.nonzero(~gone)), shape=X.shape)
    for missing, data in {"nan": as_dask(holes, (50, 1, 40, 29)), "unstored": seen}.items():
        expected, found = (GraphPPCA(2, missing=missing).fit(data, graph=place, client=c) for c in ("serial", client))
        assert same_bits(found, expected)
        assert found.smoothing_scores_.identical(expected.smoothing_scores_)
        model = GraphPPCA(2, missing=missing, smoothing=3.0).fit(data, graph=place, client=client)
        scores = model.transform(data, graph=place, client="serial")
        path = model.transform(data, graph=place, client=client, out=tmp_path / f"{missing}.zarr")
        np.testing.assert_array_equal(zarr.open_group(path, mode="r")["scores"][:], scores)
    model.set_params(missing="nan")
    filled = model.impute(holes, graph=place, client="serial")
    written = model.impute(holes, graph=place, client=client, out=tmp_path / "filled.zarr")
    np.testing.assert_array_equal(zarr.open_group(written, mode="r")["imputed"][:], filled)


def test_samples_without_targets_have_the_same_bits_on_every_engine(client, stored):
    data, place = stored
    y = Y.copy()
    y[::3] = np.nan
    for x, graph in ((data, place), (X, GRAPH), (as_dask(X, (50, 1, 40, 29)), place)):
        models = [
            RelationalSupervisedPPCA(2, tol=1e-11).fit(x, y, graph=graph, client=one) for one in ("serial", client)
        ]
        assert same_bits(*models)


def test_sparse_documents_have_the_same_bits_on_every_engine(client):
    x, _ = texts()
    graph = power_law_graph(x.shape[0], 200, random_state=3)
    for solver in ROUTES:
        models = [
            RelationalPPCA(2, solver=solver).fit(as_dask(x, (40, 50)), graph=graph, client=c)
            for c in ("serial", client)
        ]
        assert same_bits(*models)


@pytest.fixture(scope="module", params=[(k, r) for k in KINDS for r in ROUTES], ids=" ".join)
def whole(request):
    kind, solver = request.param
    return kind, solver, fit(kind, X, GRAPH, solver=solver)


@FEW
@given(rows=st.lists(st.floats(0, 1), max_size=12))
def test_chunks_of_rows_do_not_matter(whole, rows):
    kind, solver, expected = whole
    edges = sorted({0, N, *(int(cut * N) for cut in rows)})
    cut = as_dask(X, tuple(b - a for a, b in pairwise(edges)))
    assert_same_maximum(fit(kind, cut, GRAPH, solver=solver), expected)


@FEW
@given(seed=st.integers(0, 1000))
def test_order_of_the_samples_moves_with_their_edges(seed):
    order = np.random.default_rng(seed).permutation(N)
    for solver in ROUTES:
        expected = fit("relational", X, GRAPH, solver=solver)
        assert_same_maximum(fit("relational", X[order], GRAPH[order][:, order], solver=solver), expected)


@FEW
@given(seed=st.integers(0, 1000), alpha=st.floats(0, 2), gamma=st.floats(0.01, 1), route=st.sampled_from(ROUTES))
def test_likelihood_never_falls(seed, alpha, gamma, route):
    graph = power_law_graph(N, 200, random_state=seed)
    for solver in ("auto", "em"):
        model = RelationalPPCA(3, alpha=alpha, gamma=gamma, solver=solver, tol=1e-7, random_state=seed)
        with only_solver(route):
            lines = model.fit(X, graph=graph).history_["iteration_log_likelihood"].values
        assert (np.diff(lines) >= -1e-10 * abs(lines).max()).all()


def test_the_plan_tells_what_travels(two_workers):
    x = np.repeat(X, 400, axis=0)  # four blocks
    n = len(x)
    ring = sp.csr_array(sp.diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1]))
    near = RelationalPPCA(2, solver="krylov").plan(x, graph=ring, client=two_workers)
    far = RelationalPPCA(2, solver="krylov").plan(x, graph=power_law_graph(n, n), client=two_workers)
    assert f"{n - 1:,} edges" in str(near)
    assert 0 < near.problem.travelling < far.problem.travelling == n
    assert 0 < near.neighbour_bytes < far.neighbour_bytes
    alone = RelationalPPCA(2, solver="krylov").plan(x, graph=ring, client="serial")
    assert alone.neighbour_bytes == 0
