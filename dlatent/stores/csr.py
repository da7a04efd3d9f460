"""Sparse matrices at rest, opened: row blocks of a `csr_matrix` group in the AnnData layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import zarr

from dlatent.arrays import DataSource, Features
from dlatent.errors import DataError, StoreError
from dlatent.stores.chunked import ZarrArray, check_chunks, decoding_bytes, process_local, read_rows, small_chunks
from dlatent.stores.codecs import harmless
from dlatent.stores.encoded import require_decoded
from dlatent.stores.partition import loaded_dtype, sized_sparse_bounds
from dlatent.stores.rows import MatrixRows, Rows, check_matrix, csr_bytes
from dlatent.stores.sparse import csr
from dlatent.stores.strict import place_of, strict, unchanged

POINTERS_READ = 1 << 20
"""Elements of `indptr` that are read at one time while a matrix is opened."""


@dataclass(frozen=True)
class CsrArrays:
    """The three arrays of a sparse matrix on disk, and the number of its columns."""

    data: ZarrArray
    indices: ZarrArray
    indptr: ZarrArray
    columns: int

    def unchanged(self) -> None:
        """Refuse arrays that are not those which were opened any more."""
        unchanged(self.data, self.indices, self.indptr)


@dataclass(eq=False)
class CsrRows(Rows):
    """Rows of a sparse matrix on disk, whose entries are `[first, last)` of `data` and `indices`."""

    first: int
    last: int
    arrays: CsrArrays

    def load(self) -> Features:
        """Read the entries of the rows and bring them into canonical form.

        Errors: StoreError naming the row whose column index lies outside the matrix.
        """
        arrays = self.arrays
        rows = f"rows {self.start}:{self.stop}"
        pointers = read_rows(arrays.indptr, self.start, self.stop + 1, rows).astype(np.int64)
        if pointers[0] != self.first or pointers[-1] != self.last or (pointers[1:] < pointers[:-1]).any():
            raise StoreError(f"{place_of(arrays.indptr)} has changed since it was opened; open the store again")
        pointers -= self.first
        indices = read_rows(arrays.indices, self.first, self.last, rows)
        data = read_rows(arrays.data, self.first, self.last, rows)
        self._check_columns(indices, pointers)
        matrix = csr(data.astype(loaded_dtype(data.dtype), copy=False), indices, pointers, arrays.columns)
        matrix.sum_duplicates()
        return matrix

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Rows of a store in this process's memory travel by value, as no other process could read them."""
        if process_local(self.arrays.data):
            return MatrixRows, (self.start, self.stop, self.nbytes, self.load())
        return CsrRows, (self.start, self.stop, self.nbytes, self.first, self.last, self.arrays)

    def _check_columns(self, indices: npt.NDArray[Any], pointers: npt.NDArray[np.int64]) -> None:
        if not len(indices) or (indices.min() >= 0 and indices.max() < self.arrays.columns):
            return
        at = int(np.flatnonzero((indices < 0) | (indices >= self.arrays.columns))[0])
        row = self.start + int(np.searchsorted(pointers, at, side="right")) - 1
        raise StoreError(
            f"{place_of(self.arrays.indices)}: row {row} has column index {indices[at]}, but the matrix has "
            f"{self.arrays.columns} columns; correct `shape` or write the store again"
        )


def open_csr(group: zarr.Group, block_bytes: int | None) -> DataSource:
    """Row blocks of a `csr_matrix` group; only attributes and `indptr` are read, and of it only the edges are kept.

    Errors: StoreError where members are missing or do not fit `shape`; DataError for values that are no real numbers.
    """
    place = f"sparse matrix {place_of(group)}"
    arrays, rows = _arrays(group, place)
    columns = arrays.columns
    check_matrix((rows, columns), arrays.data.dtype, place)
    dtype = loaded_dtype(arrays.data.dtype)
    stored, pointers = arrays.data.shape[0], _pointers(arrays.indptr)
    bounds = sized_sparse_bounds(pointers, (rows, columns), stored, dtype.itemsize + 4, block_bytes, place)
    entries = bounds.positions[-1]
    for name, array in (("data", arrays.data), ("indices", arrays.indices)):
        if array.shape != (entries,):
            raise StoreError(f"{place}: {name} has shape {array.shape}, but indptr ends at {entries}; write it again")
    blocks = tuple(
        CsrRows(start, stop, csr_bytes(stop - start, last - first, dtype), first, last, arrays)
        for start, stop, first, last in bounds.blocks()
    )
    parts = (arrays.data, arrays.indices)
    decoding = max(decoding_bytes(parts, block.first, block.last, block.nbytes) for block in blocks)
    source = DataSource(
        (rows, columns), dtype, blocks, uuid4().hex, True, entries, description=place + small_chunks(arrays.data)
    )
    return replace(source, decoding=decoding, check=arrays.unchanged)


def _arrays(group: zarr.Group, place: str) -> tuple[CsrArrays, int]:
    """The members of the group and the number of rows, checked against its `shape`."""
    shape = group.attrs.get("shape")
    sizes = shape if isinstance(shape, (list, tuple)) else ()
    if len(sizes) != 2 or not all(isinstance(n, int) and 0 <= n <= np.iinfo(np.int64).max for n in sizes):
        raise StoreError(f"{place}: the attribute `shape` is {shape!r}; expected [samples, features]")
    members: dict[str, ZarrArray] = {}
    for name in ("data", "indices", "indptr"):
        member = group.get(name)
        if not isinstance(member, zarr.Array) or member.ndim != 1:
            raise StoreError(f"{place}: the member {name!r} is missing or no one-dimensional array; write it again")
        require_decoded(member)
        check_chunks(harmless(member))
        members[name] = strict(member)
    rows, columns = (int(n) for n in sizes)
    if members["indptr"].shape != (rows + 1,):
        raise StoreError(
            f"{place}: `shape` says {rows} rows, but indptr has {members['indptr'].shape[0]} elements instead of "
            f"{rows + 1}; write it again"
        )
    for name in ("indices", "indptr"):
        if members[name].dtype.kind not in "iu":
            raise DataError(f"{place}: {name} has dtype {members[name].dtype}; expected integers")
    return CsrArrays(members["data"], members["indices"], members["indptr"], columns), rows


def _pointers(indptr: ZarrArray) -> Iterator[npt.NDArray[Any]]:
    """`indptr` in pieces, each beginning with the last element of the one before."""
    for start in range(0, indptr.shape[0] - 1, POINTERS_READ):
        yield read_rows(indptr, start, min(start + POINTERS_READ, indptr.shape[0] - 1) + 1)
