"""Arrays that many processes write into one store: rows of results, and tiles of a symmetric matrix.

No two processes may write one chunk, and blocks of rows rarely end where chunks end.  Each process therefore writes the
chunks that lie wholly inside its rows, and puts the rows at the two ends aside as fragments; `join` writes the chunks
between blocks from the fragments.  A repeated write of the same rows leaves the same store, and so does a repeated
`join`.

Of a symmetric matrix the upper triangle is stored, in panels: the rows of a block from the block's own columns on, so
that every pair of blocks is stored once.  Each panel has one writer at a time (the pass over pairs meets a block with
the others in order).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import gcd
from typing import Any, cast
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import zarr

from dlatent.arrays import Array, DataSource
from dlatent.containers import in_precision
from dlatent.errors import DataError, StoreError
from dlatent.stores.atomic import Unfinished, begun, writing
from dlatent.stores.checked import checked, place_of
from dlatent.stores.chunked import ALL_WRITTEN, ZarrArray, new_array, open_to_write, read_all, write_array
from dlatent.stores.documents import store_at
from dlatent.stores.location import Place
from dlatent.stores.nodes import ZarrRows, open_node
from dlatent.stores.schema import Variable

CHUNK_BYTES = 4 * 2**20
"""Wanted size of a chunk of rows; it becomes smaller where blocks are."""

SMALLEST_CHUNK = 2**18
"""Chunks are not made smaller than this, except where the whole array is, or each block is one chunk."""

SMALLEST_BLOCK = 2**14
"""A block of results that is not smaller than this is one chunk, where all blocks have one size."""

CHUNK_LABELS = 2**17
"""Labels of an axis in one chunk."""

PANEL_ROWS = 128
"""Rows of a chunk of a panel: few, so that rows which are loaded at a time are whole chunks."""

PANEL_COLUMNS, MOST_COLUMNS = 512, 2048

LOADED_BYTES = 24 * 2**20
"""Wanted size of the rows of a panel that are loaded at a time."""

_FRAGMENTS = "fragments"


@dataclass(frozen=True)
class RowSink(Unfinished):
    """A picklable writer of one array of rows: `write` in any process, then on the driver `join` and `finish`, or
    `abort`; or `leave`, after which another process may `take_over`."""

    name: str
    shape: tuple[int, int]
    dtype: str
    row_chunk: int

    @classmethod
    def create(
        cls,
        path: Place,
        shape: tuple[int, int],
        *,
        starts: Sequence[int],
        dtype: npt.DTypeLike = np.float64,
        dims: tuple[str, str] = ("sample", "component"),
        coordinates: Mapping[str, npt.NDArray[Any] | Variable] | None = None,
        name: str = "scores",
        attributes: Mapping[str, Any] | None = None,
        overwrite: bool = False,
    ) -> RowSink:
        """Begin a store with one array, invisible until `finish`.

        Parameters: `path` or URL of the store; `shape` (samples, columns); `starts`, first rows of the blocks that
        will be written; `dims`, names of the two dimensions; `coordinates`, vectors by name of dimension, and variables
        over the dimensions by other names; `attributes` of the array.
        Returns: the sink. Errors: StoreError where the path is taken.
        """
        element = np.dtype(dtype)
        row_chunk = choose_row_chunk(starts, shape[0], shape[1] * element.itemsize)
        with begun(path, kind=name, overwrite=overwrite) as store:
            root, chunks = store.root(), (row_chunk, shape[1])
            others = " ".join(each for each in coordinates or {} if each not in dims)  # as xarray and CF name them
            about = {**(attributes or {}), **ALL_WRITTEN, **({"coordinates": others} if others else {})}
            new_array(root, name, shape, element, chunks, dims=dims, attributes=about)
            if any(start % row_chunk for start in starts):
                root.create_group(_FRAGMENTS)
            for each, values in (coordinates or {}).items():
                one = values if isinstance(values, Variable) else Variable((each,), np.asarray(values))
                labels = (max(min(len(one.values), CHUNK_LABELS), 1),)
                write_array(root, each, one.values, labels, dims=one.dims, attributes=one.attrs)
        return cls(store.target, store.location, overwrite, name, shape, element.str, row_chunk)

    def write(self, start: int, values: npt.NDArray[Any]) -> int:
        """Write rows from `start` on; callable in any process, in any order, and again after a failure.

        Returns: the number of rows. Errors: DataError where the rows do not fit the array.
        """
        stop = start + len(values)
        if values.ndim != 2 or values.shape[1] != self.shape[1] or start < 0 or stop > self.shape[0]:
            raise DataError(f"rows {start}:{stop} of shape {values.shape} do not fit the array of shape {self.shape}")
        values = in_precision(values, self.dtype, start)
        first = -(-start // self.row_chunk) * self.row_chunk
        last = stop if stop == self.shape[0] else stop // self.row_chunk * self.row_chunk
        tail = max(first, last)
        with writing(self.target):
            self._set_aside(start, values[: first - start])
            if first < last:
                self._array()[first:last] = values[first - start : last - start]
            self._set_aside(tail, values[tail - start :])
        return len(values)

    def join(self) -> None:
        """Write each chunk that several blocks share from the fragments of its rows.

        Errors: StoreError where rows were never written.
        """
        if _FRAGMENTS not in (root := self.root()):
            return
        array, fragments = self._array(), checked(cast(zarr.Group, root[_FRAGMENTS]))
        spans = sorted((int(start), int(stop)) for start, _, stop in (name.partition("-") for name in fragments))
        for chunk, pieces in groupby(spans, key=lambda span: span[0] // self.row_chunk):
            low, high = chunk * self.row_chunk, min((chunk + 1) * self.row_chunk, self.shape[0])
            members = list(pieces)
            if [low, *(stop for _, stop in members)] != [*(start for start, _ in members), high]:
                raise StoreError(
                    f"{self.target}: some of the rows {low}:{high} were never written, or by two blocks that overlap; "
                    "write each block once"
                )
            parts = [cast(ZarrArray, fragments[f"{start}-{stop}"]) for start, stop in members]
            with writing(self.target):
                array[low:high] = np.concatenate([read_all(part) for part in parts])

    def finish(self) -> None:
        """Make the joined store visible under its path.

        Errors: StoreError where rows were never written.
        """
        with writing(self.target):
            root, array = self.root(), self._array()
            if array.nchunks_initialized != array.nchunks:
                raise StoreError(f"{self.target}: some rows were never written; write all blocks before finishing")
            if _FRAGMENTS in root:
                del root[_FRAGMENTS]
            super().finish()

    def _array(self) -> ZarrArray:
        return open_to_write(self.location, self.name)

    def _set_aside(self, start: int, values: npt.NDArray[Any]) -> None:
        if len(values):
            group = zarr.open_group(store_at(self.location), path=_FRAGMENTS, mode="r+", zarr_format=3)
            write_array(group, f"{start}-{start + len(values)}", values, values.shape, overwrite=True)


def choose_row_chunk(starts: Sequence[int], rows: int, row_bytes: int) -> int:
    """Rows of a chunk of `SMALLEST_CHUNK` to `CHUNK_BYTES` bytes.

    A divisor of all block starts where one has this size, so that no chunk is shared; the block itself, where all have
    one size, though it is smaller; otherwise half a typical block, so that most chunks lie inside one block; small
    blocks share chunks, which `finish` then joins.
    """
    least, most = (max(1, min(rows, size // max(row_bytes, 1))) for size in (SMALLEST_CHUNK, CHUNK_BYTES))
    common = gcd(*starts)
    divisors = (common // part for part in range(1, common // least + 1) if common % part == 0)
    fair = next((divisor for divisor in divisors if divisor <= most), None)
    if fair is not None:
        return fair
    typical = int(np.median(np.diff([*sorted(set(starts)), rows])))
    if common == typical and typical * row_bytes >= SMALLEST_BLOCK:
        return typical
    return min(most, max(least, typical // 2))


@dataclass(frozen=True)
class TileSink(Unfinished):
    """A picklable writer of the upper triangle of an (N, N) matrix whose blocks of rows begin at `bounds`; tiles that
    begin at multiples of `columns` from the edge of their panel are written without reading."""

    bounds: tuple[int, ...]
    dtype: str
    columns: int

    @classmethod
    def create(cls, path: Place, bounds: Sequence[int], *, dtype: npt.DTypeLike) -> TileSink:
        """Begin a store; `bounds` 0 … N are the first rows of the blocks, and N.

        Errors: StoreError where the path is taken.
        """
        with begun(path, kind="kernel") as store:
            root, edges, columns = store.root(), tuple(map(int, bounds)), chunk_columns(bounds)
            root.attrs["edges"] = list(edges)
            for start, stop in pairwise(edges):
                shape = (stop - start, edges[-1] - start)
                chunks = (min(shape[0], PANEL_ROWS), min(shape[1], columns))
                # Not compressed: the digits of a kernel are noise, and decoding them would cost more than reading.
                new_array(root, panel_name(start), shape, dtype, chunks, attributes=ALL_WRITTEN, compress=False)
        return cls(store.target, store.location, False, edges, np.dtype(dtype).str, columns)

    def write(self, row: int, column: int, tile: Array) -> int:
        """Write a tile that begins at (row, column), inside one panel; again after a failure, too.

        Returns: the number of values.
        """
        start = self.bounds[int(np.searchsorted(self.bounds, row, side="right")) - 1]
        panel = open_to_write(self.location, panel_name(start))
        at = (slice(row - start, row - start + tile.shape[0]), slice(column - start, column - start + tile.shape[1]))
        with writing(self.target):
            panel[at] = tile.astype(self.dtype, copy=False)
        return int(tile.size)


def chunk_columns(bounds: Sequence[int]) -> int:
    """Columns of a chunk: a divisor of the blocks' sizes where one is near, so that no tile shares a chunk with the
    next."""
    common = gcd(*bounds[:-1]) or bounds[-1]
    fitting = [n for n in range(PANEL_COLUMNS // 4, MOST_COLUMNS + 1) if common % n == 0]
    return min(fitting, key=lambda n: abs(n - PANEL_COLUMNS), default=PANEL_COLUMNS)


def panel_name(start: int) -> str:
    """The array of the rows of the block that begins at `start`."""
    return f"rows-{start}"


def open_tiles(path: Place) -> DataSource:
    """The stored triangle as blocks of rows, each from the first column of its panel on; `finish` may be to come."""
    root = cast(zarr.Group, open_node(path))
    bounds: list[int] = list(root.attrs["edges"])  # type: ignore[arg-type]
    count, blocks = bounds[-1], list[ZarrRows]()
    for first, last in pairwise(bounds):
        panel = checked(cast(ZarrArray, root[panel_name(first)]))
        row_bytes = (count - first) * panel.dtype.itemsize
        step = max(1, LOADED_BYTES // row_bytes)
        step = step // PANEL_ROWS * PANEL_ROWS or step
        for start in range(first, last, step):
            stop = min(start + step, last)
            blocks.append(ZarrRows(start, stop, (stop - start) * row_bytes, panel, first))
    shape, dtype = (count, count), blocks[0].array.dtype
    return DataSource(shape, dtype, tuple(blocks), uuid4().hex, description=f"kernel {place_of(root)}")
