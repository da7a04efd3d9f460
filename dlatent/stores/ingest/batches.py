"""Batches of rows, into which every format turns a file: each with its labels, and the place of each row in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.errors import DataError
from dlatent.stores.checked import MissingChunks
from dlatent.stores.files import ByteSource, Limits

Values: TypeAlias = npt.NDArray[Any]
"""A one-dimensional array: labels, identifiers or names."""

BatchFunction: TypeAlias = Callable[[int], Iterator[tuple[int, Any]]]
"""From bytes per batch to the first row and the matrix of each batch."""

IndexBase = Literal["auto", 0, 1]


Weighting = Literal["none", "tfidf"]
ZeroRows = Literal["error", "keep", "drop"]


@dataclass(frozen=True)
class Options:
    """Options of `ingest`: labels, features and ids as the caller wants them, how a file is to be read, and what is
    done to its rows."""

    labels: str | Sequence[str] | None
    features: str | Sequence[str] | int | None
    ids: str | None
    index_base: IndexBase
    missing_chunks: MissingChunks
    limits: Limits
    weighting: Weighting
    unit_norm: bool
    zero_rows: ZeroRows
    block_bytes: int
    dtype: Literal["float32", "float64"] | None
    missing: Literal["raise", "nan"]

    @property
    def weighted(self) -> bool:
        """Whether values become others."""
        return self.unit_norm or self.weighting == "tfidf"


@dataclass(frozen=True)
class LabelSets:
    """Any number of labels per row: `counts[i]` entries of `values` belong to row i."""

    values: Values
    counts: npt.NDArray[np.int64]

    def __getitem__(self, keep: npt.NDArray[np.bool_]) -> LabelSets:
        return LabelSets(self.values[np.repeat(keep, self.counts)], self.counts[keep])


class Mark(NamedTuple):
    """A place between two rows: the number of the file, the bytes of text or the rows of a table before it there, and
    the number of the line of a text."""

    file: int = 0
    position: int = 0
    line: int = 1


START = Mark()


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of a file.

    `features`, a csr_array (indices in any order, duplicates allowed) or a dense matrix; `place`, which names row i of
    the batch in messages; `labels`, one for each row (n,), a column for each output (n, b), or sets of any size; `ids`,
    the name of each row; `done`, the bytes of the input that were read for it and those before; `behind`, where the
    next one begins.
    """

    features: Any
    place: Callable[[int], str]
    labels: Any = None
    ids: Values | None = None
    done: int = 0
    behind: Mark = START

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.features.shape[0])

    def take(self, keep: npt.NDArray[np.bool_]) -> Batch:
        """The rows where `keep` holds; their places are lost."""
        labels = None if self.labels is None else self.labels[keep]
        return replace(
            self, features=self.features[keep], labels=labels, ids=None if self.ids is None else self.ids[keep]
        )


@dataclass
class Reader:
    """One input, read from its beginning to its end.

    `description` names the input in messages; `batches` gives the rows behind a mark in order, in batches of about so
    many bytes (only `files_reader` makes readers that begin anywhere); `columns` is None where only reading tells;
    `least_bytes`, what the rows take in memory or on disk at least, as far as the beginning of the file tells;
    `label_name` is the column in which single labels are stored; `categories` names the classes 0, 1, … of integer
    labels or the outputs; `numeric_text` says that labels come as text and are numbers where all of them look like
    numbers; `close` closes what is open.
    """

    description: str
    total_bytes: int | None
    batches: Callable[[int, Mark], Iterator[Batch]]
    columns: int | None = None
    least_bytes: int = 0
    column_names: Values | None = None
    label_name: str = "label"
    categories: Values | None = None
    numeric_text: bool = False
    notes: tuple[str, ...] = ()
    close: Callable[[], None] = lambda: None

    def column(self, index: int) -> str:
        """Name of a column for messages."""
        names = self.column_names
        named = f" ({str(names[index])!r})" if names is not None and index < len(names) else ""
        return f"column {index + 1}{named}"


def files_reader(
    sources: Sequence[ByteSource], batches_of: Callable[[ByteSource, int, Mark], Iterator[Batch]], **known: Any
) -> Reader:
    """A reader of files that continue one another.

    Parameters: `batches_of`, from a file, bytes per batch and a mark in it to the batches behind that; `known`, other
    fields of the reader.
    """

    def batches(batch_bytes: int, mark: Mark) -> Iterator[Batch]:
        before = sum(source.size for source in sources[: mark.file])
        for number, source in enumerate(sources[mark.file :], mark.file):
            for batch in batches_of(source, batch_bytes, mark if number == mark.file else Mark(number)):
                yield replace(batch, done=before + min(source.position, source.size))
            before += source.size

    description = ", ".join(source.name for source in sources)
    return Reader(description, sum(source.size for source in sources), batches, **known)


def matrix_reader(
    description: str,
    total_bytes: int | None,
    shape: tuple[int, int],
    read: BatchFunction,
    *,
    labels: Values | None = None,
    ids: Values | None = None,
    source: str = "",
    **known: Any,
) -> Reader:
    """A reader of one matrix, which `read` gives, whose labels and identifiers are known of all rows beforehand.

    Errors: DataError naming the `source` of labels or identifiers that are not one for each row.
    """
    rows, columns = shape
    for name, values, most in (("labels", labels, 2), ("identifiers", ids, 1)):
        if values is not None and not 1 <= values.ndim <= most:
            raise DataError(f"{source}: {name} of shape {values.shape}; expected one for each row")
        if values is not None and len(values) != rows:
            raise DataError(f"{source}: {len(values)} {name} for {rows} rows; give exactly one for each row")

    def batches(batch_bytes: int, _: Mark) -> Iterator[Batch]:
        for start, features in read(batch_bytes):
            part = slice(start, start + int(features.shape[0]))
            yield Batch(
                features,
                partial(numbered, description, start),
                labels=None if labels is None else labels[part],
                ids=None if ids is None else ids[part],
                done=int((total_bytes or 0) * part.stop / max(rows, 1)),
            )

    return Reader(description, total_bytes, batches, columns, **known)


def is_sparse(features: Any) -> TypeGuard[sp.csr_array]:
    """Whether the features of a batch are sparse; dense ones are numpy arrays."""
    return bool(sp.issparse(features))


def numbered(description: str, start: int, row: int) -> str:
    """The name of row `start + row`, counted from 1."""
    return f"{description} row {start + row + 1}"
