"""Kernels between blocks of rows, of which at most a tile is held, times thin rows; and the fitted map of new rows.

All statistics are rows of samples, so that blocks give pieces of them in order; only what lifts a linear fit to the
features is a sum over samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from dlatent.arrays import Array, Block, BlockSource, Features, Integers, add
from dlatent.errors import DataError
from dlatent.gaussian.moments import CHUNK_ROWS, MomentRequest, PatternMoments, block_moments
from dlatent.gaussian.products import weighted_sums
from dlatent.gaussian.views import check_features
from dlatent.operators.kernels import Kernel, LandmarkMap, products_about

TILE = 512
"""Rows of one side of a tile of the kernel: it stays in the cache of a core while it is made and multiplied."""
CHUNK = 128
"""Rows of a stored kernel that are multiplied at a time: they may be float32, the products are not."""


class KernelRequest(NamedTuple):
    """The kernel, thin rows V (N, b), and whether rows of zeros are refused; V of None asks for the kernel itself."""

    kernel: Kernel
    thin: Array | None
    refuse_zero_rows: bool


def meet_product(block: Block, other: Block, request: KernelRequest) -> tuple[Array, Array]:
    """K(own, other) V of the own rows (n, b) and K(other, own) V of the others (m, b), from the same tiles of K, which
    is symmetric; additive over the blocks. O(n m (D + b))."""
    assert request.thin is not None
    thin, same = request.thin, block.index == other.index
    mine, yours = np.zeros((block.rows, thin.shape[1])), np.zeros((other.rows, thin.shape[1]))
    if same:
        yours = mine
    for rows, columns in _tiles(block, other):
        tile = request.kernel(block.features[rows], other.features[columns])
        mine[rows] += tile @ thin[other.start :][columns]
        if not same or columns.start > rows.start:
            yours[columns] += tile.T @ thin[block.start :][rows]
    return mine, yours


def meet_kernel(mine: Sequence[Block], other: Sequence[Block], request: KernelRequest) -> Array:
    """K(mine, other) (n, m) of two groups of blocks. Checks all rows once."""
    same = mine[0].index == other[0].index
    if same:
        for block in mine:
            check_features(block, refuse_zero_rows=request.refuse_zero_rows)
    products = np.empty((sum(block.rows for block in mine), sum(block.rows for block in other)))
    kernel = request.kernel
    shift = kernel.shift if kernel.name == "linear" else None
    right = list(_pieces(other, joined=shift is not None))
    for top, rows in _pieces(mine, joined=shift is not None):
        for left, columns in right:
            if not same or left >= top:
                if shift is None:
                    tile = kernel(rows[0], columns[0])
                else:
                    tile = products_about(rows, rows if same and left == top else columns, shift)
                at = slice(top, top + tile.shape[0]), slice(left, left + tile.shape[1])
                products[at] = tile
                if same and left > top:
                    products[at[::-1]] = tile.T
    return products


def _pieces(blocks: Sequence[Block], *, joined: bool) -> Iterator[tuple[int, list[Features]]]:
    """The rows of a group, up to a tile of them at a time, and where they begin; where they are `joined`, for inner
    products, of several blocks, as blocks of few wide rows have little to do for what is read of them."""
    start, count, pending = 0, 0, list[Features]()
    for block in blocks:
        for at in range(0, block.rows, TILE):
            rows = block.features[at : at + TILE]
            if pending and (not joined or count + rows.shape[0] > TILE):
                yield start, pending
                start, count, pending = start + count, 0, []
            pending.append(rows)
            count += rows.shape[0]
    yield start, pending


def _tiles(block: Block, other: Block) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of the tiles of K(own, other); of a block with itself those on and above the diagonal."""
    for a in range(0, block.rows, TILE):
        for b in range(a if block.index == other.index else 0, other.rows, TILE):
            yield slice(a, min(a + TILE, block.rows)), slice(b, min(b + TILE, other.rows))


class TileWriter(Protocol):
    """Where tiles of the upper triangle of the kernel go, best some multiples of `columns` at a time."""

    @property
    def bounds(self) -> tuple[int, ...]:
        """The first rows of the panels, and N."""
        ...

    @property
    def columns(self) -> int:
        """Columns that are kept together."""
        ...

    def write(self, row: int, column: int, tile: Array) -> int:
        """Keep a tile that begins at (row, column)."""
        ...


class WriteRequest(NamedTuple):
    """The kernel, and where its upper triangle is kept."""

    kernel: Kernel
    sink: TileWriter


def meet_write(block: Block, other: Block, request: WriteRequest) -> int:
    """Keep K(own, other) of blocks on and above the diagonal, tile by tile; the number of values."""
    if other.index < block.index:
        return 0
    written, width = 0, request.sink.columns * max(1, TILE // request.sink.columns)
    for a in range(0, block.rows, TILE):
        rows = block.features[a : a + TILE]
        for b in range(0, other.rows, width):
            tile = request.kernel(rows, other.features[b : b + width])
            written += request.sink.write(block.start + a, other.start + b, tile)
    return written


class TriangleRequest(NamedTuple):
    """Thin rows V (N, b), and the first rows of the panels of the triangle, and N."""

    thin: Array
    bounds: tuple[int, ...]


def block_triangle(block: Block, request: TriangleRequest) -> Array:
    """The share of rows of the upper triangle of K in KV (N, b): themselves, and their transpose below the panel;
    additive.

    A panel begins with the square of its own rows, which is whole.
    """
    panel = int(np.searchsorted(request.bounds, block.start, side="right")) - 1
    first, last = request.bounds[panel], request.bounds[panel + 1]
    product = np.zeros_like(request.thin)
    for at in range(0, block.rows, CHUNK):
        rows = np.asarray(block.features[at : at + CHUNK], dtype=np.float64)
        place = slice(block.start + at, block.start + at + len(rows))
        product[place] += rows @ request.thin[first:]
        product[last:] += rows[:, last - first :].T @ request.thin[place]
    return product


class SurveyRequest(NamedTuple):
    """Rows (their numbers, increasing) that a survey brings back, and whether rows of zeros are refused."""

    chosen: Integers
    refuse_zero_rows: bool


def block_survey(block: Block, request: SurveyRequest) -> tuple[Features, ...]:
    """The chosen rows of a block, after a look at all of them. Raises DataError as every first pass does."""
    check_features(block, refuse_zero_rows=request.refuse_zero_rows)
    inside = request.chosen[(request.chosen >= block.start) & (request.chosen < block.start + block.rows)]
    return (block.features[inside - block.start],) if len(inside) else ()


def block_diagonal(block: Block, kernel: Kernel) -> tuple[Array, ...]:
    """k(x, x) of the rows of a block."""
    return (kernel.diagonal(block.features),)


class PrecomputedRows(NamedTuple):
    """Of rows of a precomputed kernel: KV (n, b) and the diagonal (n,) in pieces, and Kᵀp (N,) for a
    probe p, which shows whether K is symmetric."""

    product: tuple[Array, ...]
    diagonal: tuple[Array, ...]
    transposed: Array


def block_precomputed(block: Block, thin: Array) -> PrecomputedRows:
    """Products of the rows of a precomputed kernel with V (N, b), of which the first column is the probe.

    Raises DataError for NaN or infinity.
    """
    check_features(block, refuse_zero_rows=False)
    rows = block.features
    place = slice(block.start, block.start + block.rows)
    diagonal = np.asarray(rows[np.arange(block.rows), np.arange(place.start, place.stop)], dtype=np.float64).ravel()
    return PrecomputedRows((np.asarray(rows @ thin),), (diagonal,), np.asarray(rows.T @ thin[place, 0]))


def join_precomputed(left: PrecomputedRows, right: PrecomputedRows) -> PrecomputedRows:
    """Pieces in order, sums added."""
    return PrecomputedRows(
        left.product + right.product, left.diagonal + right.diagonal, left.transposed + right.transposed
    )


def require_symmetric(probed: Array, transposed: Array) -> None:
    """Refuse a kernel for which Kp and Kᵀp (N,) differ by more than rounding."""
    gap, size = float(np.abs(probed - transposed).max()), float(np.abs(probed).max())
    if gap > 1e-5 * size:
        row = int(np.abs(probed - transposed).argmax())
        raise DataError(
            f"the precomputed kernel is not symmetric (seen at row {row}: K and its transpose differ by {gap:.2g} "
            f"beside {size:.2g}); give k(x_i, x_j) of the training rows with themselves, in their order"
        )


class LandmarkRequest(NamedTuple):
    """The map to the coordinates of landmarks, and what is asked of the coordinates."""

    inside: LandmarkMap
    moments: MomentRequest


class LandmarkMoments(NamedTuple):
    """Moments of the coordinates per pattern, and Σ k(x, x), of which the coordinates have a part."""

    patterns: tuple[PatternMoments, ...]
    energy: float


def block_landmarks(block: Block, request: LandmarkRequest) -> LandmarkMoments:
    """Moments of a block in the span of landmarks, some rows at a time; additive, O(n m (D + m))."""
    total: LandmarkMoments | None = None
    for at in range(0, block.rows, CHUNK_ROWS):
        rows = block.features[at : at + CHUNK_ROWS]
        targets = None if block.targets is None else block.targets[at : at + CHUNK_ROWS]
        part = Block(block.index, block.start + at, request.inside(rows), targets)
        energy = float(request.inside.kernel.diagonal(rows).sum())
        new = LandmarkMoments(block_moments(part, request.moments), energy)
        total = new if total is None else add(total, new)
    assert total is not None
    return total


class LiftRequest(NamedTuple):
    """Combinations of samples (N, K), without a mean, and the shift (D,)."""

    combinations: Array
    shift: Array


def block_lift(block: Block, request: LiftRequest) -> Array:
    """Σ (x−s) a_iᵀ and Σ (x−s) / N (D, K+1): directions of features from combinations of samples; additive."""
    count = len(request.combinations)
    weights = np.column_stack([request.combinations, np.full(count, 1.0 / count)])
    weights = weights[block.start : block.start + block.rows]
    return weighted_sums(block.features, request.shift, lambda rows, place: weights[place], energies=False)[0]


class BlockReader(Protocol):
    """Where blocks may stay for the next call (`engine.cache.ReferenceCache`)."""

    def load(self, source: BlockSource) -> Features:
        """The rows of a block."""
        ...


@dataclass(frozen=True)
class KernelMap:
    """The coordinates of features in K orthonormal directions about their mean, Aᵀk(rows, x) − `offset`.

    The columns of A have no mean, so that this is the product of A with rows centred by SPPCA (28).

    Parameters
    ----------
    kernel : k.
    rows : the rows that the model keeps, of the training data or the landmarks, m in all; none for a given kernel.
    combinations : A (m, K).
    offset : coordinates of the mean (K,).
    middle : the mean of the features as a combination of those of the rows (m,).
    length : its squared length.
    dimension : number M of features.
    trace_error : the part of Σ k(x, x) that landmarks do not show, 0 without landmarks.
    """

    kernel: Kernel
    rows: tuple[BlockSource, ...] = field(repr=False)
    combinations: Array = field(repr=False)
    offset: Array = field(repr=False)
    middle: Array = field(repr=False)
    length: float
    dimension: int
    trace_error: float = 0.0

    def __call__(self, x: Features, cache: BlockReader | None = None) -> Array:
        """Coordinates of rows and, in the last column, the squared distances of their features from the mean (n, K+1).

        Of a precomputed kernel k(x, x) is not known, and the distances are NaN.  The rows that the model keeps stay in
        the cache, where there is one, for the next call.
        """
        thin = np.column_stack([self.combinations, self.middle])
        if self.kernel.name == "precomputed":
            products = np.asarray(x @ thin)
            diagonal = np.full(x.shape[0], np.nan)
        else:
            products = self._products(x, thin, cache)
            diagonal = self.kernel.diagonal(x)
        distances = diagonal - 2.0 * products[:, -1] + self.length
        return np.column_stack([products[:, :-1] - self.offset, distances])

    def _products(self, x: Features, thin: Array, cache: BlockReader | None) -> Array:
        products = np.zeros((x.shape[0], thin.shape[1]))
        for block in self.rows:
            kept = block.load() if cache is None else cache.load(block)
            for a in range(0, x.shape[0], TILE):
                for b in range(0, kept.shape[0], TILE):
                    tile = self.kernel(x[a : a + TILE], kept[b : b + TILE])
                    start = block.start + b
                    products[a : a + TILE] += tile @ thin[start : start + tile.shape[1]]
        return products
