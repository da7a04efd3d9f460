"""First and second moments per pattern of views: everything that EM needs from complete or view-wise missing data.

The data meet a fit of few features in one pass, `block_moments`, additive over samples.  Sums are taken about an
initial mean, which keeps them exact for data whose mean is many spreads away from zero (raw moments lose
everything at an offset of 1e8 spreads).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Dense, Features
from dlatent.gaussian.views import (
    Arrangement,
    Parts,
    Patterns,
    by_pattern,
    check_totals,
    counted,
    require_finite,
    sorted_views,
)
from dlatent.operators.sparse import column_sums, far_mean

CHUNK_ROWS = 2048
"""Rows whose products are summed in the dtype of the data before they are added in float64."""
SMALLEST_SQUARES = 1e-28
"""Sums of squares of float32 numbers below which some of them may have lost digits, or everything."""


class PatternMoments(NamedTuple):
    """Σ 1, Σ (x−s) and Σ (x−s)(x−s)ᵀ over the samples of one pattern, for the features that it observes."""

    samples: float
    total: Array
    gram: Array


class Moments(NamedTuple):
    """Moments of all patterns about `shift` (D,), and the energy outside the features that they speak of.

    `spare_size[g]` is the number of further features of view g, on which the loadings are zero, and `spare_energy[g]`
    the sum of squares that the observing samples have there about their mean (both zero for uncompressed data).
    """

    patterns: tuple[PatternMoments, ...]
    shift: Array
    spare_size: Array
    spare_energy: Array


def _dense_square(x: Dense, shift: Array, roots: Array | None) -> tuple[Array, Array, np.dtype[Any]]:
    """Σ(x−s) and Σ(x−s)(x−s)ᵀ of dense rows with the roots of their weights, and the dtype of the products: that of the
    data, where their squares are in its range."""
    for kind in (x.dtype, np.dtype(np.float64)):
        total, gram = np.zeros(x.shape[1]), np.zeros((x.shape[1], x.shape[1]))
        with np.errstate(over="ignore", invalid="ignore"):
            for chunk, often in _centred_chunks(x, shift, roots, kind):
                total += often @ chunk
                gram += chunk.T @ chunk
        if not _out_of_range(gram, x, shift):
            break
    return total, gram, kind


def _centred_chunks(
    x: Dense, shift: Array, roots: Array | None, kind: np.dtype[Any]
) -> Iterator[tuple[Dense, npt.NDArray[Any]]]:
    """Some rows at a time about the shift, times the roots of their weights, and these roots; in one buffer, as fresh
    pages cost as much as the subtraction."""
    near, buffer = shift.astype(kind), np.empty((min(len(x), CHUNK_ROWS), x.shape[1]), dtype=kind)
    for start in range(0, len(x), CHUNK_ROWS):
        rows = x[start : start + CHUNK_ROWS]
        chunk, often = np.subtract(rows, near, out=buffer[: len(rows)]), np.ones(len(rows), dtype=kind)
        if roots is not None:
            often *= roots[start : start + CHUNK_ROWS]
            chunk *= often[:, None]
        yield chunk, often


def _out_of_range(gram: Array, x: Dense, shift: Array) -> bool:
    """Whether squares of float32 are too large for it, or vanish though their numbers do not."""
    if x.dtype != np.float32:
        return False
    squares = np.diag(gram)
    low = np.flatnonzero(squares < SMALLEST_SQUARES)
    return bool(not np.isfinite(squares).all() or (len(low) and (x[:, low] != shift[low].astype(x.dtype)).any()))


def _sparse_gram(x: sp.csr_array, roots: Array | None) -> tuple[Array, Array]:
    """Σx and Σxxᵀ of sparse rows with the roots of their weights, without densifying the rows."""
    wide = _times(x.astype(np.float64), roots)
    total: Array = np.asarray(wide.sum(axis=0) if roots is None else wide.T @ roots, dtype=np.float64).ravel()
    gram: Array = np.asarray((wide.T @ wide).toarray(), dtype=np.float64)
    return total, gram


def _times(x: sp.csr_array, factors: Array | None) -> sp.csr_array:
    """Sparse rows, each times its factor."""
    return x if factors is None else sp.csr_array(sp.diags_array(factors) @ x)


def _sparse_cross(x: sp.csr_array, y: Features, near: Array) -> Array:
    """Σx(y−r)ᵀ of sparse x, and dense y with the shift r or sparse y without."""
    if isinstance(y, sp.csr_array):
        return np.asarray((x.astype(np.float64).T @ y.astype(np.float64)).toarray())
    product = np.zeros((x.shape[1], y.shape[1]))
    for start in range(0, x.shape[0], CHUNK_ROWS):
        at = slice(start, start + CHUNK_ROWS)
        product += np.asarray(x[at].T @ (y[at] - near))
    return product


def recentred(moments: PatternMoments, offset: Array) -> PatternMoments:
    """The moments about `shift + offset`: G − t oᵀ − o tᵀ + n o oᵀ."""
    cross = np.outer(moments.total, offset)
    gram = moments.gram - cross - cross.T + moments.samples * np.outer(offset, offset)
    return PatternMoments(moments.samples, moments.total - moments.samples * offset, gram)


def _pattern_moments(
    pattern: tuple[int, ...], parts: Parts, shifts: Sequence[Array], weights: Array | None
) -> PatternMoments:
    roots = None if weights is None else np.sqrt(weights)
    views, sums, kinds = range(len(parts)), list[Array](), list[np.dtype[Any]]()
    gram = dict[tuple[int, int], Array]()
    for v, x in enumerate(parts):
        total, gram[v, v], kind = (
            (*_sparse_gram(x, roots), x.dtype) if isinstance(x, sp.csr_array) else _dense_square(x, shifts[v], roots)
        )
        sums.append(total)
        kinds.append(kind)
    for v, w in combinations(views, 2):
        x, y = parts[v], parts[w]
        if isinstance(x, sp.csr_array):
            gram[v, w] = _sparse_cross(_times(x, weights), y, shifts[w])
        elif isinstance(y, sp.csr_array):
            gram[v, w] = _sparse_cross(_times(y, weights), x, shifts[v]).T
        else:
            gram[v, w] = np.zeros((x.shape[1], y.shape[1]))
            chunks = (_centred_chunks(rows, shifts[i], roots, kinds[i]) for rows, i in ((x, v), (y, w)))
            for (a, _), (b, _) in zip(*chunks, strict=True):
                gram[v, w] += a.T @ b
    blocks = [[gram[v, w] if v <= w else gram[w, v].T for w in views] for v in views]
    return PatternMoments(counted(parts, weights), np.concatenate(sums), np.block(blocks))


def representable(shift: Array, dtype: np.dtype[Any]) -> Array:
    """The nearest shift in the precision of dense data, so that subtracting it there loses nothing."""
    return shift.astype(dtype).astype(np.float64)


class MomentRequest(NamedTuple):
    """The shift of the features, the patterns of the model, whether all-zero rows are refused, and how samples of
    several views are arranged (then the shift is that of all stacked features)."""

    shift: Array
    patterns: Patterns
    refuse_zero_rows: bool
    arrangement: Arrangement | None = None


def block_moments(block: Block, request: MomentRequest) -> tuple[PatternMoments, ...]:
    """Moments of a block per pattern, features about the shift, targets as they are; additive, O(n D²).

    Raises DataError for NaN or infinity (with row, column and block) and, where asked, for all-zero rows; samples of
    several views were checked when they were loaded.
    """
    shift, patterns, refuse_zero_rows, arrangement = request
    moments = by_pattern(block, patterns, arrangement, shift, _pattern_moments)
    if arrangement is None:
        check_totals(block, [part.total for part in moments], refuse_zero_rows=refuse_zero_rows)
    return moments


def block_mean(block: Block, request: None) -> Array:
    """Mean of the rows of a block (D,), for an initial mean. Raises DataError for NaN or infinity."""
    mean = np.asarray(block.features.mean(axis=0, dtype=np.float64)).ravel()
    require_finite(block, mean)
    return mean


class ColumnSums(NamedTuple):
    """Σ 1, Σ x and Σ x² of each feature (D,) of sparse rows, by which those that are far from zero are found."""

    samples: Array
    total: Array
    squares: Array

    @property
    def far(self) -> Array:
        """The mean (D,) of the features that are far from zero, 0 for the others."""
        count = np.maximum(self.samples, 1.0)
        mean = self.total / count
        return far_mean(mean, np.maximum(self.squares / count - mean**2, 0.0))


def block_column_sums(block: Block, request: tuple[Patterns, Arrangement] | None) -> ColumnSums:
    """Sums of the sparse features of a block about zero; additive, O(nnz).  Raises DataError for NaN or infinity.

    The request is for samples of several views, of which dense ones give zeros.
    """
    if request is None:
        sums = _column_sums(block.features, block.weights)
        require_finite(block, sums.total)
        return sums
    patterns, arrangement = request
    each = [ColumnSums(*np.zeros((3, size))) for size in arrangement.sizes]
    for view, x in zip(*sorted_views(block, patterns, arrangement), strict=True):
        if isinstance(x, sp.csr_array):
            each[view] = _column_sums(x, None)
    return ColumnSums(*map(np.concatenate, zip(*each, strict=True)))


def _column_sums(x: Any, weights: Array | None) -> ColumnSums:
    count = float(x.shape[0] if weights is None else weights.sum())
    with np.errstate(over="ignore"):
        sums = (column_sums(x, squared=squared, weights=weights) for squared in (False, True))
        return ColumnSums(np.full(x.shape[1], count), *sums)


def centred(moments: Moments, sizes: tuple[int, ...], patterns: tuple[tuple[int, ...], ...]) -> Moments:
    """Moments about the mean of each view over the samples that observe it."""
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    total, count = np.zeros(bounds[-1]), np.zeros(bounds[-1])
    places = [np.concatenate([np.arange(bounds[g], bounds[g + 1]) for g in p]) for p in patterns]
    for at, part in zip(places, moments.patterns, strict=True):
        total[at] += part.total
        count[at] += part.samples
    offset = total / np.where(count > 0.0, count, 1.0)
    moved = tuple(recentred(part, offset[at]) for at, part in zip(places, moments.patterns, strict=True))
    return moments._replace(patterns=moved, shift=moments.shift + offset)


def view_counts(moments: Moments, patterns: tuple[tuple[int, ...], ...], views: int) -> Array:
    """Number of samples that observe each view."""
    counts = np.zeros(views)
    for pattern, part in zip(patterns, moments.patterns, strict=True):
        counts[list(pattern)] += part.samples
    return counts


def view_variances(moments: Moments, sizes: tuple[int, ...], patterns: tuple[tuple[int, ...], ...]) -> Array:
    """Mean variance per feature of each view (moments must be centred), the scale of the noise floors."""
    energy = np.zeros(len(sizes)) + moments.spare_energy
    for pattern, part in zip(patterns, moments.patterns, strict=True):
        diagonal, at = np.diag(part.gram), 0
        for view in pattern:
            energy[view] += diagonal[at : at + sizes[view]].sum()
            at += sizes[view]
    counts = view_counts(moments, patterns, len(sizes))
    cells = counts * (np.array(sizes) + moments.spare_size)
    return np.asarray(energy / np.where(cells > 0.0, cells, 1.0))
