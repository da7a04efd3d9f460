"""Which format a file has, and the reader for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from dlatent.errors import DataError
from dlatent.stores.byte_source import plain_suffix, text_lines
from dlatent.stores.guard import guarded
from dlatent.stores.ingest.annotated import AnnotatedReader
from dlatent.stores.ingest.arrays import NpyReader, NpzReader
from dlatent.stores.ingest.batches import Reader, Values
from dlatent.stores.ingest.matrix_market import MatrixMarketReader
from dlatent.stores.ingest.svmlight import IndexBase, SvmlightReader
from dlatent.stores.ingest.tables import CsvReader, ParquetReader
from dlatent.stores.limits import DEFAULT, Limits
from dlatent.stores.location import NETCDF, along, is_node, local_path, zarr_location
from dlatent.stores.strict import MissingChunks

Format = Literal["svmlight", "matrixmarket", "npz", "npy", "csv", "parquet", "h5ad", "zarr"]
FORMATS = get_args(Format)

BY_SUFFIX = {
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".dat": "svmlight",
    ".mtx": "matrixmarket",
    ".npz": "npz",
    ".npy": "npy",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".h5ad": "h5ad",
    ".zarr": "zarr",
}

SEVERAL = ("svmlight", "csv", "parquet")
"""Formats of which several files can be ingested as one matrix."""


@dataclass(frozen=True)
class Wanted:
    """What the caller asked for: labels, features and ids as given to `ingest`."""

    labels: str | Sequence[str] | None
    features: str | Sequence[str] | int | None
    ids: str | None
    index_base: IndexBase
    missing_chunks: MissingChunks = "raise"
    limits: Limits = DEFAULT


@dataclass(frozen=True)
class Opened:
    """A reader, and what comes from elsewhere: a file of labels, names of features, the number of features."""

    reader: Reader
    label_file: str | None = None
    names: Values | None = None
    columns: int | None = None


def detect(locations: Sequence[str], format: str | None) -> str:
    """The format of the files: as given, or by their extensions."""
    if format is not None:
        if format not in FORMATS:
            raise DataError(f"format is {format!r}; expected one of {', '.join(FORMATS)}")
        found = {format}
    else:
        found = {_detect_one(location) for location in locations}
    if len(found) > 1:
        raise DataError(f"the files are of different formats ({', '.join(sorted(found))}); ingest them one by one")
    name = found.pop()
    if len(locations) > 1 and name not in SEVERAL:
        raise DataError(f"several files at once are read for {', '.join(SEVERAL)} only; ingest {name} one by one")
    return name


def open_reader(locations: Sequence[str], format: str, wanted: Wanted, directory: Path) -> Opened:
    """The reader for the files; `directory` is for temporary files."""
    if format in ("csv", "parquet"):
        return _open_table(locations, format, wanted)
    columns = wanted.features if isinstance(wanted.features, int) else None
    names = None if format == "npz" and _is_key(wanted.features) else _names(wanted.features)
    if wanted.labels is not None and not isinstance(wanted.labels, str):
        raise DataError(f"several label columns are read from csv and parquet only; name one for {format}")
    label_file = wanted.labels if wanted.labels is not None and _is_there(wanted.labels) else None
    inside = None if label_file else wanted.labels
    if inside is not None and format in ("svmlight", "matrixmarket", "npy"):
        raise DataError(f"labels {inside!r} is no file, and {format} has no named labels; give the path of a file")
    if wanted.ids is not None and format != "npz":
        raise DataError(f"ids name a column of csv and parquet or a key of npz; {format} files have none")
    location = locations[0]
    if format == "svmlight":
        reader: Reader = SvmlightReader(locations, index_base=wanted.index_base)
    elif format == "matrixmarket":
        reader = MatrixMarketReader(location, directory)
    elif format == "npz":
        terms = wanted.features if names is None and isinstance(wanted.features, str) else None
        reader = NpzReader(location, directory, labels=inside, ids=wanted.ids, terms=terms)
    elif format == "npy":
        reader = NpyReader(location, directory)
    else:
        reader = AnnotatedReader(
            location,
            directory,
            zarr_store=format == "zarr",
            labels=inside,
            missing_chunks=wanted.missing_chunks,
            limits=wanted.limits,
        )
    return Opened(reader, label_file, names, columns if names is None else len(names))


def _open_table(locations: Sequence[str], format: str, wanted: Wanted) -> Opened:
    if isinstance(wanted.features, int):
        raise DataError(f"features is {wanted.features}; give the names of the columns to read from the table")
    features = [wanted.features] if isinstance(wanted.features, str) else wanted.features
    label_file = wanted.labels if isinstance(wanted.labels, str) and _is_there(wanted.labels) else None
    kind = CsvReader if format == "csv" else ParquetReader
    labels = None if label_file else wanted.labels
    reader = kind(locations, labels=labels, features=features, ids=wanted.ids)
    return Opened(reader, label_file)


def _detect_one(location: str) -> str:
    if is_node(zarr_location(location)):
        return "zarr"
    suffix = plain_suffix(location)
    if suffix in NETCDF:
        raise DataError(f"{location} is a netCDF file, which a fit reads as it is; {along(location)}")
    if suffix not in BY_SUFFIX:
        raise DataError(
            f"{location}: the extension {suffix!r} says nothing about the format; give format= one of "
            f"{', '.join(FORMATS)}"
        )
    return BY_SUFFIX[suffix]


def _is_there(location: str) -> bool:
    """Whether a name is that of a file of labels or names, or of a store, and not of a column or key; URLs always
    are."""
    path = local_path(location)
    return path is None or path.is_file() or is_node(zarr_location(location))


def _is_key(features: object) -> bool:
    return isinstance(features, str) and not _is_there(features)


def _names(features: str | Sequence[str] | int | None) -> Values | None:
    if features is None or isinstance(features, int):
        return None
    if not isinstance(features, str):
        return np.array(list(features), dtype=str)
    path = local_path(features)
    if path is not None and not path.is_file():
        raise DataError(f"features {features!r} is no file; give a text file with one name per line, names or a number")
    with guarded(features):
        return np.array(text_lines(features), dtype=str)
