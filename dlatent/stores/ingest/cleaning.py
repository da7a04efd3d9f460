"""What every batch goes through before it is weighted and written: finite values in canonical form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.errors import DataError
from dlatent.stores.ingest.batches import Batch, Reader, Values, is_sparse
from dlatent.stores.numbers import INEXACT, inexact


@dataclass
class Repairs:
    """Counts of what was mended on the way: stored entries that named the same place, and rows out of order."""

    duplicates: int = 0
    unsorted_rows: int = 0


def clean(batch: Batch, reader: Reader, repairs: Repairs, *, holes: bool = False) -> Any:
    """Features as a canonical csr_array or a C-ordered matrix of finite numbers; `holes` lets NaN pass in the latter.

    Repeated indices are summed and indices out of order sorted, both counted in `repairs`.
    Errors: DataError with row and column for NaN and infinity, and for values that are no numbers.
    """
    features = batch.features
    kind = features.dtype.kind
    if kind not in "biuf":
        raise DataError(
            f"{reader.description} holds values of type {features.dtype}; only real numbers can be "
            "ingested, convert them first"
        )
    if is_sparse(features):
        refuse(inexact(features.data), batch, reader, features, INEXACT)
        # Not csr.astype: it adds up repeated entries on the way, unseen and in the old type.
        features.data = features.data.astype(_sparse_dtype(features.dtype), copy=False)
        made: Any = _canonical(features, repairs)
    else:
        made = np.ascontiguousarray(features, dtype=_dense_dtype(features.dtype))
    _check_finite(made, batch, reader, holes=holes)
    return made


def stored(features: Any) -> Values:
    """The values of a batch that are there: of all places, or of those that sparse rows store."""
    return features.data if is_sparse(features) else features


def refuse(wrong: npt.NDArray[np.bool_], batch: Batch, reader: Reader, features: Any, text: str) -> None:
    """Raise a DataError for the first of the `stored` values where `wrong` holds, naming its row and column; `{value}`
    is filled in."""
    if not wrong.any():
        return
    first = int(np.argmax(wrong.ravel()))
    if is_sparse(features):
        row, column = entry_row(features, first), int(features.indices[first])
        value = features.data[first]
    else:
        row, column = divmod(first, wrong.shape[1])
        value = batch.features[row, column]
    raise DataError(f"{batch.place(row)}, {reader.column(column)}: {text.format(value=value)}")


def entry_row(matrix: sp.csr_array, entry: int) -> int:
    """Row of a stored entry."""
    return int(np.searchsorted(matrix.indptr, entry, side="right")) - 1


def _check_finite(features: Any, batch: Batch, reader: Reader, *, holes: bool) -> None:
    values = stored(features)
    # One sum finds out in most cases: it is finite only if every term is, up to overflow.
    if values.dtype.kind == "f" and not np.isfinite(values.sum(dtype=np.float64)):
        text = "the value is {value}; missing and infinite values cannot be ingested, fill them in or drop the row"
        dense = not is_sparse(features)
        text += " (missing='nan', --missing nan, keeps missing ones)" if dense else ""
        refuse(np.isinf(values) if holes and dense else ~np.isfinite(values), batch, reader, features, text)


def _canonical(matrix: sp.csr_array, repairs: Repairs) -> sp.csr_array:
    steps = np.diff(matrix.indices)
    inside = np.ones(len(steps), dtype=bool)
    cuts = matrix.indptr[1:-1]
    inside[cuts[(cuts > 0) & (cuts <= len(steps))] - 1] = False
    if np.all(steps[inside] > 0):
        matrix.has_canonical_format = True
        return matrix
    backwards = np.flatnonzero((steps < 0) & inside)
    repairs.unsorted_rows += len(np.unique(np.searchsorted(matrix.indptr, backwards, side="right")))
    before = matrix.nnz
    made = matrix.copy()
    made.sum_duplicates()
    repairs.duplicates += before - made.nnz
    return made


def _sparse_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Sparse values are floats: sums of repeated integers would overflow, and the store keeps floats."""
    return np.dtype(np.float32) if dtype.kind == "f" and dtype.itemsize <= 4 else np.dtype(np.float64)


def _dense_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Native byte order; float32, float64 and integers are kept, other types become the nearest of them."""
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    if dtype.kind == "f":
        return np.dtype(np.float32) if dtype.itemsize <= 4 else np.dtype(np.float64)
    return dtype.newbyteorder("=")
