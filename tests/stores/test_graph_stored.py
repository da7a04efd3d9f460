"""Graphs in Zarr stores and Dask arrays: checked without being held, loaded by rows, refused with their place."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import anndata
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from graph_cases import Dense, co_graph, dense, symmetrised
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlatent import open_graph
from dlatent.errors import DataError, StoreError
from dlatent.stores.graph import matrices
from tests.law_examples import examples


def raw_group(where: Any, matrix: sp.coo_array, chunk: int = 7) -> zarr.Group:
    """The entries as they were listed, row by row, as another program might have written them."""
    order = np.argsort(matrix.coords[0], kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(matrix.coords[0], minlength=matrix.shape[0]))])
    group = zarr.create_group(where)
    parts = {"data": matrix.data[order], "indices": matrix.coords[1][order], "indptr": indptr}
    for name, values in parts.items():
        array = group.create_array(
            name, shape=values.shape, dtype=values.dtype, chunks=(chunk,), config={"write_empty_chunks": True}
        )
        if len(values):
            array[:] = values
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": list(matrix.shape)})
    return group


@st.composite
def listed(draw: st.DrawFn) -> sp.coo_array:
    """Entries of a matrix with repetitions, zeros and a diagonal; half of the draws list every edge both ways."""
    size, count = draw(st.integers(1, 7)), draw(st.integers(0, 14))
    ends = draw(st.lists(st.integers(0, size - 1), min_size=2 * count, max_size=2 * count))
    weights = np.array(draw(st.lists(st.sampled_from([0.0, 1.0, 2.5]), min_size=count, max_size=count)))
    sources, targets = np.array(ends[:count], dtype=int), np.array(ends[count:], dtype=int)
    if draw(st.booleans()):
        sources, targets = np.concatenate([sources, targets]), np.concatenate([targets, sources])
        weights = np.concatenate([weights, weights])
    return sp.coo_array((weights, (sources, targets)), (size, size))


@pytest.mark.slow
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(matrix=listed(), block_bytes=st.integers(1, 200))
def test_a_store_is_the_matrix_in_it(matrix: sp.coo_array, block_bytes: int, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "g.zarr", ignore_errors=True)
    raw_group(tmp_path / "g.zarr", matrix)
    expected = matrix.toarray() - np.diag(np.diag(matrix.toarray()))
    with pytest.MonkeyPatch.context() as patch:
        opened = matrices.open_csr
        patch.setattr(matrices, "open_csr", lambda group, _: opened(group, block_bytes))
        if (expected == expected.T).all():
            graph = open_graph(tmp_path / "g.zarr")
            np.testing.assert_array_equal(dense(graph), expected)
            np.testing.assert_array_equal(dense(pickle.loads(pickle.dumps(graph))), expected)
            in_memory = open_graph(matrix)
            assert (graph.notes, graph.entries) == (in_memory.notes, in_memory.entries)
        else:
            with pytest.raises(DataError, match=r"edge from \d+ to \d+ has weight .*'symmetrise'") as refused:
                open_graph(tmp_path / "g.zarr")
            words = str(refused.value).partition("the edge from ")[2].split()
            i, j = int(words[0]), int(words[2])
            assert expected[i, j] != expected[j, i]
        np.testing.assert_array_equal(
            dense(open_graph(tmp_path / "g.zarr", direction="symmetrise")), symmetrised(matrix.toarray())
        )


@pytest.mark.parametrize("change", ["weight", "place", "swap"])
def test_one_wrong_entry_among_many_is_named(tmp_path: Path, change: str) -> None:
    rng = np.random.default_rng(1)
    half = sp.random_array((400, 400), density=0.02, rng=rng)
    matrix = sp.coo_array(sp.csr_array(half + half.T))
    if change == "weight":
        matrix.data[777] = np.nextafter(matrix.data[777], 2)
    elif change == "place":
        matrix.coords[1][777] = (matrix.coords[1][777] + 1) % 400
    else:
        matrix.data[[700, 777]] = matrix.data[[777, 700]]
    raw_group(tmp_path / "g.zarr", matrix, chunk=500)
    whole = sp.csr_array(matrix).toarray()
    with pytest.raises(DataError, match="'symmetrise'") as refused:
        open_graph(tmp_path / "g.zarr")
    words = str(refused.value).partition("the edge from ")[2].split()
    assert whole[int(words[0]), int(words[2])] != whole[int(words[2]), int(words[0])]


def test_a_store_in_memory_travels_by_value() -> None:
    matrix = sp.coo_array(np.array([[0, 1.0, 0], [1.0, 5.0, 2.0], [0, 2.0, 0]]))
    store = zarr.storage.MemoryStore()
    graph = open_graph(raw_group(store, matrix))
    expected = np.array([[0, 1.0, 0], [1.0, 0, 2.0], [0, 2.0, 0]])
    window = pickle.loads(pickle.dumps(graph.rows.window(1, 3)))
    rows = pickle.loads(pickle.dumps(graph.rows))
    store._store_dict.clear()
    np.testing.assert_array_equal(window.load(1, 3).toarray(), expected[1:])
    np.testing.assert_array_equal(rows.load(0, 3).toarray(), expected)


def test_some_samples_of_a_store_are_a_graph_in_memory(tmp_path: Path) -> None:
    matrix = sp.coo_array(np.array([[0, 1.0, 0], [1.0, 5.0, 2.0], [0, 2.0, 0]]))
    raw_group(tmp_path / "g.zarr", matrix)
    graph = open_graph(tmp_path / "g.zarr")[[2, 1]]
    assert graph.in_memory
    np.testing.assert_array_equal(dense(graph), [[0.0, 2.0], [2.0, 0.0]])


@pytest.mark.filterwarnings("ignore:Writing zarr v2 data:UserWarning")
def test_anndata_keeps_graphs_in_obsp(tmp_path: Path) -> None:
    graph = sp.csr_matrix(np.array([[0, 0.5, 0], [0.5, 0, 1], [0, 1, 0]]))
    data = anndata.AnnData(np.ones((3, 2), dtype="f4"), obsp={"connectivities": graph})
    data.write_zarr(tmp_path / "a.zarr")
    np.testing.assert_array_equal(dense(open_graph(tmp_path / "a.zarr")), graph.toarray())
    np.testing.assert_array_equal(dense(open_graph(tmp_path / "a.zarr/obsp/connectivities")), graph.toarray())
    np.testing.assert_array_equal(dense(open_graph(data.obsp["connectivities"])), graph.toarray())
    data.obsp["distances"] = graph
    data.write_zarr(tmp_path / "b.zarr")
    with pytest.raises(StoreError, match=r"2 sparse matrices; open one of .*b\.zarr/obsp/connectivities, .*distances"):
        open_graph(tmp_path / "b.zarr")


@pytest.mark.parametrize("sparse", [False, True])
def test_dask_arrays_are_read(sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    graph: Dense = (rng.random((9, 9)) < 0.3) * rng.integers(1, 4, (9, 9)).astype(float)
    array = da.from_array(graph, chunks=(4, 5))
    array = array.map_blocks(sp.csr_array, meta=sp.csr_array((0, 0))) if sparse else array
    np.testing.assert_array_equal(dense(open_graph(array, direction="symmetrise")), symmetrised(graph))
    np.testing.assert_array_equal(dense(open_graph(array, direction="common_neighbours")), co_graph(graph))
    with pytest.raises(DataError, match="'symmetrise'"):
        open_graph(array)
    monkeypatch.setattr(matrices, "READ_BYTES", 200)
    with pytest.raises(DataError, match=r"not read into memory.*ingest_graph\(\.\.\., 'edges.zarr'\)"):
        open_graph(array)


def test_a_large_store_whose_direction_must_go_is_ingested_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw_group(tmp_path / "g.zarr", sp.coo_array(np.triu(np.ones((9, 9)))))
    monkeypatch.setattr(matrices, "READ_BYTES", 200)
    with pytest.raises(DataError, match="direction='undirected'"):
        open_graph(tmp_path / "g.zarr", direction="undirected")


def test_refused(tmp_path: Path) -> None:
    raw_group(tmp_path / "wide.zarr", sp.coo_array((2, 3)))
    with pytest.raises(DataError, match=r"wide\.zarr has shape \(2, 3\)"):
        open_graph(tmp_path / "wide.zarr")
    raw_group(tmp_path / "g.zarr", sp.coo_array(np.array([[0, -1.0], [-1.0, 0]])))
    with pytest.raises(DataError, match=r"g\.zarr: the edge from 0 to 1 has weight -1\.0"):
        open_graph(tmp_path / "g.zarr")
    with pytest.raises(DataError, match="graph of 2 samples, but the data have 5"):
        open_graph(tmp_path / "g.zarr", samples=5)
    zarr.save(tmp_path / "dense.zarr", np.eye(3))
    with pytest.raises(StoreError, match="no csr_matrix"):
        open_graph(tmp_path / "dense.zarr")
    with pytest.raises(StoreError, match="does not exist"):
        open_graph(tmp_path / "nothing.zarr")
