"""dlatent itself, from the store, or beside peers that have the matrix in memory, from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.cluster import fitted, local_cluster, warm_up
from benchmarks.processes import Stopwatch
from benchmarks.stored import load, path_of
from benchmarks.task import Row


def ppca(folder: Path, scale: float, n_components: int, workers: int = 2, **options: Any) -> Row:
    """PPCA on a cluster of worker processes; `workers` 0 means the threads of this process."""
    from dlatent import PPCA

    model, row = _measured(folder, PPCA(n_components, zero_rows="keep", **options), workers)
    return row | {"components": model.components_}


def ppca_in_memory(folder: Path, scale: float, n_components: int, **options: Any) -> Row:
    """PPCA of the matrix in memory, on the threads of this process."""
    from dlatent import PPCA

    warm_up()
    with Stopwatch() as loading:
        matrix = load(path_of(folder))
    model, row = fitted(PPCA(n_components, zero_rows="keep", **options), matrix)
    return row | {"components": model.components_, "from": "memory", "load_seconds": loading.seconds}


def factor_analysis(folder: Path, scale: float, n_components: int, workers: int = 2) -> Row:
    """FactorAnalysis; its loadings are not those of principal components, so that only its likelihood compares."""
    from dlatent import FactorAnalysis

    return _measured(folder, FactorAnalysis(n_components, zero_rows="keep"), workers)[1]


def _measured(folder: Path, model: Any, workers: int) -> tuple[Any, Row]:
    if workers == 0:
        warm_up()
        model, row = fitted(model, path_of(folder))
    else:
        with local_cluster(workers) as client:
            model, row = fitted(model, path_of(folder), client=client)
    return model, row | {"from": "Zarr"}
