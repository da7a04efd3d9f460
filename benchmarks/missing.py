"""Data with missing entries, and how good a model of them is, by formulas of the benchmarks' own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from benchmarks.generate import CHUNK_BYTES, Array, Factors, codec
from benchmarks.stored import path_of

ROWS_AT_ONCE = 2000


def holes(shape: tuple[int, int], part: float, seed: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """Which entries are missing, at random."""
    rng = np.random.Generator(np.random.SFC64(seed))
    return np.asarray(rng.random(shape, dtype=np.float32) < part)


def write_with_holes(
    path: Path, model: Factors, rows: int, dtype: str, part: float, seed: int, chunk_bytes: int = CHUNK_BYTES
) -> Any:
    """Rows of the model in a Zarr array, a part of the entries NaN; chunk i has the seeds (seed, i)."""
    features = len(model.mean)
    step = max(1, chunk_bytes // (features * np.dtype(dtype).itemsize))
    array = zarr.create_array(
        path, shape=(rows, features), chunks=(min(step, rows), features), dtype=dtype, compressors=codec()
    )
    for index, start in enumerate(range(0, rows, step)):
        stop = min(rows, start + step)
        values = model.rows(stop - start, (seed, index), dtype)
        values[holes(values.shape, part, (seed + 1, index))] = np.nan
        array[start:stop] = values
    return array


def posteriors(
    data: npt.NDArray[Any], loadings: Array, mean: Array, noise: Array
) -> Iterator[tuple[slice, Array, float]]:
    """For rows at a time: where they are, their scores (n, K), and the log-likelihood of their observed entries."""
    k = loadings.shape[1]
    outer = (loadings[:, :, None] * loadings[:, None, :] / noise[:, None, None]).reshape(len(loadings), -1)
    for start in range(0, len(data), ROWS_AT_ONCE):
        at = slice(start, min(start + ROWS_AT_ONCE, len(data)))
        rows = data[at].astype(np.float64) - mean
        seen = ~np.isnan(rows)
        rows[~seen] = 0.0
        precision = (seen @ outer).reshape(-1, k, k) + np.eye(k)
        projected = rows @ (loadings / noise[:, None])
        scores = np.linalg.solve(precision, projected[:, :, None])[:, :, 0]
        value = (seen * np.log(2 * np.pi * noise) + rows**2 / noise).sum() + np.linalg.slogdet(precision)[1].sum()
        yield at, scores, float(-0.5 * (value - (projected * scores).sum()))


def packed(loadings: Array, mean: Array, noise: Any) -> Array:
    """Parameters as one array (K + 2, D): loadings, mean, and noise variance of each feature."""
    return np.vstack([loadings.T, mean, np.broadcast_to(noise, mean.shape)])


def judge(folder: Path, scale: float, components: str) -> dict[str, float]:
    """Log-likelihood of the observed entries under packed parameters."""
    found = np.load(components)
    data = zarr.open_array(path_of(folder), mode="r")
    value = 0.0
    for start in range(0, data.shape[0], data.chunks[0]):
        rows = np.asarray(data[start : start + data.chunks[0]])
        value += sum(part for _, _, part in posteriors(rows, found[:-2].T, found[-2], found[-1]))
    return {"log_likelihood": value}
