"""Which cells of a grid are features, and how much each of them weighs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Grid
from dlatent.containers import plain_numbers
from dlatent.errors import DataError


def without_masks(data: xr.DataArray) -> xr.DataArray:
    """The array with NaN where the chunks of a Dask array are masked, as recent releases of xarray make it."""
    if data.chunks is None or not isinstance(data.data._meta, np.ma.MaskedArray):
        return data
    dtype = data.dtype if data.dtype.kind == "f" else np.dtype(np.float64)
    return data.copy(data=data.data.map_blocks(plain_numbers, "", dtype=dtype, meta=np.empty((0,) * data.ndim, dtype)))


def features_of(data: xr.DataArray, rows: Sequence[str], grid: Grid, weights: xr.DataArray | None) -> Grid:
    """The grid with the cells that are features: those with a value in some sample and a weight above 0.

    Where the first sample lacks a cell, all samples are looked at.
    Errors: DataError for weights that are none, or where no cell is a feature.
    """
    good = np.ones(grid.shape, dtype=bool)
    first = data.isel(dict.fromkeys(rows, 0)).transpose(*grid.dims)
    if np.asarray(first.isnull()).any():
        good = ~np.asarray(data.isnull().all(rows).transpose(*grid.dims))
    scale = None
    if weights is not None:
        cell_weights = _weights(weights, first)
        good &= cell_weights > 0
        scale = np.sqrt(cell_weights)
    kept = np.flatnonzero(good)
    if not len(kept):
        raise DataError(
            f"no cell of the DataArray {data.name!r} has a value" + (" and a weight" if weights is not None else "")
        )
    return replace(grid, kept=None if good.all() else kept, scale=None if scale is None else scale.ravel()[kept])


def coslat(data: xr.DataArray, rows: Sequence[str]) -> xr.DataArray:
    """The cosine of the latitude of each cell, which is its area where cells lie at equal distances in degrees.

    Latitude is the coordinate that is called lat or latitude, or that the attributes of the CF conventions call so.
    Errors: DataError where there is none, or where it is not in degrees.
    """
    found = [
        str(name)
        for name, each in data.coords.items()
        if not {*each.dims} & {*rows}
        and (
            str(name).lower() in ("lat", "latitude")
            or each.attrs.get("standard_name") == "latitude"
            or str(each.attrs.get("units")).lower() in ("degrees_north", "degree_north", "degrees_n", "degree_n")
        )
    ]
    if len(found) != 1 or not data.coords[found[0]].dims:
        raise DataError(
            f"weights='coslat' needs one coordinate of latitude along the features, and the DataArray {data.name!r} "
            f"has {found or 'none'}: call it lat, or give the weights as a DataArray"
        )
    degrees = np.asarray(data.coords[found[0]].values, dtype=np.float64)
    if not (np.abs(degrees) <= 90.0).all():
        raise DataError(f"the latitudes {found[0]!r} are not all between -90 and 90 degrees")
    return xr.DataArray(np.cos(np.deg2rad(degrees)), dims=data.coords[found[0]].dims)


def _weights(weights: Any, like: xr.DataArray) -> npt.NDArray[np.float64]:
    """Weights of all cells. Errors: DataError."""
    if not isinstance(weights, xr.DataArray):
        raise DataError(
            f"weights are of type {type(weights).__name__}; give a DataArray over some of the dimensions, or 'coslat'"
        )
    other = [str(name) for name in weights.dims if name not in like.dims]
    if other:
        raise DataError(f"weights have the dimension {other[0]!r}; the features have {tuple(map(str, like.dims))}")
    try:
        both = xr.align(without_masks(weights), like, join="exact")[0].broadcast_like(like).transpose(*like.dims)
    except ValueError as error:
        raise DataError(f"weights have other coordinates than the data: {error}") from error
    values = np.asarray(both, dtype=np.float64)
    if not (np.isfinite(values) & (values >= 0)).all():
        raise DataError("weights must be finite numbers of at least 0; some are not")
    return values
