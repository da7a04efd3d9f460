"""Where the row blocks of a matrix begin and end."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.errors import StoreError

BLOCK_BYTES = 32 * 2**20 - 2**12
"""Largest default size of a loaded block: memory of 32 MiB apiece and more goes back to the system with every block,
and comes from there, cleared, for the next."""

SMALLEST_BLOCK = 2**20
BLOCKS_WANTED, BLOCKS_TOGETHER = 16, 4
"""Smaller data are cut into so many blocks, so that all workers get some, or, where blocks would be much smaller than
the smallest, into fewer: from three on into multiples of the second, so that two or four workers get equally many."""
ENTRIES_PER_COLUMN = 16
ROW_SLACK = 1 / 32
"""Slack of a default size, as blocks end with a whole row: without it a few rows would be left for one more."""

POINTER_BYTES = 4
STRETCH = 8
"""A block may grow to this many times the wanted bytes before the rows of one chunk are split over several blocks."""


def wanted_bytes(block_bytes: int | None, total: int, least: int = SMALLEST_BLOCK) -> int:
    """The size of a block that was asked for, or the default for data of `total` bytes, about `least` or more."""
    if block_bytes:
        return block_bytes
    if total <= least:
        return least
    blocks = round(total / least)
    if blocks > 2:
        blocks = min(BLOCKS_WANTED, max(BLOCKS_TOGETHER, BLOCKS_TOGETHER * round(blocks / BLOCKS_TOGETHER)))
    return min(BLOCK_BYTES, int(total / blocks * (1 + ROW_SLACK)))


def loaded_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The dtype of values once loaded: float32 and float64 stay (in native byte order), all others become float64."""
    native = np.dtype(dtype).newbyteorder("=")
    return native if native in (np.dtype(np.float32), np.dtype(np.float64)) else np.dtype(np.float64)


def dense_bounds(rows: int, row_bytes: int, chunk_rows: int, block_bytes: int) -> list[tuple[int, int]]:
    """`(start, stop)` of blocks of whole chunks of rows, as many as fit into `block_bytes`, at least one.

    The rows of one chunk are split only where they exceed `STRETCH * block_bytes`; each part then decodes them again.
    """
    row_bytes, chunk_rows = max(row_bytes, 1), max(1, min(chunk_rows, rows))
    fitting = block_bytes // row_bytes
    if fitting >= chunk_rows:
        starts = [*range(0, rows, fitting // chunk_rows * chunk_rows)]
    else:
        parts = -(-chunk_rows // max(1, STRETCH * block_bytes // row_bytes))
        piece = -(-chunk_rows // parts)
        starts = [s for c in range(0, rows, chunk_rows) for s in range(c, min(c + chunk_rows, rows), piece)]
    return list(pairwise([*starts, rows]))


def sparse_bytes(rows: int, entries: int, entry_bytes: int) -> int:
    """Bytes of sparse rows as blocks are cut by them: of their entries and row pointers."""
    return entries * entry_bytes + rows * POINTER_BYTES


def sparse_bounds(
    pieces: Iterable[npt.NDArray[np.integer[Any]]],
    *,
    entry_bytes: int,
    block_bytes: int,
    place: str,
    total: int | None = None,
) -> list[tuple[int, int, int, int]]:
    """`(start, stop, first, last)`, the rows and the entries, of blocks of up to `block_bytes` of entries and row
    pointers, at least one row, from `indptr` read as a stream.

    `pieces` are consecutive parts of `indptr`, each beginning with the last element of the one before. Where the bytes
    of all of them are told by `total`, blocks are no more than are needed, and as equal as rows allow: half of them are
    then half of the work; else each is as large as may be.
    Errors: StoreError where `indptr` does not start at 0 or decreases.
    """
    number = 0 if total is None else -(-total // block_bytes)

    def limit() -> int:
        if not total:
            return base + block_bytes
        share = (2 * base * number + total) // (2 * total) + 1
        return min(base + block_bytes, total * share // number)

    edges, offset, base = [(0, 0)], 0, 0
    piece = np.zeros(1, dtype=np.int64)
    for part in pieces:
        piece = np.asarray(part, dtype=np.int64)
        if offset == 0 and piece[0] != 0:
            raise StoreError(f"{place}: indptr starts at {piece[0]} instead of 0; the store is damaged, write it again")
        if len(falls := np.flatnonzero(np.diff(piece) < 0)):
            raise StoreError(
                f"{place}: indptr decreases at row {offset + falls[0]}; the store is damaged, write it again"
            )
        cost = piece * entry_bytes + (offset + np.arange(len(piece))) * POINTER_BYTES
        while (over := int(np.searchsorted(cost, limit(), side="right"))) < len(cost):
            at = max(over - 1, edges[-1][0] + 1 - offset)
            edges.append((offset + at, int(piece[at])))
            base = int(cost[at])
        offset += len(piece) - 1
    if edges[-1][0] < offset:
        edges.append((offset, int(piece[-1])))
    return [(start, stop, first, last) for (start, first), (stop, last) in pairwise(edges)]


def sized_sparse_bounds(
    pieces: Iterable[npt.NDArray[np.integer[Any]]],
    shape: tuple[int, int],
    entries: int,
    entry_bytes: int,
    block_bytes: int | None,
    place: str,
) -> list[tuple[int, int, int, int]]:
    """Row blocks of so many entries, of `block_bytes` or (None) the default size, and as equal as the rows allow."""
    total = sparse_bytes(shape[0], entries, entry_bytes)
    # Enough entries a column to repay a statistic of all columns.
    least = max(SMALLEST_BLOCK, ENTRIES_PER_COLUMN * shape[1] * entry_bytes)
    wanted, even = wanted_bytes(block_bytes, total, least), None if block_bytes else total
    return sparse_bounds(pieces, entry_bytes=entry_bytes, block_bytes=wanted, place=place, total=even)
