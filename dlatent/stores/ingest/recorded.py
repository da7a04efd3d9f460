"""What an ingest has read, kept until its store is whole, so that one that was interrupted does not read it again.

Everything that an ingest does follows from the batches of its reader; the checkpoint therefore holds these, each under
the mark where it begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np

from dlatent.errors import DataError, masked
from dlatent.stores.byte_source import file_size, open_raw
from dlatent.stores.checkpoint import Checkpoint
from dlatent.stores.ingest.batches import Batch, FilesReader, Mark, Reader, Values, numbered
from dlatent.stores.ingest.formats import SEVERAL
from dlatent.stores.ingest.targets import label_text
from dlatent.stores.packed import fingerprint

COMPARED_BYTES = 1 << 20
"""Bytes at the beginning, in the middle and at the end of a file that are compared."""


def about_ingest(sources: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same for an ingest to go on."""
    return {
        "ingest": [masked(source) for source in sources],
        "options": dict(options),
        "files": {masked(source): _described(source) for source in sources},
        "versions": {name: version(name) for name in ("dlatent", "numpy")},
    }


def recorded_batches(reader: Reader, checkpoint: Checkpoint, batch_bytes: int) -> Iterator[Batch]:
    """The batches of a reader: those that are recorded, then those behind them, which are recorded."""
    assert isinstance(reader, FilesReader)
    mark, rows = Mark(), 0
    while (found := checkpoint.recall(mark)) is not None:
        ((kept, reader.bytes_done, mark),) = found
        features, *rest = kept
        yield Batch(features, partial(numbered, reader.description, rows), *rest)
        rows += features.shape[0]
    for batch, behind in reader.batches_from(mark, batch_bytes):
        others = (_plain(batch.labels), batch.label_sets, batch.targets, _plain(batch.ids))
        checkpoint.record(mark, ((batch.features, *others), reader.bytes_done, behind))
        mark = behind
        yield batch


def require_recordable(format: str) -> None:
    """Refuse a format whose rows are read as fast as a checkpoint of them would be, or all before any is written.

    Errors: DataError.
    """
    if format not in SEVERAL:
        raise DataError(
            f"an ingest of {format} cannot go on where it was, only one of {', '.join(SEVERAL)}; leave resume away"
        )


def _plain(values: Values | None) -> Values | None:
    """Text of pandas as text of numpy; what is missing there is empty, which is as much of a label."""
    if values is None or not values.dtype.hasobject:
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
