"""Lists of edges in files: npz archives, CSV and Parquet, read piece by piece."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from dlatent.containers import check_parts
from dlatent.errors import DataError
from dlatent.stores.byte_source import LONGEST_LINE, ByteSource, file_name, path_or_stream, plain_suffix
from dlatent.stores.graph.edges import EdgeList, EdgePiece
from dlatent.stores.graph.lookup import Lookup
from dlatent.stores.numbers import is_real
from dlatent.stores.numpy_files import Archive
from dlatent.stores.table_files import ROW_NAMES, ParquetFile, csv_frames, csv_names, separator

ROWS = 1 << 18
"""Edges that are read at once."""


def is_matrix_archive(location: str) -> bool:
    """Whether a file is an npz archive of `scipy.sparse.save_npz`."""
    if plain_suffix(location) != ".npz":
        return False
    with Archive(location) as archive:
        return "edges" not in archive.keys


def matrix_of_archive(location: str) -> Any:
    """The matrix of `scipy.sparse.save_npz`, whose members are checked before and whose indices after reading."""
    with Archive(location) as archive:
        for key in archive.keys:
            with archive.stream(key):
                pass
    matrix: Any = sp.load_npz(path_or_stream(location))
    check_parts(matrix, file_name(location))
    return matrix


def edges_of_file(location: str, lookup: Lookup) -> EdgeList:
    """The list of edges that a file holds; `lookup` tells text of edges from names of columns.

    npz: an array `edges`, (m, 2) or (m, 3) with weights, whose numbers are positions, beside it the flag `directed`.
    CSV and Parquet: the first two columns, and a third of weights where there is one.
    """
    return FILES[plain_suffix(location)](location, lookup)


def _npz(location: str, lookup: Lookup) -> EdgeList:
    with Archive(location) as archive:
        name = archive.name
        with archive.stream("edges") as member:
            shape, by_columns, kind = tuple(member.shape), member.fortran_order, member.dtype.kind
        if len(shape) != 2 or shape[1] not in (2, 3):
            raise DataError(f"{name}: edges has shape {shape}; expected (m, 2), or (m, 3) with weights")
        undirected = "directed" in archive.keys and not bool(archive.whole("directed"))
        samples = _samples(archive)
    step = shape[0] if by_columns else ROWS  # a stream that is stored by columns cannot be cut into rows

    def pieces() -> Iterator[EdgePiece]:
        with Archive(location) as archive, archive.stream("edges") as member:
            for start in range(0, shape[0], max(step, 1)):
                rows = min(step, shape[0] - start)
                block = member.read(rows * shape[1]).reshape(rows, shape[1], order="F" if by_columns else "C")
                yield EdgePiece(block[:, 0], block[:, 1], block[:, 2] if shape[1] == 3 else None)

    return EdgeList(name, pieces, shape[1] == 3, undirected, samples, by_position=kind in "iuf", first=1)


def _samples(archive: Archive) -> int | None:
    """Number of rows of the data that lie beside the edges."""
    if "X_shape" in archive.keys:
        return int(archive.whole("X_shape")[0])
    beside = archive.first("X", "y", "Y")
    if beside is None:
        return None
    with archive.stream(beside) as member:
        return int(member.shape[0])


def _csv(location: str, lookup: Lookup) -> EdgeList:
    source = ByteSource(location)
    with source.open() as stream:
        line = stream.readline(LONGEST_LINE).decode("utf-8-sig", "replace")
    fields = next(csv.reader([line.strip("\r\n")], delimiter=separator(source.name)))
    _check_columns(fields, location)
    named = not all(is_real(field) or lookup.knows(field) for field in fields[:2])
    text = {"dtype": {0: str, 1: str}, "keep_default_na": False, "na_values": {2: [""]}} if lookup.textual else {}
    columns = list(range(len(fields)))
    names = [ROW_NAMES, *columns] if named and csv_names(source)[0] == ROW_NAMES else columns

    def pieces() -> Iterator[EdgePiece]:
        return _tables(
            frame[columns] for frame in csv_frames(source, names=names, header=named, chunksize=ROWS, **text)
        )

    return EdgeList(source.name, pieces, len(fields) == 3, first=1)


def _parquet(location: str, lookup: Lookup) -> EdgeList:
    file = ParquetFile(location)
    columns = [name for name in file.names if name not in file.index]
    _check_columns(columns, location)

    def pieces() -> Iterator[EdgePiece]:
        batches = ParquetFile(location).batches(ROWS, columns)
        return _tables(batch.to_pandas(ignore_metadata=True)[columns] for batch in batches)

    return EdgeList(file_name(location), pieces, len(columns) == 3, first=1)


def _tables(frames: Iterable[Any]) -> Iterator[EdgePiece]:
    for frame in frames:
        columns = [np.asarray(frame.iloc[:, at]) for at in range(frame.shape[1])]
        yield EdgePiece(columns[0], columns[1], columns[2] if len(columns) == 3 else None)


def _check_columns(columns: list[str], location: str) -> None:
    """Refuse a table that is not only edges, of which other columns could be taken for samples or weights."""
    if len(columns) not in (2, 3) or not columns[0]:
        index = "" if columns[0] else " (the first has no name, as the index that pandas writes; use index=False)"
        raise DataError(
            f"{location} has the columns {', '.join(map(repr, columns))}{index}; a list of edges has two, from and "
            "to, or three with weights"
        )


FILES = {".npz": _npz, ".csv": _csv, ".tsv": _csv, ".parquet": _parquet, ".pq": _parquet}
"""The reader for each extension."""
