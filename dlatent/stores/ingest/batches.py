"""What every format turns a file into: batches of rows, each with its labels and the place where each row came from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.errors import DataError
from dlatent.stores.byte_source import ByteSource

Values: TypeAlias = npt.NDArray[Any]
"""A one-dimensional array: labels, identifiers or names."""

BatchFunction: TypeAlias = Callable[[int], Iterator[tuple[int, Any]]]
"""From bytes per batch to the first row and the matrix of each batch."""


@dataclass(frozen=True)
class LabelSets:
    """Any number of labels per row: `counts[i]` entries of `values` belong to row i."""

    values: Values
    counts: npt.NDArray[np.int64]

    def take(self, keep: npt.NDArray[np.bool_]) -> LabelSets:
        """The label sets of the rows where `keep` holds."""
        return LabelSets(self.values[np.repeat(keep, self.counts)], self.counts[keep])


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of a file.

    `features`, a csr_array (indices in any order, duplicates allowed) or a dense matrix; `labels`, one per row;
    `label_sets`, any number per row; `targets`, a numeric matrix with one column per output; `ids`, the name of each
    row; `place`, which names row i of the batch in messages.
    """

    features: Any
    place: Callable[[int], str]
    labels: Values | None = None
    label_sets: LabelSets | None = None
    targets: Any = None
    ids: Values | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.features.shape[0])


class Reader(ABC):
    """One input, read from its beginning to its end.

    `description` names the input in messages; `columns` is None where only reading tells; `least_bytes`, what the rows
    take in memory or on disk at least, as far as the beginning of the file tells; `label_name` is the column
    in which single labels are stored; `categories` names the classes 0, 1, … of integer labels or the columns of
    `targets`; `numeric_text` says that labels come as text and are numbers where all of them look like numbers.
    """

    numeric_text = False

    def __init__(self, description: str, total_bytes: int | None) -> None:
        self.description = description
        self.total_bytes = total_bytes
        self.bytes_done = 0
        self.columns: int | None = None
        self.least_bytes = 0
        self.column_names: Values | None = None
        self.label_name = "label"
        self.categories: Values | None = None
        self.notes: list[str] = []

    @abstractmethod
    def batches(self, batch_bytes: int) -> Iterator[Batch]:
        """The rows in order, in batches of about `batch_bytes` bytes."""

    def close(self) -> None:
        """Close what is open; readers that hold nothing open need not say so."""
        return

    def column(self, index: int) -> str:
        """Name of a column for messages."""
        names = self.column_names
        named = f" ({str(names[index])!r})" if names is not None and index < len(names) else ""
        return f"column {index + 1}{named}"


class Mark(NamedTuple):
    """A place between two rows: the number of the file, the bytes of text or the rows of a table before it there, and
    the number of the line of a text."""

    file: int = 0
    position: int = 0
    line: int = 1


class FilesReader(Reader):
    """Files that continue one another, read in their order, from any mark on."""

    def __init__(self, locations: Sequence[str]) -> None:
        self._sources = [ByteSource(location) for location in locations]
        super().__init__(", ".join(source.name for source in self._sources), sum(s.size for s in self._sources))

    @abstractmethod
    def _batches_of(self, source: ByteSource, batch_bytes: int, mark: Mark) -> Iterator[tuple[Batch, Mark]]:
        """The rows of one file behind a mark in it, in batches as those of `batches`, each with the mark behind it."""

    def batches(self, batch_bytes: int) -> Iterator[Batch]:
        """The rows of all files."""
        return (batch for batch, _ in self.batches_from(Mark(), batch_bytes))

    def batches_from(self, mark: Mark, batch_bytes: int) -> Iterator[tuple[Batch, Mark]]:
        """The rows of all files behind a mark, each batch with the mark behind it."""
        before = sum(source.size for source in self._sources[: mark.file])
        for number, source in enumerate(self._sources[mark.file :], mark.file):
            begin = mark if number == mark.file else Mark(number)
            for batch, behind in self._batches_of(source, batch_bytes, begin):
                self.bytes_done = before + min(source.position, source.size)
                yield batch, behind
            before = self.bytes_done = before + source.size


@dataclass
class RowColumns:
    """Labels, targets and identifiers that are known for all rows before the first batch is read."""

    rows: int
    labels: Values | None = None
    targets: Any = None
    ids: Values | None = None
    source: str = "labels"

    def __post_init__(self) -> None:
        for name, values, dimensions in (
            ("labels", self.labels, 1),
            ("targets", self.targets, 2),
            ("identifiers", self.ids, 1),
        ):
            if values is not None and values.ndim != dimensions:
                raise DataError(f"{self.source}: {name} of shape {values.shape}; expected {dimensions} dimension(s)")
            if values is not None and values.shape[0] != self.rows:
                raise DataError(
                    f"{self.source}: {values.shape[0]} {name} for {self.rows} rows; give exactly one for each row"
                )

    def batch(self, features: Any, start: int, place: Callable[[int], str]) -> Batch:
        """The batch of rows `[start, start + n)` with what belongs to them."""
        part = slice(start, start + int(features.shape[0]))
        return Batch(
            features,
            place,
            labels=None if self.labels is None else self.labels[part],
            targets=None if self.targets is None else self.targets[part],
            ids=None if self.ids is None else self.ids[part],
        )


class MatrixReader(Reader):
    """An input that is one matrix: `_read` reads it, and `_rows` is what is known of its rows."""

    _read: BatchFunction
    _rows: RowColumns

    def batches(self, batch_bytes: int) -> Iterator[Batch]:
        """The rows in order."""
        for start, features in self._read(batch_bytes):
            read = int((self.total_bytes or 0) * (start + features.shape[0]) / max(self._rows.rows, 1))
            self.bytes_done = max(self.bytes_done, read)
            yield self._rows.batch(features, start, partial(numbered, self.description, start))


def is_sparse(features: Any) -> TypeGuard[sp.csr_array]:
    """Whether the features of a batch are sparse; dense ones are numpy arrays."""
    return bool(sp.issparse(features))


def numbered(description: str, start: int, row: int) -> str:
    """The name of row `start + row`, counted from 1."""
    return f"{description} row {start + row + 1}"


def row_cuts(indptr: npt.NDArray[np.integer[Any]], entries: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows with at most `entries` stored values each (or one row), in order."""
    rows, start = len(indptr) - 1, 0
    while start < rows:
        stop = int(np.searchsorted(indptr, int(indptr[start]) + entries, side="right")) - 1
        stop = min(max(stop, start + 1), start + max(entries, 1), rows)
        yield start, stop
        start = stop
