"""Writes row batches, labels and names as an AnnData-layout Zarr store, in whole chunks and bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from dlatent.errors import DataError
from dlatent.stores.chunked import ALL_WRITTEN, GrowingArray, write_array
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
    """Appends rows to a dense array `name` whose chunks are blocks of rows, of `block_bytes` bytes at most.

    `rows` and `nnz` count the rows and the values other than zero so far.
    """

    def __init__(self, group: zarr.Group, name: str, columns: int, dtype: npt.DTypeLike, block_bytes: int) -> None:
        height = max(min(block_bytes, CHUNK_BYTES) // max(columns * np.dtype(dtype).itemsize, 1), 1)
        kept = {**ARRAY_ENCODING, **ALL_WRITTEN}
        self._array = GrowingArray(group, name, dtype, height, columns=(columns,), attributes=kept, fits=True)
        self._columns = columns
        self.rows = self.nnz = 0

    def append(self, rows: Any) -> None:
        """Add rows."""
        self.nnz += int(np.count_nonzero(rows))
        self.rows += len(rows)
        self._array.append(rows)

    def close(self) -> tuple[int, int]:
        """Write the rest; return the shape."""
        self._array.close()
        return self.rows, self._columns


def name_writer(root: zarr.Group, frame: str) -> GrowingArray:
    """The index of a data frame, `obs` or `var`, to which names or numbers are appended."""
    return GrowingArray(_child(root, frame), "_index", str, NAMES_PER_CHUNK, attributes=STRINGS)


def start_layout(root: zarr.Group) -> None:
    """The groups that every AnnData store has."""
    root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    for name in ("layers", "obsm", "obsp", "uns", "varm", "varp"):
        root.create_group(name, attributes=dict(DICTIONARY))
    for name in ("obs", "var"):
        root.create_group(name, attributes=_frame([]))


def write_before(root: zarr.Group, kept: npt.NDArray[np.int64], rows: int) -> None:
    """Which of so many `rows` of the file were `kept` (N,), in `uns`."""
    uns = _child(root, "uns")
    write_vector(uns, BEFORE, kept)
    uns[BEFORE].attrs[ROWS_BEFORE] = rows


def write_feature_names(root: zarr.Group, names: Values | None, columns: int) -> None:
    """The index of `var`: the names given, or numbers."""
    if names is not None and len(names) != columns:
        raise DataError(f"there are {len(names)} feature names for {columns} features; give exactly one for each")
    writer = name_writer(root, "var")
    writer.append(np.arange(columns) if names is None else names)
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
    write_vector(group, "categories", column.classes)


def write_outputs(root: zarr.Group, outputs: Outputs) -> None:
    """Several outputs per row as `obsm/Y`, the names of its columns as `uns/Y_names`."""
    obsm = _child(root, "obsm")
    matrix = outputs.matrix
    writer: CsrWriter | DenseWriter
    if is_sparse(matrix):
        writer = CsrWriter(obsm.create_group("Y"), columns=matrix.shape[1], dtype=matrix.dtype)
    else:
        writer = DenseWriter(obsm, "Y", matrix.shape[1], matrix.dtype, 8 * CHUNK_ELEMENTS)
    writer.append(matrix)
    writer.close()
    if outputs.names is not None:
        write_vector(_child(root, "uns"), "Y_names", outputs.names)


def write_vector(group: zarr.Group, name: str, values: Values) -> None:
    """A one-dimensional array of numbers or text."""
    text = values.dtype.kind in "OTU"
    chunk = NAMES_PER_CHUNK if text else max(min(len(values), CHUNK_ELEMENTS), 1)
    write_array(group, name, values, (chunk,), attributes=STRINGS if text else ARRAY_ENCODING)


def _frame(columns: Iterable[str]) -> Mapping[str, Any]:
    kept = {"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"}
    return {**kept, "column-order": list(columns)}


def _child(root: zarr.Group, name: str) -> zarr.Group:
    child = root[name]
    assert isinstance(child, zarr.Group)
    return child
