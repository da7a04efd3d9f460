"""Collects the labels of all batches, and says in the end what they are: one per row, several per row, or outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.errors import DataError
from dlatent.stores.ingest.batches import Batch, LabelSets, Values
from dlatent.stores.numbers import numbers_of


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
        self._name = name
        self._categories = categories
        self._numeric_text = numeric_text
        self._plain: list[Values] = []
        self._codes: list[npt.NDArray[np.int32]] = []
        self._known: dict[str, int] = {}
        self._sets: list[LabelSets] = []
        self._targets: list[Any] = []

    def add(self, batch: Batch, keep: npt.NDArray[np.bool_] | None) -> None:
        """Take the labels of the kept rows of a batch."""
        rows = slice(None) if keep is None else keep
        if batch.labels is not None:
            self._add_column(batch.labels[rows])
        if batch.label_sets is not None:
            self._sets.append(batch.label_sets if keep is None else batch.label_sets.take(keep))
        if batch.targets is not None:
            self._targets.append(batch.targets[rows])

    def finish(self) -> Column | Outputs | None:
        """The labels of all rows, or None where there were none."""
        if self._plain and self._codes:
            raise DataError(f"the labels {self._name!r} are numbers in some rows, text in others; make them one kind")
        if self._targets:
            return Outputs(np.concatenate(self._targets), self._categories)
        if self._sets:
            return self._finish_sets()
        if self._codes:
            return self._finish_text()
        return self._finish_plain() if self._plain else None

    def _add_column(self, values: Values) -> None:
        if values.dtype.kind in "biuf":
            self._plain.append(values)
            return
        if values.dtype.kind not in "OUST":
            raise DataError(f"the labels are of type {values.dtype}; give numbers or text")
        self._codes.append(np.fromiter(map(self._code, values.tolist()), dtype=np.int32, count=len(values)))

    def _code(self, value: Any) -> int:
        """Number of a class; None, NaN and empty text are no class."""
        text = label_text(value)
        return self._known.setdefault(text, len(self._known)) if text else -1

    def _finish_plain(self) -> Column:
        values = np.concatenate(self._plain)
        names: Any = self._categories
        coded = names is not None and values.dtype.kind in "iu" and len(np.unique(names)) == len(names)
        if coded and int(values.min(initial=0)) >= -1 and int(values.max(initial=0)) < len(names):
            return Column(self._name, values.astype(np.int32), names)
        return Column(self._name, values)

    def _finish_text(self) -> Column:
        codes = np.concatenate(self._codes)
        names = np.array(list(self._known), dtype=str)
        numbers = numbers_of(self._known) if self._numeric_text and self._known else None
        if numbers is None:
            order = np.argsort(names)
            rank = np.empty(len(names) + 1, dtype=np.int32)
            rank[order], rank[-1] = np.arange(len(names)), -1
            return Column(self._name, rank[codes], names[order])
        if np.all(codes >= 0):
            return Column(self._name, numbers[codes])
        return Column(self._name, np.append(numbers.astype(np.float64), np.nan)[codes])

    def _finish_sets(self) -> Column | Outputs | None:
        values = _whole(np.concatenate([sets.values for sets in self._sets]))
        counts = np.concatenate([sets.counts for sets in self._sets])
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


def _whole(values: Values) -> Values:
    """Numbers as integers where all of them are."""
    fine = np.all(np.isfinite(values)) and np.all(values == np.floor(values)) and np.all(np.abs(values) < 2**53)
    return values.astype(np.int64) if fine else values
