"""xarray at the door: what an input brings of names and coordinates, and how results carry them on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import AxisLabels
from dlatent.errors import DataError
from dlatent.estimators.inputs import Rows


@dataclass(frozen=True)
class Unwrapped:
    """The plain data of an input, its labels, and the DataArray that it came in (None for other inputs)."""

    data: Any
    labels: AxisLabels | None
    original: xr.DataArray | None


def unwrap(data: Any) -> Unwrapped:
    """Take the data out of a DataArray, a Dataset with one two-dimensional variable, or a data frame; others pass.

    Raises DataError for a DataArray that has not two dimensions, a Dataset with none or several candidates, or a data
    frame of which some columns only are named by texts.
    """
    if isinstance(data, xr.Dataset):
        names = [str(name) for name, v in data.data_vars.items() if v.ndim == 2 and v.dtype.kind in "fiub"]
        if len(names) != 1:
            raise DataError(
                f"the Dataset has {len(names)} two-dimensional variables {names}; pass one of them, as ds[name]"
            )
        data = data[names[0]]
    if is_frame(data):
        return _unwrap_frame(data)
    if not isinstance(data, xr.DataArray):
        return Unwrapped(data, None, None)
    if data.ndim != 2:
        raise DataError(f"the DataArray {data.name!r} has dimensions {data.dims}; expected samples × features")
    dims = (str(data.dims[0]), str(data.dims[1]))
    labels = AxisLabels(dims, _coordinate(data, dims[0]), _coordinate(data, dims[1]))
    return Unwrapped(data.data, labels, data)


def is_frame(data: Any) -> bool:
    """True for a data frame in memory: of pandas, of polars, or of another kind with columns and a matrix of them."""
    return hasattr(data, "columns") and hasattr(data, "to_numpy") and not isinstance(data, (xr.DataArray, xr.Dataset))


def _unwrap_frame(frame: Any) -> Unwrapped:
    """The numbers of a data frame, with the names of its columns where they are text.

    Raises DataError where some names are text and others not, as scikit-learn does.
    """
    names = [name for name in frame.columns if isinstance(name, str)]
    if names and len(names) < frame.shape[1]:
        other = next(name for name in frame.columns if not isinstance(name, str))
        raise DataError(
            f"some columns of the data frame have texts for names, as {names[0]!r}, and others not, as {other!r}; name "
            "all of them by texts, as with X.columns = X.columns.astype(str), or pass X.to_numpy()"
        )
    return Unwrapped(frame.to_numpy(), AxisLabels(features=np.array(names) if names else None), None)


def _coordinate(data: xr.DataArray, dim: str) -> npt.NDArray[Any] | None:
    return np.asarray(data.coords[dim].values) if dim in data.coords else None


def plain_rows(values: Any, labels: AxisLabels | None) -> Any:
    """Targets as a plain array; coordinates of a DataArray must be those of the data's samples.

    Raises DataError naming the first sample whose label differs.
    """
    if not isinstance(values, xr.DataArray):
        return values
    dim = str(values.dims[0])
    own = _coordinate(values, dim)
    if own is not None and labels is not None and labels.samples is not None and len(own) == len(labels.samples):
        differ = np.flatnonzero(own != labels.samples)
        if len(differ):
            row = int(differ[0])
            theirs, ours = own.tolist()[row], labels.samples.tolist()[row]
            raise DataError(
                f"row {row}: the targets are labelled {theirs!r}, the data {ours!r}; align them first, for example "
                f"y = y.sel({dim}=X[{dim!r}])"
            )
    return values.values


def wrap_rows(values: Rows, like: Unwrapped, columns: str, names: npt.NDArray[Any], *, name: str) -> Rows:
    """Rows of results as a DataArray with the samples' dimension and coordinates, where the input was one."""
    if like.original is None:
        return values
    dim = str(like.original.dims[0])
    coords = {str(key): value for key, value in like.original.coords.items() if value.dims == (dim,)}
    if values.ndim == 1:
        return xr.DataArray(values, dims=(dim,), coords=coords, name=name)
    return xr.DataArray(values, dims=(dim, columns), coords={**coords, columns: names}, name=name)
