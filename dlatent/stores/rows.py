"""Rows of a matrix as blocks of a data source: in memory, or those of another source but for what is held out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Any, ClassVar, Self, cast
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, AxisLabels, BlockSource, DataSource, Features, Integers
from dlatent.containers import check_parts, plain_numbers
from dlatent.errors import DataError, DataTypeError
from dlatent.gaussian.missing_entries.incomplete import Hiding, hidden
from dlatent.gaussian.spread import divided
from dlatent.stores.partition import dense_bounds, loaded_dtype, sized_sparse_bounds, wanted_bytes


@dataclass(eq=False)
class Rows(ABC):
    """Rows `[start, stop)` that this process, or another one, loads by itself; `nbytes` once loaded."""

    in_memory: ClassVar[bool] = False
    """Whether the rows lie in the memory of this process."""

    start: int
    stop: int
    nbytes: int

    @property
    def collection(self) -> tuple[Any, ...] | None:
        """None: no Dask collection stands behind this block."""
        return None

    @abstractmethod
    def load(self) -> Features:
        """The rows: float32 or float64, dense or canonical CSR."""

    def assemble(self, parts: Iterable[Any]) -> Features:
        """The loaded block itself, which is the first of the parts."""
        return cast(Features, next(iter(parts)))


@dataclass(eq=False)
class ArrayRows(Rows):
    """Rows in memory, a view of a numpy array or a canonical CSR matrix of such views."""

    in_memory = True

    values: npt.NDArray[Any] | sp.csr_array

    def load(self) -> Features:
        """The rows; views of the values where nothing has to be converted."""
        return cast(Features, self.values.astype(loaded_dtype(self.values.dtype), copy=False))


@dataclass(eq=False)
class ComputedRows(Rows):
    """Rows that are made when they are cut out of something smaller in memory, such as targets of codes."""

    in_memory = True

    rows: Any

    def load(self) -> Features:
        """The rows."""
        return np.asarray(self.rows[self.start : self.stop])


@dataclass(eq=False)
class ChangedRows(Rows):
    """The rows of another block source, of which a function takes or hides a part."""

    inner: BlockSource
    change: Callable[[Features], Features]

    @classmethod
    def of(cls, inner: BlockSource, change: Callable[[Features], Features]) -> Self:
        """As many rows as the inner source has, of the same size."""
        return cls(inner.start, inner.stop, inner.nbytes, inner, change)

    @property
    def collection(self) -> tuple[Any, ...] | None:
        """The Dask collections of the inner source."""
        return self.inner.collection

    def load(self) -> Features:
        """The changed rows."""
        return self.change(self.inner.load())

    def assemble(self, parts: Iterable[Any]) -> Features:
        """The changed rows from computed collections."""
        return self.change(self.inner.assemble(parts))


def csr_bytes(rows: int, entries: int, dtype: np.dtype[Any], index_bytes: int = 4) -> int:
    """Bytes of a loaded CSR block."""
    return entries * (dtype.itemsize + index_bytes) + (rows + 1) * index_bytes


def check_matrix(shape: Sequence[int], dtype: np.dtype[Any], place: str) -> tuple[int, int]:
    """The shape as (samples, features), after refusing what no model can use.

    Errors: DataError for other than two dimensions, an empty axis, or values that are no real numbers.
    """
    if len(shape) != 2:
        hint = ". Reshape your data: a single column is X[:, None], a single row X[None, :]"
        raise DataError(
            f"{place} has {len(shape)} dimensions, shape {tuple(shape)}; expected samples × features"
            f"{hint if len(shape) == 1 else ''}"
        )
    if min(shape) == 0:
        what = "sample" if not shape[0] else "feature"
        raise DataError(
            f"{place} is empty: 0 {what}(s) (shape={tuple(shape)}) while a minimum of 1 is required; give at least one"
        )
    if dtype.kind == "c":
        raise DataError(
            f"Complex data not supported: {place} has dtype {dtype}; real and imaginary parts can be features"
        )
    if dtype.kind not in "biuf":
        raise DataError(f"{place} has dtype {dtype}; expected real numbers, convert it with astype(float)")
    return int(shape[0]), int(shape[1])


def canonical(matrix: Any) -> sp.csr_array:
    """The matrix as a csr_array with sorted indices and no duplicates; the caller's object is never modified.

    Canonical CSR input is shared, not copied.  Index arrays are int32 where the numbers allow it.
    """
    rows = sp.csr_array(matrix)
    if rows.has_canonical_format:
        return rows
    rows = rows.copy()
    rows.sum_duplicates()
    return rows


def open_numpy(array: npt.NDArray[Any], block_bytes: int | None, labels: AxisLabels) -> DataSource:
    """Row blocks that are views of a numpy array; the array is not copied.

    Errors: DataError for other than two dimensions, an empty axis, and values that are no real numbers.
    """
    values = plain_numbers(array, "the data")
    if values.dtype == object and values.ndim == 2:
        values = _as_numbers(values)
    shape, dtype = check_matrix(values.shape, values.dtype, "numpy array"), loaded_dtype(values.dtype)
    blocks = tuple(
        ArrayRows(start, stop, nbytes, values[start:stop])
        for start, stop, nbytes in _dense_blocks(shape, dtype, block_bytes)
    )
    return DataSource(shape, dtype, blocks, uuid4().hex, labels=labels, description="numpy array", in_memory=True)


def open_computed(rows: Any, shape: tuple[int, int], description: str) -> DataSource:
    """Blocks of float64 rows that are made when they are wanted, as `rows[start:stop]`."""
    dtype = np.dtype(np.float64)
    blocks = tuple(ComputedRows(*block, rows) for block in _dense_blocks(shape, dtype, None))
    return DataSource(shape, dtype, blocks, uuid4().hex, description=description, in_memory=True)


def _dense_blocks(
    shape: tuple[int, int], dtype: np.dtype[Any], block_bytes: int | None
) -> Iterator[tuple[int, int, int]]:
    """First row, last row and bytes of each block."""
    row_bytes = shape[1] * dtype.itemsize
    bounds = dense_bounds(shape[0], row_bytes, 1, wanted_bytes(block_bytes, shape[0] * row_bytes))
    return ((start, stop, (stop - start) * row_bytes) for start, stop in bounds)


def _as_numbers(values: npt.NDArray[np.object_]) -> npt.NDArray[np.float64]:
    """Objects (N, D) as numbers: what says that nothing is there becomes NaN.

    Errors: DataError naming row and column of one that is no number, nor text of one.
    """
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        numbers = np.full(values.shape, np.nan)
    for place, value in np.ndenumerate(values):
        if value is not None and type(value).__name__ not in ("NAType", "NaTType", "MaskedConstant"):
            try:
                numbers[place] = value
            except (TypeError, ValueError) as error:
                kind = DataTypeError if isinstance(error, TypeError) else DataError
                raise kind(
                    f"row {place[0]}, column {place[1]} is {value!r}; expected real numbers ({error})"
                ) from error
    return numbers


def open_scipy(matrix: Any, block_bytes: int | None, labels: AxisLabels) -> DataSource:
    """Row blocks of a scipy sparse matrix of any format; canonical CSR input is shared, never modified.

    Errors: DataError for other than two dimensions, an empty axis, and values that are no real numbers.
    """
    place = f"scipy.sparse {matrix.format} {'array' if isinstance(matrix, sp.sparray) else 'matrix'}"
    shape = check_matrix(matrix.shape, matrix.dtype, place)
    check_parts(matrix, f"the data, a {place}")
    rows = canonical(matrix)
    dtype, index_bytes, entries = loaded_dtype(rows.dtype), rows.indices.itemsize, int(rows.nnz)
    bounds = sized_sparse_bounds([rows.indptr], shape, entries, dtype.itemsize + index_bytes, block_bytes, place)
    blocks = tuple(
        ArrayRows(start, stop, csr_bytes(stop - start, last - first, dtype, index_bytes), row_view(rows, start, stop))
        for start, stop, first, last in bounds
    )
    return DataSource(shape, dtype, blocks, uuid4().hex, True, entries, labels, description=place, in_memory=True)


def row_view(matrix: sp.csr_array, start: int, stop: int) -> sp.csr_array:
    """Rows of a canonical matrix whose data and indices are views, where slicing would copy."""
    first, last = int(matrix.indptr[start]), int(matrix.indptr[stop])
    part = sp.csr_array((stop - start, matrix.shape[1]), dtype=matrix.dtype)
    # Set one by one: the constructor copies arrays that are small parts of others.
    part.data, part.indices = matrix.data[first:last], matrix.indices[first:last]
    part.indptr = matrix.indptr[start : stop + 1] - matrix.indptr[start]
    part.has_canonical_format = True
    return part


def rows_in_memory(values: Features, bounds: Sequence[int] | None = None) -> tuple[BlockSource, ...]:
    """Loaded rows as block sources, one for each two of the `bounds` 0 … n (None: one for all)."""
    blocks = list[BlockSource]()
    for start, stop in pairwise(bounds or (0, values.shape[0])):
        if isinstance(values, sp.csr_array):
            part = row_view(values, start, stop)
            blocks.append(ArrayRows(start, stop, part.nnz * (part.data.itemsize + part.indices.itemsize), part))
        else:
            blocks.append(ArrayRows(start, stop, values[start:stop].nbytes, values[start:stop]))
    return tuple(blocks)


def lent(source: BlockSource) -> bool:
    """Whether rows lie in the arrays of somebody else, who may change them; those of a memory-mapped file lie there."""
    inner = getattr(source, "inner", source)
    if not isinstance(inner, ArrayRows):
        return False
    array: Any = inner.values.data if isinstance(inner.values, sp.csr_array) else inner.values
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    return not isinstance(array, np.memmap)


def owned(source: BlockSource) -> BlockSource:
    """Return the rows, copied where somebody else could change them."""
    if not lent(source):
        return source
    values = source.values if isinstance(source, ArrayRows) else source.load()
    return ArrayRows(source.start, source.stop, source.nbytes, values.copy())


def hide_cells(source: DataSource, hiding: Hiding) -> DataSource:
    """The source without its held-out cells: NaN in dense data, not stored in sparse data."""
    blocks = tuple(ChangedRows.of(block, partial(hidden, start=block.start, hiding=hiding)) for block in source.blocks)
    return replace(source, blocks=blocks, key=(source.key, hiding), description=f"{source.description} (part held out)")


def in_units(source: DataSource, units: Array) -> DataSource:
    """The source with each feature divided by its unit (D,)."""
    blocks = tuple(divided_rows(block, units) for block in source.blocks)
    return replace(source, blocks=blocks, key=uuid4().hex, in_memory=False)


def divided_rows(block: BlockSource, units: Array) -> BlockSource:
    """The rows of a block with each feature divided by its unit (D,)."""
    return ChangedRows.of(block, partial(divided, units=units))


def take_rows(source: DataSource, rows: Integers) -> DataSource:
    """The rows with these numbers, which increase, as a source of their own."""
    blocks, ends = list[ChangedRows](), np.searchsorted(rows, [block.stop for block in source.blocks])
    for block, start, stop in zip(source.blocks, [0, *ends], ends, strict=False):
        if stop > start:
            nbytes = block.nbytes * int(stop - start) // (block.stop - block.start)
            take = itemgetter(rows[start:stop] - block.start)
            blocks.append(ChangedRows(int(start), int(stop), nbytes, block, take))
    return replace(
        source,
        shape=(len(rows), source.shape[1]),
        blocks=tuple(blocks),
        key=uuid4().hex,
        nnz=None,
        weights=None if source.weights is None else source.weights[rows],
        labels=replace(source.labels, samples=None, origin=None),
        graphs=None,
        description=f"{len(rows):,} samples of {source.description}",
        # Blocks are loaded whole.
        decoding=max(source.decoding, *(block.nbytes for block in source.blocks)),
    )
