"""Adjacency matrices: their rows, in memory or on disk, for any process that asks, and what they may not be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Integers
from dlatent.errors import DataError, number_of
from dlatent.stores.chunked import process_local, read_rows
from dlatent.stores.graph.lookup import Lookup
from dlatent.stores.rows import canonical, row_view
from dlatent.stores.sparse import CsrArrays, CsrRows, entries_where, row_numbers


@dataclass(frozen=True, eq=False)
class MemoryRows:
    """Rows of an adjacency matrix in memory, canonical CSR in float64; `matrix` begins at row `first`."""

    matrix: sp.csr_array
    first: int = 0

    def load(self, start: int, stop: int) -> sp.csr_array:
        """Rows `[start, stop)`, which share the memory of the matrix."""
        last = self.first + int(self.matrix.shape[0])
        if not self.first <= start <= stop <= last:
            raise DataError(f"rows {start}:{stop} of the edges were asked for, but rows {self.first}:{last} are here")
        return row_view(self.matrix, start - self.first, stop - self.first)

    def window(self, start: int, stop: int) -> MemoryRows:
        """The rows `[start, stop)` and no others, under the same numbers."""
        return MemoryRows(self.load(start, stop), start)

    def among(self, chosen: Integers) -> MemoryRows:
        """The rows and columns of some samples, in this order."""
        return MemoryRows(canonical(self.matrix[chosen][:, chosen]))


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Rows of an adjacency matrix on disk; `clean` says that its writer left no self-loops and no zeros in it, or that
    they are to be kept."""

    arrays: CsrArrays
    clean: bool

    def load(self, start: int, stop: int) -> sp.csr_array:
        """Read rows `[start, stop)`, entries of one place added up, without self-loops and edges of weight zero."""
        pointers = read_rows(self.arrays.indptr, start, stop + 1, f"rows {start}:{stop}")
        read = CsrRows(start, stop, 0, int(pointers[0]), int(pointers[-1]), self.arrays).load()
        rows = cast(sp.csr_array, read.astype(np.float64, copy=False))
        return rows if self.clean else without(rows, start)

    def window(self, start: int, stop: int) -> StoredRows | MemoryRows:
        """The rows where they lie; those of a store in this process's memory are read."""
        return MemoryRows(self.load(start, stop), start) if process_local(self.arrays.data) else self

    def among(self, chosen: Integers) -> MemoryRows:
        """The rows and columns of some samples, in this order; all rows are read."""
        return self._loaded().among(chosen)

    def _loaded(self) -> MemoryRows:
        return MemoryRows(self.load(0, self.arrays.indptr.shape[0] - 1))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Rows of a store in this process's memory travel by value, as no other process could read them."""
        if process_local(self.arrays.data):
            return MemoryRows, (self._loaded().matrix,)
        return StoredRows, (self.arrays, self.clean)


def without(rows: sp.csr_array, start: int = 0) -> sp.csr_array:
    """Rows of an adjacency matrix, the first of which is `start`, without the diagonal and without stored zeros."""
    keep = (rows.indices != start + row_numbers(rows)) & (rows.data != 0)
    if keep.all():
        return rows
    kept = entries_where(rows, keep)
    kept.has_canonical_format = True
    return kept


@dataclass
class Counts:
    """Numbers of rows of a list, or of entries of a matrix, that were dropped or merged; and of isolated samples."""

    self_loops: int = 0
    duplicates: int = 0
    zeros: int = 0
    isolated: int = 0

    def notes(self) -> Iterator[str]:
        """One sentence for each number that is not zero."""
        for count, one, many in (
            (self.self_loops, "edge of a sample to itself was dropped", "edges of samples to themselves were dropped"),
            (self.duplicates, "repeated edge was merged", "repeated edges were merged"),
            (self.zeros, "edge of weight zero was dropped", "edges of weight zero were dropped"),
            (
                self.isolated,
                "sample has no edge; it is fitted like the others",
                "samples have no edge; they are fitted like the others",
            ),
        ):
            if count:
                yield number_of(count, one, many)


def check_adjacency(shape: tuple[int, ...], dtype: np.dtype[Any], lookup: Lookup, place: str) -> None:
    """Refuse a matrix that has not one row and one column for each of the samples, or holds no real numbers."""
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
        cut = len(shape) == 2 and shape[0] == lookup.samples
        hint = "; where a search of scikit-learn cut the rows alone, give it open_graph(A), which is cut whole"
        raise DataError(
            f"{place} has shape {tuple(shape)}; what is between samples is a matrix of samples × samples, N × N"
            f"{hint if cut else ''}"
        )
    if dtype.kind not in "biuf":
        raise DataError(f"{place} has dtype {dtype}; its entries are real numbers, convert it with astype(float)")
    lookup.check_samples(shape[0], place)


def refuse_kind(subject: str, *, precision: bool) -> NoReturn:
    """Refuse a precision in the place of a graph, or a graph in that of a precision."""
    kind, wanted = ("precision", "graph") if precision else ("graph", "precision")
    raise DataError(f"{subject} a {kind}, not a {wanted}; give it as {kind}=…")


def check_weights(weights: npt.NDArray[Any], place: str, name: Callable[[int], str]) -> None:
    """Refuse weights that are negative or not finite; `name` says which edge entry `i` is."""
    wrong = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
    if len(wrong):
        at = int(wrong[0])
        raise DataError(
            f"{place}: {name(at)} has weight {weights[at].item()!r}; weights are finite and not negative "
            f"({len(wrong):,} are not); a precision matrix is given as precision=…"
        )


NO_MEAN = 1e-12
"""Where all entries of Δ together are below this part of its trace, they are rounding."""


def checked_rows(
    blocks: Iterable[tuple[int, sp.csr_array]], place: str, *, precision: bool
) -> Iterator[tuple[int, sp.csr_array]]:
    """The first row and the rows of each block of an adjacency matrix A, or of a precision Δ, with checked entries;
    symmetry and eigenvalues are checked elsewhere.

    Errors: DataError for a weight of A that is negative or not finite; for an entry of Δ that is not finite, or a row
    that has entries but no positive one on the diagonal; at the end, where 1ᵀΔ1 is zero, so that Δ tells no mean, or
    negative.
    """
    total = trace = 0.0
    for start, rows in blocks:

        def entry(at: int, start: int = start, rows: sp.csr_array = rows) -> tuple[int, int]:
            return start + int(row_numbers(rows)[at]), int(rows.indices[at])

        if precision:
            wrong = np.flatnonzero(~np.isfinite(rows.data))
            if len(wrong):
                raise DataError(
                    f"{place}: the entry of Δ at {entry(wrong[0])} is {rows.data[wrong[0]].item()!r}; all are finite "
                    "in a precision"
                )
            diagonal = rows.diagonal(start)
            wrong = np.flatnonzero((abs(rows).sum(axis=1) > 0) & (diagonal <= 0))
            if len(wrong):
                at = int(wrong[0])
                raise DataError(
                    f"{place}: the entry of Δ at ({start + at}, {start + at}), on its diagonal, is "
                    f"{diagonal[at].item()!r}, and its row is not zero ({len(wrong):,} such rows), so that Δ is not "
                    "positive semi-definite; the adjacency matrix of a graph is given as graph=…"
                )
            total += float(rows.data.sum())
            trace += float(diagonal.sum())
        else:
            check_weights(rows.data, place, lambda at: "the edge from {} to {}".format(*entry(at)))
        yield start, rows
    if precision and total <= NO_MEAN * trace:
        why = "so that it is not positive semi-definite"
        if total >= -NO_MEAN * trace:
            why = (
                "as those of the Laplacian of a graph, so that it tells no mean; add a little to its diagonal, such as "
                "Δ + 1e-6 I"
            )
        raise DataError(f"{place}: all entries of Δ together, 1ᵀΔ1, are {total:.3g}, {why}")
