"""The views that the samples of a block have, pattern by pattern, and the entries and rows that no fit takes.

A block shows its samples in one of two ways.  Rows of features travel with rows of targets, NaN where a sample
lacks them.  Or the samples are sorted by pattern, so that a block has one of them only, and holds the features of its
views side by side; an `Arrangement` says which.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Features
from dlatent.errors import DataError, number_of
from dlatent.operators.sparse import Columns, by_rows, rows_about

S = TypeVar("S")
Parts = tuple[Features, ...]
"""Rows of the views of a pattern, (n, D_v) each."""
Patterns = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Arrangement:
    """Samples sorted by pattern: those of pattern p are `[bounds[p], bounds[p + 1])`.

    `sizes` are the features of each view; `dense` tells which views are dense: beside a sparse view their rows travel
    in sparse form.
    """

    bounds: tuple[int, ...]
    sizes: tuple[int, ...]
    dense: tuple[bool, ...]

    def pattern_of(self, start: int) -> int:
        """The pattern of the samples that begin at `start`."""
        return bisect_right(self.bounds, start) - 1


def observed(block: Block, patterns: Patterns, arrangement: Arrangement | None) -> list[Parts | None]:
    """For each pattern the views of those rows of the block that have it; None where sorted samples have another."""
    if arrangement is not None:
        seen, views = sorted_views(block, patterns, arrangement)
        return [views if pattern == seen else None for pattern in patterns]
    parts = list[Parts | None]()
    for pattern, rows in zip(patterns, row_patterns(block, patterns), strict=True):
        features, targets = take(block.features, rows), block.targets if 1 in pattern else None
        parts.append((features,) if targets is None else (features, take(targets, rows)))
    return parts


def sorted_views(block: Block, patterns: Patterns, arrangement: Arrangement) -> tuple[tuple[int, ...], Parts]:
    """The pattern of the samples of a block that are sorted by pattern, and the views of it."""
    pattern = patterns[arrangement.pattern_of(block.start)]
    return pattern, cut(block.features, pattern, arrangement)


def by_pattern(
    block: Block,
    patterns: Patterns,
    arrangement: Arrangement | None,
    shift: Array,
    function: Callable[[tuple[int, ...], Parts, list[Array], Array | None], S],
) -> tuple[S, ...]:
    """A statistic for each pattern, of the views of the rows that have it, the shifts of these and the weights of the
    rows; None, which adds nothing, for patterns that sorted samples have not.  Over all blocks every pattern has its
    statistic.

    The shift is that of the features, and none of targets, or of sorted samples that of all stacked features.  Each
    view comes with what is still to be taken off, as `rows_about` gives it.
    """
    rows, statistics = row_patterns(block, patterns), list[S | None]()
    for number, (pattern, parts) in enumerate(zip(patterns, observed(block, patterns, arrangement), strict=True)):
        if parts is None:
            statistics.append(None)
            continue
        if arrangement is None:
            shifts = [shift[: parts[0].shape[1]], *(np.zeros(part.shape[1]) for part in parts[1:])]
        else:
            bounds = np.cumsum([0, *arrangement.sizes]).tolist()
            shifts = [shift[bounds[view] : bounds[view + 1]] for view in pattern]
        parts, rest = zip(*map(rows_about, parts, shifts), strict=True)
        # Sorted samples have no weights.
        weights = None if block.weights is None else take(block.weights, rows[number])
        statistics.append(function(pattern, parts, list(rest), weights))
    return cast("tuple[S, ...]", tuple(statistics))


def counted(parts: Parts, weights: Array | None) -> float:
    """How many rows there are, each as often as its weight says."""
    return float(parts[0].shape[0] if weights is None else weights.sum())


def cut(features: Features, pattern: tuple[int, ...], arrangement: Arrangement) -> Parts:
    """The views of a pattern, out of features side by side."""
    bounds = np.cumsum([0, *(arrangement.sizes[view] for view in pattern)]).tolist()
    parts = [features] if len(pattern) == 1 else [features[:, a:b] for a, b in pairwise(bounds)]
    return tuple(
        x.toarray() if arrangement.dense[view] and isinstance(x, sp.csr_array) else x
        for view, x in zip(pattern, parts, strict=True)
    )


def row_patterns(block: Block, patterns: Patterns) -> list[np.ndarray | None]:
    """The rows of each pattern, None for all rows; the pattern of a sample is the set of views that it has."""
    if block.targets is None or len(patterns) == 1:
        return [None]
    present = ~np.isnan(block.targets[:, 0])
    return [np.flatnonzero(present) if 1 in pattern else np.flatnonzero(~present) for pattern in patterns]


def rows_of_all_views(parts: Parts, pattern: tuple[int, ...], sizes: Sequence[int]) -> Array:
    """Rows of views of these sizes (n, D), NaN where a sample lacks the view."""
    bounds = np.cumsum([0, *sizes])
    rows = np.full((parts[0].shape[0], bounds[-1]), np.nan)
    for x, view in zip(parts, pattern, strict=True):
        rows[:, bounds[view] : bounds[view + 1]] = x if isinstance(x, np.ndarray) else x.toarray()
    return rows


class AllViewsRequest(NamedTuple):
    """A function of blocks and its parameters, the patterns of the samples and how these are arranged."""

    map: Callable[[Block, Any], Any]
    parameters: Any
    patterns: Patterns
    arrangement: Arrangement


def block_of_all_views(block: Block, request: AllViewsRequest) -> Any:
    """A function of the rows of all views of a block side by side."""
    pattern, parts = sorted_views(block, request.patterns, request.arrangement)
    features = rows_of_all_views(parts, pattern, request.arrangement.sizes)
    return request.map(replace(block, features=features), request.parameters)


F = TypeVar("F", bound=Features)


def take(features: F, rows: np.ndarray | None) -> F:
    """The given rows, without a copy where that is all of them."""
    if rows is None or len(rows) == features.shape[0]:
        return features
    return cast(F, features[rows])


class BadEntry(NamedTuple):
    """The first entry of some rows that may not be there, and how many such there are."""

    row: int
    column: int
    value: float
    all: int

    @classmethod
    def of(cls, x: Features, bad: npt.NDArray[np.bool_]) -> Self | None:
        """The first of those that are bad, of all entries or of those that sparse rows store; None where none is."""
        if not bad.any():
            return None
        rows: npt.NDArray[np.intp]
        columns: npt.NDArray[Any]
        if isinstance(x, sp.csr_array):
            at = np.flatnonzero(bad)
            rows, columns = np.searchsorted(x.indptr, at, side="right") - 1, x.indices[at]
        else:
            rows, columns = np.nonzero(bad)
        values = (x.data if isinstance(x, sp.csr_array) else x)[bad]
        return cls(int(rows[0]), int(columns[0]), values[0], len(values))

    def place(self, start: int | None, chunk: int) -> str:
        """Its row in words, in rows that begin at row `start` of the data, or in `chunk` where nobody knows."""
        return f"row {self.row} of chunk {chunk}" if start is None else f"row {start + self.row}"

    def counted(self, start: int | None, rows: int) -> str:
        """In words how many there are among so many rows."""
        among = "the chunk" if start is None else f"rows {start}–{start + rows - 1}"
        return number_of(self.all, f"entry of {among} is", f"entries of {among} are")


def bad_entry(x: Features, *, holes: bool = False) -> BadEntry | None:
    """The first NaN or infinity of some rows; with `holes` NaN stands for a missing entry, and only infinity is bad."""
    entries = x.data if isinstance(x, sp.csr_array) else x
    return BadEntry.of(x, np.isinf(entries) if holes else ~np.isfinite(entries))


def first_bad_entry(x: Features, *, holes: bool = False) -> BadEntry | None:
    """As `bad_entry`, by way of the sum of all entries, which is finite where they are: the search is seldom needed."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = (x.data if isinstance(x, sp.csr_array) else x).sum()
    return None if np.isfinite(total) else bad_entry(x, holes=holes)


def require_finite(block: Block, sums: Array) -> None:
    """Refuse NaN and infinity, found by the sums of the columns at no extra cost, naming row, column and block."""
    if np.isfinite(sums).all():
        return
    x = by_rows(block.features)
    bad = bad_entry(x)
    if bad is None:
        raise DataError(
            f"the sum of a column overflows {x.dtype} in block {block.index} "
            f"(rows {block.start}–{block.start + block.rows - 1}); rescale the data or store them as float64"
        )
    among = number_of(bad.all, "entry of the block is", "entries of the block are")
    raise DataError(
        f"row {block.start + bad.row}, column {bad.column} (block {block.index}, row {bad.row} of it) is {bad.value}, "
        f"and {among} not finite; fill or remove them, or fit around NaN with missing='nan'",
        column=bad.column,
    )


def check_rows(block: Block, sums: Array, *, refuse_zero_rows: bool) -> None:
    """Refuse in a first pass values that are not finite and, where asked, rows of zeros."""
    require_finite(block, sums)
    if refuse_zero_rows and len(empty := empty_rows(block.features)):
        among = number_of(len(empty), "row of the block is", "rows of the block are")
        raise DataError(
            f"row {block.start + int(empty[0])} (block {block.index}) is all zeros, and {among}; drop them (dlatent "
            "ingest --zero-rows drop), or fit them all the same with zero_rows='keep'"
        )


def check_features(block: Block, *, refuse_zero_rows: bool) -> None:
    """`check_rows` of a block of which nothing was summed yet."""
    sums = np.asarray(block.features.sum(axis=0, dtype=np.float64)).ravel()
    check_rows(block, sums, refuse_zero_rows=refuse_zero_rows)


def check_totals(block: Block, totals: list[Array], *, refuse_zero_rows: bool) -> None:
    """`check_rows` by the sums of the rows of each pattern, of features and targets."""
    sums = sum((total[: block.features.shape[1]] for total in totals), start=np.zeros(1))
    check_rows(block, sums, refuse_zero_rows=refuse_zero_rows)


def empty_rows(x: Features) -> npt.NDArray[np.intp]:
    """Rows without a single non-zero entry: usually an empty document or a failed measurement."""
    matrix: Any = x
    if isinstance(matrix, Columns):
        filled = np.zeros(matrix.shape[0], dtype=bool)
        for place, piece in matrix.places():
            filled[place][piece.indices[piece.data != 0]] = True
    elif isinstance(x, sp.csr_array):
        filled = np.diff(x.indptr) > 0
        if not x.data.all():
            filled = np.asarray(abs(x).sum(axis=1)).ravel() > 0
    else:
        # Few rows begin with a zero: look at the whole of those only.
        filled = np.asarray(x[:, 0] != 0)
        filled[~filled] = x[~filled].any(axis=1)
    return np.flatnonzero(~filled)


def count_empty_rows(block: Block) -> int:
    """How many rows of a block have no entry but zeros."""
    return len(empty_rows(block.features))


def count_empty_views(block: Block, arrangement: Arrangement, patterns: Patterns, views: int) -> int:
    """How many rows of the first `views` views, as a block has them, have no entry but zeros."""
    pattern, parts = sorted_views(block, patterns, arrangement)
    return sum(len(empty_rows(part)) for view, part in zip(pattern, parts, strict=True) if view < views)
