"""Tables in files, piece by piece as pandas data frames: CSV by pandas, Parquet by pyarrow, an optional dependency."""

from __future__ import annotations

import codecs
import csv
import importlib
import io
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from dlatent.errors import DataError
from dlatent.stores.files import LONGEST_LINE, ByteSource, path_or_stream


def needed(package: str, name: str) -> Any:
    """An optional package, or a DataError that says how to install it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise DataError(f"{name} needs the package {package}: pip install {package}") from error


ROW_NAMES = ""
"""The name of a column that has none: the first one, or one more than the header has, with the names of the rows."""
END = "\x1e"
"""A line that stands behind the last one."""


def separator(name: str) -> str:
    """Return the separator of the fields of a text file."""
    return "\t" if ".tsv" in name.lower() else ","


def csv_names(source: ByteSource) -> list[str]:
    """Names of the columns that the rows of a text have; that of the names of the rows is `ROW_NAMES`.

    Errors: DataError where nothing is there.
    """
    pandas = needed("pandas", source.name)
    with source.open() as stream:
        lines = io.TextIOWrapper(stream, "utf-8-sig", newline="")
        records = csv.reader(iter(partial(lines.readline, LONGEST_LINE), ""), delimiter=separator(source.name))
        try:
            header, first = next(records, []), next((record for record in records if record), [])
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"{source.name} is no readable table: {error}") from error
    if not any(header):
        raise DataError(f"{source.name} is no readable table: it has no columns")
    text = io.StringIO()
    csv.writer(text).writerow(header)
    names = [str(name) for name in pandas.read_csv(io.StringIO(text.getvalue()), index_col=False, nrows=0).columns]
    if len(first) == len(header) + 1 and first[-1]:
        return [ROW_NAMES, *names]
    return [name if at or header[0] else ROW_NAMES for at, name in enumerate(names)]


def csv_frames(source: ByteSource, *, names: Sequence[Any], header: bool = True, **options: Any) -> Iterator[Any]:
    """The table of a text, or several with `chunksize` among the `options` of `pandas.read_csv`; none of nothing.

    Parameters: `names`, those of the fields of every row; `header`, whether other names stand before the rows.
    Errors: DataError with the line of a row that has not so many fields.
    """
    pandas = needed("pandas", source.name)
    fixed = {"sep": separator(source.name), "index_col": False, "low_memory": False, "skip_blank_lines": False}
    if tuple(map(int, pandas.__version__.split(".")[:2])) < (3, 1):  # newer ones read the nearest number by themselves
        fixed["float_precision"] = "round_trip"
    with source.open() as stream:
        checked = io.BufferedReader(_Records(stream, source, len(names), header), 1 << 18)
        try:
            parsed = pandas.read_csv(checked, names=list(names), header=0 if header else None, **fixed, **options)
            for frame in parsed if "chunksize" in options else [parsed]:
                source.mark()
                yield frame
        except pandas.errors.EmptyDataError:
            return
        except (pandas.errors.ParserError, UnicodeDecodeError) as error:
            raise DataError(f"{source.name} is no readable table: {str(error).strip()}") from error


class _Records(io.RawIOBase):
    """The text of a table as it is read, in which every row has so many fields; blank lines pass.

    pandas fills up short rows, and cuts long ones where they begin a chunk.
    """

    def __init__(self, stream: Any, source: ByteSource, fields: int, header: bool) -> None:
        self._stream, self._name, self._separator = stream, source.name, separator(source.name)
        self._fields, self._header, self._line, self._rest = fields, header, 1, b""

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes."""
        count = int(self._stream.readinto(buffer))
        text = self._rest + bytes(memoryview(buffer)[:count])
        if self._line == 1 and text.startswith(codecs.BOM_UTF8):
            text = text[len(codecs.BOM_UTF8) :]
        cut = text.rfind(b"\n") + 1 if count else len(text)
        self._rest = self._checked(text[:cut].decode("latin-1"), last=not count) + text[cut:]
        if len(self._rest) > LONGEST_LINE:
            raise DataError(
                f"{self._name} is no readable table: line {self._line} does not end, or opens quotes that do not"
            )
        return count

    def _checked(self, text: str, *, last: bool) -> bytes:
        """The rest of some lines that belongs to an unfinished row, by the rules of pandas for quotes."""
        lines = list(io.StringIO(text, newline=""))
        records, begin, end = csv.reader([*lines, END], delimiter=self._separator), 0, len(lines)
        try:
            for record in records:
                if records.line_num > len(lines):  # the end alone, or in quotes that are open
                    end = begin if not last else end
                    break
                if self._header:
                    self._header = False
                elif record and len(record) != self._fields:
                    self._refuse(self._line + begin, len(record))
                begin = records.line_num
        except csv.Error as error:
            raise DataError(f"{self._name} is no readable table: line {self._line + begin}: {error}") from error
        self._line += end
        return "".join(lines[end:]).encode("latin-1")

    def _refuse(self, line: int, fields: int) -> None:
        raise DataError(
            f"{self._name} is no readable table: line {line} has {fields} field{'s' * (fields != 1)}, expected "
            f"{self._fields}; rows have as many fields as the header, or all of them one more, with their names first"
        )


class ParquetFile:
    """A Parquet file: `names` of its columns, `index`, those that pandas stored as the names of the rows, `rows`."""

    def __init__(self, location: str) -> None:
        arrow = needed("pyarrow", location)
        try:
            parquet = importlib.import_module("pyarrow.parquet")
            self._file = parquet.ParquetFile(path_or_stream(location), pre_buffer=False)
        except (arrow.ArrowInvalid, OSError) as error:
            raise DataError(f"{location} is no readable Parquet file: {error}") from error
        schema = self._file.schema_arrow
        self.names: list[str] = [str(name) for name in schema.names]
        stored = (schema.pandas_metadata or {}).get("index_columns", [])
        self.index = [name for name in stored if isinstance(name, str)]
        self.rows: int = self._file.metadata.num_rows

    def batches(self, rows: int, columns: list[str]) -> Iterator[Any]:
        """Record batches of at most so many rows."""
        # One row group at a time: asked for all at once, pyarrow keeps the whole file in memory.
        for group in range(self._file.metadata.num_row_groups):
            yield from self._file.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False)
