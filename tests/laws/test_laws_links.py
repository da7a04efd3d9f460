"""Links change no law: the same bits on every engine, and nothing depends on how rows and links are cut or ordered."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_cases import ROUTES, as_dask, assert_same_maximum, numbers, same_bits, texts

from dlatent import RelationalPPCA, RelationalSupervisedPPCA
from dlatent.stores.links import ingest_links
from dlatent.testing.graphs import power_law_graph

X, Y, _ = numbers(n=120, d=12)
N, D = X.shape
LINKS = power_law_graph(N, 300, random_state=1)
FEW = settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def fit(kind, x, links, *, client=None, route="krylov", **options):
    if kind == "supervised":
        return RelationalSupervisedPPCA(2, tol=1e-11, route=route, **options).fit(x, Y, links=links, client=client)
    return RelationalPPCA(2, tol=1e-11, route=route, **options).fit(x, links=links, client=client)


@pytest.fixture(params=["threads", "one_worker", "two_workers"])
def client(request):
    return None if request.param == "threads" else request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("links")
    array = zarr.create_array(folder / "x.zarr", shape=X.shape, chunks=(13, 5), dtype=X.dtype)
    array[:] = X
    ingest_links(LINKS, folder / "links.zarr", instances=N)
    return str(folder / "x.zarr"), str(folder / "links.zarr")


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("kind", ["relational", "supervised"])
def test_stores_and_memory_have_the_same_bits_on_every_engine(client, stored, kind, route):
    data, links = stored
    for x, graph in ((data, links), (X, LINKS), (as_dask(X, (50, 1, 40, 29)), links)):
        expected = fit(kind, x, graph, client="serial", route=route)
        assert same_bits(fit(kind, x, graph, client=client, route=route), expected)


def test_sparse_documents_have_the_same_bits_on_every_engine(client):
    x, _ = texts()
    links = power_law_graph(x.shape[0], 200, random_state=3)
    for route in ROUTES:
        models = [
            RelationalPPCA(2, route=route).fit(as_dask(x, (40, 50)), links=links, client=c) for c in ("serial", client)
        ]
        assert same_bits(*models)


@pytest.fixture(scope="module", params=[(k, r) for k in ("relational", "supervised") for r in ROUTES], ids=" ".join)
def whole(request):
    kind, route = request.param
    return kind, route, fit(kind, X, LINKS, route=route)


@FEW
@given(rows=st.lists(st.floats(0, 1), max_size=12))
def test_chunks_of_rows_do_not_matter(whole, rows):
    kind, route, expected = whole
    edges = sorted({0, N, *(int(cut * N) for cut in rows)})
    cut = as_dask(X, tuple(b - a for a, b in pairwise(edges)))
    assert_same_maximum(fit(kind, cut, LINKS, route=route), expected)


@FEW
@given(seed=st.integers(0, 1000))
def test_order_of_the_instances_moves_with_their_links(seed):
    order = np.random.default_rng(seed).permutation(N)
    for route in ROUTES:
        expected = fit("relational", X, LINKS, route=route)
        assert_same_maximum(fit("relational", X[order], LINKS[order][:, order], route=route), expected)


@FEW
@given(seed=st.integers(0, 1000), alpha=st.floats(0, 2), gamma=st.floats(0.01, 1), route=st.sampled_from(ROUTES))
def test_likelihood_never_falls(seed, alpha, gamma, route):
    links = power_law_graph(N, 200, random_state=seed)
    for solver in ("auto", "em"):
        model = RelationalPPCA(3, alpha=alpha, gamma=gamma, route=route, solver=solver, tol=1e-7, random_state=seed)
        lines = model.fit(X, links=links).history_["iteration_log_likelihood"].values
        assert (np.diff(lines) >= -1e-10 * abs(lines).max()).all()


def test_the_plan_tells_what_travels(two_workers):
    x = np.repeat(X, 400, axis=0)  # four blocks
    n = len(x)
    ring = sp.csr_array(sp.diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1]))
    near = RelationalPPCA(2, route="krylov").plan(x, links=ring, client=two_workers)
    far = RelationalPPCA(2, route="krylov").plan(x, links=power_law_graph(n, n), client=two_workers)
    assert f"{n - 1:,} links" in str(near)
    assert 0 < near.problem.travelling < far.problem.travelling == n
    assert 0 < near.exchange_bytes < far.exchange_bytes
    alone = RelationalPPCA(2, route="krylov").plan(x, links=ring, client="serial")
    assert alone.exchange_bytes == 0
