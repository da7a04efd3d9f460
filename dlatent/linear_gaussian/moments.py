"""First and second moments per pattern of views: everything that EM needs from complete or view-wise missing data.

The data meet a fit of few features in one pass, `block_moments`, additive over instances.  Sums are taken about a pilot
shift near the mean, which keeps them exact for data whose mean is many spreads away from zero (raw moments lose
everything at an offset of 1e8 spreads).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Dense, Features
from dlatent.errors import DataError

CHUNK_ROWS = 2048
"""Rows whose products are summed in the dtype of the data before they are added in float64."""


class PatternMoments(NamedTuple):
    """Σ 1, Σ (x−s) and Σ (x−s)(x−s)ᵀ over the instances of one pattern, for the features that it observes."""

    instances: float
    total: Array
    gram: Array


class Moments(NamedTuple):
    """Moments of all patterns about `shift` (D,), and the energy outside the features that they speak of.

    `spare_size[g]` is the number of further features of view g, on which the loadings are zero, and `spare_energy[g]`
    the sum of squares that the observing instances have there about their mean (both zero for uncompressed data).
    """

    patterns: tuple[PatternMoments, ...]
    shift: Array
    spare_size: Array
    spare_energy: Array


def require_finite(block: Block, sums: Array) -> None:
    """Refuse NaN and infinity, found by the sums of the columns at no extra cost, naming row, column and block."""
    if np.isfinite(sums).all():
        return
    x = block.features
    rows: npt.NDArray[np.intp]
    columns: npt.NDArray[Any]
    if isinstance(x, sp.csr_array):
        bad = np.flatnonzero(~np.isfinite(x.data))
        rows = np.searchsorted(x.indptr, bad, side="right") - 1
        columns, values = x.indices[bad], x.data[bad]
    else:
        rows, columns = np.nonzero(~np.isfinite(x))
        values = x[rows, columns]
    if not len(values):
        raise DataError(
            f"the sum of a column overflows {x.dtype} in block {block.index} "
            f"(rows {block.start}–{block.start + block.rows - 1}); rescale the data or store them as float64"
        )
    row, column = int(rows[0]), int(columns[0])
    raise DataError(
        f"row {block.start + row}, column {column} (block {block.index}, row {row} of it) is {values[0]}, and "
        f"{len(values)} entries of the block are not finite; fill or remove them, or fit around NaN with missing='nan'"
    )


def check_rows(block: Block, sums: Array, *, refuse_zero_rows: bool) -> None:
    """What the first pass asks of every block: finite values and, where asked, no row of zeros."""
    require_finite(block, sums)
    if refuse_zero_rows:
        require_nonzero_rows(block)


def require_nonzero_rows(block: Block) -> None:
    """Refuse rows without a single non-zero entry: usually an empty document or a failed measurement."""
    x = block.features
    if isinstance(x, sp.csr_array):
        filled = np.diff(x.indptr) > 0
        if not x.data.all():
            filled = np.asarray(abs(x).sum(axis=1)).ravel() > 0
    else:
        # Few rows begin with a zero: look at the whole of those only.
        filled = np.asarray(x[:, 0] != 0)
        filled[~filled] = x[~filled].any(axis=1)
    empty = np.flatnonzero(~filled)
    if len(empty):
        raise DataError(
            f"row {block.start + int(empty[0])} (block {block.index}) is all zeros, and {len(empty)} rows of the block "
            "are; drop them (dlatent ingest --zero-rows drop), or fit them all the same with suspect_data='keep'"
        )


def labelled_rows(block: Block) -> np.ndarray | None:
    """Which rows of the block have targets: None for all of them (or a model without targets)."""
    if block.targets is None:
        return None
    present = ~np.isnan(block.targets[:, 0])
    return None if present.all() else present


def row_patterns(block: Block, patterns: tuple[tuple[int, ...], ...]) -> list[np.ndarray | None]:
    """The rows of each pattern, None for all rows; the pattern of an instance is the set of views that it has."""
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


def _dense_moments(x: Dense, t: Array | None, shift: Array) -> tuple[Array, Array, Array | None]:
    """Σ(x−s), Σ(x−s)(x−s)ᵀ and Σ(x−s)tᵀ of dense rows: products in the dtype of the data, sums in float64."""
    rows, width = x.shape
    total, gram = np.zeros(width), np.zeros((width, width))
    cross = None if t is None else np.zeros((width, t.shape[1]))
    near, ones = shift.astype(x.dtype), np.ones(min(rows, CHUNK_ROWS), dtype=x.dtype)
    # One buffer for all chunks: fresh pages cost as much as the subtraction.
    buffer, square = np.empty((len(ones), width), dtype=x.dtype), np.empty((width, width), dtype=x.dtype)
    for start in range(0, rows, CHUNK_ROWS):
        chunk = x[start : start + CHUNK_ROWS]
        centred = np.subtract(chunk, near, out=buffer[: len(chunk)])
        total += ones[: len(chunk)] @ centred
        gram += np.matmul(centred.T, centred, out=square)
        if t is not None and cross is not None:
            cross += centred.T @ t[start : start + CHUNK_ROWS]
    return total, gram, cross


def _sparse_gram(x: sp.csr_array) -> tuple[Array, Array]:
    """Σx and Σxxᵀ of sparse rows, about zero, without densifying the rows."""
    wide = x.astype(np.float64)
    total: Array = np.asarray(wide.sum(axis=0), dtype=np.float64).ravel()
    gram: Array = np.asarray((wide.T @ wide).toarray(), dtype=np.float64)
    return total, gram


def recentred(moments: PatternMoments, offset: Array) -> PatternMoments:
    """The moments about `shift + offset`: G − t oᵀ − o tᵀ + n o oᵀ."""
    cross = np.outer(moments.total, offset)
    gram = moments.gram - cross - cross.T + moments.instances * np.outer(offset, offset)
    return PatternMoments(moments.instances, moments.total - moments.instances * offset, gram)


def _pattern_moments(x: Features, t: Array | None, shift: Array) -> PatternMoments:
    count = float(x.shape[0])
    if isinstance(x, sp.csr_array):
        found = recentred(PatternMoments(count, *_sparse_gram(x)), shift)
        cross = None if t is None else np.asarray(x.T @ t) - np.outer(shift, t.sum(axis=0))
    else:
        total, gram, cross = _dense_moments(x, t, shift)
        found = PatternMoments(count, total, gram)
    if t is None or cross is None:
        return found
    joint = np.block([[found.gram, cross], [cross.T, t.T @ t]])
    return PatternMoments(count, np.concatenate([found.total, t.sum(axis=0)]), joint)


def representable(shift: Array, dtype: np.dtype[Any], *, sparse: bool) -> Array:
    """The nearest shift in the precision of dense data, so that subtracting it there loses nothing."""
    return shift if sparse else shift.astype(dtype).astype(np.float64)


class MomentRequest(NamedTuple):
    """The shift (D,), the patterns of the model, and whether all-zero rows are refused."""

    shift: Array
    patterns: tuple[tuple[int, ...], ...]
    refuse_zero_rows: bool


def block_moments(block: Block, request: MomentRequest) -> tuple[PatternMoments, ...]:
    """Moments of a block per pattern, features about the shift, targets as they are; additive, O(n D²).

    Raises DataError for NaN or infinity (with row, column and block) and, where asked, for all-zero rows.
    """
    found = []
    for pattern, rows in zip(request.patterns, row_patterns(block, request.patterns), strict=True):
        targets = None if block.targets is None or 1 not in pattern else take(block.targets, rows)
        found.append(_pattern_moments(take(block.features, rows), targets, request.shift))
    totals = [part.total[: block.features.shape[1]] for part in found]
    check_rows(block, sum(totals, start=np.zeros(1)), refuse_zero_rows=request.refuse_zero_rows)
    return tuple(found)


def block_mean(block: Block, request: None) -> Array:
    """Mean of the rows of a block (D,), for a pilot shift. Raises DataError for NaN or infinity."""
    mean = np.asarray(block.features.mean(axis=0, dtype=np.float64)).ravel()
    require_finite(block, mean)
    return mean


def centred(moments: Moments, sizes: tuple[int, ...], patterns: tuple[tuple[int, ...], ...]) -> Moments:
    """The same moments about the mean of each view over the instances that observe it."""
    edges = np.concatenate([[0], np.cumsum(sizes)])
    total, count = np.zeros(edges[-1]), np.zeros(edges[-1])
    places = [np.concatenate([np.arange(edges[g], edges[g + 1]) for g in p]) for p in patterns]
    for at, found in zip(places, moments.patterns, strict=True):
        total[at] += found.total
        count[at] += found.instances
    offset = total / np.maximum(count, 1.0)
    moved = tuple(recentred(found, offset[at]) for at, found in zip(places, moments.patterns, strict=True))
    return moments._replace(patterns=moved, shift=moments.shift + offset)


def counts_alone(instances: Iterable[float], views: int) -> Moments:
    """Moments of patterns of which nothing is known but how many instances have each."""
    empty = np.zeros(0)
    patterns = tuple(PatternMoments(count, empty, np.zeros((0, 0))) for count in instances)
    return Moments(patterns, empty, np.zeros(views), np.zeros(views))


def view_counts(moments: Moments, patterns: tuple[tuple[int, ...], ...], views: int) -> Array:
    """Number of instances that observe each view."""
    counts = np.zeros(views)
    for pattern, found in zip(patterns, moments.patterns, strict=True):
        counts[list(pattern)] += found.instances
    return counts


def view_variances(moments: Moments, sizes: tuple[int, ...], patterns: tuple[tuple[int, ...], ...]) -> Array:
    """Mean variance per feature of each view (moments must be centred), the scale of the noise floors."""
    energy = np.zeros(len(sizes)) + moments.spare_energy
    for pattern, found in zip(patterns, moments.patterns, strict=True):
        diagonal, at = np.diag(found.gram), 0
        for view in pattern:
            energy[view] += diagonal[at : at + sizes[view]].sum()
            at += sizes[view]
    counts = view_counts(moments, patterns, len(sizes))
    return energy / np.maximum(counts * (np.array(sizes) + moments.spare_size), 1.0)
