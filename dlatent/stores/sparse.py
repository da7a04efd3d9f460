"""Sparse matrices at rest: the AnnData layout (a `csr_matrix` group), written as a stream of row blocks.

The group holds `data`, `indices` and `indptr`; its attributes are `encoding-type`, `encoding-version` and `shape`.  The
anndata package opens it, and the door of this room opens what anndata wrote.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import zarr

from dlatent.errors import DataError
from dlatent.stores.chunked import ALL_WRITTEN, GrowingArray

CHUNK_ELEMENTS = 1 << 19
"""Elements per chunk of `data` and `indices`: 2 MiB of 32-bit numbers."""

INDPTR_ELEMENTS = 1 << 17
"""Elements per chunk of `indptr`: 1 MiB."""

ENCODING = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}
ARRAY_ENCODING = {"encoding-type": "array", "encoding-version": "0.2.0"}


def canonical(matrix: Any) -> sp.csr_array:
    """The matrix as a csr_array with sorted indices and no duplicates; the caller's object is never modified.

    Canonical CSR input is shared, not copied.  Index arrays are int32 where the numbers allow it.
    """
    rows = sp.csr_array(matrix)
    if rows.has_canonical_format:
        return rows
    parts = [name for name in ("data", "indices", "indptr") if hasattr(matrix, name)]
    if any(np.shares_memory(getattr(rows, name), getattr(matrix, name)) for name in parts):
        rows = rows.copy()
    rows.sum_duplicates()
    return rows


def csr(
    data: npt.NDArray[Any], indices: npt.NDArray[Any], indptr: npt.NDArray[Any], columns: int | None
) -> sp.csr_array:
    """A csr_array of CSR parts whose indices were checked before; as wide as it must be where `columns` is None."""
    width = columns if columns is not None else (int(indices.max()) + 1 if len(indices) else 0)
    made = sp.csr_array((len(indptr) - 1, width), dtype=data.dtype)
    small = max(width, len(data)) <= np.iinfo(np.int32).max
    made.data = data
    made.indices = indices.astype(np.int32 if small else np.int64, copy=False)
    made.indptr = indptr.astype(made.indices.dtype, copy=False)
    return made


def entries_where(rows: sp.csr_array, keep: npt.NDArray[np.bool_]) -> sp.csr_array:
    """The rows with those of their entries for which `keep` holds."""
    pointers = np.concatenate([[0], np.cumsum(keep)])[rows.indptr]
    return sp.csr_array((rows.data[keep], rows.indices[keep], pointers), rows.shape)


def row_numbers(rows: sp.csr_array) -> npt.NDArray[np.int64]:
    """The row of each entry."""
    return np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))


def write_csr(
    group: zarr.Group, blocks: Iterable[Any], *, columns: int | None = None, dtype: npt.DTypeLike | None = None
) -> tuple[int, int]:
    """Write row blocks one after the other into `group` as one sparse matrix; memory holds one block and one chunk.

    Parameters: `group`, an empty group (the root of a new store, or `X` in it); `blocks`, sparse matrices of any format
    with rows in order; `columns`, the number of features (None: the widest block decides); `dtype` of the values (None:
    float32 or float64 as in the first block, float64 for other types).
    Returns: the shape (samples, features) that was written.
    Errors: DataError where a block is wider than `columns`, or there is no block.
    """
    writer = None
    for block in blocks:
        writer = writer or CsrWriter(group, columns=columns, dtype=block.dtype if dtype is None else dtype)
        writer.append(block)
    if writer is None:
        raise DataError("there are no rows to write: the input is empty")
    return writer.close()


class CsrWriter:
    """Appends row blocks to a `csr_matrix` group; `close` writes what is still buffered and the shape.

    `rows` and `nnz` count the rows and entries so far.
    """

    def __init__(self, group: zarr.Group, *, columns: int | None, dtype: npt.DTypeLike) -> None:
        given = np.dtype(dtype)
        value_dtype = given if given in (np.dtype(np.float32), np.dtype(np.float64)) else np.dtype(np.float64)
        index_dtype = np.dtype(np.int64 if columns is not None and columns > np.iinfo(np.int32).max else np.int32)
        self._group = group
        self._columns = columns
        self._widest = 0
        self.rows = self.nnz = 0
        kept = {**ARRAY_ENCODING, **ALL_WRITTEN}
        self._data = GrowingArray(group, "data", value_dtype, CHUNK_ELEMENTS, attributes=kept)
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
