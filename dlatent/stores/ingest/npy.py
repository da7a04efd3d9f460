"""Dense matrices in NumPy's own file format (.npy), memory-mapped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.errors import DataError
from dlatent.stores.byte_source import file_name, file_size
from dlatent.stores.ingest.batches import Batch, Reader, numbered
from dlatent.stores.ingest.spill import ColumnMajor, dense_cuts
from dlatent.stores.location import local_path


class NpyReader(Reader):
    """Reads a two-dimensional array of numbers row by row."""

    def __init__(self, location: str) -> None:
        super().__init__(file_name(location), file_size(location))
        path = local_path(location)
        if path is None:
            raise DataError(f"{location}: npy files are mapped into memory and must lie on this machine; copy it first")
        self._path = path
        mapped = self._map()
        if mapped.ndim != 2:
            raise DataError(f"{location} has {mapped.ndim} dimension(s), expected samples × features")
        self.columns = mapped.shape[1]
        self._shape = (mapped.shape[0], mapped.shape[1])
        self._dtype = mapped.dtype
        by_columns = mapped.flags.f_contiguous and not mapped.flags.c_contiguous
        offset = int(getattr(mapped, "offset", 0))
        self._by_columns = ColumnMajor(path, offset, self._shape, mapped.dtype) if by_columns else None

    def batches(self, batch_bytes: int) -> Iterator[Batch]:
        """The rows in order."""
        for start, stop in dense_cuts(self._shape, self._dtype.itemsize, batch_bytes):
            # A mapping is opened anew for each batch, so that its pages do not stay in memory.
            block = self._by_columns.rows(start, stop) if self._by_columns else np.array(self._map()[start:stop])
            yield Batch(block, numbered(self.description, start))
            self.bytes_done = int((self.total_bytes or 0) * stop / self._shape[0])

    def _map(self) -> npt.NDArray[Any]:
        try:
            mapped: npt.NDArray[Any] = np.load(self._path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise DataError(
                f"{self._path} is no readable npy file of numbers ({error}); save it with numpy.save(path, array)"
            ) from error
        if not isinstance(mapped, np.ndarray):
            raise DataError(f"{self._path} is an npz archive; rename it or give format='npz'")
        return mapped
