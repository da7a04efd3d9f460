"""Whether containers of users are seen through: masks are honoured or refused, and sparse matrices must be whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import xarray as xr

from dlatent import (
    PPCA,
    CorrespondencePPCA,
    GraphPPCA,
    KernelPPCA,
    PPCAMixture,
    SupervisedPPCA,
    ingest_graph,
    open_graph,
    open_precision,
)
from dlatent.errors import DataError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)) @ RNG.normal(size=(3, 8)) + 0.3 * RNG.normal(size=(60, 8))
HIDDEN = RNG.random(X.shape) < 0.1
HIDDEN[:3], HIDDEN[3] = False, np.arange(8) == 2
MASKED, HOLES = np.ma.masked_array(X, HIDDEN), np.where(HIDDEN, np.nan, X)
COUNTS = np.where(abs(X) > 0.5, X, 0.0)
RING = sp.csr_array(np.roll(np.eye(60), 1, axis=0) + np.roll(np.eye(60), -1, axis=0))
FAR = 10**7
WHOLE, WITH_HOLES = PPCA(2).fit(X), PPCA(2, missing="nan").fit(HOLES)


def damaged(layout: str, matrix: Any = COUNTS) -> Any:
    """A matrix whose parts do not fit: so many ways in which SciPy lets them be set."""
    name, _, how = layout.partition(" ")
    made: Any = sp.csr_array(matrix, copy=True).asformat(name)
    if how == "far":
        made.indices = made.indices + FAR
    elif how == "beside":
        made = sp.csr_array((made.data, made.indices + 1, made.indptr), shape=made.shape)
    elif how == "negative":
        made.indices = made.indices - FAR
    elif how == "pointer":
        made.indptr[5] = FAR
    elif how == "first":
        made.indptr[0] = -FAR
    elif how == "last":
        made.indptr[-1] = FAR
    elif how == "pointers":
        made.indptr = made.indptr[:5]
    elif how == "values":
        made.data = made.data[:5]
    elif how == "columns":
        made.coords = (made.coords[0], made.coords[1] + FAR)
    elif how == "lengths":
        made.coords = (made.coords[0], made.coords[1][:3])
    elif how == "offsets":
        made.offsets = made.offsets[:1]
    elif how == "row":
        made.rows[7][0] = FAR
    elif how == "lists":
        made.rows[7].append(3)
    elif how == "key":
        made._dict[FAR, 3] = 1.0
    return made


def chunked(layout: str, matrix: Any = COUNTS) -> Any:
    """The damaged matrix as the chunk of a Dask array, which is only seen when it is computed."""
    empty = sp.csr_array((0, 0))
    return da.from_delayed(dask.delayed(damaged)(layout, matrix), matrix.shape, float, meta=empty)


PARTS = {
    "csr beside": "row 0 has column index 8, outside 0 to 7",
    "csr far": "row 0 has column index 10000000, outside 0 to 7",
    "csr negative": "row 0 has column index -10000000",
    "csr pointer": "indptr falls at row 5, from 10000000 to",
    "csr first": "indptr goes from -10000000",
    "csr last": "to 10000000, and there are",
    "csr pointers": "indptr has 5 elements for 60 rows",
    "csr values": "indices and 5 values",
    "csc far": "column 0 has row index 10000000, outside 0 to 59",
    "bsr far": "block row 0 has block column index 10000000",
    "coo columns": "entry 0 is in column 10000000, outside 0 to 7",
    "coo lengths": "there are 3 column numbers",
    "dia offsets": "there are 1 offsets",
    "lil row": "row 7 has column index 10000000",
    "lil lists": "row 7 has",
    "dok key": "is in row 10000000, outside 0 to 59",
}


@pytest.mark.parametrize("layout", PARTS)
def test_a_sparse_matrix_whose_parts_do_not_fit_is_refused_with_its_place(layout: str) -> None:
    with pytest.raises(DataError, match=f"the data, a scipy.sparse .*{PARTS[layout]}.*make it again"):
        PPCA(2).fit(damaged(layout))


DOORS: dict[str, Callable[[str, Path], Any]] = {
    "transform": lambda layout, _: WHOLE.transform(damaged(layout)),
    "score": lambda layout, _: WHOLE.score(damaged(layout)),
    "kernel": lambda layout, _: KernelPPCA(2).fit(damaged(layout)),
    "mixture": lambda layout, _: PPCAMixture(2).fit(damaged(layout)),
    "view": lambda layout, _: CorrespondencePPCA(2).fit(
        {"a": X, "b": damaged(layout)}, correspondence=np.repeat(np.arange(60)[:, None], 2, axis=1)
    ),
    "chunk": lambda layout, _: PPCA(2).fit(chunked(layout)),
    "chunks": lambda layout, _: PPCA(2).fit(da.concatenate([chunked(layout)] * 2, axis=1)),
    "mapped chunk": lambda layout, _: WHOLE.transform(chunked(layout)).compute(),
    "mapped chunks": lambda layout, _: (
        PPCA(2).fit(np.hstack([X, X])).transform(da.concatenate([chunked(layout)] * 2, axis=1)).compute()
    ),
    "targets": lambda layout, _: SupervisedPPCA(2, target_type="regression").fit(X, damaged(layout)),
    "chunk of targets": lambda layout, _: SupervisedPPCA(2, target_type="regression").fit(X, chunked(layout)),
    "graph": lambda layout, _: GraphPPCA(2).fit(X, graph=damaged(layout, RING)),
    "chunk of a graph": lambda layout, _: open_graph(chunked(layout, RING)),
    "precision": lambda layout, _: open_precision(damaged(layout, RING)),
    "graph to a store": lambda layout, path: ingest_graph(damaged(layout, RING), path / "g.zarr"),
}


@pytest.mark.parametrize("layout", ["csr far", "coo columns"])
@pytest.mark.parametrize("door", DOORS)
def test_every_door_refuses_such_a_matrix(door: str, layout: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"row|column"):
        DOORS[door](layout, tmp_path)


@pytest.mark.parametrize("layout", ["csr far", "csr pointer"])
def test_a_damaged_matrix_of_an_anndata_is_refused(layout: str, tmp_path: Path) -> None:
    anndata, h5py = pytest.importorskip("anndata"), pytest.importorskip("h5py")
    from dlatent import annotate

    with pytest.raises(DataError, match="the matrix of the AnnData"):
        PPCA(2).fit(anndata.AnnData(damaged(layout)))
    with pytest.raises(DataError, match="the matrix of the AnnData"):
        annotate(anndata.AnnData(damaged(layout)), PPCA(2), mask_var=np.arange(8) < 5)
    with pytest.raises(DataError, match=r"the matrix of the AnnData: (row 0|indptr falls at row 5)"):
        PPCA(2).fit(anndata.AnnData(damaged(layout))[:, :6])
    path = tmp_path / "a.h5ad"
    anndata.AnnData(sp.csr_array(COUNTS)).write_h5ad(path)
    wrong = damaged(layout)
    with h5py.File(path, "r+") as file:
        file["X/indices"][...], file["X/indptr"][...] = wrong.indices, wrong.indptr
    backed = anndata.read_h5ad(path, backed="r")
    for data in (path, backed):
        with pytest.raises(DataError, match=r"row 0 has column|falls at row 5"):
            PPCA(2).fit(data)
    with pytest.raises(DataError, match="the matrix of the AnnData"):
        annotate(backed, PPCA(2), mask_var=np.arange(8) < 5)


def lazily(values: Any, *chunks: int) -> Any:
    """A Dask array whose chunks have their part of the mask."""
    return da.from_array(values, chunks=chunks, asarray=False)


CONTAINERS = {
    "array": MASKED,
    "list of rows": list(MASKED),
    "some rows": [row if hidden.any() else row.data.tolist() for row, hidden in zip(MASKED, HIDDEN, strict=True)],
    "chunks": lazily(MASKED, 20, 8),
    "chunks of columns": lazily(MASKED, 20, 4),
    "dask.array.ma": da.ma.masked_array(da.from_array(X, chunks=(20, 4)), HIDDEN),
    "some chunks": da.concatenate([da.from_array(X[:3]), lazily(MASKED[3:], 20, 8)]),
    "xarray": xr.DataArray(MASKED, dims=("sample", "feature")),
    "xarray of chunks": xr.DataArray(lazily(MASKED, 20, 4), dims=("sample", "feature")),
    "frame": pd.DataFrame(X).astype("Float64").mask(HIDDEN).to_numpy(),
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_masked_entries_are_missing_in_every_container(kind: str) -> None:
    data, model = CONTAINERS[kind], WITH_HOLES
    found = PPCA(2, missing="nan").fit(data)
    assert found.log_likelihood_ == pytest.approx(model.log_likelihood_, rel=1e-12)
    assert np.array_equal(np.asarray(model.transform(data)), model.transform(HOLES))
    assert np.array_equal(np.asarray(model.impute(data)), model.impute(HOLES))
    with pytest.raises(DataError, match=r"row \d+, column \d .*is nan"):
        PPCA(2).fit(data)
    with pytest.raises(DataError, match=r"row \d+, column \d is nan"):
        np.asarray(WHOLE.transform(data))


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float32, object])
def test_masked_numbers_of_any_kind_are_those_that_nan_marks(dtype: Any) -> None:
    values = (10 * X).astype(dtype)
    holes = np.where(HIDDEN, np.nan, values.astype(float if dtype != np.float32 else dtype))
    masked = np.ma.masked_array(values, HIDDEN)
    wanted = PPCA(2, missing="nan").fit(holes).log_likelihood_
    assert PPCA(2, missing="nan").fit(masked).log_likelihood_ == wanted
    if dtype is not object:
        assert PPCA(2, missing="nan").fit(lazily(masked, 60, 8)).log_likelihood_ == pytest.approx(wanted, rel=1e-12)


def test_cells_that_are_masked_in_all_samples_are_no_features() -> None:
    masked = np.ma.masked_array(X.reshape(60, 2, 4), np.broadcast_to(np.arange(8).reshape(2, 4) == 5, (60, 2, 4)))
    data = xr.DataArray(lazily(masked, 20, 2, 4), dims=("time", "y", "x"))
    found = PPCA(2).fit(data, dim="time")
    assert found.n_features_in_ == 7
    assert found.log_likelihood_ == pytest.approx(PPCA(2).fit(np.delete(X, 5, axis=1)).log_likelihood_, rel=1e-9)


CODES = RNG.integers(0, 3, 60)
ABSENT = np.arange(60) % 4 == 1
SQUARE = np.broadcast_to(ABSENT, (60, 60))
LABELS = np.ma.masked_array(CODES, ABSENT)
TEXTS = np.ma.masked_array(np.array(["a", "b", "c"])[CODES], ABSENT)


@pytest.mark.parametrize(
    "targets",
    [
        *(LABELS, TEXTS, TEXTS.astype(object), list(LABELS), list(TEXTS), lazily(LABELS, 20), lazily(TEXTS, 20)),
        *(xr.DataArray(lazily(LABELS, 20)), pd.Series(CODES).astype("Int64").mask(ABSENT)),
    ],
    ids=list(map(str, range(9))),
)
def test_masked_labels_are_none(targets: Any) -> None:
    expected = [None if absent else code for code, absent in zip(CODES.tolist(), ABSENT, strict=True)]
    wanted = SupervisedPPCA(3).fit(X, expected)
    found = SupervisedPPCA(3).fit(X, targets)
    assert len(found.classes_) == 3
    assert found.log_likelihood_ == pytest.approx(wanted.log_likelihood_, rel=1e-12)
    assert found.score(X, targets) == pytest.approx(wanted.score(X, expected), rel=1e-12)


@pytest.mark.parametrize(
    "wrap", [lambda y: y, list, lambda y: lazily(y, 20, 1), lambda y: xr.DataArray(lazily(y, 20, 2))]
)
def test_masked_numbers_are_no_targets(wrap: Callable[[Any], Any]) -> None:
    given = np.ma.masked_array(X[:, :2], np.repeat(ABSENT[:, None], 2, axis=1))
    wanted = SupervisedPPCA(3).fit(X, np.where(ABSENT[:, None], np.nan, X[:, :2]))
    assert SupervisedPPCA(3).fit(X, wrap(given)).log_likelihood_ == pytest.approx(wanted.log_likelihood_, rel=1e-12)


def test_a_masked_pair_lacks_the_view() -> None:
    rows = np.arange(60)
    pairs = np.ma.masked_array(np.column_stack([rows, rows]), np.column_stack([rows < 0, rows >= 40]))
    views = {"a": X, "b": X[:40, :5]}
    found = CorrespondencePPCA(2).fit(views, correspondence=pairs)
    wanted = CorrespondencePPCA(2).fit(views, correspondence=pairs.data[:40])
    assert found.log_likelihood_ == wanted.log_likelihood_


WEIGHTS = np.ma.masked_array(np.ones(60), ABSENT)
EDGES = np.ma.masked_array([[0, 1], [1, 2], [2, 0]], [[0, 0], [0, 1], [0, 0]])
REFUSED: dict[str, tuple[str, Callable[[], Any]]] = {
    "weights": (r"sample_weight\[1\] is masked", lambda: PPCA(2).fit(X, sample_weight=WEIGHTS)),
    "list of weights": (r"sample_weight\[1\]", lambda: PPCA(2).fit(X, sample_weight=list(WEIGHTS))),
    "chunks of weights": (r"sample_weight\[1\]", lambda: PPCA(2).fit(X, sample_weight=lazily(WEIGHTS, 20))),
    "weights of xarray": ("sample_weight of row 1", lambda: PPCA(2).fit(X, sample_weight=xr.DataArray(WEIGHTS))),
    "weights of a score": (r"sample_weight\[1\]", lambda: WHOLE.score(X, sample_weight=WEIGHTS)),
    "ragged weights": ("sample_weight is no array", lambda: PPCA(2).fit(X, sample_weight=[[1], [1, 2]])),
    "labelled": (
        r"labelled\[1\]",
        lambda: SupervisedPPCA(2).fit(X, CODES, labelled=np.ma.masked_array(ABSENT, ABSENT)),
    ),
    "scores": (r"Z\[0, 1\]", lambda: WHOLE.inverse_transform(np.ma.masked_array([[1.0, 2.0]], [[0, 1]]))),
    "edges": (r"array of edges\[1, 1\]", lambda: open_graph(EDGES, samples=3, direction="undirected")),
    "list of edges": (r"array of edges\[1, 1\]", lambda: open_graph(list(EDGES), samples=3, direction="undirected")),
    "weights of edges": (r"weights\[1\]", lambda: open_graph(EDGES.data, samples=3, weights=WEIGHTS[:3])),
    "names": (r"ids\[1\]", lambda: open_graph(EDGES.data, samples=3, ids=LABELS[:3])),
    "kernel": ("row 0, column 1", lambda: KernelPPCA(2, kernel="precomputed").fit(np.ma.masked_array(X @ X.T, SQUARE))),
    "function": ("is masked", lambda: KernelPPCA(2, kernel=lambda x, y: np.ma.masked_less(x @ y.T, 0)).fit(X)),
    "graph": (
        "from 0 to 1 has weight nan",
        lambda: open_graph(lazily(np.ma.masked_array(RING.toarray(), SQUARE), 30, 30)),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_missing_entries_refuses_a_mask_with_its_place(what: str) -> None:
    match, call = REFUSED[what]
    with pytest.raises(DataError, match=match):
        call()
