"""Dense matrices at rest: Zarr arrays, read by whole chunks of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

from dlatent.arrays import AxisLabels, DataSource, Features
from dlatent.errors import StoreError
from dlatent.stores.chunked import ZarrArray, check_chunks, decoding_bytes, process_local, read_rows, small_chunks
from dlatent.stores.codecs import harmless
from dlatent.stores.encoded import require_decoded
from dlatent.stores.partition import RowBounds, dense_bounds, loaded_dtype, wanted_bytes
from dlatent.stores.rows import ArrayRows, Rows, check_matrix
from dlatent.stores.strict import place_of, strict, unchanged

MOST_BYTES = 1 << 50
"""No matrix is larger; the list of its blocks alone would fill the memory."""


MANY_BYTES = 1 << 42
"""Of so large a matrix the last chunk is read first, before a list of its blocks is made."""

MANY_CHUNKS = 1000
"""Of so many chunks in a block the last is read first."""


@dataclass(eq=False)
class ZarrRows(Rows):
    """Rows of a Zarr array; the handle is metadata and a path, so another process opens the files by itself."""

    array: ZarrArray

    def load(self) -> Features:
        """Read the rows; types other than float32 and float64 become float64."""
        if self.stop - self.start > MANY_CHUNKS * self.array.chunks[0]:
            # Where chunks are not there, the last is found before all are asked for.
            read_rows(self.array, self.stop - 1, self.stop)
        values = read_rows(self.array, self.start, self.stop)
        return values.astype(loaded_dtype(values.dtype), copy=False)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Rows of a store in this process's memory travel by value, as no other process could read them."""
        if process_local(self.array):
            return ArrayRows, (self.start, self.stop, self.nbytes, self.load())
        return ZarrRows, (self.start, self.stop, self.nbytes, self.array)


def open_zarr_array(array: ZarrArray, block_bytes: int | None, labels: AxisLabels) -> DataSource:
    """Row blocks of a Zarr array: multiples of its chunk rows (shards, where they are small enough).

    Errors: DataError for other than two dimensions, an empty axis, encoded values, and values that are no real numbers.
    """
    place = f"Zarr array {place_of(array)}"
    rows, columns = check_matrix(array.shape, array.dtype, place)
    require_decoded(array)
    check_chunks(harmless(array))
    array = strict(array)
    dtype = loaded_dtype(array.dtype)
    row_bytes = columns * dtype.itemsize
    if rows * row_bytes > MOST_BYTES or row_bytes > MOST_BYTES >> 14:
        raise StoreError(
            f"{place} announces {rows:,} rows of {row_bytes:,} bytes, over 1,024 TiB, or 64 GiB a row; it is damaged"
        )
    if rows * row_bytes > MANY_BYTES:
        read_rows(array, rows - 1, rows)
    wanted = wanted_bytes(block_bytes, rows * row_bytes)
    bounds = dense_bounds(rows, row_bytes, _row_step(array, row_bytes, wanted), wanted)
    blocks = tuple(ZarrRows(start, stop, (stop - start) * row_bytes, array) for start, stop in bounds.pairs())
    decoding = max(decoding_bytes([array], block.start, block.stop, block.nbytes) for block in blocks)
    note = _note(array, bounds)
    source = DataSource((rows, columns), dtype, blocks, uuid4().hex, labels=labels, description=place + note)
    return replace(source, decoding=decoding, check=partial(unchanged, array))


def _row_step(array: ZarrArray, row_bytes: int, block_bytes: int) -> int:
    """Rows of a shard where a shard fits a block, otherwise rows of a chunk (the unit that is decoded)."""
    if array.shards is not None and array.shards[0] * row_bytes <= block_bytes:
        return int(array.shards[0])
    return int(array.chunks[0])


def _note(array: ZarrArray, bounds: RowBounds) -> str:
    if bounds.rereads == 1:
        return small_chunks(array)
    return (
        f" (its chunks of {array.chunks[0]} rows are split over {bounds.rereads} blocks, so that each is decoded "
        f"{bounds.rereads} times a pass; dlatent rechunk writes chunks of fewer rows)"
    )
