"""How far each feature spreads, and features in units of their spreads.

A model with one noise variance for all features, or one prior of all loadings, depends on the units of the features.
In units of their spreads it does not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Features
from dlatent.gaussian.missing_entries.entries import block_observed_mean
from dlatent.gaussian.missing_entries.observed import require_not_infinite
from dlatent.gaussian.moments import CHUNK_ROWS, block_mean
from dlatent.gaussian.views import require_finite

FEW = 10
"""Entries below which a feature does not tell its spread."""
APART = 100.0
"""Times a usual spread from which the largest one is that of other units."""


class SpreadRequest(NamedTuple):
    """A point c near the mean (D,), and whether entries that are NaN, or that sparse rows do not store, are missing."""

    shift: Array
    missing: bool


class FirstLook(NamedTuple):
    """Whether the mean is asked for of observed entries, with those of targets, and whether some may be missing."""

    observed: bool
    missing: bool


class Spreads(NamedTuple):
    """Σ 1, Σ (x−c) and Σ (x−c)² of the known entries of each feature (D,); additive over samples."""

    counts: Array
    total: Array
    squares: Array

    def deviations(self) -> Array:
        """Standard deviations (D,), with the divisor n − 1; 0 of features that have one value."""
        count = np.maximum(self.counts, 1.0)
        about = self.squares - self.total**2 / count
        known = about > 4.0 * np.finfo(float).eps * self.squares
        return np.sqrt(np.where(known, about / np.maximum(count - 1.0, 1.0), 0.0))

    def units(self, shift: Array) -> Array:
        """What features are divided by (D,), above 0: their standard deviations.

        A feature with few entries has at least the median of the others.  One that is constant has its size, so that
        results do not depend on its unit, either.
        """
        spread, few = self.deviations(), self.counts < FEW
        known = spread[~few & (spread > 0.0)]
        if len(known):
            spread = np.where(few, np.maximum(spread, np.median(known)), spread)
        size = np.abs(shift + self.total / np.maximum(self.counts, 1.0))
        return np.where(spread > 0.0, spread, np.where(size > 0.0, size, 1.0))


def block_spreads(block: Block, request: SpreadRequest) -> Spreads:
    """Sums of a block, O(n D) or O(nnz).  Raises DataError for infinity, and for NaN where none may be missing."""
    x, (shift, missing) = block.features, request
    often = np.ones(x.shape[0]) if block.weights is None else block.weights
    sums = _sparse(x, often, shift, missing) if isinstance(x, sp.csr_array) else _dense(x, often, shift, missing)
    if missing:
        require_not_infinite(block, x, sums.squares)
    else:
        require_finite(block, sums.total)
    return sums


def block_first_look(block: Block, request: FirstLook) -> tuple[Array, Array]:
    """The mean of a block, and how far its features spread (D,)."""
    mean = (block_observed_mean if request.observed else block_mean)(block, None)
    about = SpreadRequest(np.nan_to_num(mean[: block.features.shape[1]]), request.missing)
    return mean, block_spreads(block, about).deviations()


def _dense(x: Features, often: Array, shift: Array, missing: bool) -> Spreads:
    sums = Spreads(*np.zeros((3, x.shape[1])))
    for start in range(0, x.shape[0], CHUNK_ROWS):
        rows, weights = x[start : start + CHUNK_ROWS] - shift, often[start : start + CHUNK_ROWS]
        known = ~np.isnan(rows) if missing else np.ones(rows.shape, dtype=bool)
        rows = np.where(known, rows, 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            for sum_, values in zip(sums, (known, rows, rows**2), strict=True):
                sum_ += weights @ values
    return sums


def _sparse(x: sp.csr_array, often: Array, shift: Array, missing: bool) -> Spreads:
    weights, width = np.repeat(often, np.diff(x.indptr)), x.shape[1]
    centred = x.data - shift[x.indices]
    with np.errstate(over="ignore", invalid="ignore"):
        sums = [np.bincount(x.indices, weights * values, width) for values in (1.0, centred, centred**2)]
    stored = Spreads(*(np.asarray(sum_, dtype=np.float64) for sum_ in sums))
    if missing:
        return stored
    # What is not stored is zero.
    others = often.sum() - stored.counts
    return Spreads(stored.counts + others, stored.total - others * shift, stored.squares + others * shift**2)


def divided(x: Features, units: Array) -> Features:
    """Rows with each feature in its unit (D,)."""
    if not isinstance(x, sp.csr_array):
        return np.asarray(x / units.astype(x.dtype))
    rows = x.copy()
    rows.data = rows.data / units.astype(x.dtype)[x.indices]
    return rows


def unlike(deviations: Array) -> tuple[float, float] | None:
    """A usual spread, that of a quarter of the features at most, and the largest, where these are so far apart that
    features must have different units; None where they are not."""
    spread = np.sort(deviations[deviations > 0.0])
    if not len(spread) or spread[-1] <= APART * spread[len(spread) // 4]:
        return None
    return float(spread[len(spread) // 4]), float(spread[-1])
