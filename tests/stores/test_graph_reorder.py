"""A new order of the samples: the same rows, labels, targets and edges, and samples in a graph near each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr
from graph_cases import dense

import dlatent.stores.graph.reorder
from dlatent import ingest, open_data, open_graph, read_labels, reorder
from dlatent.errors import DataError, StoreError

SIZE = 90


def shuffled_path() -> tuple[np.ndarray[Any, Any], sp.csr_array]:
    """A path through all samples in random order, which the right order makes a band of width one."""
    walk = np.random.default_rng(5).permutation(SIZE)
    ends = (walk[:-1], walk[1:])
    half = sp.coo_array((np.arange(1.0, SIZE), ends), (SIZE, SIZE))
    return walk, sp.csr_array(half + half.T)


def rows_of(path: Path) -> np.ndarray[Any, Any]:
    blocks = [block.load() for block in open_data(path, block_bytes=200).blocks]
    return np.vstack([block.toarray() if sp.issparse(block) else block for block in blocks])


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlatent.stores.graph.reorder, "BLOCK_BYTES", 700)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", ["float32", "uint8", "sparse"])
def test_an_ingested_store_keeps_its_rows_together(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(3)
    features = rng.integers(0, 4, (SIZE, 6)).astype("f4" if kind == "sparse" else kind)
    given = {"X": features}
    if kind == "sparse":
        parts = sp.csr_array(features)
        given = {f"X_{name}": getattr(parts, name) for name in ("data", "indices", "indptr", "shape")}
    names = np.array([f"paper{i}" for i in range(SIZE)])
    np.savez(tmp_path / "data.npz", y=np.arange(SIZE) % 7, ids=names, class_names=list("abcdefg"), **given)
    ingest(tmp_path / "data.npz", tmp_path / "data.zarr")
    _, graph = shuffled_path()
    report = reorder(tmp_path / "data.zarr", graph, tmp_path / "new.zarr", tmp_path / "edges.zarr")

    order = np.asarray(zarr.open_group(tmp_path / "new.zarr", mode="r")["uns/original_position"][:])
    assert sorted(order) == list(range(SIZE))
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "edges.zarr")["original_position"][:], order)
    np.testing.assert_array_equal(rows_of(tmp_path / "new.zarr"), features[order])
    np.testing.assert_array_equal(open_data(tmp_path / "new.zarr").labels.samples, names[order])
    np.testing.assert_array_equal(read_labels(tmp_path / "new.zarr"), read_labels(tmp_path / "data.zarr")[order])
    np.testing.assert_array_equal(dense(open_graph(tmp_path / "edges.zarr")), graph.toarray()[order][:, order])
    assert report.largest_distance[1] == 1 < report.largest_distance[0]
    assert report.median_distance[1] == 1 < report.median_distance[0]
    if kind == "uint8":
        assert zarr.open_group(tmp_path / "new.zarr", mode="r")["X"].dtype == np.uint8


@pytest.mark.filterwarnings("ignore:Writing zarr v2 data:UserWarning")
@pytest.mark.usefixtures("small_blocks")
def test_all_of_an_annotated_store_comes_along(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    _, graph = shuffled_path()
    frame = pd.DataFrame(
        {
            "kind": pd.Categorical(np.array(["oak", "fir", "yew"])[np.arange(SIZE) % 3]),
            "each": pd.Categorical([f"own{i:02d}" for i in range(SIZE)]),
            "height": rng.random(SIZE),
            "seen": pd.array([None if i % 5 == 0 else i for i in range(SIZE)], dtype="Int64"),
        },
        index=[f"tree{i}" for i in range(SIZE)],
    )
    old = anndata.AnnData(
        rng.random((SIZE, 4)).astype("f4"),
        obs=frame,
        var=pd.DataFrame({"unit": ["m", "m", "kg", "s"]}, index=list("abcd")),
        obsm={"Y": rng.integers(0, 2, (SIZE, 3)), "S": sp.random_array((SIZE, 5), density=0.3, rng=rng, format="csr")},
        layers={"raw": sp.csr_matrix(np.arange(SIZE * 4.0).reshape(SIZE, 4))},
        uns={"note": "kept", "numbers": np.arange(SIZE)},
        obsp={"near": sp.csr_matrix(graph)},
    )
    old.write_zarr(tmp_path / "old.zarr")
    report = reorder(tmp_path / "old.zarr", tmp_path / "old.zarr/obsp/near", tmp_path / "new.zarr", tmp_path / "l.zarr")
    new = anndata.read_zarr(tmp_path / "new.zarr")
    order = new.uns.pop("original_position")
    expected = old[order].copy()
    pd.testing.assert_frame_equal(new.obs, expected.obs, check_categorical=True)
    pd.testing.assert_frame_equal(new.var, expected.var)
    np.testing.assert_array_equal(new.X, expected.X)
    np.testing.assert_array_equal(new.obsm["Y"], expected.obsm["Y"])
    assert new.obsm["Y"].dtype == expected.obsm["Y"].dtype
    np.testing.assert_array_equal(new.obsm["S"].toarray(), expected.obsm["S"].toarray())
    np.testing.assert_array_equal(new.layers["raw"].toarray(), expected.layers["raw"].toarray())
    assert new.uns["note"] == "kept"
    np.testing.assert_array_equal(new.uns["numbers"], np.arange(SIZE))
    assert report.notes == ("obsp (near) was left out; the graph is in the store of edges",)


def test_rows_without_labels_are_named_by_their_old_position(tmp_path: Path) -> None:
    features = np.random.default_rng(0).random((SIZE, 3))
    zarr.save(tmp_path / "x.zarr", features)
    walk, graph = shuffled_path()
    edges = np.column_stack([walk[:-1], walk[1:]])
    for data in (tmp_path / "x.zarr", features):
        reorder(data, edges, tmp_path / "new.zarr", tmp_path / "edges.zarr", direction="undirected", overwrite=True)
        names = open_data(tmp_path / "new.zarr").labels.samples
        assert names is not None
        np.testing.assert_array_equal(rows_of(tmp_path / "new.zarr"), features[names.astype(int)])
        again = open_graph(edges, ids=names, direction="undirected")  # the old positions still name the samples
        np.testing.assert_array_equal(dense(again), dense(open_graph(tmp_path / "edges.zarr")))
        assert dense(again).astype(bool).sum() == graph.nnz


def test_refused(tmp_path: Path) -> None:
    features, (_, graph) = np.ones((SIZE, 2)), shuffled_path()
    with pytest.raises(DataError, match="give two places"):
        reorder(features, graph, tmp_path / "a.zarr", tmp_path / "a.zarr")
    with pytest.raises(DataError, match="method is 'metis'; expected 'rcm'"):
        reorder(features, graph, tmp_path / "a.zarr", tmp_path / "b.zarr", method="metis")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="graph of 90 samples, but the data have 80"):
        reorder(features[:80], graph, tmp_path / "a.zarr", tmp_path / "b.zarr")
    zarr.save(tmp_path / "b.zarr", features)
    with pytest.raises(StoreError, match="already exists"):
        reorder(features, graph, tmp_path / "a.zarr", tmp_path / "b.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["b.zarr"]
