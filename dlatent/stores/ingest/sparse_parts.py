"""Sparse matrices that lie on disk as parts (data, indices, indptr; row, col): by rows, by columns or in no order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.errors import DataError
from dlatent.stores.ingest.batches import BatchFunction, Values, row_cuts
from dlatent.stores.ingest.spill import PIECE, TripleSpill
from dlatent.stores.sparse import csr


class PartStream(Protocol):
    """A one-dimensional array that is read once, from its beginning."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self, count: int) -> npt.NDArray[Any]:
        """The next `count` elements."""
        ...


class SliceStream:
    """A `PartStream` over anything that can be sliced: an HDF5 dataset, a Zarr array."""

    def __init__(self, values: Any) -> None:
        self._values, self._position = values, 0
        self.shape: tuple[int, ...] = tuple(values.shape)
        self.dtype: np.dtype[Any] = np.dtype(values.dtype)

    def read(self, count: int) -> npt.NDArray[Any]:
        """The next `count` elements."""
        start, self._position = self._position, self._position + count
        return np.asarray(self._values[start : start + count])


class SparseParts:
    """The parts of one sparse matrix; `open_part` starts reading the part of that name from its beginning."""

    def __init__(self, description: str, sizes: Sequence[Any], open_part: Callable[[str], PartStream]) -> None:
        if len(sizes) != 2:
            raise DataError(f"{description}: the shape is {list(sizes)}, expected two numbers")
        self.description = description
        self.shape = (int(sizes[0]), int(sizes[1]))
        if min(self.shape) < 0:
            raise DataError(f"{description}: the shape is {self.shape}; the file is damaged")
        self._open = open_part

    def batches(self, layout: str, directory: Path) -> BatchFunction:
        """What reads the rows of a csr, csc or coo matrix; all but the first are sorted in `directory`."""
        if layout == "csr":
            return self.csr_batches
        sort = {"csc": self.sort_columns, "coo": self.sort_triples}.get(layout)
        if sort is None:
            raise DataError(f"{self.description} holds a {layout} matrix; save X.tocsr() with scipy.sparse.save_npz")
        return lambda batch_bytes: sort(directory).batches(batch_bytes)

    def csr_batches(self, batch_bytes: int) -> Iterator[tuple[int, sp.csr_array]]:
        """First row and matrix of each batch of a matrix stored by rows."""
        indptr = self._pointers(self.shape[0])
        data, indices = self._open("data"), self._open("indices")
        self._check_entries(indptr, data, indices)
        entries = max(batch_bytes // (data.dtype.itemsize + indices.dtype.itemsize), 1)
        for start, stop in row_cuts(indptr, entries):
            count = int(indptr[stop] - indptr[start])
            columns = self._in_range(indices.read(count), self.shape[1], "indices")
            yield start, csr(data.read(count), columns, indptr[start : stop + 1] - indptr[start], self.shape[1])

    def sort_columns(self, directory: Path) -> TripleSpill:
        """A matrix stored by columns (CSC), sorted by rows on disk."""
        pointers = self._pointers(self.shape[1])
        data, rows = self._open("data"), self._open("indices")
        self._check_entries(pointers, data, rows)
        spill = TripleSpill(directory, *self.shape, data.dtype)
        for start, count in _steps(data.shape[0]):
            columns = np.searchsorted(pointers, np.arange(start, start + count), side="right") - 1
            spill.add(self._in_range(rows.read(count), self.shape[0], "indices"), columns, data.read(count))
        return spill

    def sort_triples(self, directory: Path) -> TripleSpill:
        """A matrix stored as rows, columns and values (COO), sorted by rows on disk."""
        data, rows, columns = self._open("data"), self._open("row"), self._open("col")
        if not data.shape == rows.shape == columns.shape:
            raise DataError(f"{self.description}: data, row and col differ in length; the file is damaged")
        spill = TripleSpill(directory, *self.shape, data.dtype)
        for _, count in _steps(data.shape[0]):
            row = self._in_range(rows.read(count), self.shape[0], "row")
            spill.add(row, self._in_range(columns.read(count), self.shape[1], "col"), data.read(count))
        return spill

    def _pointers(self, major: int) -> npt.NDArray[np.int64]:
        stream = self._open("indptr")
        indptr = stream.read(stream.shape[0]).astype(np.int64)
        if len(indptr) != major + 1 or indptr[0] != 0 or np.any(np.diff(indptr) < 0):
            raise DataError(
                f"{self.description}: indptr must be {major + 1} numbers from 0 that do not decrease, to fit the shape "
                f"{self.shape}; it has {len(indptr)}; the file is damaged"
            )
        return indptr

    def _check_entries(self, indptr: Values, data: PartStream, indices: PartStream) -> None:
        if data.shape != (int(indptr[-1]),) or indices.shape != data.shape:
            raise DataError(
                f"{self.description}: data has shape {data.shape}, indices {indices.shape}, but indptr ends at "
                f"{int(indptr[-1])}; the file is damaged"
            )

    def _in_range(self, indices: Values, limit: int, part: str) -> Values:
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < limit:
            wrong = indices[(indices < 0) | (indices >= limit)][0]
            raise DataError(f"{self.description}: {part} holds {wrong}, outside 0 to {limit - 1}; the file is damaged")
        return indices


def _steps(total: int) -> Iterator[tuple[int, int]]:
    return ((start, min(PIECE, total - start)) for start in range(0, total, PIECE))
