"""Rows of an adjacency matrix, in memory or on disk, for any process that asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Integers
from dlatent.errors import DataError
from dlatent.stores.chunked import process_local, read_rows
from dlatent.stores.csr import CsrArrays, CsrRows
from dlatent.stores.memory import row_view
from dlatent.stores.sparse import canonical, entries_where, row_numbers


@dataclass(frozen=True, eq=False)
class MemoryRows:
    """Rows of an adjacency matrix in memory, canonical CSR in float64; `matrix` begins at row `first`."""

    matrix: sp.csr_array
    first: int = 0

    def load(self, start: int, stop: int) -> sp.csr_array:
        """Rows `[start, stop)`, which share the memory of the matrix."""
        return row_view(self.matrix, *self._inside(start, stop))

    def window(self, start: int, stop: int) -> MemoryRows:
        """The rows `[start, stop)` and no others, under the same numbers."""
        return MemoryRows(row_view(self.matrix, *self._inside(start, stop)), start)

    def among(self, chosen: Integers) -> MemoryRows:
        """The rows and columns of some samples, in this order."""
        return MemoryRows(canonical(self.matrix[chosen][:, chosen]))

    def _inside(self, start: int, stop: int) -> tuple[int, int]:
        last = self.first + int(self.matrix.shape[0])
        if not self.first <= start <= stop <= last:
            raise DataError(f"rows {start}:{stop} of the edges were asked for, but rows {self.first}:{last} are here")
        return start - self.first, stop - self.first


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Rows of an adjacency matrix on disk; `clean` says that its writer left no self-loops and no zeros in it, or that
    they are to be kept."""

    arrays: CsrArrays
    clean: bool

    def load(self, start: int, stop: int) -> sp.csr_array:
        """Read rows `[start, stop)`, without self-loops and edges of weight zero."""
        rows = self.raw(start, stop)
        return rows if self.clean else without(rows, start)

    def raw(self, start: int, stop: int) -> sp.csr_array:
        """Read rows `[start, stop)` as they are stored, entries of one place added up."""
        pointers = read_rows(self.arrays.indptr, start, stop + 1, f"rows {start}:{stop}")
        read = CsrRows(start, stop, 0, int(pointers[0]), int(pointers[-1]), self.arrays).load()
        return cast(sp.csr_array, read.astype(np.float64, copy=False))

    def window(self, start: int, stop: int) -> StoredRows | MemoryRows:
        """The rows where they lie; those of a store in this process's memory are read."""
        return MemoryRows(self.load(start, stop), start) if process_local(self.arrays.data) else self

    def among(self, chosen: Integers) -> MemoryRows:
        """The rows and columns of some samples, in this order; all rows are read."""
        return self._whole().among(chosen)

    def _whole(self) -> MemoryRows:
        return MemoryRows(self.load(0, self.arrays.indptr.shape[0] - 1))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Rows of a store in this process's memory travel by value, as no other process could read them."""
        if process_local(self.arrays.data):
            return MemoryRows, (self._whole().matrix,)
        return StoredRows, (self.arrays, self.clean)


def without(rows: sp.csr_array, start: int = 0) -> sp.csr_array:
    """Rows of an adjacency matrix, the first of which is `start`, without the diagonal and without stored zeros."""
    keep = (rows.indices != start + row_numbers(rows)) & (rows.data != 0)
    if keep.all():
        return rows
    made = entries_where(rows, keep)
    made.has_canonical_format = True
    return made
