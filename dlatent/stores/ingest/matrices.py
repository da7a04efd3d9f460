"""Matrices at rest, dense or as the parts of a sparse one, read by rows in bounded memory.

What lies by columns or in no order is sorted on disk first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.errors import DataError
from dlatent.stores.atomic import writing
from dlatent.stores.ingest.batches import BatchFunction, Values
from dlatent.stores.sparse import csr
from dlatent.stores.temporary import made_for

PIECE = 1 << 18
"""Entries that are moved at once; those of 24 bytes, of larger ones fewer."""


class Stored(NamedTuple):
    """An array at rest; `read` reads rows `[start, stop)`, each of them once and in order: a compressed stream will
    do."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[int, int], npt.NDArray[Any]]


def dense_file(path: Path, offset: int, shape: tuple[int, int], dtype: np.dtype[Any], *, by_columns: bool) -> Stored:
    """A dense matrix in a file behind `offset`, by rows or by columns.

    It is read, not mapped: a few rows of each column would bring most of the file into memory.
    """
    height, width = shape

    def run(first: int, count: int) -> npt.NDArray[Any]:
        return np.fromfile(path, dtype, count, offset=offset + first * dtype.itemsize)

    def read(start: int, stop: int) -> npt.NDArray[Any]:
        if not by_columns:
            return run(start * width, (stop - start) * width).reshape(stop - start, width)
        block = np.empty((stop - start, width), dtype)
        for column in range(width):
            block[:, column] = run(column * height + start, stop - start)
        return block

    return Stored(shape, dtype, read)


def dense_batches(stored: Stored, chunk: int = 1) -> BatchFunction:
    """A function that reads the rows of a dense matrix; whole chunks where they fit, so that none is decoded twice."""
    rows, columns = stored.shape

    def batches(batch_bytes: int) -> Iterator[tuple[int, Any]]:
        step = min(max(batch_bytes // max(columns * stored.dtype.itemsize, 1), 1), max(rows, 1))
        step = step // chunk * chunk or step
        for start in range(0, rows, step):
            yield start, stored.read(start, min(start + step, rows))

    return batches


class SparseParts:
    """The parts of one sparse matrix, each opened by its name; a row pointer takes eight bytes of memory."""

    def __init__(self, description: str, sizes: Sequence[Any], part: Callable[[str], Stored]) -> None:
        if len(sizes) != 2 or min(sizes) < 0:
            raise DataError(f"{description}: the shape is {[*sizes]}, expected two numbers; the file is damaged")
        self.shape = (int(sizes[0]), int(sizes[1]))
        self._description, self._array = description, part

    def batches(self, layout: str, directory: Path) -> BatchFunction:
        """A function that reads the rows of a csr, csc or coo matrix; all but the first are sorted in `directory`."""
        if layout == "csr":
            return self._rows
        if layout not in ("csc", "coo"):
            raise DataError(f"{self._description} holds a {layout} matrix; save X.tocsr() with scipy.sparse.save_npz")
        return lambda batch_bytes: self._sorted(layout, directory).batches(batch_bytes)

    def _rows(self, batch_bytes: int) -> Iterator[tuple[int, sp.csr_array]]:
        indptr = self._pointers(self.shape[0])
        data, indices = self._opened(int(indptr[-1]), "data", "indices")
        entries = max(batch_bytes // (data.dtype.itemsize + indices.dtype.itemsize), 1)
        for start, stop in row_cuts(indptr, entries):
            cut = int(indptr[start]), int(indptr[stop])
            columns = self._in_range("indices", indices.read(*cut), self.shape[1])
            yield start, csr(data.read(*cut), columns, indptr[start : stop + 1] - cut[0], self.shape[1])

    def _sorted(self, layout: str, directory: Path) -> TripleSpill:
        """A matrix stored by columns (CSC), or as rows, columns and values (COO), sorted by rows on disk."""
        if layout == "csc":
            pointers, name = self._pointers(self.shape[1]), "indices"
            data, rows = self._opened(int(pointers[-1]), "data", name)
        else:
            name, total = "row", self._array("data").shape[0]
            data, rows, columns = self._opened(total, "data", name, "col")
        spill = TripleSpill(directory, *self.shape, data.dtype)
        for start in range(0, data.shape[0], PIECE):
            cut = start, min(start + PIECE, data.shape[0])
            row = self._in_range(name, rows.read(*cut), self.shape[0])
            if layout == "csc":
                column = np.searchsorted(pointers, np.arange(*cut), side="right") - 1
            else:
                column = self._in_range("col", columns.read(*cut), self.shape[1])
            spill.add(row, column, data.read(*cut))
        return spill

    def _pointers(self, major: int) -> npt.NDArray[np.int64]:
        stored = self._array("indptr")
        indptr: npt.NDArray[np.int64] = stored.read(0, stored.shape[0]).astype(np.int64)
        if len(indptr) != major + 1 or indptr[0] != 0 or np.any(np.diff(indptr) < 0):
            raise DataError(
                f"{self._description}: indptr must be {major + 1} numbers from 0 that do not decrease, to fit the "
                f"shape {self.shape}; it has {len(indptr)}; the file is damaged"
            )
        return indptr

    def _opened(self, entries: int, *names: str) -> list[Stored]:
        """Parts of so many entries."""
        parts = [self._array(name) for name in names]
        if any(part.shape != (entries,) for part in parts):
            shapes = ", ".join(f"{name} has shape {part.shape}" for name, part in zip(names, parts, strict=True))
            raise DataError(f"{self._description}: {shapes}, expected {entries} entries each; the file is damaged")
        return parts

    def _in_range(self, part: str, indices: Values, limit: int) -> Values:
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < limit:
            wrong = indices[(indices < 0) | (indices >= limit)][0]
            raise DataError(f"{self._description}: {part} holds {wrong}, outside 0 to {limit - 1}; the file is damaged")
        return indices


class TripleSpill:
    """Entries (row, column, value) in any order, kept in files, and read back as CSR batches of consecutive rows.

    Memory: eight bytes per row of the matrix for the counts, and one batch.  Disk: twice the size of the entries.
    """

    def __init__(self, directory: Path, rows: int, columns: int, dtype: npt.DTypeLike) -> None:
        self._listed, self._sorted, self._target = directory / "all", directory / "sorted", made_for(directory)
        self._columns = columns
        self._record = np.dtype([("row", np.int64), ("column", np.int64), ("value", dtype)])
        self._counts = np.zeros(rows, dtype=np.int64)
        self._listed.touch()

    def add(self, rows: Values, columns: Values | int, values: Any) -> None:
        """Append entries; rows and columns count from 0 and lie inside the matrix."""
        records = np.empty(len(rows), dtype=self._record)
        records["row"], records["column"], records["value"] = rows, columns, values
        np.add.at(self._counts, rows, 1)
        with writing(self._target), self._listed.open("ab") as stream:
            stream.write(records.tobytes())

    def batches(self, batch_bytes: int) -> Iterator[tuple[int, sp.csr_array]]:
        """First row and matrix of each batch, once."""
        for start, indptr, records in self.records(batch_bytes):
            values, columns = (np.ascontiguousarray(records[name]) for name in ("value", "column"))
            yield start, csr(values, columns, indptr, self._columns)

    def records(self, batch_bytes: int) -> Iterator[tuple[int, Values, npt.NDArray[Any]]]:
        """First row, row pointers and sorted records of each batch, once: they are moved to their ranges of rows before
        the first."""
        indptr = np.concatenate([[0], np.cumsum(self._counts)])
        ranges = list(row_cuts(indptr, max(batch_bytes // self._record.itemsize, 1)))
        starts = np.array([start for start, _ in ranges], dtype=np.int64)
        place, piece = indptr[starts], max(24 * PIECE // self._record.itemsize, 1)
        with writing(self._target), self._sorted.open("wb") as out, self._listed.open("rb") as listed:
            while len(records := np.fromfile(listed, dtype=self._record, count=piece)):
                _scatter(out, records, np.searchsorted(starts, records["row"], side="right") - 1, place)
        self._listed.unlink()
        with self._sorted.open("rb") as stored:
            for start, stop in ranges:
                pointers = indptr[start : stop + 1] - indptr[start]
                records = np.fromfile(stored, dtype=self._record, count=int(pointers[-1]))
                yield start, pointers, records[np.lexsort((records["column"], records["row"]))]


def _scatter(out: BinaryIO, records: npt.NDArray[Any], part: Values, place: Values) -> None:
    """Write each record into its `part` of a file, of which `place` says where the next goes; they stay in order."""
    order = np.argsort(part, kind="stable")
    numbers, first = np.unique(part[order], return_index=True)
    for number, group in zip(numbers, np.split(records[order], first[1:]), strict=True):
        out.seek(int(place[number]) * records.itemsize)
        out.write(group.tobytes())
        place[number] += len(group)


def row_cuts(indptr: npt.NDArray[np.integer[Any]], entries: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows with at most `entries` stored values each (or one row), in order."""
    rows, start = len(indptr) - 1, 0
    while start < rows:
        stop = int(np.searchsorted(indptr, int(indptr[start]) + entries, side="right")) - 1
        stop = min(max(stop, start + 1), start + max(entries, 1), rows)
        yield start, stop
        start = stop
