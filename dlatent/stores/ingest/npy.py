"""Dense matrices in NumPy's own file format (.npy), memory-mapped; one from elsewhere is copied for that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.errors import DataError
from dlatent.stores.byte_source import copied, file_name, file_size
from dlatent.stores.ingest.batches import MatrixReader, RowColumns
from dlatent.stores.ingest.spill import ColumnMajor, dense_cuts
from dlatent.stores.location import local_path
from dlatent.stores.numpy_files import mapped_array


class NpyReader(MatrixReader):
    """Reads a two-dimensional array of numbers row by row."""

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

        by_columns = mapped.flags.f_contiguous and not mapped.flags.c_contiguous
        self._read = ColumnMajor(path, offset, shape, dtype).batches if by_columns else read
