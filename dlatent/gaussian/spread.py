"""How far each feature spreads, and features in units of their spreads, or of those that genotypes have by chance.

A model with one noise variance for all features, or one prior of all loadings, depends on the units of the features.
In units of their spreads it does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Dense, Features
from dlatent.errors import DataError
from dlatent.gaussian.missing_entries.entries import block_entry_sums, block_observed_mean
from dlatent.gaussian.moments import MomentRequest, block_mean
from dlatent.gaussian.products import block_feature_sums
from dlatent.gaussian.tails import some_rows
from dlatent.gaussian.views import BadEntry

FEW = 10
"""Entries below which a feature does not tell its spread."""
APART = 100.0
"""Times a usual spread from which the largest one is that of other units."""


class SpreadRequest(NamedTuple):
    """A point c near the mean (D,), whether entries that are NaN, or that sparse rows do not store, are missing, and
    whether all others must be genotypes."""

    shift: Array
    missing: bool
    genotypes: bool = False


class FirstLook(NamedTuple):
    """Whether the mean is asked for of observed entries, with those of targets, whether some may be missing, and
    whether spreads are asked for."""

    observed: bool
    missing: bool
    spread: bool


class Spreads(NamedTuple):
    """Σ 1, Σ (x−c) and Σ (x−c)² of the known entries of each feature (D,); additive over samples."""

    counts: Array
    total: Array
    squares: Array

    def mean(self, shift: Array) -> Array:
        """Means (D,), from the point c of the sums; c itself of features that have no entry."""
        return shift + self.total / np.maximum(self.counts, 1.0)

    def variances(self) -> Array:
        """Variances (D,), with the divisor n; 0 of features that have one value."""
        count = np.maximum(self.counts, 1.0)
        about = self.squares - self.total**2 / count
        return np.where(about > 4.0 * np.finfo(float).eps * self.squares, about / count, 0.0)

    def deviations(self) -> Array:
        """Standard deviations (D,), with the divisor n − 1; 0 of features that have one value."""
        return np.sqrt(self.variances() * (self.counts / np.maximum(self.counts - 1.0, 1.0)))

    def units(self, shift: Array) -> Array:
        """What features are divided by (D,), above 0: their standard deviations.

        A feature with few entries has at least the median of the others.  One that is constant has its size, so that
        results do not depend on its unit, either.
        """
        spread, few = self.deviations(), self.counts < FEW
        known = spread[~few & (spread > 0.0)]
        if len(known):
            spread = np.where(few, np.maximum(spread, np.median(known)), spread)
        size = np.abs(self.mean(shift))
        return np.where(spread > 0.0, spread, np.where(size > 0.0, size, 1.0))

    def units_of_genotypes(self, shift: Array) -> Array:
        """What numbers of copies of an allele, 0 to 2, are divided by (D,), above 0: √(p(1 − p)), where p = μ/2 is the
        frequency of the allele.  One that all copies are, or none, is left as it is.

        Source: Patterson, Price and Reich (2006), equation 3.
        """
        frequency = 0.5 * self.mean(shift)
        spread = np.sqrt(np.clip(frequency * (1.0 - frequency), 0.0, None))
        return np.where(self.variances() > 0.0, spread, 1.0)


def block_spreads(block: Block, request: SpreadRequest) -> Spreads:
    """Sums of a block, O(n D) or O(nnz).  Raises DataError for infinity, for NaN where none may be missing, and for
    other numbers than 0 to 2 where these are genotypes."""
    if request.genotypes:
        require_genotypes(block.features, block.start)
    if request.missing:
        known = block_entry_sums(replace(block, targets=None), request.shift)
        return Spreads(known.counts, known.total, known.energy)
    (sums,) = block_feature_sums(block, MomentRequest(request.shift, ((0,),), refuse_zero_rows=False))
    return Spreads(np.full(len(sums.total), sums.samples), sums.total, sums.energy)


def require_genotypes(x: Features, start: int | None, chunk: int = 0) -> None:
    """Refuse other numbers than 0 to 2 in rows that begin at row `start` of the data, or in `chunk` where nobody knows.
    Errors: DataError naming row and column."""
    bad = bad_genotype(x)
    if bad is not None:
        raise DataError(
            f"{bad.place(start, chunk)}, column {bad.column} is {bad.value:g}; scale='patterson' is for genotypes, "
            "which count copies of an allele from 0 to 2: make missing ones (often -1) NaN, as X.where(X >= 0) of "
            "xarray or np.where(X < 0, np.nan, X), and say missing='nan'",
            column=bad.column,
        )


def bad_genotype(x: Features) -> BadEntry | None:
    """The first number of some rows that is not from 0 to 2."""
    values = x.data if isinstance(x, sp.csr_array) else x
    return BadEntry.of(x, (values < 0.0) | (values > 2.0))


def block_first_look(block: Block, request: FirstLook) -> tuple[Array, Array | None, Dense | None]:
    """The mean of a block, how far its features spread (D,), and of dense ones some rows."""
    mean, x = (block_observed_mean if request.observed else block_mean)(block, None), block.features
    about = SpreadRequest(np.nan_to_num(mean[: x.shape[1]]), request.missing)
    spread = block_spreads(block, about).deviations() if request.spread else None
    return mean, spread, some_rows(x) if isinstance(x, np.ndarray) else None


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
