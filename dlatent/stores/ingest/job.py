"""One ingest under way: rows are cleaned, weighted and written while labels and names are collected.

Everything that an ingest does follows from the batches of its reader.  A checkpoint therefore holds these, each under
the mark where it begins, until the store is whole: an ingest that was interrupted does not read them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from dlatent.arrays import Array
from dlatent.errors import DataError, masked, number_of
from dlatent.stores.atomic import writing
from dlatent.stores.checkpoint import Checkpoint
from dlatent.stores.checkpoint_codec import decode, encode, fingerprint
from dlatent.stores.files import file_size, open_raw
from dlatent.stores.ingest.batches import START, Batch, Options, Reader, Values, is_sparse, numbered
from dlatent.stores.ingest.treatment import (
    DocumentFrequencies,
    Repairs,
    clean,
    weigh,
    zero_rows,
)
from dlatent.stores.ingest.writer import (
    Column,
    DenseWriter,
    LabelCollector,
    Outputs,
    label_text,
    name_writer,
    start_layout,
    write_before,
    write_feature_names,
    write_labels,
)
from dlatent.stores.label_files import read_labels
from dlatent.stores.location import Place, guarded, guarded_each
from dlatent.stores.sparse import CsrWriter, row_numbers

Progress = Callable[[int, int | None, int], None]
"""Called after every batch with bytes done, bytes in all (None: unknown) and rows done."""

COMPARED_BYTES = 1 << 20
"""Bytes at the beginning, in the middle and at the end of a file that are compared."""


class Job:
    """One ingest under way: where the rows come from, what is done to them, and what was counted.

    Parameters: `root`, the new store, which comes to `destination`; `label_file`, with labels of all rows, instead of
    those of the reader.
    """

    def __init__(
        self,
        destination: Place,
        root: zarr.Group,
        reader: Reader,
        label_file: str | None,
        options: Options,
        directory: Path,
        progress: Progress | None,
    ) -> None:
        self._destination, self._root, self._reader, self._options = destination, root, reader, options
        self._directory, self._progress = directory, progress
        start_layout(root)
        self._names, self._kept = name_writer(root, "obs"), list[npt.NDArray[np.int64]]()
        self._label_file = label_file
        self._file_labels: Values | None = None
        if label_file is not None:
            with guarded(label_file):
                self._file_labels = read_labels(label_file)
            self._collector = LabelCollector("label", None, numeric_text=False)
        else:
            self._collector = LabelCollector(reader.label_name, reader.categories, numeric_text=reader.numeric_text)
        self._first_dtype: np.dtype[Any] | None = None
        self.writer: DenseWriter | CsrWriter
        self.labels: Column | Outputs | None = None
        self.repairs = Repairs()
        self.seen = self.dropped = 0

    def run(self, batches: Callable[[int], Iterator[Batch]]) -> None:
        """Write everything; `batches` gives those of the reader, of so many bytes."""
        name, tfidf = self._reader.description, self._options.weighting == "tfidf"
        frequencies, waiting = DocumentFrequencies(), list[Path]()
        # A quarter: a batch is held as read, as cleaned and as weighted, beside the chunk that fills up.
        for batch in guarded_each(self._prepared(batches(max(self._options.block_bytes // 4, 1))), name):
            self._open_writer(batch.features)
            if tfidf:  # counts wait in files between the two passes, so that text is parsed only once
                frequencies.add(batch.features)
                waiting.append(self._directory / f"batch{len(waiting)}")
                waiting[-1].write_bytes(encode(batch.features))
            else:
                self._append(batch.features, None)
            if self._progress is not None:
                self._progress(batch.done, self._reader.total_bytes, self.seen)
        if not self.seen:
            raise DataError(f"{name} has no rows to ingest")
        idf = frequencies.inverse()
        for path in waiting:
            self._append(decode(path.read_bytes(), str(path)), idf)
            path.unlink()
        self.shape = self.writer.close()
        with guarded(name), writing(self._destination):  # text that is none shows where it is written
            self._finish()

    def notes(self) -> Iterator[str]:
        """Sentences on all that was decided or mended."""
        yield from self._reader.notes
        if self.repairs.unsorted_rows:
            yield f"{number_of(self.repairs.unsorted_rows, 'row')} had indices out of order; they were sorted"
        if self.repairs.duplicates:
            named = number_of(self.repairs.duplicates, "entry", "entries")
            yield f"{named} named a place that was already taken; their values were added"
        if self.dropped:
            yield f"{number_of(self.dropped, 'row of zeros was', 'rows of zeros were')} dropped with their labels"
        if isinstance(self.labels, Column) and self.labels.name != self._reader.label_name:
            yield f"the label column {self._reader.label_name!r} is stored as {self.labels.name!r}"

    def _prepared(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The rows that are kept, clean; takes their names and labels."""
        for batch in batches:
            if not batch.rows:
                continue
            if self._reader.columns is None and (width := batch.features.shape[1]) > self._options.limits.features:
                widest = row_numbers(batch.features)[np.argmax(batch.features.indices)]
                self._options.limits.check_features(width, batch.place(int(widest)))
            kept = self.seen + np.arange(batch.rows)
            self.seen += batch.rows
            if self._file_labels is not None and len(self._file_labels) < self.seen:
                self._refuse_labels(self._file_labels, "more")
            batch = clean(batch, self._reader, self._options, self.repairs)
            if self._options.weighted and self._options.zero_rows != "keep":
                filled = ~zero_rows(batch.features)
                if self._options.zero_rows == "error" and not filled.all():
                    raise DataError(
                        f"{batch.place(int(np.argmin(filled)))}: all values are zero, so it has no direction to weigh; "
                        'drop such rows with zero_rows="drop" or keep them as zeros with zero_rows="keep"'
                    )
                batch, kept = batch.take(filled), kept[filled]
            # Rows keep the numbers that they have in the file, so that what names rows by these still finds them.
            with writing(self._destination):
                self._names.append(kept if batch.ids is None else batch.ids)
            self._kept.append(kept)
            self._collector.add(batch.labels if self._file_labels is None else self._file_labels[kept])
            yield batch

    def _append(self, features: Any, idf: Array | None) -> None:
        self.writer.append(weigh(features, idf, unit_norm=self._options.unit_norm))

    def _open_writer(self, features: Any) -> None:
        dtype = self._options.dtype
        if self._first_dtype is not None:
            if dtype is None and features.dtype.itemsize > self._first_dtype.itemsize:
                raise DataError(
                    f"{self._reader.description}: values are {self._first_dtype} at first and {features.dtype} later; "
                    "give dtype to say how they are to be stored"
                )
            return
        self._first_dtype = features.dtype
        becomes_real = self._options.weighted and features.dtype.kind in "iu"
        self.stored_dtype = np.dtype(dtype or (np.float64 if becomes_real else features.dtype))
        if is_sparse(features):
            columns = self._reader.columns
            self.writer = CsrWriter(self._root.create_group("X"), columns=columns, dtype=self.stored_dtype)
        else:
            block_bytes = self._options.block_bytes
            self.writer = DenseWriter(self._root, "X", features.shape[1], self.stored_dtype, block_bytes)

    def _refuse_labels(self, labels: Values, rows: str) -> None:
        raise DataError(
            f"{self._label_file} has {len(labels)} labels, but {self._reader.description} has {rows} "
            "rows; give exactly one for each row"
        )

    def _finish(self) -> None:
        """Write the names and labels of all rows, and the names of the features."""
        rows, columns = self.shape
        self.dropped = self.seen - rows
        if not rows or not columns:
            what = "rows" if not rows else "features"
            dropped = f" ({self.dropped} rows of zeros were dropped)" if self.dropped else ""
            raise DataError(f"{self._reader.description} has no {what} to ingest{dropped}")
        if self._file_labels is not None and len(self._file_labels) != self.seen:
            self._refuse_labels(self._file_labels, str(self.seen))
        if self.dropped:
            write_before(self._root, np.concatenate(self._kept), self.seen)
        self._names.close()
        write_feature_names(self._root, self._reader.column_names, columns)
        self.labels = write_labels(self._root, self._collector.finish())


def about_ingest(sources: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that must not differ for an ingest to go on."""
    return {
        "ingest": [masked(source) for source in sources],
        "options": dict(options),
        "files": {masked(source): _described(source) for source in sources},
        "versions": {name: version(name) for name in ("dlatent", "numpy")},
    }


def recorded_batches(reader: Reader, checkpoint: Checkpoint, batch_bytes: int) -> Iterator[Batch]:
    """The batches of a reader: those that are recorded, then those behind them, which are recorded."""
    mark, rows = START, 0
    while (entry := checkpoint.recall(mark)) is not None:
        ((features, labels, ids, done, mark),) = entry
        yield Batch(features, partial(numbered, reader.description, rows), labels, ids, done, mark)
        rows += features.shape[0]
    for batch in reader.batches(batch_bytes, mark):
        checkpoint.record(mark, (batch.features, _plain(batch.labels), _plain(batch.ids), batch.done, batch.behind))
        mark = batch.behind
        yield batch


def _plain(values: Any) -> Any:
    """Text of pandas as text of numpy; what is missing there is empty, which is as much of a label."""
    if not isinstance(values, np.ndarray) or not values.dtype.hasobject:
        return values
    return np.array([label_text(value) for value in values.tolist()], dtype=str)


def _described(source: str) -> dict[str, Any]:
    size = file_size(source)
    with open_raw(source) as raw:
        parts = []
        for start in sorted({0, max(size // 2 - COMPARED_BYTES // 2, 0), max(size - COMPARED_BYTES, 0)}):
            raw.seek(start)
            parts.append(np.frombuffer(raw.read(COMPARED_BYTES), np.uint8))
    return {"bytes": size, "values": fingerprint(tuple(parts))}
