"""Features over several dimensions: how they become the one axis of the models, and how results come back.

Laws (tests/estimators/test_estimators_grid.py): `spread` of what `flattened` gives is the input, NaN where no cell is a
feature; a fit to an array of any number of dimensions is, to the bit, that of the matrix that a user would stack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array, AxisLabels, Coordinate, Grid
from dlatent.containers import printable
from dlatent.errors import DataError
from dlatent.stores.schema import GRID, UNITS, Variable


def grid_of(data: xr.DataArray, rows: Sequence[str]) -> Grid:
    """The grid of all dimensions of an array but those of the samples."""
    dims = tuple(str(name) for name in data.dims if name not in rows)
    coordinates = data.coords.to_dataset().drop_dims(rows, errors="ignore")
    levels = {
        str(name): tuple(str(level) for level in index.names)
        for name, index in coordinates.indexes.items()
        if index.nlevels > 1 and name in coordinates.dims
    }
    coordinates = coordinates.reset_index(list(levels))
    coords = {
        str(name): Coordinate(tuple(map(str, each.dims)), np.array(each.values), plain_attributes(each.attrs))
        for name, each in coordinates.coords.items()
        if each.dims
    }
    shape = tuple(int(data.sizes[name]) for name in dims)
    # xarray calls a Dask array without a name of its own by its token.
    name = None if data.name is None or data.name == getattr(data.data, "name", None) else str(data.name)
    return Grid(dims, shape, coords, levels, name, plain_attributes(data.attrs))


def plain_attributes(attrs: Mapping[Any, Any]) -> dict[str, Any]:
    """The attributes that JSON can hold; those of netCDF are numbers, arrays of numbers and texts."""
    plain = {str(name): value.tolist() if hasattr(value, "tolist") else value for name, value in attrs.items()}
    # netCDF has no truth values, which Zarr has.
    plain = {name: int(value) if isinstance(value, bool) else value for name, value in plain.items()}
    return {name: value for name, value in plain.items() if isinstance(value, int | float | str | list)}


def flattened(data: xr.DataArray, grid: Grid) -> Any:
    """The values as samples × features, NumPy or Dask; the first dimensions are those of the samples."""
    lead = data.dims[: data.ndim - len(grid.dims)]
    # One dimension of features may have another name than in the fit.
    values = data.data if len(grid.dims) == 1 else data.transpose(*lead, *grid.dims).data
    rows = values if len(grid.dims) == 1 else values.reshape(*values.shape[: len(lead)], -1)
    rows = rows if grid.kept is None else rows[..., grid.kept]
    rows = rows if len(lead) == 1 else stacked_rows(rows, len(lead))
    if grid.scale is None:
        return rows
    return rows * grid.scale.astype(rows.dtype if rows.dtype.kind == "f" else np.float64)


def stacked_rows(values: Any, lead: int) -> Any:
    """The first dimensions as one, NumPy or Dask, in whose pieces of the last no more come together than did before."""
    shape = (int(np.prod(values.shape[:lead])), *values.shape[lead:])
    chunks = getattr(values, "chunks", None)
    if chunks is None or all(len(each) == 1 for each in chunks[1:lead]):
        return values.reshape(shape)
    return values.reshape(shape, merge_chunks=False)


def unstacked_rows(values: Any, sizes: Sequence[int]) -> Any:
    """Rows over these dimensions again, the inverse of `stacked_rows`."""
    inner = int(np.prod(sizes[1:]))
    if len(sizes) == 1 or not hasattr(values, "chunks") or all(size % inner == 0 for size in values.chunks[0]):
        return values.reshape(*sizes, *values.shape[1:])
    return np.stack([unstacked_rows(values[at : at + inner], sizes[1:]) for at in range(0, len(values), inner)])


def require_grid(data: xr.DataArray, grid: Grid) -> tuple[str, ...]:
    """The dimensions of the samples in new data, whose other dimensions must be those of the grid.

    Errors: DataError for other dimensions, lengths or coordinates.
    """
    dims = [str(name) for name in data.dims]
    if grid.plain and len(dims) == 2 and grid.dims[0] not in dims:
        return (dims[0],)
    rest = tuple(name for name in dims if name not in grid.dims)
    if sorted(dims) == sorted(grid.dims):
        raise DataError(
            f"the DataArray {data.name!r} has dimensions {tuple(dims)}, those of one sample; give it a dimension of "
            "samples, as X.expand_dims('time'), or select it by a list, as X.isel(time=[0])"
        )
    if not rest or len(dims) != len(grid.dims) + len(rest):
        raise DataError(
            f"the DataArray {data.name!r} has dimensions {tuple(dims)}; the model was fitted to features over "
            f"{grid.dims}, so give these and at least one of samples"
        )
    for name, length in zip(grid.dims, grid.shape, strict=True):
        if data.sizes[name] != length and not grid.plain:
            raise DataError(
                f"the dimension {name!r} has length {data.sizes[name]}; the model was fitted to {length}; take the "
                "same cells, for example by X.sel or X.interp"
            )
    # Labels of features that are one dimension as it came are checked as names are (`KnownFeatures`).
    checked = [name for dim in grid.dims for name in grid.levels.get(dim, () if grid.plain else (dim,))]
    for name in checked:
        if name not in grid.coords or name not in data.coords:
            continue
        known, new = grid.coords[name].values, data.coords[name].values
        if len(known) != len(new):
            continue
        numbers = known.dtype.kind in "iuf" and new.dtype.kind in "iuf"
        close = np.isclose(known, new, rtol=0.0, atol=_tolerance(known)) if numbers else known == new
        if not np.all(close):
            at = int(np.flatnonzero(~np.asarray(close))[0])
            raise DataError(
                f"the coordinate {name!r} is {printable(new[at])} at position {at}, where the model was fitted to "
                f"{printable(known[at])}; "
                f"bring X to the same coordinates in the same order, for example by X.sortby({name!r}) or X.interp"
            )
    return rest


def _tolerance(coordinate: npt.NDArray[Any]) -> float:
    """How far a coordinate may be from that of the fit: a hundredth of the smallest step, or what single precision
    rounds off."""
    values = coordinate[np.isfinite(coordinate)].astype(np.float64)
    steps = np.diff(np.unique(values))
    rounding = float(np.finfo(np.float32).eps) * max(1.0, float(np.abs(values).max(initial=0.0)))
    return max(rounding, float(steps.min()) / 100.0) if len(steps) else rounding


def spread(values: xr.DataArray, feature: str, grid: Grid, power: int = 1) -> xr.DataArray:
    """Values along the features over the dimensions of the grid, in the units of the input.

    Parameters: `power`, the power of the features' units that the values have, 0 for none.
    Returns: the dimensions of the grid, with their coordinates, in place of that of the features; where a cell is no
    feature NaN, of whole numbers and truth values 0.
    """
    order = [name for dim in values.dims for name in (grid.dims if dim == feature else (str(dim),))]
    lead = [str(name) for name in values.dims if name != feature]
    values = values.transpose(*lead, feature)
    if grid.scale is not None and power:
        values = values / xr.DataArray(grid.scale**power, dims=feature)
    values = values.drop_vars(feature, errors="ignore")
    if grid.kept is not None:
        place = np.full(int(np.prod(grid.shape)), -1)
        place[grid.kept] = np.arange(len(grid.kept))
        taken, known = values.isel({feature: np.maximum(place, 0)}), xr.DataArray(place >= 0, dims=feature)
        values = taken.where(known) if taken.dtype.kind == "f" else taken.where(known, taken.dtype.type(0))
    sizes = [values.sizes[name] for name in lead]
    array = xr.DataArray(
        values.data.reshape(*sizes, *grid.shape), dims=[*lead, *grid.dims], coords=values.coords, name=values.name
    )
    return array.transpose(*order).assign_coords(_coordinates(grid))


def spread_all(dataset: xr.Dataset, feature: str, grid: Grid) -> xr.Dataset:
    """A Dataset of results with all its variables along the features over the dimensions of the grid."""
    about, variables = grid.attrs.get("long_name", grid.name), {}
    for name, values in dataset.data_vars.items():
        if feature not in values.dims:
            continue
        power = UNITS.get(str(name), 0)
        long_name = {"long_name": str(name).replace("_", " ") + (f" of {about}" if about else "")}
        variable = spread(values.reset_coords(drop=True), feature, grid, power)
        variables[name] = variable.assign_attrs({**units(grid, power), **long_name})
    return dataset.drop_dims(feature).assign(variables)[list(dataset.data_vars)].assign_attrs(dataset.attrs)


def _coordinates(grid: Grid) -> xr.Coordinates:
    """The coordinates of a grid, with its multi-indexes."""
    coordinates = {name: (each.dims, each.values, dict(each.attrs)) for name, each in grid.coords.items()}
    indexes: dict[Any, Any] = {dim: list(names) for dim, names in grid.levels.items()}
    return xr.Dataset(coords=coordinates).set_index(indexes).coords


def row_coordinates(data: xr.DataArray, rows: int = 1) -> xr.Coordinates:
    """The coordinates along the first dimensions, those of the samples, with their indexes."""
    coordinates = data.coords.to_dataset().drop_dims(data.dims[rows:], errors="ignore")
    return coordinates.drop_vars([name for name, each in coordinates.coords.items() if not each.dims]).coords


def feature_axis(labels: AxisLabels, features: int) -> dict[str, Any]:
    """The options of `map_rows` for results with a column for each of so many features."""
    names = np.arange(features) if labels.features is None else np.asarray(labels.features)
    return {"columns": labels.dims[1], "names": names, "grid": labels.grid}


def over_features(rows: Array, labels: AxisLabels, like: Any = None) -> Array | xr.DataArray:
    """Rows of features (n, D) as a DataArray over the dimensions that the features had in the data of a fit.

    Where that was one dimension as it came, only if `like`, whose rows they belong to, is a DataArray.
    """
    grid, named = labels.grid, like if isinstance(like, xr.DataArray) else None
    if grid is None or (grid.plain and named is None):
        return rows
    dims: tuple[Any, ...] = ("sample",)
    coords = None
    if named is not None:
        lead = named.ndim - 1
        dims, coords = named.dims[:lead], row_coordinates(named, lead)
        rows = unstacked_rows(rows, named.shape[:lead])
    array = xr.DataArray(rows, dims=(*dims, labels.dims[1]), coords=coords, name=grid.name)
    return spread(array, labels.dims[1], grid).assign_attrs(grid.attrs)


def units(grid: Grid, power: int) -> dict[str, Any]:
    """The attributes of the input for values in its units, or in a power of them."""
    if power == 1:
        return dict(grid.attrs)
    return {"units": f"({grid.attrs['units']})^{power}"} if power and "units" in grid.attrs else {}


def kind_of(labels: npt.NDArray[Any] | None) -> str:
    """How labels of features are kept: as whole numbers, as numbers, as dates, or as texts; nothing where there are
    none."""
    if labels is None:
        return ""
    kind = np.asarray(labels).dtype
    return kind.str if kind.kind == "M" else {"i": "i8", "u": "i8", "f": "f8"}.get(kind.kind, "U")


def grid_variables(grid: Grid, prefix: str = GRID) -> dict[str, Variable]:
    """The arrays of a grid, to be saved; see `grid_attributes`."""
    arrays = {
        f"{prefix}{number}": Variable(tuple(f"{prefix}{dim}" for dim in each.dims), each.values, {"name": name})
        for number, (name, each) in enumerate(grid.coords.items())
    }
    optional = {"kept": grid.kept, "scale": grid.scale}
    feature_axis = (f"{prefix}features",)
    return arrays | {
        f"{prefix}{name}": Variable(feature_axis, values) for name, values in optional.items() if values is not None
    }


def of_view(number: int) -> str:
    """How names begin of what is saved of the grid of a view."""
    return f"{GRID}{number}_"


def grid_attributes(grid: Grid) -> dict[str, Any]:
    """The attributes of a grid, as JSON values."""
    return {
        "dims": list(grid.dims),
        "shape": list(grid.shape),
        "coords": [[name, list(coordinate.dims), dict(coordinate.attrs)] for name, coordinate in grid.coords.items()],
        "levels": {name: list(levels) for name, levels in grid.levels.items()},
        "name": grid.name,
        "attrs": dict(grid.attrs),
    }


def read_grid(values: dict[str, Any], attributes: Mapping[str, Any], prefix: str = GRID) -> Grid:
    """The grid that was saved with these. Errors: any, for what no grid has."""
    coords = {
        name: Coordinate(tuple(dims), values.pop(f"{prefix}{number}"), attrs)
        for number, (name, dims, attrs) in enumerate(attributes["coords"])
    }
    levels = {name: tuple(names) for name, names in attributes["levels"].items()}
    kept, scale = values.pop(f"{prefix}kept", None), values.pop(f"{prefix}scale", None)
    dims, shape = tuple(attributes["dims"]), tuple(attributes["shape"])
    return Grid(dims, shape, coords, levels, attributes["name"], attributes["attrs"], kept, scale)
