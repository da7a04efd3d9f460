"""The treatment of every batch before it is written: finite values in canonical form, tf-idf, rows of length one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.linalg import norm as sparse_norm

from dlatent.arrays import Array
from dlatent.errors import DataError
from dlatent.stores.ingest.batches import Batch, Options, Reader, Values, is_sparse
from dlatent.stores.numbers import INEXACT, inexact
from dlatent.stores.rows import canonical
from dlatent.stores.sparse import row_numbers


@dataclass
class Repairs:
    """Counts of what was mended on the way: stored entries that named the same place, and rows out of order."""

    duplicates: int = 0
    unsorted_rows: int = 0


def clean(batch: Batch, reader: Reader, options: Options, repairs: Repairs) -> Batch:
    """The batch with features as a canonical csr_array or a C-ordered matrix of finite numbers (or NaN in the latter,
    where missing values stay), as wide as the reader says.

    Repeated indices are summed and indices out of order sorted, both counted in `repairs`.
    Errors: DataError with row and column for NaN and infinity, for values that are no numbers or that the stored ones
    cannot hold, for features beyond those announced, and for counts below zero.
    """
    features = batch.features
    if features.dtype.kind not in "biuf":
        raise DataError(
            f"{reader.description} holds values of type {features.dtype}; only real numbers can be "
            "ingested, convert them first"
        )
    sparse = is_sparse(features)
    if sparse:
        refuse(inexact(features.data), batch, reader, INEXACT)
        # Not csr.astype: it adds up repeated entries on the way, unseen and in the old type.
        features.data = features.data.astype(_sparse_dtype(features.dtype), copy=False)
        features = _canonical(features, repairs)
    else:
        features = np.ascontiguousarray(features, dtype=_dense_dtype(features.dtype))
    batch = replace(batch, features=features)
    values = stored(features)
    wrong = np.isinf(values) if options.missing == "nan" and not sparse else ~np.isfinite(values)
    text = "the value is {value}; missing and infinite values cannot be ingested, fill them in or drop the row"
    refuse(wrong, batch, reader, text + ("" if sparse else " (missing='nan', --missing nan, keeps missing ones)"))
    if sparse and reader.columns is not None and features.shape[1] != reader.columns:
        announced = f"the {reader.columns} that were announced; give a larger number or more names"
        refuse(features.indices >= reader.columns, batch, reader, f"the feature is beyond {announced}")
        features.resize((features.shape[0], reader.columns))
    if options.dtype == "float32":
        text = 'the value {value} is beyond float32; use dtype="float64"'
        refuse(np.abs(values) > np.finfo(np.float32).max, batch, reader, text)
    if options.weighting == "tfidf":
        text = 'the value {value} is negative, but tf-idf needs counts; use weighting="none"'
        refuse(values < 0, batch, reader, text)
    return batch


def stored(features: Any) -> Values:
    """The values of a batch that are there: of all places, or of those that sparse rows store."""
    return features.data if is_sparse(features) else features


def refuse(wrong: npt.NDArray[np.bool_], batch: Batch, reader: Reader, text: str) -> None:
    """Raise a DataError for the first of the `stored` values where `wrong` holds, naming its row and column; `{value}`
    is filled in."""
    if not wrong.any():
        return
    features, first = batch.features, int(np.argmax(wrong.ravel()))
    if is_sparse(features):
        row, column = int(row_numbers(features)[first]), int(features.indices[first])
    else:
        row, column = divmod(first, wrong.shape[1])
    value = stored(features).ravel()[first]
    raise DataError(f"{batch.place(row)}, {reader.column(column)}: {text.format(value=value)}")


def _canonical(matrix: sp.csr_array, repairs: Repairs) -> sp.csr_array:
    rows = row_numbers(matrix)
    backwards = (np.diff(matrix.indices) < 0) & (rows[1:] == rows[:-1])
    repairs.unsorted_rows += len(np.unique(rows[1:][backwards]))
    merged = canonical(matrix)
    repairs.duplicates += matrix.nnz - merged.nnz
    return merged


def _sparse_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Sparse values are floats: sums of repeated integers would overflow, and the store keeps floats."""
    return np.dtype(np.float32) if dtype.kind == "f" and dtype.itemsize <= 4 else np.dtype(np.float64)


def _dense_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Native byte order; float32, float64 and integers are kept, other types become the nearest of them."""
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    return _sparse_dtype(dtype) if dtype.kind == "f" else dtype.newbyteorder("=")


class DocumentFrequencies:
    """In how many rows each feature is not zero; the number of features may grow from batch to batch.

    Law: additive over rows.
    """

    def __init__(self) -> None:
        self._counts = np.zeros(0, dtype=np.int64)
        self._rows = 0

    def add(self, features: Any) -> None:
        """Count the rows of one batch."""
        counts = np.asarray((features != 0).sum(axis=0))
        width = max(len(counts), len(self._counts))
        self._counts = np.add(*(np.pad(part, (0, width - len(part))) for part in (self._counts, counts)))
        self._rows += int(features.shape[0])

    def inverse(self) -> Array:
        """Smooth idf ln((1 + N) / (1 + df)) + 1 of each feature, as scikit-learn defines it."""
        return np.asarray(np.log((1 + self._rows) / (1 + self._counts)) + 1, dtype=np.float64)


def weigh(features: Any, idf: Array | None, *, unit_norm: bool) -> Any:
    """Counts times `idf` (None: as they are), then rows scaled to unit Euclidean length; computed in float64."""
    if idf is None and not unit_norm:
        return features
    features = features.astype(np.float64)
    if idf is not None:
        values = stored(features)
        values *= idf[features.indices] if is_sparse(features) else idf
    return _scale_rows(features) if unit_norm and features.size else features


def zero_rows(features: Any) -> npt.NDArray[np.bool_]:
    """Which rows hold nothing but zeros."""
    return np.asarray((features != 0).sum(axis=1) == 0)


def _scale_rows(features: Any) -> Any:
    """Rows of unit length; divided by their largest value first, so that no square overflows or vanishes."""
    norm, values = sparse_norm if is_sparse(features) else np.linalg.norm, stored(features)
    for order in (np.inf, 2):
        lengths = norm(features, order, axis=1)[:, None]
        scale = np.where(lengths > 0, lengths, 1.0)
        values /= scale[row_numbers(features), 0] if is_sparse(features) else scale
    return features
