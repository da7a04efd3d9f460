"""The door: every accepted input gives the same matrix, and everything else one clear error."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import xarray as xr
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlatent import open_data, open_graph
from dlatent.arrays import BlockSource, DataSource
from dlatent.errors import DataError, StoreError
from dlatent.stores import lazy
from dlatent.stores.atomic import new_store
from tests.law_examples import examples
from tests.sparse_stores import write_csr

ROWS, COLUMNS = 60, 17
MATRIX = sp.random_array((ROWS, COLUMNS), density=0.2, format="csr", rng=np.random.default_rng(7))
DENSE = MATRIX.toarray()


def gathered(source: DataSource, *, travelled: bool = True) -> np.ndarray[Any, Any]:
    """The whole matrix, after checking what holds of every source."""
    bounds = [0]
    parts = []
    for block in source.blocks:
        assert isinstance(block, BlockSource)
        rows = (pickle.loads(pickle.dumps(block)) if travelled else block).load()
        assert block.start == bounds[-1]
        assert rows.shape == (block.stop - block.start, source.shape[1])
        assert rows.dtype == source.dtype
        assert sp.issparse(rows) == source.sparse
        if sp.issparse(rows):
            assert rows.has_canonical_format
        else:
            assert rows.nbytes == block.nbytes
        bounds.append(block.stop)
        parts.append(rows.toarray() if sp.issparse(rows) else rows)
    assert bounds[-1] == source.shape[0]
    return np.concatenate(parts)


def zarr_array(path: Path, **options: Any) -> Path:
    array = zarr.create_array(path, shape=DENSE.shape, dtype=DENSE.dtype, **({"chunks": (7, 5)} | options))
    array[...] = DENSE
    return path


def csr_store(path: str | Path) -> str:
    with new_store(path) as group:
        write_csr(group, [MATRIX[:13], MATRIX[13:14], MATRIX[14:]], columns=COLUMNS)
    return str(path)


def xarray_store(path: Path, version: int) -> Path:
    xr.Dataset({"x": (("document", "word"), DENSE)}).to_zarr(path, zarr_format=version, consolidated=False)  # type: ignore[call-overload]
    return path


def scipy_chunks() -> Any:
    return da.from_array(DENSE, chunks=(11, 6)).map_blocks(sp.csr_matrix)


INPUTS: dict[str, Callable[[Path], Any]] = {
    "numpy": lambda _: DENSE,
    "numpy, Fortran order": lambda _: np.asfortranarray(DENSE),
    "numpy, big-endian": lambda _: DENSE.astype(">f8"),
    "numpy view": lambda _: np.repeat(DENSE, 2, axis=1)[:, ::2],
    "dask": lambda _: da.from_array(DENSE, chunks=((9, 0, 41, 10), (3, 14))),
    "dask with sparse chunks": lambda _: scipy_chunks(),
    "zarr.Array": lambda tmp: zarr.open_array(zarr_array(tmp / "a"), mode="r"),
    "zarr.Array in memory": lambda _: zarr.array(DENSE, chunks=(7, 5)),
    "zarr v3": lambda tmp: zarr_array(tmp / "a"),
    "zarr v3, text path": lambda tmp: str(zarr_array(tmp / "a")),
    "file URL": lambda tmp: f"file://{zarr_array(tmp / 'a')}",
    "zarr v3, shards": lambda tmp: zarr_array(tmp / "a", shards=(21, 10)),
    "zarr v2": lambda tmp: zarr_array(tmp / "a", zarr_format=2),
    "zarr v2, Fortran order": lambda tmp: zarr_array(tmp / "a", zarr_format=2, order="F"),
    "xarray store v2": lambda tmp: xarray_store(tmp / "x", 2),
    "xarray store v3": lambda tmp: xarray_store(tmp / "x", 3),
    "csr store": lambda tmp: csr_store(tmp / "c.zarr"),
    "csr group": lambda tmp: zarr.open_group(csr_store(tmp / "c.zarr"), mode="r"),
    "csr URL": lambda tmp: csr_store(f"memory://{tmp.name}/c.zarr"),
    "remote csr": lambda tmp: csr_store(f"local://{tmp}/c.zarr"),
    "remote zarr": lambda tmp: f"local://{zarr_array(tmp / 'a')}",
} | {
    f"scipy {form} {kind.__name__}": lambda _, form=form, kind=kind: kind(MATRIX).asformat(form)  # type: ignore[misc]
    for form in ("csr", "csc", "coo", "lil", "dok", "bsr")
    for kind in (sp.csr_array, sp.csr_matrix)
}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("block_bytes", [1, 1000, 10**9])
def test_every_input_gives_the_same_matrix(name: str, block_bytes: int, tmp_path: Path) -> None:
    source = open_data(INPUTS[name](tmp_path), block_bytes=block_bytes)
    assert source.shape == (ROWS, COLUMNS)
    np.testing.assert_array_equal(gathered(source), DENSE)
    np.testing.assert_array_equal(gathered(source, travelled=False), DENSE)
    if source.sparse and source.nnz is not None:
        assert source.nnz == MATRIX.nnz
        assert source.nbytes == MATRIX.nnz * 12 + (ROWS + len(source.blocks)) * 4
    if not source.sparse:
        assert source.nbytes == DENSE.nbytes


@pytest.mark.parametrize("stored", ["f4", "f8", "f2", "i1", "u2", "i8", "bool", ">f4"])
def test_floats_are_kept_and_other_numbers_become_float64(stored: str, tmp_path: Path) -> None:
    values = (np.arange(35).reshape(7, 5) % 3).astype(stored)
    expected = {"f4": "f4", ">f4": "f4"}.get(stored, "f8")
    zarr.create_array(tmp_path / "a", data=values, chunks=(2, 3))
    dask = da.from_array(values, chunks=(2, 3))
    inputs: list[Any] = [values, tmp_path / "a", dask]
    if stored not in ("f2", ">f4"):  # scipy.sparse has no half floats and no foreign byte order
        inputs += [sp.csr_array(values), dask.map_blocks(sp.csr_array)]
    for data in inputs:
        source = open_data(data, block_bytes=40)
        assert source.dtype == np.dtype(expected)
        np.testing.assert_array_equal(gathered(source), values.astype(expected))


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 12)),
    chunks=st.tuples(st.integers(1, 50), st.integers(1, 15)),
    per_shard=st.none() | st.tuples(st.integers(1, 3), st.integers(1, 3)),
    version=st.sampled_from([2, 3]),
    block_bytes=st.integers(1, 2000),
)
def test_dense_stores_of_any_chunking(
    shape: tuple[int, int],
    chunks: tuple[int, int],
    per_shard: tuple[int, int] | None,
    version: int,
    block_bytes: int,
    tmp_path: Path,
) -> None:
    shards = None if per_shard is None or version == 2 else tuple(c * n for c, n in zip(chunks, per_shard, strict=True))
    values = np.random.default_rng(shape).normal(size=shape)
    shutil.rmtree(tmp_path / "a", ignore_errors=True)
    array = zarr.create_array(
        tmp_path / "a",
        shape=shape,
        dtype="f8",
        chunks=chunks,
        shards=shards,
        zarr_format=version,  # type: ignore[arg-type]
    )
    array[...] = values
    np.testing.assert_array_equal(gathered(open_data(tmp_path / "a", block_bytes=block_bytes)), values)


ragged = st.lists(st.integers(0, 6), min_size=1, max_size=6).filter(any).map(tuple)


@settings(max_examples=examples(40))
@given(rows=ragged, columns=ragged, sparse=st.booleans())
def test_dask_arrays_of_any_chunking(rows: tuple[int, ...], columns: tuple[int, ...], sparse: bool) -> None:
    values = np.random.default_rng(3).integers(0, 2, size=(sum(rows), sum(columns))).astype(np.float32)
    array = da.from_array(values, chunks=(rows, columns))
    source = open_data(array.map_blocks(sp.csr_array) if sparse else array)
    np.testing.assert_array_equal(gathered(source), values)
    for block in source.blocks:
        assert block.collection is not None
        parts = [part.compute(scheduler="synchronous") for part in block.collection]
        assembled = block.assemble(parts)
        dense = assembled.toarray() if sp.issparse(assembled) else assembled
        np.testing.assert_array_equal(dense, values[block.start : block.stop])


@pytest.mark.parametrize("told", [True, False])
def test_chunks_are_known_to_be_sparse_without_the_word_of_dask(told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask's word is not public: a version may lack it."""
    dense = da.from_array(DENSE, chunks=(30, 17))
    sparse = dense.map_blocks(sp.csr_array)
    for array in () if told else (dense, sparse):
        monkeypatch.setattr(array, "_meta", None)
    assert not lazy.has_sparse_chunks(dense)
    assert lazy.has_sparse_chunks(sparse)


def test_dask_sources_travel_without_the_rest_of_the_graph() -> None:
    array = da.concatenate([da.random.default_rng(n).normal(size=(2, 3), chunks=(2, 3)) for n in range(200)])
    sizes = {len(pickle.dumps(block)) for block in open_data(array).blocks}
    assert max(sizes) < 10_000


def test_memory_is_shared_and_never_modified() -> None:
    source = open_data(DENSE, block_bytes=500)
    assert all(np.shares_memory(block.load(), DENSE) for block in source.blocks)
    sparse = open_data(MATRIX, block_bytes=500)
    assert all(np.shares_memory(block.load().data, MATRIX.data) for block in sparse.blocks)  # type: ignore[arg-type]
    unsorted = sp.csr_array((np.array([1.0, 2.0, 4.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    np.testing.assert_array_equal(gathered(open_data(unsorted)), [[2.0, 0.0, 5.0]])
    np.testing.assert_array_equal(unsorted.indices, [2, 0, 2])
    np.testing.assert_array_equal(unsorted.data, [1.0, 2.0, 4.0])


def test_opening_reads_no_values(tmp_path: Path) -> None:
    dense, sparse = zarr_array(tmp_path / "a"), csr_store(tmp_path / "c.zarr")
    for damaged in (dense / "c", Path(sparse) / "data" / "c", Path(sparse) / "indices" / "c"):
        for chunk in (file for file in damaged.rglob("*") if file.is_file()):
            chunk.write_bytes(b"not a chunk")
    assert open_data(dense).shape == open_data(sparse).shape == (ROWS, COLUMNS)
    with pytest.raises(StoreError, match=r"rows 0:60 \(chunk c/0/0\)"):
        open_data(dense).blocks[0].load()
    with pytest.raises(StoreError, match=r"indices: cannot read rows 0:\d+ \(chunk c/0\)"):
        open_data(sparse).blocks[0].load()


def test_sources_load_in_another_process(tmp_path: Path) -> None:
    sources = [open_data(zarr_array(tmp_path / "a")), open_data(csr_store(tmp_path / "c.zarr"))]
    sources.append(open_data(csr_store(f"memory://{tmp_path.name}/c.zarr")))
    sources.append(open_data(csr_store(f"local://{tmp_path}/d.zarr")))
    (tmp_path / "sources").write_bytes(pickle.dumps(sources))
    script = (
        "import pickle, sys; sources = pickle.load(open(sys.argv[1], 'rb'));"
        "print([float(sum(block.load().sum() for block in source.blocks)) for source in sources])"
    )
    said = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "sources")], capture_output=True, text=True, check=True
    )
    np.testing.assert_allclose(json.loads(said.stdout), [DENSE.sum()] * 4)


def test_wide_chunks_are_split_and_the_description_says_so(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "a", shape=(1000, 10), chunks=(1000, 1), dtype="f8")
    array[...] = values = np.random.default_rng(0).normal(size=(1000, 10))
    source = open_data(tmp_path / "a", block_bytes=1000)
    assert len(source.blocks) == 10
    assert "split over 10 blocks" in source.description
    np.testing.assert_array_equal(gathered(source), values)


BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "rows of two lengths": (lambda _: [[1.0], [1.0, 2.0]], "numpy makes no matrix of the list"),
    "a set": (lambda _: {1.0}, "builtins.set; give a numpy array"),
    "one dimension": (lambda _: DENSE[0], r"1 dimensions.*X\[:, None\]"),
    "three dimensions": (lambda _: DENSE[None], "3 dimensions"),
    "no rows": (lambda _: DENSE[:0], r"empty: 0 sample\(s\) \(shape=\(0, 17\)\)"),
    "no columns": (lambda _: MATRIX[:, :0], r"empty: 0 feature\(s\) \(shape=\(60, 0\)\)"),
    "complex": (lambda _: DENSE.astype(complex), "Complex data not supported: numpy array"),
    "objects": (lambda _: np.array([[1.0], ["two"]], dtype=object), "row 1, column 0 is 'two'; expected real"),
    "text": (lambda _: DENSE.astype(str), "expected real"),
    "complex sparse": (lambda _: MATRIX.astype(complex), "Complex data not supported: scipy"),
    "unknown chunks": (lambda _: (x := da.from_array(DENSE, chunks=5))[x[:, 0] > 0], r"compute_chunk_sizes\(\)"),
    "nothing there": (lambda tmp: tmp / "no" / "where", r"where does not exist \(.* is there\); check the path"),
    "an empty directory": (lambda tmp: tmp, "no Zarr store"),
    "a file": (lambda _: __file__, "dlatent ingest"),
    "unknown protocol": (lambda _: "nonsense://x", "Protocol not known: nonsense"),
    "nothing at a URL": (lambda tmp: f"memory://{tmp.name}/none", "no Zarr store"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_matrix_is_refused(name: str, tmp_path: Path) -> None:
    make, words = BAD[name]
    with pytest.raises(DataError, match=words):
        open_data(make(tmp_path))


def test_what_numpy_makes_a_matrix_of_is_read() -> None:
    rows = [[1.0, 2.0], [3.0, np.nan]]
    kinds = {
        "lists": rows,
        "tuples": tuple(map(tuple, rows)),
        "objects": np.array([[1, 2.0], [3, None]], dtype=object),
        "text of numbers": np.array([["1", "2.0"], [3, None]], dtype=object),
        "masked": np.ma.masked_array([[1.0, 2.0], [3.0, 9.0]], [[False, False], [False, True]]),
        "masked integers": np.ma.masked_array([[1, 2], [3, 9]], [[False, False], [False, True]]),
        "pandas": pd.array([1, 2, 3, pd.NA], dtype="Int64").to_numpy(dtype=object).reshape(2, 2),
    }
    for name, kind in kinds.items():
        np.testing.assert_array_equal(gathered(open_data(kind)), rows, err_msg=name)
    with pytest.raises(TypeError, match=r"row 0, column 1 is \{\}; expected real numbers"):
        open_data(np.array([[1.0, {}]], dtype=object))


def test_dask_chunks_that_break_their_promise_are_named() -> None:
    lying = da.from_array(DENSE, chunks=(30, 17)).map_blocks(
        lambda part: part[:5], dtype="f8", chunks=((30, 30), (17,))
    )
    with pytest.raises(DataError, match=r"rows 0:30 .* promised \(30, 17\)"):
        open_data(lying).blocks[0].load()
    unmarked = da.from_array(DENSE, chunks=(30, 17)).map_blocks(sp.csr_array, meta=np.empty((0, 0)))
    with pytest.raises(DataError, match="meta=scipy"):
        open_data(unmarked).blocks[0].load()


def edited(path: Path, **changes: Any) -> Path:
    """A store whose root metadata file was changed."""
    file = path / "zarr.json"
    meta = json.loads(file.read_text())
    meta["attributes"] |= changes
    file.write_text(json.dumps(meta))
    return path


def test_half_written_newer_and_damaged_stores_are_refused(tmp_path: Path) -> None:
    path = Path(csr_store(tmp_path / "c.zarr"))
    marker = {"kind": "matrix", "version": 1, "complete": True}
    with pytest.raises(StoreError, match="half-written"):
        open_data(edited(path, dlatent=marker | {"complete": False}))
    with pytest.raises(StoreError, match=r"version 99.*install a newer dlatent"):
        open_data(edited(path, dlatent=marker | {"version": 99}))
    with pytest.raises(StoreError, match="is damaged"):
        open_data(edited(path, dlatent="yes"))
    with pytest.raises(StoreError, match="saved result"):
        open_data(edited(path, dlatent=marker | {"kind": "result"}))
    edited(path, dlatent=marker)
    assert open_data(path).shape == (ROWS, COLUMNS)
    with pytest.raises(StoreError, match="61 elements instead of 71"):
        open_data(edited(path, shape=[70, COLUMNS]))
    with pytest.raises(StoreError, match="`shape` is None"):
        open_data(edited(path, shape=None))
    with pytest.raises(StoreError, match="`shape` is "):
        open_data(edited(path, shape=[ROWS, 2**70]))
    narrow = open_data(edited(path, shape=[ROWS, 9]))
    row = int(np.flatnonzero((DENSE[:, 9:] != 0).any(axis=1))[0])
    with pytest.raises(StoreError, match=f"row {row} has column index"):
        narrow.blocks[0].load()
    edited(path, shape=[ROWS, COLUMNS])
    (path / "data" / "zarr.json").unlink()
    with pytest.raises(StoreError, match="'data' is missing"):
        open_data(path)
    (path / "zarr.json").write_text("{ this is no JSON")
    with pytest.raises(StoreError, match="metadata"):
        open_data(path)


def test_a_group_opens_when_it_has_one_matrix_and_lists_them_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "g.zarr"
    root = zarr.create_group(path)
    with pytest.raises(StoreError, match="no matrix"):
        open_data(path)
    root.create_array("a", data=DENSE)
    root.create_array("length", data=np.arange(ROWS))
    assert open_data(path).description.endswith("g.zarr/a")
    write_csr(root.create_group("b"), [MATRIX])
    with pytest.raises(StoreError, match=f"2 matrices; open one of {path}/a, {path}/b"):
        open_data(path)
    assert open_data(path / "b").sparse
    root["b"].attrs["encoding-type"] = "csc_matrix"
    with pytest.raises(StoreError, match=r"csc_matrix.*tocsr\(\)"):
        open_data(path / "b")


def test_arrays_are_fitted_without_zarr() -> None:
    """Workers and short scripts start sooner without what reads stores."""
    program = (
        "import sys, numpy as np; from dlatent import PPCA; PPCA(1).fit(np.eye(5)[:, :3])\n"
        "print('zarr' in sys.modules, sum(name.startswith('dlatent.stores') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    zarr_is_there, modules = done.stdout.split()
    assert zarr_is_there == "False"
    assert int(modules) <= 12


def test_sources_and_graphs_say_what_they_are_without_their_labels(tmp_path: Path) -> None:
    place = tmp_path / "data.zarr"
    names = np.arange(len(DENSE)) + 1000
    xr.DataArray(DENSE, dims=("row", "gene"), coords={"row": names}).to_dataset(name="x").to_zarr(
        place, consolidated=False
    )
    rows, columns = DENSE.shape
    source = open_data(place)
    assert repr(source) == f"<DataSource: {source.description}, {rows:,} row × {columns} gene, {DENSE.dtype}>"
    assert str(place) in repr(source)
    stored = sp.csr_array(DENSE)
    assert repr(open_data(stored)).endswith(
        f"{rows:,} sample × {columns} feature, {DENSE.dtype}, {stored.nnz:,} stored entries>"
    )
    assert "key" not in repr(open_graph(sp.csr_array(np.eye(3)[::-1])))
