"""One ingest under way: rows are cleaned, weighted and written while labels and names are collected.

Everything that an ingest does follows from the batches of its reader.  A checkpoint therefore holds these, each under
the mark where it begins, until the store is whole: an ingest that was interrupted does not read them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import zarr

from dlatent.errors import DataError, masked, number_of
from dlatent.stores.checkpoint import Checkpoint
from dlatent.stores.checkpoint_codec import fingerprint
from dlatent.stores.files import Limits, file_size, open_raw
from dlatent.stores.ingest.batches import START, Batch, Reader, Values, is_sparse, numbered
from dlatent.stores.ingest.treatment import (
    DocumentFrequencies,
    Repairs,
    Treatment,
    clean,
    entry_row,
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
from dlatent.stores.location import guarded, guarded_each
from dlatent.stores.sparse import CsrWriter

Progress = Callable[[int, int | None, int], None]
"""Called after every batch with bytes done, bytes in all (None: unknown) and rows done."""

COMPARED_BYTES = 1 << 20
"""Bytes at the beginning, in the middle and at the end of a file that are compared."""


class Job:
    """One ingest under way: where the rows come from, what is done to them, and what was counted.

    Parameters: `root`, the new store; `label_file`, with labels of all rows, instead of those of the reader.
    """

    def __init__(
        self,
        root: zarr.Group,
        reader: Reader,
        label_file: str | None,
        treatment: Treatment,
        limits: Limits,
        directory: Path,
        progress: Progress | None,
    ) -> None:
        self._root, self._reader, self._treatment, self._limits = root, reader, treatment, limits
        self._directory, self._progress = directory, progress
        self._tfidf = treatment.weighting == "tfidf"
        self._frequencies, self._waiting = DocumentFrequencies(), list[Path]()
        self._writer: DenseWriter | CsrWriter | None = None
        start_layout(root)
        self._names, self._has_ids = name_writer(root, "obs"), False
        self._label_file = label_file
        self._file_labels: Values | None = None
        if label_file is not None:
            with guarded(label_file):
                self._file_labels = read_labels(label_file)
            self._collector = LabelCollector("label", None, numeric_text=False)
        else:
            self._collector = LabelCollector(reader.label_name, reader.categories, numeric_text=reader.numeric_text)
        self._left_out: list[npt.NDArray[np.int64]] = []
        self.labels: Column | Outputs | None = None
        self.repairs = Repairs()
        self.seen = self.dropped = 0
        self.shape = (0, 0)
        self.stored_dtype: np.dtype[Any] = np.dtype(np.float64)
        self._first_dtype = self.stored_dtype

    @property
    def writer(self) -> DenseWriter | CsrWriter:
        """The writer of `X`; there is one after the first batch."""
        if self._writer is None:
            raise DataError(f"{self._reader.description} has no rows to ingest")
        return self._writer

    def run(self, batches: Callable[[int], Iterator[Batch]]) -> None:
        """Write everything; `batches` gives those of the reader, of so many bytes."""
        name = self._reader.description
        # A quarter: a batch is held as read, as cleaned and as weighted, beside the chunk that fills up.
        for batch in guarded_each(batches(max(self._treatment.block_bytes // 4, 1)), name):
            if batch.rows:
                with guarded(name):
                    kept = self._prepared(batch)
                self._take(kept)
                self.seen += batch.rows
                if self._progress is not None:
                    self._progress(batch.done, self._reader.total_bytes, self.seen)
        if self._tfidf:
            idf = self._frequencies.inverse()
            for path in self._waiting:
                features = sp.load_npz(path) if path.suffix == ".npz" else np.load(path, allow_pickle=False)
                path.unlink()
                self.writer.append(weigh(features, idf, unit_norm=self._treatment.unit_norm))
        self.shape = self.writer.close()
        self._check_shape()
        with guarded(name):  # text that is none shows where it is written
            self._finish_names()
            self.labels = write_labels(self._root, self._collector.finish())

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

    def _prepared(self, batch: Batch) -> Batch:
        """The rows of one batch that are kept, clean; takes their labels."""
        reader = self._reader
        if reader.columns is None and is_sparse(batch.features) and batch.features.shape[1] > self._limits.features:
            widest = entry_row(batch.features, int(np.argmax(batch.features.indices)))
            self._limits.check_features(int(batch.features.shape[1]), batch.place(widest))
        if self._file_labels is not None:
            batch = replace(batch, labels=self._file_labels[self.seen : self.seen + batch.rows])
            if len(batch.labels) < batch.rows:
                self._refuse_labels(self._file_labels, "more")
        batch = clean(batch, reader, self._treatment, self.repairs)
        if self._treatment.weighted and self._treatment.zero_rows != "keep":
            batch = self._without_zeros(batch)
        self._collector.add(batch.labels)
        return batch

    def _without_zeros(self, batch: Batch) -> Batch:
        empty = zero_rows(batch.features)
        if not empty.any():
            return batch
        if self._treatment.zero_rows == "error":
            raise DataError(
                f"{batch.place(int(np.argmax(empty)))}: all values are zero, so it has no direction to weigh; drop "
                'such rows with zero_rows="drop" or keep them as zeros with zero_rows="keep"'
            )
        self.dropped += int(empty.sum())
        self._left_out.append(self.seen + np.flatnonzero(empty))
        return batch.take(~empty)

    def _take(self, batch: Batch) -> None:
        """Weigh and pass on the clean rows of one batch."""
        if batch.ids is not None:
            with guarded(self._reader.description):
                self._names.append(batch.ids)
        self._has_ids = batch.ids is not None
        self._open_writer(batch.features)
        if not self._tfidf:
            self.writer.append(weigh(batch.features, None, unit_norm=self._treatment.unit_norm))
            return
        # Counts wait in files between the two passes, so that text is parsed only once.
        self._frequencies.add(batch.features)
        sparse = is_sparse(batch.features)
        path = self._directory / f"batch{len(self._waiting)}.{'npz' if sparse else 'npy'}"
        sp.save_npz(path, batch.features, compressed=False) if sparse else np.save(path, batch.features)
        self._waiting.append(path)

    def _open_writer(self, features: Any) -> None:
        dtype = self._treatment.dtype
        if self._writer is not None:
            if dtype is None and features.dtype.itemsize > self._first_dtype.itemsize:
                raise DataError(
                    f"{self._reader.description}: values are {self._first_dtype} at first and {features.dtype} later; "
                    "give dtype to say how they are to be stored"
                )
            return
        self._first_dtype = features.dtype
        becomes_real = self._treatment.weighted and features.dtype.kind in "iu"
        self.stored_dtype = np.dtype(dtype or (np.float64 if becomes_real else features.dtype))
        if is_sparse(features):
            columns = self._reader.columns
            self._writer = CsrWriter(self._root.create_group("X"), columns=columns, dtype=self.stored_dtype)
        else:
            block_bytes = self._treatment.block_bytes
            self._writer = DenseWriter(self._root, "X", features.shape[1], self.stored_dtype, block_bytes)

    def _check_shape(self) -> None:
        rows, columns = self.shape
        if not rows or not columns:
            what = "rows" if not rows else "features"
            dropped = f" ({self.dropped} rows of zeros were dropped)" if self.dropped else ""
            raise DataError(f"{self._reader.description} has no {what} to ingest{dropped}")
        if self._file_labels is not None and len(self._file_labels) != self.seen:
            self._refuse_labels(self._file_labels, str(self.seen))

    def _refuse_labels(self, labels: Values, rows: str) -> None:
        raise DataError(
            f"{self._label_file} has {len(labels)} labels, but {self._reader.description} has {rows} "
            "rows; give exactly one for each row"
        )

    def _finish_names(self) -> None:
        if self.dropped:
            # Rows keep the numbers that they have in the file, so that what names rows by these still finds them.
            kept = np.delete(np.arange(self.seen), np.concatenate(self._left_out))
            write_before(self._root, kept, self.seen)
        if not self._has_ids:
            self._names.append(kept if self.dropped else np.arange(self.shape[0]))
        self._names.close()
        write_feature_names(self._root, self._reader.column_names, self.shape[1])


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
