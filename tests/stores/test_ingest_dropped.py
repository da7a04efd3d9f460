"""Rows that `ingest` drops or `reorder` moves: what names rows by number finds the right ones, or is refused."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr
from ingest_checks import matrix, names

from dlatent import (
    CorrespondencePPCA,
    RelationalPPCA,
    SupervisedPPCA,
    ingest,
    ingest_graph,
    open_data,
    open_graph,
    read_labels,
    reorder,
)
from dlatent.cli.main import main
from dlatent.errors import DataError
from dlatent.stores.labels import BEFORE

ROWS, DROPPED = 60, np.array([2, 3, 17, 40])
KEPT = np.delete(np.arange(ROWS), DROPPED)


@pytest.fixture
def rows():
    made = np.random.default_rng(0).normal(size=(ROWS, 6))
    made[DROPPED] = 0
    return made


@pytest.fixture
def store(rows, tmp_path):
    np.save(tmp_path / "rows.npy", rows)
    report = ingest(tmp_path / "rows.npy", tmp_path / "rows.zarr", unit_norm=True, zero_rows="drop", block_bytes=1)
    assert report.rows_dropped == len(DROPPED)
    return tmp_path / "rows.zarr"


@pytest.fixture
def graph():
    """Edges between kept rows, by their numbers in the file."""
    return KEPT[np.column_stack([np.arange(len(KEPT) - 1), np.arange(1, len(KEPT))])]


def dense(opened):
    return opened.rows.load(0, opened.samples).toarray()


CHAIN = sp.diags_array([np.ones(len(KEPT) - 1)] * 2, offsets=[-1, 1]).toarray()


def edge_list(kind, graph, folder):
    """The same edges in each kind of list."""
    path = folder / f"edges.{kind}"
    if kind == "npz":
        np.savez(path, edges=graph)
    elif kind == "npz-sized":
        path = folder / "sized.npz"
        np.savez(path, edges=graph, X_shape=np.array([ROWS, 6]))
    elif kind == "csv":
        pd.DataFrame(graph).to_csv(path, index=False, header=["from", "to"])
    elif kind == "parquet":
        pd.DataFrame(graph, columns=["from", "to"]).to_parquet(path)
    else:
        return graph
    return path


KINDS = ["npz", "npz-sized", "csv", "parquet", "array"]


@pytest.mark.parametrize("kind", KINDS)
def test_edges_by_number_find_the_rows_that_had_these_numbers(store, graph, tmp_path, kind):
    given = edge_list(kind, graph, tmp_path)
    ingest_graph(given, tmp_path / "edges.zarr", data=store, direction="undirected")
    np.testing.assert_array_equal(dense(open_graph(tmp_path / "edges.zarr")), CHAIN)
    source = open_data(store)
    opened = open_graph(
        given, samples=source.shape[0], ids=source.labels.samples, origin=source.labels.origin, direction="undirected"
    )
    np.testing.assert_array_equal(dense(opened), CHAIN)


@pytest.mark.parametrize("kind", KINDS)
def test_edges_to_dropped_rows_are_refused_like_unknown_ones(store, graph, tmp_path, kind):
    graph[7, 1] = DROPPED[1]
    given = edge_list(kind, graph, tmp_path)
    with pytest.raises(DataError, match=r"row [78] names '?3'?.*4 rows of zeros were dropped"):
        ingest_graph(given, tmp_path / "edges.zarr", data=store, direction="undirected")
    assert not (tmp_path / "edges.zarr").exists()


def test_edges_by_number_where_labels_are_too_many_to_be_read(store, graph, tmp_path, monkeypatch):
    monkeypatch.setattr("dlatent.stores.labels.MOST_LABELS", 3)
    assert open_data(store).labels.samples is None
    given = edge_list("csv", graph, tmp_path)
    ingest_graph(given, tmp_path / "edges.zarr", data=store, direction="undirected")
    np.testing.assert_array_equal(dense(open_graph(tmp_path / "edges.zarr")), CHAIN)


def test_edges_that_count_the_kept_rows_are_taken_as_they_are(store, tmp_path):
    upper = sp.triu(sp.csr_array(CHAIN)).tocoo()
    np.savez(tmp_path / "now.npz", edges=np.column_stack([upper.row, upper.col]), X_shape=np.array([len(KEPT), 6]))
    ingest_graph(tmp_path / "now.npz", tmp_path / "edges.zarr", data=store, direction="undirected")
    np.testing.assert_array_equal(dense(open_graph(tmp_path / "edges.zarr")), CHAIN)


def test_the_store_remembers_and_rows_keep_their_numbers(store, rows):
    assert names(store, "obs") == [str(row) for row in KEPT]
    origin = open_data(store).labels.origin
    assert origin.rows == ROWS
    np.testing.assert_array_equal(origin.load(), KEPT)
    np.testing.assert_allclose(matrix(store), rows[KEPT] / np.linalg.norm(rows[KEPT], axis=1)[:, None])


def test_names_of_rows_stay_and_so_do_numbers_in_npz_lists(graph, rows, tmp_path):
    ids = np.array([f"row{row}" for row in range(ROWS)])
    np.savez(tmp_path / "rows.npz", X=rows, ids=ids, edges=graph)
    ingest(tmp_path / "rows.npz", tmp_path / "rows.zarr", unit_norm=True, zero_rows="drop")
    assert names(tmp_path / "rows.zarr", "obs") == ids[KEPT].tolist()
    ingest_graph(tmp_path / "rows.npz", tmp_path / "edges.zarr", data=tmp_path / "rows.zarr", direction="undirected")
    np.testing.assert_array_equal(dense(open_graph(tmp_path / "edges.zarr")), CHAIN)


def test_stores_without_dropped_rows_have_no_origin(rows, tmp_path):
    np.save(tmp_path / "rows.npy", rows[KEPT])
    ingest(tmp_path / "rows.npy", tmp_path / "rows.zarr", unit_norm=True, zero_rows="drop")
    assert open_data(tmp_path / "rows.zarr").labels.origin is None
    assert BEFORE not in zarr.open_group(tmp_path / "rows.zarr", mode="r")["uns"]


def test_a_matrix_of_the_size_before_is_refused_with_the_reason(store, tmp_path):
    whole = sp.csr_array((ROWS, ROWS))
    sp.save_npz(tmp_path / "whole.npz", whole)
    why = "60 samples, but the data have 56.*rows of zeros were dropped.*position_before"
    with pytest.raises(DataError, match=why):
        RelationalPPCA(2, alpha=1.0).fit(store, graph=whole)
    with pytest.raises(DataError, match=why):
        ingest_graph(tmp_path / "whole.npz", tmp_path / "edges.zarr", data=store)
    with pytest.raises(DataError, match="100 samples, but the data have 56") as caught:
        RelationalPPCA(2, alpha=1.0).fit(store, graph=sp.csr_array((100, 100)))
    assert "dropped" not in str(caught.value)


def test_targets_of_the_size_before_are_refused_with_the_reason(store):
    with pytest.raises(DataError, match="y has 60 rows; the data have 56, because rows of zeros were dropped"):
        SupervisedPPCA(1).fit(store, np.arange(ROWS) % 2)


def test_a_file_of_labels_for_all_rows_loses_those_of_dropped_rows(store, rows, tmp_path):
    labels = np.where(np.arange(ROWS) % 3 == 0, "a", "b")
    labels[DROPPED] = "z"
    (tmp_path / "labels.txt").write_text("\n".join(labels))
    command = ["fit", "supervised", str(store), "-k", "1", "--labels", str(tmp_path / "labels.txt")]
    assert main([*command, "-o", str(tmp_path / "model.zarr"), "--quiet"]) == 0
    import dlatent

    expected = SupervisedPPCA(1).fit(store, labels[KEPT])
    found = dlatent.load(tmp_path / "model.zarr")
    assert list(found.classes_) == ["a", "b"]
    assert found.log_likelihood_ == pytest.approx(expected.log_likelihood_)


def test_correspondences_by_number_are_refused_for_views_that_lost_rows(store, rows, tmp_path):
    np.save(tmp_path / "other.npy", np.random.default_rng(1).normal(size=(ROWS, 5)))
    ingest(tmp_path / "other.npy", tmp_path / "other.zarr")
    views = {"a": store, "b": tmp_path / "other.zarr"}
    pairs = np.column_stack([np.arange(50), np.arange(50)])
    with pytest.raises(DataError, match="rows of view 'a' were dropped when its store was ingested"):
        CorrespondencePPCA(1).fit(views, correspondence=pairs)
    model = CorrespondencePPCA(1).fit(views, on="index")
    by_hand = CorrespondencePPCA(1).fit(
        {"a": matrix(store), "b": matrix(tmp_path / "other.zarr")},
        correspondence=np.column_stack([np.arange(len(KEPT)), KEPT]),
    )
    assert model.log_likelihood_ == pytest.approx(by_hand.log_likelihood_)


def scattered():
    """A chain through the samples in no order."""
    order = np.random.default_rng(3).permutation(len(KEPT))
    pairs = np.column_stack([order[:-1], order[1:]])
    graph = sp.coo_array((np.ones(len(pairs)), pairs.T), (len(KEPT), len(KEPT))).tocsr()
    return KEPT[pairs], sp.csr_array(graph + graph.T)


@pytest.mark.parametrize("times", [1, 2])
def test_reordered_stores_still_know_the_numbers_in_the_file(store, tmp_path, times):
    listed, graph = scattered()
    data, order = store, KEPT
    for turn in range(times):
        out, out_graph = tmp_path / f"data{turn}.zarr", tmp_path / f"edges{turn}.zarr"
        reorder(data, graph, out, out_graph)
        graph, data = sp.csr_array(dense(open_graph(out_graph))), out
        order = order[zarr.open_group(out, mode="r")["uns"]["original_position"][:]]
    origin = open_data(data).labels.origin
    assert origin.rows == ROWS
    np.testing.assert_array_equal(origin.load(), order)
    np.savez(tmp_path / "listed.npz", edges=listed)
    pd.DataFrame(listed, columns=["from", "to"]).to_csv(tmp_path / "listed.csv", index=False)
    for name in ("listed.npz", "listed.csv"):
        ingest_graph(tmp_path / name, tmp_path / "again.zarr", data=data, direction="undirected", overwrite=True)
        np.testing.assert_array_equal(dense(open_graph(tmp_path / "again.zarr")), graph.toarray())


def test_files_of_labels_are_refused_for_reordered_rows(rows, tmp_path, capsys):
    np.save(tmp_path / "rows.npy", rows)
    ingest(tmp_path / "rows.npy", tmp_path / "rows.zarr")
    ring = sp.csr_array(np.eye(ROWS, k=1) + np.eye(ROWS, k=-1))
    reorder(tmp_path / "rows.zarr", ring, tmp_path / "moved.zarr", tmp_path / "edges.zarr")
    np.save(tmp_path / "labels.npy", np.arange(ROWS) % 2)
    command = ["fit", "supervised", str(tmp_path / "moved.zarr"), "-k", "1"]
    status = main([*command, "--labels", str(tmp_path / "labels.npy"), "-o", str(tmp_path / "m.zarr"), "--quiet"])
    assert status != 0
    assert "were moved by reorder" in capsys.readouterr().err
    assert len(read_labels(tmp_path / "labels.npy")) == ROWS
