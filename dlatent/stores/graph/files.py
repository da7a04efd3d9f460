"""Lists of edges in files: npz archives, CSV and Parquet, read piece by piece."""

from __future__ import annotations

import csv
import importlib
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.errors import DataError
from dlatent.stores.byte_source import ByteSource, file_name, path_or_stream, plain_suffix
from dlatent.stores.graph.edges import EdgeList, Piece
from dlatent.stores.graph.lookup import Lookup
from dlatent.stores.ingest.tables import needed
from dlatent.stores.member_stream import MemberStream
from dlatent.stores.numbers import is_real
from dlatent.stores.sparse import check_parts

ROWS = 1 << 18
"""Edges that are read at once."""


def is_matrix_archive(location: str) -> bool:
    """Whether a file is an npz archive of `scipy.sparse.save_npz`."""
    if plain_suffix(location) != ".npz":
        return False
    with _archive(location) as archive:
        return "edges.npy" not in archive.namelist()


def matrix_of_archive(location: str) -> Any:
    """The matrix of `scipy.sparse.save_npz`, whose members are checked before and whose indices after reading."""
    with _archive(location) as archive:
        for member in archive.namelist():
            with MemberStream(archive, member.removesuffix(".npy"), file_name(location)):
                pass
    matrix: Any = sp.load_npz(path_or_stream(location))
    if matrix.format in ("csr", "csc", "bsr"):
        check_parts(matrix, file_name(location))
    return matrix


def edges_of_file(location: str, lookup: Lookup) -> EdgeList:
    """The list of edges that a file holds; `lookup` tells text of edges from names of columns.

    npz: an array `edges`, (m, 2) or (m, 3) with weights, whose numbers are positions, beside it the flag `directed`.
    CSV and Parquet: the first two columns, and a third of weights where there is one.
    """
    return FILES[plain_suffix(location)](location, lookup)


def _archive(location: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path_or_stream(location))
    except zipfile.BadZipFile:
        raise DataError(f"{location} is no npz archive, or is cut short; fetch it again") from None


def _npz(location: str, lookup: Lookup) -> EdgeList:
    name = file_name(location)
    with _archive(location) as archive:
        keys = [member.removesuffix(".npy") for member in archive.namelist()]
        with MemberStream(archive, "edges", name) as member:
            shape, by_columns, kind = tuple(member.shape), member.fortran_order, member.dtype.kind
        if len(shape) != 2 or shape[1] not in (2, 3):
            raise DataError(f"{name}: edges has shape {shape}; expected (m, 2), or (m, 3) with weights")
        undirected = "directed" in keys and not bool(_whole(archive, "directed", name))
        samples = _samples(archive, keys, name)
    step = shape[0] if by_columns else ROWS  # a stream that is stored by columns cannot be cut into rows

    def pieces() -> Iterator[Piece]:
        with _archive(location) as archive, MemberStream(archive, "edges", name) as member:
            for start in range(0, shape[0], max(step, 1)):
                rows = min(step, shape[0] - start)
                block = member.read(rows * shape[1]).reshape(rows, shape[1], order="F" if by_columns else "C")
                yield Piece(block[:, 0], block[:, 1], block[:, 2] if shape[1] == 3 else None)

    return EdgeList(name, pieces, shape[1] == 3, undirected, samples, by_position=kind in "iuf", first=1)


def _whole(archive: zipfile.ZipFile, key: str, name: str) -> npt.NDArray[Any]:
    with MemberStream(archive, key, name) as member:
        return member.read(int(np.prod(member.shape)))


def _samples(archive: zipfile.ZipFile, keys: list[str], name: str) -> int | None:
    """Number of rows of the data that lie beside the edges."""
    if "X_shape" in keys:
        return int(_whole(archive, "X_shape", name)[0])
    beside = next((key for key in ("X", "y", "Y") if key in keys), None)
    if beside is None:
        return None
    with MemberStream(archive, beside, name) as member:
        return int(member.shape[0])


def _csv(location: str, lookup: Lookup) -> EdgeList:
    pandas = needed("pandas", location)
    source = ByteSource(location)
    separator = "\t" if ".tsv" in source.name.lower() else ","
    with source.open() as stream:
        line = next(iter(stream)).decode("utf-8-sig", "replace")
    fields = next(csv.reader([line.strip("\r\n")], delimiter=separator))
    _check_columns(fields, location)
    named = not all(is_real(field) or lookup.knows(field) for field in fields[:2])

    def pieces() -> Iterator[Piece]:
        options = (
            {"dtype": {0: str, 1: str}, "keep_default_na": False, "na_values": {2: [""]}} if lookup.textual else {}
        )
        with source.open() as stream:
            try:
                yield from _tables(
                    pandas.read_csv(
                        stream,
                        sep=separator,
                        header=None,
                        skiprows=int(named),
                        index_col=False,
                        chunksize=ROWS,
                        low_memory=False,
                        float_precision="round_trip",
                        **options,
                    )
                )
            except pandas.errors.EmptyDataError:
                return
            except (pandas.errors.ParserError, UnicodeDecodeError) as error:
                raise DataError(f"{source.name} is no readable table: {str(error).strip()}") from error

    return EdgeList(source.name, pieces, len(fields) == 3, first=1)


def _parquet(location: str, lookup: Lookup) -> EdgeList:
    arrow = needed("pyarrow", location)

    def opened() -> Any:
        try:
            return importlib.import_module("pyarrow.parquet").ParquetFile(path_or_stream(location), pre_buffer=False)
        except (arrow.ArrowInvalid, OSError) as error:
            raise DataError(f"{location} is no readable Parquet file: {error}") from error

    schema = opened().schema_arrow
    stored = (schema.pandas_metadata or {}).get("index_columns", [])
    columns = [name for name in schema.names if name not in stored]
    _check_columns(columns, location)

    def pieces() -> Iterator[Piece]:
        file = opened()
        # One row group at a time: asked for all at once, pyarrow keeps the whole file in memory.
        for group in range(file.metadata.num_row_groups):
            batches = file.iter_batches(batch_size=ROWS, row_groups=[group], columns=columns, use_threads=False)
            yield from _tables(batch.to_pandas(ignore_metadata=True)[columns] for batch in batches)

    return EdgeList(file_name(location), pieces, len(columns) == 3, first=1)


def _tables(frames: Iterable[Any]) -> Iterator[Piece]:
    for frame in frames:
        columns = [np.asarray(frame.iloc[:, at]) for at in range(frame.shape[1])]
        yield Piece(columns[0], columns[1], columns[2] if len(columns) == 3 else None)


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
