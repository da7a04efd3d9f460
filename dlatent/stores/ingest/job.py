"""One ingest under way: rows are cleaned, weighted and written while labels and names are collected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from dlatent.errors import DataError, number_of
from dlatent.stores.guard import guarded, guarded_each
from dlatent.stores.ingest.batches import Batch, Values, is_sparse
from dlatent.stores.ingest.cleaning import Repairs, clean, entry_row, refuse, stored
from dlatent.stores.ingest.formats import Opened
from dlatent.stores.ingest.spill import BatchSpill
from dlatent.stores.ingest.targets import Column, LabelCollector, Outputs
from dlatent.stores.ingest.weighting import DocumentFrequencies, Weighting, ZeroRows, kept_rows, refuse_negative, weigh
from dlatent.stores.ingest.writer import (
    DenseWriter,
    name_writer,
    start_layout,
    write_before,
    write_column,
    write_feature_names,
    write_outputs,
)
from dlatent.stores.label_files import read_labels
from dlatent.stores.limits import DEFAULT, Limits
from dlatent.stores.sparse import CsrWriter

Progress = Callable[[int, int | None, int], None]
"""Called after every batch with bytes done, bytes in all (None: unknown) and rows done."""


class Job:
    """One ingest under way: where the rows come from, what is done to them, and what was counted."""

    def __init__(
        self,
        root: zarr.Group,
        opened: Opened,
        directory: Path,
        weighting: Weighting,
        unit_norm: bool,
        zero_rows: ZeroRows,
        block_bytes: int,
        dtype: str | None,
        progress: Progress | None,
        *,
        holes: bool = False,
        limits: Limits = DEFAULT,
    ) -> None:
        self._root, self._opened, self._reader = root, opened, opened.reader
        self._tfidf, self._unit_norm = weighting == "tfidf", unit_norm
        self._zero_rows: ZeroRows = zero_rows if self._tfidf or unit_norm else "keep"
        self._block_bytes, self._dtype, self._progress = block_bytes, dtype, progress
        self._holes = holes
        self._spill = BatchSpill(directory)
        self._frequencies = DocumentFrequencies()
        self._columns = self._reader.columns if self._reader.columns is not None else opened.columns
        self._limits = (
            limits if opened.columns is None else replace(limits, features=max(limits.features, opened.columns))
        )
        self._limits.check_features(self._reader.columns or 0, self._reader.description)
        self._limits.check_size(self._reader.least_bytes, self._reader.total_bytes, self._reader.description)
        self._writer: DenseWriter | CsrWriter | None = None
        start_layout(root)
        self._names = name_writer(root, "obs")
        self._has_ids = False
        self._label_rows: int | None = None
        self._collector: LabelCollector
        self.labels: Column | Outputs | None = None
        self.repairs = Repairs()
        self._left_out: list[npt.NDArray[np.int64]] = []
        self.seen = self.dropped = 0
        self.shape = (0, 0)
        self.stored_dtype = self._first_dtype = np.dtype(np.float64)

    @property
    def writer(self) -> DenseWriter | CsrWriter:
        """The writer of `X`; there is one after the first batch."""
        if self._writer is None:
            raise DataError(f"{self._reader.description} has no rows to ingest")
        return self._writer

    def run(self, batches: Callable[[int], Iterator[Batch]]) -> None:
        """Write everything; `batches` gives those of the reader, of so many bytes."""
        name = self._reader.description
        with guarded(self._opened.label_file or name):
            labelled = self._labelled()
        # A quarter: a batch is held as read, as cleaned and as weighted, beside the chunk that fills up.
        for batch in guarded_each(batches(max(self._block_bytes // 4, 1)), name):
            if batch.rows:
                with guarded(name):
                    features, keep = self._prepared(labelled(batch))
                self._take(features, batch, keep)
        if self._tfidf:
            idf = self._frequencies.inverse()
            for features in self._spill.batches():
                self.writer.append(weigh(features, idf, unit_norm=self._unit_norm))
        self.shape = self.writer.close()
        self._check_shape()
        with guarded(name):  # text that is none shows where it is written
            self._finish_names()
            self._finish_labels()

    def _finish_labels(self) -> None:
        self.labels = self._collector.finish()
        if isinstance(self.labels, Column):
            self.labels = replace(self.labels, name=_safe_name(self.labels.name))
            write_column(self._root, self.labels)
        elif self.labels is not None:
            write_outputs(self._root, self.labels)

    def notes(self) -> Iterator[str]:
        """What was decided or mended."""
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

    def _labelled(self) -> Callable[[Batch], Batch]:
        """What puts labels from a file of their own into each batch; makes the collector."""
        reader, path = self._reader, self._opened.label_file
        if path is None:
            self._collector = LabelCollector(reader.label_name, reader.categories, numeric_text=reader.numeric_text)
            return lambda batch: batch
        values = read_labels(path)
        self._collector = LabelCollector("label", None, numeric_text=False)
        self._label_rows = len(values)
        return lambda batch: self._with_labels(batch, values)

    def _with_labels(self, batch: Batch, values: Values) -> Batch:
        part = values[self.seen : self.seen + batch.rows]
        if len(part) < batch.rows:
            raise DataError(
                f"{self._opened.label_file} has {len(values)} labels, but {self._reader.description} has more rows; "
                "give exactly one for each row"
            )
        single = values.ndim == 1
        return replace(batch, labels=part if single else None, targets=None if single else part, label_sets=None)

    def _prepared(self, batch: Batch) -> tuple[Any, npt.NDArray[np.bool_] | None]:
        """The clean rows of one batch that are kept, and which those are (None: all); takes their labels."""
        self._check_limits(batch)
        features = self._fit_width(clean(batch, self._reader, self.repairs, holes=self._holes), batch)
        self._check_range(features, batch)
        if self._tfidf:
            refuse_negative(features, batch, self._reader)
        keep = kept_rows(features, batch, self._zero_rows)
        if keep is not None:
            features = features[keep]
            self.dropped += batch.rows - int(keep.sum())
            self._left_out.append(self.seen + np.flatnonzero(~keep))
        self._collector.add(batch, keep)
        return features, keep

    def _take(self, features: Any, batch: Batch, keep: npt.NDArray[np.bool_] | None) -> None:
        """Weigh and pass on the clean rows of one batch."""
        if batch.ids is not None:
            with guarded(self._reader.description):
                self._names.append(batch.ids if keep is None else batch.ids[keep])
        self._has_ids = batch.ids is not None
        self._open_writer(features)
        if self._tfidf:
            self._frequencies.add(features)
            self._spill.add(features)
        else:
            self.writer.append(weigh(features, None, unit_norm=self._unit_norm))
        self.seen += batch.rows
        if self._progress is not None:
            self._progress(self._reader.bytes_done, self._reader.total_bytes, self.seen)

    def _check_limits(self, batch: Batch) -> None:
        features, name = batch.features, self._reader.description
        if self._reader.columns is None:
            wide = int(features.shape[1]) > self._limits.features and is_sparse(features)
            place = batch.place(entry_row(features, int(np.argmax(features.indices)))) if wide else name
            self._limits.check_features(int(features.shape[1]), place)

    def _fit_width(self, features: Any, batch: Batch) -> Any:
        """Sparse rows as wide as the number of features that was given or announced."""
        columns = self._columns
        if columns is None or features.shape[1] == columns:
            return features
        if features.shape[1] > columns:
            text = f"the feature is beyond the {columns} that were announced; give a larger number or more names"
            refuse(features.indices >= columns, batch, self._reader, features, text)
        features.resize((features.shape[0], columns))
        return features

    def _check_range(self, features: Any, batch: Batch) -> None:
        """Numbers that float32 cannot hold would silently become infinite."""
        values = stored(features)
        if self._dtype == "float32" and values.dtype != np.float32 and values.size:
            text = 'the value {value} is beyond float32; use dtype="float64"'
            refuse(np.abs(values) > np.finfo(np.float32).max, batch, self._reader, features, text)

    def _open_writer(self, features: Any) -> None:
        if self._writer is not None:
            if self._dtype is None and features.dtype.itemsize > self._first_dtype.itemsize:
                raise DataError(
                    f"{self._reader.description}: values are {self._first_dtype} at first and {features.dtype} later; "
                    "give dtype to say how they are to be stored"
                )
            return
        self._first_dtype = features.dtype
        weighted = self._tfidf or self._unit_norm
        own = np.dtype(np.float64) if weighted and features.dtype.kind in "iu" else features.dtype
        self.stored_dtype = np.dtype(self._dtype or own)
        if is_sparse(features):
            self._writer = CsrWriter(self._root.create_group("X"), columns=self._columns, dtype=self.stored_dtype)
        else:
            self._writer = DenseWriter(self._root, "X", features.shape[1], self.stored_dtype, self._block_bytes)

    def _check_shape(self) -> None:
        rows, columns = self.shape
        if not rows or not columns:
            what = "rows" if not rows else "features"
            dropped = f" ({self.dropped} rows of zeros were dropped)" if self.dropped else ""
            raise DataError(f"{self._reader.description} has no {what} to ingest{dropped}")
        if self._label_rows is not None and self._label_rows != self.seen:
            raise DataError(
                f"{self._opened.label_file} has {self._label_rows} labels, but {self._reader.description} has "
                f"{self.seen} rows; give exactly one for each row"
            )

    def _finish_names(self) -> None:
        if self.dropped:
            # Rows keep the numbers that they have in the file, so that what names rows by these still finds them.
            kept = np.delete(np.arange(self.seen), np.concatenate(self._left_out))
            write_before(self._root, kept, self.seen)
        if not self._has_ids:
            self._names.append(kept if self.dropped else np.arange(self.shape[0]))
        self._names.close()
        names = self._opened.names if self._opened.names is not None else self._reader.column_names
        write_feature_names(self._root, names, self.shape[1])


def _safe_name(name: str) -> str:
    """A column name that can be a member of a Zarr group."""
    return name.replace("/", "_") if name not in ("", ".", "..", "_index") else "label"
