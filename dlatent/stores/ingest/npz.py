"""Zip archives of NumPy arrays (.npz): scipy's `save_npz`, plain CSR parts, and dense matrices, read as streams.

Keys: scipy's own (`data`, `indices`, `indptr`, `shape`, `format`; `row` and `col` for COO); CSR parts `X_data`,
`X_indices`, `X_indptr`, `X_shape`; a dense `X`.  Beside them `y` (one label per row), `Y` (one column per output),
`class_names`, `terms` (names of the features) and `ids`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dlatent.errors import DataError
from dlatent.stores.byte_source import file_name, file_size, path_or_stream
from dlatent.stores.ingest.batches import Batch, Reader, RowColumns, Values, numbered
from dlatent.stores.ingest.sparse_parts import BatchFunction, SparseParts, sorted_once
from dlatent.stores.ingest.spill import PIECE, ColumnMajor, dense_cuts
from dlatent.stores.limits import DEFAULT, Limits
from dlatent.stores.member_stream import MemberStream

PARTS = ("X_data", "X_indices", "X_indptr", "X_shape")


class NpzReader(Reader):
    """Reads one archive; matrices stored by columns or in no order are sorted on disk in `directory`."""

    def __init__(
        self,
        location: str,
        directory: Path,
        *,
        labels: str | None = None,
        ids: str | None = None,
        terms: str | None = None,
        limits: Limits = DEFAULT,
    ) -> None:
        super().__init__(file_name(location), file_size(location))
        self._directory = directory
        self._limits = limits
        try:
            self._archive = zipfile.ZipFile(path_or_stream(location))
        except zipfile.BadZipFile:
            raise DataError(f"{location} is no npz archive, or is cut short; fetch it again or give format=") from None
        self.keys = [name.removesuffix(".npy") for name in self._archive.namelist()]
        rows, self._read = self._layout()
        self._rows = self._row_columns(rows, labels, ids)
        self.column_names = self._names(terms or "terms", required=terms is not None)

    def batches(self, batch_bytes: int) -> Iterator[Batch]:
        """The rows in order."""
        for start, features in self._read(batch_bytes):
            yield self._rows.batch(features, start, numbered(self.description, start))
            self.bytes_done = int((self.total_bytes or 0) * (start + features.shape[0]) / self._rows.rows)
        self.bytes_done = self.total_bytes or 0

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
            kind = self._whole("format").item()
            return self._sparse("", kind.decode() if isinstance(kind, bytes) else str(kind))
        missing = sorted(set(PARTS) - set(self.keys))
        some = f" (of the CSR parts, {', '.join(missing)} are missing)" if len(missing) < len(PARTS) else ""
        raise DataError(
            f"{self.description} holds no matrix{some}; expected the keys of scipy.sparse.save_npz, "
            f"{', '.join(PARTS)}, or X; it has {', '.join(self.keys)}"
        )

    def _sparse(self, prefix: str, layout: str) -> tuple[int, BatchFunction]:
        sizes = self._whole(f"{prefix}shape").ravel()
        if len(sizes) != 2:
            raise DataError(f"{self.description}: {prefix}shape is {sizes.tolist()}, expected two numbers")
        shape = (int(sizes[0]), int(sizes[1]))
        if min(shape) < 0:
            raise DataError(f"{self.description}: {prefix}shape is {sizes.tolist()}; the file is damaged")
        self.least_bytes = 8 * shape[0]
        self.columns = shape[1]
        parts = SparseParts(self.description, shape, lambda part: self._open(prefix + part))
        if layout == "csr":
            return shape[0], parts.csr_batches
        if layout not in ("csc", "coo"):
            raise DataError(f"{self.description} holds a {layout} matrix; save X.tocsr() with scipy.sparse.save_npz")
        sort = parts.sort_columns if layout == "csc" else parts.sort_triples
        return shape[0], sorted_once(lambda: sort(self._directory))

    def _dense(self) -> tuple[int, BatchFunction]:
        with self._open("X") as member:
            if len(member.shape) != 2:
                raise DataError(f"{self.description}: X has shape {member.shape}, expected samples × features")
            shape, dtype, by_columns = (member.shape[0], member.shape[1]), member.dtype, member.fortran_order
        self.columns = shape[1]
        unpacked: list[ColumnMajor] = []

        def read(batch_bytes: int) -> Iterator[tuple[int, Any]]:
            if by_columns and not unpacked:
                unpacked.append(ColumnMajor(self._unpack("X"), 0, shape, dtype))
            with self._open("X") as member:
                for start, stop in dense_cuts(shape, dtype.itemsize, batch_bytes):
                    block = unpacked[0].rows(start, stop) if unpacked else member.read((stop - start) * shape[1])
                    yield start, block.reshape(stop - start, shape[1])

        return shape[0], read

    def _unpack(self, key: str) -> Path:
        path = self._directory / key
        with self._open(key) as member, path.open("wb") as out:
            left = int(np.prod(member.shape))
            while left:
                piece = member.read(min(left, PIECE))
                out.write(piece.tobytes())
                left -= len(piece)
        return path

    def _row_columns(self, rows: int, labels: str | None, ids: str | None) -> RowColumns:
        found = self._first([labels] if labels else ["y", "Y"], required=labels is not None)
        values = self._whole(found) if found else None
        if values is not None and values.ndim not in (1, 2):
            raise DataError(
                f"{self.description}: {found} has shape {values.shape}; expected one label or row for each row"
            )
        self._class_names(values)
        named = self._first([ids] if ids else ["ids"], required=ids is not None)
        return RowColumns(
            rows,
            labels=values if values is not None and values.ndim == 1 else None,
            targets=values if values is not None and values.ndim == 2 else None,
            ids=self._whole(named).astype(str) if named else None,
            source=f"{self.description} key {found!r}" if found else self.description,
        )

    def _class_names(self, values: Values | None) -> None:
        """Names of the classes, where they fit the labels."""
        names = self._names("class_names", required=False)
        if values is not None and names is not None and len(names):
            wide = values.ndim == 2 and values.shape[1] == len(names)
            coded = values.ndim == 1 and values.dtype.kind in "iu" and int(values.max(initial=-1)) < len(names)
            self.categories = names if wide or coded else None

    def _names(self, key: str, *, required: bool) -> Values | None:
        found = self._first([key], required=required)
        names = self._whole(found).astype(str) if found else None
        if names is not None and required and self.columns is not None and len(names) != self.columns:
            raise DataError(f"{self.description}: {key} has {len(names)} names for {self.columns} features")
        return names

    def _first(self, wanted: list[str], *, required: bool) -> str | None:
        found = next((key for key in wanted if key in self.keys), None)
        if found is None and required:
            raise DataError(f"{self.description} has no key {wanted[0]!r}; it has {', '.join(self.keys)}")
        return found

    def _whole(self, key: str) -> Values:
        if key not in self.keys:
            raise DataError(f"{self.description} has no key {key!r}; it has {', '.join(self.keys)}")
        with self._open(key) as member:
            values = member.read(int(np.prod(member.shape)))
            return values.reshape(member.shape, order="F" if member.fortran_order else "C")

    def _open(self, key: str) -> MemberStream:
        if key not in self.keys:
            raise DataError(f"{self.description} has no key {key!r}; it has {', '.join(self.keys)}")
        return MemberStream(self._archive, key, self.description, self._limits)
