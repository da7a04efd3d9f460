"""Several views of the same samples, each in its own store, read as one source of joint samples.

Samples are sorted by the views that they have, so that a block holds the features of the same views side by side.  A
block names the rows that it wants of each view; they are read from the blocks of the view that hold them, one of these
at a time.  Each row is asked of its view once a pass, and rows in order are read in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple, cast
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, BlockSource, DataSource, Features
from dlatent.errors import DataError
from dlatent.gaussian.views import empty_rows, first_bad_entry
from dlatent.observations import OBSERVATION_MODELS
from dlatent.observations.statistics import not_allowed
from dlatent.operators.sparse import stacked
from dlatent.stores.partition import wanted_bytes
from dlatent.stores.places import read_places
from dlatent.stores.rows import ArrayRows, Rows, divided_rows

Table = npt.NDArray[np.int64]
"""Rows of each view (samples, views), −1 where a sample lacks the view."""

NORMAL: Mapping[str, str] = MappingProxyType({})
"""Likelihoods of views whose entries are all normal."""
MANY_REREADS = 4.0
"""Blocks loaded in a pass for each one that there is, above which the plan tells of it."""


class RowPiece(NamedTuple):
    """Rows of one block of a view, relative to it, and where they go among the rows that are read of the view."""

    source: Any
    rows: Table
    places: Table

    def of(self, block: Features) -> Features:
        """The rows of the loaded block: no copy of it where they are all of its rows."""
        return block if np.array_equal(self.rows, np.arange(block.shape[0])) else block[self.rows]


@dataclass(frozen=True)
class ViewRows:
    """Rows of a view, in any order: the pieces that they come in, and the distribution of their entries."""

    name: str
    rows: Table = field(repr=False)
    pieces: tuple[RowPiece, ...]
    likelihood: str = "normal"

    @classmethod
    def of(cls, name: str, source: DataSource, rows: Table, likelihood: str = "normal") -> ViewRows:
        """Rows of a view in the order given, as pieces of its blocks."""
        starts = np.array([block.start for block in source.blocks])
        holder = np.searchsorted(starts, rows, side="right") - 1
        pieces = list[RowPiece]()
        for number in np.unique(holder).tolist():
            places, block = np.flatnonzero(holder == number), source.blocks[number]
            pieces.append(RowPiece(block, rows[places] - block.start, places))
        return cls(name, rows, tuple(pieces), likelihood)

    def put_together(self, blocks: Iterable[Features]) -> Features:
        """The rows from the blocks of the view that hold them, of which one at a time is needed."""
        parts = tuple(piece.of(block) for piece, block in zip(self.pieces, blocks, strict=True))
        rows = parts[0] if len(parts) == 1 else stacked(parts)
        order = np.concatenate([piece.places for piece in self.pieces])
        return rows if (np.diff(order) > 0).all() else rows[np.argsort(order)]

    def in_units(self, units: Array) -> ViewRows:
        """The rows with each feature divided by its unit (D,)."""
        return replace(self, pieces=tuple(p._replace(source=divided_rows(p.source, units)) for p in self.pieces))

    def load(self) -> Features:
        """Read the rows."""
        return self.put_together(piece.source.load() for piece in self.pieces)

    def by_value(self) -> ViewRows:
        """The rows in memory, without the blocks that they are rows of; those that lie elsewhere as they are."""
        if not all(getattr(piece.source, "in_memory", False) for piece in self.pieces):
            return self
        every = np.arange(len(self.rows))
        return replace(self, pieces=(RowPiece(ArrayRows(0, len(every), 0, self.load()), every, every),))


@dataclass(eq=False)
class JointRows(Rows):
    """Samples `[start, stop)`, which have the same views: rows of each of them, side by side.

    `refuse_zero_rows` names the views in which no row may be all zeros; `computed` tells whether an engine computes
    what does not lie in memory, of all blocks of the joint samples alike; with `holes` NaN is a missing entry.
    """

    views: tuple[ViewRows, ...]
    refuse_zero_rows: tuple[str, ...]
    computed: bool
    holes: bool = False

    @property
    def collection(self) -> tuple[Any, ...] | None:
        """The Dask collections behind all pieces that do not lie in memory, or None where some of these have none."""
        if not self.computed:
            return None
        pieces = (piece for view in self.views for piece in view.pieces)
        return tuple(part for piece in pieces for part in piece.source.collection or ())

    def load(self) -> Features:
        """Read the rows of all views.

        Errors: DataError naming view, row and column of a value that is not finite, or a row of zeros where refused.
        """
        return self._joined([view.load() for view in self.views])

    def assemble(self, parts: Iterable[Any]) -> Features:
        """The rows from the computed collections of all pieces, or the loaded block itself."""
        if not self.computed:
            return super().assemble(parts)
        waiting = iter(parts)  # of which each block takes its own
        sources = ([piece.source for piece in view.pieces] for view in self.views)
        blocks = ((s.load() if s.collection is None else s.assemble(waiting) for s in each) for each in sources)
        return self._joined([view.put_together(each) for view, each in zip(self.views, blocks, strict=True)])

    def without_collection(self) -> JointRows:
        """Return the rows without their graphs, which can still `assemble` what an engine has computed."""
        views = (replace(view, pieces=tuple(map(_without_collection, view.pieces))) for view in self.views)
        return replace(self, views=tuple(views))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Rows in this process's memory travel by value, without the blocks that they are rows of."""
        views = tuple(view.by_value() for view in self.views)
        about = self.refuse_zero_rows, self.computed, self.holes
        return type(self), (self.start, self.stop, self.nbytes, views, *about)

    def _joined(self, parts: list[Features]) -> Features:
        for view, x in zip(self.views, parts, strict=True):
            _check(view, x, zero_rows=view.name not in self.refuse_zero_rows, holes=self.holes)
        return side_by_side(parts)


def side_by_side(parts: list[Features]) -> Features:
    """The columns of the same rows, sparse where some are."""
    if len(parts) == 1:
        return stacked(parts)
    if not any(isinstance(x, sp.csr_array) for x in parts):
        return np.hstack(cast("list[Array]", parts))
    joined = sp.csr_array(sp.hstack([sp.csr_array(x) for x in parts], format="csr"))
    joined.sort_indices()
    return joined


def _without_collection(piece: RowPiece) -> RowPiece:
    lighter = getattr(piece.source, "without_collection", None)
    return piece if lighter is None else piece._replace(source=lighter())


def _check(view: ViewRows, x: Features, *, zero_rows: bool, holes: bool) -> None:
    """Refuse what no model can use, by the names that the user knows it by."""
    bad = first_bad_entry(x, holes=holes)
    if bad is not None:
        mend = "a sample may lack a view; where it lacks single entries, fill them or fit around them by missing='nan'"
        raise DataError(
            f"view {view.name!r}, row {view.rows[bad.row]}, column {bad.column} is {bad.value}; "
            + ("make it NaN if it is missing, or correct it" if holes else mend),
            column=bad.column,
            view=view.name,
        )
    model = OBSERVATION_MODELS[view.likelihood]
    bad = not_allowed(model, x)
    if bad is not None:
        raise DataError(
            f"view {view.name!r}, row {view.rows[bad.row]}, column {bad.column} is {bad.value:g}, and not "
            f"{model.values}, as its likelihood {model.name!r} asks for; correct it, or take another likelihood",
            column=bad.column,
            view=view.name,
        )
    if not zero_rows and len(empty := empty_rows(x)):
        raise DataError(
            f"view {view.name!r}, row {view.rows[empty[0]]} is all zeros, and {len(empty)} of the rows beside it are; "
            "leave them out, or fit them all the same with zero_rows='keep'"
        )


@dataclass(frozen=True)
class JointSource(DataSource):
    """Joint samples, sorted by pattern: `views` by name, the views that each of the `patterns` has, and the `bounds`
    between the patterns among the samples.

    `order` (samples,) says which line of the table each sorted sample is.
    """

    views: Mapping[str, DataSource] = field(default_factory=dict)
    patterns: tuple[tuple[int, ...], ...] = ()
    bounds: tuple[int, ...] = (0,)
    order: Table = field(default_factory=lambda: np.zeros(0, dtype=np.int64), repr=False)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Features of each view."""
        return tuple(source.shape[1] for source in self.views.values())

    def in_units(self, units: Mapping[str, Array]) -> JointSource:
        """The samples with each feature divided by its unit, by view; views that are not named keep theirs."""
        blocks = []
        for block in cast("tuple[JointRows, ...]", self.blocks):
            views = (view.in_units(units[view.name]) if view.name in units else view for view in block.views)
            blocks.append(replace(block, views=tuple(views)))
        return replace(self, blocks=tuple(blocks), key=uuid4().hex, in_memory=False)


def joint(
    views: Mapping[str, DataSource],
    table: Table,
    *,
    block_bytes: int | None = None,
    refuse_zero_rows: Iterable[str] = (),
    holes: bool = False,
    likelihoods: Mapping[str, str] = NORMAL,
    kind: type[JointRows] = JointRows,
) -> JointSource:
    """Join views by a table (samples, views) of their rows, −1 where a sample lacks the view.

    Law: each row that the table names is loaded once a pass.  A block holds samples of one pattern in the order of
    the rows of its first view, whose blocks are not split but for size; it has about `block_bytes` (None: as `open`).
    `refuse_zero_rows` names the views in which no row may be all zeros; with `holes` NaN is a missing entry;
    `likelihoods` are those of the entries of views, where they are not normal; blocks are of a `kind`.
    """
    refused = tuple(refuse_zero_rows)
    names, sources, has = list(views), list(views.values()), table >= 0
    # A number for each set of views: sorting numbers is much faster than sorting rows.
    codes = has @ (1 << np.arange(has.shape[1]))
    _, examples, number = np.unique(codes, return_index=True, return_inverse=True)
    sets = [tuple(np.flatnonzero(row).tolist()) for row in has[examples]]
    patterns = tuple(sorted(sets, key=lambda pattern: (-len(pattern), pattern)))
    rank = np.array([patterns.index(pattern) for pattern in sets])
    pattern_of = rank[number]
    lead = table[np.arange(len(table)), has.argmax(axis=1)]
    order = np.lexsort((lead, pattern_of))
    bounds = np.searchsorted(pattern_of[order], np.arange(len(patterns) + 1)).tolist()
    row_bytes = [source.nbytes / source.shape[0] for source in sources]
    most = wanted_bytes(block_bytes, int((has.sum(axis=0) * row_bytes).sum()))
    lazy = [source.blocks[0].collection is not None for source in sources]
    computed = any(lazy) and all(computes or source.in_memory for computes, source in zip(lazy, sources, strict=True))
    blocks: list[JointRows] = []
    for pattern, (start, stop) in zip(patterns, pairwise(bounds), strict=True):
        one = max(sum(row_bytes[view] for view in pattern), 1.0)
        cuts = _cuts(sources[pattern[0]], lead[order[start:stop]], max(1, int(most / one)))
        for first, last in cuts:
            rows = table[order[start + first : start + last]]
            parts = tuple(
                ViewRows.of(names[view], sources[view], rows[:, view], likelihoods.get(names[view], "normal"))
                for view in pattern
            )
            size = int((last - first) * one)
            blocks.append(kind(start + first, start + last, size, parts, refused, computed, holes))
    loads = sum(len(view.pieces) for block in blocks for view in block.views)
    rereads = loads / sum(len(source.blocks) for source in sources)
    return JointSource(
        (len(table), sum(source.shape[1] for source in sources)),
        np.result_type(*(source.dtype for source in sources)),
        cast("tuple[BlockSource, ...]", tuple(blocks)),
        uuid4().hex,
        sparse=any(source.sparse for source in sources),
        nnz=_entries(sources, has.sum(axis=0).tolist()),
        description=_description(views, rereads),
        in_memory=all(source.in_memory for source in sources),
        decoding=max(source.decoding for source in sources),
        check=partial(_checked, [source.check for source in sources if source.check is not None]),
        places=read_places(views),
        views=views,
        patterns=patterns,
        bounds=tuple(bounds),
        order=order.astype(np.int64),
    )


def _checked(checks: Sequence[Callable[[], None]]) -> None:
    for check in checks:
        check()


def _entries(sources: Sequence[DataSource], rows: Sequence[int]) -> int | None:
    """About the stored entries of the rows that are used, those of dense views included; None where all are dense or
    nobody knows."""
    if not any(source.sparse for source in sources) or any(s.sparse and s.nnz is None for s in sources):
        return None
    each = (source.shape[1] if source.nnz is None else source.nnz / source.shape[0] for source in sources)
    return int(sum(entries * count for entries, count in zip(each, rows, strict=True)))


def _description(views: Mapping[str, DataSource], rereads: float) -> str:
    each = ", ".join(f"{name!r} ({source.description})" for name, source in views.items())
    if rereads <= MANY_REREADS:
        return f"views {each}"
    return (
        f"views {each}; corresponding rows lie far apart, so that each block is read {rereads:.1f} times a pass unless "
        "the joint samples stay in memory: store the views in the same order"
    )


def _cuts(source: DataSource, rows: Table, step: int) -> list[tuple[int, int]]:
    """Cut increasing rows of a view into blocks of about `step`, at the edges of its own blocks where these fit."""
    bounds = np.searchsorted(rows, [block.start for block in source.blocks] + [source.shape[0]]).tolist()
    cuts: list[tuple[int, int]] = []
    for start, stop in pairwise(bounds):
        if cuts and stop - cuts[-1][0] <= step:
            cuts[-1] = (cuts[-1][0], stop)
        elif stop > start:
            parts = -(-(stop - start) // (2 * step))
            cuts += pairwise(np.linspace(start, stop, parts + 1).astype(int).tolist())
    return cuts
