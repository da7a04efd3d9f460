"""Which format a file has, and the reader for it.

A format is one entry of `FORMATS` and one of `Format`, and a function from locations, what the caller wants and a
directory for temporary files to a `Reader`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from dlatent.errors import DataError
from dlatent.stores.files import plain_suffix, text_lines
from dlatent.stores.ingest.arrays import open_h5ad, open_npy, open_npz, open_zarr
from dlatent.stores.ingest.batches import Options, Reader, Values
from dlatent.stores.ingest.matrix_market import open_matrix_market
from dlatent.stores.ingest.svmlight import open_svmlight
from dlatent.stores.ingest.tables import open_csv, open_parquet
from dlatent.stores.location import NETCDF, along, guarded, is_node, local_path, zarr_location

Format = Literal["svmlight", "matrixmarket", "npz", "npy", "csv", "parquet", "h5ad", "zarr"]


class Kind(NamedTuple):
    """A format: what opens it, its extensions, which of "labels", "features" and "ids" the caller may name in it, and
    whether several files are one matrix (by `files_reader`, so that their ingest can be resumed)."""

    open: Callable[[Sequence[str], Options, Path], Reader]
    suffixes: tuple[str, ...]
    names: tuple[str, ...] = ()
    several: bool = False


FORMATS: dict[str, Kind] = {
    "svmlight": Kind(open_svmlight, (".svm", ".svmlight", ".libsvm", ".dat"), several=True),
    "matrixmarket": Kind(open_matrix_market, (".mtx",)),
    "npz": Kind(open_npz, (".npz",), ("labels", "features", "ids")),
    "npy": Kind(open_npy, (".npy",)),
    "csv": Kind(open_csv, (".csv", ".tsv"), ("labels", "features", "ids"), several=True),
    "parquet": Kind(open_parquet, (".parquet", ".pq"), ("labels", "features", "ids"), several=True),
    "h5ad": Kind(open_h5ad, (".h5ad",), ("labels",)),
    "zarr": Kind(open_zarr, (".zarr",), ("labels",)),
}

TABLES = ("csv", "parquet")
"""Formats whose columns have names, so that several may be wanted."""


def detect(locations: Sequence[str], format: str | None, *, resume: bool) -> str:
    """The format of the files: as the caller says, or by their extensions.

    Errors: DataError for what cannot be read together, or not be resumed, because its rows are read as fast as a
    checkpoint of them would be, or all before any is written.
    """
    if format is not None and format not in FORMATS:
        raise DataError(f"format is {format!r}; expected one of {', '.join(FORMATS)}")
    names = {format or _detect_one(location) for location in locations}
    if len(names) > 1:
        raise DataError(f"the files are of different formats ({', '.join(sorted(names))}); ingest them one by one")
    (name,) = names
    several = ", ".join(name for name, kind in FORMATS.items() if kind.several)
    if len(locations) > 1 and not FORMATS[name].several:
        raise DataError(f"several files at once are read for {several} only; ingest {name} one by one")
    if resume and not FORMATS[name].several:
        raise DataError(f"an ingest of {name} cannot go on where it was, only one of {several}; leave resume away")
    return name


def open_reader(locations: Sequence[str], format: str, options: Options, directory: Path) -> tuple[Reader, str | None]:
    """The reader for the files, and the file with labels of all rows, if any; `directory` is for temporary files.

    Errors: DataError for what the format has not; for more features or bytes than the limits allow.
    """
    kind, labels, features = FORMATS[format], options.labels, options.features
    label_file = labels if isinstance(labels, str) and _is_there(labels) else None
    labels = labels if label_file is None else None
    names = None
    if format in TABLES:
        if isinstance(features, int):
            raise DataError(f"features is {features}; give the names of the columns to read from the table")
    else:
        if labels is not None and not isinstance(labels, str):
            raise DataError(f"several label columns are read from csv and parquet only; name one for {format}")
        if labels is not None and "labels" not in kind.names:
            raise DataError(f"labels {labels!r} is no file, and {format} has no named labels; give the path of a file")
        if options.ids is not None and "ids" not in kind.names:
            raise DataError(f"ids name a column of csv and parquet or a key of npz; {format} files have none")
        if not (isinstance(features, str) and "features" in kind.names and not _is_there(features)):
            names = _names(features)
    announced = features if isinstance(features, int) else None if names is None else len(names)
    inside = replace(options, labels=labels, features=None if announced is not None else features)
    reader = kind.open(locations, inside, directory)
    limits = replace(options.limits, features=max(options.limits.features, announced or 0))
    limits.check_features(reader.columns or 0, reader.description)
    limits.check_size(reader.least_bytes, reader.total_bytes, reader.description)
    reader.columns = announced if reader.columns is None else reader.columns
    reader.column_names = reader.column_names if names is None else names
    return reader, label_file


def _detect_one(location: str) -> str:
    if is_node(zarr_location(location)):
        return "zarr"
    suffix = plain_suffix(location)
    if suffix in NETCDF:
        raise DataError(f"{location} is a netCDF file, which a fit reads as it is; {along(location)}")
    name = next((name for name, kind in FORMATS.items() if suffix in kind.suffixes), None)
    if name is None:
        raise DataError(
            f"{location}: the extension {suffix!r} says nothing about the format; give format= one of "
            f"{', '.join(FORMATS)}"
        )
    return name


def _is_there(location: str) -> bool:
    """Whether a name is that of a file of labels or names, or of a store, and not of a column or key; URLs always
    are."""
    path = local_path(location)
    return path is None or path.is_file() or is_node(zarr_location(location))


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
