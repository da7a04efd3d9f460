"""Weights of term counts: tf-idf and rows of length one, and what happens to rows of zeros."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array
from dlatent.errors import DataError
from dlatent.stores.ingest.batches import Batch, Reader, is_sparse
from dlatent.stores.ingest.cleaning import refuse, stored
from dlatent.stores.sparse import row_numbers

ZeroRows = Literal["error", "keep", "drop"]
Weighting = Literal["none", "tfidf"]


class DocumentFrequencies:
    """In how many rows each feature is not zero; the number of features may grow from batch to batch.

    Law: additive over rows.
    """

    def __init__(self) -> None:
        self._counts = np.zeros(0, dtype=np.int64)
        self._rows = 0

    def add(self, features: Any) -> None:
        """Count the rows of one batch."""
        if is_sparse(features):
            found = np.bincount(features.indices[features.data != 0], minlength=features.shape[1])
        else:
            found = np.count_nonzero(features, axis=0)
        if len(found) > len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros(len(found) - len(self._counts), dtype=np.int64)])
        self._counts[: len(found)] += found
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
        features = _scale_columns(features, idf)
    return _scale_rows(features) if unit_norm else features


def kept_rows(features: Any, batch: Batch, zero_rows: ZeroRows) -> npt.NDArray[np.bool_] | None:
    """Which rows of a batch to keep (None: all), by what is to happen to rows of zeros.

    Errors: DataError for an all-zero row under "error".
    """
    if zero_rows == "keep":
        return None
    empty = zero(features)
    if not empty.any():
        return None
    if zero_rows == "error":
        raise DataError(
            f"{batch.place(int(np.argmax(empty)))}: all values are zero, so it has no direction to weigh; drop such "
            'rows with zero_rows="drop" or keep them as zeros with zero_rows="keep"'
        )
    return ~empty


def refuse_negative(features: Any, batch: Batch, reader: Reader) -> None:
    """Errors: DataError with row and column where a count is below zero."""
    text = 'the value {value} is negative, but tf-idf needs counts; use weighting="none"'
    refuse(stored(features) < 0, batch, reader, features, text)


def zero(features: Any) -> npt.NDArray[np.bool_]:
    """Which rows hold nothing but zeros."""
    if not is_sparse(features):
        return np.asarray(~features.any(axis=1))
    filled = row_numbers(features)[features.data != 0]
    return np.asarray(np.bincount(filled, minlength=features.shape[0]) == 0)


def _scale_columns(features: Any, factors: Array) -> Any:
    if is_sparse(features):
        features.data *= factors[features.indices]
        return features
    return features * factors


def _scale_rows(features: Any) -> Any:
    """Rows of unit length; divided by their largest value first, so that no square overflows or vanishes."""
    if not is_sparse(features):
        largest = np.max(np.abs(features), axis=1, keepdims=True, initial=0.0)
        features = features / np.where(largest > 0, largest, 1.0)
        lengths = np.sqrt(np.einsum("ij,ij->i", features, features))[:, None]
        return features / np.where(lengths > 0, lengths, 1.0)
    rows = row_numbers(features)
    largest = np.zeros(features.shape[0])
    np.maximum.at(largest, rows, np.abs(features.data))
    features.data /= np.where(largest > 0, largest, 1.0)[rows]
    lengths = np.sqrt(np.bincount(rows, weights=features.data**2, minlength=features.shape[0]))
    features.data /= np.where(lengths > 0, lengths, 1.0)[rows]
    return features
