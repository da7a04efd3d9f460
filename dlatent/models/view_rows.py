"""New samples of several views, and functions of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array, Block, Grid
from dlatent.engine.connect import connect
from dlatent.errors import DataError
from dlatent.fitted.grid import cells_named
from dlatent.gaussian.likelihood import JointRequest, PartsFunction, block_results, of_view
from dlatent.models.callbacks import shown
from dlatent.models.inputs import Names, Pairing, Rows, TargetsLike, Views
from dlatent.models.joint_views import joined_rows, named, pairing
from dlatent.models.labelled import plain_rows
from dlatent.models.map_rows import map_rows
from dlatent.models.row_methods import RowsRun
from dlatent.models.views import (
    JointModel,
    JointSamples,
    arrangement,
    opened,
    targets_of_samples,
    with_target_view,
)
from dlatent.passes import Pass
from dlatent.stores.joint import joint

Targets: TypeAlias = "TargetsLike | Mapping[str, TargetsLike]"
"""Targets of all joint samples, or of the rows of one view by its name."""
Given: TypeAlias = "tuple[str, Any] | JointSamples"
"""Name and data of a view that is given alone, or joint samples."""


def only_view(views: Views) -> tuple[str, Any] | None:
    """Name and data of the view, where there is one only."""
    data = named(views)
    return next(iter(data.items())) if len(data) == 1 else None


def new_samples(model: JointModel, views: Views, correspondence: Pairing, on: Names, y: Targets = None) -> Given:
    """A view alone, or joint samples, with their targets where these are given.

    Errors: NotFittedError; DataError for targets of models that have none.
    """
    targets = model._model.targets
    if y is None:
        return only_view(views) or joint_samples(model, views, correspondence, on)
    if targets is None:
        raise DataError(f"{type(model).__name__} has no targets; leave out y, or fit CorrespondenceSupervisedPPCA")
    samples = joint_samples(model, views, correspondence, on)
    y, labels, count, row_of_sample = targets_of_samples(y, samples)
    rows = targets.encoding.encode(plain_rows(y, labels), count)
    return with_target_view(samples, rows, rows.shape[1], ~np.isnan(rows[:, 0]), row_of_sample)


def joint_samples(model: JointModel, views: Views, correspondence: Pairing, on: Names) -> JointSamples:
    """Joint samples of new data; those of one view are its rows."""
    data, sources = opened(views, on, model._model.labels.views)
    for name in sources:
        model._number(name)
    for name, source in sources.items():
        model._known_view(name).check(source.shape, source.labels.features)
    if len(sources) == 1:
        return JointSamples(sources, np.arange(next(iter(sources.values())).shape[0])[:, None])
    return JointSamples(sources, joined_rows(pairing(views, correspondence, on), on, data, sources))


def mapped(
    model: JointModel, samples: Given, function: PartsFunction, name: str, columns: str = "", names: Any = None, *,
    run: RowsRun, **axis: Any,
) -> Rows | str:  # fmt: skip
    """A function of samples: of those of one view in the kind of its data, or into the store `out`; of joint samples as
    a DataArray in the order of their table, with their rows in each view as coordinates."""
    fitted = model._model
    if not isinstance(samples, JointSamples):
        view, data = samples
        number, parameters = model._number(view), fitted.parameters
        rows = partial(
            of_view, function=function, view=number, parameters=parameters, specification=fitted.specification
        )
        known = model._known_view(view)
        return map_rows(data, rows, known, columns=columns, names=names, name=name, **run._asdict(), **axis)
    if run.out is not None:
        raise DataError("out is for the scores of one view without targets; others come in memory")
    sources, table = samples
    numbers, source = _numbers(model, samples), joint(sources, table)
    about = arrangement(source, numbers, fitted.specification.sizes)
    patterns = tuple(tuple(numbers[view] for view in pattern) for pattern in source.patterns)
    request = JointRequest(function, fitted.parameters, fitted.specification, patterns, about)
    local = "serial" if source.in_memory else run.client
    values = np.empty(source.shape[0] if names is None else (source.shape[0], len(names)))

    def take(pieces: tuple[tuple[int, Array], ...]) -> None:
        for start, piece in pieces:
            values[source.order[start : start + len(piece)]] = piece

    grids: dict[str | None, Grid | None] = {name: each.labels.grid for name, each in sources.items()}
    with connect(source, client=local, cache_bytes=0) as session, shown(session, "joint rows"), cells_named(grids):
        session.deliver(Pass(_placed_results, request, name="joint rows"), take)
    places = enumerate(name for name in sources if name in model.view_names_)
    coordinates = {f"row_{name}": ("sample", table[:, at]) for at, name in places}
    labels = {} if names is None else {columns: names}
    dims = ("sample",) if names is None else ("sample", columns)
    return xr.DataArray(values, dims=dims, coords={**labels, **coordinates}, name=name)


def _placed_results(block: Block, request: JointRequest) -> tuple[tuple[int, Array], ...]:
    return tuple((block.start, rows) for rows in block_results(block, request))


def _numbers(model: JointModel, samples: JointSamples) -> list[int]:
    """The number of each of their views in the model."""
    names = [view.name for view in model._model.specification.views]
    return [names.index(name) for name in samples.sources]


def sets_of(
    model: JointModel, samples: JointSamples
) -> tuple[npt.NDArray[np.bool_], list[tuple[int, ...]], npt.NDArray[np.int64]]:
    """The sets of views that occur (sets, views), the same as numbers in the model, and the set of each sample."""
    sets, pattern = np.unique(samples.table >= 0, axis=0, return_inverse=True)
    numbers = _numbers(model, samples)
    patterns = [tuple(number for number, present in zip(numbers, line, strict=True) if present) for line in sets]
    return sets, patterns, pattern.ravel()
