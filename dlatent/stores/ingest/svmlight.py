"""The svmlight / libsvm text format, in one file or several: one label, several ("1,5,7 3:0.2") or none per row."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dlatent.errors import DataError
from dlatent.stores.files import ByteSource, text_chunk_bytes
from dlatent.stores.ingest.batches import Batch, LabelSets, Mark, Options, Reader, files_reader
from dlatent.stores.numbers import EXACT, is_real, real, shown
from dlatent.stores.sparse import csr

_COMMENT = re.compile(rb"#[^\n]*")
_SPACES = bytes.maketrans(b"\t\n\r\v\f", b"     ")

LARGEST_INDEX = np.iinfo(np.int32).max - 1


def open_svmlight(locations: Sequence[str], options: Options, _: Path) -> Reader:
    """Files one after the other; the number of the first feature, where it is "auto", is 0 where index 0 occurs
    anywhere and 1 otherwise."""
    sources = [ByteSource(location) for location in locations]
    base: int = options.index_base if options.index_base != "auto" else int(not any(map(_has_index_zero, sources)))
    note = f"feature indices start at {base} (found by looking for index 0)"

    def batches_of(source: ByteSource, batch_bytes: int, mark: Mark) -> Iterator[Batch]:
        position = mark.position
        for line, text in source.line_chunks(text_chunk_bytes(batch_bytes), position, mark.line):
            position += len(text)
            features, labels = parse(text, base, source.name, line)
            behind = Mark(mark.file, position, line + text.count(b"\n"))
            yield Batch(features, partial(_line_of_row, text, source.name, line), labels, behind=behind)

    return files_reader(sources, batches_of, notes=(note,) if options.index_base == "auto" else ())


def parse(text: bytes, base: int, name: str, first_line: int) -> tuple[Any, LabelSets]:
    """The rows of whole lines.  Errors: DataError naming the line of what is wrong."""
    try:
        features, sets = parse_fast(text, base)
        if not all(np.all(np.abs(values) < EXACT) for values in (features.data, sets.values)):
            raise ValueError("a number may have been an integer that was rounded, or no number")
    except (ValueError, OverflowError):
        features, sets = parse_strict(text, base, name, first_line)
    return features, sets


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


def parse_strict(text: bytes, base: int, name: str, first_line: int) -> tuple[Any, LabelSets]:
    """Whole lines one by one: accepts indices in any order and repeated ones, and names the line of what is wrong."""
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
            of_row = [] if b":" in tokens[0] else _row_labels(tokens.pop(0))
            pairs = [_pair(token, base) for token in tokens if not token.startswith(b"qid:")]
        except DataError as error:
            raise DataError(f"{name} line {first_line + offset}: {error}") from None
        labels += of_row
        counts.append(len(of_row))
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


def _line_of_row(text: bytes, name: str, first_line: int, row: int) -> str:
    """Names row `row` of a piece of text by its line, which is looked up only when a message needs it."""
    full = [offset for offset, line in enumerate(text.split(b"\n")) if line.partition(b"#")[0].split()]
    return f"{name} line {first_line + full[row]}"


def _has_index_zero(source: ByteSource) -> bool:
    """Whether a row has the index 0; what is in comments says nothing."""
    for _, text in source.line_chunks(1 << 18):
        rows = _COMMENT.sub(b"", text) if b"#" in text else text
        if b" 0:" in b" " + rows.translate(_SPACES):
            return True
    return False
