"""Samples of several views with their missing entries filled in, and where asked the views that they lack."""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr

from dlatent.arrays import Array
from dlatent.engine.connect import Where
from dlatent.errors import DataError
from dlatent.fitted.grid import feature_axis, spread, units
from dlatent.fitted.observations import ObservationRows
from dlatent.gaussian.missing_entries.incomplete import views_imputed
from dlatent.models.inputs import Names, Pairing, Rows, Views
from dlatent.models.joint_views import named, without_labels
from dlatent.models.labelled import unwrap, wrap_rows
from dlatent.models.observations import of_samples
from dlatent.models.views import (
    Joint,
    JointSamples,
    Targets,
    deliver,
    joint_samples,
    new_samples,
    number_of,
    row_places,
    view_names,
)
from dlatent.stores.joint import Table


def impute(
    self: Joint,
    views: Views,
    y: Targets = None,
    *,
    correspondence: Pairing = None,
    on: Names = None,
    every_view: bool = False,
    client: Where = None,
) -> dict[str, Rows]:
    r"""The views with each missing entry (NaN) replaced by its mean given all that is observed of the sample.

    That is in all its views, and its targets if given.

    .. math:: E[x_j \mid x_o] = \mu_j + w_j^\top E[z \mid x_o]

    with x_j a missing entry, x_o the observed ones of the sample, and w_j the loadings of feature j.

    Parameters
    ----------
    every_view : bool, default False
        Fill in the views that samples lack, too.

    Returns
    -------
    dict of array of shape (n_samples of the view, n_features of the view)
        The views that were given, numpy or xarray as they were.  With `every_view` all views of the model, each a
        DataArray with a row for each sample in the order of `transform`.

    Raises
    ------
    DataError
        For sparse views, of which nothing tells what is missing.
    """
    known = joint_samples if y is None else partial(new_samples, y=y)
    samples = known(self, views, correspondence, on)
    assert isinstance(samples, JointSamples)
    for name, source in samples.sources.items():
        if source.sparse:
            raise DataError(f"view {name!r} is sparse, so that nothing tells what is missing; give it as dense rows")
    values = _filled(self, samples, client, every_view=every_view)
    filled, data = dict[str, Rows](), named(views)
    for name, rows in values.items():
        labels, width = self._model.labels.views[name], rows.shape[1]
        axis = feature_axis(labels, width)
        if not every_view:
            like = unwrap(without_labels(data[name], on), known=labels)
            filled[name] = wrap_rows(rows, like, name="imputed", **axis)
            continue
        array = xr.DataArray(rows, dims=("sample", axis["columns"]), coords=row_places(self, samples), name="imputed")
        if labels.grid is None:
            filled[name] = array.assign_coords({axis["columns"]: axis["names"]})
        else:
            filled[name] = spread(array, axis["columns"], labels.grid, 0).assign_attrs(units(labels.grid, 1))
    return filled


def _filled(model: Joint, samples: JointSamples, client: Where, *, every_view: bool) -> dict[str, Array]:
    """The rows of each view that was given, or those of all samples in every view."""
    sources, table = samples
    slices, sizes = model._model.specification.slices, model._model.view_sizes
    given = [name for name in sources if name in view_names(model)]
    counts = {name: len(table) for name in view_names(model)} if every_view else {
        name: sources[name].shape[0] for name in given
    }  # fmt: skip
    values = {name: np.empty((count, sizes[number_of(model, name)])) for name, count in counts.items()}

    def take(lines: Table, rows: Array) -> None:
        places = {name: table[lines, at] for at, name in enumerate(sources)}
        for name, filled in values.items():
            if every_view or places[name][0] >= 0:
                filled[lines if every_view else places[name]] = rows[:, slices[number_of(model, name)]]

    deliver(model, samples, of_samples(model, views_imputed, ObservationRows.imputed), client, take, holes=True)
    return values
