"""Simulated graphs and documents have the sizes, the degrees and the likeness along edges that they are asked for."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.graphs import power_law_graph, topic_documents


def same_group(graph, groups):
    entries = graph.tocoo()
    return (groups[entries.row] == groups[entries.col]).mean()


@pytest.mark.parametrize(("samples", "edges"), [(4, 3), (30, 100), (20_000, 60_000)])
def test_a_graph_has_as_many_edges_as_asked_for(samples, edges):
    graph = power_law_graph(samples, edges)
    assert graph.shape == (samples, samples)
    assert graph.nnz == 2 * edges
    assert (graph.data == 1.0).all()
    assert not graph.diagonal().any()
    assert abs(graph - graph.T).nnz == 0


def test_the_same_seed_gives_the_same_graph():
    one, same, other = (power_law_graph(50, 80, random_state=seed) for seed in (3, 3, 4))
    assert abs(one - same).nnz == 0
    assert abs(one - other).nnz > 0


@pytest.mark.parametrize("exponent", [2.5, 3.0])
def test_degrees_follow_their_power_law(exponent):
    """P(degree ≥ d) ~ d^(1 − exponent): the slope between two quantiles of the degrees, on logarithmic scales."""
    degrees = power_law_graph(100_000, 500_000, exponent=exponent).sum(axis=0)
    low, high = np.quantile(degrees, [0.9, 0.999])
    slope = (np.log(1e-3) - np.log(1e-1)) / np.log(high / low)
    assert slope == pytest.approx(1.0 - exponent, rel=0.15)
    assert degrees.max() > 50 * degrees.mean()


def test_edges_keep_to_groups_as_often_as_asked():
    groups = np.random.default_rng(0).integers(10, size=5000)
    for within, expected in ((0.0, 0.1), (0.5, 0.55), (1.0, 1.0)):
        graph = power_law_graph(5000, 20_000, groups=groups, within=within)
        assert same_group(graph, groups) == pytest.approx(expected, abs=0.03)


def test_more_edges_than_there_is_room_for_are_refused():
    with pytest.raises(ValueError, match="30 edges are more than half of all pairs of 10 samples"):
        power_law_graph(10, 30)


def test_documents_have_unit_length_and_different_words():
    topics = np.arange(1000) % 4
    blocks = list(topic_documents(topics, 2000, length=20, block=300))
    assert [block.shape for block in blocks] == [(300, 2000)] * 3 + [(100, 2000)]
    rows = sp.csr_array(sp.vstack(blocks))
    assert rows.dtype == np.float32
    assert rows.has_canonical_format
    assert (np.diff(rows.indptr) == 20).all()
    np.testing.assert_allclose(np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1)), 1.0, rtol=1e-6)


def test_few_words_make_short_documents():
    (rows,) = topic_documents(np.zeros(40, dtype=int), 12, length=30)
    counts = np.diff(rows.indptr)
    assert (counts <= 12).all()
    assert (counts >= 1).all()


def test_documents_of_one_topic_are_alike():
    topics = np.arange(600) % 3
    rows = sp.vstack(list(topic_documents(topics, 3000)))
    likeness = (rows @ rows.T).toarray()
    np.fill_diagonal(likeness, np.nan)
    alike = topics[:, None] == topics
    assert np.nanmean(likeness[alike]) > 2 * np.nanmean(likeness[~alike])
