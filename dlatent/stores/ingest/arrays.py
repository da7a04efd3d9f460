"""NumPy's files: dense matrices (.npy), and zip archives of arrays (.npz), read as streams.

Keys of an archive: scipy's own (`data`, `indices`, `indptr`, `shape`, `format`; `row` and `col` for COO); CSR parts
`X_data`, `X_indices`, `X_indptr`, `X_shape`; a dense `X`.  Beside them `y` (one label per row), `Y` (one column per
output), `class_names`, `terms` (names of the features) and `ids`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.errors import DataError
from dlatent.stores.files import Archive, MemberStream, copied, file_name, file_size, mapped_array
from dlatent.stores.ingest.batches import BatchFunction, Reader, Values, Wanted, matrix_reader
from dlatent.stores.ingest.matrices import PIECE, SparseParts, Stored, dense_batches, dense_file
from dlatent.stores.location import local_path

PARTS = ("X_data", "X_indices", "X_indptr", "X_shape")


def open_npy(locations: Sequence[str], _: Wanted, directory: Path) -> Reader:
    """A two-dimensional array of numbers; a file from elsewhere is copied to `directory`."""
    location = locations[0]
    path = local_path(location) or copied(location, directory / file_name(location))
    mapped: Any = mapped_array(path)
    if mapped.ndim != 2:
        raise DataError(f"{location} has {mapped.ndim} dimension(s), expected samples × features")
    by_columns = mapped.flags.f_contiguous and not mapped.flags.c_contiguous
    stored = dense_file(path, getattr(mapped, "offset", 0), mapped.shape, mapped.dtype, by_columns=by_columns)
    return matrix_reader(file_name(location), file_size(location), mapped.shape, dense_batches(stored))


def open_npz(locations: Sequence[str], wanted: Wanted, directory: Path) -> Reader:
    """An archive; matrices stored by columns or in no order are sorted on disk in `directory`."""
    archive = Archive(locations[0])
    name = archive.name
    shape, read, least = _matrix(archive, directory)
    key = wanted.labels or archive.first("y", "Y")
    labels = archive.whole(str(key)) if key else None
    column_names = _names(archive, wanted.features or archive.first("terms"))
    if wanted.features and column_names is not None and len(column_names) != shape[1]:
        raise DataError(f"{name}: {wanted.features} has {len(column_names)} names for {shape[1]} features")
    return matrix_reader(
        name,
        file_size(locations[0]),
        shape,
        read,
        labels=labels,
        ids=_names(archive, wanted.ids or archive.first("ids")),
        source=f"{name} key {key!r}" if key else name,
        least_bytes=least,
        column_names=column_names,
        categories=_fitting(_names(archive, archive.first("class_names")), labels),
        close=archive.close,
    )


def _matrix(archive: Archive, directory: Path) -> tuple[tuple[int, int], BatchFunction, int]:
    """Shape of the matrix, the function that reads it, and the bytes that it takes at least."""
    prefix, layout = "X_", "csr"
    if not set(PARTS) <= set(archive.keys):
        if "X" in archive.keys:
            return _dense(archive, directory)
        if not {"format", "shape", "data"} <= set(archive.keys):
            missing = sorted(set(PARTS) - set(archive.keys))
            some = f" (of the CSR parts, {', '.join(missing)} are missing)" if len(missing) < len(PARTS) else ""
            raise DataError(
                f"{archive.name} holds no matrix{some}; expected the keys of scipy.sparse.save_npz, "
                f"{', '.join(PARTS)}, or X; it has {', '.join(archive.keys)}"
            )
        kind = archive.whole("format").item()
        prefix, layout = "", kind.decode() if isinstance(kind, bytes) else str(kind)
    sizes = archive.whole(f"{prefix}shape").ravel().tolist()
    parts = SparseParts(archive.name, sizes, lambda part: _stored(archive.stream(prefix + part)))
    return parts.shape, parts.batches(layout, directory), 8 * parts.shape[0]


def _dense(archive: Archive, directory: Path) -> tuple[tuple[int, int], BatchFunction, int]:
    member = archive.stream("X")
    if len(member.shape) != 2:
        raise DataError(f"{archive.name}: X has shape {member.shape}, expected samples × features")
    shape = (member.shape[0], member.shape[1])
    if not member.fortran_order:
        return shape, dense_batches(_stored(member)), 0
    path = directory / "X"
    with path.open("wb") as out:
        for start in range(0, math.prod(shape), PIECE):
            out.write(member.read(min(PIECE, math.prod(shape) - start)).tobytes())
    return shape, dense_batches(dense_file(path, 0, shape, member.dtype, by_columns=True)), 0


def _stored(member: MemberStream) -> Stored:
    """An array of an archive, read as a stream."""

    def read(start: int, stop: int) -> npt.NDArray[Any]:
        shape = (stop - start, *member.shape[1:])
        return member.read(math.prod(shape)).reshape(shape)

    return Stored(member.shape, member.dtype, read)


def _names(archive: Archive, key: Any) -> Values | None:
    return archive.whole(key).astype(str) if key else None


def _fitting(names: Values | None, labels: Values | None) -> Values | None:
    """Names of the outputs, or of the classes of coded labels (-1: none), where they fit."""
    if names is None or labels is None:
        return None
    wide = labels.ndim == 2 and labels.shape[1] == len(names)
    coded = labels.ndim == 1 and labels.dtype.kind in "iu" and len(np.unique(names)) == len(names)
    return names if wide or (coded and np.isin(labels, np.arange(-1, len(names))).all()) else None
