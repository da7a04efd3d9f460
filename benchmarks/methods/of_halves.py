"""Factors of two views, the halves of the features of a store, by dlatent and by MOFA-FLEX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da

from benchmarks.cluster import local_cluster
from benchmarks.processes import Stopwatch
from benchmarks.stored import load, path_of
from benchmarks.task import Row


def dlatent(folder: Path, scale: float, n_components: int) -> Row:
    """Correspondence PPCA on two worker processes, after a tiny fit that imports."""
    from dlatent import CorrespondencePPCA

    views = _halves(da.from_zarr(path_of(folder)))
    with local_cluster() as client:
        CorrespondencePPCA(2).fit([view[:100, :5] for view in views], correspondence="rows", client=client)
        with Stopwatch() as watch:
            CorrespondencePPCA(n_components).fit(views, correspondence="rows", client=client)
    return _row(watch)


def mofaflex(folder: Path, scale: float, n_components: int) -> Row:
    """MOFA-FLEX with its defaults, on the processor: stochastic variational inference until its early stopping."""
    from anndata import AnnData
    from mofaflex import MOFAFLEX, DataOptions, ModelOptions, TrainingOptions

    with Stopwatch() as watch:
        left, right = map(AnnData, _halves(load(path_of(folder))))
        MOFAFLEX(
            {"all": {"left": left, "right": right}},
            DataOptions(plot_data_overview=False),
            ModelOptions(n_factors=n_components),
            TrainingOptions(device="cpu", seed=0, save_path=folder / "mofaflex.h5"),
        )
    return _row(watch)


def _row(watch: Stopwatch) -> Row:
    return {"from": "Zarr", "fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds}


def _halves(x: Any) -> list[Any]:
    return [x[:, : x.shape[1] // 2], x[:, x.shape[1] // 2 :]]
