"""Labels from a store or a file, for the estimators and the commands."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import zarr

from dlatent.containers import check_parts
from dlatent.errors import DataError, StoreError
from dlatent.stores.checked import MissingChunks, place_of
from dlatent.stores.chunked import arrays_below, read_all
from dlatent.stores.files import (
    DEFAULT,
    Archive,
    ByteSource,
    copied,
    directory_size,
    file_name,
    file_size,
    mapped_array,
    text_lines,
)
from dlatent.stores.labels import read_text, require_decoded
from dlatent.stores.location import guarded, is_node, local_path, place_text, zarr_location
from dlatent.stores.nodes import check_complete, open_node
from dlatent.stores.numbers import numbers_of
from dlatent.stores.table_files import ROW_NAMES, csv_frames, csv_names

MULTI = "Y"


def read_labels(
    path: str | os.PathLike[str], column: str | None = None, *, missing_chunks: MissingChunks = "raise"
) -> npt.NDArray[Any]:
    """Labels of all samples, as a vector (one label each) or a matrix (samples × targets).

    Parameters
    ----------
    path : path or URL
        An ingested or AnnData store (a column of `obs`, or `obsm/Y`), or a .npy, .npz (key `y` or `Y`), .csv or .tsv
        (with a header line) or .txt file (one per line, nothing for samples without label).
    column : str, optional
        The obs column, key or column name; needed where there are several.
    missing_chunks : {"raise", "fill"}, default "raise"
        Of a store, as for `dlatent.open_data`.

    Returns
    -------
    ndarray of shape (n_samples,) or (n_samples, n_targets)
        Numbers as stored; class names as text, or as objects with None where a sample has no label.

    Raises
    ------
    DataError
        Where there are no labels, or several and no `column`.

    Examples
    --------
    >>> import tempfile, dlatent
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "species.csv")
    ...     _ = file.write_text("plot,species\\n1,oak\\n2,elm\\n")
    ...     dlatent.read_labels(file, "species").tolist()
    ['oak', 'elm']
    """
    location = place_text(path)
    if is_node(zarr_location(location)):
        with guarded(location, StoreError):
            return _from_store(location, column, missing_chunks)
    suffix = Path(location).suffix.lower()
    readers: dict[str, Callable[[str, str | None], npt.NDArray[Any]]] = {
        ".npy": _from_npy,
        ".npz": _from_npz,
        ".csv": _from_table,
        ".tsv": _from_table,
        ".txt": lambda file, _: as_numbers([line.strip() for line in text_lines(file)]),
    }
    if suffix not in readers:
        raise DataError(f"{location} is no Zarr store and no {', '.join(readers)} file; labels are read from these")
    file_size(location)  # which says where there is no file
    with guarded(location):
        values = readers[suffix](location, column)
    if values.ndim not in (1, 2) or not len(values):
        raise DataError(f"{location} holds labels of shape {values.shape}; expected one row for each sample")
    return values


def as_numbers(texts: list[str]) -> npt.NDArray[Any]:
    """Texts as integers or floats where all of them are numbers (empty: NaN), else as text (empty: None).

    Integers that neither int64 nor float64 holds are text, too, so that they stay what they are.
    """
    numbers = numbers_of(texts)
    if numbers is not None:
        return numbers
    return np.array([text or None for text in texts], dtype=object) if "" in texts else np.array(texts)


def column_names(frame: zarr.Group) -> list[str]:
    """Names of the columns of an AnnData data frame."""
    return [str(name) for name in cast(list[Any], frame.attrs.get("column-order", []))]


def _from_store(location: str, column: str | None, missing_chunks: MissingChunks) -> npt.NDArray[Any]:
    root = open_node(location, missing_chunks)
    check_complete(root)
    size = directory_size(location)
    if not isinstance(root, zarr.Group):
        return read_all(_decoded(root, size))
    obs, obsm = root.get("obs"), root.get("obsm")
    columns = column_names(obs) if isinstance(obs, zarr.Group) else []
    several = isinstance(obsm, zarr.Group) and MULTI in obsm
    if column is None:
        column = columns[0] if len(columns) == 1 and not several else MULTI if several and not columns else None
    if isinstance(obs, zarr.Group) and column in columns:
        return stored_labels(_decoded(obs[str(column)], size), f"{location} obs column {column!r}")
    if isinstance(obsm, zarr.Group) and column is not None and column in obsm:
        return _matrix(_decoded(obsm[column], size))
    labels = ", ".join([*columns, *(obsm.keys() if isinstance(obsm, zarr.Group) else ())]) or "no labels"
    wanted = "needs the name of one column of labels" if column is None else f"has no labels {column!r}"
    raise DataError(f"{location} {wanted}; it has {labels}")


def _decoded(stored: Any, size: int | None) -> Any:
    """Labels of a store of so many bytes, if their numbers are what they say, and not far more than there are bytes."""
    for array in arrays_below(stored):
        require_decoded(array)
        DEFAULT.check_size(array.nbytes, size, place_of(array))
    return stored


def stored_labels(
    stored: Any, description: str, read: Callable[[Any], npt.NDArray[Any]] = read_text
) -> npt.NDArray[Any]:
    """A column of an AnnData data frame, in whose arrays `read` finds numbers or text: categories by name; what is
    missing is NaN among numbers, else None."""
    if hasattr(stored, "shape"):
        return read(stored)
    if "categories" in stored:
        codes, names = read(stored["codes"]), stored_labels(stored["categories"], description, read)
        if codes.dtype.kind not in "iu" or int(codes.min(initial=-1)) < -1 or int(codes.max(initial=-1)) >= len(names):
            raise StoreError(f"{description} has codes of classes that are not there; the store is damaged")
        if np.all(codes >= 0):
            return np.asarray(names[codes])
        if names.dtype.kind in "biuf":
            return np.asarray(np.append(names.astype(np.float64), np.nan)[codes])
        return np.asarray(np.array([*names, None], dtype=object)[codes])
    if "mask" in stored:
        values, mask = read(stored["values"]), read(stored["mask"])
        if values.dtype.kind in "biuf":
            return np.asarray(np.where(mask, np.nan, values) if mask.any() else values)
        return np.array([None if hidden else value for value, hidden in zip(values, mask, strict=True)], dtype=object)
    raise DataError(f"{description} is stored as {stored.attrs.get('encoding-type')!r}, which is not known here")


def _matrix(stored: Any) -> npt.NDArray[Any]:
    if isinstance(stored, zarr.Array):
        return read_all(stored)
    parts = (read_all(stored["data"]), read_all(stored["indices"]), read_all(stored["indptr"]))
    kind = sp.csc_array if stored.attrs.get("encoding-type") == "csc_matrix" else sp.csr_array
    matrix = kind(parts, shape=tuple(stored.attrs["shape"]))
    check_parts(matrix, place_of(stored))
    DEFAULT.check_size(math.prod(matrix.shape), matrix.data.nbytes + matrix.indptr.nbytes, "the table of outputs")
    binary = bool(np.all((matrix.data == 0) | (matrix.data == 1)))
    return np.asarray((matrix.astype(np.uint8) if binary else matrix).toarray())


def _from_npy(path: str, _: str | None) -> npt.NDArray[Any]:
    local = local_path(path)
    if local is not None:
        return np.array(mapped_array(local))
    with tempfile.TemporaryDirectory(prefix="dlatent-") as directory:
        return np.array(mapped_array(copied(path, Path(directory, file_name(path)))))


def _from_npz(path: str, column: str | None) -> npt.NDArray[Any]:
    with Archive(path) as archive:
        key = column or archive.first("y", MULTI) or (archive.keys[0] if len(archive.keys) == 1 else None)
        if key is None:
            raise DataError(f"{path} needs a key for the labels; it has {', '.join(archive.keys)}")
        return archive.array(key)


def _from_table(path: str, column: str | None) -> npt.NDArray[Any]:
    source = ByteSource(path)
    names = csv_names(source)
    columns = [name for name in names if name != ROW_NAMES]
    if column is None and len(columns) == 1:
        column = columns[0]
    if column not in columns:
        wanted = "needs the name of one column" if column is None else f"has no column {column!r}"
        raise DataError(f"{path} {wanted}; it has {', '.join(columns)}")
    (frame,) = csv_frames(source, names=names, usecols=[names.index(column)], dtype=str, keep_default_na=False)
    return as_numbers([text.strip() for text in frame[column].fillna("").tolist()])
