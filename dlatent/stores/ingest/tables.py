"""Tables with named columns as data: CSV and Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.errors import DataError
from dlatent.stores.files import ByteSource
from dlatent.stores.ingest.batches import Batch, Mark, Options, Reader, files_reader, numbered
from dlatent.stores.numbers import as_float64, is_real
from dlatent.stores.table_files import ROW_NAMES, ParquetFile, csv_frames, csv_names


def open_csv(locations: Sequence[str], options: Options, _: Path) -> Reader:
    """Comma-separated text with a header line (tabs for .tsv); labels are numbers where all of them are.

    A first column without a name, and a field more than the header has at the beginning of all rows, names the rows.
    """

    def columns(source: ByteSource) -> tuple[list[str], list[str]]:
        names = csv_names(source)
        if all(is_real(name) for name in names):
            raise DataError(f"{source.name} line 1 holds numbers, not the names of the columns; add a header line")
        return names, [name for name in names if name == ROW_NAMES]

    def frames(source: ByteSource, rows: int, _: Sequence[str], texts: Sequence[str]) -> Iterator[Any]:
        return csv_frames(source, names=csv_names(source), chunksize=rows, dtype=dict.fromkeys(texts, str))

    return _table_reader(locations, options, columns, frames, numeric_text=True)


def open_parquet(locations: Sequence[str], options: Options, _: Path) -> Reader:
    """Parquet files, read by row groups; a stored pandas index names the rows."""

    def columns(source: ByteSource) -> tuple[list[str], list[str]]:
        file = ParquetFile(source.location)
        return file.names, [name for name in file.index if name in file.names]

    def frames(source: ByteSource, rows: int, numbers: Sequence[str], texts: Sequence[str]) -> Iterator[Any]:
        file, seen = ParquetFile(source.location), 0
        for batch in file.batches(rows, [*numbers, *texts]):
            for column in numbers:  # where values are missing, all of the column becomes float64
                values = batch.column(column)
                if str(values.type) in ("int64", "uint64") and values.null_count:
                    as_float64(np.asarray(values.fill_null(0)), partial(_place, source.name, seen, column), "")
            seen += batch.num_rows
            source.position = source.size * seen // max(file.rows, 1)
            yield batch.to_pandas(ignore_metadata=True)

    return _table_reader(locations, options, columns, frames)


def _table_reader(
    locations: Sequence[str],
    options: Options,
    columns: Callable[[ByteSource], tuple[list[str], list[str]]],
    frames: Callable[[ByteSource, int, Sequence[str], Sequence[str]], Iterator[Any]],
    **known: Any,
) -> Reader:
    """A reader of chosen columns, which hold numbers, with labels and names of rows by column.

    Parameters: `columns`, names of the columns of a file, and those of them that name the rows; `frames`, the rows of a
    file as pandas data frames of about so many rows, with these columns of numbers and those of text.
    """
    sources = [ByteSource(location) for location in locations]
    labels = [options.labels] if isinstance(options.labels, str) else list(options.labels or ())
    names, index = columns(sources[0])
    ids = [index[0] if options.ids is None else options.ids] if options.ids is not None or len(index) == 1 else []
    features = [name for name in names if name not in {*labels, *ids, *index}]
    if isinstance(options.features, str):
        features = [options.features]
    elif isinstance(options.features, Sequence):
        features = [*map(str, options.features)]
    for source in sources:
        _check_present([*features, *{*labels, *ids}], columns(source)[0], source.name)
    if not features:
        raise DataError(f"{', '.join(source.name for source in sources)} has no column left for the features")
    numbers, texts = (features, [*labels, *ids]) if len(labels) == 1 else ([*features, *labels], ids)

    def batch_of(frame: Any, name: str, start: int) -> Batch:
        single = all(frame[column].dtype == np.float32 for column in features)
        matrix = np.empty((len(frame), len(features)), dtype=np.float32 if single else np.float64)
        for position, column in enumerate(features):
            matrix[:, position] = _numbers(frame[column], name, start, WAYS)
        outputs = frame[labels[0]].to_numpy() if len(labels) == 1 else None
        if len(labels) > 1:
            outputs = np.stack([_numbers(frame[column], name, start) for column in labels], axis=1)
        row_names = frame[ids[0]].astype(str).to_numpy() if ids else None
        return Batch(matrix, partial(numbered, name, start), outputs, row_names)

    def batches_of(source: ByteSource, batch_bytes: int, mark: Mark) -> Iterator[Batch]:
        start = 0
        for frame in frames(source, max(batch_bytes // (24 * (len(features) + len(labels))), 1), numbers, texts):
            if start >= mark.position:  # only reading them tells where the rows of a table end
                yield replace(batch_of(frame, source.name, start), behind=Mark(mark.file, start + len(frame)))
            start += len(frame)

    if len(labels) == 1:
        known["label_name"] = labels[0]
    elif labels:
        known["categories"] = np.array(labels, dtype=str)
    return files_reader(sources, batches_of, columns=len(features), column_names=np.array(features, dtype=str), **known)


def _check_present(wanted: Sequence[str], names: list[str], place: str) -> None:
    missing = [repr(name) for name in wanted if name not in names]
    if missing:
        some = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise DataError(f"{place} has no column {', '.join(missing)}; it has {some}")


WAYS = (
    "name the columns of features (features=, --features), or this one as names of rows (ids=) or labels (labels=), or "
)
"""Hint for a column of features that is not numeric."""


def _numbers(column: Any, name: str, start: int, ways: str = "") -> npt.NDArray[np.float64]:
    """A column as float64 (missing values as NaN); its first entry that is no number is named."""
    refusal = f": {{value!r}} is not a number; {ways}encode it as numbers"
    return as_float64(column.to_numpy(), partial(_place, name, start, str(column.name)), refusal)


def _place(name: str, start: int, column: str, row: int) -> str:
    return f"{numbered(name, start, row)}, column {column!r}"
