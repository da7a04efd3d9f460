"""Groups of consecutive blocks, the units of work: all that a process must know of one, its targets among it.

Each group carries only its own rows of the targets, and the weights and edges of its own rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array, BlockSource, DataSource, Graph, GraphRows, Integers
from dlatent.errors import DataError
from dlatent.order import groups


@dataclass(frozen=True, eq=False)
class CodedTargets:
    """The array `table[codes]`: class labels as one integer a row, spread out to (n, L) only where a block is used.

    `codes` (N,) index the rows of `table` (classes, L); code −1 is an unlabelled row and becomes NaN.
    """

    codes: Integers = field(repr=False)
    table: Array = field(repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, L)."""
        return len(self.codes), self.table.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of the codes."""
        return int(self.codes.nbytes)

    def __getitem__(self, rows: slice) -> CodedTargets:
        return CodedTargets(self.codes[rows], self.table)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        rows = np.asarray(self.table, dtype=np.float64)[self.codes]
        rows[self.codes < 0] = np.nan
        return rows


Targets: TypeAlias = "Array | CodedTargets | None"


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """The edges of one group's rows: the adjacency matrix, and at which row each group of the data begins and ends."""

    key: Hashable
    rows: GraphRows
    bounds: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Group:
    """One group of consecutive blocks, with the rows `[start, stop)`: all that a process must know to work on it.

    `index` is its number among the groups, `first` that of its first block among the blocks.
    """

    key: Hashable
    index: int
    first: int
    start: int
    stop: int
    blocks: tuple[BlockSource, ...]
    in_memory: bool
    targets: Targets = None
    weights: Array | None = None
    graph: Neighbourhood | None = None


@dataclass(frozen=True, eq=False)
class Bundle:
    """Some groups by their numbers, as one value on a cluster."""

    groups: dict[int, Group]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle in one piece: buffers sent apart arrive misaligned, and a misaligned sum may differ in its bits."""
        return (deserialised, (serialised(vars(self), Bundle),))


Serialised: TypeAlias = bytes | npt.NDArray[np.uint8]
"""A pickled value on its way."""
APART = 2**16
"""Bytes from which a pickled value is an array.  Messages carry arrays beside them, and bytes inside, where every
station copies them several times; for few bytes the copies are cheaper than one more piece."""


def serialised(fields: dict[str, Any], kind: type[Any]) -> Serialised:
    """Pickle a value in one piece, so that its arrays come back in memory of their own."""
    payload: bytes = cloudpickle.dumps((kind, fields), protocol=5)
    return payload if len(payload) < APART else np.frombuffer(payload, np.uint8)


def deserialised(payload: Serialised) -> Any:
    """The value of `serialised`."""
    kind, fields = pickle.loads(payload if isinstance(payload, bytes) else payload.data)
    return kind(**fields)


def groups_of(source: DataSource, targets: Targets = None, graph: Graph | None = None) -> list[Group]:
    """Cut a data source into its groups, each with the targets, the weights and the edges of its own rows.

    Errors: DataError where the targets have another number of rows.
    """
    samples, blocks = source.shape[0], source.blocks
    if targets is not None and (len(targets.shape) != 2 or targets.shape[0] != samples):
        raise DataError(f"The targets have shape {targets.shape}; {samples} rows of data need ({samples}, outputs).")
    if isinstance(targets, np.ndarray):
        targets = np.ascontiguousarray(targets, dtype=np.float64)
    cut = groups([block.nbytes for block in blocks])
    bounds = (0, *(blocks[at.stop - 1].stop for at in cut))
    members, key = list[Group](), None if graph is None else (source.key, graph.key)
    for index, at in enumerate(cut):
        start, stop = bounds[index], bounds[index + 1]
        rows = slice(start, stop)
        members.append(
            Group(
                key=source.key,
                index=index,
                first=at.start,
                start=start,
                stop=stop,
                blocks=blocks[at.start : at.stop],
                in_memory=source.in_memory,
                targets=None if targets is None else targets[rows],
                weights=None if source.weights is None else source.weights[rows],
                graph=None if graph is None else Neighbourhood(key, graph.rows.window(start, stop), bounds),
            )
        )
    return members
