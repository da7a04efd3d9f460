"""Tables with named columns as data: CSV and Parquet."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.errors import DataError
from dlatent.stores.byte_source import ByteSource
from dlatent.stores.ingest.batches import Batch, FilesReader, Mark, numbered
from dlatent.stores.numbers import EXACT, INEXACT, inexact, is_real, real
from dlatent.stores.table_files import ROW_NAMES, ParquetFile, csv_frames, csv_names


class TableReader(FilesReader):
    """What CSV and Parquet have in common: choosing columns, checking that they hold numbers, labels by name."""

    def __init__(
        self,
        locations: Sequence[str],
        *,
        labels: str | Sequence[str] | None = None,
        features: Sequence[str] | None = None,
        ids: str | None = None,
    ) -> None:
        super().__init__(locations)
        self._labels = [labels] if isinstance(labels, str) else list(labels or ())
        given, index = self._column_names(self._sources[0]), self._index(self._sources[0])
        self._ids = index[0] if ids is None and len(index) == 1 else ids
        aside = {*self._labels, *([self._ids] if self._ids is not None else ())}
        chosen = list(features) if features is not None else [name for name in given if name not in {*aside, *index}]
        for source in self._sources:
            self._check_present([*chosen, *aside], source)
        if not chosen:
            raise DataError(f"{self.description} has no column left for the features")
        self.column_names, self.columns = np.array(chosen, dtype=str), len(chosen)
        if len(self._labels) == 1:
            self.label_name = self._labels[0]
        elif self._labels:
            self.categories = np.array(self._labels, dtype=str)

    @abstractmethod
    def _column_names(self, source: ByteSource) -> list[str]:
        """Names of all columns of one file."""

    @abstractmethod
    def _index(self, source: ByteSource) -> list[str]:
        """Those of its columns that name the rows."""

    @abstractmethod
    def _frames(self, source: ByteSource, rows: int) -> Iterator[Any]:
        """The rows of one file as pandas data frames of about `rows` rows."""

    def _batches_of(self, source: ByteSource, batch_bytes: int, mark: Mark) -> Iterator[tuple[Batch, Mark]]:
        assert self.column_names is not None
        rows = max(batch_bytes // (24 * (len(self.column_names) + len(self._labels))), 1)
        start = 0
        for frame in self._frames(source, rows):
            stop = start + len(frame)
            if start >= mark.position:  # only reading them tells where the rows of a table end
                yield self._batch(frame, source.name, start), Mark(mark.file, stop)
            start = stop

    def _batch(self, frame: Any, name: str, start: int) -> Batch:
        assert self.column_names is not None
        single = all(frame[str(column)].dtype == np.float32 for column in self.column_names)
        features = np.empty((len(frame), len(self.column_names)), dtype=np.float32 if single else np.float64)
        for index, column in enumerate(self.column_names):
            features[:, index] = _numbers(frame[str(column)], name, start)
        several = len(self._labels) > 1
        targets = [_numbers(frame[column], name, start, what="label") for column in self._labels] if several else None
        return Batch(
            features,
            partial(numbered, name, start),
            labels=frame[self._labels[0]].to_numpy() if len(self._labels) == 1 else None,
            targets=None if targets is None else np.stack(targets, axis=1),
            ids=frame[self._ids].astype(str).to_numpy() if self._ids is not None else None,
        )

    def _check_present(self, wanted: list[str], source: ByteSource) -> None:
        given = self._column_names(source)
        missing = [repr(name) for name in wanted if name not in given]
        if missing:
            shown = ", ".join(given[:20]) + (", ..." if len(given) > 20 else "")
            raise DataError(f"{source.name} has no column {', '.join(missing)}; it has {shown}")


class CsvReader(TableReader):
    """Comma-separated text with a header line (tabs for .tsv); labels are numbers where all of them are.

    A first column without a name, and a field more than the header has at the beginning of all rows, names the rows.
    """

    numeric_text = True

    def _column_names(self, source: ByteSource) -> list[str]:
        names = csv_names(source)
        if all(is_real(name) for name in names):
            raise DataError(f"{source.name} line 1 holds numbers, not the names of the columns; add a header line")
        return names

    def _index(self, source: ByteSource) -> list[str]:
        return [name for name in csv_names(source) if name == ROW_NAMES]

    def _frames(self, source: ByteSource, rows: int) -> Iterator[Any]:
        kept = [*self._labels, *([self._ids] if self._ids is not None else ())]
        texts = dict.fromkeys(kept if len(self._labels) <= 1 else kept[len(self._labels) :], str)
        yield from csv_frames(source, names=csv_names(source), chunksize=rows, dtype=texts)


class ParquetReader(TableReader):
    """Parquet files, read by row groups; a stored pandas index names the rows."""

    def _column_names(self, source: ByteSource) -> list[str]:
        return ParquetFile(source.location).names

    def _index(self, source: ByteSource) -> list[str]:
        file = ParquetFile(source.location)
        return [name for name in file.index if name in file.names]

    def _frames(self, source: ByteSource, rows: int) -> Iterator[Any]:
        assert self.column_names is not None
        file = ParquetFile(source.location)
        wanted = [*map(str, self.column_names), *self._labels, *([self._ids] if self._ids is not None else ())]
        seen = 0
        for batch in file.batches(rows, wanted):
            self._check_exact(batch, source.name, seen)
            seen += batch.num_rows
            source.position = source.size * seen // max(file.rows, 1)
            yield batch.to_pandas(ignore_metadata=True)

    def _check_exact(self, batch: Any, name: str, start: int) -> None:
        """Refuse integers that change where a column has missing values, because all of it then becomes float64."""
        aside = {self._ids, *(self._labels if len(self._labels) == 1 else ())}
        for column, values in zip(batch.schema.names, batch.columns, strict=True):
            if str(values.type) in ("int64", "uint64") and values.null_count and column not in aside:
                _refuse_inexact(np.asarray(values.fill_null(0)), name, start, column)


WAYS = "name the columns of features (features=, --features), or this one as names of rows (ids=) or labels (labels=)"
"""What else a column may be."""


def _numbers(column: Any, name: str, start: int, what: str = "feature") -> npt.NDArray[np.float64]:
    """A column as float64 (missing values as NaN); its first entry that is no number is named."""
    import pandas

    if pandas.api.types.is_numeric_dtype(column.dtype) and column.dtype.kind != "c":
        if column.dtype.kind in "iu":
            _refuse_inexact(column.to_numpy(), name, start, str(column.name))
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    numbers = pandas.to_numeric(column, errors="coerce")
    wrong = np.flatnonzero(numbers.isna().to_numpy() & column.notna().to_numpy())
    if len(wrong) or column.dtype.kind in "mM":
        first = int(wrong[0]) if len(wrong) else 0
        raise DataError(
            f"{name} row {start + first + 1}, column {column.name!r}: {str(column.iloc[first])!r} is not a number; "
            + (f"{WAYS}, or " if what == "feature" else "")
            + "encode it as numbers"
        )
    found = np.array(numbers.to_numpy(dtype=np.float64, na_value=np.nan))
    for row, value in enumerate(column):  # pandas rounds some texts to a neighbour of the nearest number
        if isinstance(value, str) or (isinstance(value, int) and abs(value) > EXACT):
            found[row] = _number(str(value), f"{name} row {start + row + 1}, column {column.name!r}")
    return found


def _refuse_inexact(values: npt.NDArray[Any], name: str, start: int, column: str) -> None:
    wrong = np.flatnonzero(inexact(values))
    if len(wrong):
        text = INEXACT.format(value=values[wrong[0]])
        raise DataError(f"{name} row {start + int(wrong[0]) + 1}, column {column!r}: {text}")


def _number(text: str, place: str) -> float:
    try:
        return real(text.strip())
    except ValueError as error:
        raise DataError(f"{place}: {error}") from None
