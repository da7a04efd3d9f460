"""dask-ml: its estimators on a dask array that reads the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.methods.from_zarr import measured
from benchmarks.task import Row


def pca(folder: Path, scale: float, n_components: int, power_iterations: int) -> Row:
    """PCA(svd_solver="randomized")."""
    from dask_ml.decomposition import PCA

    def fit(x: Any, k: int) -> Any:
        model = PCA(k, svd_solver="randomized", iterated_power=power_iterations, random_state=0)
        return model.fit(x).components_

    return measured(folder, n_components, fit)


def incremental_pca(folder: Path, scale: float, n_components: int) -> Row:
    """IncrementalPCA, which takes the blocks one after the other."""
    from dask_ml.decomposition import IncrementalPCA

    return measured(folder, n_components, lambda x, k: IncrementalPCA(k, random_state=0).fit(x).components_)


def truncated_svd(folder: Path, scale: float, n_components: int) -> Row:
    """TruncatedSVD(algorithm="randomized"), which does not centre: another subspace where means matter."""
    from dask_ml.decomposition import TruncatedSVD

    def fit(x: Any, k: int) -> Any:
        return TruncatedSVD(k, algorithm="randomized", n_iter=4, random_state=0).fit(x).components_

    return measured(folder, n_components, fit)
