"""Reading the benchmarks' stores with Zarr alone, for peers and for limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import zarr

from benchmarks.generate import codec

STORE = "data.zarr"
Matrix = npt.NDArray[Any] | sp.csr_array


def path_of(folder: Path) -> str:
    """Where the matrix of a case lies."""
    return str(folder / STORE)


def load(path: str) -> Matrix:
    """The whole matrix in memory: dense, or CSR with indices as narrow as its numbers allow."""
    node = zarr.open(path, mode="r")
    if isinstance(node, zarr.Array):
        return np.asarray(node[:])
    group = node.get("X", node)
    shape = tuple(group.attrs["shape"])
    data, indices, indptr = (np.asarray(group[name][:]) for name in ("data", "indices", "indptr"))
    narrow = np.int32 if max(len(data), *shape) <= np.iinfo(np.int32).max else np.int64
    return sp.csr_array((data, indices.astype(narrow), indptr.astype(narrow)), shape=shape)


def bytes_of(matrix: Matrix) -> int:
    """Bytes of the values of a matrix, and of the indices of a sparse one."""
    if isinstance(matrix, np.ndarray):
        return int(matrix.nbytes)
    return int(matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes)


def tiny_store(folder: Path, rows: int = 64, chunk: int = 4) -> str:
    """A small store of many chunks, with the codec of all others: using it once imports what reading needs."""
    path = str(folder / "tiny.zarr")
    array = zarr.create_array(
        path, shape=(rows, 12), chunks=(chunk, 12), dtype="float64", compressors=codec(), overwrite=True
    )
    array[:] = np.random.default_rng(0).standard_normal((rows, 12))
    return path


def size_on_disk(path: str) -> int:
    """Bytes of all files of a store."""
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())


def pieces(path: str) -> list[tuple[str, int, int]]:
    """The stored arrays cut at their chunks along the first axis: (array inside the store, start, stop)."""
    node = zarr.open(path, mode="r")
    if isinstance(node, zarr.Array):
        return [("", start, stop) for start, stop in _cuts(node)]
    group = node.get("X", node)
    prefix = "X/" if "X" in node else ""
    return [(prefix + name, a, b) for name in ("data", "indices", "indptr") for a, b in _cuts(group[name])]


def _cuts(array: Any) -> list[tuple[int, int]]:
    step = array.chunks[0]
    return [(start, min(start + step, array.shape[0])) for start in range(0, array.shape[0], step)]


def read_pieces(path: str, wanted: list[tuple[str, int, int]]) -> int:
    """Read and decode some pieces, one after the other; the bytes of their values."""
    total = 0
    for name, start, stop in wanted:
        array = zarr.open_array(f"{path}/{name}".rstrip("/"), mode="r")
        total += int(array[start:stop].nbytes)
    return total
