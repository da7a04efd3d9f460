"""dask.array: the compressed SVD, and the eigenvectors of a covariance matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.methods.from_zarr import measured
from benchmarks.task import Row


def svd_compressed(folder: Path, scale: float, n_components: int, power_iterations: int) -> Row:
    """`dask.array.linalg.svd_compressed` of the centred rows."""
    import dask.array as da

    def fit(x: Any, k: int) -> npt.NDArray[Any]:
        *_, axes = da.linalg.svd_compressed(x - x.mean(axis=0), k, n_power_iter=power_iterations, seed=0)
        return np.asarray(axes.compute())

    return measured(folder, n_components, fit)


def covariance_eigh(folder: Path, scale: float, n_components: int) -> Row:
    """XᵀX and the mean in one go, then the leading eigenvectors by LAPACK on the driver."""
    import dask
    import scipy.linalg as la

    def fit(x: Any, k: int) -> npt.NDArray[Any]:
        gram, mean = dask.compute(x.T @ x, x.mean(axis=0))
        width = len(mean)
        covariance = gram / x.shape[0] - np.outer(mean, mean)
        return np.asarray(la.eigh(covariance, subset_by_index=[width - k, width - 1])[1].T[::-1])

    return measured(folder, n_components, fit)
