"""Row batches, labels and names as an AnnData-layout Zarr store, written in whole chunks and bounded memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import zarr

from dlatent.errors import DataError
from dlatent.stores.chunked import ALL_WRITTEN, GrowingArray, write_array
from dlatent.stores.ingest.batches import LabelSets, Values, is_sparse
from dlatent.stores.labels import BEFORE, ROWS_BEFORE
from dlatent.stores.numbers import numbers_of
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


def write_labels(root: zarr.Group, labels: Column | Outputs | None) -> Column | Outputs | None:
    """One label per row as a column of `obs`, classes as a categorical, where -1 means unlabelled; several outputs per
    row as `obsm/Y`, the names of its columns as `uns/Y_names`.  Returns the labels under the name that they got."""
    if isinstance(labels, Outputs):
        matrix, obsm = labels.matrix, _child(root, "obsm")
        writer: CsrWriter | DenseWriter
        if is_sparse(matrix):
            writer = CsrWriter(obsm.create_group("Y"), columns=matrix.shape[1], dtype=matrix.dtype)
        else:
            writer = DenseWriter(obsm, "Y", matrix.shape[1], matrix.dtype, 8 * CHUNK_ELEMENTS)
        writer.append(matrix)
        writer.close()
        if labels.names is not None:
            write_vector(_child(root, "uns"), "Y_names", labels.names)
    elif labels is not None:
        obs, name = _child(root, "obs"), labels.name  # which must be that of a member of a Zarr group
        labels = replace(labels, name=name.replace("/", "_") if name not in ("", ".", "..", "_index") else "label")
        obs.attrs.update(_frame([labels.name]))
        if labels.classes is None:
            values = labels.values.astype(np.uint8) if labels.values.dtype.kind == "b" else labels.values
            write_vector(obs, labels.name, values)
        else:
            attributes = {"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False}
            group = obs.create_group(labels.name, attributes=attributes)
            write_vector(group, "codes", labels.values)
            write_vector(group, "categories", labels.classes)
    return labels


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


@dataclass(frozen=True)
class Column:
    """One label per row: numbers, or codes of named classes (-1: unlabelled)."""

    name: str
    values: Values
    classes: Values | None = None


@dataclass(frozen=True)
class Outputs:
    """Several outputs per row: a dense or CSR matrix with rows as samples, and the names of its columns."""

    matrix: Any
    names: Values | None


class LabelCollector:
    """Holds the labels in memory (text as class numbers, about 8 bytes a row) until all rows have been seen."""

    def __init__(self, name: str, categories: Values | None, *, numeric_text: bool) -> None:
        self._name, self._categories, self._numeric_text = name, categories, numeric_text
        self._known: dict[str, int] = {}
        self._batches: defaultdict[str, list[Any]] = defaultdict(list)

    def add(self, labels: Any) -> None:
        """Take the labels of a batch, in any of its forms."""
        if isinstance(labels, LabelSets):
            self._batches["sets"].append(labels)
        elif labels is not None and labels.ndim == 2:
            self._batches["outputs"].append(labels)
        elif labels is not None and labels.dtype.kind in "biuf":
            self._batches["numbers"].append(labels)
        elif labels is not None and labels.dtype.kind not in "OUST":
            raise DataError(f"the labels are of type {labels.dtype}; give numbers or text")
        elif labels is not None:
            codes = np.fromiter(map(self._code, labels.tolist()), dtype=np.int32, count=len(labels))
            self._batches["codes"].append(codes)

    def finish(self) -> Column | Outputs | None:
        """The labels of all rows, or None where there were none."""
        if not self._batches:
            return None
        if len(self._batches) > 1:
            raise DataError(f"the labels {self._name!r} are numbers in some rows, text in others; make them one kind")
        ((kind, batches),) = self._batches.items()
        if kind == "sets":
            return self._finish_sets(batches)
        values = np.concatenate(batches)
        if kind == "outputs":
            return Outputs(values, self._categories)
        if kind == "codes":
            return self._finish_text(values)
        return Column(self._name, values if self._categories is None else values.astype(np.int32), self._categories)

    def _code(self, value: Any) -> int:
        """Number of a class; None, NaN and empty text are no class."""
        text = label_text(value)
        return self._known.setdefault(text, len(self._known)) if text else -1

    def _finish_text(self, codes: npt.NDArray[np.int32]) -> Column:
        names = np.array(list(self._known), dtype=str)
        numbers = numbers_of(self._known) if self._numeric_text and self._known else None
        if numbers is not None:
            values = numbers if np.all(codes >= 0) else np.append(numbers.astype(np.float64), np.nan)
            return Column(self._name, values[codes])
        order = np.argsort(names)
        ranks = np.append(np.argsort(order), -1).astype(np.int32)
        return Column(self._name, ranks[codes], names[order])

    def _finish_sets(self, batches: list[LabelSets]) -> Column | Outputs | None:
        values = _as_integers(np.concatenate([sets.values for sets in batches]))
        counts = np.concatenate([sets.counts for sets in batches])
        if not len(values):
            return None
        if np.all(counts == 1):
            return Column(self._name, values)
        classes, codes = np.unique(values, return_inverse=True)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        shape = (len(counts), len(classes))
        matrix = sp.csr_array((np.ones(len(codes), dtype=np.float32), codes.ravel(), indptr), shape=shape)
        matrix.sum_duplicates()
        matrix.data[:] = 1
        return Outputs(matrix, classes.astype(str))


def label_text(value: Any) -> str:
    """A label as text, empty where there is none."""
    if value is None or value != value:
        return ""
    return value.decode() if isinstance(value, bytes) else str(value)


def _as_integers(values: Values) -> Values:
    """Numbers as integers where all of them are."""
    fine = np.all(np.isfinite(values)) and np.all(values == np.floor(values)) and np.all(np.abs(values) < 2**53)
    return values.astype(np.int64) if fine else values
