"""Sparse rows: their products with few columns, by rows or by columns, and columns that lie far from zero.

Every product has the bits that it would have of rows as they were read, at once.  Columns far from zero are full in
practice, and taken about a shift as dense ones are: sums about zero lose as many digits of such a column as the square
of its mean is larger than its variance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Features

SLAB_BYTES = 6 * 2**20
"""Numbers that a sparse product meets in no order (see `sparse_times`): so many stay in the caches of a core."""
ENTRIES_EACH, ENTRIES_OF_PIECE = 4, 12
"""Stored entries for each feature from which sparse rows are better held by columns, and about those of a piece."""

FAR = 100.0
"""The square of a mean is so many variances where a column is far from zero: two digits of its variance are lost there,
and fewer than one row in a hundred can lack the entry."""

F = TypeVar("F", bound=Features)
X = TypeVar("X", sp.csr_array, sp.csc_array)


class Columns(NamedTuple):
    """Sparse rows in pieces, one below the other, each with the entries of a feature side by side (CSC)."""

    pieces: tuple[sp.csc_array, ...]
    shape: tuple[int, int]

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays that hold them in memory."""
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
    entries = slice(places[0], places[-1])
    return sp.csr_array((x.data[entries], x.indices[entries], places - places[0]), shape=(stop - start, x.shape[1]))


def by_rows(x: Features) -> Features:
    """The rows that `by_columns` was given."""
    matrix: Any = x
    if not isinstance(matrix, Columns):
        return x
    return sp.csr_array(sp.vstack([piece.tocsr() for piece in matrix.pieces], format="csr"))


def stacked(parts: Sequence[F]) -> F:
    """Pieces of rows one below the other, sparse if they are, in memory that numerical libraries find aligned."""
    pieces: Any = parts
    sparse = isinstance(pieces[0], sp.csr_array)
    return cast(F, sp.csr_array(sp.vstack(pieces, format="csr")) if sparse else np.concatenate(pieces))


def rows_about(x: Features, shift: Array) -> tuple[Features, Array]:
    """Rows, and the shift (D,) that is still to be taken off: dense ones as they are, with all of it; sparse ones less
    the shift, which is zero but in columns that are full in practice, and none."""
    if isinstance(x, np.ndarray) or not shift.any():
        return x, shift
    matrix: Any = x
    pieces = isinstance(matrix, Columns)
    moved = Columns(tuple(less(x, shift) for x in matrix.pieces), matrix.shape) if pieces else less(matrix, shift)
    return cast(Features, moved), np.zeros_like(shift)


def sparse_times(x: sp.csr_array | sp.csc_array, columns: Array) -> Array:
    """x @ columns (n, b), a few columns at a time; the bits are those of the product at once.

    By rows the entries of x ask for rows of `columns` in no order, by columns for rows of the result.
    """
    rows, width = x.shape[x.format == "csr"], columns.shape[1]
    slabs = _slabs(rows, width)
    if len(slabs) < 2:
        return np.asarray(x @ columns)
    product = np.empty((x.shape[0], width), order="F")
    for slab in slabs:
        product[:, slab] = x @ np.ascontiguousarray(columns[:, slab])
    return product


def _slabs(rows: int, width: int) -> list[slice]:
    """Columns to be multiplied at a time, where these rows of them are met in no order."""
    pieces = max(1, min(width, width * rows * 8 // SLAB_BYTES))
    step = max(1, -(-width // pieces))
    return [slice(start, min(start + step, width)) for start in range(0, max(width, 1), step)]


def times(x: Features, columns: Array) -> Array:
    """x @ columns (n, b)."""
    if isinstance(x, np.ndarray):
        return np.asarray(x @ columns)
    matrix: Any = x
    if isinstance(matrix, Columns):
        columns = np.ascontiguousarray(columns)
        return np.vstack([sparse_times(piece, columns) for piece in matrix.pieces])
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
    rows = type(x)((data, x.indices, x.indptr), shape=x.shape)
    rows.has_canonical_format = True
    return rows


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


def far_mean(mean: Array, variance: Array) -> Array:
    """The mean (D,) of the columns that are far from zero, 0 for the others."""
    with np.errstate(over="ignore"):
        return np.where(mean**2 > FAR * variance, mean, 0.0)


def far_columns(x: Features) -> Array:
    """The mean (D,) of the columns of rows that are far from zero, 0 for the others."""
    wide = x.astype(np.float64, copy=False)
    squares = wide.multiply(wide) if isinstance(wide, sp.csr_array) else wide**2
    mean = np.asarray(wide.mean(axis=0)).ravel()
    return far_mean(mean, np.maximum(np.asarray(squares.mean(axis=0)).ravel() - mean**2, 0.0))


def less(x: X, shift: Array) -> X:
    """Sparse rows less a shift (D,), in float64; where it is not zero every row stores the entry then."""
    each = shift[x.indices] if x.format == "csr" else np.repeat(shift, np.diff(x.indptr))
    columns, data = np.flatnonzero(shift), x.data.astype(np.float64)
    if np.count_nonzero(each) == x.shape[0] * len(columns):
        return with_data(x, data - each)
    stored = np.tile(shift[columns], x.shape[0]), np.tile(columns, x.shape[0]), np.arange(x.shape[0] + 1) * len(columns)
    wide = type(x)((data, x.indices, x.indptr), shape=x.shape)
    return type(x)(wide - sp.csr_array(stored, shape=x.shape).asformat(x.format))


def _kernel(name: str) -> Any:
    """A kernel of SciPy's that adds a product to an array in place, or None.

    Public products make an array of their own, and to add it costs more than the product where rows have few entries.
    The kernels below them are private: where a version has none, the public product takes their place, with other last
    bits.
    """
    try:
        from scipy.sparse import _sparsetools
    except ImportError:
        return None
    return getattr(_sparsetools, name, None)


def add_coordinates(total: Array, matrix: sp.coo_array, rows: Array) -> None:
    """`total` (n, b) += matrix (n, m) @ rows (m, b), entry by entry."""
    kernel, places = _kernel("coo_matmat_dense"), (matrix.row, matrix.col)
    if kernel is None:
        total += matrix @ rows
        return
    vectors = np.ascontiguousarray(rows).ravel()
    kernel(matrix.nnz, total.shape[1], *places, matrix.data, vectors, total.ravel())


def add_transposed(total: Array, matrix: sp.csc_array, rows: Array) -> None:
    """`total` (m, b) or (m,) += matrixᵀ (m, n) @ rows (n, b) or (n,), entry by entry."""
    single = rows.ndim == 1
    kernel, shape = _kernel("csr_matvec" if single else "csr_matvecs"), (matrix.shape[1], matrix.shape[0])
    if kernel is None:
        total += sp.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=shape) @ rows
        return
    sizes = shape if single else (*shape, rows.shape[1])
    kernel(*sizes, matrix.indptr, matrix.indices, matrix.data, np.ascontiguousarray(rows).ravel(), total.ravel())
