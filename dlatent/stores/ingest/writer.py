"""Writes row batches, labels and names as an AnnData-layout Zarr store, in whole chunks and bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import zarr

from dlatent.errors import DataError
from dlatent.stores.chunked import ALL_WRITTEN, new_array
from dlatent.stores.ingest.batches import Values, is_sparse
from dlatent.stores.ingest.targets import Column, Outputs
from dlatent.stores.labels import BEFORE, ROWS_BEFORE
from dlatent.stores.sparse import ARRAY_ENCODING, CHUNK_ELEMENTS, CsrWriter

NAMES_PER_CHUNK = 1 << 14

DICTIONARY = {"encoding-type": "dict", "encoding-version": "0.1.0"}
STRINGS = {"encoding-type": "string-array", "encoding-version": "0.2.0"}


CHUNK_BYTES = 8 * 2**20
"""Largest chunk of a dense array: small enough to share a few chunks between workers, large enough to decode fast."""


class DenseWriter:
    """Appends rows to a dense array `name` whose chunks are blocks of rows, of `block_bytes` bytes at most."""

    def __init__(self, group: zarr.Group, name: str, columns: int, dtype: npt.DTypeLike, block_bytes: int) -> None:
        self._group, self._name, self._columns = group, name, columns
        height = max(min(block_bytes, CHUNK_BYTES) // max(columns * np.dtype(dtype).itemsize, 1), 1)
        self._buffer = np.empty((height, columns), dtype=dtype)
        self._count = 0
        self._array: Any = None
        self.rows = 0
        self.nnz = 0

    def append(self, rows: Any) -> None:
        """Add rows; whole chunks are written at once."""
        self.nnz += int(np.count_nonzero(rows))
        self.rows += len(rows)
        while len(rows):
            taken = rows[: len(self._buffer) - self._count]
            self._buffer[self._count : self._count + len(taken)] = taken
            self._count += len(taken)
            rows = rows[len(taken) :]
            if self._count == len(self._buffer):
                self._flush()

    def close(self) -> tuple[int, int]:
        """Write the rest; return the shape."""
        if self._count or self._array is None:
            self._flush()
        return self.rows, self._columns

    def _flush(self) -> None:
        block = self._buffer[: self._count]
        if self._array is None:
            # A store smaller than one chunk gets a chunk of its own size.
            chunks = (max(len(block), 1), max(self._columns, 1))
            attributes = {**ARRAY_ENCODING, **ALL_WRITTEN}
            self._array = new_array(
                self._group, self._name, (0, self._columns), block.dtype, chunks, attributes=attributes
            )
        start = self._array.shape[0]
        self._array.resize((start + len(block), self._columns))
        if block.size:
            self._array[start : start + len(block)] = block
        self._count = 0


class SparseWriter:
    """Appends rows to a `csr_matrix` group `name`."""

    def __init__(self, group: zarr.Group, name: str, columns: int | None, dtype: npt.DTypeLike) -> None:
        self._writer = CsrWriter(group.create_group(name), columns=columns, dtype=dtype)
        self.rows = 0
        self.nnz = 0

    def append(self, rows: sp.csr_array) -> None:
        """Add rows."""
        self.rows += rows.shape[0]
        self.nnz += int(rows.nnz)
        self._writer.append(rows)

    def close(self) -> tuple[int, int]:
        """Write the rest; return the shape."""
        return self._writer.close()


class NameWriter:
    """Appends text to a one-dimensional array, in whole chunks."""

    def __init__(self, group: zarr.Group, name: str) -> None:
        self._array = new_array(group, name, (0,), str, (NAMES_PER_CHUNK,), attributes=STRINGS)
        self._waiting: list[Values] = []
        self._count = 0

    def append(self, names: Values) -> None:
        """Add names; whole chunks are written at once."""
        self._waiting.append(names)
        self._count += len(names)
        if self._count >= NAMES_PER_CHUNK:
            merged = np.concatenate(self._waiting)
            whole = self._count - self._count % NAMES_PER_CHUNK
            self._write(merged[:whole])
            self._waiting, self._count = [merged[whole:]], self._count - whole

    def close(self) -> None:
        """Write the rest."""
        if self._count:
            self._write(np.concatenate(self._waiting))

    def _write(self, names: Values) -> None:
        start = self._array.shape[0]
        self._array.resize((start + len(names),))
        self._array[start:] = names.astype(object)


def start_layout(root: zarr.Group) -> None:
    """The groups that every AnnData store has."""
    root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    for name in ("layers", "obsm", "obsp", "uns", "varm", "varp"):
        root.create_group(name, attributes=dict(DICTIONARY))
    for name in ("obs", "var"):
        root.create_group(name, attributes=_frame([]))


def write_numbers(writer: NameWriter, numbers: npt.NDArray[np.int64]) -> None:
    """Numbers as names for what has none."""
    for start in range(0, len(numbers), NAMES_PER_CHUNK):
        writer.append(numbers[start : start + NAMES_PER_CHUNK].astype(str))


def write_before(root: zarr.Group, kept: npt.NDArray[np.int64], rows: int) -> None:
    """Which of so many `rows` of the file were `kept` (N,), in `uns`."""
    uns = _child(root, "uns")
    write_vector(uns, BEFORE, kept)
    uns[BEFORE].attrs[ROWS_BEFORE] = rows


def write_feature_names(root: zarr.Group, names: Values | None, columns: int) -> None:
    """The index of `var`: the names given, or numbers."""
    writer = NameWriter(_child(root, "var"), "_index")
    if names is None:
        write_numbers(writer, np.arange(columns))
    elif len(names) != columns:
        raise DataError(f"there are {len(names)} feature names for {columns} features; give exactly one for each")
    else:
        writer.append(names)
    writer.close()


def write_column(root: zarr.Group, column: Column) -> None:
    """One label per row as a column of `obs`; classes as a categorical, where -1 means unlabelled."""
    obs = _child(root, "obs")
    obs.attrs.update(_frame([column.name]))
    if column.classes is None:
        values = column.values.astype(np.uint8) if column.values.dtype.kind == "b" else column.values
        write_vector(obs, column.name, values)
        return
    attributes = {"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False}
    group = obs.create_group(column.name, attributes=attributes)
    write_vector(group, "codes", column.values)
    write_texts(group, "categories", column.classes)


def write_outputs(root: zarr.Group, outputs: Outputs) -> None:
    """Several outputs per row as `obsm/Y`, the names of its columns as `uns/Y_names`."""
    obsm = _child(root, "obsm")
    matrix = outputs.matrix
    if is_sparse(matrix):
        sparse = SparseWriter(obsm, "Y", matrix.shape[1], matrix.dtype)
        sparse.append(matrix)
        sparse.close()
    else:
        dense = DenseWriter(obsm, "Y", matrix.shape[1], matrix.dtype, 8 * CHUNK_ELEMENTS)
        dense.append(matrix)
        dense.close()
    if outputs.names is not None:
        write_texts(_child(root, "uns"), "Y_names", outputs.names)


def write_vector(group: zarr.Group, name: str, values: Values) -> None:
    """A one-dimensional array of numbers."""
    chunks = (max(min(len(values), CHUNK_ELEMENTS), 1),)
    array = new_array(group, name, values.shape, values.dtype, chunks, attributes=ARRAY_ENCODING)
    if len(values):
        array[:] = values


def write_texts(group: zarr.Group, name: str, texts: Values) -> None:
    """A one-dimensional array of text."""
    writer = NameWriter(group, name)
    writer.append(texts)
    writer.close()


def _frame(columns: Iterable[str]) -> Mapping[str, Any]:
    order = list(columns)
    return {
        "encoding-type": "dataframe",
        "encoding-version": "0.2.0",
        "_index": "_index",
        "column-order": order,
    }


def _child(root: zarr.Group, name: str) -> zarr.Group:
    child = root[name]
    assert isinstance(child, zarr.Group)
    return child
