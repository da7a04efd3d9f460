"""Graphs written to stores: what ingest writes is what opening gives, whatever fits into memory at one time."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import dask.array as da
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr
from graph_cases import co_graph, dense
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlatent import ingest, ingest_graph, open_graph
from dlatent.arrays import Graph
from dlatent.errors import DataError, StoreError
from dlatent.stores.atomic import new_store
from dlatent.stores.graph import direction as directions
from dlatent.stores.graph import ingest as ingesting
from dlatent.stores.graph import matrices
from tests.law_examples import examples
from tests.sparse_stores import write_csr

DIRECTIONS = [None, "symmetrise", "common_neighbours", "undirected"]
FORMS = ["array", "networkx", "csv", "npz", "scipy", "scipy npz", "dask", "zarr"]


@st.composite
def entries(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
    """Edges between nine samples with repetitions, self-loops and weights; some lists hold every edge both ways."""
    count = draw(st.integers(1, 20))
    edges = np.array(draw(st.lists(st.integers(0, 8), min_size=2 * count, max_size=2 * count))).reshape(count, 2)
    weights = draw(st.none() | st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=count, max_size=count))
    both = draw(st.booleans())
    weights = None if weights is None else np.array(weights * (2 if both else 1))
    return np.vstack([edges, edges[:, ::-1]]) if both else edges, weights


def given_as(form: str, edges: np.ndarray[Any, Any], weights: np.ndarray[Any, Any] | None, folder: Path) -> Any:
    listed = edges if weights is None else np.column_stack([edges, weights])
    matrix = sp.coo_array((np.ones(len(edges)) if weights is None else weights, tuple(edges.T)), (9, 9))
    if form == "networkx":
        graph = nx.MultiDiGraph()
        graph.add_nodes_from(range(9))
        graph.add_weighted_edges_from(listed) if weights is not None else graph.add_edges_from(edges.tolist())
        return graph if weights is None else nx.relabel_nodes(graph, int)
    if form == "csv":
        frame = pd.DataFrame(edges, columns=["from", "to"])
        frame = frame if weights is None else frame.assign(weight=weights)
        frame.to_csv(folder / "edges.csv", index=False)
    elif form == "npz":
        np.savez(folder / "edges.npz", edges=listed, X_shape=[9, 4])
    elif form == "scipy npz":
        sp.save_npz(folder / "matrix.npz", matrix)
    elif form == "zarr":
        shutil.rmtree(folder / "in.zarr", ignore_errors=True)
        with new_store(folder / "in.zarr") as group:
            write_csr(group, [sp.csr_array(matrix)[:4], sp.csr_array(matrix)[4:]])
    elif form == "dask":
        return da.from_array(matrix.toarray(), chunks=(4, 5))
    paths = {"csv": "edges.csv", "npz": "edges.npz", "scipy npz": "matrix.npz", "zarr": "in.zarr"}
    return folder / paths[form] if form in paths else matrix if form == "scipy" else listed


def reason(refusal: DataError, form: str) -> str:
    """What is wrong, without the name of the input; of a store, any of the wrong pairs may be named."""
    return str(refusal).partition("; " if form == "zarr" else ": ")[2]


def opened_or_refused(source: Any, direction: Any, form: str) -> Graph | str:
    try:
        return open_graph(source, samples=9, direction=direction)
    except DataError as refusal:
        return reason(refusal, form)


@pytest.mark.slow
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=entries(), form=st.sampled_from(FORMS), direction=st.sampled_from(DIRECTIONS), small=st.booleans())
def test_what_is_ingested_is_what_opens(
    graph: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None],
    form: str,
    direction: Any,
    small: bool,
    tmp_path: Path,
) -> None:
    source = given_as(form, *graph, tmp_path)
    shutil.rmtree(tmp_path / "out.zarr", ignore_errors=True)
    with pytest.MonkeyPatch.context() as patch:
        if small:  # blocks of one row, and of one pair
            patch.setattr(ingesting, "BATCH_BYTES", 1)
            patch.setattr(directions, "BLOCK_ENTRIES", 3)
            patch.setattr(directions, "BLOCK_PAIRS", 2)
        expected = opened_or_refused(source, direction, form)
        if isinstance(expected, str):
            with pytest.raises(DataError) as refused:
                ingest_graph(source, tmp_path / "out.zarr", samples=9, direction=direction)
            assert reason(refused.value, form) == expected
            assert not [path for path in tmp_path.iterdir() if "out.zarr" in path.name]
            return
        report = ingest_graph(source, tmp_path / "out.zarr", samples=9, direction=direction)
        patch.setattr(matrices, "check_symmetric", lambda *_: pytest.fail("a store that was checked is checked again"))
        opened = open_graph(tmp_path / "out.zarr", samples=9)
    np.testing.assert_array_equal(dense(opened), dense(expected))
    degrees = np.count_nonzero(dense(expected), axis=1)
    assert report.edges * 2 == opened.entries == degrees.sum()
    assert (report.median_degree, report.largest_degree) == (np.median(degrees), degrees.max())
    assert report.isolated == np.count_nonzero(degrees == 0)
    assert opened.notes == tuple(note for note in report.notes if "no edge" in note)
    if form in ("array", "csv", "npz", "networkx"):
        assert report.notes == expected.notes


def test_labels_and_their_number_come_from_the_data(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("name,a,b\nx,1,2\ny,3,4\nz,5,6\n")
    ingest(tmp_path / "data.csv", tmp_path / "data.zarr", ids="name")
    (tmp_path / "edges.csv").write_text("from,to\nz,x\n")
    ingest_graph(tmp_path / "edges.csv", tmp_path / "edges.zarr", data=tmp_path / "data.zarr", direction="undirected")
    np.testing.assert_array_equal(dense(open_graph(tmp_path / "edges.zarr")), [[0, 0, 1], [0, 0, 0], [1, 0, 0]])
    ingest(tmp_path / "data.csv", tmp_path / "plain.zarr", labels="name")
    by_number = {"data": tmp_path / "plain.zarr", "direction": "undirected", "overwrite": True}
    ingest_graph(np.array([[2, 0]]), tmp_path / "edges.zarr", **by_number)
    assert open_graph(tmp_path / "edges.zarr").rows.load(2, 3).toarray().tolist() == [[1, 0, 0]]
    with pytest.raises(DataError, match="names 3, but the positions of the 3 samples"):
        ingest_graph(np.array([[3, 0]]), tmp_path / "edges.zarr", **by_number)
    assert open_graph(tmp_path / "edges.zarr").entries == 2


def test_a_store_changed_by_another_program_is_checked_again(tmp_path: Path) -> None:
    ingest_graph(np.array([[0, 1]]), tmp_path / "edges.zarr", direction="undirected")
    group = zarr.open_group(tmp_path / "edges.zarr", mode="r+")
    for name in ("data", "indices"):
        group[name].resize((1,))
    group["indptr"][:] = [0, 1, 1]
    with pytest.raises(DataError, match="'symmetrise'"):
        open_graph(tmp_path / "edges.zarr")


def test_an_open_graph_is_written_as_it_is(tmp_path: Path) -> None:
    graph = open_graph([[0, 1, 2.0], [1, 2, 3.0]], direction="undirected")
    for direction in (None, "symmetrise", "undirected"):
        ingest_graph(graph, tmp_path / "edges.zarr", direction=direction, overwrite=True)  # type: ignore[arg-type]
        np.testing.assert_array_equal(dense(open_graph(tmp_path / "edges.zarr")), dense(graph))
    ingest_graph(graph, tmp_path / "edges.zarr", direction="common_neighbours", overwrite=True)
    np.testing.assert_array_equal(dense(open_graph(tmp_path / "edges.zarr")), co_graph(dense(graph)))


def test_hubs_are_named_where_common_neighbours_explode(tmp_path: Path) -> None:
    star = np.column_stack([np.arange(1, 10), np.zeros(9, dtype=int)])
    with pytest.raises(DataError, match=r"90 pairs.*more than 50.*0 \(to 0, from 9\).*most_pairs"):
        ingest_graph(star, tmp_path / "edges.zarr", direction="common_neighbours", most_pairs=50)
    assert not list(tmp_path.iterdir())
    ingest_graph(star, tmp_path / "edges.zarr", direction="common_neighbours", most_pairs=90)
    expected = np.zeros((10, 10))
    expected[star[:, 0], star[:, 1]] = 1
    np.testing.assert_array_equal(dense(open_graph(tmp_path / "edges.zarr")), co_graph(expected))


def test_a_destination_that_is_taken_is_left_alone(tmp_path: Path) -> None:
    ingest_graph(np.array([[0, 1]]), tmp_path / "edges.zarr", direction="undirected")
    with pytest.raises(StoreError, match="already exists"):
        ingest_graph(np.array([[0, 2]]), tmp_path / "edges.zarr", direction="undirected")
    assert open_graph(tmp_path / "edges.zarr").samples == 2


def test_cornell_has_the_co_edges_of_the_paper_rebuilt(tmp_path: Path) -> None:
    folder = os.environ.get("DLATENT_DATA")
    if not folder:
        pytest.skip("DLATENT_DATA names no folder with the data of the papers")
    report = ingest_graph(Path(folder) / "webkb_cornell.npz", tmp_path / "edges.zarr", direction="common_neighbours")
    assert (report.samples, report.edges, report.weighted) == (843, 16640, False)
