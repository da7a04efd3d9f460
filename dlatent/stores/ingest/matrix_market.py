"""MatrixMarket text files (.mtx): coordinate and array, whose entries come in any order and mostly by columns."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlatent.errors import DataError
from dlatent.stores.byte_source import ByteSource, text_chunk_bytes
from dlatent.stores.ingest.batches import Batch, Reader, Values, numbered
from dlatent.stores.ingest.spill import ColumnMajor, TripleSpill, dense_cuts
from dlatent.stores.limits import DEFAULT, Limits
from dlatent.stores.numbers import EXACT, LONGEST, is_real, real, shown

FIELDS = {"real": np.float64, "double": np.float64, "integer": np.int64, "pattern": np.float64}
SYMMETRIES = ("general", "symmetric", "skew-symmetric")


@dataclass(frozen=True)
class Header:
    """The first line and the size line of a file, and the number of lines up to it."""

    layout: str
    field: str
    symmetry: str
    rows: int
    columns: int
    entries: int
    lines: int

    @property
    def numbers_per_line(self) -> int:
        """Numbers in each line of the body."""
        return 1 if self.layout == "array" else 2 if self.field == "pattern" else 3


class MatrixMarketReader(Reader):
    """Reads the text once, sorts it on disk in `directory`, and gives its rows in order as often as asked."""

    def __init__(self, location: str, directory: Path, *, limits: Limits = DEFAULT) -> None:
        self._source = ByteSource(location, limits)
        super().__init__(self._source.name, self._source.size)
        self._directory = directory
        self.header = read_header(self._source)
        self.columns = self.header.columns
        self.least_bytes = 8 * self.header.rows * (self.header.columns if self.header.layout == "array" else 1)
        self._sorted: TripleSpill | ColumnMajor | None = None

    def batches(self, batch_bytes: int) -> Iterator[Batch]:
        """The rows in order."""
        if self._sorted is None:
            sort = self._sort_array if self.header.layout == "array" else self._sort_coordinates
            self._sorted = sort(batch_bytes)
            self.bytes_done = self._source.size
        if isinstance(self._sorted, TripleSpill):
            for start, matrix in self._sorted.batches(batch_bytes):
                yield Batch(matrix, numbered(self.description, start))
            return
        for start, stop in dense_cuts(self._sorted.shape, self._sorted.dtype.itemsize, batch_bytes):
            yield Batch(self._sorted.rows(start, stop), numbered(self.description, start))

    def _numbers(self, batch_bytes: int) -> Iterator[tuple[Values, int]]:
        """The numbers of the body, one row per line, with the number of the first line."""
        line, seen, width = 1, 0, self.header.numbers_per_line
        for text in self._source.line_chunks(text_chunk_bytes(batch_bytes)):
            self.bytes_done = self._source.position
            body = text
            skipped = max(min(self.header.lines - line + 1, text.count(b"\n")), 0)
            for _ in range(skipped):
                body = body[body.index(b"\n") + 1 :]
            numbers = parse_lines(body, width, self.description, line + skipped, whole=self.header.field == "integer")
            # What is too much is found out when the next piece is asked for.
            yield numbers[: self.header.entries - seen], line + skipped
            line += text.count(b"\n")
            seen += len(numbers)
            if seen > self.header.entries:
                break
        if seen != self.header.entries:
            raise DataError(
                f"{self.description} announces {self.header.entries} entries in line {self.header.lines} but has "
                f"{'more' if seen > self.header.entries else seen}; the file is cut short or damaged"
            )

    def _sort_coordinates(self, batch_bytes: int) -> TripleSpill:
        header = self.header
        spill = TripleSpill(self._directory, header.rows, header.columns, FIELDS[header.field])
        for numbers, line in self._numbers(batch_bytes):
            rows, columns = self._positions(numbers, 0, line), self._positions(numbers, 1, line)
            pattern = header.field == "pattern"
            values: Values = np.ones(len(rows)) if pattern else self._values(numbers[:, 2], line)
            spill.add(rows, columns, values)
            mirrored = rows != columns
            if header.symmetry != "general":
                sign = -1 if header.symmetry == "skew-symmetric" else 1
                spill.add(columns[mirrored], rows[mirrored], sign * values[mirrored])
        return spill

    def _positions(self, numbers: Values, axis: int, line: int) -> Values:
        limit = (self.header.rows, self.header.columns)[axis]
        numbers = numbers[:, axis]
        wrong = np.flatnonzero(~((numbers >= 1) & (numbers <= limit) & (numbers == np.floor(numbers))))
        if len(wrong):
            what = ("row", "column")[axis]
            raise DataError(
                f"{self.description} line {line + int(wrong[0])}: {what} {numbers[wrong[0]]:g} is not in 1 to {limit}"
            )
        return numbers.astype(np.int64) - 1

    def _values(self, numbers: npt.NDArray[np.float64], line: int) -> npt.NDArray[np.float64]:
        wrong = np.flatnonzero(numbers != np.floor(numbers))
        if self.header.field == "integer" and len(wrong):
            place = f"{self.description} line {line + int(wrong[0])}"
            raise DataError(f"{place}: {numbers[wrong[0]]:g} is no integer, as line 1 promises; write 'real' there")
        return numbers

    def _sort_array(self, batch_bytes: int) -> ColumnMajor:
        header = self.header
        shape, dtype = (header.rows, header.columns), np.dtype(FIELDS[header.field])
        path = self._directory / "columns"
        if header.symmetry == "general":
            with path.open("wb") as stream:
                for numbers, line in self._numbers(batch_bytes):
                    stream.write(self._values(numbers[:, 0], line).astype(dtype).tobytes())
            return ColumnMajor(path, 0, shape, dtype)
        full = np.memmap(path, dtype=dtype, mode="w+", shape=shape, order="F")
        seen = 0
        for numbers, line in self._numbers(batch_bytes):
            values = self._values(numbers[:, 0], line)
            rows, columns = packed_positions(seen, len(numbers), header)
            full[rows, columns] = values
            full[columns, rows] = values * (-1 if header.symmetry == "skew-symmetric" else 1)
            seen += len(numbers)
        full.flush()
        del full
        return ColumnMajor(path, 0, shape, dtype)


def packed_positions(start: int, count: int, header: Header) -> tuple[Values, Values]:
    """Rows and columns of the stored values `[start, start + count)` of a symmetric array: its lower triangle."""
    skip = int(header.symmetry == "skew-symmetric")
    lengths = header.rows - skip - np.arange(header.columns)
    ends = np.cumsum(lengths)
    position = np.arange(start, start + count)
    columns = np.searchsorted(ends, position, side="right")
    return position - (ends - lengths)[columns] + columns + skip, columns


def parse_lines(text: bytes, width: int, name: str, first_line: int, *, whole: bool = False) -> npt.NDArray[np.float64]:
    """The numbers of whole lines with `width` numbers each, the last of them `whole`; blank lines are skipped."""
    tokens = text[-(1 << 12) :].split()[-1:]
    # NumPy reads 1-2 as two numbers, and older ones end without a word at what is no number.
    plain = max(map(len, text.split(b"\n"))) < LONGEST and not text.translate(None, _PLAIN)
    if plain and all(is_real(token.decode("ascii")) for token in tokens):
        with contextlib.suppress(ValueError, DeprecationWarning), warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)
            numbers = np.fromstring(text, sep=" ") if tokens else np.empty(0)
            fine = len(numbers) == width * text.count(b"\n") and not _ragged(text, width)
            if fine and np.all(np.abs(numbers) < EXACT):
                return numbers.reshape(-1, width)
    return _parse_strict(text, width, name, first_line, whole=whole)


_PLAIN = b"0123456789+-.eE \t\r\n"
"""The characters of decimal numbers and between them."""


def _ragged(text: bytes, width: int) -> bool:
    """Whether some line has another number of tokens, which a count over all lines does not show."""
    characters = np.frombuffer(text, dtype=np.uint8)
    blank = characters <= 32
    starts = np.flatnonzero(~blank & np.concatenate([[True], blank[:-1]]))
    ends = np.flatnonzero(characters == 10)
    return bool(np.any(np.diff(np.searchsorted(starts, ends), prepend=0) != width))


def _parse_strict(text: bytes, width: int, name: str, first_line: int, *, whole: bool) -> npt.NDArray[np.float64]:
    rows: list[list[float]] = []
    for offset, line in enumerate(text.split(b"\n")):
        tokens = line.decode("ascii", "replace").split()
        if not tokens:
            continue
        place = f"{name} line {first_line + offset}"
        if len(tokens) != width or not all(map(is_real, tokens)):
            raise DataError(f"{place}: {shown(' '.join(tokens))} is not {width} number(s)")
        try:
            numbers = [real(token) for token in tokens]
        except ValueError as error:
            raise DataError(f"{place}: {error}") from None
        if whole and abs(numbers[-1]) >= EXACT and not -(2**63) <= numbers[-1] < 2**63:
            raise DataError(f"{place}: {shown(tokens[-1])} does not fit 64 bits; write 'real' for 'integer' in line 1")
        rows.append(numbers)
    return np.array(rows, dtype=np.float64).reshape(-1, width)


def read_header(source: ByteSource) -> Header:
    """The header of a file; everything that cannot be ingested is refused here."""
    with source.open() as stream:
        words = stream.readline(1 << 12).decode(errors="replace").lower().split()
        if len(words) != 5 or words[0] != "%%matrixmarket" or words[1] != "matrix":
            raise DataError(f"{source.name} line 1: no MatrixMarket header '%%MatrixMarket matrix ...'; give format=")
        layout, field, symmetry = words[2:]
        if layout not in ("coordinate", "array") or field not in FIELDS or symmetry not in SYMMETRIES:
            raise DataError(f"{source.name} line 1: '{layout} {field} {symmetry}' is no real matrix; convert it first")
        lines = 1
        for line in stream:
            lines += 1
            if line.strip() and not line.startswith(b"%"):
                return _sizes(line, lines, (layout, field, symmetry), source.name)
    raise DataError(f"{source.name} ends after line {lines}, before the size of the matrix")


def _sizes(line: bytes, lines: int, kind: tuple[str, str, str], name: str) -> Header:
    layout, field, symmetry = kind
    tokens = line.split()
    if len(tokens) != (2 if layout == "array" else 3) or not all(token.isdigit() for token in tokens):
        raise DataError(f"{name} line {lines}: {line.decode(errors='replace').strip()!r} is no matrix size")
    if max(map(len, tokens)) > 18:
        raise DataError(f"{name} line {lines}: the size does not fit 64 bits; the file is damaged")
    rows, columns = int(tokens[0]), int(tokens[1])
    if symmetry != "general" and rows != columns:
        raise DataError(f"{name} line {lines}: a {symmetry} matrix must be square, not {rows} x {columns}")
    if layout == "coordinate":
        entries = int(tokens[2])
    elif symmetry == "general":
        entries = rows * columns
    else:
        entries = rows * (rows + (1 if symmetry == "symmetric" else -1)) // 2
    return Header(layout, field, symmetry, rows, columns, entries, lines)
