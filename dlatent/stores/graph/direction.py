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

from dlatent.errors import DataError
from dlatent.stores.graph.adjacency import without
from dlatent.stores.ingest.matrices import TripleSpill, row_cuts
from dlatent.stores.sparse import csr

Direction = Literal["symmetrise", "common_neighbours", "undirected"]
"""How edges with a direction become edges without one; None instead says that they already are."""

WAYS_OUT = (
    "edges of this model have no direction: pass direction='symmetrise' (an edge either way joins both), "
    "'common_neighbours' (two samples that point to a common third one, or to which one points, are joined), or "
    "'undirected' where each edge is given in one of its two orders only"
)
"""What to do about edges that are not symmetric."""

ONE_WEIGHT = "give an edge that is there in both orders one weight, or pass direction='symmetrise', which adds them"

EDGES_DIFFER = (
    "the edge from {row} to {column} has weight {one!r}, but that from {column} to {row} has {other!r} (0.0: it is not "
    "there)"
)
ENTRIES_DIFFER = (
    "the entry of Δ at ({row}, {column}) is {one!r}, but that at ({column}, {row}) is {other!r} (0.0: it is not "
    "there); a precision is symmetric: where it is but for rounding, give (Δ + Δ.T) / 2"
)

BLOCK_BYTES = 1 << 24
"""Bytes of a block of rows of common neighbours."""

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


def check_pairs(degrees: npt.NDArray[np.int64], most: int, place: str, way_out: str) -> None:
    """Refuse common neighbours that would visit more than `most` pairs, Σ out-degree² + Σ in-degree².

    Parameters: `degrees` (2, N), out-degree and in-degree of the samples, as far as they are known.
    Errors: DataError naming the samples that make most of them.
    """
    pairs = (degrees.astype(np.float64) ** 2).sum(axis=0)
    total = float(pairs.sum())
    if total > most:
        hubs = np.argsort(pairs)[:-4:-1]
        named = "; ".join(f"{hub} (to {degrees[0, hub]:,}, from {degrees[1, hub]:,})" for hub in hubs)
        raise DataError(
            f"{place}: common neighbours would visit at least {total:,.0f} pairs of samples, more than {most:,}, "
            "because all neighbours of a sample are joined with each other; most of them come of "
            f"{named}; {way_out}"
        )


def common_neighbours(half: Halves) -> sp.csr_array:
    """C = [D Dᵀ + Dᵀ D ≠ 0] without its diagonal, in memory."""
    forward, backward = pattern(half.forward), pattern(half.backward)
    graph = sp.csr_array(forward @ backward + backward @ forward)
    graph.sort_indices()
    return pattern(without(graph))


def common_neighbour_rows(
    halves: Iterable[Halves], samples: int, most_pairs: int, directory: Path, place: str
) -> Iterator[sp.csr_array]:
    """Rows of C = [D Dᵀ + Dᵀ D ≠ 0] without its diagonal, block by block; its entries are sorted in files.

    Errors: DataError where more than `most_pairs` pairs would be visited, naming the samples that make most of them.
    """
    folder, total = directory / "pairs", 0
    folder.mkdir()
    spill, degrees = TripleSpill(folder, samples, samples, np.uint8), np.zeros((2, samples), dtype=np.int64)
    for start, forward, backward in halves:
        here = degrees[:, start : start + forward.shape[0]]
        here[:] = np.diff(forward.indptr), np.diff(backward.indptr)
        pairs = np.concatenate([[0], np.cumsum((here**2).sum(axis=0))])
        total += int(pairs[-1])
        if total > most_pairs:
            check_pairs(degrees, most_pairs, place, "leave such samples out, or raise most_pairs")
        for first, last in row_cuts(pairs, BLOCK_PAIRS):
            for rows in (forward[first:last], backward[first:last]):  # all neighbours of a row are joined
                names, columns = np.unique(rows.indices, return_inverse=True)
                neighbours = csr(np.ones(len(columns)), columns, rows.indptr, len(names))
                joined = sp.coo_array(neighbours.T @ neighbours)
                spill.add(names[joined.row], names[joined.col], 1)
    for start, rows in spill.batches(BLOCK_BYTES):
        rows.sum_duplicates()
        yield pattern(without(rows, start))
