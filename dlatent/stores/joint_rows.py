"""Blocks of joint samples: rows of several views side by side, read by their numbers.

A block names the rows that it wants of each view; they are read from the blocks of the view that hold them, one of
these at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, BlockSource, DataSource, Features
from dlatent.errors import DataError
from dlatent.gaussian.moments import empty_rows, found_bad
from dlatent.stores.rows import ArrayRows, MatrixRows, Rows

Table = npt.NDArray[np.int64]
"""Rows of each view (samples, views), −1 where a sample lacks the view."""


class RowPiece(NamedTuple):
    """Rows of one block of a view, relative to it, and where they go among the rows that are read of the view; `parts`
    are the Dask collections of the block where it was sent without them."""

    source: BlockSource
    rows: Table
    places: Table
    parts: int = 0


@dataclass(frozen=True)
class ViewRows:
    """Rows of a view, in any order: the pieces that they come in."""

    name: str
    rows: Table = field(repr=False)
    pieces: tuple[RowPiece, ...]

    def put_together(self, blocks: Iterable[Features]) -> Features:
        """The rows from the blocks of the view that hold them, of which one at a time is needed."""
        found = [block[piece.rows] for piece, block in zip(self.pieces, blocks, strict=True)]
        stacked = _stacked(found)
        order = np.concatenate([piece.places for piece in self.pieces])
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return stacked if np.array_equal(order, back) and _sorted(order) else stacked[back]

    def load(self) -> Features:
        """Read the rows."""
        return self.put_together(piece.source.load() for piece in self.pieces)


def _sorted(order: Table) -> bool:
    return bool((np.diff(order) > 0).all())


@dataclass(eq=False)
class JointRows(Rows):
    """Samples `[start, stop)`, which have the same views: rows of each of them, side by side.

    `refuse_zero_rows` names the views in which no row may be all zeros; `computed` tells whether an engine computes
    what does not lie in memory, of all blocks of the joint samples alike.
    """

    views: tuple[ViewRows, ...]
    refuse_zero_rows: tuple[str, ...]
    computed: bool

    @property
    def collection(self) -> tuple[Any, ...] | None:
        """The Dask collections behind all pieces that do not lie in memory, or None where some of these have none, and
        where the block was sent without them."""
        if not self.computed or any(piece.parts for piece in self._pieces()):
            return None
        each = (piece.source.collection or () for piece in self._pieces())
        return tuple(part for parts in each for part in parts)

    def load(self) -> Features:
        """Read the rows of all views.

        Errors: DataError naming view, row and column of a value that is not finite, or a row of zeros where refused.
        """
        return self._joined([view.load() for view in self.views])

    def assemble(self, parts: Sequence[Any]) -> Features:
        """The rows from the computed collections of all pieces, or the loaded block itself."""
        if not self.computed:
            return super().assemble(parts)
        waiting = iter(parts)

        def blocks(view: ViewRows) -> Iterator[Features]:
            for piece in view.pieces:
                if _held(piece):
                    yield piece.source.load()
                    continue
                count = piece.parts or len(piece.source.collection or ())
                yield piece.source.assemble([next(waiting) for _ in range(count)])

        return self._joined([view.put_together(blocks(view)) for view in self.views])

    def without_collection(self) -> JointRows:
        """The same rows without their graphs, which can still `assemble` what an engine has computed."""
        views = tuple(replace(view, pieces=tuple(map(_without_graph, view.pieces))) for view in self.views)
        return JointRows(self.start, self.stop, self.nbytes, views, self.refuse_zero_rows, self.computed)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Rows in this process's memory travel by value, without the blocks that they are rows of."""
        views = tuple(_by_value(view) if all(map(_held, view.pieces)) else view for view in self.views)
        return JointRows, (self.start, self.stop, self.nbytes, views, self.refuse_zero_rows, self.computed)

    def _pieces(self) -> list[RowPiece]:
        return [piece for view in self.views for piece in view.pieces]

    def _joined(self, found: list[Features]) -> Features:
        for view, x in zip(self.views, found, strict=True):
            _check(view, x, refuse_zero_rows=view.name in self.refuse_zero_rows)
        return found[0] if len(found) == 1 else _side_by_side(found)


def _held(piece: RowPiece) -> bool:
    return getattr(piece.source, "held", False)


def _without_graph(piece: RowPiece) -> RowPiece:
    lighter: Any = getattr(piece.source, "without_collection", None)
    if lighter is None:
        return piece
    return piece._replace(source=lighter(), parts=len(piece.source.collection or ()))


def _by_value(view: ViewRows) -> ViewRows:
    every = np.arange(len(view.rows))
    x, own = view.load(), (0, len(every), 0)
    source = MatrixRows(*own, x) if isinstance(x, sp.csr_array) else ArrayRows(*own, x)
    return replace(view, pieces=(RowPiece(source, every, every),))


def view_rows(name: str, source: DataSource, rows: Table) -> ViewRows:
    """Rows of a view in the order given, as pieces of its blocks."""
    starts = np.array([block.start for block in source.blocks])
    holder = np.searchsorted(starts, rows, side="right") - 1
    pieces = []
    for number in np.unique(holder).tolist():
        places = np.flatnonzero(holder == number)
        block = source.blocks[number]
        pieces.append(RowPiece(block, rows[places] - block.start, places))
    return ViewRows(name, rows, tuple(pieces))


def _stacked(found: list[Features]) -> Features:
    if len(found) == 1:
        return found[0]
    if isinstance(found[0], sp.csr_array):
        rows = sp.csr_array(sp.vstack(cast("list[sp.csr_array]", found), format="csr"))
        rows.has_canonical_format = all(part.has_canonical_format for part in found if isinstance(part, sp.csr_array))
        return rows
    return np.concatenate(cast("list[Array]", found))


def _side_by_side(found: list[Features]) -> Features:
    """Features of several views in one matrix: dense where all are, else CSR."""
    if not any(isinstance(x, sp.csr_array) for x in found):
        return np.hstack(cast("list[Array]", found))
    joined = sp.csr_array(sp.hstack([sp.csr_array(x) for x in found], format="csr"))
    joined.sort_indices()
    return joined


def _check(view: ViewRows, x: Features, *, refuse_zero_rows: bool) -> None:
    """Refuse what no model can use, by the names that the user knows it by."""
    bad = found_bad(x)
    if bad is not None:
        raise DataError(
            f"view {view.name!r}, row {view.rows[bad.row]}, column {bad.column} is {bad.value}; a sample may lack a "
            "view, but no single entries of it: fill or remove them",
            column=bad.column,
            view=view.name,
        )
    empty = empty_rows(x) if refuse_zero_rows else np.zeros(0, dtype=np.intp)
    if len(empty):
        raise DataError(
            f"view {view.name!r}, row {view.rows[empty[0]]} is all zeros, and {len(empty)} of the rows beside it are; "
            "leave them out, or fit them all the same with zero_rows='keep'"
        )
