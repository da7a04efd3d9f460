"""From edges with a direction to edges without one.

D is the matrix of the edges as they were given: D_ij is the weight of the edge from i to j, without self-loops.  All
functions take rows `[start, …)` of D (`forward`) and the same rows of Dᵀ (`backward`), canonical CSR in float64, so
that they serve a matrix in memory as well as one row block after another.
"""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.errors import DataError
from dlatent.stores.graph.rows import without

Direction = Literal["symmetrise", "common_neighbours", "undirected"]
"""How edges with a direction become edges without one; None instead says that they already are."""

WAYS_OUT = (
    "edges of this model have no direction: pass direction='symmetrise' (an edge either way joins both), "
    "'common_neighbours' (two samples that point to a common third one, or to which one points, are joined), or "
    "'undirected' where each edge is given in one of its two orders only"
)
"""What to do about edges that are not symmetric."""


def check_direction(direction: object) -> None:
    """Refuse what is no direction."""
    known = get_args(Direction)
    if direction is not None and direction not in known:
        raise DataError(f"direction is {direction!r}; expected None or one of {', '.join(map(repr, known))}")


def undirected(
    forward: sp.csr_array,
    backward: sp.csr_array,
    direction: Direction | None,
    *,
    weighted: bool,
    place: str,
    start: int,
) -> sp.csr_array:
    """Rows of the symmetric adjacency matrix A, by another rule than common neighbours.

    None: A = D, which must be equal to Dᵀ.  "undirected": A = max(D, Dᵀ), where an edge that is given in both orders
    must have one weight.  "symmetrise": A = D + Dᵀ for weighted edges, [D + Dᵀ ≠ 0] for unweighted ones.
    Errors: DataError naming the first pair whose two directions contradict each other.
    """
    if direction == "symmetrise":
        made = sp.csr_array(forward + backward)
        made.data = made.data if weighted else np.ones_like(made.data)
        return made
    if direction == "undirected":
        both = sp.csr_array(forward.astype(bool).multiply(backward.astype(bool)))
        _refuse_difference(forward.multiply(both), backward.multiply(both), place, start, _ONE_WEIGHT)
        return sp.csr_array(forward.maximum(backward))
    _refuse_difference(forward, backward, place, start, WAYS_OUT)
    return forward


def symmetric(forward: sp.csr_array, backward: sp.csr_array, place: str, start: int) -> sp.csr_array:
    """The same rows of a precision Δ and of Δᵀ, which must be equal.

    Errors: DataError naming the first two entries that differ.
    """
    difference = _first_difference(forward, backward)
    if difference is not None:
        row, column, one, other = difference
        raise DataError(
            f"{place}: the entry of Δ at ({start + row}, {column}) is {one!r}, but that at ({column}, {start + row}) "
            f"is {other!r} (0.0: it is not there); a precision is symmetric: where it is but for rounding, give "
            "(Δ + Δ.T) / 2"
        )
    return forward


def common_neighbours(
    forward: sp.csr_array, incoming: sp.csr_array, backward: sp.csr_array, outgoing: sp.csr_array, start: int
) -> sp.csr_array:
    """Rows of C, the edges between samples that point to a common third one, or to which one points.

    C = [D Dᵀ + Dᵀ D ≠ 0] without its diagonal.
    Parameters: `forward` (n, a) and `backward` (n, b), rows of D and of Dᵀ, where columns without entries may be left
    out; `incoming` (a, N) and `outgoing` (b, N), the rows of Dᵀ and of D that their columns stand for.
    """
    graph = sp.csr_array(pattern(forward) @ pattern(incoming) + pattern(backward) @ pattern(outgoing))
    graph.sort_indices()
    return pattern(without(graph, start))


def pattern(matrix: sp.csr_array) -> sp.csr_array:
    """The matrix with 1 for every stored entry."""
    return sp.csr_array((np.ones(len(matrix.data)), matrix.indices, matrix.indptr), matrix.shape)


def check_pairs(
    out_degree: npt.NDArray[np.int64], in_degree: npt.NDArray[np.int64], most: int, place: str, way_out: str
) -> int:
    """Number of pairs that common neighbours would visit, Σ in-degree² + Σ out-degree².

    Errors: DataError where there are more than `most`, naming the samples that make most of them.
    """
    pairs = out_degree.astype(np.float64) ** 2 + in_degree.astype(np.float64) ** 2
    total = float(pairs.sum())
    if total > most:
        hubs = np.argsort(pairs)[:-4:-1]
        named = "; ".join(f"{hub} (to {out_degree[hub]:,}, from {in_degree[hub]:,})" for hub in hubs)
        raise DataError(
            f"{place}: common neighbours would visit {total:,.0f} pairs of samples, more than {most:,}, because all "
            f"neighbours of a sample are joined with each other; most of them come of {named}; {way_out}"
        )
    return int(total)


_ONE_WEIGHT = "give an edge that is there in both orders one weight, or pass direction='symmetrise', which adds them"


def _refuse_difference(forward: sp.csr_array, backward: sp.csr_array, place: str, start: int, way_out: str) -> None:
    difference = _first_difference(forward, backward)
    if difference is not None:
        row, column, one, other = difference
        raise DataError(
            f"{place}: the edge from {start + row} to {column} has weight {one!r}, but that from {column} to "
            f"{start + row} has {other!r} (0.0: it is not there); {way_out}"
        )


def _first_difference(forward: sp.csr_array, backward: sp.csr_array) -> tuple[int, int, float, float] | None:
    """Row and column of the first entry in which two matrices differ, and both; None where there is none."""
    different: sp.csr_array = cast(Any, forward) != backward
    if not different.nnz:
        return None
    row = int(np.flatnonzero(np.diff(different.indptr))[0])
    column = int(different.indices[different.indptr[row] : different.indptr[row + 1]].min())
    return row, column, float(forward[row, column]), float(backward[row, column])
