"""Dask arrays as data sources, by duck typing: their chunks are handed on, and no cluster is started."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast
from uuid import uuid4

import numpy as np
import scipy.sparse as sp

from dlatent.arrays import AxisLabels, DataSource, Features
from dlatent.containers import plain_numbers
from dlatent.errors import DataError
from dlatent.stores.partition import loaded_dtype
from dlatent.stores.rows import Rows, canonical, check_matrix, csr_bytes

GUESSED_DENSITY = 0.01
"""Share of stored entries that is assumed of sparse chunks, whose size nobody knows before they are computed."""
MOVES = re.compile(r"(original-)?(from-zarr|array|rechunk|getitem|concatenate|stack|transpose|reshape|astype)-")
"""Names of the layers of a graph of Dask in which numbers change their place and nothing else."""


@dataclass(eq=False)
class ChunkRow(Rows):
    """One row of chunks of a Dask array; `widths` are their columns.  They are cut out of the graph of the `array` only
    when they are needed or sent away, as the Delayed `parts`."""

    widths: tuple[int, ...]
    sparse: bool
    parts: tuple[Any, ...] = ()
    array: Any = None
    index: int = 0

    @property
    def collection(self) -> tuple[Any, ...]:
        """The Delayed chunks, left to right, for an engine that computes them itself."""
        return self.parts if self.array is None else tuple(self.array.blocks[self.index].to_delayed().ravel())

    def load(self) -> Features:
        """Compute the chunks in this thread, or on their cluster where the array was persisted, and join them.

        Errors: DataError where that cluster is not there any more.
        """
        parts = self.collection
        try:
            chunks = [part.compute(scheduler="synchronous") for part in parts]
        except ValueError:  # chunks that are not there are no tasks of the graph, but results of the array's cluster
            graph = {} if self.array is None else self.array.__dask_graph__()
            future = next((value for value in graph.values() if hasattr(value, "client")), None)
            if future is None:
                raise
            if future.status == "cancelled" or future.client.status != "running":
                raise DataError(
                    f"rows {self.start}:{self.stop} of the Dask array lie on a cluster to which there is no connection "
                    "any more; persist the array again, or pass it as it was before"
                ) from None
            chunks = [part.compute(scheduler=future.client) for part in parts]
        return self.assemble(chunks)

    def assemble(self, parts: Iterable[Any]) -> Features:
        """The first of these computed chunks as one block: dense, or canonical CSR.

        Errors: DataError where a chunk has another shape or kind than the Dask array promised.
        """
        chunks = [self._plain(part, *each) for each, part in zip(enumerate(self.widths), parts, strict=False)]
        if self.sparse:
            rows: Any = canonical(sp.hstack([sp.csr_array(chunk) for chunk in chunks], format="csr"))
        else:
            rows = np.asarray(chunks[0] if len(chunks) == 1 else np.concatenate(chunks, axis=1))
        return cast(Features, rows.astype(loaded_dtype(rows.dtype), copy=False))

    def without_collection(self) -> ChunkRow:
        """Return the rows without their graph, which can still `assemble` what an engine has computed."""
        return ChunkRow(self.start, self.stop, self.nbytes, self.widths, self.sparse)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Only this row of chunks travels, not the graph of the whole array."""
        # Dask keeps tasks that are not needed where many arrays were joined.
        parts = tuple(
            type(part)(part.key, dict(part.__dask_optimize__(part.__dask_graph__(), part.__dask_keys__())))
            for part in self.collection
        )
        return ChunkRow, (self.start, self.stop, self.nbytes, self.widths, self.sparse, parts)

    def _plain(self, part: Any, column: int, width: int) -> Any:
        place = f"chunk {column} of rows {self.start}:{self.stop} of the Dask array"
        if np.shape(part) != (self.stop - self.start, width):
            raise DataError(
                f"{place} has shape {np.shape(part)}, but the array promised {(self.stop - self.start, width)}; "
                "correct the chunks of the array"
            )
        if sp.issparse(part) and not self.sparse:
            raise DataError(
                f"{place} is a scipy.sparse matrix, but the array says that its chunks are numpy arrays; build it with "
                "meta=scipy.sparse.csr_array((0, 0))"
            )
        return plain_numbers(part, place)


def is_dask_array(data: Any) -> bool:
    """Whether the value behaves as a Dask array."""
    return all(hasattr(data, name) for name in ("__dask_graph__", "chunks", "blocks", "dtype", "to_delayed"))


def is_zarr(data: Any) -> bool:
    """Whether the value behaves as an array or a group of Zarr."""
    return all(hasattr(type(data), name) for name in ("store_path", "metadata"))


def has_sparse_chunks(array: Any) -> bool:
    """Whether the chunks of a Dask array are scipy.sparse: by the empty array that Dask keeps to say so, which is not
    public, or, where it keeps none, by the first chunk, which is computed."""
    meta = getattr(array, "_meta", None)
    return sp.issparse(array.to_delayed().ravel()[0].compute() if meta is None else meta)


def read_by(array: Any) -> Iterator[tuple[str, list[Any]]]:
    """The layers of the graph of a Dask array: their names, and what the tasks of each have in common.

    What Dask reads, such as an array of Zarr, is a layer by itself, or an argument of all tasks of a layer.
    """
    for name, layer in getattr(array.__dask_graph__(), "layers", {}).items():
        single = list(layer.values()) if len(layer) == 1 else []
        arguments = [argument for argument, axes in getattr(layer, "indices", None) or () if axes is None]
        yield str(name), [*single, *arguments]


def refuse_encoded(array: Any) -> None:
    """Refuse a Dask array that has the numbers of a Zarr array as they are (`dask.array.from_zarr`), where these stand
    for others. Errors: DataError."""
    layers = list(read_by(array))
    if all(MOVES.match(name) for name, _ in layers):
        for value in (getattr(value, "value", value) for _, shared in layers for value in shared):
            if is_zarr(value):
                from dlatent.stores.labels import require_decoded  # Zarr, which few Dask arrays need

                require_decoded(value)


def open_dask(array: Any, labels: AxisLabels) -> DataSource:
    """One block per row of chunks of a Dask array with numpy or scipy.sparse chunks.

    Errors: DataError for unknown chunk sizes, other than two dimensions, an empty axis, other than real numbers, and
    encoded values.
    """
    if any(math.isnan(size) for axis in array.chunks for size in axis):
        raise DataError(
            "the Dask array has chunks of unknown size; call X.compute_chunk_sizes() on it, which computes them, "
            "and pass the array again"
        )
    shape = check_matrix(array.shape, np.dtype(array.dtype), "Dask array")
    refuse_encoded(array)
    dtype, sparse = loaded_dtype(array.dtype), has_sparse_chunks(array)
    bounds = np.concatenate([[0], np.cumsum(array.chunks[0])]).tolist()
    widths = tuple(int(width) for width in array.chunks[1])
    blocks = tuple(
        ChunkRow(start, stop, _nbytes(stop - start, shape[1], dtype, sparse), widths, sparse, (), array, index)
        for index, (start, stop) in enumerate(pairwise(bounds))
        if stop > start
    )
    description = f"Dask array with {'scipy.sparse' if sparse else 'numpy'} chunks"
    return DataSource(shape, dtype, blocks, uuid4().hex, sparse, None, labels, description)


def _nbytes(rows: int, columns: int, dtype: np.dtype[Any], sparse: bool) -> int:
    if sparse:
        return csr_bytes(rows, math.ceil(rows * columns * GUESSED_DENSITY), dtype)
    return rows * columns * dtype.itemsize
