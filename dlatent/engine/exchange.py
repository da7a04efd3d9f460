"""The work of a pass over the edges of a graph: rows meet their neighbours before they are summed (see `passes.Edges`).

Of the adjacency matrix no more is used than the rows of one group at a time.  A group of blocks is the unit of
exchange: its rows travel whole, to the workers that have neighbours of them, and stay on the workers; the driver sees
the statistic only.

Where the graph is normalised, Q = D^(−½)R travel in the place of the rows R.  As S R = D^½ (D⁻¹A) Q, a hop then needs
nobody's degrees but those of the rows that it is for.

Law: like every pass, the result depends to the last bit on the blocks alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Exchanged, Features, Rows
from dlatent.blas import pinned
from dlatent.engine.cache import CACHE, measured
from dlatent.engine.fold import Share, Tally, Work, block_of, fold_block, folded, read_ahead, run_part
from dlatent.engine.group import Part
from dlatent.operators.sparse import add_coordinates
from dlatent.passes import MET_ENTRIES, Edges


class GroupEdges(NamedTuple):
    """The edges of a group's rows to the rows of one group (n, m), sorted by column."""

    group: int
    graph: sp.coo_array


class Packed:
    """The rows of some groups, by the number of the group, on their way to a worker whose groups need them.

    One value for all of them keeps the graph of a pass linear in the number of groups.  What it holds are the rows of
    other tasks, so that it weighs something only where it was sent.
    """

    def __init__(self, rows: Mapping[int, Rows], nbytes: int = 0) -> None:
        self.rows, self.nbytes = rows, nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        return Packed, (self.rows, sum(map(measured, self.rows.values())))


def project(work: Work, part: Part) -> Share:
    """R₀ of a part: the rows of its blocks, one below the other."""
    started, found, tally = perf_counter(), list[Rows](), Tally()
    with pinned():
        for block, cost in read_ahead(part, work):
            found.append(_edges(work).rows(block, work.pass_.parameters))
            tally = tally.plus(cost)
            del block
        rows, read = _divided(work, part, stacked(found))
    return rows, tally.plus(Tally(read)).since(started)


def project_block(work: Work, position: int, part: Part, features: Features) -> Share:
    """R₀ of one block, as a task of its own."""
    started = perf_counter()
    with pinned():
        found = _edges(work).rows(block_of(part, position, features), work.pass_.parameters)
    return found, Tally(measured(features), 1).since(started)


def stack_blocks(work: Work, part: Part, *shares: Share) -> Share:
    """R₀ of a part from those of its blocks."""
    rows, read = _divided(work, part, stacked([rows for rows, _ in shares]))
    return rows, reduce(Tally.plus, (tally for _, tally in shares), Tally(read))


def pack(work: Work, groups: Sequence[int], *shares: Share) -> Packed:
    """The rows of some groups."""
    return Packed({group: rows for group, (rows, _) in zip(groups, shares, strict=True)})


def spread(work: Work, hop: int, part: Part, first: Share, own: Share, *near: Packed) -> Share:
    """R_k of a part at hop k from its own R₀ and R_{k−1} and those of the groups that it has edges to."""
    pieces, read = pieces_of(work, part)
    total, tally = _hop(work, hop, pieces, first, own, *near)
    return total, tally.plus(Tally(read))


def _hop(work: Work, hop: int, pieces: Sequence[GroupEdges], first: Share, own: Share, *near: Packed) -> Share:
    started = perf_counter()
    met = _met_groups(pieces, near)
    with pinned():
        total = _edges(work).keep(first[0], own[0], hop, work.pass_.parameters)
        if _edges(work).normalised:
            shares = degrees(pieces, total.shape[0])
            total = _scaled(add_neighbours(_scaled(total, shares), pieces, met), 1.0 / shares)
        else:
            total = add_neighbours(total, pieces, met)
    return total, own[1].since(started)


def _met_groups(pieces: Sequence[GroupEdges], near: Sequence[Packed]) -> list[Rows]:
    """The rows of the groups that the pieces lead to."""
    rows = {group: found for packed in near for group, found in packed.rows.items()}
    return [rows[piece.group] for piece in pieces]


def fold(work: Work, part: Part, first: Share, own: Share, *near: Packed) -> Share:
    """The last hop, and the fold over the blocks of the part."""
    exchanged, tally = meet(work, part, first, own, *near)
    statistic, cost = run_part(work, part, exchanged)
    return statistic, tally.plus(cost)


def fold_rows(work: Work, part: Part, first: Share, own: Share, *near: Packed) -> Share:
    """The same where the fold needs no features: nothing is read."""
    if isinstance(first[0], sp.csr_array):
        return _fold_sparse_rows(work, part, first, own, *near)
    exchanged, tally = meet(work, part, first, own, *near)
    started, total = perf_counter(), None
    with pinned():
        for position, source in enumerate(part.blocks):
            block = block_of(part, position, np.empty((source.stop - source.start, 0)), exchanged)
            total = folded(work, total, work.pass_.map(block, work.pass_.parameters))
    return total, tally.since(started)


def _fold_sparse_rows(work: Work, part: Part, first: Share, own: Share, *near: Packed) -> Share:
    """The last hop and the fold of sparse rows, a few at a time: they have many more entries then, and memory that is
    used again is faster than new memory."""
    pieces, read = pieces_of(work, part)
    started, total = perf_counter(), None
    with pinned():
        kept = _edges(work).keep(first[0], own[0], _edges(work).hops, work.pass_.parameters)
        shares = degrees(pieces, kept.shape[0]) if _edges(work).normalised else np.ones(kept.shape[0])
        graph = _joined_edges(pieces, shares)
        graph = sp.csr_array(sp.diags_array(shares**-0.5) @ graph)  # 1/D of the hop, √D of what went as Q
        sent, rows = _scaled(first[0], np.sqrt(shares)), [cast(sp.csr_array, kept), *_met_groups(pieces, near)]
        cuts = _light_cuts(graph, np.concatenate([np.diff(cast(sp.csr_array, own).indptr) for own in rows]))
        for position, source in enumerate(part.blocks):
            start, stop = source.start - part.start, source.stop - part.start
            block = block_of(part, position, np.empty((stop - start, 0)))
            inside = cuts[(cuts > start) & (cuts < stop)].tolist()
            for a, b in pairwise([start, *inside, stop]):
                piece = _rows_of_block(block, slice(a - start, b - start), Exchanged(sent[a:b], _met(graph[a:b], rows)))
                total = folded(work, total, work.pass_.map(piece, work.pass_.parameters))
    return total, own[1].plus(Tally(read)).since(started)


def _met(graph: sp.csr_array, rows: Sequence[Rows]) -> sp.csr_array:
    """The product of a few rows of a graph with sparse rows that lie in several pieces, of which those that are met are
    brought together: all of them would be copied for each group, which takes longer than the product."""
    used, places = np.unique(graph.indices, return_inverse=True)
    bounds = np.cumsum([0, *(own.shape[0] for own in rows)])
    ends = np.searchsorted(used, bounds)
    near = [own[used[i:j] - start] for own, i, j, start in zip(rows, ends, ends[1:], bounds, strict=False) if j > i]
    few = sp.csr_array((graph.data, places, graph.indptr), shape=(graph.shape[0], len(used)))
    return sp.csr_array(few @ cast(sp.csr_array, stacked(near or [rows[0][:0]])))


def _light_cuts(graph: sp.csr_array, lengths: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Where to cut the rows of a product with sparse rows of these lengths, so that pieces have few entries."""
    ends = np.concatenate([[0], np.cumsum(lengths[graph.indices], dtype=np.int64)])[graph.indptr[1:]]
    return np.flatnonzero(np.diff(ends // MET_ENTRIES)) + 1


def _rows_of_block(block: Block, rows: slice, exchanged: Exchanged) -> Block:
    """Some rows of a block, with what they have met."""
    targets, weights = (None if of is None else of[rows] for of in (block.targets, block.weights))
    start = block.start + rows.start
    return replace(
        block, start=start, features=block.features[rows], targets=targets, weights=weights, exchanged=exchanged
    )


def meet(work: Work, part: Part, first: Share, own: Share, *near: Packed) -> tuple[Exchanged, Tally]:
    """The last hop of a part, for a fold that follows."""
    pieces, read = pieces_of(work, part)
    met, tally = _hop(work, _edges(work).hops, pieces, first, own, *near)
    tally = tally.plus(Tally(read))
    if not _edges(work).normalised:
        return Exchanged(first[0], met), tally
    roots = np.sqrt(degrees(pieces, met.shape[0]))
    return Exchanged(_scaled(first[0], roots), _scaled(met, roots)), tally


def fold_met_block(
    work: Work, position: int, part: Part, features: Features, met: tuple[Exchanged, Tally], share: Share | None = None
) -> Share:
    """The fold over one block as a task of its own; the first adds what the exchange has cost."""
    statistic, tally = fold_block(work, position, part, features, share, met[0])
    return statistic, tally if position else tally.plus(met[1])


def _edges(work: Work) -> Edges:
    return cast(Edges, work.pass_.meeting)


def _divided(work: Work, part: Part, rows: Rows) -> tuple[Rows, int]:
    """D^(−½)R of the rows R of a part where the graph is normalised, R where not, and the bytes that were read."""
    if not _edges(work).normalised:
        return rows, 0
    pieces, read = pieces_of(work, part)
    return _scaled(rows, 1.0 / np.sqrt(degrees(pieces, rows.shape[0]))), read


def _scaled(rows: Rows, factors: Array) -> Rows:
    """Each row times its factor."""
    if isinstance(rows, sp.csr_array):
        return sp.csr_array(sp.diags_array(factors) @ rows)
    return rows * factors[:, None]


def degrees(pieces: Sequence[GroupEdges], rows: int) -> Array:
    """The sums of the weights of each row (n,); 1 of a row without edges, which has nobody to share with."""
    found = np.zeros(rows)
    for piece in pieces:
        found += np.bincount(piece.graph.coords[0], weights=piece.graph.data, minlength=rows)
    found[found == 0.0] = 1.0
    return found


def add_neighbours(total: Rows, pieces: Sequence[GroupEdges], near: Sequence[Rows]) -> Rows:
    """`total` + Σ_j A_ij R_j (n, b) over the groups j of the pieces, in their order; a dense total is given up."""
    if isinstance(total, sp.csr_array):
        graph = _joined_edges(pieces, np.ones(total.shape[0]))
        return sp.csr_array(graph @ cast(sp.csr_array, stacked([total, *near])))
    total = np.ascontiguousarray(total)
    for piece, rows in zip(pieces, near, strict=True):
        add_coordinates(total, piece.graph, cast(Array, rows))
    return total


def _joined_edges(pieces: Sequence[GroupEdges], own: Array) -> sp.csr_array:
    """The edges to a group's own rows, of these weights, and to those of the pieces, side by side (n, n + m).

    One product with everything: sums of sparse matrices sort their entries, which costs more than the product.
    """
    return sp.csr_array(sp.hstack([sp.diags_array(own, format="csr"), *(p.graph for p in pieces)], format="csr"))


def pieces_of(work: Work, part: Part) -> tuple[list[GroupEdges], int]:
    """The edges of a part's rows by the group that they lead to, and the bytes that were read for it."""
    assert part.graph is not None
    graph = part.graph
    kept = CACHE.get(graph.key, part.index)
    if kept is None:
        rows = graph.rows.load(part.start, part.stop)
        pieces = split_columns(rows, graph.bounds)
        size = sum(array.nbytes for p in pieces for array in (p.graph.data, *p.graph.coords))
        # Edges are worth more than blocks: they are used in every hop, and cutting them takes longer than reading.
        CACHE.admit(graph.key, part.index, pieces, work.cache_bytes, size, over=part.key)
        return pieces, measured(rows)
    return kept, 0


def split_columns(rows: sp.csr_array, bounds: Sequence[int]) -> list[GroupEdges]:
    """Cut rows (n, N) at the columns `bounds`; groups without an entry are left out.

    Sorted by column, so that the rows that they multiply are read in order, and without a pointer for each column:
    most columns have no edge to the rows of a group.
    """
    columns = rows.tocsc()
    ends = columns.indptr[list(bounds)]

    def cut(group: int) -> sp.coo_array:
        first, last, at = bounds[group], bounds[group + 1], slice(ends[group], ends[group + 1])
        counts = np.diff(columns.indptr[first : last + 1])
        met = np.repeat(np.arange(last - first, dtype=columns.indices.dtype), counts)
        return sp.coo_array((columns.data[at], (columns.indices[at], met)), shape=(rows.shape[0], last - first))

    return [GroupEdges(group, cut(group)) for group in np.flatnonzero(np.diff(ends)).tolist()]


def count_neighbours(work: Work, part: Part) -> npt.NDArray[np.int64]:
    """How many rows of each group (G,) the rows of a part meet."""
    assert part.graph is not None
    counts = np.zeros(len(part.graph.bounds) - 1, dtype=np.int64)
    for group, graph in pieces_of(work, part)[0]:
        counts[group] = np.count_nonzero(np.diff(graph.coords[1], prepend=-1))
    return counts


def needs_of(survey: npt.NDArray[np.int64]) -> list[list[int]]:
    """The groups that each group has edges to, in order."""
    return [np.flatnonzero(counts).tolist() for counts in survey]


class Traffic(NamedTuple):
    """What one exchange moves: rows that travel between workers, and rows that the fullest worker then holds."""

    rows: int
    reach: int


def traffic_of(survey: npt.NDArray[np.int64], rows: Sequence[int], homes: Sequence[str]) -> Traffic:
    """The traffic of one exchange, of which groups of `rows` rows, at their homes, are the units."""
    sizes, held = np.asarray(rows), []
    at_home = np.array([[home == worker for home in homes] for worker in sorted(set(homes))])
    travelling = 0
    for own in at_home:
        wanted = (survey[own] > 0).any(axis=0) & ~own
        travelling += int(sizes[wanted].sum())
        held.append(int(sizes[wanted | own].sum()))
    return Traffic(travelling, max(held))


def stacked(rows: Sequence[Rows]) -> Rows:
    """Rows one below the other, in memory that numerical libraries find aligned."""
    if len(rows) == 1:
        return rows[0]
    if any(isinstance(part, sp.csr_array) for part in rows):
        return sp.csr_array(sp.vstack(cast("Sequence[sp.csr_array]", rows), format="csr"))
    return np.concatenate(cast("Sequence[Array]", rows))
