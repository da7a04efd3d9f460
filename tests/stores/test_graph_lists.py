"""Lists of edges: arrays, tables, networkx graphs and files, by position and by label."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from graph_cases import co_graph, dense
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlatent import open_graph
from dlatent.errors import DataError
from dlatent.stores.graph import edges as edge_lists
from tests.law_examples import examples

NAMES = np.array(["007", "a b", "NA", "nan", "é", "x,y", "7"])
FORMS = ["array", "list", "frame", "npz", "npz by columns", "csv", "headless csv", "tsv.gz", "parquet"]


@st.composite
def lists(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
    """Edges (m, 2) between seven samples with repetitions and self-loops, and weights or None."""
    count = draw(st.integers(1, 25))
    ends = draw(st.lists(st.integers(0, 6), min_size=2 * count, max_size=2 * count))
    weights = draw(st.none() | st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=count, max_size=count))
    return np.array(ends).reshape(count, 2), None if weights is None else np.array(weights)


def directed(edges: np.ndarray[Any, Any], weights: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any]:
    """D by definition: weights of repeated edges are added, unweighted edges count once."""
    made = np.zeros((7, 7))
    for at, (source, target) in enumerate(edges):
        if source != target:
            made[source, target] = 1 if weights is None else made[source, target] + weights[at]
    return made


def written(form: str, names: np.ndarray[Any, Any], weights: np.ndarray[Any, Any] | None, folder: Path) -> Any:
    """The edges in one of the forms in which they can be given."""
    columns = {"from": names[:, 0], "to": names[:, 1]} | ({} if weights is None else {"weight": weights})
    frame = pd.DataFrame(columns)
    if form == "array":
        return names if weights is None else np.column_stack([names, weights])
    if form == "list":
        return names.tolist()
    if form == "frame":
        return frame.set_index(np.arange(len(frame)) + 5)
    if form.startswith("npz"):
        edges = names if weights is None else np.column_stack([names, weights])
        np.savez(folder / "edges.npz", edges=np.asfortranarray(edges) if "columns" in form else edges, y=np.zeros(7))
        return folder / "edges.npz"
    if form == "parquet":
        frame.to_parquet(folder / "edges.parquet")
        return folder / "edges.parquet"
    path = folder / ("edges.tsv.gz" if form == "tsv.gz" else "edges.csv")
    frame.to_csv(path, index=False, header=form != "headless csv", sep="\t" if form == "tsv.gz" else ",")
    return os.fspath(path)


@settings(max_examples=examples(120), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=lists(), form=st.sampled_from(FORMS), by=st.sampled_from(["position", "text", "number"]))
def test_every_form_of_a_list_gives_the_same_graph(
    graph: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None], form: str, by: str, tmp_path: Path
) -> None:
    edges, weights = graph
    if form == "list":
        weights = None
    if "npz" in form and by == "number":
        by = "position"  # numbers in npz files are positions
    ids = {"position": None, "text": NAMES, "number": np.arange(7)[::-1] * 10}[by]
    given_graph = written(form, edges if ids is None else ids[edges], weights, tmp_path)
    options: dict[str, Any] = {"ids": ids} if ids is not None else {"samples": 7}
    expected = directed(edges, weights)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edge_lists, "ROWS", 3)
        made = dense(open_graph(given_graph, direction="symmetrise", **options))
        co = dense(open_graph(given_graph, direction="common_neighbours", **options))
    both = expected + expected.T
    np.testing.assert_array_equal(made, both if weights is not None else both > 0)
    np.testing.assert_array_equal(co, co_graph(expected))


def test_a_list_needs_a_word_about_its_direction() -> None:
    edges = np.array([[0, 1], [1, 2]])
    with pytest.raises(DataError, match=r"array of edges: the edge from 0 to 1 .*'symmetrise'.*'undirected'"):
        open_graph(edges, samples=3)
    chain = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(dense(open_graph(edges, samples=3, direction="undirected")), chain)
    np.testing.assert_array_equal(dense(open_graph(np.vstack([edges, edges[:, ::-1]]), samples=3)), chain)
    np.testing.assert_array_equal(dense(open_graph(np.vstack([edges, edges[:1, ::-1]]), direction="undirected")), chain)


def test_an_undirected_list_has_one_weight_for_a_link() -> None:
    edges = np.array([[0, 1], [1, 0]])
    assert open_graph(edges, direction="undirected", weights=[2.0, 2.0]).rows.load(0, 2).toarray()[0, 1] == 2
    with pytest.raises(DataError, match=r"weight 2\.0, but that from 1 to 0 has 3\.0.*one weight"):
        open_graph(edges, direction="undirected", weights=[2.0, 3.0])


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph])
@pytest.mark.parametrize("weighted", [False, True])
def test_networkx(kind: Any, weighted: bool) -> None:
    graph = kind()
    graph.add_nodes_from(["z", "a", "b", "c", "alone"])
    for at, (source, target) in enumerate([("a", "b"), ("b", "c"), ("z", "b"), ("c", "c")]):
        graph.add_edge(source, target, **({"weight": at + 2} if weighted else {}))
    ids = ["a", "b", "c", "z", "alone"]
    drawn = np.zeros((5, 5))
    for source, target, weight in [(0, 1, 2), (1, 2, 3), (3, 1, 4)]:
        drawn[source, target] = weight if weighted else 1
    symmetric = drawn + drawn.T
    np.testing.assert_array_equal(dense(open_graph(graph, ids=ids, direction="symmetrise")), symmetric)
    if graph.is_directed():
        np.testing.assert_array_equal(dense(open_graph(graph, ids=ids, direction="common_neighbours")), co_graph(drawn))
        with pytest.raises(DataError, match="'symmetrise'"):
            open_graph(graph, ids=ids)
    else:
        opened = open_graph(graph, ids=ids)
        np.testing.assert_array_equal(dense(opened), symmetric)
        np.testing.assert_array_equal(
            dense(open_graph(graph, ids=ids, direction="common_neighbours")), co_graph(symmetric)
        )
        assert opened.notes[-1].startswith("1 sample has no edge")


def test_networkx_nodes_that_are_positions_need_no_labels() -> None:
    graph = nx.path_graph(4)
    graph.add_node(6)
    assert open_graph(graph).samples == 7
    assert open_graph(graph, samples=9).samples == 9


def test_the_files_of_the_papers(tmp_path: Path) -> None:
    folder = os.environ.get("DLATENT_DATA")
    if not folder:
        pytest.skip("DLATENT_DATA names no folder with the data of the papers")
    cornell = Path(folder) / "webkb_cornell.npz"
    assert open_graph(cornell, samples=843, direction="common_neighbours").entries == 2 * 16640
    with pytest.raises(DataError, match="'common_neighbours'"):
        open_graph(cornell)
    assert open_graph(Path(folder) / "polbooks.npz").entries == 2 * 441
    with pytest.raises(DataError, match="105 samples, but the data have 106"):
        open_graph(Path(folder) / "polbooks.npz", samples=106)


def test_what_was_dropped_is_told() -> None:
    edges = [[0, 1], [0, 1], [1, 1], [2, 0], [0, 2], [3, 4]]
    graph = open_graph(np.array(edges), weights=[1.0, 1, 1, 1, 1, 0], samples=6, direction="symmetrise")
    assert graph.notes == (
        "1 edge of a sample to itself was dropped",
        "1 repeated edge was merged",
        "1 edge of weight zero was dropped",
        "3 samples have no edge; they are fitted like the others",
    )
    np.testing.assert_array_equal(graph.rows.load(0, 1).toarray(), [[0, 2, 2, 0, 0, 0]])
    inferred = open_graph(np.array(edges), direction="symmetrise")
    assert inferred.samples == 5
    assert "5 samples" in inferred.notes[0]


def test_labels_that_only_count_are_positions() -> None:
    edges = np.array([[0, 2]])
    graph = open_graph(edges, ids=np.arange(3).astype(str), direction="undirected")
    np.testing.assert_array_equal(dense(graph), [[0, 0, 1], [0, 0, 0], [1, 0, 0]])


@pytest.mark.parametrize(
    ("graph", "options", "said"),
    [
        ([[0, 1], [5, 0], [0, 9]], {"samples": 5}, r"array of edges row 1 names 5, .* 0 to 4 \(1 such"),
        ([[0, -1]], {}, r"row 0 names -1, but positions count from 0"),
        ([["a", "b"], ["c", "a"]], {"ids": ["a", "b"]}, r"row 1 names 'c', which is the label of no .*\(1 such"),
        ([["a", "b"]], {"samples": 3}, r"row 0 names 'a', which is no position; give ids="),
        ([["a", "b"]], {"ids": ["a", "a"]}, r"ids\[0\] and ids\[1\] are both 'a'"),
        ([["a", "b"]], {"ids": ["a", "b"], "samples": 3}, r"ids have shape \(2,\), but the data have 3"),
        ([["a", "b"]], {"ids": ["a", ""]}, r"ids\[1\] names no sample"),
        ([[0, 1, -2.0], [1, 0, 3.0]], {}, r"array of edges: row 0 \(0\.0 to 1\.0\) has weight -2\.0"),
        ([[0.0, np.nan]], {}, r"row 0 names no sample \(1 do"),
        ([[0, 1.5]], {}, "row 0 names '1.5'"),
        ([["0", "1", "heavy"]], {}, "row 0 has weight 'heavy'; weights are numbers"),
        ([[0, 1, 2, 3]], {}, "has 4 columns"),
        ([0, 1], {}, r"has shape \(2,\)"),
        ([[0, 1]], {"weights": [1, 2]}, r"weights have shape \(2,\), but there are 1 edges"),
        ([[0, 1, 1]], {"weights": [1]}, "give one of them"),
        (np.empty((0, 2), int), {}, "holds no edges; give samples="),
        (sp.eye_array(3), {"weights": [1]}, "other kinds of edges carry their own"),
        ("missing.csv", {}, r"missing\.csv does not exist"),
        (3, {}, "cannot read edges of type builtins.int"),
    ],
)
def test_refused(graph: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        open_graph(graph, direction="symmetrise", **options)


def test_files_name_their_rows(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("from,to,w\n0,1,1\n1,7,1\n")
    with pytest.raises(DataError, match=r"edges\.csv row 2 names 7"):
        open_graph(tmp_path / "edges.csv", samples=3, direction="symmetrise")
    (tmp_path / "edges.csv").write_text("from,to,w\n0,1,1\n1,2,\n")
    with pytest.raises(DataError, match=r"edges\.csv: row 2 \(1 to 2\) has weight nan"):
        open_graph(tmp_path / "edges.csv", samples=3, direction="symmetrise")
    for columns in ("from", "from,to,year,weight", ",from,to"):
        (tmp_path / "edges.csv").write_text(f"{columns}\n0,1,2,3\n")
        with pytest.raises(DataError, match=r"has the columns '.*' ?.*; a list of edges has two, from and to"):
            open_graph(tmp_path / "edges.csv", samples=3, direction="symmetrise")
    (tmp_path / "edges.csv").write_text("from,to\na,\n")
    with pytest.raises(DataError, match="row 1 names no sample"):
        open_graph(tmp_path / "edges.csv", ids=["a", "b"], direction="symmetrise")

    (tmp_path / "edges.txt").write_text("0 1\n")
    with pytest.raises(DataError, match=r"edges\.txt: edges are read from \.npz, \.csv"):
        open_graph(tmp_path / "edges.txt")


def test_an_open_graph_passes_through() -> None:
    graph = open_graph([[0, 1]], direction="undirected")
    assert open_graph(graph, samples=2) is graph
    with pytest.raises(DataError, match="graph of 2 samples, but the data have 3"):
        open_graph(graph, samples=3)
    with pytest.raises(DataError, match="direction='common_neighbours' where it is opened first"):
        open_graph(graph, direction="common_neighbours")


def test_a_table_without_a_header_loses_no_link(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("a,b\nb,c\n")
    assert open_graph(tmp_path / "edges.csv", ids=["a", "b", "c"], direction="undirected").entries == 4
    (tmp_path / "edges.csv").write_text("\ufeff0,1\r\n1,2\r\n", encoding="utf-8")
    assert open_graph(tmp_path / "edges.csv", direction="undirected").entries == 4
    (tmp_path / "edges.csv").write_text("from,to\n")
    assert open_graph(tmp_path / "edges.csv", samples=3).notes[-1].startswith("3 samples have no edge")


def test_scipy_archives(tmp_path: Path) -> None:
    matrix = sp.csr_array(np.array([[0, 2.0], [2.0, 0]]))
    sp.save_npz(tmp_path / "graph.npz", matrix)
    np.testing.assert_array_equal(dense(open_graph(tmp_path / "graph.npz")), matrix.toarray())


@pytest.mark.parametrize("ids", [None, ["a", "b", "c"]])
@pytest.mark.parametrize("weighted", [False, True])
def test_names_of_rows_are_no_edges(tmp_path, ids, weighted):
    edges = [(0, 1, 3.0), (1, 2, 5.0)]
    named = [tuple(ids[at] for at in edge[:2]) if ids else edge[:2] for edge in edges]
    rows = [(*own, edge[2]) if weighted else own for own, edge in zip(named, edges, strict=True)]
    lines = [",".join(map(str, (number, *row))) for number, row in enumerate(rows, 1)]
    header = "from,to,weight" if weighted else "from,to"
    (tmp_path / "edges.csv").write_text("\n".join([header, *lines]))
    graph = open_graph(tmp_path / "edges.csv", samples=3, ids=ids, direction="symmetrise")
    np.testing.assert_array_equal(dense(graph)[[0, 1], [1, 2]], [3, 5] if weighted else [1, 1])
    (tmp_path / "edges.csv").write_text("\n".join([header, *lines, "1,2,3,4,5"]))
    with pytest.raises(DataError, match=r"edges\.csv is no readable table: line 4 has 5 fields"):
        open_graph(tmp_path / "edges.csv", samples=3, ids=ids, direction="symmetrise")
