"""From links with a direction to links without one.

D is the matrix of the links as they were given: D_ij is the weight of the link from i to j, without self-links.  All
functions take rows `[start, …)` of D (`forward`) and the same rows of Dᵀ (`backward`), canonical CSR in float64, so
that they serve a matrix in memory as well as one row block after another.
"""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.errors import DataError
from dlatent.stores.links.rows import without

Direction = Literal["symmetrise", "co_links", "undirected"]
"""How links with a direction become links without one; None instead says that they already are."""

WAYS_OUT = (
    "links of this model have no direction: pass direction='symmetrise' (a link either way links both), 'co_links' "
    "(two instances that link to, or are linked from, a common third one become linked), or 'undirected' where each "
    "link is given in one of its two orders only"
)
"""What to do about links that are not symmetric."""


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
    """Rows of the symmetric adjacency matrix A, by another rule than co-links.

    None: A = D, which must be equal to Dᵀ.  "undirected": A = max(D, Dᵀ), where a link that is given in both orders
    must have one weight.  "symmetrise": A = D + Dᵀ for weighted links, [D + Dᵀ ≠ 0] for unweighted ones.
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


def co_links(
    forward: sp.csr_array, incoming: sp.csr_array, backward: sp.csr_array, outgoing: sp.csr_array, start: int
) -> sp.csr_array:
    """Rows of C, the links between instances that link to, or are linked from, a common third one.

    C = [D Dᵀ + Dᵀ D ≠ 0] without its diagonal.
    Parameters: `forward` (n, a) and `backward` (n, b), rows of D and of Dᵀ, where columns without entries may be left
    out; `incoming` (a, N) and `outgoing` (b, N), the rows of Dᵀ and of D that their columns stand for.
    """
    linked = sp.csr_array(pattern(forward) @ pattern(incoming) + pattern(backward) @ pattern(outgoing))
    linked.sort_indices()
    return pattern(without(linked, start))


def pattern(matrix: sp.csr_array) -> sp.csr_array:
    """The matrix with 1 for every stored entry."""
    return sp.csr_array((np.ones(len(matrix.data)), matrix.indices, matrix.indptr), matrix.shape)


def check_pairs(
    out_degree: npt.NDArray[np.int64], in_degree: npt.NDArray[np.int64], most: int, place: str, way_out: str
) -> int:
    """Number of pairs that co-links would visit, Σ in-degree² + Σ out-degree².

    Errors: DataError where there are more than `most`, naming the instances that make most of them.
    """
    pairs = out_degree.astype(np.float64) ** 2 + in_degree.astype(np.float64) ** 2
    total = float(pairs.sum())
    if total > most:
        hubs = np.argsort(pairs)[:-4:-1]
        named = "; ".join(f"{hub} (links to {out_degree[hub]:,}, linked from {in_degree[hub]:,})" for hub in hubs)
        raise DataError(
            f"{place}: co-links would visit {total:,.0f} pairs of instances, more than {most:,}, because all "
            f"neighbours of an instance become linked with each other; most of them come of {named}; {way_out}"
        )
    return int(total)


_ONE_WEIGHT = "give a link that is there in both orders one weight, or pass direction='symmetrise', which adds them"


def _refuse_difference(forward: sp.csr_array, backward: sp.csr_array, place: str, start: int, way_out: str) -> None:
    different: sp.csr_array = cast(Any, forward) != backward
    if not different.nnz:
        return
    row = int(np.flatnonzero(np.diff(different.indptr))[0])
    column = int(different.indices[different.indptr[row] : different.indptr[row + 1]].min())
    raise DataError(
        f"{place}: the link from {start + row} to {column} has weight {float(forward[row, column])!r}, but that from "
        f"{column} to {start + row} has {float(backward[row, column])!r} (0.0: it is not there); {way_out}"
    )
