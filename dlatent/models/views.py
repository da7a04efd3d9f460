"""Samples of several views of which they may lack some, and functions of new ones of a fitted model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array, AxisLabels, DataSource, Grid
from dlatent.engine.connect import Where, connect
from dlatent.errors import DataError
from dlatent.fitted.features import KnownFeatures, cells_named
from dlatent.fitted.linear import JointGaussian
from dlatent.fitted.target_values import as_array
from dlatent.gaussian.likelihood import JointRequest, PartsFunction, of_view, placed_results
from dlatent.gaussian.views import Arrangement
from dlatent.models.aligned import plain_rows
from dlatent.models.callbacks import shown
from dlatent.models.inputs import Names, Pairing, Rows, TargetsLike, Views
from dlatent.models.joint_views import joined_rows, named, without_labels
from dlatent.models.labelled import open_input
from dlatent.models.map_rows import RowsRun, map_rows
from dlatent.models.model import Model
from dlatent.models.observations import fitted_likelihoods
from dlatent.passes import Pass
from dlatent.stores.joint import JointSource, Table, joint
from dlatent.stores.rows import open_computed

Joint: TypeAlias = Model[JointGaussian]
"""A model of several views."""
Targets: TypeAlias = "TargetsLike | Mapping[str, TargetsLike]"
"""Targets of all joint samples, or of the rows of one view by its name."""
Samples: TypeAlias = "tuple[str, Any] | JointSamples"
"""Name and data of a view that is given alone, or joint samples."""
TARGETS = "targets"
"""The name of the view that the encoded targets are."""


class JointSamples(NamedTuple):
    """The views of joint samples by name, and the rows of each that are theirs (samples, views), −1 where they lack
    one."""

    sources: dict[str, DataSource]
    table: Table


def arrangement(source: JointSource, numbers: Sequence[int], sizes: tuple[int, ...]) -> Arrangement:
    """How joint samples are arranged, for a model with views of these sizes that the source has as these numbers."""
    dense = [True] * len(sizes)
    for number, view in zip(numbers, source.views.values(), strict=True):
        dense[number] = not view.sparse
    return Arrangement(source.bounds, sizes, tuple(dense))


def opened(
    views: Views, on: Names, known: Mapping[str, AxisLabels] | None = None
) -> tuple[dict[str, Any], dict[str, DataSource]]:
    """The data of the views by name, and their sources; `known`, the labels of those that a model was fitted to."""
    data = named(views)
    sources: dict[str, DataSource] = {}
    for name, view in data.items():
        labels = known.get(name) if known else None
        # Of more than two dimensions that is one of samples whose labels the views share.
        several = isinstance(view, xr.DataArray) and view.ndim > 2 and not (labels and labels.grid)
        dim = on if several and isinstance(on, str) and on in view.dims else None
        try:
            sources[name] = open_input(without_labels(view, on), dim=dim, known=labels)
        except DataError as error:
            raise type(error)(f"view {name!r}: {error}") from error
    return data, sources


def targets_of_samples(y: Any, samples: JointSamples) -> tuple[Any, AxisLabels, int, Table]:
    """Targets with the labels and the number of the rows that they are for, and which of these each sample is, −1 for
    none."""
    names, count = list(samples.sources), len(samples.table)
    if not isinstance(y, Mapping):
        y = None if y is None else as_array(y)
        if y is not None and len(y) != count:
            raise DataError(
                f"y has shape {y.shape}; there are {count} joint samples: those of the correspondence, then the "
                f"other rows of each view; for targets of the rows of one view give y={{{names[0]!r}: targets}}"
            )
        return y, AxisLabels(), count, np.arange(count)
    if len(y) != 1 or next(iter(y)) not in names:
        raise DataError(
            f"y has targets for {', '.join(map(repr, y)) or 'no view'}; as a mapping it has one entry, the targets of "
            f"the rows of one of the views {', '.join(map(repr, names))}; those of all joint samples are an array"
        )
    ((name, values),) = y.items()
    source = samples.sources[name]
    return values, source.labels, source.shape[0], samples.table[:, names.index(name)]


def with_target_view(
    samples: JointSamples, rows: Any, width: int, labelled: npt.NDArray[np.bool_], row_of_sample: Table
) -> JointSamples:
    """Samples that have targets beside their views: `rows` of this width, of which those are known that are `labelled`;
    each sample has the row that is its `row_of_sample`."""
    source = open_computed(rows, (len(labelled), width), TARGETS)
    column = np.where((row_of_sample >= 0) & labelled[row_of_sample], row_of_sample, -1)
    return JointSamples({**samples.sources, TARGETS: source}, np.column_stack([samples.table, column]))


def view_names(model: Joint) -> tuple[str, ...]:
    """Names of the views of a fitted model."""
    return tuple(model._model.labels.views)


def number_of(model: Joint, view: str) -> int:
    """The number of a view of a fitted model.  Errors: DataError where there is none of this name."""
    names = view_names(model)
    if view not in names:
        raise DataError(f"{view!r} is no view of the model; it was fitted to {', '.join(map(repr, names))}")
    return names.index(view)


def known_view(model: Joint, view: str) -> KnownFeatures:
    """Return the requirements on new data of a view."""
    width, labels = model._model.view_sizes[number_of(model, view)], model._model.labels.views[view]
    return KnownFeatures(
        type(model).__name__,
        width,
        labels.features,
        view,
        holes=model._missing == "nan",
        advice=", or fit around NaN with missing='nan'" if hasattr(model, "missing") else "",
        grid=labels.grid,
        place=model._fitted().place,
        layer=labels.layer,
        likelihood=fitted_likelihoods(model._model)[view],
        genotypes=getattr(model, "scale", None) == "patterson",
    )


def new_samples(model: Joint, views: Views, correspondence: Pairing, on: Names, y: Targets = None) -> Samples:
    """A view alone, or joint samples, with their targets where these are given.

    Errors: NotFittedError; DataError for targets of models that have none.
    """
    targets = model._model.targets
    if y is None:
        data = named(views)
        return next(iter(data.items())) if len(data) == 1 else joint_samples(model, views, correspondence, on)
    if targets is None:
        raise DataError(f"{type(model).__name__} has no targets; leave out y, or fit CorrespondenceSupervisedPPCA")
    samples = joint_samples(model, views, correspondence, on)
    y, labels, count, row_of_sample = targets_of_samples(y, samples)
    rows = targets.encoding.encode(plain_rows(y, labels), count)
    return with_target_view(samples, rows, rows.shape[1], ~np.isnan(rows[:, 0]), row_of_sample)


def joint_samples(model: Joint, views: Views, correspondence: Pairing, on: Names) -> JointSamples:
    """Joint samples of new data; those of one view are its rows."""
    data, sources = opened(views, on, model._model.labels.views)
    for name in sources:
        number_of(model, name)
    for name, source in sources.items():
        known_view(model, name).check(source.shape, source.labels.features)
    if len(sources) == 1:
        return JointSamples(sources, np.arange(next(iter(sources.values())).shape[0])[:, None])
    return JointSamples(sources, joined_rows(views, correspondence, on, data, sources))


def mapped(
    model: Joint, samples: Samples, function: PartsFunction, name: str, columns: str = "", names: Any = None, *,
    run: RowsRun, **axis: Any,
) -> Rows | str:  # fmt: skip
    """A function of samples: of those of one view in the kind of its data, or into the store `out`; of joint samples as
    a DataArray in the order of their table, with their rows in each view as coordinates."""
    fitted = model._model
    if not isinstance(samples, JointSamples):
        view, data = samples
        number, parameters = number_of(model, view), fitted.parameters
        rows = partial(
            of_view, function=function, view=number, parameters=parameters, specification=fitted.specification
        )
        known = known_view(model, view)
        return map_rows(data, rows, known, run, columns=columns, names=names, name=name, **axis)
    if run.out is not None:
        raise DataError("out is for the scores of one view without targets; others come in memory")
    values = np.empty(len(samples.table) if names is None else (len(samples.table), len(names)))
    deliver(model, samples, function, run.client, values.__setitem__, holes=model._missing == "nan")
    labels = {} if names is None else {columns: names}
    dims = ("sample",) if names is None else ("sample", columns)
    return xr.DataArray(values, dims=dims, coords={**labels, **row_places(model, samples)}, name=name)


def deliver(
    model: Joint, samples: JointSamples, function: PartsFunction, client: Where,
    take: Callable[[Table, Array], None], *, holes: bool = False,
) -> None:  # fmt: skip
    """Give `take` the results of a function of joint samples, some at a time that have the same views, with the numbers
    of the samples; with `holes` entries may be missing."""
    sources, table = samples
    fitted, numbers = model._model, _numbers(model, samples)
    source = joint(sources, table, holes=holes, likelihoods=fitted_likelihoods(fitted))
    about = arrangement(source, numbers, fitted.specification.sizes)
    patterns = tuple(tuple(numbers[view] for view in pattern) for pattern in source.patterns)
    request = JointRequest(function, fitted.parameters, fitted.specification, patterns, about)
    local = "serial" if source.in_memory else client

    def placed(pieces: tuple[tuple[int, Array], ...]) -> None:
        for start, piece in pieces:
            take(source.order[start : start + len(piece)], piece)

    grids: dict[str | None, Grid | None] = {name: each.labels.grid for name, each in sources.items()}
    with connect(source, client=local, cache_bytes=0) as session, shown(session, "joint rows"), cells_named(grids):
        session.deliver(Pass(placed_results, request, name="joint rows"), placed)


def row_places(model: Joint, samples: JointSamples) -> dict[str, tuple[str, Table]]:
    """The coordinates of joint samples: their rows in each view of the model."""
    places = enumerate(name for name in samples.sources if name in view_names(model))
    return {f"row_{name}": ("sample", samples.table[:, at]) for at, name in places}


def _numbers(model: Joint, samples: JointSamples) -> list[int]:
    """The number of each of their views in the model."""
    names = [view.name for view in model._model.specification.views]
    return [names.index(name) for name in samples.sources]


def sets_of(
    model: Joint, samples: JointSamples
) -> tuple[npt.NDArray[np.bool_], list[tuple[int, ...]], npt.NDArray[np.int64]]:
    """The sets of views that occur (sets, views), the same as numbers in the model, and the set of each sample."""
    sets, pattern = np.unique(samples.table >= 0, axis=0, return_inverse=True)
    numbers = _numbers(model, samples)
    patterns = [tuple(number for number, present in zip(numbers, line, strict=True) if present) for line in sets]
    return sets, patterns, pattern.ravel()
