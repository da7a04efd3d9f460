"""Lazy results for Dask arrays: a function of rows, mapped over the row chunks of an array."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Dense, Features
from dlatent.blas import pinned
from dlatent.containers import in_precision, plain_numbers
from dlatent.engine.machine import keep_freed
from dlatent.errors import DataError

if TYPE_CHECKING:
    import dask.array as da

Lazy: TypeAlias = "da.Array"
"""A Dask array."""
Check: TypeAlias = Callable[[Features, int | None, int], None]
"""Looks at rows, with the number of the first of them, or None, and of their chunk."""


def map_chunks(
    array: Any,
    function: Callable[..., Any],
    columns: int,
    dtype: npt.DTypeLike = np.float64,
    *,
    check: Check | None = None,
    shared: bool = False,
) -> Any:
    """The Dask array (N, columns) whose rows are `function` of the rows of `array`; nothing is computed yet.

    Parameters
    ----------
    array : dask.array (N, D) with numpy or scipy.sparse chunks, chunked along any axis; the sizes of row chunks may be
        unknown.
    function : pure and picklable; gets whole rows, dense or canonical CSR (n, D), and returns (n, columns).
    columns, dtype : of the result.
    check : sees the rows before the function does, with the number of the first of them (None where sizes of chunks are
        unknown) and of their chunk, and raises where they cannot be used.  It is one value for all chunks.
    shared : `function` makes the function instead, which keeps something between chunks: a task of its own, whose
        result a process has once, for as long as the chunks need it.

    Returns
    -------
    A lazy dask.array with the row chunks of `array` and one chunk of columns.
    """
    import dask.array as da
    from dask.delayed import delayed

    if array.ndim != 2:
        raise DataError(f"Expected a Dask array of samples × features; got {array.ndim} dimensions.")
    mapped: Any = da.map_blocks  # has no types
    rows = array
    if array.numblocks[1] > 1:  # what Dask puts together must be plain before
        place, meta = "a chunk of the Dask array", getattr(array, "_meta", None)
        rows = mapped(plain_numbers, array, place, dtype=array.dtype, meta=meta).rechunk({1: -1})
    return mapped(
        partial(_apply, columns, np.dtype(dtype)),
        rows,
        function=delayed(function, pure=False)() if shared else function,
        check=None if check is None else delayed(check, pure=False),
        dtype=dtype,
        chunks=(rows.chunks[0], (columns,)),
        meta=np.empty((0, 0), dtype=dtype),
        name=f"map-rows-{uuid4().hex}",  # a name of our own saves hashing the function's arrays
    )


def _apply(
    columns: int,
    dtype: np.dtype[Any],
    chunk: Any,
    *,
    function: Callable[[Features], Dense],
    check: Check | None,
    block_info: Any = None,
) -> npt.NDArray[np.generic]:
    keep_freed()
    with pinned():
        start, number = block_info[0]["array-location"][0][0], block_info[0]["chunk-location"][0]
        features = _features(plain_numbers(chunk, f"chunk {number} of the Dask array"))
        if check is not None:
            check(features, None if math.isnan(start) else int(start), number)
        rows = function(features)
    if rows.shape != (chunk.shape[0], columns):
        raise DataError(f"A function of rows gave shape {rows.shape} where {(chunk.shape[0], columns)} was announced.")
    return in_precision(rows, dtype, None if math.isnan(start) else int(start))


def _features(chunk: Any) -> Features:
    """A computed chunk as features: float32 or float64, dense or canonical CSR."""
    dtype = chunk.dtype if chunk.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    if not sp.issparse(chunk):
        return np.ascontiguousarray(chunk, dtype=dtype)
    matrix: sp.csr_array = sp.csr_array(chunk, dtype=dtype)  # type: ignore[call-overload]
    if not matrix.has_canonical_format:
        matrix = matrix.copy()  # the chunk may belong to somebody else
        matrix.sum_duplicates()
    return matrix
