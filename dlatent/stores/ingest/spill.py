"""Sorting on disk: entries and columns that come in the wrong order become row batches in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.stores.ingest.batches import Values, is_sparse, row_cuts
from dlatent.stores.sparse import csr

PIECE = 1 << 18
"""Entries that are moved at once."""


class TripleSpill:
    """Entries (row, column, value) in any order, kept in files, and read back as CSR batches of consecutive rows.

    Memory: eight bytes per row of the matrix for the counts, and one batch.  Disk: twice the size of the entries.
    """

    def __init__(self, directory: Path, rows: int, columns: int, dtype: npt.DTypeLike) -> None:
        self._directory = directory
        self._columns = columns
        self._record = np.dtype([("row", np.int64), ("column", np.int64), ("value", dtype)])
        self._counts = np.zeros(rows, dtype=np.int64)

    def add(self, rows: Values, columns: Values, values: Values) -> None:
        """Append entries; rows and columns count from 0 and lie inside the matrix."""
        records = np.empty(len(rows), dtype=self._record)
        records["row"], records["column"], records["value"] = rows, columns, values
        np.add.at(self._counts, rows, 1)
        with (self._directory / "all").open("ab") as stream:
            stream.write(records.tobytes())

    def batches(self, batch_bytes: int) -> Iterator[tuple[int, sp.csr_array]]:
        """First row and matrix of each batch, once: the entries are moved to their ranges of rows before the first."""
        indptr = np.concatenate([[0], np.cumsum(self._counts)])
        ranges = list(row_cuts(indptr, max(batch_bytes // self._record.itemsize, 1)))
        self._distribute(np.array([start for start, _ in ranges], dtype=np.int64), indptr)
        for start, stop in ranges:
            yield start, self._matrix(indptr[start : stop + 1])

    def _distribute(self, starts: Values, indptr: Values) -> None:
        """Move the entries of each range of rows to the place in one file where the counts say that they belong."""
        place = indptr[starts]
        with (self._directory / "sorted").open("wb") as out:
            for records in _pieces(self._directory / "all", self._record):
                scatter(out, records, np.searchsorted(starts, records["row"], side="right") - 1, place)
        (self._directory / "all").unlink(missing_ok=True)

    def _matrix(self, indptr: Values) -> sp.csr_array:
        with (self._directory / "sorted").open("rb") as stream:
            stream.seek(int(indptr[0]) * self._record.itemsize)
            records = np.fromfile(stream, dtype=self._record, count=int(indptr[-1] - indptr[0]))
        order = np.lexsort((records["column"], records["row"]))
        return csr(records["value"][order], records["column"][order], indptr - indptr[0], self._columns)


def scatter(out: BinaryIO, records: npt.NDArray[Any], part: Values, place: Values) -> None:
    """Write each record into its `part` of a file, of which `place` says where the next goes; they stay in order."""
    order = np.argsort(part, kind="stable")
    numbers, first = np.unique(part[order], return_index=True)
    for number, group in zip(numbers, np.split(records[order], first[1:]), strict=True):
        out.seek(int(place[number]) * records.itemsize)
        out.write(group.tobytes())
        place[number] += len(group)


class BatchSpill:
    """Feature batches kept in files between two passes, so that text is parsed only once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: list[Path] = []

    def add(self, features: Any) -> None:
        """Append one batch, sparse or dense."""
        path = self._directory / f"batch{len(self._files)}.{'npz' if is_sparse(features) else 'npy'}"
        if is_sparse(features):
            sp.save_npz(path, features, compressed=False)
        else:
            np.save(path, features)
        self._files.append(path)

    def batches(self) -> Iterator[Any]:
        """The batches in order; each file is removed after it was read."""
        for path in self._files:
            features = sp.load_npz(path) if path.suffix == ".npz" else np.load(path, allow_pickle=False)
            path.unlink()
            yield features


@dataclass(frozen=True)
class ColumnMajor:
    """A dense matrix in a file, column by column: its rows are gathered with one short read per column."""

    path: Path
    offset: int
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def batches(self, batch_bytes: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """First row and rows of each batch."""
        return ((start, self.rows(start, stop)) for start, stop in dense_cuts(self.shape, self.dtype, batch_bytes))

    def rows(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Rows `[start, stop)` as a C-ordered matrix."""
        height, width = self.shape
        block = np.empty((stop - start, width), dtype=self.dtype)
        with self.path.open("rb") as stream:
            for column in range(width):
                stream.seek(self.offset + (column * height + start) * self.dtype.itemsize)
                block[:, column] = np.fromfile(stream, dtype=self.dtype, count=stop - start)
        return block


def dense_cuts(
    shape: tuple[int, int], dtype: np.dtype[Any], batch_bytes: int, chunk: int = 1
) -> Iterator[tuple[int, int]]:
    """Ranges of rows of a dense matrix with about `batch_bytes` bytes each, or one row; whole chunks where they fit."""
    step = min(max(batch_bytes // max(shape[1] * dtype.itemsize, 1), 1), max(shape[0], 1))
    step = step // chunk * chunk or step
    return ((start, min(start + step, shape[0])) for start in range(0, shape[0], step))


def _pieces(path: Path, dtype: np.dtype[Any]) -> Iterator[npt.NDArray[Any]]:
    if path.exists():
        with path.open("rb") as stream:
            while len(piece := np.fromfile(stream, dtype=dtype, count=PIECE)):
                yield piece
