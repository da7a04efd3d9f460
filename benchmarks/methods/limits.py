"""What the machine allows: reading and decoding the store once, one Gram matrix, one sparse pass."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cluster import WORKERS
from benchmarks.processes import Stopwatch
from benchmarks.stored import load, path_of, pieces, read_pieces
from benchmarks.task import Row


def decode(folder: Path, scale: float) -> Row:
    """Read and decode every chunk once, with two processes that do nothing else."""
    path = path_of(folder)
    every = pieces(path)
    shares = [every[index::WORKERS] for index in range(WORKERS)]
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        list(pool.map(read_pieces, [path] * WORKERS, [[]] * WORKERS))  # start the processes and import Zarr there
        with Stopwatch() as watch:
            read = sum(pool.map(read_pieces, [path] * WORKERS, shares))
    return {"fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds, "bytes_read": read, "passes": 1}


def gram(folder: Path, scale: float) -> Row:
    """XᵀX of the matrix in memory with all cores, block by block; the time of the products alone."""
    matrix = load(path_of(folder))
    assert isinstance(matrix, np.ndarray)
    step = max(1, 16 * 2**20 // (matrix.shape[1] * matrix.itemsize))
    total = np.zeros((matrix.shape[1], matrix.shape[1]))
    with Stopwatch() as watch:
        for start in range(0, len(matrix), step):
            block = matrix[start : start + step]
            total += block.T @ block
    return {"fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds, "trace": float(np.trace(total))}


def sparse_pass(folder: Path, scale: float, columns: int) -> Row:
    """XᵀXW of the matrix in memory, two sparse × thin products, with one thread per core over row blocks."""
    matrix = load(path_of(folder))
    weights = np.random.default_rng(0).standard_normal((matrix.shape[1], columns))
    bounds = np.linspace(0, matrix.shape[0], WORKERS + 1).astype(int)
    blocks = [matrix[a:b] for a, b in pairwise(bounds)]

    def product(block: Any) -> Any:
        return block.T @ (block @ weights)

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(product, blocks))
        with Stopwatch() as watch:
            total = sum(pool.map(product, blocks))
    return {"fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds, "norm": float(np.linalg.norm(total))}
