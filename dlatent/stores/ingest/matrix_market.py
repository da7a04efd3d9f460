"""MatrixMarket text files (.mtx): coordinate and array, whose entries come in any order and mostly by columns."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy.io import mmread

from dlatent.errors import DataError, number_of
from dlatent.stores.files import LONGEST_LINE, ByteSource, text_chunk_bytes
from dlatent.stores.ingest.batches import Options, Reader, Values, matrix_reader
from dlatent.stores.ingest.matrices import TripleSpill
from dlatent.stores.numbers import EXACT, is_real, real, shown

FIELDS = {"real": np.float64, "double": np.float64, "integer": np.int64, "pattern": np.float64}
MIRRORED = {"general": 0, "symmetric": 1, "skew-symmetric": -1}
"""By what an entry is multiplied on the other side of the diagonal."""

Entries: TypeAlias = tuple[Values, ...]
"""Rows, columns and values."""

_PLACE = rb"[0-9]{1,18}"
_REAL = rb"-?(?:[0-9]{1,300}(?:\.[0-9]{0,300})?|\.[0-9]{1,300})(?:[eE][+-]?[0-9]{1,9})?"
_VALUE = {"real": _REAL, "double": _REAL, "pattern": _REAL, "integer": rb"-?[0-9]{1,18}"}


def open_matrix_market(locations: Sequence[str], _: Options, directory: Path) -> Reader:
    """A file, whose entries are sorted on disk in `directory`."""
    text = _Text(ByteSource(locations[0]))
    source, read = text.source, partial(text.rows, directory)
    least = 8 * text.shape[0] * (text.shape[1] if text.array else 1)
    return matrix_reader(source.name, source.size, text.shape, read, least_bytes=least)


class _Text:
    """A file: `shape` and `entries` as line number `lines` says, which is the last of its header.

    Errors: DataError for everything that cannot be ingested, naming the line.
    """

    def __init__(self, source: ByteSource) -> None:
        self.source = source
        with source.open() as stream:
            header = stream.readline(1 << 12).decode(errors="replace").lower().split()
            if len(header) != 5 or header[:2] != ["%%matrixmarket", "matrix"]:
                raise DataError(
                    f"{source.name} line 1: no MatrixMarket header '%%MatrixMarket matrix ...'; give format="
                )
            self._layout, self._field, symmetry = header[2:]
            if self._layout not in ("coordinate", "array") or not (self._field in FIELDS and symmetry in MIRRORED):
                raise DataError(f"{source.name} line 1: '{' '.join(header[2:])}' is no real matrix; convert it first")
            self.array = self._layout == "array"
            self._pattern = self._field == "pattern" and not self.array
            self._dtype, self._mirrored = np.dtype(FIELDS[self._field]), MIRRORED[symmetry]
            for self.lines, line in enumerate(iter(partial(stream.readline, LONGEST_LINE), b""), 2):
                if line.strip() and not line.startswith(b"%"):
                    break
            else:
                raise DataError(f"{source.name} ends before the size of the matrix")
        self.shape, self.entries = self._sizes(line, symmetry)
        tokens = [*([] if self.array else [_PLACE, _PLACE]), *([] if self._pattern else [_VALUE[self._field]])]
        self._tokens = len(tokens)
        # What scipy reads as `real` does; it reads 1 from 1-2, for one, and passes over a fourth number.
        self._plain = re.compile(rb"(?:[ \t]*+" + rb"[ \t]++".join(tokens) + rb"[ \t]*+\r?\n)++")

    def _sizes(self, line: bytes, symmetry: str) -> tuple[tuple[int, int], int]:
        tokens, place = line.split(), f"{self.source.name} line {self.lines}"
        if len(tokens) != (2 if self.array else 3) or not all(token.isdigit() for token in tokens):
            raise DataError(f"{place}: {line.decode(errors='replace').strip()!r} is no matrix size")
        if max(map(len, tokens)) > 18:
            raise DataError(f"{place}: the size does not fit 64 bits; the file is damaged")
        rows, columns = int(tokens[0]), int(tokens[1])
        if self._mirrored and rows != columns:
            raise DataError(f"{place}: a {symmetry} matrix must be square, not {rows} x {columns}")
        listed = rows * (rows + self._mirrored) // 2 if self._mirrored else rows * columns
        return (rows, columns), listed if self.array else int(tokens[2])

    def rows(self, directory: Path, batch_bytes: int) -> Iterator[tuple[int, Any]]:
        """The first row and the matrix of each batch; of an array, a dense one."""
        spill = TripleSpill(directory, *self.shape, self._dtype)
        for rows, columns, values in self._pieces(batch_bytes):
            spill.add(rows, columns, values)
            if self._mirrored:
                mirrored = rows != columns
                spill.add(columns[mirrored], rows[mirrored], self._mirrored * values[mirrored])
        for start, batch in spill.batches(batch_bytes):
            yield start, batch.toarray() if self.array else batch

    def _pieces(self, batch_bytes: int) -> Iterator[Entries]:
        """The entries of the body, piece by piece."""
        seen = 0
        for line, text in self.source.line_chunks(text_chunk_bytes(batch_bytes)):
            skipped = max(min(self.lines - line + 1, text.count(b"\n")), 0)
            *places, values = self._parse(text.split(b"\n", skipped)[-1], line + skipped)
            # What is too much is found out when the next piece is asked for.
            entries = (*(places or self._places(seen, len(values))), values)
            yield tuple(column[: self.entries - seen] for column in entries)
            seen += len(values)
            if seen > self.entries:
                break
        if seen != self.entries:
            raise DataError(
                f"{self.source.name} announces {number_of(self.entries, 'entry', 'entries')} in line {self.lines} "
                f"but has {'more' if seen > self.entries else seen}; the file is cut short or damaged"
            )

    def _places(self, seen: int, count: int) -> Entries:
        """Rows and columns of an array's values, which come by columns; of a symmetric one, of its lower triangle."""
        skip, all_columns = int(self._mirrored < 0), np.arange(self.shape[1])
        first = skip + all_columns if self._mirrored else np.zeros_like(all_columns)
        ends = np.cumsum(self.shape[0] - first)
        position = seen + np.arange(count)
        columns = np.minimum(np.searchsorted(ends, position, side="right"), self.shape[1] - 1)
        return position - ends[columns] + self.shape[0], columns

    def _parse(self, text: bytes, first_line: int) -> Entries:
        """The entries of whole lines, of an array their values alone: by scipy where they are plain, else line by line
        to name what is wrong."""
        if self._plain.fullmatch(text):
            lines = text.count(b"\n")
            size = f"{lines} 1" if self.array else f"{self.shape[0]} {self.shape[1]} {lines}"
            first = f"%%MatrixMarket matrix {self._layout} {'pattern' if self._pattern else 'real'} general"
            with contextlib.suppress(ValueError):  # a place outside the matrix
                read: Any = mmread(io.BytesIO(f"{first}\n{size}\n".encode() + text))
                entries = (read[:, 0],) if self.array else (read.row, read.col, read.data)
                if np.all(np.abs(entries[-1]) < EXACT):
                    return entries
        listed = []
        for offset, line in enumerate(text.split(b"\n")):
            try:
                if tokens := line.decode("ascii", "replace").split():
                    listed.append(self._entry(tokens))
            except ValueError as error:
                raise DataError(f"{self.source.name} line {first_line + offset}: {error}") from None
        table = np.array(listed, dtype=np.float64).reshape(-1, 1 if self.array else 3)
        return (*(table[:, :-1].astype(np.int64).T - 1), table[:, -1])

    def _entry(self, tokens: list[str]) -> list[float]:
        """Row, column and value of a line, or the value. Errors: ValueError that says what is wrong with it."""
        if len(tokens) != self._tokens or not all(map(is_real, tokens)):
            raise ValueError(f"{shown(' '.join(tokens))} is not {self._tokens} number(s)")
        numbers = [*map(real, tokens), *([1.0] if self._pattern else [])]
        for what, number, limit in zip(("row", "column"), numbers[:-1], self.shape, strict=False):
            if not (1 <= number <= limit and number.is_integer()):
                raise ValueError(f"{what} {number:g} is not in 1 to {limit}")
        value = numbers[-1]
        if self._field == "integer" and not value.is_integer():
            raise ValueError(f"{value:g} is no integer, as line 1 promises; write 'real' there")
        if self._field == "integer" and not -(2**63) <= value < 2**63:
            raise ValueError(f"{shown(tokens[-1])} does not fit 64 bits; write 'real' for 'integer' in line 1")
        return numbers
