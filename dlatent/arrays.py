"""Named array types, and the values that travel between packages.

A fit sees its data as a list of *block sources*: small, picklable descriptions of a contiguous range of rows that can
be loaded anywhere.  The stores make them, the engine loads them, and the mathematics receives the loaded `Block`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast, runtime_checkable
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Array: TypeAlias = npt.NDArray[np.float64]
"""A float64 array."""
Dense: TypeAlias = npt.NDArray[np.floating[Any]]
"""A float32 or float64 array."""
Features: TypeAlias = "Dense | sp.csr_array"
"""Rows of a data matrix: dense (float32/float64) or canonical CSR (sorted indices, no duplicates)."""
Form: TypeAlias = Callable[[Features], Features]
"""Another form of the same rows, which takes about as much memory; a function that other processes can import."""
Integers: TypeAlias = npt.NDArray[np.integer[Any]]
Rows: TypeAlias = "Array | sp.csr_array"
"""Rows that samples exchange, (n, b) dense or CSR."""

Statistic = TypeVar("Statistic")


class Exchanged(NamedTuple):
    """Rows that a block sent to their neighbours, `sent` (n, b), and what came of it in the end, `met` (n, b)."""

    sent: Rows
    met: Rows


@dataclass(frozen=True)
class Block:
    """Loaded rows `[start, start + n)` of the data, the unit that a block function receives.

    `weights` (n,) say how often each row counts, None for once.
    `exchanged` is None except in the last stage of a pass over edges (see `engine.edges`).
    """

    index: int
    start: int
    features: Features
    targets: Array | None = None
    exchanged: Exchanged | None = None
    weights: Array | None = None

    @property
    def rows(self) -> int:
        """Number of samples in the block."""
        return int(self.features.shape[0])


@runtime_checkable
class BlockSource(Protocol):
    """A picklable description of rows `[start, stop)`; `load` may run in any process.

    `nbytes` is the size of the loaded block in bytes as far as it is known beforehand (exact for dense data), the
    number that the planner and the caches count with.  `collection` is None, or the Dask collections (one per chunk
    of the feature axis, left to right) that an engine may compute itself instead of calling `load`; `assemble` turns
    their computed values into the block.
    """

    start: int
    stop: int
    nbytes: int

    @property
    def collection(self) -> tuple[Any, ...] | None:
        """The Dask collections that hold the block's values, or None."""
        ...

    def load(self) -> Features:
        """Read the block."""
        ...

    def assemble(self, parts: Iterable[Any]) -> Features:
        """Make the block from its computed collections, the first of these parts."""
        ...


@dataclass(frozen=True)
class Origin:
    """Where the samples of a store lay before: `ingest` left rows out on the way, or `reorder` moved them.

    `rows`, how many there were; `load` reads the position before (N,) of each sample.
    """

    rows: int
    load: Callable[[], npt.NDArray[np.int64]]


class Coordinate(NamedTuple):
    """Values along some of the dimensions of a grid, and what is known of them."""

    dims: tuple[str, ...]
    values: npt.NDArray[Any]
    attrs: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Grid:
    """The dimensions over which the features of an xarray input lie, in the order in which they become one axis.

    `coords` are its coordinates by name, and `levels` the names of those that are levels of a multi-index, by its
    dimension; `name` and `attrs` are those of the input.  `kept` (D,) are the positions of the features among all cells
    of the grid, None where every cell is a feature; `scale` (D,) is what the features were multiplied by.
    """

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    coords: Mapping[str, Coordinate] = field(default_factory=dict)
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    name: str | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    kept: npt.NDArray[np.int64] | None = None
    scale: Array | None = None

    @property
    def plain(self) -> bool:
        """Whether the features are the one dimension of the input as it came."""
        return len(self.dims) == 1 and self.kept is None and self.scale is None


@dataclass(frozen=True)
class AxisLabels:
    """Dimension names and coordinates of the two axes, as the input carried them (None where it had none).

    `origin` is None where the samples lie as they came; `grid` is None where the input is not of xarray; `index` are
    the names of the rows of a data frame, which nothing but what comes beside the data is checked by; `stacked` are the
    labels along each of several dimensions of samples, which have become one; `layer` is that of an AnnData which the
    matrix is, None for its X; `covariates` are the names of these, where they have any.
    """

    dims: tuple[str, str] = ("sample", "feature")
    samples: npt.NDArray[Any] | None = None
    features: npt.NDArray[Any] | None = None
    origin: Origin | None = None
    grid: Grid | None = None
    index: npt.NDArray[Any] | None = None
    stacked: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    layer: str | None = None
    covariates: npt.NDArray[Any] | None = None


@dataclass(frozen=True)
class DataSource:
    """A matrix of samples × features: its shape, and the row blocks that any process can load.

    Parameters
    ----------
    shape : tuple of int
        Samples and features.
    dtype : numpy.dtype
        Of the values.
    blocks : tuple
        Descriptions of consecutive rows, which load themselves.
    key : hashable
        Identifies this opening of the data to the caches.
    sparse : bool
        Whether blocks are sparse.
    nnz : int or None
        Stored entries of sparse data, None for dense.
    labels : AxisLabels
        Names and coordinates of samples and features.
    description : str
        The input in messages, such as "Zarr array /data/x.zarr".
    in_memory : bool
        Whether the data lie in the memory of this process.
    decoding : int
        Bytes that are decoded at a time to load a block that is a part of larger chunks, 0 where none is.
    check : callable or None
        Refuses data that are not those which were opened any more; None where nothing can tell.
    weights : ndarray of shape (n_samples,) or None
        How often each sample counts in a fit; None for once.
    places : tuple of str
        Paths and URLs that the data are read from, as far as they are known.
    graphs : mapping or None
        Matrices between the samples that came along, by name: `obsp` of an AnnData; None of other data.
    beside : tuple of (str, int)
        What stands beside the features in a block, such as their error bars: names and numbers of columns.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    blocks: tuple[BlockSource, ...] = field(repr=False)
    key: Hashable
    sparse: bool = False
    nnz: int | None = None
    labels: AxisLabels = field(default_factory=AxisLabels)
    description: str = "array"
    in_memory: bool = False
    decoding: int = 0
    check: Callable[[], None] | None = field(default=None, repr=False, compare=False)
    weights: Array | None = field(default=None, repr=False, compare=False)
    places: tuple[str, ...] = field(default=(), repr=False, compare=False)
    graphs: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    beside: tuple[tuple[str, int], ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        """What it is, and how large; labels may be many."""
        size = " × ".join(f"{length:,} {dim}" for dim, length in zip(self.labels.dims, self.shape, strict=True))
        stored = "" if self.nnz is None else f", {self.nnz:,} stored entries"
        return f"<DataSource: {self.description}, {size}, {self.dtype}{stored}>"

    @property
    def nbytes(self) -> int:
        """Bytes of all loaded blocks together."""
        return sum(block.nbytes for block in self.blocks)


class GraphRows(Protocol):
    """A picklable adjacency matrix, any range of whose rows can be loaded in any process."""

    def load(self, start: int, stop: int) -> sp.csr_array:
        """Rows `[start, stop)` of the adjacency matrix (stop − start, N), canonical CSR in float64."""
        ...

    def window(self, start: int, stop: int) -> GraphRows:
        """These rows under their numbers, holding no others where the matrix lies in memory."""
        ...

    def among(self, chosen: Integers) -> GraphRows:
        """The rows and columns of some samples, in this order, in memory."""
        ...


@dataclass(frozen=True)
class Graph:
    """An undirected graph of N samples: A (N, N), symmetric, weights not negative, diagonal zero.

    `graph[rows]` is the graph of some of the samples and of the edges between them, A[rows][:, rows], so that what cuts
    samples along their first axis, as the searches of scikit-learn do, cuts the graph as a whole.  Of a precision it is
    that of these samples given the others.

    Parameters
    ----------
    samples : int
        N.
    entries : int
        Stored entries of A, two for each edge.
    rows : GraphRows
        Loads any range of the rows of A.
    key : hashable
        Identifies this opening of the graph to the caches.
    description : str
        The input in messages.
    in_memory : bool
        Whether A lies in the memory of this process.
    notes : tuple of str
        What opening it did, one sentence each ("3 self-loops were dropped").
    check : callable or None
        As that of DataSource.
    precision : bool
        Whether a precision Δ takes the place of A: positive semi-definite, with a diagonal, entries of either sign.
    places : tuple of str
        As those of DataSource.

    Attributes
    ----------
    shape : tuple of int
        (N, N), that of A.
    """

    samples: int
    entries: int
    rows: GraphRows = field(repr=False)
    key: Hashable = field(repr=False)
    description: str = "graph"
    in_memory: bool = False
    notes: tuple[str, ...] = ()
    check: Callable[[], None] | None = field(default=None, repr=False, compare=False)
    precision: bool = False
    places: tuple[str, ...] = field(default=(), repr=False, compare=False)

    __iter__ = None  # not one sample after the other, as Python would take `graph[0]`, `graph[1]`, …

    @property
    def shape(self) -> tuple[int, int]:
        """(N, N), that of A."""
        return self.samples, self.samples

    def __getitem__(self, rows: Any) -> Graph:
        """The graph of the samples with these numbers, in this order; `rows` is what indexes an array (N,), alone or
        before an ellipsis."""
        chosen = np.atleast_1d(np.arange(self.samples)[rows[0] if isinstance(rows, tuple) else rows])
        inside = self.rows.among(chosen)
        return Graph(
            samples=len(chosen),
            entries=int(inside.load(0, len(chosen)).nnz),
            rows=inside,
            key=uuid4().hex,
            description=f"{len(chosen):,} samples of {self.description}",
            in_memory=True,
            precision=self.precision,
            places=self.places,
        )


def add(left: Statistic, right: Statistic) -> Statistic:
    """Add two statistics: numbers and arrays by `+`, (named) tuples field by field; None is nothing and adds nothing.

    Law: `add` is the only way in which statistics of different rows meet, so a statistic is additive over samples.
    Arrays on the left are updated in place where they own their memory: the caller gives `left` up.  What takes the
    place of None must therefore be an array of the block function's own.
    """
    if left is None or right is None:
        return right if left is None else left
    if isinstance(left, tuple):
        parts = [add(a, b) for a, b in zip(left, cast(tuple[Any, ...], right), strict=True)]
        return cast(Statistic, type(left)(*parts) if hasattr(left, "_fields") else tuple(parts))
    if isinstance(left, np.ndarray) and left.flags.writeable and left.ndim:
        left += right
        return left
    return cast(Statistic, left + right)  # type: ignore[operator]
