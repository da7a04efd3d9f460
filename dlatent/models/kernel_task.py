"""The task of a model of kernel features, and the fitted model that comes of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dlatent.arrays import DataSource
from dlatent.engine.session import Session
from dlatent.errors import DataError
from dlatent.fitted.kernel import Compared, KernelGaussian
from dlatent.gaussian.specification import Specification, View
from dlatent.models.table import MOST, table_fields, task_of
from dlatent.models.task import FitTask
from dlatent.operators.kernels import NUMBERS, Kernel
from dlatent.passes import Run
from dlatent.solvers.kernel.landmarks import KERNEL_SOLVERS
from dlatent.solvers.solver import Solution
from dlatent.solvers.task import KernelFeatures
from dlatent.stores.atomic import require_writable
from dlatent.stores.places import require_apart
from dlatent.stores.rows import lent, owned, rows_in_memory
from dlatent.stores.sinks import TileSink, open_tiles

ALIASES = {"poly": "polynomial"}
"""Other names of kernels, as scikit-learn has them."""


def check_kernel(estimator: Any) -> None:
    """Refuse hyperparameters of a kernel that make no sense together.  Errors: DataError."""
    for name in ("feature_dimension", "landmarks"):
        value = getattr(estimator, name)
        if value is not None and estimator.n_components != "auto" and value <= estimator.n_components:
            raise DataError(f"{name} is {value!r}; expected an integer above n_components, or None")
    if estimator.kernel == "precomputed" and (estimator.landmarks is not None or estimator._scaled):
        raise DataError("a precomputed kernel has no rows: leave landmarks=None and scale='none'")
    if estimator.landmarks is not None and estimator.solver == "em":
        raise DataError("solver='em' is for the whole kernel; leave landmarks=None, or take solver='auto'")


def kernel_task(estimator: Any, source: DataSource) -> FitTask:
    """The task without targets, whose features are as many coordinates as there are components.

    Errors: DataError for data that the model cannot be fitted to.
    """
    check_rows(estimator, source)
    kernel = kernel_of(estimator)
    components = components_of(estimator, kernel, source)
    place, dtype = os.fspath(estimator.kernel_store or ""), np.dtype(estimator.kernel_dtype)
    rows = () if kernel.name == "precomputed" else source.blocks
    features = KernelFeatures(
        kernel,
        dimension_of(estimator, kernel, source, components),
        rows,
        rows_in_memory,
        partial(kept, place=place, dtype=dtype),
        dtype.itemsize,
        bool(place),
        int(estimator.landmarks or 0),
        0 if estimator.landmarks else sum(block.nbytes for block in rows if lent(block)),
    )
    specification = Specification((View("features", components),), ((0,),), components)
    return replace(
        task_of(estimator, source, specification, fitted_kernel, "auto" if estimator.n_components == "auto" else None),
        kernel=features,
        solvers=KERNEL_SOLVERS,
        # Features that are never written down are summed about nothing.
        shift=lambda session, observed: np.zeros(0),
    )


def check_rows(estimator: Any, source: DataSource) -> None:
    """Refuse data that the model cannot be fitted to.  Errors: DataError."""
    rows, columns = source.shape
    if estimator.kernel_store is not None:
        require_apart(estimator.kernel_store, source)
    if estimator.kernel == "precomputed" and rows != columns:
        raise DataError(
            f"the precomputed kernel has {rows} × {columns} values; a fit needs those of the training rows with "
            "themselves, as many columns as rows"
        )
    if estimator.n_components != "auto" and estimator.n_components >= rows - 1:
        raise DataError(
            f"n_components is {estimator.n_components}, but the features of {rows} samples allow at most {rows - 2}; "
            "ask for fewer components"
        )
    if estimator.landmarks is not None and estimator.landmarks > rows:
        raise DataError(f"landmarks is {estimator.landmarks}, but there are {rows} samples; ask for fewer, or None")


def kernel_of(estimator: Any) -> Kernel:
    """The kernel as far as it is known before the data are seen; γ = 0 stands for the median heuristic."""
    if estimator.kernel == "precomputed":
        return Kernel("precomputed")
    function = estimator.kernel if callable(estimator.kernel) else None
    name = "callable" if function is not None else ALIASES.get(estimator.kernel, estimator.kernel)
    unknown = 0.0 if "gamma" in NUMBERS.get(name, ()) else 1.0
    gamma = unknown if estimator.gamma == "median" else float(estimator.gamma)
    return Kernel(name, gamma, int(estimator.degree), float(estimator.coef0), function)


def components_of(estimator: Any, kernel: Kernel, source: DataSource) -> int:
    """K; "auto" is as many as samples, features and landmarks allow, up to `MOST`."""
    if estimator.n_components != "auto":
        return int(estimator.n_components)
    rows, columns = source.shape
    limits = (MOST + 1, rows - 1, kernel.dimension(columns), estimator.feature_dimension, estimator.landmarks)
    return max(min(limit for limit in limits if limit is not None) - 1, 1)


def dimension_of(estimator: Any, kernel: Kernel, source: DataSource, components: int) -> int:
    """The number M of features: as asked for; D where they are the rows' own; else what N samples can span."""
    if estimator.feature_dimension is not None:
        return int(estimator.feature_dimension)
    (rows, columns), least = source.shape, components + 1
    if kernel.name in ("linear", "cosine"):
        return max(columns, least)
    known = kernel.dimension(columns)
    return rows - 1 if known is None else max(min(rows - 1, known), least)


@contextmanager
def kept(session: Session, place: str, dtype: np.dtype[Any]) -> Iterator[tuple[TileSink, Run]]:
    """A store of the kernel, which is removed at the end."""
    source = session.source
    require_writable(place, overwrite=False, how="remove it")
    bounds = (*(block.start for block in source.blocks), source.shape[0])
    sink = TileSink.create(place, bounds, dtype=dtype)
    try:
        with session.over(open_tiles(sink.location)) as stored:
            yield sink, stored.run
    finally:
        sink.abort()


def fitted_kernel(task: FitTask, solution: Solution) -> KernelGaussian:
    """The fitted model, which owns the rows that it keeps."""
    fields, features = table_fields(task, solution), solution.features
    assert features is not None
    return KernelGaussian(
        **fields,
        dual_components=features.combinations @ fields["loadings"],
        combinations=features.combinations,
        offset=features.offset,
        middle=features.middle,
        length=features.length,
        feature_dimension=features.dimension,
        trace_error=features.trace_error,
        compared=Compared(features.kernel, tuple(map(owned, features.rows)), task.source.shape[1]),
    )
