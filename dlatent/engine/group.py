"""Groups of consecutive blocks, the units of work: all that a process must know of one, its targets among it.

Each group carries only its own rows of the targets, and the weights and edges of its own rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, TypeAlias

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array, BlockSource, DataSource, Graph, GraphRows, Integers
from dlatent.errors import DataError
from dlatent.order import groups

RowsOf: TypeAlias = "Callable[[int, int], Array | None]"
"""`rows(start, stop)` gives the targets of those rows as float64 (n, L), or None."""


@dataclass(frozen=True)
class ArrayTargets:
    """Rows of an (N, L) array, of which this value holds those from `first` on."""

    array: Array = field(repr=False)
    first: int = 0

    def __call__(self, start: int, stop: int) -> Array | None:
        """The rows `[start, stop)`."""
        return self.array[start - self.first : stop - self.first]

    def window(self, start: int, stop: int) -> ArrayTargets:
        """The same targets, holding only the rows `[start, stop)`."""
        return ArrayTargets(self.array[start - self.first : stop - self.first], start)


@dataclass(frozen=True)
class CodedTargets:
    """Rows `table[codes]`: class labels as one integer a row, spread out to (n, L) only where a block is used.

    `codes` (N,) index the rows of `table` (classes, L); code −1 is an unlabelled row and becomes NaN.
    """

    codes: Integers = field(repr=False)
    table: Array = field(repr=False)
    first: int = 0

    def __call__(self, start: int, stop: int) -> Array | None:
        """The rows `[start, stop)` as float64 (n, L), NaN where unlabelled."""
        codes = self.codes[start - self.first : stop - self.first]
        rows = np.asarray(self.table, dtype=np.float64)[codes]
        rows[codes < 0] = np.nan
        return rows

    def window(self, start: int, stop: int) -> CodedTargets:
        """The same targets, holding only the rows `[start, stop)`."""
        return CodedTargets(self.codes[start - self.first : stop - self.first], self.table, start)


Targets: TypeAlias = "Array | RowsOf | None"
"""What an engine accepts: an (N, L) array, a picklable `rows(start, stop)`, or nothing."""


def as_rows(targets: Targets, samples: int) -> RowsOf | None:
    """Give targets the form `rows(start, stop)`, and check the length of an array."""
    if targets is None or not isinstance(targets, np.ndarray):
        return targets
    if targets.ndim != 2 or targets.shape[0] != samples:
        raise DataError(f"The targets have shape {targets.shape}; {samples} rows of data need ({samples}, outputs).")
    return ArrayTargets(np.ascontiguousarray(targets, dtype=np.float64))


def window(rows: RowsOf | None, start: int, stop: int) -> RowsOf | None:
    """Cut targets down to `[start, stop)` where they have a method `window`, to keep a group's description small."""
    cut: Any = getattr(rows, "window", None)
    return rows if cut is None else cut(start, stop)


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """The edges of one group's rows: the adjacency matrix, and at which row each group of the data begins and ends."""

    key: Hashable
    rows: GraphRows
    bounds: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Part:
    """One group of consecutive blocks: all that a process must know to work on it."""

    key: Hashable
    index: int
    first: int
    blocks: tuple[BlockSource, ...]
    targets: RowsOf | None
    in_memory: bool
    graph: Neighbourhood | None = None
    weights: Array | None = None

    @property
    def start(self) -> int:
        """Its first row."""
        return self.blocks[0].start

    @property
    def stop(self) -> int:
        """The row after its last."""
        return self.blocks[-1].stop

    @property
    def nbytes(self) -> int:
        """Bytes that the part itself holds: its blocks where they lie in memory."""
        return sum(block.nbytes for block in self.blocks) if self.in_memory else 0


@dataclass(frozen=True, eq=False)
class Bundle:
    """Some parts by the numbers of their groups, as one value on a cluster."""

    parts: dict[int, Part]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle in one piece: buffers sent apart arrive misaligned, and a misaligned sum may differ in its bits."""
        return (unsealed, (sealed(vars(self), Bundle),))


Sealed: TypeAlias = bytes | npt.NDArray[np.uint8]
"""A pickled value on its way."""
APART = 2**16
"""Bytes from which a pickled value is an array.  Messages carry arrays beside them, and bytes inside, where every
station copies them several times; for few bytes the copies are cheaper than one more piece."""


def sealed(fields: dict[str, Any], kind: type[Any]) -> Sealed:
    """Pickle a value in one piece, so that its arrays come back in memory of their own."""
    payload: bytes = cloudpickle.dumps((kind, fields), protocol=5)
    return payload if len(payload) < APART else np.frombuffer(payload, np.uint8)


def unsealed(payload: Sealed) -> Any:
    """The value of `sealed`."""
    kind, fields = pickle.loads(payload if isinstance(payload, bytes) else payload.data)
    return kind(**fields)


def parts_of(source: DataSource, rows: RowsOf | None, graph: Graph | None = None) -> list[Part]:
    """Cut a data source into its parts, each with the targets, the weights and the edges of its own rows."""
    parts, key = [], keys_of(source, graph)[-1]
    cut = groups([block.nbytes for block in source.blocks])
    bounds = tuple(accumulate((source.blocks[g.stop - 1].stop - source.blocks[g.start].start for g in cut), initial=0))
    for index, group in enumerate(cut):
        blocks = source.blocks[group.start : group.stop]
        start, stop = blocks[0].start, blocks[-1].stop
        near = None if graph is None else Neighbourhood(key, graph.rows.window(start, stop), bounds)
        own = window(rows, start, stop)
        weights = None if source.weights is None else source.weights[start:stop]
        parts.append(Part(source.key, index, group.start, blocks, own, source.in_memory, near, weights))
    return parts


def keys_of(source: DataSource, graph: Graph | None) -> tuple[Hashable, ...]:
    """What a source and its edges are called in the cache."""
    return (source.key,) if graph is None else (source.key, (source.key, graph.key))
