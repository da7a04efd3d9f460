"""What peers on Dask share: the cluster that dlatent gets, the store as a dask array, and a count of what they read."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from benchmarks.cluster import bare_cluster
from benchmarks.processes import Stopwatch
from benchmarks.stored import path_of, tiny_store
from benchmarks.task import Row

Fit = Callable[[Any, int], npt.NDArray[Any]]
"""Components (K, D) of a dask array, for a number of components."""


class Counted:
    """A Zarr array that notes how many bytes were read from it, by any process, in a file."""

    def __init__(self, path: str, log: Path) -> None:
        array = zarr.open_array(path, mode="r")
        self.path, self.log, self.shape, self.dtype, self.ndim = path, log, array.shape, array.dtype, array.ndim
        self.chunks = array.chunks

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        values = np.asarray(zarr.open_array(self.path, mode="r")[key])
        with self.log.open("a") as lines:  # appending a short line is atomic
            lines.write(f"{values.nbytes}\n")
        return values

    def bytes_read(self) -> int:
        """Bytes of all values read so far."""
        return sum(map(int, self.log.read_text().split())) if self.log.exists() else 0


def measured(folder: Path, n_components: int, fit: Fit) -> Row:
    """A fit on two worker processes, after one of a tiny store so that imports are behind us."""
    import dask.array as da

    with bare_cluster(), tempfile.TemporaryDirectory(prefix="dlatent-peer-") as scratch:
        place = Path(scratch)
        for _ in range(2):  # two fits, so that each of two workers has had tasks
            fit(da.from_zarr(tiny_store(place, rows=256, chunk=32)), 2)
        source = Counted(path_of(folder), place / "read.txt")
        data = da.from_array(source, chunks=source.chunks, name="data", asarray=False)
        with Stopwatch() as watch:
            components = fit(data, n_components)
        read = source.bytes_read()
    return {
        "from": "Zarr",
        "fit_seconds": watch.seconds,
        "fit_cpu_seconds": watch.cpu_seconds,
        "bytes_read": read,
        "passes": round(read / (np.prod(source.shape) * source.dtype.itemsize), 2),
        "components": np.asarray(components),
    }
