"""Passes over the edges of a graph: rows meet their neighbours before they are summed (see `passes.Edges`).

Of the adjacency matrix no more is used than the rows of one group at a time.  A group of blocks is the unit of
exchange: its rows travel whole, to the workers that have neighbours of them, and stay on the workers; the driver sees
the statistic only.

Where the graph is normalised, Q = D^(−½)R travel in the place of the rows R.  As S R = D^½ (D⁻¹A) Q, a hop then needs
nobody's degrees but those of the rows that it is for.

Law: like every pass, the result depends to the last bit on the blocks alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Exchanged, Rows
from dlatent.blas import pinned
from dlatent.engine.cache import CACHE, measured
from dlatent.engine.fold import Share, Tally, Work, admit, block_of, folded, read_ahead, run_group
from dlatent.engine.group import Group
from dlatent.engine.task_graph import Draft, Layout, Ref, TaskGraph
from dlatent.operators.sparse import add_coordinates, stacked
from dlatent.passes import MET_ENTRIES, Edges


class GroupEdges(NamedTuple):
    """The edges of a group's rows to the rows of one group (n, m), sorted by column."""

    group: int
    graph: sp.coo_array


class SentRows:
    """The rows of some groups, by the number of the group, on their way to workers whose groups need them.

    What it holds are the rows of other tasks, so that it weighs something only where it was sent.
    """

    def __init__(self, rows: Mapping[int, Rows], nbytes: int = 0) -> None:
        self.rows, self.nbytes = rows, nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        return SentRows, (self.rows, sum(map(measured, self.rows.values())))


def edges_graph(layout: Layout, edges: Edges, needs: Sequence[Sequence[int]]) -> TaskGraph:
    """The tasks of a pass: every group sends rows to those that have edges to them, once or several times, and is
    folded.  `needs[g]` are the groups that group g has edges to."""
    draft, bundles = Draft(), bundles_of(layout.homes, needs)
    bundle_of = {group: number for number, groups in enumerate(bundles) for group in groups}
    wanted = [tuple(dict.fromkeys(bundle_of[other] for other in near)) for near in needs]

    def packed(rows: Sequence[Ref]) -> list[Ref]:
        """The bundles of these rows."""
        return [
            draft.add(pack, values=(groups,), inputs=tuple(rows[at] for at in groups), home=layout.homes[groups[0]])
            for groups in bundles
        ]

    first = [draft.add(project, groups=(group,), home=home) for group, home in enumerate(layout.homes)]
    last, sent = first, packed(first)

    def with_neighbours(group: int) -> dict[str, Any]:
        near = (sent[number] for number in wanted[group])
        return {"groups": (group,), "inputs": (first[group], last[group], *near), "home": layout.homes[group]}

    for hop in range(1, edges.hops):
        last = [draft.add(spread, values=(hop,), reads=False, **with_neighbours(group)) for group in range(len(first))]
        sent = packed(last)
    return draft.tree(
        lambda group: draft.add(fold_met, steps=1, reads=edges.features, **with_neighbours(group)), len(first)
    )


def bundles_of(homes: Sequence[str], needs: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Groups of one worker that the same workers need, so that whoever gets a bundle needs all of it.

    Every group is in one bundle at most.  One for each two workers would be a million tasks on a thousand workers.
    """
    takers, alike = [set[str]() for _ in homes], defaultdict[tuple[str, frozenset[str]], list[int]](list)
    for home, near in zip(homes, needs, strict=True):
        for group in near:
            takers[group].add(home)
    for group, (home, workers) in enumerate(zip(homes, takers, strict=True)):
        if workers:
            alike[home, frozenset(workers)].append(group)
    return [tuple(groups) for groups in alike.values()]


def survey_graph(layout: Layout) -> TaskGraph:
    """The tasks that count the neighbours of each group."""
    draft = Draft()
    refs = [draft.add(count_neighbours, groups=(at,), home=home, reads=False) for at, home in enumerate(layout.homes)]
    return TaskGraph(tuple(draft.tasks), tuple(refs))


def project(work: Work, group: Group) -> Share:
    """R₀ of a group: the rows of its blocks, one below the other."""
    started, rows, tally = perf_counter(), list[Rows](), Tally()
    with pinned():
        for block, cost in read_ahead(work, group):
            rows.append(_edges(work).rows(block, work.pass_.parameters))
            tally = tally.plus(cost)
            del block
        projected = stacked(rows)
        if _edges(work).normalised:
            pieces, read = pieces_of(work, group)
            projected = _scaled(projected, 1.0 / np.sqrt(degrees(pieces, projected.shape[0])))
            tally = tally.plus(Tally(bytes_read=read))
    return projected, tally.since(started)


def pack(work: Work, groups: Sequence[int], *shares: Share) -> SentRows:
    """The rows of some groups."""
    return SentRows({group: rows for group, (rows, _) in zip(groups, shares, strict=True)})


def spread(work: Work, hop: int, group: Group, first: Share, last: Share, *near: SentRows) -> Share:
    """R_k of a group at hop k from its own R₀ and R_{k−1} and those of the groups that it has edges to."""
    total, _, tally = _hop(work, hop, group, first, last, near)
    return total, tally


def _hop(
    work: Work, hop: int, group: Group, first: Share, last: Share, near: Sequence[SentRows]
) -> tuple[Rows, Array | None, Tally]:
    """The result of `spread`, and where the graph is normalised the degrees between its parts."""
    started, shares = perf_counter(), None
    pieces, read = pieces_of(work, group)
    met = _met_groups(pieces, near)
    with pinned():
        total = _edges(work).keep(first[0], last[0], hop, work.pass_.parameters)
        if _edges(work).normalised:
            shares = degrees(pieces, total.shape[0])
            total = _scaled(add_neighbours(_scaled(total, shares), pieces, met), 1.0 / shares)
        else:
            total = add_neighbours(total, pieces, met)
    return total, shares, last[1].plus(Tally(bytes_read=read)).since(started)


def _met_groups(pieces: Sequence[GroupEdges], near: Sequence[SentRows]) -> list[Rows]:
    """The rows of the groups that the pieces lead to."""
    rows = {group: sent for parcel in near for group, sent in parcel.rows.items()}
    return [rows[piece.group] for piece in pieces]


def fold_met(work: Work, group: Group, first: Share, last: Share, *near: SentRows) -> Share:
    """The last hop, and the fold over the blocks of the group."""
    if isinstance(first[0], sp.csr_array) and not _edges(work).features:
        return _fold_sparse_rows(work, group, first, last, *near)
    met, shares, tally = _hop(work, _edges(work).hops, group, first, last, near)
    started, total, sent = perf_counter(), None, first[0]
    if shares is not None:
        sent, met = (_scaled(rows, np.sqrt(shares)) for rows in (sent, met))
    exchanged = Exchanged(sent, met)
    if _edges(work).features:
        total, cost = run_group(work, group, exchanged)
        return total, tally.plus(cost)
    with pinned():
        for position, source in enumerate(group.blocks):
            block = block_of(group, position, np.empty((source.stop - source.start, 0)), exchanged)
            total = folded(work, total, work.pass_.map(block, work.pass_.parameters))
    return total, tally.since(started)


def _fold_sparse_rows(work: Work, group: Group, first: Share, last: Share, *near: SentRows) -> Share:
    """The last hop and the fold of sparse rows, a few at a time: they have many more entries then, and memory that is
    used again is faster than new memory."""
    pieces, read = pieces_of(work, group)
    started, total = perf_counter(), None
    with pinned():
        kept = _edges(work).keep(first[0], last[0], _edges(work).hops, work.pass_.parameters)
        shares = degrees(pieces, kept.shape[0]) if _edges(work).normalised else np.ones(kept.shape[0])
        graph = _joined_edges(pieces, shares)
        graph = sp.csr_array(sp.diags_array(shares**-0.5) @ graph)  # 1/D of the hop, √D of what went as Q
        sent, rows = _scaled(first[0], np.sqrt(shares)), [cast(sp.csr_array, kept), *_met_groups(pieces, near)]
        cuts = _light_cuts(graph, np.concatenate([np.diff(cast(sp.csr_array, each).indptr) for each in rows]))
        for position, source in enumerate(group.blocks):
            start, stop = source.start - group.start, source.stop - group.start
            block = block_of(group, position, np.empty((stop - start, 0)))
            inside = cuts[(cuts > start) & (cuts < stop)].tolist()
            for a, b in pairwise([start, *inside, stop]):
                piece = _rows_of_block(block, slice(a - start, b - start), Exchanged(sent[a:b], _met(graph[a:b], rows)))
                total = folded(work, total, work.pass_.map(piece, work.pass_.parameters))
    return total, last[1].plus(Tally(bytes_read=read)).since(started)


def _met(graph: sp.csr_array, rows: Sequence[Rows]) -> sp.csr_array:
    """The product of a few rows of a graph with sparse rows that lie in several pieces, of which those that are met are
    brought together: all of them would be copied for each group, which takes longer than the product."""
    used, places = np.unique(graph.indices, return_inverse=True)
    bounds = np.cumsum([0, *(each.shape[0] for each in rows)])
    ends = np.searchsorted(used, bounds)
    near = [each[used[i:j] - start] for each, i, j, start in zip(rows, ends, ends[1:], bounds, strict=False) if j > i]
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


def _edges(work: Work) -> Edges:
    return cast(Edges, work.pass_.exchange)


def _scaled(rows: Rows, factors: Array) -> Rows:
    """Each row times its factor."""
    if isinstance(rows, sp.csr_array):
        return sp.csr_array(sp.diags_array(factors) @ rows)
    return rows * factors[:, None]


def degrees(pieces: Sequence[GroupEdges], rows: int) -> Array:
    """The sums of the weights of each row (n,); 1 of a row without edges, which has nobody to share with."""
    sums = np.zeros(rows)
    for piece in pieces:
        sums += np.bincount(piece.graph.coords[0], weights=piece.graph.data, minlength=rows)
    sums[sums == 0.0] = 1.0
    return sums


def add_neighbours(total: Rows, pieces: Sequence[GroupEdges], near: Sequence[Rows]) -> Rows:
    """`total` + Σ_j A_ij R_j (n, b) over the groups j of the pieces, in their order; a dense total is given up."""
    if isinstance(total, sp.csr_array):
        graph = _joined_edges(pieces, np.ones(total.shape[0]))
        return sp.csr_array(graph @ cast(sp.csr_array, stacked([total, *near])))
    total = np.ascontiguousarray(total)
    for piece, rows in zip(pieces, near, strict=True):
        add_coordinates(total, piece.graph, cast(Array, rows))
    return total


def _joined_edges(pieces: Sequence[GroupEdges], weights: Array) -> sp.csr_array:
    """The edges to a group's own rows, of these weights, and to those of the pieces, side by side (n, n + m).

    One product with everything: sums of sparse matrices sort their entries, which costs more than the product.
    """
    return sp.csr_array(sp.hstack([sp.diags_array(weights, format="csr"), *(p.graph for p in pieces)], format="csr"))


def pieces_of(work: Work, group: Group) -> tuple[list[GroupEdges], int]:
    """The edges of a group's rows by the group that they lead to, and the bytes that were read for it."""
    graph = group.graph
    assert graph is not None
    kept = CACHE.get(graph.key, group.index)
    if kept is not None:
        return kept, 0
    rows = graph.rows.load(group.start, group.stop)
    pieces = split_columns(rows, graph.bounds)
    size = sum(array.nbytes for piece in pieces for array in (piece.graph.data, *piece.graph.coords))
    # Edges are worth more than blocks: they are used in every hop, and cutting them takes longer than reading.
    admit(work, graph.key, group.index, pieces, size, over=group.key)
    return pieces, measured(rows)


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


def count_neighbours(work: Work, group: Group) -> Share:
    """How many rows of each group (G,) the rows of a group meet."""
    assert group.graph is not None
    counts = np.zeros(len(group.graph.bounds) - 1, dtype=np.int64)
    for other, graph in pieces_of(work, group)[0]:
        counts[other] = np.count_nonzero(np.diff(graph.coords[1], prepend=-1))
    return counts, Tally()


def needs_of(survey: npt.NDArray[np.int64]) -> list[list[int]]:
    """The groups that each group has edges to, from the rows of each (G, G) that it meets."""
    return [np.flatnonzero(counts).tolist() for counts in survey]


class Traffic(NamedTuple):
    """Traffic of one exchange: rows that travel between workers, rows that the fullest worker then holds, and tasks
    that it adds to a pass."""

    rows: int
    reach: int
    tasks: int


def traffic_of(survey: npt.NDArray[np.int64], rows: Sequence[int], homes: Sequence[str]) -> Traffic:
    """The traffic of one exchange, of which groups of `rows` rows, at their homes, are the units."""
    sizes, travelling, reach = np.asarray(rows), 0, 0
    for worker in set(homes):
        at_home = np.array([home == worker for home in homes])
        wanted = (survey[at_home] > 0).any(axis=0) & ~at_home
        travelling += int(sizes[wanted].sum())
        reach = max(reach, int(sizes[wanted | at_home].sum()))
    return Traffic(travelling, reach, len(homes) + len(bundles_of(homes, needs_of(survey))))
