"""Sparse matrices in Zarr stores: groups `csr_matrix` in the layout of AnnData, opened and written as row blocks.

The group holds `data`, `indices` and `indptr`; its attributes are `encoding-type`, `encoding-version` and `shape`.  The
anndata package opens it, and `open_data` opens what anndata wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import zarr

from dlatent.arrays import DataSource, Features
from dlatent.errors import DataError, StoreError
from dlatent.stores.checked import place_of, unchanged
from dlatent.stores.chunked import (
    ALL_WRITTEN,
    GrowingArray,
    ZarrArray,
    decoding_bytes,
    process_local,
    read_rows,
    readable,
    small_chunks,
)
from dlatent.stores.labels import require_decoded
from dlatent.stores.partition import loaded_dtype, sized_sparse_bounds
from dlatent.stores.rows import ArrayRows, Rows, canonical, check_matrix, csr_bytes

CHUNK_ELEMENTS = 1 << 19
"""Elements per chunk of `data` and `indices`: 2 MiB of 32-bit numbers."""

INDPTR_ELEMENTS = 1 << 17
"""Elements per chunk of `indptr`: 1 MiB."""

POINTERS_READ = 1 << 20
"""Elements of `indptr` that are read at one time while a matrix is opened."""

ENCODING = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}
ARRAY_ENCODING = {"encoding-type": "array", "encoding-version": "0.2.0"}


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
        outside = np.flatnonzero((indices < 0) | (indices >= arrays.columns))
        if len(outside):
            row = self.start + int(np.searchsorted(pointers, outside[0], side="right")) - 1
            raise StoreError(
                f"{place_of(arrays.indices)}: row {row} has column index {indices[outside[0]]}, but the matrix has "
                f"{arrays.columns} columns; correct `shape` or write the store again"
            )
        matrix = csr(data.astype(loaded_dtype(data.dtype), copy=False), indices, pointers, arrays.columns)
        matrix.sum_duplicates()
        return matrix

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Rows of a store in this process's memory travel by value, as no other process could read them."""
        if process_local(self.arrays.data):
            return ArrayRows, (self.start, self.stop, self.nbytes, self.load())
        return CsrRows, (self.start, self.stop, self.nbytes, self.first, self.last, self.arrays)


def open_csr(group: zarr.Group, block_bytes: int | None) -> DataSource:
    """Row blocks of a `csr_matrix` group; only attributes and `indptr` are read, and of it only the edges are kept.

    Errors: StoreError where members are missing or do not fit `shape`; DataError for values that are no real numbers.
    """
    place = f"sparse matrix {place_of(group)}"
    arrays, rows = _arrays(group, place)
    shape = check_matrix((rows, arrays.columns), arrays.data.dtype, place)
    dtype, pointers = loaded_dtype(arrays.data.dtype), _pointers(arrays.indptr)
    stored = arrays.data.shape[0]
    bounds = sized_sparse_bounds(pointers, shape, stored, dtype.itemsize + 4, block_bytes, place)
    *_, (_, _, _, entries) = bounds
    for name, array in (("data", arrays.data), ("indices", arrays.indices)):
        if array.shape != (entries,):
            raise StoreError(f"{place}: {name} has shape {array.shape}, but indptr ends at {entries}; write it again")
    blocks = tuple(
        CsrRows(start, stop, csr_bytes(stop - start, last - first, dtype), first, last, arrays)
        for start, stop, first, last in bounds
    )
    parts = (arrays.data, arrays.indices)
    return DataSource(
        shape,
        dtype,
        blocks,
        uuid4().hex,
        sparse=True,
        nnz=entries,
        description=place + small_chunks(arrays.data),
        decoding=max(decoding_bytes(parts, block.first, block.last, block.nbytes) for block in blocks),
        check=arrays.unchanged,
    )


def _arrays(group: zarr.Group, place: str) -> tuple[CsrArrays, int]:
    """The members of the group and the number of rows, checked against its `shape`."""
    shape = group.attrs.get("shape")
    sizes = shape if isinstance(shape, (list, tuple)) else ()
    if len(sizes) != 2 or not all(isinstance(n, int) and 0 <= n <= np.iinfo(np.int64).max for n in sizes):
        raise StoreError(f"{place}: the attribute `shape` is {shape!r}; expected [samples, features]")
    rows, columns = (int(n) for n in sizes)
    members = list[ZarrArray]()
    for name in ("data", "indices", "indptr"):
        member = group.get(name)
        if not isinstance(member, zarr.Array) or member.ndim != 1:
            raise StoreError(f"{place}: the member {name!r} is missing or no one-dimensional array; write it again")
        require_decoded(member)
        members.append(readable(member))
        if name != "data" and member.dtype.kind not in "iu":
            raise DataError(f"{place}: {name} has dtype {member.dtype}; expected integers")
    data, indices, indptr = members
    if indptr.shape != (rows + 1,):
        raise StoreError(
            f"{place}: `shape` says {rows} rows, but indptr has {indptr.shape[0]} elements instead of {rows + 1}; "
            "write it again"
        )
    return CsrArrays(data, indices, indptr, columns), rows


def _pointers(indptr: ZarrArray) -> Iterator[npt.NDArray[Any]]:
    """`indptr` in pieces, each beginning with the last element of the one before."""
    for start in range(0, indptr.shape[0] - 1, POINTERS_READ):
        yield read_rows(indptr, start, min(start + POINTERS_READ, indptr.shape[0] - 1) + 1)


def csr(
    data: npt.NDArray[Any], indices: npt.NDArray[Any], indptr: npt.NDArray[Any], columns: int | None
) -> sp.csr_array:
    """A csr_array of CSR parts whose indices were checked before; as wide as it must be where `columns` is None."""
    width = columns if columns is not None else (int(indices.max()) + 1 if len(indices) else 0)
    return sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, width))


def entries_where(rows: sp.csr_array, keep: npt.NDArray[np.bool_]) -> sp.csr_array:
    """The rows with those of their entries for which `keep` holds."""
    pointers = np.concatenate([[0], np.cumsum(keep)])[rows.indptr]
    return sp.csr_array((rows.data[keep], rows.indices[keep], pointers), rows.shape)


def row_numbers(rows: sp.csr_array) -> npt.NDArray[np.int64]:
    """The row of each entry."""
    return np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))


class CsrWriter:
    """Appends row blocks to a `csr_matrix` group; `close` writes what is still buffered and the shape.

    `rows` and `nnz` count the rows and entries so far.
    """

    def __init__(self, group: zarr.Group, *, columns: int | None, dtype: npt.DTypeLike) -> None:
        index_dtype = np.dtype(np.int64 if columns is not None and columns > np.iinfo(np.int32).max else np.int32)
        self._group = group
        self._columns = columns
        self._widest = 0
        self.rows = self.nnz = 0
        kept = {**ARRAY_ENCODING, **ALL_WRITTEN}
        self._data = GrowingArray(group, "data", loaded_dtype(dtype), CHUNK_ELEMENTS, attributes=kept)
        self._indices = GrowingArray(group, "indices", index_dtype, CHUNK_ELEMENTS, attributes=kept)
        self._indptr = GrowingArray(group, "indptr", np.int64, INDPTR_ELEMENTS, attributes=kept)
        self._indptr.append(np.zeros(1, dtype=np.int64))

    def append(self, block: Any) -> None:
        """Add the rows of a sparse matrix."""
        rows = canonical(block)
        height, width = rows.shape
        if self._columns is not None and width > self._columns:
            raise DataError(
                f"rows {self.rows}:{self.rows + height} have {width} columns, but the matrix has {self._columns}; "
                "give the number of columns of the widest row"
            )
        if self._columns is None and width > np.iinfo(np.int32).max:
            raise DataError(f"rows {self.rows}:{self.rows + height} have {width} columns; give `columns` beforehand")
        self._data.append(rows.data)
        self._indices.append(rows.indices)
        self._indptr.append(rows.indptr[1:].astype(np.int64) + self.nnz)
        self.rows += height
        self.nnz += int(rows.indptr[-1])
        self._widest = max(self._widest, width)

    def close(self) -> tuple[int, int]:
        """Write the rest and the attributes; return the shape."""
        for vector in (self._data, self._indices, self._indptr):
            vector.close()
        columns = self._widest if self._columns is None else self._columns
        self._group.attrs.update({**ENCODING, "shape": [self.rows, columns]})
        return self.rows, columns
