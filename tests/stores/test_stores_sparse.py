"""The sparse layout: written as a stream, opened by anndata, and the same matrix however its entries are ordered."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dlatent.stores.sparse
from dlatent import open_data
from dlatent.errors import DataError
from dlatent.stores.atomic import new_store
from dlatent.stores.rows import canonical
from dlatent.stores.sparse import CsrWriter
from tests.law_examples import examples
from tests.sparse_stores import write_csr


def dense_of(path: Path, block_bytes: int = 300) -> np.ndarray[Any, Any]:
    blocks = [block.load() for block in open_data(path, block_bytes=block_bytes).blocks]
    assert all(sp.issparse(block) and block.has_canonical_format for block in blocks)  # type: ignore[union-attr]
    return sp.vstack(blocks).toarray()  # type: ignore[arg-type]


@st.composite
def messy(draw: st.DrawFn) -> sp.csr_array:
    """A CSR matrix whose rows have indices in any order, with duplicates, explicit zeros and empty rows."""
    rows, columns = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    counts = draw(st.lists(st.integers(0, 9), min_size=rows, max_size=rows))
    entries = sum(counts)
    indices = draw(st.lists(st.integers(0, columns - 1), min_size=entries, max_size=entries))
    values = draw(st.lists(st.integers(-3, 3), min_size=entries, max_size=entries))
    dtype = draw(st.sampled_from(["f4", "f8", "i4", "u1"]))
    data = np.abs(np.array(values)).astype(dtype) if dtype == "u1" else np.array(values, dtype=dtype)
    return sp.csr_array((data, np.array(indices, dtype=int), np.concatenate([[0], np.cumsum(counts)])), (rows, columns))


def dense_sum(matrix: sp.csr_array) -> np.ndarray[Any, Any]:
    """The matrix by definition: one addition for each stored entry."""
    made = np.zeros(matrix.shape)
    for row in range(matrix.shape[0]):
        for at in range(matrix.indptr[row], matrix.indptr[row + 1]):
            made[row, matrix.indices[at]] += float(matrix.data[at])
    return made


def raw_group(path: Path, matrix: sp.csr_array, chunk: int, version: Any) -> None:
    """The arrays as they are, unsorted, in small chunks: what another program might have written."""
    shutil.rmtree(path, ignore_errors=True)
    group = zarr.create_group(path, zarr_format=version)
    for name in ("data", "indices", "indptr"):
        values = getattr(matrix, name)
        array = group.create_array(
            name, shape=values.shape, dtype=values.dtype, chunks=(chunk,), config={"write_empty_chunks": True}
        )
        if len(values):
            array[:] = values
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": list(matrix.shape)})


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(matrix=messy(), chunk=st.integers(1, 9), block_bytes=st.integers(1, 300), version=st.sampled_from([2, 3]))
def test_unsorted_and_duplicate_entries_give_the_same_matrix(
    matrix: sp.csr_array, chunk: int, block_bytes: int, version: int, tmp_path: Path
) -> None:
    raw_group(tmp_path / "raw", matrix, chunk, version)
    expected = dense_sum(matrix)
    source = open_data(tmp_path / "raw", block_bytes=block_bytes)
    assert source.nnz == len(matrix.data)
    assert source.dtype == (np.float32 if matrix.dtype == np.float32 else np.float64)
    np.testing.assert_array_equal(dense_of(tmp_path / "raw", block_bytes), expected)
    if matrix.dtype.kind == "f":
        np.testing.assert_array_equal(canonical(matrix).toarray(), expected)


@pytest.mark.slow
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(matrices=st.lists(messy(), min_size=1, max_size=4), chunk=st.integers(1, 9), known=st.booleans())
def test_blocks_are_written_as_one_matrix(
    matrices: list[sp.csr_array], chunk: int, known: bool, tmp_path: Path
) -> None:
    columns = max(matrix.shape[1] for matrix in matrices)
    shutil.rmtree(tmp_path / "c.zarr", ignore_errors=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dlatent.stores.sparse, "CHUNK_ELEMENTS", chunk)
        patch.setattr(dlatent.stores.sparse, "INDPTR_ELEMENTS", chunk)
        patch.setattr(dlatent.stores.sparse, "POINTERS_READ", chunk)
        with new_store(tmp_path / "c.zarr") as group:
            shape = write_csr(group, iter(matrices), columns=columns if known else None, dtype="f8")
            assert group["data"].chunks == (chunk,)  # type: ignore[union-attr]
        expected = np.concatenate([np.pad(dense_sum(m), ((0, 0), (0, columns - m.shape[1]))) for m in matrices])
        assert shape == expected.shape
        np.testing.assert_array_equal(dense_of(tmp_path / "c.zarr"), expected)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_anndata_opens_what_this_room_writes(tmp_path: Path, dtype: str) -> None:
    matrix = sp.random_array((50, 20), density=0.2, format="csr", rng=np.random.default_rng(1)).astype(dtype)
    with new_store(tmp_path / "c.zarr") as group:
        write_csr(group, [matrix[:20], matrix[20:]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        group = zarr.open_group(tmp_path / "c.zarr", mode="r")
        read = anndata.io.read_elem(group)
        backed = anndata.io.sparse_dataset(group)[10:30]
    assert read.format == "csr"
    assert read.dtype == dtype
    np.testing.assert_array_equal(read.toarray(), matrix.toarray())
    np.testing.assert_array_equal(backed.toarray(), matrix.toarray()[10:30])


def test_the_widest_row_is_refused_where_the_columns_are_given(tmp_path: Path) -> None:
    writer = CsrWriter(zarr.create_group(tmp_path / "g"), columns=3, dtype=np.float64)
    writer.append(sp.csr_array((5, 3)))
    with pytest.raises(DataError, match=r"rows 5:7 have 4 columns"):
        writer.append(sp.csr_array((2, 4)))


def test_an_all_zero_sparse_matrix_opens(tmp_path: Path) -> None:
    with new_store(tmp_path / "c.zarr") as group:
        write_csr(group, [sp.csr_array((4, 3))])
    np.testing.assert_array_equal(dense_of(tmp_path / "c.zarr"), np.zeros((4, 3)))
