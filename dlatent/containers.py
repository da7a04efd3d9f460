"""Containers of users made plain: masked entries become missing ones, and the parts of sparse matrices must fit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.errors import DataError, number_of

Values = npt.NDArray[Any]


def plain_numbers(values: Any, place: str) -> Any:
    """Numbers of a user as every other module expects them: dense without a mask, NaN where they were masked, or sparse
    with parts that fit. Errors: DataError as in `check_parts`."""
    if sp.issparse(values):
        check_parts(values, place)
        return values
    array = as_numpy(values)
    if np.ma.is_masked(array) and array.dtype.kind in "biu":
        array = array.astype(np.float64)
    return without_mask(array)


def without_mask(values: Any) -> Values:
    """The values, NaN where floating-point numbers were masked, None where others were."""
    array = as_numpy(values)
    if not np.ma.is_masked(array):
        return np.asarray(array)
    number = array.dtype.kind == "f"
    plain = np.array(array.data, dtype=array.dtype if number else object)
    plain[np.ma.getmaskarray(array)] = np.nan if number else None
    return plain


def refuse_mask(values: Any, what: str) -> Values:
    """The values, none of which may be masked. Errors: DataError."""
    try:
        array = as_numpy(values)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} is no array ({error}); give one value for each sample") from error
    if np.ma.is_masked(array):
        masked = np.argwhere(np.ma.getmaskarray(array))
        at = ", ".join(map(str, masked[0].tolist()))
        raise DataError(
            f"{what}[{at}] is masked ({number_of(len(masked), 'such value')}); leave these rows out, or fill them with "
            ".filled()"
        )
    return np.asarray(array)


def as_numpy(values: Any) -> Any:
    """Return the values as a NumPy array, with the mask that `numpy.asarray` forgets, of lists and Dask too.

    Errors: ValueError where the rows of a list have other lengths.
    """
    if hasattr(values, "__dask_graph__"):
        values = values.compute()
    if isinstance(values, list | tuple) and any(isinstance(row, np.ma.MaskedArray) for row in values):
        return np.ma.stack([np.ma.asarray(row) for row in values])
    return np.asanyarray(values)


def check_parts(matrix: Any, place: str) -> None:
    """Refuse a sparse matrix whose indices, pointers or lengths do not fit.

    SciPy looks at few of them, and its compiled functions then read and write outside of the arrays, which ends the
    process.

    Errors: DataError naming the row, or the entry, and what is wrong there.
    """
    fault = next(_faults(matrix), None)
    if fault is not None:
        raise DataError(
            f"{place}: {fault}, so that its parts fit no matrix of shape {tuple(matrix.shape)}; it is damaged or was "
            "put together wrongly: make it again, for example by scipy.sparse.coo_array((values, (rows, columns)))"
        )


def _faults(matrix: Any) -> Iterator[str]:
    """Yield the faults in the parts of a matrix, the first first: later ones may follow from it."""
    match matrix.format:
        case "csr" | "csc" | "bsr":
            yield from _compressed(matrix)
        case "coo":
            axes = [np.asarray(axis) for axis in matrix.coords]
            yield from _listed(axes, len(np.atleast_1d(matrix.data)), matrix.shape)
        case "dok":
            keys = np.array(list(matrix.keys())).reshape(len(matrix.keys()), len(matrix.shape))
            yield from _listed(list(keys.T) if len(keys) else [], len(keys), matrix.shape)
        case "dia":
            offsets, values = np.asarray(matrix.offsets), np.asarray(matrix.data)
            yield from _no_integers(("offsets", offsets))
            if values.ndim != 2 or len(values) != len(offsets):
                yield f"there are {len(offsets)} offsets, and values of shape {values.shape}"
        case "lil":
            if not len(matrix.rows) == len(matrix.data) == matrix.shape[0]:
                yield f"there are {len(matrix.rows)} and {len(matrix.data)} lists for {matrix.shape[0]} rows"
            for row, (columns, values) in enumerate(zip(matrix.rows, matrix.data, strict=True)):
                if len(columns) != len(values):
                    yield f"row {row} has {len(columns)} column numbers and {len(values)} values"
            bounds = np.cumsum([0, *map(len, matrix.rows)])
            yield from _outside_row("row", "column", bounds, np.array([*chain(*matrix.rows)], int), matrix.shape[1])


def _compressed(matrix: Any) -> Iterator[str]:
    pointers, indices, values = (np.asarray(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    outer, inner = ("column", "row") if matrix.format == "csc" else ("row", "column")
    major, minor = (1, *matrix.shape)[-2:] if outer == "row" else matrix.shape[::-1]
    if matrix.format == "bsr":
        if values.ndim != 3 or 0 in values.shape[1:] or major % values.shape[1] or minor % values.shape[2]:
            yield f"its values have shape {values.shape}"
        major, minor = major // values.shape[1], minor // values.shape[2]
        outer, inner = "block row", "block column"
    yield from _no_integers(("indptr", pointers), ("indices", indices))
    if len(pointers) != major + 1:
        yield f"indptr has {len(pointers)} elements for {major} {outer}s"
    if indices.shape != values.shape[:1]:
        yield f"there are {len(indices)} indices and {len(values)} values"
    if pointers[0] != 0 or pointers[-1] > len(indices):
        yield f"indptr goes from {pointers[0]} to {pointers[-1]}, and there are {len(indices)} entries"
    falling = np.flatnonzero(pointers[1:] < pointers[:-1])
    if len(falling):
        yield f"indptr falls at {outer} {falling[0]}, from {pointers[falling[0]]} to {pointers[falling[0] + 1]}"
    yield from _outside_row(outer, inner, pointers, indices[: pointers[-1]], minor)


def _outside_row(outer: str, inner: str, pointers: Values, indices: Values, size: int) -> Iterator[str]:
    for at in _outside(indices, size):
        row = np.searchsorted(pointers, at, side="right") - 1
        yield f"{outer} {row} has {inner} index {indices[at]}, outside 0 to {size - 1}"


def _listed(axes: list[Values], count: int, shape: tuple[int, ...]) -> Iterator[str]:
    for number, (axis, size) in enumerate(zip(axes, shape, strict=False)):
        name = ("row", "column")[number + 2 - len(shape)]
        yield from _no_integers((f"{name} numbers", axis))
        if len(axis) != count:
            yield f"there are {len(axis)} {name} numbers and {count} values"
        for at in _outside(axis, size):
            yield f"entry {at} is in {name} {axis[at]}, outside 0 to {size - 1}"


def _no_integers(*parts: tuple[str, Values]) -> Iterator[str]:
    for name, part in parts:
        if part.ndim != 1 or part.dtype.kind not in "iu":
            yield f"its {name} are an array of {part.ndim} dimensions and dtype {part.dtype}"


def _outside(indices: Values, size: int) -> list[int]:
    """The place of the first index that is negative or too large."""
    if not len(indices) or (indices.min() >= 0 and indices.max() < size):
        return []
    return [int(np.flatnonzero((indices < 0) | (indices >= size))[0])]


def precision_of(data: Any) -> np.dtype[Any]:
    """float32 for data in single precision, else float64."""
    return np.dtype(np.float32 if data.dtype == np.float32 else np.float64)


def in_precision(values: npt.NDArray[Any], dtype: npt.DTypeLike, start: int | None) -> npt.NDArray[Any]:
    """Results of rows from `start` on (None: unknown) in the precision of the data; refuse those beyond its numbers."""
    with np.errstate(over="ignore"):
        found = np.asarray(values, dtype=dtype)
    if found.dtype == values.dtype or np.isfinite(found).all():
        return found
    beyond = np.argwhere(np.isinf(found) & np.isfinite(values))
    if len(beyond):
        where = "" if start is None else f" of row {start + beyond[0, 0]}"
        raise DataError(
            f"a result{where} is {values[tuple(beyond[0])]:.3g}, beyond the largest number of {found.dtype}, the "
            f"precision of the data, {np.finfo(found.dtype).max:.3g}; give the data as float64"
        )
    return found


def printable(labels: Any) -> list[Any]:
    """Labels as they are printed: dates as 2001-01-31, with the time of day only where one of them has one."""
    values = np.asarray(labels)
    if values.dtype.kind != "M":
        return cast(list[Any], values.tolist())
    whole = (values == values.astype("datetime64[D]")) | np.isnat(values)
    return cast(list[Any], np.datetime_as_string(values, unit="D" if whole.all() else "s").tolist())
