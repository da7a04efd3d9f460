"""Lists of edges, in memory: arrays, tables and networkx graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlatent.containers import refuse_mask
from dlatent.errors import DataError
from dlatent.stores.graph.checks import check_samples, check_weights
from dlatent.stores.graph.counts import Counts
from dlatent.stores.graph.lookup import Lookup
from dlatent.stores.numbers import INEXACT, inexact, is_real, real


class EdgePiece(NamedTuple):
    """Consecutive edges of a list: names of samples (m,) and (m,), weights (m,) or None."""

    sources: npt.NDArray[Any]
    targets: npt.NDArray[Any]
    weights: npt.NDArray[Any] | None


class Placed(NamedTuple):
    """Edges between positions: float64 weights, which are 1 for unweighted edges."""

    sources: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]


MOST_SAMPLES = 10_000_000
"""Each sample costs about 50 bytes of memory: more of them are not believed of a list that is all there is."""

NOTHING = Placed(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
"""No edges."""


@dataclass(frozen=True)
class EdgeList:
    """A list of edges that is read piece by piece, as often as needed.

    `weighted` None: where all weights are 1 they are none; `undirected`: the input says that its edges have no
    direction; `samples`, the number that the input says (None: it does not), which is at least `least`;
    `by_position`: its numbers are positions even where the data have labels; `first`, the number of the first row in
    messages.
    """

    place: str
    pieces: Callable[[], Iterator[EdgePiece]]
    weighted: bool | None
    undirected: bool = False
    samples: int | None = None
    least: int = 0
    by_position: bool = False
    first: int = 0

    def placed(self, lookup: Lookup) -> Iterator[Placed]:
        """The edges by position, checked.

        Errors: DataError naming the row of the first name that is unknown, or of the first weight that is no weight.
        """
        row, lookup = self.first, lookup.by_position(self.samples) if self.by_position else lookup
        for piece in self.pieces():
            yield self._place(piece, lookup, row)
            row += len(piece.sources)

    def _place(self, piece: EdgePiece, lookup: Lookup, row: int) -> Placed:
        def where(at: int) -> str:
            return f"{self.place} row {row + at}"

        sources = lookup.positions(piece.sources, where)
        targets = lookup.positions(piece.targets, where)
        weights = np.ones(len(sources)) if piece.weights is None else _numbers(piece.weights, where)
        check_weights(weights, self.place, lambda at: f"row {row + at} ({piece.sources[at]} to {piece.targets[at]})")
        return Placed(sources, targets, weights)


def resolve(edges: EdgeList, lookup: Lookup) -> tuple[Lookup, tuple[str, ...]]:
    """A lookup that knows the number of samples, from the list where nothing else says it, and notes about that.

    Errors: DataError where the list says another number than the data, or nothing says any.
    """
    if edges.samples is not None and lookup.samples is None and edges.samples > MOST_SAMPLES:
        raise DataError(
            f"{edges.place} announces {edges.samples:,} samples; if it is no damage, give "
            f"samples={edges.samples}, the number of rows of the data"
        )
    if edges.samples is not None and (edges.by_position or lookup.samples is None):
        before = None if lookup.origin is None else lookup.origin.rows
        if before is None or edges.samples != before:
            check_samples(edges.samples, lookup.samples, edges.place)
        return (lookup if lookup.samples is not None else Lookup(edges.samples)), ()
    if lookup.samples is not None:
        return lookup, ()
    largest = max((max(p.sources.max(initial=-1), p.targets.max(initial=-1)) for p in edges.placed(lookup)), default=-1)
    samples = max(edges.least, int(largest) + 1)
    if samples > MOST_SAMPLES:
        raise DataError(
            f"{edges.place} names position {samples - 1:,}, and nothing else says how many samples there are; if "
            f"it is no mistake, give samples={samples}, the number of rows of the data"
        )
    if not samples:
        raise DataError(f"{edges.place} holds no edges; give samples=, the number of rows of the data")
    return Lookup(samples), (f"the graph has {samples:,} samples, one more than the largest position in the list",)


def kept(placed: Placed, counts: Counts, *, precision: bool = False) -> Placed:
    """The edges without those of samples to themselves and of weight zero, which are counted; of a precision, the
    entries that are not zero."""
    loops, zeros = placed.sources == placed.targets, placed.weights == 0
    if precision:
        loops = np.zeros_like(loops)
    counts.zeros += int(zeros.sum())
    counts.self_loops += int((loops & ~zeros).sum())
    keep = ~(loops | zeros)
    return placed if keep.all() else Placed(*(column[keep] for column in placed))


def edges_of_array(graph: Any, weights: npt.ArrayLike | None) -> EdgeList:
    """The list that an array (m, 2), or (m, 3) with weights, or a table with such columns holds."""
    frame = hasattr(graph, "columns")
    place = "table of edges" if frame else "array of edges"
    if frame:
        columns = [np.asarray(graph.iloc[:, at]) for at in range(graph.shape[1])]
    else:
        values = refuse_mask(graph, place)
        if values.ndim != 2:
            raise DataError(f"{place} has shape {values.shape}; expected (m, 2), or (m, 3) with weights")
        columns = list(values.T)
    if len(columns) not in (2, 3):
        way_out = "; a dense adjacency matrix is read as scipy.sparse.csr_array(A)" if not frame else ""
        raise DataError(f"{place} has {len(columns)} columns; expected two, or three with weights{way_out}")
    given = columns[2] if len(columns) == 3 else None
    if weights is not None:
        if given is not None:
            raise DataError(f"{place} has a third column of weights, and weights= is given too; give one of them")
        given = refuse_mask(weights, "weights")
        if given.shape != columns[0].shape:
            raise DataError(f"weights have shape {given.shape}, but there are {len(columns[0]):,} edges")
    piece = EdgePiece(columns[0], columns[1], given)
    return EdgeList(place, lambda: iter([piece]), given is not None)


def is_networkx(graph: Any) -> bool:
    """Whether the value behaves as a networkx graph."""
    return all(callable(getattr(graph, name, None)) for name in ("nodes", "edges", "is_directed"))


def edges_of_networkx(graph: Any) -> EdgeList:
    """The edges of a networkx graph, with the attribute `weight` where an edge has one (1 where it has none)."""
    found = list(graph.edges(data="weight"))
    weighted = any(weight is not None for _, _, weight in found)
    weights = np.array([1.0 if weight is None else weight for _, _, weight in found]) if weighted else None
    sources, targets = (np.fromiter((edge[end] for edge in found), object, len(found)) for end in (0, 1))
    piece = EdgePiece(sources, targets, weights)
    numbers = [node for node in graph.nodes() if isinstance(node, int | np.integer)]
    least = int(max(numbers, default=-1)) + 1
    place = f"networkx {type(graph).__name__}"
    return EdgeList(place, lambda: iter([piece]), weighted, undirected=not graph.is_directed(), least=least)


def _numbers(weights: npt.NDArray[Any], where: Callable[[int], str]) -> npt.NDArray[np.float64]:
    if weights.dtype.kind in "biuf":
        wrong = np.flatnonzero(inexact(weights))
        if len(wrong):
            raise DataError(f"{where(int(wrong[0]))}: {INEXACT.format(value=weights[wrong[0]])}")
        return np.asarray(weights, dtype=np.float64)
    found = np.empty(len(weights))
    for at, weight in enumerate(weights.tolist()):
        try:
            found[at] = real(weight.strip()) if isinstance(weight, str) else float(weight)
        except (TypeError, ValueError, OverflowError) as error:
            why = f" ({error})" if isinstance(weight, str) and is_real(weight.strip()) else ""
            raise DataError(f"{where(at)} has weight {weight!r}; weights are numbers{why}") from None
    return found
