"""The views that the samples of a block have, pattern by pattern.

A block shows its samples in one of two ways.  Rows of features travel with rows of targets, NaN where a sample
lacks them.  Or the samples are sorted by pattern, so that a block has one of them only, and holds the features of its
views side by side; an `Arrangement` says which.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar, cast

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Features
from dlatent.gaussian.columns import rows_about

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
    if arrangement is None:
        return [
            _with_targets(block, pattern, at)
            for pattern, at in zip(patterns, row_patterns(block, patterns), strict=True)
        ]
    own = arrangement.pattern_of(block.start)
    return [cut(block.features, p, arrangement) if i == own else None for i, p in enumerate(patterns)]


def by_pattern(
    block: Block,
    patterns: Patterns,
    arrangement: Arrangement | None,
    function: Callable[[tuple[int, ...], Parts, Array | None], S],
) -> tuple[S, ...]:
    """A statistic for each pattern, of the views and the weights of the rows that have it; None, which adds nothing,
    for patterns that sorted samples have not.  Over all blocks every pattern has its statistic."""
    seen, weights = observed(block, patterns, arrangement), _weights(block, patterns)
    found = (
        None if parts is None else function(own, parts, weight)
        for own, parts, weight in zip(patterns, seen, weights, strict=True)
    )
    return cast("tuple[S, ...]", tuple(found))


def _weights(block: Block, patterns: Patterns) -> list[Array | None]:
    """The weights of the rows of each pattern; sorted samples have none."""
    if block.weights is None:
        return [None] * len(patterns)
    return [take(block.weights, rows) for rows in row_patterns(block, patterns)]


def counted(parts: Parts, weights: Array | None) -> float:
    """How many rows there are, each as often as its weight says."""
    return float(parts[0].shape[0] if weights is None else weights.sum())


def _with_targets(block: Block, pattern: tuple[int, ...], rows: np.ndarray | None) -> Parts:
    features = take(block.features, rows)
    return (features, take(block.targets, rows)) if block.targets is not None and 1 in pattern else (features,)


def cut(features: Features, pattern: tuple[int, ...], arrangement: Arrangement) -> Parts:
    """The views of a pattern, out of features side by side."""
    bounds = np.cumsum([0, *(arrangement.sizes[view] for view in pattern)]).tolist()
    parts = [features] if len(pattern) == 1 else [features[:, a:b] for a, b in pairwise(bounds)]
    return tuple(_dense(x) if arrangement.dense[view] else x for view, x in zip(pattern, parts, strict=True))


def _dense(x: Features) -> Features:
    return x.toarray() if isinstance(x, sp.csr_array) else x


def labelled_rows(block: Block) -> np.ndarray | None:
    """Which rows of the block have targets: None for all of them (or a model without targets)."""
    if block.targets is None:
        return None
    present = ~np.isnan(block.targets[:, 0])
    return None if present.all() else present


def row_patterns(block: Block, patterns: Patterns) -> list[np.ndarray | None]:
    """The rows of each pattern, None for all rows; the pattern of a sample is the set of views that it has."""
    present = labelled_rows(block)
    if block.targets is None or len(patterns) == 1:
        return [None]
    if present is None:
        present = np.ones(block.rows, dtype=bool)
    return [np.flatnonzero(present) if 1 in pattern else np.flatnonzero(~present) for pattern in patterns]


F = TypeVar("F", bound=Features)


def take(features: F, rows: np.ndarray | None) -> F:
    """The given rows, without a copy where that is all of them."""
    if rows is None or len(rows) == features.shape[0]:
        return features
    return cast(F, features[rows])


def parts_about(
    shift: Array, pattern: tuple[int, ...], parts: Parts, arrangement: Arrangement | None
) -> tuple[Parts, list[Array]]:
    """Each part with its shift, as `rows_about` gives them: a piece of that of all stacked features, or that of the
    features, and none of targets."""
    if arrangement is None:
        shifts = [shift[: parts[0].shape[1]], *(np.zeros(part.shape[1]) for part in parts[1:])]
    else:
        bounds = np.cumsum([0, *arrangement.sizes]).tolist()
        shifts = [shift[bounds[view] : bounds[view + 1]] for view in pattern]
    rows, rest = zip(*map(rows_about, parts, shifts), strict=True)
    return rows, list(rest)
