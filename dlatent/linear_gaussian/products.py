"""What a fit of many features asks of the data: sums once, and XᵀXV for a few directions V at a time.

Nothing of size N × D or D × D appears.  Sparse rows are neither densified nor centred: the shift is carried through the
products as a rank-one term, (X − 1sᵀ)V = XV − 1(sᵀV).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Dense, Features
from dlatent.linear_gaussian.moments import CHUNK_ROWS, check_rows, row_patterns, take


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


def _sparse_product(x: sp.csr_array, directions: Array, shift: Array) -> Array:
    scores = x @ directions - shift @ directions
    return np.asarray(x.T @ scores) - np.outer(shift, scores.sum(axis=0))


def _dense_product(x: Dense, directions: Array, shift: Array) -> Array:
    product = np.zeros(directions.shape)
    buffer = np.empty((min(x.shape[0], CHUNK_ROWS), x.shape[1]))
    for start in range(0, x.shape[0], CHUNK_ROWS):
        chunk = x[start : start + CHUNK_ROWS]
        centred = np.subtract(chunk, shift, out=buffer[: len(chunk)])
        product += centred.T @ (centred @ directions)
    return product


def _feature_sums(x: Features, shift: Array, targets: Array) -> tuple[Array, float, Array]:
    """Σ(x−s), Σ‖x−s‖² and Σ(x−s)tᵀ."""
    if isinstance(x, sp.csr_array):
        wide = x.astype(np.float64)
        raw = np.asarray(wide.sum(axis=0)).ravel()
        count = x.shape[0]
        energy = float(wide.data @ wide.data - 2.0 * (raw @ shift) + count * (shift @ shift))
        cross = np.asarray(wide.T @ targets) - np.outer(shift, targets.sum(axis=0))
        return raw - count * shift, energy, cross
    total, energy, cross = np.zeros(x.shape[1]), 0.0, np.zeros((x.shape[1], targets.shape[1]))
    for start in range(0, x.shape[0], CHUNK_ROWS):
        centred = x[start : start + CHUNK_ROWS] - shift
        total += centred.sum(axis=0)
        energy += float(np.einsum("ij,ij->", centred, centred))
        if targets.shape[1]:
            cross += centred.T @ targets[start : start + CHUNK_ROWS]
    return total, energy, cross


def _pattern_products(x: Features, y: Array, request: ProductRequest) -> PatternProducts:
    shift = request.shift
    if isinstance(x, sp.csr_array):
        product = _sparse_product(x, request.directions, shift)
    else:
        product = _dense_product(x, request.directions, shift)
    if not request.sums:
        return PatternProducts(product, None)
    total, energy, cross = _feature_sums(x, shift, y)
    sums = PatternSums(float(x.shape[0]), total, energy, y.sum(axis=0), cross, y.T @ y)
    return PatternProducts(product, sums)


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
