"""MatrixMarket text files (.mtx): coordinate and array, whose entries come in any order and mostly by columns."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy.io import mmread

from dlatent.errors import DataError, number_of
from dlatent.stores.byte_source import LONGEST_LINE, ByteSource, text_chunk_bytes
from dlatent.stores.ingest.batches import MatrixReader, RowColumns, Values
from dlatent.stores.ingest.spill import ColumnMajor, TripleSpill
from dlatent.stores.numbers import EXACT, is_real, real, shown

FIELDS = {"real": np.float64, "double": np.float64, "integer": np.int64, "pattern": np.float64}
SYMMETRIES = ("general", "symmetric", "skew-symmetric")

Entries: TypeAlias = tuple[Values, ...]
"""Rows, columns and values as they are listed; of an array, the values."""

_PLACE = rb"[0-9]{1,18}"
_REAL = rb"-?(?:[0-9]{1,300}(?:\.[0-9]{0,300})?|\.[0-9]{1,300})(?:[eE][+-]?[0-9]{1,9})?"
_VALUE = {"real": _REAL, "double": _REAL, "pattern": _REAL, "integer": rb"-?[0-9]{1,18}"}


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


class MatrixMarketReader(MatrixReader):
    """Reads the text, sorts it on disk in `directory`, and gives its rows in order."""

    def __init__(self, location: str, directory: Path) -> None:
        self._source = ByteSource(location)
        super().__init__(self._source.name, self._source.size)
        self._directory = directory
        self.header = header = read_header(self._source)
        self.columns = header.columns
        self._array = header.layout == "array"
        self._pattern = header.field == "pattern" and not self._array
        self.least_bytes = 8 * header.rows * (header.columns if self._array else 1)
        self._rows = RowColumns(header.rows)
        self._read = self._read_array if self._array else self._read_coordinates
        line = [*([] if self._array else [_PLACE, _PLACE]), *([] if self._pattern else [_VALUE[header.field]])]
        self._tokens = len(line)
        # What scipy reads as `real` does; it reads 1 from 1-2, for one, and passes over a fourth number.
        self._plain = re.compile(rb"(?:[ \t]*+" + rb"[ \t]++".join(line) + rb"[ \t]*+\r?\n)++")

    def _entries(self, batch_bytes: int) -> Iterator[Entries]:
        """The entries of the body, piece by piece."""
        header, seen = self.header, 0
        for line, text in self._source.line_chunks(text_chunk_bytes(batch_bytes)):
            self.bytes_done = self._source.position
            skipped = max(min(header.lines - line + 1, text.count(b"\n")), 0)
            entries = self._parse(text.split(b"\n", skipped)[-1], line + skipped)
            # What is too much is found out when the next piece is asked for.
            yield tuple(column[: header.entries - seen] for column in entries)
            seen += len(entries[-1])
            if seen > header.entries:
                break
        if seen != header.entries:
            raise DataError(
                f"{self.description} announces {number_of(header.entries, 'entry', 'entries')} in line {header.lines} "
                f"but has {'more' if seen > header.entries else seen}; the file is cut short or damaged"
            )

    def _parse(self, text: bytes, first_line: int) -> Entries:
        """The entries of whole lines, by scipy where they are plain, else line by line to name what is wrong."""
        header = self.header
        if self._plain.fullmatch(text):
            lines = text.count(b"\n")
            size = f"{lines} 1" if self._array else f"{header.rows} {header.columns} {lines}"
            first = f"%%MatrixMarket matrix {header.layout} {'pattern' if self._pattern else 'real'} general"
            with contextlib.suppress(ValueError):  # a place outside the matrix
                found: Any = mmread(io.BytesIO(f"{first}\n{size}\n".encode() + text))
                entries = (found[:, 0],) if self._array else (found.row, found.col, found.data)
                if np.all(np.abs(entries[-1]) < EXACT):
                    return entries
        listed = []
        for offset, line in enumerate(text.split(b"\n")):
            try:
                if tokens := line.decode("ascii", "replace").split():
                    listed.append(self._entry(tokens))
            except ValueError as error:
                raise DataError(f"{self.description} line {first_line + offset}: {error}") from None
        table = np.array(listed, dtype=np.float64).reshape(-1, 1 if self._array else 3)
        return (*(table[:, :-1].astype(np.int64).T - 1), table[:, -1])

    def _entry(self, tokens: list[str]) -> list[float]:
        """Row, column and value of a line, or the value. Errors: ValueError that says what is wrong with it."""
        header = self.header
        if len(tokens) != self._tokens or not all(map(is_real, tokens)):
            raise ValueError(f"{shown(' '.join(tokens))} is not {self._tokens} number(s)")
        numbers = [*map(real, tokens), *([1.0] if self._pattern else [])]
        for what, number, limit in zip(("row", "column"), numbers[:-1], (header.rows, header.columns), strict=False):
            if not (1 <= number <= limit and number.is_integer()):
                raise ValueError(f"{what} {number:g} is not in 1 to {limit}")
        value = numbers[-1]
        if header.field == "integer" and not value.is_integer():
            raise ValueError(f"{value:g} is no integer, as line 1 promises; write 'real' there")
        if header.field == "integer" and not -(2**63) <= value < 2**63:
            raise ValueError(f"{shown(tokens[-1])} does not fit 64 bits; write 'real' for 'integer' in line 1")
        return numbers

    def _read_coordinates(self, batch_bytes: int) -> Iterator[tuple[int, Any]]:
        header = self.header
        spill = TripleSpill(self._directory, header.rows, header.columns, FIELDS[header.field])
        for rows, columns, values in self._entries(batch_bytes):
            spill.add(rows, columns, values)
            if header.symmetry != "general":
                mirrored = rows != columns
                sign = -1 if header.symmetry == "skew-symmetric" else 1
                spill.add(columns[mirrored], rows[mirrored], sign * values[mirrored])
        return spill.batches(batch_bytes)

    def _read_array(self, batch_bytes: int) -> Iterator[tuple[int, Any]]:
        header = self.header
        shape, dtype = (header.rows, header.columns), np.dtype(FIELDS[header.field])
        path = self._directory / "columns"
        if header.symmetry == "general":
            with path.open("wb") as stream:
                for (values,) in self._entries(batch_bytes):
                    stream.write(values.astype(dtype).tobytes())
            return ColumnMajor(path, 0, shape, dtype).batches(batch_bytes)
        full = np.memmap(path, dtype=dtype, mode="w+", shape=shape, order="F")
        seen = 0
        for (values,) in self._entries(batch_bytes):
            rows, columns = packed_positions(seen, len(values), header)
            full[rows, columns] = values
            full[columns, rows] = values * (-1 if header.symmetry == "skew-symmetric" else 1)
            seen += len(values)
        full.flush()
        del full
        return ColumnMajor(path, 0, shape, dtype).batches(batch_bytes)


def packed_positions(start: int, count: int, header: Header) -> tuple[Values, Values]:
    """Rows and columns of the stored values `[start, start + count)` of a symmetric array: its lower triangle."""
    skip = int(header.symmetry == "skew-symmetric")
    lengths = header.rows - skip - np.arange(header.columns)
    ends = np.cumsum(lengths)
    position = np.arange(start, start + count)
    columns = np.searchsorted(ends, position, side="right")
    return position - (ends - lengths)[columns] + columns + skip, columns


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
        for line in iter(partial(stream.readline, LONGEST_LINE), b""):
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
