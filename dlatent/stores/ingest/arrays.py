"""NumPy's files: dense matrices (.npy), memory-mapped, and zip archives of arrays (.npz), read as streams.

Keys of an archive: scipy's own (`data`, `indices`, `indptr`, `shape`, `format`; `row` and `col` for COO); CSR parts
`X_data`, `X_indices`, `X_indptr`, `X_shape`; a dense `X`.  Beside them `y` (one label per row), `Y` (one column per
output), `class_names`, `terms` (names of the features) and `ids`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.errors import DataError
from dlatent.stores.byte_source import copied, file_name, file_size
from dlatent.stores.ingest.batches import BatchFunction, MatrixReader, RowColumns, Values
from dlatent.stores.ingest.sparse_parts import SparseParts
from dlatent.stores.ingest.spill import PIECE, ColumnMajor, dense_cuts
from dlatent.stores.location import local_path
from dlatent.stores.numpy_files import Archive, mapped_array

PARTS = ("X_data", "X_indices", "X_indptr", "X_shape")


class NpyReader(MatrixReader):
    """Reads a two-dimensional array of numbers row by row; a file from elsewhere is copied to `directory`."""

    def __init__(self, location: str, directory: Path) -> None:
        super().__init__(file_name(location), file_size(location))
        path = local_path(location) or copied(location, directory / self.description)
        mapped = mapped_array(path)
        if mapped.ndim != 2:
            raise DataError(f"{location} has {mapped.ndim} dimension(s), expected samples × features")
        rows, columns = shape = (mapped.shape[0], mapped.shape[1])
        dtype, offset = mapped.dtype, int(getattr(mapped, "offset", 0))
        self.columns, self._rows = columns, RowColumns(rows)

        def read(batch_bytes: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
            for start, stop in dense_cuts(shape, dtype, batch_bytes):
                # The file is mapped anew for each batch, so that its pages do not stay in memory.
                yield start, np.array(mapped_array(path)[start:stop])

        # Not mapped: a few rows of each column would bring most of the file into memory.
        by_columns = mapped.flags.f_contiguous and not mapped.flags.c_contiguous
        self._read = ColumnMajor(path, offset, shape, dtype).batches if by_columns else read


class NpzReader(MatrixReader):
    """Reads one archive; matrices stored by columns or in no order are sorted on disk in `directory`."""

    def __init__(
        self,
        location: str,
        directory: Path,
        *,
        labels: str | None = None,
        ids: str | None = None,
        terms: str | None = None,
    ) -> None:
        super().__init__(file_name(location), file_size(location))
        self._directory = directory
        self._archive = Archive(location)
        self.keys = self._archive.keys
        rows, self._read = self._layout()
        self._rows = self._row_columns(rows, labels, ids)
        self.column_names = self._names(terms, "terms")

    def close(self) -> None:
        """Close the archive."""
        self._archive.close()

    def _layout(self) -> tuple[int, BatchFunction]:
        """Number of rows, and the function that reads them."""
        if set(PARTS) <= set(self.keys):
            return self._sparse("X_", "csr")
        if "X" in self.keys:
            return self._dense()
        if {"format", "shape", "data"} <= set(self.keys):
            kind = self._archive.whole("format").item()
            return self._sparse("", kind.decode() if isinstance(kind, bytes) else str(kind))
        missing = sorted(set(PARTS) - set(self.keys))
        some = f" (of the CSR parts, {', '.join(missing)} are missing)" if len(missing) < len(PARTS) else ""
        raise DataError(
            f"{self.description} holds no matrix{some}; expected the keys of scipy.sparse.save_npz, "
            f"{', '.join(PARTS)}, or X; it has {', '.join(self.keys)}"
        )

    def _sparse(self, prefix: str, layout: str) -> tuple[int, BatchFunction]:
        sizes = self._archive.whole(f"{prefix}shape").ravel().tolist()
        parts = SparseParts(self.description, sizes, lambda part: self._archive.stream(prefix + part))
        rows, self.columns = parts.shape
        self.least_bytes = 8 * rows
        return rows, parts.batches(layout, self._directory)

    def _dense(self) -> tuple[int, BatchFunction]:
        with self._archive.stream("X") as member:
            if len(member.shape) != 2:
                raise DataError(f"{self.description}: X has shape {member.shape}, expected samples × features")
            shape, dtype, by_columns = (member.shape[0], member.shape[1]), member.dtype, member.fortran_order
        rows, self.columns = shape

        def read(batch_bytes: int) -> Iterator[tuple[int, Any]]:
            with self._archive.stream("X") as member:
                for start, stop in dense_cuts(shape, dtype, batch_bytes):
                    yield start, member.read((stop - start) * shape[1]).reshape(stop - start, shape[1])

        def unpacked(batch_bytes: int) -> Iterator[tuple[int, Any]]:
            return ColumnMajor(self._unpack("X"), 0, shape, dtype).batches(batch_bytes)

        return rows, unpacked if by_columns else read

    def _unpack(self, key: str) -> Path:
        path = self._directory / key
        with self._archive.stream(key) as member, path.open("wb") as out:
            left = math.prod(member.shape)
            while left:
                piece = member.read(min(left, PIECE))
                out.write(piece.tobytes())
                left -= len(piece)
        return path

    def _row_columns(self, rows: int, labels: str | None, ids: str | None) -> RowColumns:
        found = labels or self._archive.first("y", "Y")
        values = self._archive.whole(found) if found else None
        if values is not None and values.ndim not in (1, 2):
            raise DataError(
                f"{self.description}: {found} has shape {values.shape}; expected one label or row for each row"
            )
        self._class_names(values)
        named = ids or self._archive.first("ids")
        return RowColumns(
            rows,
            labels=values if values is not None and values.ndim == 1 else None,
            targets=values if values is not None and values.ndim == 2 else None,
            ids=self._archive.whole(named).astype(str) if named else None,
            source=f"{self.description} key {found!r}" if found else self.description,
        )

    def _class_names(self, values: Values | None) -> None:
        """Names of the classes, where they fit the labels."""
        names = self._names(None, "class_names")
        if values is not None and names is not None and len(names):
            wide = values.ndim == 2 and values.shape[1] == len(names)
            coded = values.ndim == 1 and values.dtype.kind in "iu" and int(values.max(initial=-1)) < len(names)
            self.categories = names if wide or coded else None

    def _names(self, wanted: str | None, usual: str) -> Values | None:
        """The names under the key that is wanted, one for each feature, or those under the usual key, if any."""
        found = wanted or self._archive.first(usual)
        names = self._archive.whole(found).astype(str) if found else None
        if names is not None and wanted and self.columns is not None and len(names) != self.columns:
            raise DataError(f"{self.description}: {wanted} has {len(names)} names for {self.columns} features")
        return names
