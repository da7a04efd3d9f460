"""Passes over edges: equal to dense algebra, and to the last bit on every engine, whatever befalls the workers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from engine_cases import CLUSTERS, COLUMNS, drawn

from dlatent import open_graph
from dlatent.arrays import Exchanged
from dlatent.engine import edges
from dlatent.engine.connect import connect
from dlatent.engine.edges import split_columns, traffic_of
from dlatent.engine.fold import Work, run_group
from dlatent.engine.group import groups_of
from dlatent.errors import DataError
from dlatent.passes import Edges, Pass

SIZES = [3, 1, 40, 7, 7, 7, 90, 2, *[5] * 30]
ROWS = sum(SIZES)


def task_graph(density=0.02, seed=3):
    half = sp.random_array((ROWS, ROWS), density=density, rng=np.random.default_rng(seed), format="csr")
    graph = sp.csr_array(half + half.T)
    graph.setdiag(0)
    graph.eliminate_zeros()
    return graph


GRAPH = task_graph()
WEIGHTS = np.random.default_rng(5).normal(size=(COLUMNS, 3))


def send(block, _parameters):
    return np.asarray(block.features @ WEIGHTS)


def send_sparse(block, _parameters):
    return sp.csr_array(block.features, dtype=np.float64)


def keep(_first, last, _hop, parameters):
    return last * parameters


def gathered(block, _parameters):
    met = block.exchanged.met
    return np.asarray(block.features.T @ met), met.T @ met


def passed(engine, rows=send, hops=2, fold=gathered, parameters=0.5):
    return engine.run(Pass(fold, parameters, exchange=Edges(rows, keep, hops)))


def same(left, right):
    return all(a.tobytes() == b.tobytes() for a, b in zip(left, right, strict=True))


def serial(source, graph=GRAPH, **options):
    with connect(source, client="serial", graph=open_graph(graph)) as engine:
        return passed(engine, **options)


@pytest.fixture(params=["threads", *CLUSTERS])
def client(request):
    return None if request.param == "threads" else request.getfixturevalue(request.param)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_hops_are_products_with_the_graph(hops):
    source = drawn(SIZES)
    x = np.vstack([block.load() for block in source.blocks]).astype(np.float64)
    operator = np.linalg.matrix_power(0.5 * np.eye(ROWS) + GRAPH.toarray(), hops)
    expected = operator @ (x @ WEIGHTS)
    found = serial(source, hops=hops)
    np.testing.assert_allclose(found[0], x.T @ expected, rtol=1e-6, atol=1e-6 * abs(x.T @ expected).max())
    np.testing.assert_allclose(found[1], expected.T @ expected, rtol=1e-6, atol=1e-6 * (expected**2).sum())


def squares(block, _parameters):
    return block.rows * (block.exchanged.sent.T @ block.exchanged.met)


@pytest.mark.parametrize("delayed", [False, True], ids=["store", "Dask"])
def test_what_needs_no_features_reads_them_once_for_the_same_bits(client, delayed):
    source = drawn(SIZES, delayed=delayed)
    once, twice = (Pass(squares, 0.5, exchange=Edges(send, keep, 2, features=features)) for features in (False, True))
    with connect(source, client=client, graph=open_graph(GRAPH), cache_bytes=0) as engine:
        assert engine.run(once).tobytes() == engine.run(twice).tobytes()
        read = [record.bytes_read for record in engine.passes]
    assert read[1] - read[0] == source.nbytes


def test_sparse_rows_are_exchanged_without_becoming_dense(client):
    source = drawn(SIZES, sparse=True)
    with connect(source, client=client, graph=open_graph(GRAPH)) as engine:
        found = passed(engine, rows=send_sparse, hops=1, fold=kind_and_sum)
    x = sp.vstack([block.load() for block in source.blocks]).astype(np.float64)
    assert found[0] == 0
    np.testing.assert_allclose(found[1], ((0.5 * x + GRAPH @ x) ** 2).sum(), rtol=1e-12)


def kind_and_sum(block, _parameters):
    met = block.exchanged.met
    return int(not isinstance(met, sp.csr_array)), float((met.data**2).sum())


def test_samples_without_edges_meet_nobody(client):
    none = sp.csr_array((ROWS, ROWS))
    source = drawn(SIZES)
    with connect(source, client=client, graph=open_graph(none)) as engine:
        found = passed(engine, hops=1)
        assert engine.traffic().rows == 0
    x = np.vstack([block.load() for block in source.blocks]).astype(np.float64)
    np.testing.assert_allclose(found[1], 0.25 * (x @ WEIGHTS).T @ (x @ WEIGHTS), rtol=1e-9)


def test_errors_of_each_stage_reach_the_caller(client):
    def refuse(*_values):
        raise DataError("this stage fails")

    with connect(drawn(SIZES), client=client, graph=open_graph(GRAPH)) as engine:
        for stage in ({"rows": refuse}, {"fold": refuse}):
            with pytest.raises(DataError, match="this stage fails"):
                passed(engine, **stage)
        assert same(passed(engine), serial(drawn(SIZES)))


def test_edges_of_other_samples_are_refused():
    with pytest.raises(DataError, match=r"joins 100 samples, but .* has 307"):
        connect(drawn(SIZES), graph=open_graph(sp.csr_array((100, 100))))


def at_odd_address(values):
    """As rows are that a worker had put on its disk and took back."""
    found = np.empty(values.nbytes + 1, dtype=np.uint8)[1:].view(values.dtype).reshape(values.shape)
    found[...] = values
    return found


@pytest.mark.parametrize("sizes", [(90,), (40, 50)])
def test_the_place_of_rows_in_memory_does_not_change_a_bit(sizes, monkeypatch):
    monkeypatch.setattr("dlatent.order.FEWEST_GROUPS", 1)
    source = drawn(sizes)
    (group, *_) = groups_of(source, None, open_graph(GRAPH[:90][:, :90]))
    work = Work(Pass(gathered, 0.5, exchange=Edges(send, keep, 1)), first=False, groups=1)
    rows = np.random.default_rng(1).normal(size=(90, 3))
    found = [run_group(work, group, Exchanged(values, values), [0])[0] for values in (rows, at_odd_address(rows))]
    assert same(*found)


def in_place(block, _parameters):
    """The rows of a block that have met their neighbours, and its targets, at their places in all rows, and the
    entries of this piece."""
    met, found = block.exchanged.met, np.zeros((ROWS, COLUMNS + 2))
    at = slice(block.start, block.start + block.rows)
    found[at] = np.column_stack([met.toarray(), np.full(block.rows, met.nnz), block.targets])
    return found


@pytest.mark.parametrize("normalised", [False, True])
def test_sparse_rows_meet_a_few_at_a_time_where_no_features_are_needed(normalised, monkeypatch):
    monkeypatch.setattr(edges, "MET_ENTRIES", 50)
    source, targets = drawn(SIZES), np.random.default_rng(0).normal(size=(ROWS, 1))
    hops = Edges(send_sparse, keep, 2, normalised, features=False)
    with connect(source, targets=targets, client="serial", graph=open_graph(GRAPH)) as session:
        found = session.run(Pass(in_place, 0.5, exchange=hops, name="in place"))
    degrees = np.maximum(GRAPH.sum(axis=1), 1e-300)
    step = 0.5 * np.eye(ROWS) + (
        GRAPH.toarray() / np.sqrt(np.outer(degrees, degrees)) if normalised else GRAPH.toarray()
    )
    features = np.vstack([block.load() for block in source.blocks])
    np.testing.assert_allclose(found[:, :COLUMNS], step @ step @ features, rtol=1e-9, atol=1e-12)
    assert COLUMNS <= found[:, COLUMNS].max() < 50 + max(np.diff(GRAPH.indptr) + 1) * COLUMNS
    np.testing.assert_array_equal(found[:, COLUMNS + 1 :], targets)


def test_pieces_put_together_are_the_rows():
    rows = GRAPH[10:30]
    bounds = (0, 4, 51, 52, 53, 200, ROWS)
    pieces = split_columns(rows, bounds)
    again = np.zeros(rows.shape)
    for group, graph in pieces:
        again[:, bounds[group] : bounds[group + 1]] = graph.toarray()
        assert (np.diff(graph.coords[1]) >= 0).all()
    np.testing.assert_array_equal(again, rows.toarray())
    held = [group for group, (a, b) in enumerate(pairwise(bounds)) if rows[:, a:b].nnz]
    assert [piece.group for piece in pieces] == held


def test_traffic_counts_groups_that_live_elsewhere_once_for_each_worker():
    survey = np.array([[1, 2, 0, 0], [2, 0, 0, 0], [0, 0, 0, 5], [1, 0, 5, 0]])
    moved = traffic_of(survey, [10, 20, 30, 40], ["a", "a", "b", "b"])
    assert moved.rows == 10  # of group 0, which group 3 has edges to
    assert moved.reach == 80
    apart = traffic_of(survey, [10, 20, 30, 40], ["a", "b", "c", "d"])
    assert apart.rows == 20 + 10 + 40 + (10 + 30)


def test_what_travels_is_known_to_the_engine(two_processes, seven_workers):
    source = drawn(SIZES, key="traffic")
    ring = sp.csr_array(sp.diags_array([np.ones(ROWS - 1)] * 2, offsets=[-1, 1]))
    with connect(source, client=two_processes, graph=open_graph(ring)) as engine:
        near = engine.traffic()
    with connect(source, client=two_processes, graph=open_graph(GRAPH)) as engine:
        far = engine.traffic()
    assert 0 < near.rows < far.rows == ROWS
    assert near.reach < far.reach == ROWS


def again(first, _last, hop, parameters):
    return first * (parameters + hop)


def smoothed(engine, rows=send, hops=3):
    return engine.run(Pass(gathered_dense, 0.5, exchange=Edges(rows, again, hops, normalised=True)))


def gathered_dense(block, _parameters):
    sent, met = (rows.toarray() if sp.issparse(rows) else rows for rows in block.exchanged)
    return np.asarray(block.features.T @ met), met.T @ met, sent.sum(axis=0)


def with_lone_samples():
    """The graph without the edges of every seventh sample."""
    keep = np.arange(ROWS) % 7 > 0
    return sp.csr_array(sp.diags_array(keep * 1.0) @ GRAPH @ sp.diags_array(keep * 1.0))


@pytest.mark.parametrize("rows", [send, send_sparse], ids=["dense", "sparse"])
def test_first_rows_are_added_at_each_hop_over_a_normalised_graph(rows):
    source, graph = drawn(SIZES, sparse=rows is send_sparse), with_lone_samples()
    x = [block.load() for block in source.blocks]
    x = (sp.vstack(x).toarray() if rows is send_sparse else np.vstack(x)).astype(np.float64)
    first = x if rows is send_sparse else x @ WEIGHTS
    dense = graph.toarray()
    degrees = dense.sum(axis=1)
    s = np.divide(dense, np.sqrt(np.outer(degrees, degrees)), out=np.zeros_like(dense), where=dense > 0)
    met = first
    for hop in (1, 2, 3):
        met = (0.5 + hop) * first + s @ met
    with connect(source, client="serial", graph=open_graph(graph)) as engine:
        found = smoothed(engine, rows=rows)
    for one, expected in zip(found, (x.T @ met, met.T @ met, first.sum(axis=0)), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-6, atol=1e-6 * abs(expected).max())


@pytest.mark.parametrize("delayed", [False, True], ids=["blocks", "dask chunks"])
def test_a_normalised_graph_has_the_same_bits_on_every_engine(client, delayed):
    graph = open_graph(with_lone_samples())
    with connect(drawn(SIZES), client="serial", graph=graph) as engine:
        expected = smoothed(engine)
    with connect(drawn(SIZES, delayed=delayed), client=client, graph=graph) as engine:
        for _ in range(2):
            assert same(smoothed(engine), expected)
