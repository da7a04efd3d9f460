"""AnnData files (.h5ad) and Zarr stores: `X` as CSR, CSC or dense, an obs column as labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from dlatent.errors import DataError
from dlatent.stores.chunked import arrays_below, check_below, read_rows
from dlatent.stores.files import directory_size, file_name, file_size, path_or_stream
from dlatent.stores.ingest.batches import BatchFunction, Reader, Values, Wanted, matrix_reader
from dlatent.stores.ingest.matrices import SparseParts, Stored, dense_batches
from dlatent.stores.labels import require_decoded
from dlatent.stores.nodes import check_complete, open_node
from dlatent.stores.table_files import needed


def open_h5ad(locations: Sequence[str], wanted: Wanted, directory: Path) -> Reader:
    """An AnnData file."""
    (location,) = locations
    try:
        root = needed("h5py", file_name(location)).File(path_or_stream(location), "r")
    except OSError as error:
        raise DataError(f"{location} is no readable h5ad (HDF5) file: {error}") from error
    return _reader(root, location, file_size(location), wanted, directory, close=root.close)


def open_zarr(locations: Sequence[str], wanted: Wanted, directory: Path) -> Reader:
    """An AnnData store."""
    (location,) = locations
    root = cast(Any, open_node(location, wanted.missing_chunks))
    check_complete(root)
    if hasattr(root, "keys"):
        for name in {"X", "obs", "var"} & set(root):
            check_below(root[name])
        for array in arrays_below(root["X"]) if "X" in root else ():
            require_decoded(array)
    return _reader(root, location, directory_size(location), wanted, directory)


def _reader(root: Any, location: str, size: int | None, wanted: Wanted, directory: Path, **known: Any) -> Reader:
    name = file_name(location)
    if not hasattr(root, "keys"):
        raise DataError(f"{name} is an array; expected the group of an AnnData store")
    if "X" not in root:
        raise DataError(f"{name} holds no matrix X; it has {', '.join(root.keys())}")

    def element(stored: Any) -> Any:
        """A column or an index, as anndata reads it."""
        wanted.limits.check_size(_size(stored), size, name)
        try:
            if hasattr(stored, "shape") and stored.attrs.get("encoding-type", "array") in ("array", "string-array"):
                return stored.asstr()[:] if hasattr(stored, "asstr") and stored.dtype.kind == "O" else stored[:]
            return needed("anndata.io", name).read_elem(stored)
        except DataError:
            raise
        except Exception as error:
            raise DataError(f"{name}: {stored.name} cannot be read: {error}") from error

    shape, read, least = _matrix(root["X"], name, directory)
    wanted.limits.check_size(least, size, name)
    return matrix_reader(
        name,
        size,
        shape,
        read,
        labels=_labels(root, str(wanted.labels), name, element) if wanted.labels is not None else None,
        ids=_index(root, "obs", name, element),
        source=f"{name} obs",
        label_name="label" if wanted.labels is None else wanted.labels,
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
    # By way of objects: NumPy does not turn its own variable-length strings into fixed-width text directly.
    return np.asarray(element(stored)).astype(object).astype(str)


def _labels(root: Any, column: str, name: str, element: Callable[[Any], Any]) -> Values:
    """An obs column as numpy: categories by name, missing values as None (or NaN for numbers)."""
    import pandas

    obs = root.get("obs", {})
    if column not in obs:
        names = ", ".join(sorted(name for name in obs if not name.startswith("_"))) or "none"
        raise DataError(f"{name} has no obs column {column!r}; it has {names}")
    values = pandas.Series(element(obs[column]))
    if isinstance(values.dtype, pandas.CategoricalDtype):
        values = values.astype(values.dtype.categories.dtype if not values.isna().any() else object)
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "iub":
        return np.asarray(values.to_numpy())
    if values.dtype.kind in "iu" and not values.isna().any():
        return np.asarray(values.to_numpy(dtype=np.int64))
    if pandas.api.types.is_numeric_dtype(values.dtype):
        return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(values.astype(object).where(values.notna(), None).to_numpy(dtype=object))
