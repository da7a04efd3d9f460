"""Adjacency matrices in memory: what is taken as it is, what is made of edges with a direction, what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from graph_cases import co_graph, dense, symmetrised
from hypothesis import given, settings
from hypothesis import strategies as st

from dlatent import open_graph
from dlatent.errors import DataError
from tests.law_examples import examples

FORMATS = ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"]


@st.composite
def graphs(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """A matrix of edges with a direction, self-loops among them; half of the draws are unweighted."""
    size = draw(st.integers(1, 8))
    top = draw(st.sampled_from([1, 3]))
    values = draw(st.lists(st.integers(0, top), min_size=size * size, max_size=size * size))
    return np.array(values, dtype=float).reshape(size, size)


@settings(max_examples=examples(150))
@given(graph=graphs(), form=st.sampled_from(FORMATS))
def test_directions_are_what_their_definitions_say(graph: np.ndarray[Any, Any], form: str) -> None:
    matrix = sp.coo_array(graph).asformat(form)
    np.testing.assert_array_equal(dense(open_graph(matrix, direction="symmetrise")), symmetrised(graph))
    np.testing.assert_array_equal(dense(open_graph(matrix, direction="common_neighbours")), co_graph(graph))
    symmetric = np.tril(graph, -1) + np.tril(graph, -1).T
    np.testing.assert_array_equal(dense(open_graph(sp.coo_array(np.tril(graph)), direction="undirected")), symmetric)
    np.testing.assert_array_equal(dense(open_graph(sp.coo_array(symmetric))), symmetric)
    off = graph - np.diag(np.diag(graph))
    if (off == off.T).all():
        np.testing.assert_array_equal(dense(open_graph(matrix)), off)
    else:
        with pytest.raises(DataError, match=r"'symmetrise'.*'common_neighbours'.*'undirected'"):
            open_graph(matrix)


@settings(max_examples=examples(60))
@given(graph=graphs(), data=st.data())
def test_rows_and_windows_are_those_of_the_matrix(graph: np.ndarray[Any, Any], data: st.DataObject) -> None:
    opened = open_graph(sp.csr_array(graph), direction="symmetrise")
    size, expected = len(graph), symmetrised(graph)
    start = data.draw(st.integers(0, size))
    stop = data.draw(st.integers(start, size))
    np.testing.assert_array_equal(opened.rows.load(start, stop).toarray(), expected[start:stop])
    window = pickle.loads(pickle.dumps(opened.rows.window(start, stop)))
    inner = data.draw(st.integers(start, stop))
    np.testing.assert_array_equal(window.load(inner, stop).toarray(), expected[inner:stop])
    if stop < size:
        with pytest.raises(DataError, match=f"rows {start}:{stop} are here"):
            window.load(start, stop + 1)


@settings(max_examples=examples(60))
@given(graph=graphs(), data=st.data())
def test_a_graph_of_some_samples_has_the_edges_between_them(graph: np.ndarray[Any, Any], data: st.DataObject) -> None:
    opened = open_graph(sp.csr_array(graph), direction="symmetrise")
    size, whole = len(graph), symmetrised(graph)
    rows = np.array(data.draw(st.permutations(range(size)))[: data.draw(st.integers(0, size))], dtype=int)
    expected = whole[np.ix_(rows, rows)]
    # As scikit-learn cuts arrays along their first axis, and as NumPy is asked by numbers, truth values and slices.
    np.testing.assert_array_equal(dense(opened[rows, ...]), expected)
    np.testing.assert_array_equal(dense(pickle.loads(pickle.dumps(opened[rows.tolist()]))), expected)
    seen = np.isin(np.arange(size), rows)
    np.testing.assert_array_equal(dense(opened[seen]), whole[np.ix_(seen, seen)])
    np.testing.assert_array_equal(dense(opened[1:]), whole[1:, 1:])
    assert (opened.shape, opened[rows].shape) == ((size, size), (len(rows), len(rows)))


def test_a_graph_is_no_list_of_samples() -> None:
    with pytest.raises(TypeError, match="not iterable"):
        list(open_graph(sp.csr_array((3, 3))))
    with pytest.raises(IndexError):
        open_graph(sp.csr_array((3, 3)))[[3]]


def test_a_window_carries_its_own_rows_only() -> None:
    rng = np.random.default_rng(0)
    graph = sp.random_array((2000, 2000), density=0.01, rng=rng)
    graph = open_graph(graph, direction="symmetrise")
    assert len(pickle.dumps(graph.rows.window(0, 20))) < len(pickle.dumps(graph.rows)) / 50


def test_what_was_dropped_is_told() -> None:
    rows, columns = np.array([0, 1, 1, 2, 2, 3, 3]), np.array([1, 0, 0, 2, 3, 2, 3])
    weights = np.array([2.0, 1.0, 1.0, 5.0, 0.0, 0.0, 1.0])
    graph = open_graph(sp.coo_array((weights, (rows, columns)), (5, 5)))
    assert graph.entries == 2
    assert graph.notes == (
        "2 edges of samples to themselves were dropped",
        "1 repeated edge was merged",
        "2 edges of weight zero were dropped",
        "3 samples have no edge; they are fitted like the others",
    )


def test_the_matrix_given_is_not_changed() -> None:
    graph = sp.csr_array(np.array([[1.0, 2.0], [2.0, 0.0]]))
    before = graph.copy()
    open_graph(graph, direction="symmetrise")
    np.testing.assert_array_equal(graph.toarray(), before.toarray())


@pytest.mark.parametrize(
    ("graph", "options", "said"),
    [
        (sp.csr_array((2, 3)), {}, r"shape \(2, 3\).*N × N"),
        (sp.csr_array((3, 3)), {"samples": 4}, "graph of 3 samples, but the data have 4"),
        (sp.csr_array(np.array([[0, -1.0], [-1.0, 0]])), {}, r"from 0 to 1 has weight -1\.0.*\(2 are not\)"),
        (sp.csr_array(np.array([[0, 0], [np.nan, 0]])), {}, r"from 1 to 0 has weight nan.*\(1 are not\)"),
        (sp.csr_array(np.array([[0, 0], [np.inf, 0]])), {}, "from 1 to 0 has weight inf"),
        (sp.csr_array(np.array([[0, 1j], [1j, 0]])), {}, "complex128"),
        (
            sp.csr_array(np.array([[0, 3.0], [2.0, 0]])),
            {},
            r"from 0 to 1 has weight 3\.0, but that from 1 to 0 has 2\.0",
        ),
        (sp.csr_array(np.array([[0, 3.0], [2.0, 0]])), {"direction": "undirected"}, "in both orders one weight"),
        (sp.csr_array((2, 2)), {"direction": "both"}, "direction is 'both'"),
    ],
)
def test_refused(graph: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        open_graph(graph, **options)


def test_hubs_are_named_where_common_neighbours_explode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlatent.stores.graph.matrices.MOST_PAIRS", 50)
    star = sp.coo_array((np.ones(9), (np.arange(1, 10), np.zeros(9, dtype=int))), (10, 10))
    with pytest.raises(DataError, match=r"90 pairs.*more than 50.*0 \(to 0, from 9\)"):
        open_graph(star, direction="common_neighbours")
