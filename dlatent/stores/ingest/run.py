"""From a file to a store: one pass over the rows, two where the weights need counts of all of them first."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from dlatent.errors import DataError, masked, number_of
from dlatent.stores.atomic import MARKER, left_by, new_store, require_writable, sign
from dlatent.stores.checked import MissingChunks
from dlatent.stores.checkpoint import checkpoint_location, checkpoint_of_store
from dlatent.stores.files import DEFAULT, Limits, directory_size, file_name, file_size
from dlatent.stores.ingest.batches import START, IndexBase, Options, Weighting, ZeroRows
from dlatent.stores.ingest.formats import Format, detect, open_reader
from dlatent.stores.ingest.job import Job, Progress, about_ingest, recorded_batches
from dlatent.stores.ingest.writer import Column, Outputs
from dlatent.stores.location import guarded, local_path, place_text
from dlatent.stores.places import require_apart
from dlatent.stores.sparse import CsrWriter
from dlatent.stores.temporary import discard, make

BLOCK_BYTES = 32 << 20


@dataclass(frozen=True)
class IngestReport:
    """Report of an ingest.

    Parameters
    ----------
    destination : str
        The new store.
    shape : tuple of int
        Rows and features.
    nnz : int
        Stored entries.
    dtype : str
        Of the stored values.
    sparse : bool
        Whether the matrix is sparse.
    rows_dropped : int
        Rows of zeros that were left out.
    duplicates_summed : int
        Entries that occurred more than once and were added up.
    bytes_read : int
        Of the source.
    bytes_written : int or None
        Of the store; None where nobody can tell.
    seconds : float
        Wall time.
    labels : str
        What the labels are, in words.
    label_column : str or None
        The column that has them.
    notes : tuple of str
        What was decided or mended on the way.
    """

    destination: str
    shape: tuple[int, int]
    nnz: int
    dtype: str
    sparse: bool
    rows_dropped: int
    duplicates_summed: int
    bytes_read: int
    bytes_written: int | None
    seconds: float
    labels: str
    label_column: str | None
    notes: tuple[str, ...]


def ingest(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    destination: str | os.PathLike[str],
    *,
    format: Format | None = None,
    weighting: Weighting = "none",
    unit_norm: bool = False,
    zero_rows: ZeroRows = "error",
    block_bytes: int = BLOCK_BYTES,
    dtype: Literal["float32", "float64"] | None = None,
    labels: str | os.PathLike[str] | Sequence[str] | None = None,
    features: str | os.PathLike[str] | Sequence[str] | int | None = None,
    ids: str | None = None,
    index_base: IndexBase = "auto",
    missing: Literal["raise", "nan"] = "raise",
    missing_chunks: MissingChunks = "raise",
    max_features: int = DEFAULT.features,
    max_expansion: int = DEFAULT.expansion,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
) -> IngestReport:
    """Stream a file into a Zarr store with the layout of AnnData: `X`, `obs` (labels), `var` (features), `obsm/Y`.

    Memory is bounded by a few `block_bytes` plus about 50 bytes a row for labels and row pointers and the names of the
    features (of Parquet files, also one row group).  Matrices that are stored by columns, and counts between the two
    passes of tf-idf, lie in a temporary directory beside the destination.  Until the end the store lies aside and does
    not open; an error leaves nothing.

    Parameters
    ----------
    source : path, URL or sequence of them
        A file, or several svmlight, CSV or Parquet files that continue one another.
    destination : path or URL
        Path or URL of the new store.
    format : {"svmlight", "matrixmarket", "npz", "npy", "csv", "parquet", "h5ad", "zarr"}, optional
        By default the extension tells.
    weighting : {"none", "tfidf"}, default "none"
        "tfidf" multiplies counts by ln((1 + N) / (1 + df)) + 1, as scikit-learn does.
    unit_norm : bool, default False
        Scale each row to Euclidean length 1.
    zero_rows : {"error", "keep", "drop"}, default "error"
        With `unit_norm` or "tfidf": whether a row of zeros is an error, kept, or dropped with its label.
    block_bytes : int, default 33554432
        Size in bytes of a chunk of dense rows, and of what is read at once.
    dtype : {"float32", "float64"}, optional
        Of the stored values; by default that of the file (sparse values become floats).
    labels : str, path, URL or sequence of str, optional
        A column (CSV, Parquet: or several columns as targets), obs column, npz key, or a file of labels for all rows.
    features : str, path, URL, sequence of str or int, optional
        Columns to read (CSV, Parquet), npz key, a text file or a sequence of names, or their number.
    ids : str, optional
        Column (CSV, Parquet) or npz key with the names of the rows.
    index_base : {"auto", 0, 1}, default "auto"
        Number of the first feature in svmlight files; "auto" looks for an index 0.
    missing : {"raise", "nan"}, default "raise"
        "nan" keeps missing values of dense data (empty fields, NaN) as NaN, for models with `missing="nan"`.
    missing_chunks : {"raise", "fill"}, default "raise"
        Of Zarr stores, as for `dlatent.open_data`.
    max_features : int, default 10000000
        Largest number of features that a file may name or announce, unless `features` says their number.
    max_expansion : int, default 200
        How many times its own size a file may say that it unpacks to (up to 256 MiB are always believed).
    overwrite : bool, default False
        Replace a store at the destination, once the new one is complete.
    resume : bool, default False
        Keep what is read of svmlight, CSV and Parquet files in `destination`.checkpoint until the store is whole, so
        that the same call goes on after an interruption; it takes about the room of the unpacked data.
    progress : callable, optional
        Called after every batch with bytes done, bytes in all (None: unknown) and rows done.

    Returns
    -------
    IngestReport
        What was done.

    Raises
    ------
    DataError
        Naming file and line, row or column.
    StoreError
        Where the destination cannot be written.

    Examples
    --------
    >>> import tempfile, numpy as np, dlatent
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(folder + "/rows.npy", np.ones((100, 3)))
    ...     dlatent.ingest(folder + "/rows.npy", folder + "/rows.zarr").shape
    (100, 3)
    """
    started = time.perf_counter()
    options = Options(
        labels=_text(labels),
        features=_text(features),
        ids=ids,
        index_base=index_base,
        missing_chunks=missing_chunks,
        limits=Limits(max_features, max_expansion),
        weighting=weighting,
        unit_norm=unit_norm,
        zero_rows=zero_rows,
        block_bytes=block_bytes,
        dtype=dtype,
        missing=missing,
    )
    _check_options(options)
    sources: Iterable[Any] = source if isinstance(source, Iterable) and not isinstance(source, str) else [source]
    locations = [place_text(one) for one in sources]
    if not locations:
        raise DataError("there is no source file; give at least one")
    require_apart(destination, *locations, labels, features)
    kind = detect(locations, format, resume=resume)
    for location in locations if kind != "zarr" else ():  # refuses what is not there before it replaces anything
        file_size(location)
    if resume:  # a place that is taken is refused before a checkpoint is begun
        require_writable(destination, overwrite=overwrite, resume=checkpoint_location(destination))
    with contextlib.ExitStack() as stack:
        if resume:
            with guarded(", ".join(locations)):
                about = about_ingest(locations, {"format": kind, **asdict(options)})
            checkpoint = stack.enter_context(checkpoint_of_store(destination, about))
            overwrite = overwrite or left_by(destination, checkpoint.identity)
        root = stack.enter_context(new_store(destination, kind="data", overwrite=overwrite))
        if resume:
            sign(root, checkpoint.identity)
        directory = stack.enter_context(scratch(destination))
        with guarded(", ".join(locations)):
            reader, label_file = open_reader(locations, kind, options, directory)
        stack.callback(reader.close)
        job = Job(destination, root, reader, label_file, options, directory, progress)
        job.run(partial(recorded_batches, reader, checkpoint) if resume else lambda size: reader.batches(size, START))
        marker = {"weighting": weighting, "unit_norm": unit_norm, "sources": [file_name(one) for one in locations]}
        root.attrs[MARKER] = {**cast(dict[str, Any], root.attrs[MARKER]), **marker, "format": kind}
    return IngestReport(
        destination=masked(place_text(destination)),
        shape=job.shape,
        nnz=job.writer.nnz,
        dtype=str(job.stored_dtype),
        sparse=isinstance(job.writer, CsrWriter),
        rows_dropped=job.dropped,
        duplicates_summed=job.repairs.duplicates,
        bytes_read=reader.total_bytes or 0,
        bytes_written=directory_size(place_text(destination)),
        seconds=time.perf_counter() - started,
        labels=_describe(job.labels),
        label_column=job.labels.name if isinstance(job.labels, Column) else "Y" if job.labels is not None else None,
        notes=tuple(job.notes()),
    )


@contextlib.contextmanager
def scratch(destination: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary directory beside a local destination, where there is room for as much data; removed at the end."""
    path = local_path(destination)
    if path is None:
        with tempfile.TemporaryDirectory(prefix="dlatent-") as directory:
            yield Path(directory)
        return
    aside = make(Path(os.path.abspath(path)), 0o700)
    try:
        yield aside
    finally:
        discard(aside)


def _check_options(options: Options) -> None:
    choices = (
        ("weighting", options.weighting, get_args(Weighting)),
        ("zero_rows", options.zero_rows, get_args(ZeroRows)),
        ("dtype", options.dtype, (None, "float32", "float64")),
        ("index_base", options.index_base, get_args(IndexBase)),
        ("missing", options.missing, ("raise", "nan")),
    )
    for name, value, accepted in choices:
        if value not in accepted:
            raise DataError(f"{name} is {value!r}; expected one of {', '.join(map(repr, accepted))}")
    if options.block_bytes < 1:
        raise DataError(f"block_bytes is {options.block_bytes}; expected at least 1")
    if options.missing == "nan" and options.weighted:
        raise DataError("rows with missing values cannot be weighted or scaled; leave tf-idf and unit_norm away")


def _text(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _describe(labels: Column | Outputs | None) -> str:
    if labels is None:
        return "none"
    if isinstance(labels, Outputs):
        rows, columns = labels.matrix.shape
        return f"{number_of(columns, 'output')} for {number_of(rows, 'row')} in obsm/Y"
    if labels.classes is not None:
        count = int((labels.values < 0).sum())
        classes = number_of(len(labels.classes), "class", "classes")
    else:
        values = labels.values
        missing = np.isnan(values) if values.dtype.kind == "f" else values == -1
        count = int(missing.sum())
        classes = number_of(len(np.unique(values[~missing])), "different value")
    return f"{classes} in obs column {labels.name!r}, {number_of(count, 'row')} unlabelled"
