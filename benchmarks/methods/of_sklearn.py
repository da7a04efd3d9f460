"""scikit-learn: the matrix is in memory before the clock starts, but for IncrementalPCA, which reads the store."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.processes import Stopwatch
from benchmarks.stored import bytes_of, load, path_of, tiny_store
from benchmarks.task import Row


def _measured(folder: Path, model: Any) -> tuple[Any, Row]:
    from sklearn.base import clone

    with tempfile.TemporaryDirectory(prefix="dlatent-warm-") as place:  # imports aside, as for all methods
        clone(model).set_params(n_components=2).fit(load(tiny_store(Path(place))))
    with Stopwatch() as loading:
        matrix = load(path_of(folder))
    with Stopwatch() as watch:
        model.fit(matrix)
    return matrix, {
        "from": "memory",
        "fit_seconds": watch.seconds,
        "fit_cpu_seconds": watch.cpu_seconds,
        "load_seconds": loading.seconds,
        "bytes_read": bytes_of(matrix),
    }


def pca(folder: Path, scale: float, n_components: int, solver: str) -> Row:
    """PCA with one of its solvers."""
    from sklearn.decomposition import PCA

    model = PCA(n_components, svd_solver=solver, random_state=0)
    return _measured(folder, model)[1] | {"components": model.components_}


def truncated_svd(folder: Path, scale: float, n_components: int) -> Row:
    """TruncatedSVD, which does not centre: another subspace where means matter."""
    from sklearn.decomposition import TruncatedSVD

    model = TruncatedSVD(n_components, random_state=0)
    return _measured(folder, model)[1] | {"components": model.components_}


def factor_analysis(folder: Path, scale: float, n_components: int) -> Row:
    """FactorAnalysis with its defaults, and the log-likelihood of what it found."""
    from sklearn.decomposition import FactorAnalysis

    model = FactorAnalysis(n_components, random_state=0)
    matrix, row = _measured(folder, model)
    return row | {"log_likelihood": float(model.score(matrix)) * len(matrix), "passes": int(model.n_iter_)}


def incremental_pca(folder: Path, scale: float, n_components: int, rows: int = 4096) -> Row:
    """IncrementalPCA over the chunks of the store, at least `rows` rows at a time."""
    import zarr
    from sklearn.decomposition import IncrementalPCA

    array = zarr.open_array(path_of(folder), mode="r")
    step = array.chunks[0] * -(-rows // array.chunks[0])
    model, read = IncrementalPCA(n_components), 0
    with tempfile.TemporaryDirectory(prefix="dlatent-warm-") as place:
        IncrementalPCA(2).partial_fit(load(tiny_store(Path(place))))
    with Stopwatch() as watch:
        for start in range(0, array.shape[0], step):
            batch = array[start : start + step]
            read += batch.nbytes
            if len(batch) >= n_components:
                model.partial_fit(batch)
    return {
        "from": "Zarr",
        "fit_seconds": watch.seconds,
        "fit_cpu_seconds": watch.cpu_seconds,
        "bytes_read": read,
        "passes": 1,
        "components": model.components_,
    }
