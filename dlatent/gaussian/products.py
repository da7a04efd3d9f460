"""What a fit of many features asks of the data: sums once, and XᵀXV for a few directions V at a time.

Nothing of size N × D or D × D appears.  Sparse rows are not densified, and their shift is zero but in columns that are
full in practice (see `operators.far_columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dlatent.arrays import Array, Block, Features
from dlatent.gaussian.columns import Columns, column_sums, rows_about, times, weighted
from dlatent.gaussian.moments import check_rows
from dlatent.gaussian.views import Arrangement, Parts, Patterns, by_pattern, counted, parts_about

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

    found = [weighted_sums(parts[0], shifts[0], weights, energies=energies, often=often)]
    for x, shift in zip(parts[1:], shifts[1:], strict=True):
        found.append(weighted_sums(x, shift, lambda rows, place: z[place], energies=energies, often=often))
    moved = found[0][0] if len(found) == 1 else np.vstack([moved for moved, _ in found])
    return moved, [energy for _, energy in found]


def _pattern_products(
    parts: Parts, shifts: Sequence[Array], own: Sequence[Array], *, sums: bool, often: Array | None
) -> PatternProducts:
    widths = [v.shape[1] for v in own]
    bounds = np.cumsum([0, *widths]).tolist()
    # Else each piece would bring them into that order.
    directions = np.ascontiguousarray(own[0]) if isinstance(parts[0], Columns) else own[0]

    # One product gives Σ(x−s)zᵀ for the directions of all views and Σ(x−s) at once.
    if len(parts) == 1:

        def weights(rows: Features, place: slice) -> Array:
            w = times(rows, directions)
            return np.column_stack([w, np.ones(len(w))]) if sums else w

        moved, energy = weighted_sums(parts[0], shifts[0], weights, energies=sums, often=often)
        energies = [energy]
    else:
        z = np.ones((parts[0].shape[0], bounds[-1] + sums))
        for view in range(1, len(parts)):
            z[:, bounds[view] : bounds[view + 1]] = projected(parts[view], shifts[view], own[view])

        def fill(rows: Features, place: slice) -> None:
            z[place, : widths[0]] = times(rows, directions)

        moved, energies = pattern_sums(parts, shifts, fill, z, energies=sums, often=often)
    if len(parts) == 1 and not sums:
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

    def products(pattern: tuple[int, ...], parts: Parts, often: Array | None) -> PatternProducts:
        parts, shifts = parts_about(request.shift, pattern, parts, request.arrangement)
        own = [request.directions[view] for view in pattern]
        return _pattern_products(parts, shifts, own, sums=request.sums, often=often)

    found = by_pattern(block, request.patterns, request.arrangement, products)
    if request.sums and request.arrangement is None:
        totals = [p.sums.total[: block.features.shape[1]] for p in found if p.sums is not None]
        check_rows(block, sum(totals, start=np.zeros(1)), refuse_zero_rows=request.refuse_zero_rows)
    return found


class FeatureRequest(NamedTuple):
    """The shift of all stacked features, the patterns, whether all-zero rows are refused, and the arrangement."""

    shift: Array
    patterns: Patterns
    refuse_zero_rows: bool
    arrangement: Arrangement | None = None


class FeatureSums(NamedTuple):
    """Σ1, Σ(x−s) (D_p,) and Σ(x−s)² (D_p,) of one pattern."""

    samples: float
    total: Array
    energy: Array


def block_feature_sums(block: Block, request: FeatureRequest) -> tuple[FeatureSums, ...]:
    """First and second sums of each feature per pattern; additive, O(nnz) or O(n D).

    Raises DataError for NaN or infinity, and for all-zero rows where asked, as `block_products`.
    """
    shift, patterns, refuse_zero_rows, arrangement = request

    def sums(pattern: tuple[int, ...], parts: Parts, often: Array | None) -> FeatureSums:
        ones = np.ones((parts[0].shape[0], 1))
        parts, shifts = parts_about(shift, pattern, parts, arrangement)
        total, energies = pattern_sums(parts, shifts, lambda rows, place: None, ones, often=often)
        return FeatureSums(counted(parts, often), total[:, 0].copy(), np.concatenate(energies))

    found = by_pattern(block, patterns, arrangement, sums)
    if arrangement is None:
        totals = [part.total[: block.features.shape[1]] for part in found]
        check_rows(block, sum(totals, start=np.zeros(1)), refuse_zero_rows=refuse_zero_rows)
    return found
