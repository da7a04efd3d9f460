"""AnnData files (.h5ad) and Zarr stores: `X` as CSR, CSC or dense, an obs column as labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

from dlatent.errors import DataError
from dlatent.stores.byte_source import directory_size, file_name, file_size, path_or_stream
from dlatent.stores.chunked import read_rows
from dlatent.stores.codecs import arrays_below, check_below
from dlatent.stores.encoded import require_decoded
from dlatent.stores.ingest.batches import BatchFunction, MatrixReader, RowColumns, Values
from dlatent.stores.ingest.sparse_parts import SliceStream, SparseParts
from dlatent.stores.ingest.spill import dense_cuts
from dlatent.stores.limits import DEFAULT, Limits
from dlatent.stores.open import check_complete, open_node
from dlatent.stores.strict import MissingChunks
from dlatent.stores.table_files import needed


class AnnotatedReader(MatrixReader):
    """Reads `X` of an AnnData file by row blocks; a matrix stored by columns is sorted on disk in `directory`."""

    def __init__(
        self,
        location: str,
        directory: Path,
        *,
        zarr_store: bool,
        labels: str | None = None,
        missing_chunks: MissingChunks = "raise",
        limits: Limits = DEFAULT,
    ) -> None:
        size = directory_size(location) if zarr_store else file_size(location)
        super().__init__(file_name(location), size)
        self._limits = limits
        self._location = location
        self._zarr_store = zarr_store
        self._directory = directory
        self._root = cast(Any, open_node(location, missing_chunks)) if zarr_store else self._open_h5ad()
        if zarr_store:
            check_complete(self._root)
        if not hasattr(self._root, "keys"):
            raise DataError(f"{self.description} is an array; expected the group of an AnnData store")
        if "X" not in self._root:
            raise DataError(f"{self.description} holds no matrix X; it has {', '.join(self._root.keys())}")
        if zarr_store:
            for name in {"X", "obs", "var"} & set(self._root):
                check_below(self._root[name])
            for array in arrays_below(self._root["X"]):
                require_decoded(array)
        shape, self._read = self._layout(self._root["X"])
        self.rows, self.columns = shape
        self._limits.check_size(self.least_bytes, size, self.description)
        self._rows = RowColumns(
            shape[0], labels=self._labels(labels), ids=self._index("obs"), source=f"{self.description} obs"
        )
        self.column_names = self._index("var")

    def close(self) -> None:
        """Close the HDF5 file."""
        if not self._zarr_store:
            self._root.close()

    def _layout(self, stored: Any) -> tuple[tuple[int, int], BatchFunction]:
        if hasattr(stored, "shape"):
            self.least_bytes = math.prod(stored.shape) * stored.dtype.itemsize
            return _dense(_sliceable(stored), self.description)
        kind = stored.attrs.get("encoding-type", f"{stored.attrs.get('h5sparse_format', '')}_matrix")
        sizes = stored.attrs.get("shape", stored.attrs.get("h5sparse_shape", ()))
        if kind not in ("csr_matrix", "csc_matrix") or len(sizes) != 2:
            raise DataError(f"{self.description}: X is stored as {kind!r}; expected csr_matrix, csc_matrix or an array")
        parts = SparseParts(f"{self.description}: X", sizes, lambda part: SliceStream(_sliceable(stored[part])))
        self.least_bytes = 8 * parts.shape[0] + sum(self._size(stored[part]) for part in ("data", "indices", "indptr"))
        return parts.shape, parts.batches(kind.removesuffix("_matrix"), self._directory)

    def _labels(self, column: str | None) -> Values | None:
        if column is None:
            return None
        obs = self._root.get("obs", {})
        if column not in obs:
            given = ", ".join(sorted(name for name in obs if not name.startswith("_"))) or "none"
            raise DataError(f"{self.description} has no obs column {column!r}; it has {given}")
        self.label_name = column
        return plain_values(self._element(obs[column]))

    def _element(self, stored: Any) -> Any:
        """A column or an index, as anndata reads it."""
        self._limits.check_size(self._size(stored), self.total_bytes, self.description)
        try:
            if hasattr(stored, "shape") and stored.attrs.get("encoding-type", "array") in ("array", "string-array"):
                return stored.asstr()[:] if hasattr(stored, "asstr") and stored.dtype.kind == "O" else stored[:]
            return needed("anndata.io", self.description).read_elem(stored)
        except DataError:
            raise
        except Exception as error:
            raise DataError(f"{self.description}: {stored.name} cannot be read: {error}") from error

    def _size(self, stored: Any) -> int:
        """Bytes of an array, or of all arrays of a group, as their shapes say."""
        if hasattr(stored, "shape"):
            return int(math.prod(stored.shape) * max(stored.dtype.itemsize, 1))
        return sum(self._size(stored[name]) for name in stored)

    def _index(self, frame: str) -> Values | None:
        if frame not in self._root or "_index" not in self._root[frame].attrs:
            return None
        stored = self._root[frame][self._root[frame].attrs["_index"]]
        if len(getattr(stored, "shape", ())) != 1:
            raise DataError(f"{self.description}: the names in {frame} are no list; the file is damaged")
        # By way of objects: NumPy does not turn its own variable-length strings into fixed-width text directly.
        return np.asarray(self._element(stored)).astype(object).astype(str)

    def _open_h5ad(self) -> Any:
        try:
            return needed("h5py", self.description).File(path_or_stream(self._location), "r")
        except OSError as error:
            raise DataError(f"{self._location} is no readable h5ad (HDF5) file: {error}") from error


class _ZarrSlices:
    """A Zarr array of which slices are read with errors that name the chunk."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.shape, self.dtype, self.chunks = array.shape, array.dtype, array.chunks

    def __getitem__(self, rows: slice) -> Values:
        start, stop, _ = rows.indices(self.shape[0])
        return read_rows(self._array, start, stop)


def _sliceable(stored: Any) -> Any:
    """An HDF5 dataset as it is, a Zarr array with the errors of this library."""
    return _ZarrSlices(stored) if hasattr(stored, "store_path") else stored


def plain_values(values: Any) -> Values:
    """Values of an obs column as numpy: categories by name, missing ones as None (or NaN for numbers)."""
    import pandas

    made = pandas.Series(values)
    if isinstance(made.dtype, pandas.CategoricalDtype):
        made = made.astype(made.dtype.categories.dtype if not made.isna().any() else object)
    if isinstance(made.dtype, np.dtype) and made.dtype.kind in "iub":
        return np.asarray(made.to_numpy())
    if made.dtype.kind in "iu" and not made.isna().any():
        return np.asarray(made.to_numpy(dtype=np.int64))
    if pandas.api.types.is_numeric_dtype(made.dtype):
        return np.asarray(made.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(made.astype(object).where(made.notna(), None).to_numpy(dtype=object))


def _dense(stored: Any, description: str) -> tuple[tuple[int, int], BatchFunction]:
    if len(stored.shape) != 2:
        raise DataError(f"{description}: X has {len(stored.shape)} dimension(s), expected samples × features")
    shape = (int(stored.shape[0]), int(stored.shape[1]))
    chunk = (stored.chunks or (1,))[0]

    def read(batch_bytes: int) -> Iterator[tuple[int, Any]]:
        for start, stop in dense_cuts(shape, stored.dtype, batch_bytes, chunk):  # so that none is decoded twice
            yield start, np.asarray(stored[start:stop])

    return shape, read
