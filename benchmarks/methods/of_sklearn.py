"""scikit-learn, in memory: its time includes reading the store."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.processes import Stopwatch
from benchmarks.stored import load, path_of, tiny_store
from benchmarks.task import Row


def _measured(folder: Path, model: Any) -> Row:
    from sklearn.base import clone

    with tempfile.TemporaryDirectory(prefix="dlatent-warm-") as place:  # imports aside, as for all methods
        clone(model).set_params(n_components=2).fit(load(tiny_store(Path(place))))
    with Stopwatch() as whole:
        with Stopwatch() as loading:
            matrix = load(path_of(folder))
        model.fit(matrix)
    return {
        "fit_seconds": whole.seconds,
        "fit_cpu_seconds": whole.cpu_seconds,
        "load_seconds": loading.seconds,
        "bytes_read": int(matrix.nbytes if hasattr(matrix, "nbytes") else matrix.data.nbytes + matrix.indices.nbytes),
        "components": model.components_,
    }


def pca(folder: Path, scale: float, n_components: int, solver: str) -> Row:
    """PCA with one of its solvers."""
    from sklearn.decomposition import PCA

    return _measured(folder, PCA(n_components, svd_solver=solver, random_state=0))


def truncated_svd(folder: Path, scale: float, n_components: int) -> Row:
    """TruncatedSVD, which does not centre: another subspace where means matter."""
    from sklearn.decomposition import TruncatedSVD

    return _measured(folder, TruncatedSVD(n_components, random_state=0))


def incremental_pca(folder: Path, scale: float, n_components: int) -> Row:
    """IncrementalPCA over row batches of the matrix in memory."""
    from sklearn.decomposition import IncrementalPCA

    return _measured(folder, IncrementalPCA(n_components))
