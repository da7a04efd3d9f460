"""Targets that travel with the blocks: each group of blocks carries only its own rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from dlatent.arrays import Array, Integers
from dlatent.errors import DataError

RowsOf: TypeAlias = "Callable[[int, int], Array | None]"
"""`rows(start, stop)` gives the targets of those rows as float64 (n, L), or None."""


@dataclass(frozen=True)
class ArrayTargets:
    """Rows of an (N, L) array, of which this value holds those from `first` on."""

    array: Array = field(repr=False)
    first: int = 0

    def __call__(self, start: int, stop: int) -> Array | None:
        """The rows `[start, stop)`."""
        return self.array[start - self.first : stop - self.first]

    def window(self, start: int, stop: int) -> ArrayTargets:
        """The same targets, holding only the rows `[start, stop)`."""
        return ArrayTargets(self.array[start - self.first : stop - self.first], start)


@dataclass(frozen=True)
class CodedTargets:
    """Rows `table[codes]`: class labels as one integer a row, spread out to (n, L) only where a block is used.

    `codes` (N,) index the rows of `table` (classes, L); code −1 is an unlabelled row and becomes NaN.
    """

    codes: Integers = field(repr=False)
    table: Array = field(repr=False)
    first: int = 0

    def __call__(self, start: int, stop: int) -> Array | None:
        """The rows `[start, stop)` as float64 (n, L), NaN where unlabelled."""
        codes = self.codes[start - self.first : stop - self.first]
        rows = np.asarray(self.table, dtype=np.float64)[codes]
        rows[codes < 0] = np.nan
        return rows

    def window(self, start: int, stop: int) -> CodedTargets:
        """The same targets, holding only the rows `[start, stop)`."""
        return CodedTargets(self.codes[start - self.first : stop - self.first], self.table, start)


Targets: TypeAlias = "Array | RowsOf | None"
"""What an engine accepts: an (N, L) array, a picklable `rows(start, stop)`, or nothing."""


def as_rows(targets: Targets, samples: int) -> RowsOf | None:
    """Give targets the form `rows(start, stop)`, and check the length of an array."""
    if targets is None or not isinstance(targets, np.ndarray):
        return targets
    if targets.ndim != 2 or targets.shape[0] != samples:
        raise DataError(f"The targets have shape {targets.shape}; {samples} rows of data need ({samples}, outputs).")
    return ArrayTargets(np.ascontiguousarray(targets, dtype=np.float64))


def window(rows: RowsOf | None, start: int, stop: int) -> RowsOf | None:
    """Cut targets down to `[start, stop)` where they have a method `window`, to keep a group's description small."""
    cut: Any = getattr(rows, "window", None)
    return rows if cut is None else cut(start, stop)
