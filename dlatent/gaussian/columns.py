"""Sparse rows by columns, and products of sparse rows with few columns.

Every product has the bits that it would have of rows as they were read, at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Features
from dlatent.operators.added_products import add_transposed
from dlatent.operators.far_columns import less

SLAB_BYTES = 6 * 2**20
"""Numbers that a sparse product meets in no order (see `sparse_times`): so many stay in the caches of a core."""
ENTRIES_EACH, ENTRIES_OF_PIECE = 4, 12
"""Stored entries for each feature from which sparse rows are better held by columns, and about those of a piece."""

X = TypeVar("X", sp.csr_array, sp.csc_array)


class Columns(NamedTuple):
    """Sparse rows in pieces, one below the other, each with the entries of a feature side by side (CSC)."""

    pieces: tuple[sp.csc_array, ...]
    shape: tuple[int, int]

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What holds them in memory."""
        return tuple(array for x in self.pieces for array in (x.data, x.indices, x.indptr))

    def places(self) -> Iterator[tuple[slice, sp.csc_array]]:
        """Where the rows of each piece lie, and the piece in float64."""
        start = 0
        for piece in self.pieces:
            stop = start + piece.shape[0]
            yield slice(start, stop), _in_float64(piece)
            start = stop


def by_columns(x: Features) -> Features:
    """Sparse rows by columns, where a feature has many entries; others as they are.

    A product with rows of b numbers, one for each feature, then takes them one after the other, where by rows every
    entry asks for another one: with 47,000 features that is 1.5 to 2 times as fast, and cores that share a cache do not
    disturb each other.  What is met in no order are b numbers for each sample of a piece, which are few.  Sums have
    the same order, and so the same bits.
    """
    if not isinstance(x, sp.csr_array) or x.nnz < ENTRIES_EACH * x.shape[1]:
        return x
    count = max(1, x.nnz // (ENTRIES_OF_PIECE * x.shape[1]))
    bounds = np.linspace(0, x.shape[0], count + 1).astype(int).tolist()
    # The form is another type of features, which none but the functions that ask for it will see.
    return cast(Features, Columns(tuple(_between(x, a, b).tocsc() for a, b in pairwise(bounds)), x.shape))


def _between(x: sp.csr_array, start: int, stop: int) -> sp.csr_array:
    """Rows [start, stop) that share the entries of x; slicing would copy them."""
    places = x.indptr[start : stop + 1]
    own = slice(places[0], places[-1])
    return sp.csr_array((x.data[own], x.indices[own], places - places[0]), shape=(stop - start, x.shape[1]))


def by_rows(x: Features) -> Features:
    """The rows that `by_columns` was given."""
    held: Any = x
    if not isinstance(held, Columns):
        return x
    return sp.csr_array(sp.vstack([piece.tocsr() for piece in held.pieces], format="csr"))


def rows_about(x: Features, shift: Array) -> tuple[Features, Array]:
    """Rows, and the shift (D,) that is still to be taken off: dense ones as they are, with all of it; sparse ones less
    the shift, which is zero but in columns that are full in practice, and none."""
    held: Any = x
    if isinstance(x, np.ndarray) or not shift.any():
        return x, shift
    if isinstance(held, Columns):
        held = Columns(tuple(less(piece, shift) for piece in held.pieces), held.shape)
    else:
        held = less(held, shift)
    return cast(Features, held), np.zeros_like(shift)


def sparse_times(x: sp.csr_array | sp.csc_array, columns: Array) -> Array:
    """x @ columns (n, b), a few columns at a time; the bits are those of the product at once.

    By rows the entries of x ask for rows of `columns` in no order, by columns for rows of the result.
    """
    rows, width = x.shape[x.format == "csr"], columns.shape[1]
    slabs = _slabs(rows, width)
    if len(slabs) < 2:
        return np.asarray(x @ columns)
    found = np.empty((x.shape[0], width), order="F")
    for slab in slabs:
        found[:, slab] = x @ np.ascontiguousarray(columns[:, slab])
    return found


def _slabs(rows: int, width: int) -> list[slice]:
    """Columns to be multiplied at a time, where these rows of them are met in no order."""
    pieces = max(1, min(width, width * rows * 8 // SLAB_BYTES))
    step = max(1, -(-width // pieces))
    return [slice(start, min(start + step, width)) for start in range(0, max(width, 1), step)]


def times(x: Features, columns: Array) -> Array:
    """x @ columns (n, b)."""
    if isinstance(x, np.ndarray):
        return np.asarray(x @ columns)
    held: Any = x
    if isinstance(held, Columns):
        columns = np.ascontiguousarray(columns)
        return np.vstack([sparse_times(piece, columns) for piece in held.pieces])
    return sparse_times(x, columns)


def weighted(x: sp.csr_array | Columns, weights: Callable[[Features, slice], Array]) -> Array:
    """xᵀw (D, b), for weights w (n, b) that a function makes of rows and of where they lie: of all of them at once, or
    of one piece of those by columns after the other, which are in the caches then.

    Numbers become float64 once for all products.  Pieces are added up entry by entry, as rows are.
    """
    if not isinstance(x, Columns):
        x = _in_float64(x)
        return sparse_times(x.T, weights(x, slice(0, x.shape[0])))
    totals: list[Array] = []
    for place, piece in x.places():
        w = weights(cast(Features, piece), place)
        slabs = _slabs(-(-x.shape[0] // len(x.pieces)), w.shape[1])
        totals = totals or [np.zeros((x.shape[1], slab.stop - slab.start)) for slab in slabs]
        for slab, total in zip(slabs, totals, strict=True):
            add_transposed(total, piece, w[:, slab])
    return totals[0] if len(totals) == 1 else np.hstack(totals)


def _in_float64(x: X) -> X:
    """The entries as numbers of float64; a product would make them so each time."""
    return x if x.dtype == np.float64 else with_data(x, x.data.astype(np.float64))


def entries_squared(x: X) -> X:
    """The squares of the stored entries, in float64."""
    return with_data(x, np.square(x.data, dtype=np.float64))


def with_data(x: X, data: Array) -> X:
    """Other numbers for the stored entries of canonical rows, which share the indices."""
    made = type(x)((data, x.indices, x.indptr), shape=x.shape)
    made.has_canonical_format = True
    return made


def column_sums(x: sp.csr_array | Columns, *, squared: bool, weights: Array | None = None) -> Array:
    """Sums of the stored entries, or of their squares, for each feature, each row as often as its weight (n,) says; the
    same bits by rows and by columns."""
    if isinstance(x, Columns):
        total, each = np.zeros(x.shape[1]), np.ones(x.shape[0]) if weights is None else weights
        for place, piece in x.places():
            add_transposed(total, entries_squared(piece) if squared else piece, each[place])
        return total
    values = np.square(x.data, dtype=np.float64) if squared else x.data
    if weights is not None:
        values = values * np.repeat(weights, np.diff(x.indptr))
    return np.bincount(x.indices, weights=values, minlength=x.shape[1]).astype(np.float64, copy=False)
