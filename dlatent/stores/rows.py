"""What the block sources of this room share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Features
from dlatent.errors import DataError
from dlatent.stores.partition import loaded_dtype


@dataclass(eq=False)
class Rows(ABC):
    """Rows `[start, stop)` that this process, or another one, loads by itself; `nbytes` once loaded."""

    held: ClassVar[bool] = False
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

    def assemble(self, parts: Sequence[Any]) -> Features:
        """The loaded block itself, as there is only one part."""
        (part,) = parts
        return cast(Features, part)


@dataclass(eq=False)
class ArrayRows(Rows):
    """Rows of a numpy array, held as a view; types other than float32 and float64 become float64 when loaded."""

    held = True

    values: npt.NDArray[Any]

    def load(self) -> Features:
        """The rows; a view of the values where nothing has to be converted."""
        return self.values.astype(loaded_dtype(self.values.dtype), copy=False)


@dataclass(eq=False)
class MatrixRows(Rows):
    """Rows of a sparse matrix in memory: canonical CSR whose data and indices are views of the whole matrix."""

    held = True

    values: sp.csr_array

    def load(self) -> Features:
        """The rows; their data are views where nothing has to be converted."""
        dtype = loaded_dtype(self.values.dtype)
        return self.values if self.values.dtype == dtype else self.values.astype(dtype)


@dataclass(eq=False)
class FunctionRows(Rows):
    """Rows that a function of `start` and `stop` makes of something smaller in memory, such as targets of codes."""

    held = True

    rows: Callable[[int, int], Any]

    def load(self) -> Features:
        """The rows."""
        return cast(Features, self.rows(self.start, self.stop))


def csr_bytes(rows: int, entries: int, dtype: np.dtype[Any], index_bytes: int = 4) -> int:
    """Bytes of a loaded CSR block."""
    return entries * (dtype.itemsize + index_bytes) + (rows + 1) * index_bytes


def check_matrix(shape: Sequence[int], dtype: np.dtype[Any], place: str) -> tuple[int, int]:
    """The shape as (samples, features), after refusing what no model can use.

    Errors: DataError for other than two dimensions, an empty axis, or values that are no real numbers.
    """
    if len(shape) != 2:
        way_out = ". Reshape your data: a single column is X[:, None], a single row X[None, :]"
        raise DataError(
            f"{place} has {len(shape)} dimensions, shape {tuple(shape)}; expected samples × features"
            f"{way_out if len(shape) == 1 else ''}"
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
