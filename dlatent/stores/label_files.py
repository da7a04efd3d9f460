"""Labels from a store or a file, for the estimators and the commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import zarr

from dlatent.errors import DataError
from dlatent.stores.chunked import read_all
from dlatent.stores.labels import read_text
from dlatent.stores.location import is_node, local_path, zarr_location
from dlatent.stores.open import check_complete, open_node
from dlatent.stores.strict import MissingChunks

MULTI = "Y"


def read_labels(
    path: str | os.PathLike[str], column: str | None = None, *, missing_chunks: MissingChunks = "raise"
) -> npt.NDArray[Any]:
    """Labels of all instances, as a vector (one label each) or a matrix (instances × outputs).

    Parameters: `path`, an ingested or AnnData store (a column of `obs`, or `obsm/Y`), or a .npy, .npz (key `y` or `Y`),
    .csv or .tsv (with a header line) or .txt (one per line, nothing for unlabelled) file; `column`, the obs column, key
    or column name, needed where there are several; `missing_chunks`, of a store, as for `dlatent.stores.open.open`.
    Returns: numbers as stored; class names as text, or as objects with None where an instance is unlabelled.
    Errors: DataError where there are no labels, or several and no `column`.
    """
    location = os.fspath(path)
    if is_node(zarr_location(location)):
        return _from_store(location, column, missing_chunks)
    suffix = Path(location).suffix.lower()
    readers = {".npy": _from_npy, ".npz": _from_npz, ".csv": _from_table, ".tsv": _from_table, ".txt": _from_text}
    if suffix not in readers:
        raise DataError(f"{location} is no Zarr store and no {', '.join(readers)} file; labels are read from these")
    local = local_path(location)
    if local is None or not local.is_file():
        raise DataError(f"{location} does not exist or is no file on this machine; check the path")
    values = readers[suffix](local, column)
    if values.ndim not in (1, 2) or not len(values):
        raise DataError(f"{location} holds labels of shape {values.shape}; expected one row for each instance")
    return values


def as_numbers(texts: list[str]) -> npt.NDArray[Any]:
    """Texts as integers or floats where all of them are numbers (empty: NaN), else as text (empty: None)."""
    empty = [not text for text in texts]
    try:
        numbers = np.array([float(text) if text else np.nan for text in texts])
    except ValueError:
        return np.array([text or None for text in texts], dtype=object) if any(empty) else np.array(texts)
    whole = np.all(np.isfinite(numbers)) and np.all(numbers == np.floor(numbers))
    return numbers.astype(np.int64) if whole else numbers


def column_names(frame: zarr.Group) -> list[str]:
    """Names of the columns of an AnnData data frame."""
    return [str(name) for name in cast(list[Any], frame.attrs.get("column-order", []))]


def _from_store(location: str, column: str | None, missing_chunks: MissingChunks) -> npt.NDArray[Any]:
    root = open_node(location, missing_chunks)
    check_complete(root)
    if not isinstance(root, zarr.Group):
        return read_all(root)
    obs, obsm = root.get("obs"), root.get("obsm")
    columns = column_names(obs) if isinstance(obs, zarr.Group) else []
    several = isinstance(obsm, zarr.Group) and MULTI in obsm
    if column is None:
        column = columns[0] if len(columns) == 1 and not several else MULTI if several and not columns else None
    if isinstance(obs, zarr.Group) and column in columns:
        return _column(obs[str(column)], f"{location} obs column {column!r}")
    if isinstance(obsm, zarr.Group) and column is not None and column in obsm:
        return _matrix(obsm[column])
    given = ", ".join([*columns, *(obsm.keys() if isinstance(obsm, zarr.Group) else ())]) or "no labels"
    wanted = "needs the name of one column of labels" if column is None else f"has no labels {column!r}"
    raise DataError(f"{location} {wanted}; it has {given}")


def _column(stored: Any, description: str) -> npt.NDArray[Any]:
    if isinstance(stored, zarr.Array):
        return read_text(stored)
    if "categories" in stored:
        codes, names = read_all(stored["codes"]), read_text(stored["categories"])
        if np.all(codes >= 0):
            return np.asarray(names[codes])
        if names.dtype.kind in "biuf":
            return np.asarray(np.append(names.astype(np.float64), np.nan)[codes])
        return np.asarray(np.array([*names, None], dtype=object)[codes])
    if "mask" in stored:
        values, mask = read_all(stored["values"]), read_all(stored["mask"])
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
    binary = bool(np.all((matrix.data == 0) | (matrix.data == 1)))
    return np.asarray((matrix.astype(np.uint8) if binary else matrix).toarray())


def _from_npy(path: Path, column: str | None) -> npt.NDArray[Any]:
    return np.asarray(_load(path))


def _from_npz(path: Path, column: str | None) -> npt.NDArray[Any]:
    with _load(path) as archive:
        key = column or next((name for name in ("y", MULTI) if name in archive.files), None)
        if key is None and len(archive.files) == 1:
            key = archive.files[0]
        if key not in archive.files:
            wanted = "needs a key for the labels" if key is None else f"has no key {key!r}"
            raise DataError(f"{path} {wanted}; it has {', '.join(archive.files)}")
        try:
            return np.asarray(archive[key])
        except ValueError as error:
            raise DataError(f"{path} key {key!r} cannot be read ({error}); save it with array.astype(str)") from error


def _load(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(
            f"{path} is no readable NumPy file ({error}); save labels as numbers or fixed-width text"
        ) from error


def _from_table(path: Path, column: str | None) -> npt.NDArray[Any]:
    import csv

    with path.open(newline="", encoding="utf-8") as stream:
        rows = csv.reader(stream, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        header = next(rows, [])
        if column is None and len(header) == 1:
            column = header[0]
        if column not in header:
            wanted = "needs the name of one column" if column is None else f"has no column {column!r}"
            raise DataError(f"{path} {wanted}; it has {', '.join(header)}")
        place = header.index(column)
        try:
            return as_numbers([row[place].strip() if row else "" for row in rows])
        except IndexError:
            raise DataError(f"{path} line {rows.line_num}: too few columns") from None


def _from_text(path: Path, column: str | None) -> npt.NDArray[Any]:
    return as_numbers([line.strip() for line in path.read_text(encoding="utf-8").splitlines()])
