"""Smoothed and averaged rows have the same bits on every engine, and with edges no likelihood falls."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_cases import ROUTES, as_dask, numbers, same_bits

from dlatent import GraphPPCA, RelationalPPCA, ingest_graph
from tests.graphs import power_law_graph
from tests.one_solver import only_solver

X, Y, _ = numbers(n=120, d=12)
N, D = X.shape
GRAPH = power_law_graph(N, 300, random_state=1)
GONE = np.random.default_rng(2).random(X.shape) < 0.5
HOLES = np.where(GONE, np.nan, X)
SEEN = sp.csr_array((X[~GONE], np.nonzero(~GONE)), shape=X.shape)
FEW = settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(params=["threads", pytest.param("one_worker", marks=pytest.mark.slow), "two_workers"])
def client(request):
    return None if request.param == "threads" else request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graph")
    zarr.create_array(folder / "x.zarr", data=X, chunks=(13, 5))
    ingest_graph(GRAPH, folder / "edges.zarr", samples=N)
    return str(folder / "x.zarr"), str(folder / "edges.zarr")


def test_scores_of_smoothed_rows_have_the_same_bits_on_every_engine(client, stored, tmp_path):
    data, place = stored
    model = GraphPPCA(2, smoothing=3.0).fit(as_dask(X, (50, 1, 40, 29)), graph=place, client=client)
    scores = model.transform(data, graph=place, client="serial")
    path = model.transform(data, graph=place, client=client, out=tmp_path / "scores.zarr")
    np.testing.assert_array_equal(zarr.open_group(path, mode="r")["scores"][:], scores)


def test_averaged_rows_have_the_same_bits_on_every_engine(client, stored, tmp_path):
    _, place = stored
    for missing, data in {"nan": as_dask(HOLES, (50, 1, 40, 29)), "unstored": SEEN}.items():
        models = (GraphPPCA(2, missing=missing, tol=1e-4) for _ in range(2))
        expected, found = (
            model.fit(data, graph=place, client=c) for model, c in zip(models, ("serial", client), strict=True)
        )
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
