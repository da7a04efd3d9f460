"""Sparse rows by columns, and products of sparse rows with few columns.

Every product has the bits that it would have of rows as they were read, at once.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from scipy.sparse._sparsetools import csr_matvecs

from dlatent.arrays import Array, Features

SLAB_BYTES = 6 * 2**20
"""Numbers that a sparse product meets in no order (see `sparse_times`): so many stay in the caches of a core."""
ENTRIES_EACH, ENTRIES_OF_PIECE = 4, 12
"""Stored entries for each feature from which sparse rows are better held by columns, and about those of a piece."""


class Columns(NamedTuple):
    """Sparse rows in pieces, one below the other, each with the entries of a feature side by side (CSC)."""

    pieces: tuple[sp.csc_array, ...]
    shape: tuple[int, int]

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What holds them in memory."""
        return tuple(array for x in self.pieces for array in (x.data, x.indices, x.indptr))


def by_columns(x: Features) -> Features:
    """Sparse rows by columns, where a feature has many entries; others as they are.

    A product with rows of b numbers, one for each feature, then takes them one after the other, where by rows every
    entry asks for another one: with 47,000 features that is 1.5 to 2 times as fast, and cores that share a cache do not
    disturb each other.  What is met in no order are b numbers for each instance of a piece, which are few.  Sums have
    the same order, and so the same bits.
    """
    if not isinstance(x, sp.csr_array) or x.nnz < ENTRIES_EACH * x.shape[1]:
        return x
    count = max(1, x.nnz // (ENTRIES_OF_PIECE * x.shape[1]))
    edges = np.linspace(0, x.shape[0], count + 1).astype(int).tolist()
    # The form is another type of features, which none but the functions that ask for it will see.
    return cast(Features, Columns(tuple(x[a:b].tocsc() for a, b in pairwise(edges)), x.shape))


def by_rows(x: Features) -> Features:
    """The rows that `by_columns` was given."""
    held: Any = x
    if not isinstance(held, Columns):
        return x
    return sp.csr_array(sp.vstack([piece.tocsr() for piece in held.pieces], format="csr"))


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


def transposed_times(x: sp.csr_array | Columns, w: Array) -> Array:
    """xᵀw (D, b); the pieces of columns are added up entry by entry, as rows are."""
    if not isinstance(x, Columns):
        return sparse_times(x.T, w)
    slabs = _slabs(-(-len(w) // len(x.pieces)), w.shape[1])
    parts = [_piecewise(x, np.ascontiguousarray(w[:, slab])) for slab in slabs]
    return parts[0] if len(parts) == 1 else np.hstack(parts)


def _piecewise(x: Columns, w: Array, *, squared: bool = False) -> Array:
    """xᵀw (D, b), or that of the squares of x, for a C-contiguous w (n, b)."""
    features, width = x.shape[1], w.shape[1]
    total, start = np.zeros((features, width)), 0
    for piece in x.pieces:
        rows = piece.shape[0]
        data = np.square(piece.data, dtype=np.float64) if squared else piece.data
        own = w[start : start + rows]
        csr_matvecs(features, rows, width, piece.indptr, piece.indices, data, own.ravel(), total.ravel())
        start += rows
    return total


def column_sums(x: sp.csr_array | Columns, *, squared: bool) -> Array:
    """Sums of the stored entries, or of their squares, for each feature; the same bits by rows and by columns."""
    if isinstance(x, Columns):
        return _piecewise(x, np.ones((x.shape[0], 1)), squared=squared)[:, 0]
    weights = np.square(x.data, dtype=np.float64) if squared else x.data
    return np.bincount(x.indices, weights=weights, minlength=x.shape[1]).astype(np.float64, copy=False)
