"""From edges with a direction to edges without one, in memory and block by block on disk.

D is the matrix of the edges as they were given: D_ij is the weight of the edge from i to j, without self-loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Integers
from dlatent.errors import DataError
from dlatent.stores.graph.adjacency import without
from dlatent.stores.ingest.matrices import row_cuts
from dlatent.stores.sparse import csr

Direction = Literal["symmetrise", "common_neighbours", "undirected"]
"""How edges with a direction become edges without one; None instead says that they already are."""

WAYS_OUT = (
    "edges of this model have no direction: pass direction='symmetrise' (an edge either way joins both), "
    "'common_neighbours' (two samples that point to a common third one, or to which one points, are joined), or "
    "'undirected' where each edge is given in one of its two orders only"
)
"""Hint for edges that are not symmetric."""

ONE_WEIGHT = "give an edge that is there in both orders one weight, or pass direction='symmetrise', which adds them"

EDGES_DIFFER = (
    "the edge from {row} to {column} has weight {one!r}, but that from {column} to {row} has {other!r} (0.0: it is not "
    "there)"
)
ENTRIES_DIFFER = (
    "the entry of Δ at ({row}, {column}) is {one!r}, but that at ({column}, {row}) is {other!r} (0.0: it is not "
    "there); a precision is symmetric: where it is but for rounding, give (Δ + Δ.T) / 2"
)

BLOCK_ENTRIES = 1 << 20
"""Edges of a block of rows of common neighbours."""

BLOCK_PAIRS = 1 << 22
"""Pairs of samples that are visited at once, unless one sample has more."""


class Halves(NamedTuple):
    """Rows `[start, …)` of D and the same rows of Dᵀ, canonical CSR in float64; in memory, all of them."""

    start: int
    forward: sp.csr_array
    backward: sp.csr_array


def check_direction(direction: object) -> None:
    """Refuse what is no direction."""
    known = get_args(Direction)
    if direction is not None and direction not in known:
        raise DataError(f"direction is {direction!r}; expected None or one of {', '.join(map(repr, known))}")


def undirected(half: Halves, direction: Direction | None, *, weighted: bool, place: str) -> sp.csr_array:
    """Rows of the symmetric adjacency matrix A, by another rule than common neighbours.

    None: A = D, which must be equal to Dᵀ.  "undirected": A = max(D, Dᵀ), where an edge that is given in both orders
    must have one weight.  "symmetrise": A = D + Dᵀ for weighted edges, [D + Dᵀ ≠ 0] for unweighted ones.
    Errors: DataError naming the first pair whose two directions contradict each other.
    """
    start, forward, backward = half
    if direction == "symmetrise":
        both = sp.csr_array(forward + backward)
        return both if weighted else pattern(both)
    compared, text = half, f"{EDGES_DIFFER}; {WAYS_OUT}"
    if direction == "undirected":
        both = sp.csr_array(forward.astype(bool).multiply(backward.astype(bool)))
        compared, text = Halves(start, forward.multiply(both), backward.multiply(both)), f"{EDGES_DIFFER}; {ONE_WEIGHT}"
    _check_equal(compared, place, text)
    return forward if direction is None else sp.csr_array(forward.maximum(backward))


def symmetric(half: Halves, place: str) -> sp.csr_array:
    """Rows of a precision, which are those of its transpose. Errors: DataError naming the first pair that differs."""
    _check_equal(half, place, ENTRIES_DIFFER)
    return half.forward


def _check_equal(half: Halves, place: str, text: str) -> None:
    """Raise a DataError for the first entry in which the halves differ; `text` is filled in with what differs."""
    different: sp.csr_array = cast(Any, half.forward) != half.backward
    if different.nnz:
        row = int(np.flatnonzero(np.diff(different.indptr))[0])
        column = int(different[[row]].indices.min())
        one, other = float(half.forward[row, column]), float(half.backward[row, column])
        raise DataError(f"{place}: {text.format(row=half.start + row, column=column, one=one, other=other)}")


def adjacency_rows(
    halves: Iterable[Halves],
    direction: Direction | None,
    common: Callable[[Iterable[Halves]], Iterator[sp.csr_array]],
    *,
    weighted: bool,
    one_order: bool,
    place: str,
) -> Iterator[sp.csr_array]:
    """Rows of A, block by block; `common` makes those of common neighbours.

    `one_order` says that the edges have no direction, and that D holds each of them in one of its orders or in both.
    """
    rule: Direction | None = "undirected" if one_order else direction
    if direction != "common_neighbours":
        return (undirected(half, rule, weighted=weighted, place=place) for half in halves)
    if one_order:
        rows = ((half.start, undirected(half, rule, weighted=weighted, place=place)) for half in halves)
        halves = (Halves(start, both, both) for start, both in rows)
    return common(halves)


def pattern(matrix: sp.csr_array) -> sp.csr_array:
    """The matrix with 1 for every stored entry."""
    return sp.csr_array((np.ones(len(matrix.data)), matrix.indices, matrix.indptr), matrix.shape)


def check_pairs(
    out_degree: npt.NDArray[np.int64], in_degree: npt.NDArray[np.int64], most: int, place: str, hint: str
) -> None:
    """Refuse common neighbours that would visit more than `most` pairs, Σ in-degree² + Σ out-degree².

    Errors: DataError naming the samples that make most of them.
    """
    pairs = out_degree.astype(np.float64) ** 2 + in_degree.astype(np.float64) ** 2
    total = float(pairs.sum())
    if total > most:
        hubs = np.argsort(pairs)[:-4:-1]
        named = "; ".join(f"{hub} (to {out_degree[hub]:,}, from {in_degree[hub]:,})" for hub in hubs)
        raise DataError(
            f"{place}: common neighbours would visit {total:,.0f} pairs of samples, more than {most:,}, because all "
            f"neighbours of a sample are joined with each other; most of them come of {named}; {hint}"
        )


def common_neighbours(half: Halves, incoming: sp.csr_array, outgoing: sp.csr_array) -> sp.csr_array:
    """Rows of C, the edges between samples that point to a common third one, or to which one points.

    C = [D Dᵀ + Dᵀ D ≠ 0] without its diagonal.
    Parameters: `half`, rows of D (n, a) and of Dᵀ (n, b), where columns without entries may be left out; `incoming`
    (a, N) and `outgoing` (b, N), the rows of Dᵀ and of D that their columns stand for.
    """
    start, forward, backward = half
    graph = sp.csr_array(pattern(forward) @ pattern(incoming) + pattern(backward) @ pattern(outgoing))
    graph.sort_indices()
    return pattern(without(graph, start))


def common_neighbour_rows(
    halves: Iterable[Halves], samples: int, most_pairs: int, directory: Path, place: str
) -> Iterator[sp.csr_array]:
    """Rows of C, block by block; D and Dᵀ lie in files meanwhile, and memory holds what a block meets.

    Errors: DataError where more than `most_pairs` pairs would be visited, naming the samples that make most of them.
    """
    outgoing, incoming = RowFile(directory / "forward", samples), RowFile(directory / "backward", samples)
    for half in halves:
        outgoing.append(half.forward)
        incoming.append(half.backward)
    out_degrees, in_degrees = np.diff(outgoing.indptr), np.diff(incoming.indptr)
    check_pairs(out_degrees, in_degrees, most_pairs, place, "leave such samples out, or raise most_pairs")
    for first, last in row_cuts(outgoing.indptr + incoming.indptr, BLOCK_ENTRIES):
        forward, backward = outgoing.take(np.arange(first, last)), incoming.take(np.arange(first, last))
        # For each edge of a row, the neighbours at its other end.
        pairs = _sums(in_degrees[forward.indices], forward) + _sums(out_degrees[backward.indices], backward)
        for start, stop in row_cuts(pairs, BLOCK_PAIRS):
            targets, to = _narrowed(forward[start:stop])
            sources, of = _narrowed(backward[start:stop])
            yield common_neighbours(Halves(first + start, to, of), incoming.take(targets), outgoing.take(sources))


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

    def take(self, wanted: Integers) -> sp.csr_array:
        """The rows `wanted`, in that order."""
        counts = self.indptr[wanted + 1] - self.indptr[wanted]
        pointers = np.concatenate([[0], np.cumsum(counts)])
        places = np.repeat(self.indptr[wanted] - pointers[:-1], counts) + np.arange(pointers[-1])
        # A mapping is opened anew for each block, so that its pages do not stay in memory.
        stored = np.memmap(self._path, dtype=self._dtype, mode="r") if len(places) else np.empty(0, self._dtype)
        return csr(np.ones(len(places)), np.asarray(stored[places]), pointers, self._samples)


def _sums(values: Integers, rows: sp.csr_array) -> npt.NDArray[np.int64]:
    """Sums of the values of all entries before each row, and of all."""
    return np.concatenate([[0], np.cumsum(values)])[rows.indptr]


def _narrowed(rows: sp.csr_array) -> tuple[Integers, sp.csr_array]:
    """The columns in which rows have entries, and the rows with these columns only."""
    columns = np.unique(rows.indices)
    return columns, csr(rows.data, np.searchsorted(columns, rows.indices), rows.indptr, len(columns))
