"""Tables with named columns: CSV (pandas) and Parquet (pyarrow), both optional dependencies."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.errors import DataError
from dlatent.stores.byte_source import ByteSource, path_or_stream
from dlatent.stores.ingest.batches import Batch, Reader, numbered
from dlatent.stores.limits import DEFAULT, Limits
from dlatent.stores.numbers import EXACT, INEXACT, inexact, is_real, real


class TableReader(Reader):
    """What CSV and Parquet have in common: choosing columns, checking that they hold numbers, labels by name."""

    def __init__(
        self,
        locations: Sequence[str],
        *,
        labels: str | Sequence[str] | None = None,
        features: Sequence[str] | None = None,
        ids: str | None = None,
        limits: Limits = DEFAULT,
    ) -> None:
        self._sources = [ByteSource(location, limits) for location in locations]
        super().__init__(", ".join(source.name for source in self._sources), sum(s.size for s in self._sources))
        self._labels = [labels] if isinstance(labels, str) else list(labels or ())
        self._ids = ids
        given = self._column_names(self._sources[0])
        aside = {*self._labels, *([self._ids] if self._ids else ())}
        chosen = list(features) if features is not None else [name for name in given if name not in aside]
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
    def _frames(self, source: ByteSource, rows: int) -> Iterator[Any]:
        """The rows of one file as pandas data frames of about `rows` rows."""

    def batches(self, batch_bytes: int) -> Iterator[Batch]:
        """The rows in order."""
        assert self.column_names is not None
        rows = max(batch_bytes // (24 * (len(self.column_names) + len(self._labels))), 1)
        done = 0
        for source in self._sources:
            start, before = 0, done
            for frame in self._frames(source, rows):
                yield self._batch(frame, source.name, start)
                self.bytes_done = before + min(source.position, source.size)
                start += len(frame)
            done = self.bytes_done = before + source.size

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
            numbered(name, start),
            labels=frame[self._labels[0]].to_numpy() if len(self._labels) == 1 else None,
            targets=None if targets is None else np.stack(targets, axis=1),
            ids=frame[self._ids].astype(str).to_numpy() if self._ids else None,
        )

    def _check_present(self, wanted: list[str], source: ByteSource) -> None:
        given = self._column_names(source)
        missing = [repr(name) for name in wanted if name not in given]
        if missing:
            shown = ", ".join(given[:20]) + (", ..." if len(given) > 20 else "")
            raise DataError(f"{source.name} has no column {', '.join(missing)}; it has {shown}")


class CsvReader(TableReader):
    """Comma-separated text with a header line (tabs for .tsv); labels are numbers where all of them are."""

    numeric_text = True

    def _column_names(self, source: ByteSource) -> list[str]:
        names = [str(name) for name in next(self._parse(source, nrows=0)).columns]
        if all(is_real(name) for name in names):
            raise DataError(f"{source.name} line 1 holds numbers, not the names of the columns; add a header line")
        return names

    def _frames(self, source: ByteSource, rows: int) -> Iterator[Any]:
        kept = [*self._labels, *([self._ids] if self._ids else ())]
        texts = dict.fromkeys(kept if len(self._labels) <= 1 else kept[len(self._labels) :], str)
        yield from self._parse(source, chunksize=rows, dtype=texts)

    def _parse(self, source: ByteSource, **options: Any) -> Iterator[Any]:
        pandas = needed("pandas", source.name)
        separator = "\t" if ".tsv" in source.name.lower() else ","
        fixed = {"sep": separator, "index_col": False, "skip_blank_lines": False, "low_memory": False}
        with source.open() as stream:
            try:
                parsed = pandas.read_csv(stream, float_precision="round_trip", **fixed, **options)
                for frame in [parsed] if "nrows" in options else parsed:
                    source.mark()
                    yield frame
            except (pandas.errors.ParserError, pandas.errors.EmptyDataError, UnicodeDecodeError) as error:
                raise DataError(f"{source.name} is no readable table: {str(error).strip()}") from error


class ParquetReader(TableReader):
    """Parquet files, read by row groups; a stored pandas index names the rows."""

    def _column_names(self, source: ByteSource) -> list[str]:
        names = [str(name) for name in self._file(source).schema_arrow.names]
        index = self._stored_index(source)
        if self._ids is None and index in names:
            self._ids = index
        return names

    def _frames(self, source: ByteSource, rows: int) -> Iterator[Any]:
        assert self.column_names is not None
        file = self._file(source)
        wanted = [*map(str, self.column_names), *self._labels, *([self._ids] if self._ids else ())]
        seen, total = 0, max(file.metadata.num_rows, 1)
        # One row group at a time: asked for all at once, pyarrow keeps the whole file in memory.
        for group in range(file.metadata.num_row_groups):
            for batch in file.iter_batches(batch_size=rows, row_groups=[group], columns=wanted, use_threads=False):
                seen += batch.num_rows
                source.position = source.size * seen // total
                self._check_exact(batch, source.name, seen - batch.num_rows)
                yield batch.to_pandas(ignore_metadata=True)

    def _check_exact(self, batch: Any, name: str, start: int) -> None:
        """Refuse integers that change where a column has missing values, because all of it then becomes float64."""
        aside = {self._ids, *(self._labels if len(self._labels) == 1 else ())}
        for column, values in zip(batch.schema.names, batch.columns, strict=True):
            if str(values.type) in ("int64", "uint64") and values.null_count and column not in aside:
                whole = np.asarray(values.fill_null(0))
                _refuse_inexact(whole, name, start, column)

    def _stored_index(self, source: ByteSource) -> str | None:
        stored = (self._file(source).schema_arrow.pandas_metadata or {}).get("index_columns", [])
        names = [name for name in stored if isinstance(name, str)]
        return names[0] if len(names) == 1 else None

    def _file(self, source: ByteSource) -> Any:
        arrow = needed("pyarrow", source.name)
        try:
            return importlib.import_module("pyarrow.parquet").ParquetFile(
                path_or_stream(source.location), pre_buffer=False
            )
        except (arrow.ArrowInvalid, OSError) as error:
            raise DataError(f"{source.location} is no readable Parquet file: {error}") from error


def needed(package: str, name: str) -> Any:
    """An optional package, or a DataError that says how to install it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise DataError(f"{name} needs the package {package}: pip install 'dlatent[files]'") from error


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
            f"name the columns to use as {what}s, or encode this one as numbers"
        )
    if numbers.dtype.kind in "iuf" and column.dtype == object:  # of integers beyond 64 bits, pandas makes no numbers
        for row, value in enumerate(column):
            if isinstance(value, str) or (isinstance(value, int) and abs(value) > EXACT):
                _check_text(str(value), f"{name} row {start + row + 1}, column {column.name!r}")
    return np.asarray(numbers.to_numpy(dtype=np.float64, na_value=np.nan))


def _refuse_inexact(values: npt.NDArray[Any], name: str, start: int, column: str) -> None:
    wrong = np.flatnonzero(inexact(values))
    if len(wrong):
        text = INEXACT.format(value=values[wrong[0]])
        raise DataError(f"{name} row {start + int(wrong[0]) + 1}, column {column!r}: {text}")


def _check_text(text: str, place: str) -> None:
    try:
        real(text.strip())
    except ValueError as error:
        raise DataError(f"{place}: {error}") from None
