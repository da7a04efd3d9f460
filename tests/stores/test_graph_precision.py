"""Precisions between samples: opened from every kind of matrix, ingested, and refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from dlatent import ingest_graph, open_graph, open_precision, reorder, verify
from dlatent.arrays import Graph
from dlatent.errors import DataError
from tests.law_examples import examples
from tests.sparse_stores import write_csr

CHAIN = sp.csr_array(sp.diags_array([-0.5, 1.25, -0.5], offsets=[-1, 0, 1], shape=(9, 9)))


def loaded(found: Graph) -> Any:
    """Δ, after what every opened precision promises."""
    rows = found.rows.load(0, found.samples)
    assert found.precision
    assert rows.dtype == np.float64
    assert rows.has_canonical_format
    assert rows.nnz == found.entries
    np.testing.assert_array_equal(found.rows.load(3, 5).toarray(), rows.toarray()[3:5])
    return rows.toarray()


def written(place: Path, matrix: Any) -> str:
    """As another program writes it, without a mark."""
    write_csr(zarr.create_group(place), [sp.csr_array(matrix)[start : start + 4] for start in range(0, 9, 4)])
    return str(place)


def test_a_precision_is_opened_from_every_kind_of_matrix(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "delta.npz", CHAIN)
    chunked = da.from_array(CHAIN.toarray(), chunks=(4, 5))
    kinds = [CHAIN.asformat(form) for form in ("csr", "csc", "coo", "dia", "lil")]
    kinds += [CHAIN.astype(np.float32), chunked, chunked.map_blocks(sp.csr_array), tmp_path / "delta.npz"]
    kinds += [written(tmp_path / "a.zarr", CHAIN), zarr.open_group(tmp_path / "a.zarr"), open_precision(CHAIN)]
    for kind in kinds:
        np.testing.assert_array_equal(loaded(open_precision(kind, samples=9)), CHAIN.toarray())


def test_an_ingested_precision_opens_unchecked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, source in enumerate((CHAIN, written(tmp_path / "a.zarr", CHAIN), open_precision(CHAIN))):
        place = tmp_path / f"{number}.zarr"
        report = ingest_graph(source, place, precision=True)
        assert (report.edges, report.samples, report.isolated, report.largest_degree) == (8, 9, 0, 2)
        with monkeypatch.context() as patch:
            patch.setattr("dlatent.stores.graph.matrices.check_symmetric", None)
            np.testing.assert_array_equal(loaded(open_precision(place)), CHAIN.toarray())
        assert verify(place).intact


@settings(max_examples=examples(60))
@given(st.integers(1, 200), st.integers(0, 8), st.integers(0, 8), st.booleans())
def test_symmetry_is_checked_by_blocks(block_bytes: int, row: int, column: int, stored: bool) -> None:
    """One entry is changed: a store that is read in blocks says the same as a matrix in memory."""
    changed = CHAIN.toarray()
    changed[row, column] += 0.125
    low, high = sorted((row, column))
    words = rf"entry of Δ at \({low}, {high}\) is .* at \({high}, {low}\)"
    given_matrix: Any = sp.csr_array(changed)
    with pytest.MonkeyPatch.context() as patch:
        if stored:
            patch.setattr("dlatent.stores.graph.matrices.BLOCK_BYTES", block_bytes)
            given_matrix = zarr.create_group(zarr.storage.MemoryStore())
            write_csr(given_matrix, [sp.csr_array(changed)])
        if row == column:
            np.testing.assert_array_equal(loaded(open_precision(given_matrix)), changed)
        else:
            with pytest.raises(DataError, match=words + r".*\(Δ \+ Δ\.T\) / 2"):
                open_precision(given_matrix)


def bad(*entries: tuple[int, int, float]) -> sp.csr_array:
    """The chain with other entries on both sides."""
    made = CHAIN.toarray()
    for row, column, value in entries:
        made[row, column] = made[column, row] = value
    return sp.csr_array(made)


REFUSED = [
    (bad((3, 4, np.nan)), r"entry of Δ at \(3, 4\) is nan"),
    (bad((3, 4, np.inf)), r"entry of Δ at \(3, 4\) is inf"),
    (bad((3, 3, -1.0)), r"entry of Δ at \(3, 3\), on its diagonal, is -1\.0"),
    (bad((3, 3, 0.0)), r"entry of Δ at \(3, 3\), on its diagonal, is 0\.0.*given as graph="),
    (sp.csr_array(sp.csgraph.laplacian(abs(CHAIN) - sp.diags_array(CHAIN.diagonal()))), r"1ᵀΔ1.*tells no mean"),
    (sp.csr_array(np.eye(9) * 2 - 1.0), r"1ᵀΔ1, are -63, so that it is not positive"),
    (sp.csr_array((9, 9)), "tells no mean"),
    (CHAIN[:4], r"shape \(4, 9\)"),
    (CHAIN[:4][:, :4], "4 samples, but the data have 9"),
]


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(("matrix", "words"), REFUSED)
def test_what_is_no_precision_is_refused(matrix: Any, words: str, stored: bool, tmp_path: Path) -> None:
    matrix = written(tmp_path / "a.zarr", matrix) if stored else matrix
    with pytest.raises(DataError, match=words):
        open_precision(matrix, samples=9)
    with pytest.raises(DataError, match=words):
        ingest_graph(matrix, tmp_path / "out.zarr", samples=9, precision=True)
    assert not (tmp_path / "out.zarr").exists()


def test_what_is_no_matrix_is_refused(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n")
    for given_list in ([[0, 1], [1, 2]], CHAIN.toarray(), tmp_path / "edges.csv"):
        with pytest.raises(DataError, match="cannot be read as a precision, which is a matrix"):
            open_precision(given_list)
        with pytest.raises(DataError, match="cannot be read as a precision, which is a matrix"):
            ingest_graph(given_list, tmp_path / "out.zarr", precision=True)
    with pytest.raises(DataError, match="belongs to edges; a precision is symmetric already"):
        ingest_graph(CHAIN, tmp_path / "out.zarr", precision=True, direction="symmetrise")


def test_a_graph_is_no_precision_and_a_precision_no_graph(tmp_path: Path) -> None:
    graph = sp.csr_array(abs(CHAIN) - sp.diags_array(CHAIN.diagonal()))
    ingest_graph(graph, tmp_path / "graph.zarr")
    ingest_graph(CHAIN, tmp_path / "delta.zarr", precision=True)
    for place in (tmp_path / "graph.zarr", open_graph(graph)):
        with pytest.raises(DataError, match="a graph, not a precision; give it as graph="):
            open_precision(place)
    for place in (tmp_path / "delta.zarr", open_precision(CHAIN)):
        with pytest.raises(DataError, match="a precision, not a graph; give it as precision="):
            open_graph(place)
    with pytest.raises(DataError, match=r"has weight -0\.5.*a precision matrix is given as precision="):
        open_graph(CHAIN)
    with pytest.raises(DataError, match="a precision, not a graph"):
        reorder(np.ones((9, 2)), tmp_path / "delta.zarr", tmp_path / "x.zarr", tmp_path / "near.zarr")


def test_some_of_the_samples_are_cut_as_a_whole() -> None:
    np.testing.assert_array_equal(loaded(open_precision(CHAIN)[2:8]), CHAIN.toarray()[2:8, 2:8])
