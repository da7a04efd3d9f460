"""Common neighbours in a graph on disk, block by block, with no more of it in memory than a block meets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Integers
from dlatent.stores.graph.direction import check_pairs, common_neighbours
from dlatent.stores.ingest.matrices import row_cuts
from dlatent.stores.sparse import csr

BLOCK_ENTRIES = 1 << 20
"""Edges of a block of rows."""

BLOCK_PAIRS = 1 << 22
"""Pairs of samples that are visited at once, unless one sample has more."""


class Halves(NamedTuple):
    """Rows `[start, …)` of D, the edges with their direction, and the same rows of Dᵀ."""

    start: int
    forward: sp.csr_array
    backward: sp.csr_array


def common_neighbour_rows(
    halves: Iterable[Halves], samples: int, most_pairs: int, directory: Path, place: str
) -> Iterator[sp.csr_array]:
    """Rows of C = [D Dᵀ + Dᵀ D ≠ 0] without its diagonal, block by block; D and Dᵀ lie in files meanwhile.

    Errors: DataError where more than `most_pairs` pairs would be visited, naming the samples that make most of them.
    """
    outgoing, incoming = RowFile(directory / "forward", samples), RowFile(directory / "backward", samples)
    for half in halves:
        outgoing.append(half.forward)
        incoming.append(half.backward)
    way_out = "leave such samples out, or raise most_pairs"
    check_pairs(outgoing.degrees(), incoming.degrees(), most_pairs, place, way_out)
    for start, stop in _cuts(outgoing, incoming):
        forward, backward = outgoing.rows(start, stop), incoming.rows(start, stop)
        targets, sources = np.unique(forward.indices), np.unique(backward.indices)
        yield common_neighbours(
            _narrowed(forward, targets),
            incoming.take(targets),
            _narrowed(backward, sources),
            outgoing.take(sources),
            start,
        )


class RowFile:
    """The pattern of a sparse matrix (N, N) in a file: column indices row after row; the row pointers are in memory."""

    def __init__(self, path: Path, samples: int) -> None:
        self._path, self._samples = path, samples
        self._dtype = np.dtype(np.int32 if samples <= np.iinfo(np.int32).max else np.int64)
        self.indptr = np.zeros(samples + 1, dtype=np.int64)
        self._filled = 0
        path.touch()

    def append(self, rows: sp.csr_array) -> None:
        """Add the next rows."""
        after = self._filled + int(rows.shape[0])
        self.indptr[self._filled + 1 : after + 1] = self.indptr[self._filled] + rows.indptr[1:]
        self._filled = after
        with self._path.open("ab") as stream:
            stream.write(rows.indices.astype(self._dtype).tobytes())

    def degrees(self) -> npt.NDArray[np.int64]:
        """Number of entries of each row (N,)."""
        return np.diff(self.indptr)

    def rows(self, start: int, stop: int) -> sp.csr_array:
        """Rows `[start, stop)`."""
        return self.take(np.arange(start, stop))

    def take(self, wanted: Integers) -> sp.csr_array:
        """The rows `wanted`, in that order."""
        counts = self.indptr[wanted + 1] - self.indptr[wanted]
        pointers = np.concatenate([[0], np.cumsum(counts)])
        places = np.repeat(self.indptr[wanted] - pointers[:-1], counts) + np.arange(pointers[-1])
        # A mapping is opened anew for each block, so that its pages do not stay in memory.
        whole = np.memmap(self._path, dtype=self._dtype, mode="r") if len(places) else np.empty(0, self._dtype)
        return self._matrix(np.asarray(whole[places]), pointers)

    def _matrix(self, columns: Integers, pointers: npt.NDArray[np.int64]) -> sp.csr_array:
        return csr(np.ones(len(columns)), columns, pointers, self._samples)


def _cuts(outgoing: RowFile, graph: RowFile) -> Iterator[tuple[int, int]]:
    """Ranges of rows with about `BLOCK_PAIRS` pairs: for each edge of a row, the neighbours at its other end."""
    out_degrees, in_degrees = outgoing.degrees(), graph.degrees()
    for start, stop in row_cuts(outgoing.indptr + graph.indptr, BLOCK_ENTRIES):
        forward, backward = outgoing.rows(start, stop), graph.rows(start, stop)
        pairs = _sums(in_degrees[forward.indices], forward) + _sums(out_degrees[backward.indices], backward)
        yield from ((start + first, start + last) for first, last in row_cuts(pairs, BLOCK_PAIRS))


def _sums(values: Integers, rows: sp.csr_array) -> npt.NDArray[np.int64]:
    """Sums of the values of all entries before each row, and of all."""
    return np.concatenate([[0], np.cumsum(values)])[rows.indptr]


def _narrowed(rows: sp.csr_array, columns: Integers) -> sp.csr_array:
    """The rows with the given columns only, which hold all of their entries."""
    return csr(rows.data, np.searchsorted(columns, rows.indices), rows.indptr, len(columns))
