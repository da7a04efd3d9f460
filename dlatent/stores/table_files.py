"""Tables in files, piece by piece as pandas data frames: CSV by pandas, Parquet by pyarrow, an optional dependency."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from dlatent.errors import DataError
from dlatent.stores.byte_source import ByteSource, path_or_stream


def needed(package: str, name: str) -> Any:
    """An optional package, or a DataError that says how to install it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise DataError(f"{name} needs the package {package}: pip install {package}") from error


def separator(name: str) -> str:
    """What is between the fields of a file of text."""
    return "\t" if ".tsv" in name.lower() else ","


def csv_frames(source: ByteSource, **options: Any) -> Iterator[Any]:
    """The table of a text, or several with `chunksize` among the `options` of `pandas.read_csv`; none of nothing."""
    pandas = needed("pandas", source.name)
    fixed = {"sep": separator(source.name), "index_col": False, "low_memory": False}
    if tuple(map(int, pandas.__version__.split(".")[:2])) < (3, 1):  # newer ones read the nearest number by themselves
        fixed["float_precision"] = "round_trip"
    with source.open() as stream:
        try:
            parsed = pandas.read_csv(stream, **fixed, **options)
            for frame in parsed if "chunksize" in options else [parsed]:
                source.mark()
                yield frame
        except pandas.errors.EmptyDataError:
            return
        except (pandas.errors.ParserError, UnicodeDecodeError) as error:
            raise DataError(f"{source.name} is no readable table: {str(error).strip()}") from error


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
