"""Rows of which any entry may be missing: residuals r of the observed entries, the mask m, and products of both.

A mask enters only through m V and mᵀE for a few columns, so that it is held as what makes these products cheap: dense,
as the observed entries alone (ratings), or as the missing entries alone (nearly complete rows).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import Array, Block, Dense, Features, Integers
from dlatent.errors import DataError, number_of
from dlatent.gaussian.views import bad_entry
from dlatent.operators.sparse import column_sums, entries_squared, with_data

DENSE_CELLS = 1 << 19
"""Cells of the dense rows that are worked on at a time: 4 MiB of residuals."""
SPARSE_BYTES = 4 * 2**20
"""Bytes of the packed second moments of the sparse rows that are worked on at a time."""
SMALLEST_CHUNK, LARGEST_CHUNK = 64, 8192
BUCKETS = 4096
ONE = np.float64(1.0).view(np.int64)
"""The bits of 1."""
FEW = 0.04
"""Fraction of the cells of a dense chunk below which the observed, or the missing ones, are worth a sparse matrix."""


class Observed(NamedTuple):
    """Some rows: residuals (n, D), zero where missing, and their masks.

    `mask` (masks, D) is 0 and 1, or sparse ones: at the observed entries, or where it is `absent` at the missing ones.
    `owner` (n,) is None, or which row of these, the distinct masks, each row has.
    """

    residuals: Features
    mask: Features
    absent: bool = False
    owner: np.ndarray | None = None

    def masked(self, weights: Array) -> Array:
        """Σ_j m_ij w_j for each distinct mask i: (c, masks) from weights (c, D)."""
        product = _times(self.mask, weights)
        return weights.sum(axis=1)[:, None] - product if self.absent else product

    def summed(self, values: Array) -> Array:
        """Σ_i m_ij e_i for each feature j: (c, D) from values (c, n) of the rows."""
        each = values if self.owner is None else _grouped(values, self.owner, self.mask.shape[0])
        total = _summed(self.mask, each)
        return each.sum(axis=1)[:, None] - total if self.absent else total

    def projected(self, weights: Array) -> Array:
        """Σ_j r_ij w_j: (c, n) from weights (c, D)."""
        return _times(self.residuals, weights)

    def weighted(self, values: Array) -> Array:
        """Σ_i r_ij e_i: (c, D) from values (c, n)."""
        return _summed(self.residuals, values)

    def energies(self) -> Array:
        """Σ_i r_ij² for each feature (D,)."""
        if isinstance(self.residuals, sp.csr_array):
            return column_sums(self.residuals, squared=True)
        return np.asarray(np.einsum("ij,ij->j", self.residuals, self.residuals))

    def distances(self, precision: Array) -> Array:
        """Σ_j r_ij² p_j for each row (n,), with precisions p (D,)."""
        if isinstance(self.residuals, sp.csr_array):
            return np.asarray(entries_squared(self.residuals) @ precision)
        return np.asarray((self.residuals * self.residuals) @ precision)

    def spread(self, values: Array) -> Array:
        """Values (…, masks) of the distinct masks for every row: (…, n)."""
        return values if self.owner is None else values[..., self.owner]


def _times(rows: Features, weights: Array) -> Array:
    if isinstance(rows, sp.csr_array):
        return np.ascontiguousarray(np.asarray(rows @ np.ascontiguousarray(weights.T)).T)
    return np.asarray(weights @ rows.T)


def _summed(rows: Features, values: Array) -> Array:
    if isinstance(rows, sp.csr_array):
        return np.asarray(rows.T @ np.ascontiguousarray(values.T)).T
    return np.asarray(values @ rows)


def _grouped(values: Array, owner: np.ndarray, count: int) -> Array:
    """Sums of values (c, n) over the rows of each mask: (c, masks)."""
    members = sp.csr_array((np.ones(len(owner)), (owner, np.arange(len(owner)))), shape=(count, len(owner)))
    return np.asarray(members @ values.T).T


def stacked(features: Features, targets: Array | None) -> Features:
    """Features and targets side by side; of sparse features the stored entries are the observed ones, and so are the
    targets that are not NaN."""
    if targets is None:
        return features
    if not isinstance(features, sp.csr_array):
        return np.hstack([features, targets])
    rows, columns = np.nonzero(~np.isnan(targets))
    extra = sp.csr_array((targets[rows, columns], (rows, columns)), shape=targets.shape)
    return sp.csr_array(sp.hstack([features.astype(np.float64), extra], format="csr"))


def chunks(features: Features, width: int) -> Iterator[slice]:
    """Cut rows into chunks whose temporary arrays stay small; `width` numbers are made for each row."""
    rows, columns = features.shape
    size = SPARSE_BYTES // (8 * width) if isinstance(features, sp.csr_array) else DENSE_CELLS // (columns + 2 * width)
    step = min(max(size, SMALLEST_CHUNK), LARGEST_CHUNK)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


class Buffers(NamedTuple):
    """Memory for the residuals and the mask of dense rows, used again for one chunk after the other: fresh pages cost
    more than the arithmetic."""

    residuals: Array
    mask: Array

    @classmethod
    def of(cls, features: Features, width: int) -> Buffers | None:
        """For the chunks of these rows; None for sparse ones."""
        if isinstance(features, sp.csr_array):
            return None
        rows = max((at.stop - at.start for at in chunks(features, width)), default=0)
        return cls(np.empty((rows, features.shape[1])), np.empty((rows, features.shape[1])))


def observed(features: Features, centre: Array, scale: Array, buffers: Buffers | None = None) -> Observed:
    """The residuals (x − centre)/scale of rows and their mask: NaN is missing, or what a sparse matrix does not store.

    Entries of features whose centre is NaN, which nothing is known of, count as missing.  With `buffers` the result
    lies in them, and is lost with the next call.
    """
    if isinstance(features, sp.csr_array):
        return _from_sparse(features, centre, scale)
    shape = features.shape
    residuals, mask = (np.empty(shape), np.empty(shape)) if buffers is None else (b[: shape[0]] for b in buffers)
    np.subtract(features, centre, out=residuals)
    residuals *= 1.0 / scale
    absent = np.isnan(residuals)
    count = int(np.count_nonzero(absent))
    kept = cleared(residuals, absent, mask)
    if count < FEW * absent.size:
        masks, owner = _distinct(absent) if count else (absent[:1], np.zeros(len(absent), dtype=np.intp))
        return Observed(residuals, sp.csr_array(masks, dtype=np.float64), True, owner)
    masks, owner = _distinct(absent)
    if count > (1.0 - FEW) * absent.size:
        return Observed(residuals, sp.csr_array(~masks, dtype=np.float64), owner=owner)
    if owner is None:
        return Observed(residuals, ones(kept))
    return Observed(residuals, np.subtract(1.0, masks, out=mask[: len(masks)]), owner=owner)


def cleared(values: Array, absent: np.ndarray, out: Array | None = None) -> np.ndarray:
    """Put zeros in the place of absent values, in place; all bits of those that are kept.

    It is several times faster than assigning zeros where a mask says so.
    """
    bits, kept = values.view(np.int64), np.empty(values.shape, np.int64) if out is None else out.view(np.int64)
    np.copyto(kept, absent)
    kept -= 1
    np.bitwise_and(bits, kept, out=bits)
    return kept


def ones(kept: np.ndarray) -> Array:
    """The mask (n, D), 1 at the values that `cleared` kept, 0 elsewhere, in its place."""
    return np.asarray(np.bitwise_and(kept, ONE, out=kept).view(np.float64))


def _distinct(masks: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """The distinct rows of truth values and which of them each row is, where sharing saves at least half of them."""
    # Sorting numbers is much cheaper than sorting rows; what the numbers say is checked.
    keys = mask_keys(masks)
    ordered = np.sort(keys)
    if 2 * (np.count_nonzero(ordered[1:] != ordered[:-1]) + 1) > len(masks):
        return masks, None
    _, first, owner = np.unique(keys, return_index=True, return_inverse=True)
    if not np.array_equal(masks[first][owner], masks):
        return masks, None
    return masks[first], owner


def bucket_counts(features: Dense) -> Array:
    """Rows (n, D) counted by the hashes of their masks (4096,)."""
    return np.bincount(mask_buckets(features), minlength=BUCKETS).astype(np.float64)


def mask_buckets(features: Dense) -> np.ndarray:
    """The bucket, out of 4096, that the mask of each row of (n, D) falls in."""
    return np.asarray((mask_keys(np.isnan(features)) >> np.uint64(52)).astype(np.intp))


def mask_keys(masks: np.ndarray) -> np.ndarray:
    """A number (n,) for each row of truth values (n, D), equal for equal rows, and hardly ever for others."""
    bits = np.packbits(masks, axis=1)
    padded = np.zeros((len(bits), -(-bits.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : bits.shape[1]] = bits
    keys = (padded.view(np.uint64) ^ (padded.view(np.uint64) >> np.uint64(29))) @ _odd_numbers(padded.shape[1] // 8)
    return np.asarray((keys ^ (keys >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15))


@lru_cache(maxsize=16)
def _odd_numbers(count: int) -> np.ndarray:
    """Odd factors, equal everywhere; a generator takes longer to make than a block of few rows to hash."""
    return np.random.default_rng(0).integers(2**63, size=count, dtype=np.uint64) * 2 + 1


def _from_sparse(features: sp.csr_array, centre: Array, scale: Array) -> Observed:
    values = (features.data - centre[features.indices]) / scale[features.indices]
    if np.isnan(values).any():
        kept = ~np.isnan(values)
        ends = np.concatenate([[0], np.cumsum(kept)])[features.indptr]
        features = sp.csr_array((values[kept], features.indices[kept], ends), shape=features.shape)
        values = features.data
    residuals = with_data(features, np.asarray(values, dtype=np.float64))
    return Observed(residuals, with_data(features, np.ones(len(values))))


def require_not_infinite(block: Block, features: Features, energy: Array) -> None:
    """Refuse infinite entries, found by the sums of squares (D,) of the columns, naming row, column and block."""
    if np.isfinite(energy).all():
        return
    bad = bad_entry(features, holes=True)
    if bad is None:
        raise DataError(
            f"the squares of a column overflow in block {block.index} (rows {block.start}–"
            f"{block.start + block.rows - 1}); rescale the data"
        )
    among = number_of(bad.all, "entry of the block is", "entries of the block are")
    raise DataError(
        f"row {block.start + bad.row}, column {bad.column} (block {block.index}) is infinite, and "
        f"{among}; make them NaN if they are missing, or correct them",
        column=bad.column,
    )


def sampled(block: Block, rows: int, samples: int) -> tuple[Integers, Integers]:
    """Which of so many rows, evenly spread over all samples, lie in a block, and where in it."""
    places = np.arange(rows) * samples // rows
    inside = np.flatnonzero((places >= block.start) & (places < block.start + block.rows))
    return inside, places[inside] - block.start


def rows_of(block: Block) -> Features:
    """The stacked rows of a block."""
    return stacked(block.features, block.targets)
