"""Products of many features: sums of the data once, and XᵀXV for a few directions V at a time.

Nothing of size N × D or D × D appears.  Sparse rows are not densified, and their shift is zero but in columns that are
full in practice (see `operators.sparse`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dlatent.arrays import Array, Block, Features
from dlatent.gaussian.moments import MomentRequest
from dlatent.gaussian.views import Arrangement, Parts, Patterns, by_pattern, check_totals, counted
from dlatent.operators.sparse import Columns, column_sums, rows_about, times, weighted

CHUNK_BYTES = 4 * 2**20
"""Centred rows that are worked on at a time: they stay in the cache of a core."""
SMALLEST_CHUNK = 32


class PatternSums(NamedTuple):
    """Sums of one pattern about the shift s: Σ1, Σ(x−s) (D_p,) of its stacked features, Σ‖x_v−s_v‖² of each view."""

    samples: float
    total: Array
    energy: Array


class PatternProducts(NamedTuple):
    """For each view v of a pattern Σ (x−s)((x_v−s_v)ᵀV_v) (D_p, b_v), and the sums where they were asked for."""

    product: tuple[Array, ...]
    sums: PatternSums | None


class ProductRequest(NamedTuple):
    """Directions V_v (D_v, b_v) of each view, the shift of the features, the patterns of the model, whether the sums
    are wanted too (first pass), whether that pass refuses all-zero rows, and how samples of several views are
    arranged (then the shift is that of all stacked features)."""

    directions: tuple[Array, ...]
    shift: Array
    patterns: Patterns
    sums: bool
    refuse_zero_rows: bool = False
    arrangement: Arrangement | None = None


def weighted_sums(
    x: Features,
    shift: Array,
    weights: Callable[[Features, slice], Array],
    *,
    energies: bool = True,
    often: Array | None = None,
) -> tuple[Array, Array]:
    """Σ (x−s) wᵀ (D, m) over rows, for weights w (n, m) that a function makes of the rows, and Σ (x−s)² (D,), which are
    zeros where `energies` are not asked for; each row as often as `often` (n,) says.

    `weights` gets rows about the shift and where they lie: a few rows of a dense x at a time, and those of a sparse one
    all at once or, by columns, a piece of them.
    """
    if often is not None:
        weights = partial(_often, weights=weights, often=often)
    if not isinstance(x, np.ndarray):
        moved: Any = rows_about(x, shift)[0]
        energy = column_sums(moved, squared=True, weights=often) if energies else np.zeros(x.shape[1])
        return weighted(moved, weights), energy
    rows = max(SMALLEST_CHUNK, CHUNK_BYTES // (8 * x.shape[1]))
    buffer = np.empty((min(x.shape[0], rows), x.shape[1]))
    total, energy = None, np.zeros(x.shape[1])
    for start in range(0, x.shape[0], rows):
        place = slice(start, min(start + rows, x.shape[0]))
        centred = np.subtract(x[place], shift, out=buffer[: place.stop - start])
        part = weights(centred, place).T @ centred
        total = part if total is None else np.add(total, part, out=total)
        if energies:
            energy += np.einsum("ij,ij->j", centred if often is None else centred * often[place, None], centred)
    if total is None:
        total = np.zeros((weights(buffer[:0], slice(0, 0)).shape[1], x.shape[1]))
    return total.T, energy


def _often(rows: Features, place: slice, weights: Callable[[Features, slice], Array], often: Array) -> Array:
    return weights(rows, place) * often[place, None]


def projected(x: Features, shift: Array, directions: Array) -> Array:
    """(x−s)V (n, b) of rows as they are."""
    if not directions.shape[1]:
        return np.zeros((x.shape[0], 0))
    rows, rest = rows_about(x, shift)
    return times(rows, directions) - rest @ directions


def pattern_sums(
    parts: Parts,
    shifts: Sequence[Array],
    first: Callable[[Features, slice], None],
    z: Array,
    *,
    energies: bool = True,
    often: Array | None = None,
) -> tuple[Array, list[Array]]:
    """Σ (x−s) zᵀ (D_p, m) over rows of all views of a pattern, and Σ (x−s)² of each view's features where asked for.

    `z` (n, m) is complete but for what `first` writes into it for rows of the first view, as `weighted_sums` asks it.
    """

    def weights(rows: Features, place: slice) -> Array:
        first(rows, place)
        return z[place]

    each = [weighted_sums(parts[0], shifts[0], weights, energies=energies, often=often)]
    for x, shift in zip(parts[1:], shifts[1:], strict=True):
        each.append(weighted_sums(x, shift, lambda rows, place: z[place], energies=energies, often=often))
    moved = each[0][0] if len(each) == 1 else np.vstack([moved for moved, _ in each])
    return moved, [energy for _, energy in each]


def _pattern_products(
    parts: Parts, shifts: Sequence[Array], each: Sequence[Array], *, sums: bool, often: Array | None
) -> PatternProducts:
    widths = [v.shape[1] for v in each]
    bounds = np.cumsum([0, *widths]).tolist()
    # Else each piece would bring them into that order.
    directions = np.ascontiguousarray(each[0]) if isinstance(parts[0], Columns) else each[0]

    # One product gives Σ(x−s)zᵀ for the directions of all views and Σ(x−s) at once.
    z = np.ones((parts[0].shape[0], bounds[-1] + sums))
    for view in range(1, len(parts)):
        z[:, bounds[view] : bounds[view + 1]] = projected(parts[view], shifts[view], each[view])

    def first(rows: Features, place: slice) -> None:
        z[place, : widths[0]] = times(rows, directions)

    moved, energies = pattern_sums(parts, shifts, first, z, energies=sums, often=often)
    if len(parts) == 1 and not sums:  # a copy would take a tenth of a pass over text
        return PatternProducts((moved,), None)
    # Copies: a subspace grows in the array that a view belongs to.
    product = tuple(np.array(moved[:, a:b], order="F") for a, b in pairwise(bounds))
    if not sums:
        return PatternProducts(product, None)
    energy_of_views = np.array([float(e.sum()) for e in energies])
    return PatternProducts(product, PatternSums(counted(parts, often), moved[:, -1].copy(), energy_of_views))


def block_products(block: Block, request: ProductRequest) -> tuple[PatternProducts, ...]:
    """Products (and sums) of a block per pattern; additive over samples, O(nnz b) or O(n D b).

    Takes sparse rows that all have one pattern `by_columns`, too.

    Raises DataError for NaN or infinity when the sums are asked for (the first pass); samples of several views were
    checked when they were loaded.
    """

    def function(pattern: tuple[int, ...], parts: Parts, shifts: list[Array], often: Array | None) -> PatternProducts:
        directions = [request.directions[view] for view in pattern]
        return _pattern_products(parts, shifts, directions, sums=request.sums, often=often)

    products = by_pattern(block, request.patterns, request.arrangement, request.shift, function)
    if request.sums and request.arrangement is None:
        totals = [part.sums.total for part in products if part.sums is not None]
        check_totals(block, totals, refuse_zero_rows=request.refuse_zero_rows)
    return products


class FeatureSums(NamedTuple):
    """Σ1, Σ(x−s) (D_p,) and Σ(x−s)² (D_p,) of one pattern."""

    samples: float
    total: Array
    energy: Array


def block_feature_sums(block: Block, request: MomentRequest) -> tuple[FeatureSums, ...]:
    """First and second sums of each feature per pattern; additive, O(nnz) or O(n D).

    Raises DataError for NaN or infinity, and for all-zero rows where asked, as `block_products`.
    """
    shift, patterns, refuse_zero_rows, arrangement = request
    sums = by_pattern(block, patterns, arrangement, shift, _feature_sums)
    if arrangement is None:
        check_totals(block, [part.total for part in sums], refuse_zero_rows=refuse_zero_rows)
    return sums


def _feature_sums(pattern: tuple[int, ...], parts: Parts, shifts: list[Array], often: Array | None) -> FeatureSums:
    ones = np.ones((parts[0].shape[0], 1))
    total, energies = pattern_sums(parts, shifts, lambda rows, place: None, ones, often=often)
    return FeatureSums(counted(parts, often), total[:, 0].copy(), np.concatenate(energies))
