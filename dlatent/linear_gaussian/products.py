"""What a fit of many features asks of the data: sums once, and XᵀXV for a few directions V at a time.

Nothing of size N × D or D × D appears.  Sparse rows are neither densified nor centred: the shift is carried through the
products as a rank-one term, (X − 1sᵀ)V = XV − 1(sᵀV).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Features
from dlatent.linear_gaussian.moments import check_rows, row_patterns, take

CHUNK_BYTES = 4 * 2**20
"""Centred rows that are worked on at a time: they stay in the cache of a core."""
SMALLEST_CHUNK = 32


class PatternSums(NamedTuple):
    """Sums of one pattern, features about the shift s: Σ1, Σ(x−s), Σ‖x−s‖², Σy, Σ(x−s)yᵀ, Σyyᵀ.

    The target sums have L = 0 columns where the pattern or the model has no targets.
    """

    instances: float
    total: Array
    energy: float
    target_total: Array
    cross: Array
    target_gram: Array


class PatternProducts(NamedTuple):
    """Σ (x−s)((x−s)ᵀV) (D, b) of one pattern, and its sums where they were asked for."""

    product: Array
    sums: PatternSums | None


class ProductRequest(NamedTuple):
    """Directions V (D, b), the shift (D,), the patterns of the model, whether the sums are wanted too (first pass), and
    whether that pass refuses all-zero rows."""

    directions: Array
    shift: Array
    patterns: tuple[tuple[int, ...], ...]
    sums: bool
    refuse_zero_rows: bool = False


def weighted_sums(x: Features, shift: Array, weights: Callable[[Features, slice], Array]) -> tuple[Array, float]:
    """Σ (x−s) wᵀ (D, m) and Σ ‖x−s‖² over rows, for weights w (n, m) that a function makes of the rows.

    `weights` gets rows and where they lie: all rows of a sparse x as they are, a few rows of a dense one at a time,
    already about the shift.  Sparse sums are taken about zero and moved by the sums of the weights.
    """
    if isinstance(x, sp.csr_array):
        return _sparse_weighted_sums(x, shift, weights(x, slice(0, x.shape[0])))
    rows = max(SMALLEST_CHUNK, CHUNK_BYTES // (8 * x.shape[1]))
    buffer = np.empty((min(x.shape[0], rows), x.shape[1]))
    total, energy = None, 0.0
    for start in range(0, x.shape[0], rows):
        place = slice(start, min(start + rows, x.shape[0]))
        centred = np.subtract(x[place], shift, out=buffer[: place.stop - start])
        part = weights(centred, place).T @ centred
        total = part if total is None else np.add(total, part, out=total)
        flat = centred.ravel()
        energy += float(flat @ flat)
    if total is None:
        total = np.zeros((weights(buffer[:0], slice(0, 0)).shape[1], x.shape[1]))
    return total.T, energy


def _sparse_weighted_sums(x: sp.csr_array, shift: Array, w: Array) -> tuple[Array, float]:
    product: Array = np.asarray(x.T @ w)
    energy = float(np.einsum("i,i->", x.data, x.data, dtype=np.float64))
    if shift.any():
        product -= np.outer(shift, w.sum(axis=0))
        energy += float(x.shape[0] * (shift @ shift) - 2.0 * np.asarray(x @ shift).sum())
    return product, energy


def _pattern_products(x: Features, y: Array, request: ProductRequest) -> PatternProducts:
    directions, shift = request.directions, request.shift
    offset = shift @ directions if isinstance(x, sp.csr_array) else np.zeros(directions.shape[1])

    def scores(rows: Features, place: slice) -> Array:
        found = np.asarray(rows @ directions) - offset
        if not request.sums:
            return found
        # One product gives Σ(x−s)zᵀ, Σ(x−s)yᵀ and Σ(x−s) at once.
        return np.hstack([found, y[place], np.ones((len(found), 1))])

    moved, energy = weighted_sums(x, shift, scores)
    if not request.sums:
        return PatternProducts(moved, None)
    width = directions.shape[1]
    product, cross, total = moved[:, :width], moved[:, width:-1], moved[:, -1]
    return PatternProducts(product, PatternSums(float(x.shape[0]), total, energy, y.sum(axis=0), cross, y.T @ y))


def block_products(block: Block, request: ProductRequest) -> tuple[PatternProducts, ...]:
    """Products (and sums) of a block per pattern; additive over instances, O(nnz b) or O(n D b).

    Raises DataError for NaN or infinity when the sums are asked for (the first pass).
    """
    found = []
    for pattern, rows in zip(request.patterns, row_patterns(block, request.patterns), strict=True):
        x = take(block.features, rows)
        targets = np.zeros((x.shape[0], 0))
        if 1 in pattern and block.targets is not None:
            targets = take(block.targets, rows)
        found.append(_pattern_products(x, targets, request))
    if request.sums:
        totals = [p.sums.total for p in found if p.sums is not None]
        check_rows(block, sum(totals, start=np.zeros(1)), refuse_zero_rows=request.refuse_zero_rows)
    return tuple(found)
