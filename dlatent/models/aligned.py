"""What users give beside the data, a value for each sample: targets, weights, masks; in the order of the samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from dlatent.arrays import AxisLabels
from dlatent.containers import printable
from dlatent.errors import DataError
from dlatent.fitted.grid import plain_attributes, stacked_rows
from dlatent.models.labelled import coordinate, index_of, require_decoded


def plain_rows(values: Any, labels: AxisLabels | None, what: str = "targets") -> Any:
    """Targets, or what else has a value for each sample, as a plain array, whose labels must be those of the data.

    Coordinates of xarray are the same throughout.  Names of rows of pandas that are 0, 1, … are as good as none, as
    long as the data have not the same ones in another order.
    Raises DataError naming the first sample whose label differs.
    """
    require_decoded(values)
    if labels is not None and labels.stacked and isinstance(values, xr.DataArray):
        return _stacked_values(values, labels.stacked, what)
    named = isinstance(values, xr.DataArray) and values.ndim > 0
    dim = str(values.dims[0]) if named else ""
    labels_of_rows = coordinate(values, dim) if named else index_of(values)
    known = None if labels is None else labels.index if labels.samples is None else labels.samples
    if labels_of_rows is not None and known is not None and len(labels_of_rows) == len(known):
        differ = np.flatnonzero(np.asarray(labels_of_rows != known))
        strict = named and labels is not None and labels.samples is not None
        if len(differ) and (strict or _tell(labels_of_rows, known)):
            row = int(differ[0])
            theirs, ours = printable(labels_of_rows[row]), printable(known[row])
            mend = f"y = y.sel({dim}=X[{dim!r}])" if named else "y = y.loc[X.index]"
            raise DataError(
                f"row {row}: the {what} are labelled {theirs!r}, the data {ours!r}; align them first, for example "
                + (mend if named else f"{mend}, or pass y.to_numpy() where the rows belong together as they lie")
            )
    if not isinstance(values, xr.DataArray):
        return values
    return values.values if values.chunks is None else values.data  # of which chunks may be masked


def name_of(values: Any) -> tuple[str | None, dict[str, Any]]:
    """The name of a DataArray or a column of pandas, and its attributes that JSON can hold; of others nothing."""
    if isinstance(values, xr.DataArray):
        # xarray calls a Dask array without a name of its own by its token.
        name = None if values.name == getattr(values.data, "name", None) else values.name
        return (None if name is None else str(name)), plain_attributes(values.attrs)
    return (values.name if isinstance(values, pd.Series) and isinstance(values.name, str) else None), {}


def _stacked_values(values: xr.DataArray, stacked: Mapping[str, npt.NDArray[Any]], what: str) -> Any:
    """Values over several dimensions of samples, as one.  Raises DataError for others than those of the data."""
    sizes = {name: len(known) for name, known in stacked.items()}
    if {name: values.sizes.get(name) for name in sizes} != sizes:
        raise DataError(f"the {what} have dimensions {dict(values.sizes)}; the samples of the data lie along {sizes}")
    for name, known in stacked.items():
        if name in values.coords and not np.array_equal(values[name].values, known):
            raise DataError(f"the {what} have other labels along {name!r} than the data; align them first, by y.sel")
    turned = values.transpose(*stacked, ...)
    return stacked_rows(turned.values if turned.chunks is None else turned.data, len(stacked))


def _tell(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> bool:
    """Whether labels that differ say that rows lie in another order: they are the same ones, or none are 0, 1, …, as
    data without labels have (AnnData as texts)."""
    numbers = np.arange(len(first))
    counted = any(np.array_equal(axis, like) for axis in (first, second) for like in (numbers, numbers.astype(str)))
    return not counted or set(first.tolist()) == set(second.tolist())
