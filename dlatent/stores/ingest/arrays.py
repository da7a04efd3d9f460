"""Matrices in files of NumPy (.npy, .npz) and in the layout of AnnData (.h5ad, Zarr stores).

Of AnnData `X` is read, as CSR, CSC or dense, and an obs column as labels.  Archives are read as streams; their keys are
scipy's own (`data`, `indices`, `indptr`, `shape`, `format`; `row` and `col` for COO); CSR parts `X_data`, `X_indices`,
`X_indptr`, `X_shape`; a dense `X`.  Beside them `y` (one label per row), `Y` (one column per output), `class_names`,
`terms` (names of the features) and `ids`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from dlatent.errors import DataError
from dlatent.stores.chunked import arrays_below, check_below, read_rows
from dlatent.stores.files import (
    Archive,
    MemberStream,
    copied,
    directory_size,
    file_name,
    file_size,
    mapped_array,
    path_or_stream,
)
from dlatent.stores.ingest.batches import BatchFunction, Options, Reader, Values, matrix_reader
from dlatent.stores.ingest.matrices import PIECE, SparseParts, Stored, dense_batches, dense_file
from dlatent.stores.label_files import stored_labels
from dlatent.stores.labels import read_text, require_decoded
from dlatent.stores.location import guarded, local_path
from dlatent.stores.nodes import check_complete, open_node
from dlatent.stores.table_files import needed

PARTS = ("X_data", "X_indices", "X_indptr", "X_shape")


def open_npy(locations: Sequence[str], _: Options, directory: Path) -> Reader:
    """A two-dimensional array of numbers; a file from elsewhere is copied to `directory`."""
    location = locations[0]
    path = local_path(location) or copied(location, directory / file_name(location))
    mapped: Any = mapped_array(path)
    if mapped.ndim != 2:
        raise DataError(f"{location} has {mapped.ndim} dimension(s), expected samples × features")
    by_columns = mapped.flags.f_contiguous and not mapped.flags.c_contiguous
    stored = dense_file(path, getattr(mapped, "offset", 0), mapped.shape, mapped.dtype, by_columns=by_columns)
    return matrix_reader(file_name(location), file_size(location), mapped.shape, dense_batches(stored))


def open_npz(locations: Sequence[str], options: Options, directory: Path) -> Reader:
    """An archive; matrices stored by columns or in no order are sorted on disk in `directory`."""
    archive = Archive(locations[0])
    name = archive.name
    shape, read, least = _archived(archive, directory)
    key = options.labels or archive.first("y", "Y")
    labels = archive.array(str(key)) if key else None
    column_names = _names(archive, options.features or archive.first("terms"))
    if options.features and column_names is not None and len(column_names) != shape[1]:
        raise DataError(f"{name}: {options.features} has {len(column_names)} names for {shape[1]} features")
    return matrix_reader(
        name,
        file_size(locations[0]),
        shape,
        read,
        labels=labels,
        ids=_names(archive, options.ids or archive.first("ids")),
        source=f"{name} key {key!r}" if key else name,
        least_bytes=least,
        column_names=column_names,
        categories=_fitting(_names(archive, archive.first("class_names")), labels),
        close=archive.close,
    )


def _archived(archive: Archive, directory: Path) -> tuple[tuple[int, int], BatchFunction, int]:
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
        kind = archive.array("format").item()
        prefix, layout = "", kind.decode() if isinstance(kind, bytes) else str(kind)
    sizes = archive.array(f"{prefix}shape").ravel().tolist()
    parts = SparseParts(archive.name, sizes, lambda part: _streamed(archive.stream(prefix + part)))
    return parts.shape, parts.batches(layout, directory), 8 * parts.shape[0]


def _dense(archive: Archive, directory: Path) -> tuple[tuple[int, int], BatchFunction, int]:
    member = archive.stream("X")
    if len(member.shape) != 2:
        raise DataError(f"{archive.name}: X has shape {member.shape}, expected samples × features")
    shape = (member.shape[0], member.shape[1])
    if not member.fortran_order:
        return shape, dense_batches(_streamed(member)), 0
    path = directory / "X"
    with path.open("wb") as out:
        for start in range(0, math.prod(shape), PIECE):
            out.write(member.read(min(PIECE, math.prod(shape) - start)).tobytes())
    return shape, dense_batches(dense_file(path, 0, shape, member.dtype, by_columns=True)), 0


def _streamed(member: MemberStream) -> Stored:
    """An array of an archive, read as a stream."""

    def read(start: int, stop: int) -> npt.NDArray[Any]:
        shape = (stop - start, *member.shape[1:])
        return member.read(math.prod(shape)).reshape(shape)

    return Stored(member.shape, member.dtype, read)


def _names(archive: Archive, key: Any) -> Values | None:
    return archive.array(key).astype(str) if key else None


def _fitting(names: Values | None, labels: Values | None) -> Values | None:
    """Names of the outputs, or of the classes of coded labels (-1: none), where they fit."""
    if names is None or labels is None:
        return None
    wide = labels.ndim == 2 and labels.shape[1] == len(names)
    coded = labels.ndim == 1 and labels.dtype.kind in "iu" and len(np.unique(names)) == len(names)
    return names if wide or (coded and np.isin(labels, np.arange(-1, len(names))).all()) else None


def open_h5ad(locations: Sequence[str], options: Options, directory: Path) -> Reader:
    """An AnnData file."""
    (location,) = locations
    try:
        root = needed("h5py", file_name(location)).File(path_or_stream(location), "r")
    except OSError as error:
        raise DataError(f"{location} is no readable h5ad (HDF5) file: {error}") from error
    return _annotated(root, location, file_size(location), options, directory, close=root.close)


def open_zarr(locations: Sequence[str], options: Options, directory: Path) -> Reader:
    """An AnnData store."""
    (location,) = locations
    root = cast(Any, open_node(location, options.missing_chunks))
    check_complete(root)
    if hasattr(root, "keys"):
        for name in {"X", "obs", "var"} & set(root):
            check_below(root[name])
        for array in arrays_below(root["X"]) if "X" in root else ():
            require_decoded(array)
    return _annotated(root, location, directory_size(location), options, directory)


def _annotated(root: Any, location: str, size: int | None, options: Options, directory: Path, **known: Any) -> Reader:
    name = file_name(location)
    if not hasattr(root, "keys"):
        raise DataError(f"{name} is an array; expected the group of an AnnData store")
    if "X" not in root:
        raise DataError(f"{name} holds no matrix X; it has {', '.join(root.keys())}")

    def element(stored: Any) -> Any:
        """An array of a data frame."""
        options.limits.check_size(_size(stored), size, name)
        with guarded(f"{name}: {stored.name}"):
            if hasattr(stored, "asstr"):
                return (stored.asstr() if stored.dtype.kind == "O" else stored)[:]
            return read_text(stored)

    shape, read, least = _matrix(root["X"], name, directory)
    options.limits.check_size(least, size, name)
    return matrix_reader(
        name,
        size,
        shape,
        read,
        labels=_labels(root, str(options.labels), name, element) if options.labels is not None else None,
        ids=_index(root, "obs", name, element),
        source=f"{name} obs",
        label_name="label" if options.labels is None else options.labels,
        column_names=_index(root, "var", name, element),
        **known,
    )


def _matrix(stored: Any, name: str, directory: Path) -> tuple[tuple[int, int], BatchFunction, int]:
    """Shape of the matrix, the function that reads it, and its bytes."""
    if hasattr(stored, "shape"):
        if len(stored.shape) != 2:
            raise DataError(f"{name}: X has {len(stored.shape)} dimension(s), expected samples × features")
        shape = (int(stored.shape[0]), int(stored.shape[1]))
        return shape, dense_batches(_stored(stored), (stored.chunks or (1,))[0]), _size(stored)
    kind = stored.attrs.get("encoding-type", f"{stored.attrs.get('h5sparse_format', '')}_matrix")
    sizes = stored.attrs.get("shape", stored.attrs.get("h5sparse_shape", ()))
    if kind not in ("csr_matrix", "csc_matrix") or len(sizes) != 2:
        raise DataError(f"{name}: X is stored as {kind!r}; expected csr_matrix, csc_matrix or an array")
    parts = SparseParts(f"{name}: X", sizes, lambda part: _stored(stored[part]))
    least = 8 * parts.shape[0] + sum(_size(stored[part]) for part in ("data", "indices", "indptr"))
    return parts.shape, parts.batches(kind.removesuffix("_matrix"), directory), least


def _size(stored: Any) -> int:
    """Bytes of an array, or of all arrays of a group, as their shapes say."""
    if hasattr(stored, "shape"):
        return int(math.prod(stored.shape) * max(stored.dtype.itemsize, 1))
    return sum(_size(stored[name]) for name in stored)


def _stored(array: Any) -> Stored:
    """An HDF5 dataset, or a Zarr array with errors that name the chunk."""
    read = partial(read_rows, array) if hasattr(array, "store_path") else lambda start, stop: array[start:stop]
    return Stored(array.shape, array.dtype, read)


def _index(root: Any, frame: str, name: str, element: Callable[[Any], Any]) -> Values | None:
    """The names in `obs` or `var`."""
    if frame not in root or "_index" not in root[frame].attrs:
        return None
    stored = root[frame][root[frame].attrs["_index"]]
    if len(getattr(stored, "shape", ())) != 1:
        raise DataError(f"{name}: the names in {frame} are no list; the file is damaged")
    return np.asarray(element(stored).astype(str))


def _labels(root: Any, column: str, name: str, element: Callable[[Any], Any]) -> Values:
    """An obs column."""
    obs = root.get("obs", {})
    if column not in obs:
        names = ", ".join(sorted(name for name in obs if not name.startswith("_"))) or "none"
        raise DataError(f"{name} has no obs column {column!r}; it has {names}")
    return stored_labels(obs[column], f"{name} obs column {column!r}", element)
