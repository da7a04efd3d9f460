"""A symmetric matrix at rest: its upper triangle in panels, one for each block of rows, written tile by tile.

A panel holds the rows of a block from the block's own columns on, so that every pair of blocks is stored once.  Each
panel has one writer at a time (the pass over pairs meets a block with the others in order), so that no two processes
write one chunk.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import cast
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import zarr

from dlatent.arrays import Array, DataSource, Features
from dlatent.stores.atomic import abandon, begun, finish, with_room
from dlatent.stores.chunked import ALL_WRITTEN, ZarrArray, new_array, open_to_write, read_rows
from dlatent.stores.location import zarr_location
from dlatent.stores.open import open_node
from dlatent.stores.rows import Rows
from dlatent.stores.strict import place_of, strict

KIND = "kernel"
CHUNK_ROWS = 128
"""Few, so that rows which are loaded at a time are whole chunks."""
CHUNK_COLUMNS = 512
MOST_COLUMNS = 2048
LOADED_BYTES = 24 * 2**20
"""Wanted size of the rows that are loaded at a time."""


@dataclass(frozen=True)
class TileSink:
    """A picklable writer of the upper triangle of an (N, N) matrix whose blocks of rows begin at `bounds`; tiles that
    begin at multiples of `columns` from the edge of their panel are written without reading."""

    target: str
    location: str
    bounds: tuple[int, ...]
    dtype: str
    columns: int
    overwrite: bool

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], bounds: Sequence[int], *, dtype: npt.DTypeLike, overwrite: bool = False
    ) -> TileSink:
        """Begin a store; `bounds` 0 … N are the first rows of the blocks, and N.

        Errors: StoreError where the path is taken.
        """
        with begun(path, kind=KIND, overwrite=overwrite) as location:
            columns = chunk_columns(bounds)
            sink = cls(zarr_location(path), location, tuple(map(int, bounds)), np.dtype(dtype).str, columns, overwrite)
            root = zarr.open_group(location, mode="r+", use_consolidated=False)
            root.attrs["edges"] = list(sink.bounds)
            for start, stop in pairwise(sink.bounds):
                shape = (stop - start, sink.bounds[-1] - start)
                chunks = (min(shape[0], CHUNK_ROWS), min(shape[1], columns))
                # Not compressed: the digits of a kernel are noise, and decoding them would cost more than reading.
                new_array(root, panel_name(start), shape, sink.dtype, chunks, attributes=ALL_WRITTEN, compress=False)
        return sink

    def write(self, row: int, column: int, tile: Array) -> int:
        """Write a tile that begins at (row, column), inside one panel; again after a failure, too.

        Returns: the number of values.
        """
        start = self.bounds[int(np.searchsorted(self.bounds, row, side="right")) - 1]
        panel = open_to_write(f"{self.location}/{panel_name(start)}")
        at = (slice(row - start, row - start + tile.shape[0]), slice(column - start, column - start + tile.shape[1]))
        with with_room(self.target):
            panel[at] = tile.astype(self.dtype, copy=False)
        return int(tile.size)

    def finish(self) -> None:
        """Make the store visible under its path."""
        finish(self.location, self.target, overwrite=self.overwrite)

    def abort(self) -> None:
        """Remove what was written."""
        abandon(self.location)


def chunk_columns(bounds: Sequence[int]) -> int:
    """Columns of a chunk: a divisor of the blocks' sizes where one is near, so that no tile shares a chunk with the
    next."""
    common = gcd(*bounds[:-1]) or bounds[-1]
    fitting = [n for n in range(CHUNK_COLUMNS // 4, MOST_COLUMNS + 1) if common % n == 0]
    return min(fitting, key=lambda n: abs(n - CHUNK_COLUMNS), default=CHUNK_COLUMNS)


def panel_name(start: int) -> str:
    """The array of the rows of the block that begins at `start`."""
    return f"rows-{start}"


@dataclass(eq=False)
class PanelRows(Rows):
    """Rows `[start, stop)` of a panel, from the first column of the panel on."""

    panel: ZarrArray
    first: int

    def load(self) -> Features:
        """Read the rows (stop − start, N − first)."""
        first, last = self.start - self.first, self.stop - self.first
        return read_rows(self.panel, first, last, f"rows {self.start}:{self.stop}")


def open_tiles(path: str | os.PathLike[str]) -> DataSource:
    """The stored triangle as blocks of rows, each from the first column of its panel on; `finish` may be to come."""
    root = cast(zarr.Group, open_node(path, unfinished=True))
    bounds: list[int] = list(root.attrs["edges"])  # type: ignore[arg-type]
    count, blocks = bounds[-1], list[PanelRows]()
    for first, last in pairwise(bounds):
        panel = strict(cast(ZarrArray, root[panel_name(first)]))
        row_bytes = (count - first) * panel.dtype.itemsize
        step = max(1, LOADED_BYTES // row_bytes)
        step = step // CHUNK_ROWS * CHUNK_ROWS or step
        for start in range(first, last, step):
            stop = min(start + step, last)
            blocks.append(PanelRows(start, stop, (stop - start) * row_bytes, panel, first))
    dtype = blocks[0].panel.dtype
    return DataSource((count, count), dtype, tuple(blocks), uuid4().hex, description=f"kernel {place_of(root)}")
