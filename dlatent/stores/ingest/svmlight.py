"""The svmlight / libsvm text format, in one file or several: one label, several ("1,5,7 3:0.2") or none per row."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from dlatent.errors import DataError
from dlatent.stores.byte_source import ByteSource, text_chunk_bytes
from dlatent.stores.ingest.batches import Batch, FilesReader, LabelSets, Mark
from dlatent.stores.numbers import EXACT, is_real, real, shown
from dlatent.stores.sparse import csr

IndexBase = Literal["auto", 0, 1]

_COMMENT = re.compile(rb"#[^\n]*")
_SPACES = bytes.maketrans(b"\t\n\r\v\f", b"     ")

LARGEST_INDEX = np.iinfo(np.int32).max - 1


class SvmlightReader(FilesReader):
    """Reads svmlight files one after the other.

    `index_base` is the number of the first feature; "auto" takes 0 where index 0 occurs anywhere and 1 otherwise.
    """

    def __init__(self, locations: Sequence[str], *, index_base: IndexBase = "auto") -> None:
        super().__init__(locations)
        self._base = (0 if any(map(_has_index_zero, self._sources)) else 1) if index_base == "auto" else index_base
        if index_base == "auto":
            self.notes.append(f"feature indices start at {self._base} (found by looking for index 0)")

    def _batches_of(self, source: ByteSource, batch_bytes: int, mark: Mark) -> Iterator[tuple[Batch, Mark]]:
        position = mark.position
        for line, text in source.line_chunks(text_chunk_bytes(batch_bytes), position, mark.line):
            position += len(text)
            yield self._parse(text, source.name, line), Mark(mark.file, position, line + text.count(b"\n"))

    def _parse(self, text: bytes, name: str, first_line: int) -> Batch:
        try:
            features, sets = parse_fast(text, self._base)
            if not all(np.all(np.abs(values) < EXACT) for values in (features.data, sets.values)):
                raise ValueError("a number may have been an integer that was rounded, or no number")
        except (ValueError, OverflowError):
            features, sets = parse_strict(text, self._base, name, first_line)
        return Batch(features, _line_namer(text, name, first_line), label_sets=sets)


def parse_fast(text: bytes, base: int) -> tuple[Any, LabelSets]:
    """Whole lines by scikit-learn's compiled parser; ValueError where a line needs `parse_strict`."""
    from sklearn.datasets import load_svmlight_file  # a second of imports that opening edges, say, has no need of

    if b"_" in text or not text.isascii():
        raise ValueError("Python reads some of this as numbers that are none")
    matrix, labels = load_svmlight_file(io.BytesIO(text), multilabel=True, zero_based=True)
    if len(matrix.indices) and not base <= int(matrix.indices.min()) <= int(matrix.indices.max()) <= LARGEST_INDEX:
        raise ValueError("an index is out of range")
    counts = np.fromiter((len(row) for row in labels), dtype=np.int64, count=len(labels))
    values = np.fromiter((v for row in labels for v in row), dtype=np.float64, count=int(counts.sum()))
    return csr(matrix.data, matrix.indices - base, matrix.indptr, None), LabelSets(values, counts)


def parse_strict(text: bytes, base: int, name: str, first_line: int) -> tuple[object, LabelSets]:
    """The same line by line: accepts indices in any order and repeated ones, and names the line of what is wrong."""
    data: list[float] = []
    indices: list[int] = []
    ends: list[int] = [0]
    labels: list[float] = []
    counts: list[int] = []
    for offset, line in enumerate(text.split(b"\n")):
        tokens = line.partition(b"#")[0].split()
        if not tokens:
            continue
        try:
            own = [] if b":" in tokens[0] else _row_labels(tokens.pop(0))
            pairs = [_pair(token, base) for token in tokens if not token.startswith(b"qid:")]
        except DataError as error:
            raise DataError(f"{name} line {first_line + offset}: {error}") from None
        labels += own
        counts.append(len(own))
        indices += [index for index, _ in pairs]
        data += [value for _, value in pairs]
        ends.append(len(data))
    matrix = csr(np.array(data, dtype=np.float64), np.array(indices, dtype=np.int64), np.array(ends), None)
    return matrix, LabelSets(np.array(labels, dtype=np.float64), np.array(counts, dtype=np.int64))


def _row_labels(token: bytes) -> list[float]:
    parts = token.decode(errors="replace").split(",")
    if not all(map(is_real, parts)):
        raise DataError(
            f"the label {shown(','.join(parts))} is no number or comma-separated numbers; replace class names by "
            "numbers"
        )
    try:
        return sorted(map(real, parts))
    except ValueError as error:
        raise DataError(f"the label {error}") from None


def _pair(token: bytes, base: int) -> tuple[int, float]:
    index, colon, value = token.partition(b":")
    pair, text = shown(token.decode(errors="replace")), value.decode(errors="replace")
    if not colon or not index.isdigit():
        raise DataError(f"{pair} is not of the form index:value")
    if not is_real(text):
        raise DataError(f"the value of {pair} is no number")
    try:
        number = real(text)
    except ValueError as error:
        raise DataError(f"the value {error}") from None
    if len(index) > 18 or not base <= int(index) <= LARGEST_INDEX:
        raise DataError(f"the index of {pair} is out of the range {base} to {LARGEST_INDEX}; see index_base")
    return int(index) - base, number


def _line_namer(text: bytes, name: str, first_line: int) -> Callable[[int], str]:
    """Names row i of a piece of text by its line; the lines are looked up only when a message needs them."""

    def place(row: int) -> str:
        full = (i for i, line in enumerate(text.split(b"\n")) if line.partition(b"#")[0].split())
        offset = next(line for number, line in enumerate(full) if number == row)
        return f"{name} line {first_line + offset}"

    return place


def _has_index_zero(source: ByteSource) -> bool:
    """Whether a row has the index 0; what is in comments says nothing."""
    for _, text in source.line_chunks(1 << 18):
        rows = _COMMENT.sub(b"", text) if b"#" in text else text
        if b" 0:" in b" " + rows.translate(_SPACES):
            return True
    return False
