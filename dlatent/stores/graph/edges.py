"""Lists of edges, piece by piece: arrays, tables, networkx graphs, npz archives, CSV and Parquet files."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlatent.containers import refuse_mask
from dlatent.errors import DataError
from dlatent.stores.files import LONGEST_LINE, Archive, ByteSource, file_name, plain_suffix
from dlatent.stores.graph.adjacency import Counts, check_weights
from dlatent.stores.graph.lookup import Lookup
from dlatent.stores.numbers import as_float64, is_real
from dlatent.stores.table_files import ROW_NAMES, ParquetFile, csv_frames, csv_names, separator

ROWS = 1 << 18
"""Edges that are read at once."""

MOST_SAMPLES = 10_000_000
"""Each sample costs about 50 bytes of memory: more of them are not believed of a list that is all there is."""


class Placed(NamedTuple):
    """Edges between positions: float64 weights, which are 1 for unweighted edges."""

    sources: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]


NOTHING = Placed(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
"""No edges."""


class Edges(NamedTuple):
    """Edges by position as they come: `weighted` None says that the weights are none where all are 1, `one_order` that
    each edge has no direction and is there in one of its orders or in both."""

    place: str
    samples: int
    placed: Iterator[Placed]
    weighted: bool | None
    one_order: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class EdgeList:
    """A list of edges that is read piece by piece, as often as needed; a piece is two columns of names of samples (m,)
    and, where there are weights, a third one.

    `weighted` None: where all weights are 1 they are none; `undirected`: the input says that its edges have no
    direction; `samples`, the number that the input says (None: it does not), which is at least `least`;
    `by_position`: its numbers are positions even where the data have labels; `first`, the number of the first row in
    messages.
    """

    place: str
    pieces: Callable[[], Iterable[Sequence[npt.NDArray[Any]]]]
    weighted: bool | None
    undirected: bool = False
    samples: int | None = None
    least: int = 0
    by_position: bool = False
    first: int = 0

    def resolved(self, lookup: Lookup) -> Edges:
        """The edges by position, checked; the number of samples is that of the list where nothing else says it.

        Errors: DataError where the list says another number than the data, or nothing says any; while they are read,
        naming the row of the first name that is unknown, or of the first weight that is no weight.
        """
        size, notes = self.samples, tuple[str, ...]()
        if lookup.samples is not None:
            if size is not None and self.by_position and lookup.before != size:
                lookup.check_samples(size, self.place)
            size = lookup.samples
        else:
            if size is None:
                ends = (end.max(initial=-1) for placed in self._placed(lookup) for end in placed[:2])
                size = max(self.least, int(max(ends, default=-1)) + 1)
                notes = (f"the graph has {size:,} samples, one more than the largest position in the list",)
                why = f"names position {size - 1:,}, and nothing else says how many samples there are"
            else:
                why = f"announces {size:,} samples"
            if not size:
                raise DataError(f"{self.place} holds no edges; give samples=, the number of rows of the data")
            if size > MOST_SAMPLES:
                raise DataError(
                    f"{self.place} {why}; if it is no mistake, give samples={size}, the number of rows of the data"
                )
            lookup = Lookup(size)
        return Edges(self.place, size, self._placed(lookup), self.weighted, self.undirected, notes)

    def _placed(self, lookup: Lookup) -> Iterator[Placed]:
        first, lookup = self.first, lookup.by_position(self.samples) if self.by_position else lookup
        for piece in self.pieces():
            yield self._place(piece, lookup, first)
            first += len(piece[0])

    def _place(self, piece: Sequence[npt.NDArray[Any]], lookup: Lookup, first: int) -> Placed:
        def row(at: int) -> str:
            return f"{self.place} row {first + at}"

        sources, targets = (lookup.positions(names, row) for names in piece[:2])
        weights = np.ones(len(sources))
        if len(piece) == 3:
            weights = as_float64(piece[2], row, " has weight {value!r}; weights are numbers")
            check_weights(weights, self.place, lambda at: f"row {first + at} ({piece[0][at]} to {piece[1][at]})")
        return Placed(sources, targets, weights)


def kept(placed: Placed, counts: Counts, *, precision: bool = False) -> Placed:
    """The edges without those of samples to themselves and of weight zero, which are counted; of a precision, the
    entries that are not zero."""
    zeros = placed.weights == 0
    loops = np.zeros_like(zeros) if precision else (placed.sources == placed.targets) & ~zeros
    counts.zeros += int(zeros.sum())
    counts.self_loops += int(loops.sum())
    keep = ~(loops | zeros)
    return placed if keep.all() else Placed(*(column[keep] for column in placed))


def is_table(graph: Any) -> bool:
    """Whether the value is an array or a table."""
    return isinstance(graph, np.ndarray | list | tuple) or (hasattr(graph, "columns") and hasattr(graph, "iloc"))


def edges_of_array(graph: Any, weights: npt.ArrayLike | None) -> EdgeList:
    """The list that an array (m, 2), or (m, 3) with weights, or a table with such columns holds."""
    frame = hasattr(graph, "columns")
    place = "table of edges" if frame else "array of edges"
    if frame:
        columns = _columns(graph)
    else:
        values = refuse_mask(graph, place)
        if values.ndim != 2:
            raise DataError(f"{place} has shape {values.shape}; expected (m, 2), or (m, 3) with weights")
        columns = list(values.T)
    if len(columns) not in (2, 3):
        hint = "; a dense adjacency matrix is read as scipy.sparse.csr_array(A)" if not frame else ""
        raise DataError(f"{place} has {len(columns)} columns; expected two, or three with weights{hint}")
    if weights is not None:
        if len(columns) == 3:
            raise DataError(f"{place} has a third column of weights, and weights= is given too; give one of them")
        columns.append(refuse_mask(weights, "weights"))
        if columns[2].shape != columns[0].shape:
            raise DataError(f"weights have shape {columns[2].shape}, but there are {len(columns[0]):,} edges")
    return EdgeList(place, lambda: [columns], len(columns) == 3)


def is_networkx(graph: Any) -> bool:
    """Whether the value behaves as a networkx graph."""
    return all(callable(getattr(graph, name, None)) for name in ("nodes", "edges", "is_directed"))


def edges_of_networkx(graph: Any) -> EdgeList:
    """The edges of a networkx graph, with the attribute `weight` where an edge has one (1 where it has none)."""
    listed = list(graph.edges(data="weight"))
    weighted = any(weight is not None for _, _, weight in listed)
    columns = [np.fromiter((edge[end] for edge in listed), object, len(listed)) for end in (0, 1)]
    if weighted:
        columns.append(np.array([1.0 if weight is None else weight for _, _, weight in listed]))
    numbers = [node for node in graph.nodes() if isinstance(node, int | np.integer)]
    return EdgeList(
        f"networkx {type(graph).__name__}",
        lambda: [columns],
        weighted,
        undirected=not graph.is_directed(),
        least=int(max(numbers, default=-1)) + 1,
    )


def edges_of_file(location: str, lookup: Lookup) -> EdgeList:
    """The list of edges that a file holds; `lookup` tells text of edges from names of columns.

    npz: an array `edges`, (m, 2) or (m, 3) with weights, whose numbers are positions, beside it the flag `directed`.
    CSV and Parquet: the first two columns, and a third of weights where there is one.
    """
    return replace(FILES[plain_suffix(location)](location, lookup), place=file_name(location), first=1)


def _npz(location: str, _: Lookup) -> EdgeList:
    with Archive(location) as archive:
        with archive.stream("edges") as member:
            shape, by_columns, kind = tuple(member.shape), member.fortran_order, member.dtype.kind
        if len(shape) != 2 or shape[1] not in (2, 3):
            raise DataError(f"{archive.name}: edges has shape {shape}; expected (m, 2), or (m, 3) with weights")
        undirected = "directed" in archive.keys and not bool(archive.array("directed"))
        samples = _samples(archive)
    step = shape[0] if by_columns else ROWS  # a stream that is stored by columns cannot be cut into rows

    def pieces() -> Iterator[list[npt.NDArray[Any]]]:
        with Archive(location) as archive, archive.stream("edges") as member:
            for start in range(0, shape[0], max(step, 1)):
                rows = min(step, shape[0] - start)
                block = member.read(rows * shape[1]).reshape(rows, shape[1], order="F" if by_columns else "C")
                yield list(block.T)

    return EdgeList(location, pieces, shape[1] == 3, undirected, samples, by_position=kind in "iuf")


def _samples(archive: Archive) -> int | None:
    """Number of rows of the data that lie beside the edges."""
    if "X_shape" in archive.keys:
        return int(archive.array("X_shape")[0])
    key = archive.first("X", "y", "Y")
    if key is None:
        return None
    with archive.stream(key) as member:
        return int(member.shape[0])


def _csv(location: str, lookup: Lookup) -> EdgeList:
    source = ByteSource(location)
    with source.open() as stream:
        line = stream.readline(LONGEST_LINE).decode("utf-8-sig", "replace")
    fields = next(csv.reader([line.strip("\r\n")], delimiter=separator(source.name)))
    named = not all(is_real(field) or lookup.knows(field) for field in fields[:2])
    text = {"dtype": {0: str, 1: str}, "keep_default_na": False, "na_values": {2: [""]}} if lookup.textual else {}
    columns = list(range(len(fields)))

    def frames() -> Iterator[Any]:
        names = [ROW_NAMES, *columns] if named and csv_names(source)[0] == ROW_NAMES else columns
        frames = csv_frames(source, names=names, header=named, chunksize=ROWS, **text)
        return (frame[columns] for frame in frames)

    return _edges_of_frames(location, fields, frames)


def _parquet(location: str, _: Lookup) -> EdgeList:
    file = ParquetFile(location)
    columns = [name for name in file.names if name not in file.index]

    def frames() -> Iterator[Any]:
        batches = ParquetFile(location).batches(ROWS, columns)
        return (batch.to_pandas(ignore_metadata=True)[columns] for batch in batches)

    return _edges_of_frames(location, columns, frames)


def _edges_of_frames(location: str, names: list[str], frames: Callable[[], Iterable[Any]]) -> EdgeList:
    """The list in all columns of a file, of which others could be taken for samples or weights."""
    if len(names) not in (2, 3) or not names[0]:
        index = "" if names[0] else " (the first has no name, as the index that pandas writes; use index=False)"
        raise DataError(
            f"{location} has the columns {', '.join(map(repr, names))}{index}; a list of edges has two, from and "
            "to, or three with weights"
        )
    return EdgeList(location, lambda: map(_columns, frames()), len(names) == 3)


def _columns(frame: Any) -> list[npt.NDArray[Any]]:
    return [np.asarray(frame.iloc[:, at]) for at in range(frame.shape[1])]


FILES = {".npz": _npz, ".csv": _csv, ".tsv": _csv, ".parquet": _parquet, ".pq": _parquet}
"""The reader for each extension of a file of edges."""
