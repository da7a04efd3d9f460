"""Matrices that lie in memory: numpy arrays and scipy sparse matrices, cut into blocks that share their memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import AxisLabels, BlockSource, DataSource, Features
from dlatent.containers import check_parts, plain_numbers
from dlatent.errors import DataError, DataTypeError
from dlatent.stores.partition import dense_bounds, loaded_dtype, sized_sparse_bounds, wanted_bytes
from dlatent.stores.rows import ArrayRows, FunctionRows, MatrixRows, check_matrix, csr_bytes
from dlatent.stores.sparse import canonical


def open_numpy(array: npt.NDArray[Any], block_bytes: int | None, labels: AxisLabels) -> DataSource:
    """Row blocks that are views of a numpy array; the array is not copied.

    Errors: DataError for other than two dimensions, an empty axis, and values that are no real numbers.
    """
    values = plain_numbers(array, "the data")
    if values.dtype == object and values.ndim == 2:
        values = _as_numbers(values)
    rows, columns = check_matrix(values.shape, values.dtype, "numpy array")
    dtype = loaded_dtype(values.dtype)
    row_bytes = columns * dtype.itemsize
    bounds = dense_bounds(rows, row_bytes, 1, wanted_bytes(block_bytes, rows * row_bytes))
    blocks = tuple(
        ArrayRows(start, stop, (stop - start) * row_bytes, values[start:stop]) for start, stop in bounds.pairs()
    )
    return DataSource(
        (rows, columns), dtype, blocks, uuid4().hex, labels=labels, description="numpy array", in_memory=True
    )


def _as_numbers(values: npt.NDArray[np.object_]) -> npt.NDArray[np.float64]:
    """Objects (N, D) as numbers: what says that nothing is there becomes NaN.

    Errors: DataError naming row and column of one that is no number, nor text of one.
    """
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        made = np.full(values.shape, np.nan)
    for place, value in np.ndenumerate(values):
        if value is not None and type(value).__name__ not in ("NAType", "NaTType", "MaskedConstant"):
            try:
                made[place] = value
            except (TypeError, ValueError) as error:
                kind = DataTypeError if isinstance(error, TypeError) else DataError
                raise kind(
                    f"row {place[0]}, column {place[1]} is {value!r}; expected real numbers ({error})"
                ) from error
    return made


def open_function(rows: Callable[[int, int], Any], shape: tuple[int, int], description: str) -> DataSource:
    """Blocks of float64 rows (stop − start, D) that a function of `start` and `stop` makes when they are wanted."""
    row_bytes = shape[1] * np.dtype(np.float64).itemsize
    bounds = dense_bounds(shape[0], row_bytes, 1, wanted_bytes(None, shape[0] * row_bytes))
    blocks = tuple(FunctionRows(start, stop, (stop - start) * row_bytes, rows) for start, stop in bounds.pairs())
    return DataSource(shape, np.dtype(np.float64), blocks, uuid4().hex, description=description, in_memory=True)


def open_scipy(matrix: Any, block_bytes: int | None, labels: AxisLabels) -> DataSource:
    """Row blocks of a scipy sparse matrix of any format; canonical CSR input is shared, never modified.

    Errors: DataError for other than two dimensions, an empty axis, and values that are no real numbers.
    """
    place = f"scipy.sparse {matrix.format} {'array' if isinstance(matrix, sp.sparray) else 'matrix'}"
    rows, columns = check_matrix(matrix.shape, matrix.dtype, place)
    check_parts(matrix, f"the data, a {place}")
    whole = canonical(matrix)
    dtype = loaded_dtype(whole.dtype)
    index_bytes = whole.indices.itemsize
    entries, entry_bytes = int(whole.nnz), dtype.itemsize + index_bytes
    bounds = sized_sparse_bounds([whole.indptr], (rows, columns), entries, entry_bytes, block_bytes, place)
    blocks = tuple(
        MatrixRows(start, stop, csr_bytes(stop - start, last - first, dtype, index_bytes), row_view(whole, start, stop))
        for start, stop, first, last in bounds.blocks()
    )
    return DataSource(
        (rows, columns), dtype, blocks, uuid4().hex, True, entries, labels, description=place, in_memory=True
    )


def row_view(whole: sp.csr_array, start: int, stop: int) -> sp.csr_array:
    """Rows of a canonical matrix whose data and indices are views, where slicing would copy."""
    first, last = int(whole.indptr[start]), int(whole.indptr[stop])
    part = sp.csr_array((stop - start, whole.shape[1]), dtype=whole.dtype)
    # Set one by one: the constructor copies arrays that are small parts of others.
    part.data, part.indices = whole.data[first:last], whole.indices[first:last]
    part.indptr = whole.indptr[start : stop + 1] - whole.indptr[start]
    part.has_canonical_format = True
    return part


def held(values: Features, bounds: Sequence[int] | None = None) -> tuple[BlockSource, ...]:
    """Loaded rows as block sources, one for each two of the `bounds` 0 … n (None: one for all)."""
    cuts = list(pairwise(bounds or (0, values.shape[0])))
    if isinstance(values, sp.csr_array):
        parts = [(start, stop, row_view(values, start, stop)) for start, stop in cuts]
        size = values.data.itemsize + values.indices.itemsize
        return tuple(MatrixRows(start, stop, part.nnz * size, part) for start, stop, part in parts)
    return tuple(ArrayRows(start, stop, values[start:stop].nbytes, values[start:stop]) for start, stop in cuts)


def lent(source: BlockSource) -> bool:
    """Whether rows lie in the arrays of somebody else, who may change them; those of a memory-mapped file lie there."""
    inner = getattr(source, "inner", source)
    array = inner.values.data if isinstance(inner, MatrixRows) else getattr(inner, "values", None)
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    return isinstance(inner, ArrayRows | MatrixRows) and not isinstance(array, np.memmap)


def owned(source: BlockSource) -> BlockSource:
    """The same rows, which nobody else can change: those that are lent are copied."""
    if not lent(source):
        return source
    own = source.start, source.stop, source.nbytes
    values = source.values if isinstance(source, ArrayRows | MatrixRows) else source.load()
    return MatrixRows(*own, values.copy()) if isinstance(values, sp.csr_array) else ArrayRows(*own, values.copy())
