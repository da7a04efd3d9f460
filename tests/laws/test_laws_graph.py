"""Edges change no law: the same bits on every engine, and nothing depends on how rows and edges are cut or ordered."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_cases import ROUTES, as_dask, numbers, same_bits, texts

from dlatent import GraphPPCA, RelationalPPCA, RelationalSupervisedPPCA, ingest_graph
from tests.graphs import power_law_graph
from tests.one_solver import only_solver

X, Y, _ = numbers(n=120, d=12)
N, D = X.shape
GRAPH = power_law_graph(N, 300, random_state=1)
DELTA = sp.csr_array((sp.eye_array(N) - 0.3 * GRAPH) @ (sp.eye_array(N) - 0.3 * GRAPH) + 0.1 * sp.eye_array(N))
GONE = np.random.default_rng(2).random(X.shape) < 0.5
HOLES = np.where(GONE, np.nan, X)
SEEN = sp.csr_array((X[~GONE], np.nonzero(~GONE)), shape=X.shape)
KINDS = ("relational", "supervised", "precision given")
FEW = settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])


def fit(kind, x, graph, *, client=None, solver="krylov", **options):
    if kind == "precision given":
        between = DELTA if isinstance(graph, sp.csr_array) else graph.replace("edges.zarr", "delta.zarr")
        return RelationalPPCA(2, tol=1e-11, solver=solver, **options).fit(x, precision=between, client=client)
    if kind == "supervised":
        return RelationalSupervisedPPCA(2, tol=1e-11, solver=solver, **options).fit(x, Y, graph=graph, client=client)
    return RelationalPPCA(2, tol=1e-11, solver=solver, **options).fit(x, graph=graph, client=client)


@pytest.fixture(params=["threads", pytest.param("one_worker", marks=pytest.mark.slow), "two_workers"])
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


@pytest.fixture(scope="module")
def fits(stored):
    """Fits by what the data are, and by who computes, each made once."""
    (data, place), chunks = stored, as_dask(X, (50, 1, 40, 29))
    forms = {"stored": (data, place), "memory": (X, GRAPH), "dask": (chunks, place)}
    some = Y.copy()
    some[::3] = np.nan
    incomplete = {"nan": as_dask(HOLES, (50, 1, 40, 29)), "unstored": SEEN}

    @cache
    def made(kind, form, client="serial", solver="krylov"):
        x, graph = forms.get(form, (None, place))
        if kind == "some targets":
            return RelationalSupervisedPPCA(2, tol=1e-11).fit(x, some, graph=graph, client=client)
        if kind == "smoothed":
            return GraphPPCA(2, solver="krylov").fit(x, graph=graph, client=client)
        if kind == "averaged":
            return GraphPPCA(2, missing=form, tol=1e-4).fit(incomplete[form], graph=graph, client=client)
        return fit(kind, x, graph, client=client, solver=solver)

    return made


@pytest.mark.slow
@pytest.mark.parametrize("solver", ROUTES)
@pytest.mark.parametrize("kind", KINDS)
def test_stores_and_memory_have_the_same_bits_on_every_engine(client, fits, kind, solver):
    for form in ("stored", "memory", "dask"):
        assert same_bits(fits(kind, form, client, solver), fits(kind, form, solver=solver))


def test_a_given_precision_has_the_same_bits_on_every_engine(client, fits):
    for solver in ROUTES:
        assert same_bits(*(fits("precision given", "stored", c, solver) for c in ("serial", client)))


def test_smoothed_rows_have_the_same_bits_on_every_engine(client, stored, fits, tmp_path):
    data, place = stored
    expected, found = (fits("smoothed", "stored", c) for c in ("serial", client))
    assert same_bits(found, expected)
    assert found.smoothing_scores_.identical(expected.smoothing_scores_)
    model = GraphPPCA(2, smoothing=3.0).fit(as_dask(X, (50, 1, 40, 29)), graph=place, client=client)
    scores = model.transform(data, graph=place, client="serial")
    path = model.transform(data, graph=place, client=client, out=tmp_path / "scores.zarr")
    np.testing.assert_array_equal(zarr.open_group(path, mode="r")["scores"][:], scores)


def test_averaged_rows_have_the_same_bits_on_every_engine(client, stored, fits, tmp_path):
    _, place = stored
    for missing, data in {"nan": as_dask(HOLES, (50, 1, 40, 29)), "unstored": SEEN}.items():
        expected, found = (fits("averaged", missing, c) for c in ("serial", client))
        assert same_bits(found, expected)
        assert found.smoothing_scores_.identical(expected.smoothing_scores_)
        model = GraphPPCA(2, missing=missing, smoothing=3.0, tol=1e-4).fit(data, graph=place, client=client)
        scores = model.transform(data, graph=place, client="serial")
        path = model.transform(data, graph=place, client=client, out=tmp_path / f"{missing}.zarr")
        np.testing.assert_array_equal(zarr.open_group(path, mode="r")["scores"][:], scores)
    model.set_params(missing="nan")
    filled = model.impute(HOLES, graph=place, client="serial")
    written = model.impute(HOLES, graph=place, client=client, out=tmp_path / "filled.zarr")
    np.testing.assert_array_equal(zarr.open_group(written, mode="r")["imputed"][:], filled)


def test_samples_without_targets_have_the_same_bits_on_every_engine(client, fits):
    for form in ("stored", "memory", "dask"):
        assert same_bits(fits("some targets", form, client), fits("some targets", form))


def test_sparse_documents_have_the_same_bits_on_every_engine(client):
    x, _ = texts()
    graph = power_law_graph(x.shape[0], 200, random_state=3)
    for solver in ROUTES:
        models = [
            RelationalPPCA(2, solver=solver).fit(as_dask(x, (40, 50)), graph=graph, client=c)
            for c in ("serial", client)
        ]
        assert same_bits(*models)


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
    assert 0 < near.task.between.travelling < far.task.between.travelling == n
    assert 0 < near.neighbour_bytes < far.neighbour_bytes
    alone = RelationalPPCA(2, solver="krylov").plan(x, graph=ring, client="serial")
    assert alone.neighbour_bytes == 0
