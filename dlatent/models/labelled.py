"""xarray at the door: what an input brings of names and coordinates, and how results carry them on."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from dlatent.arrays import AxisLabels, DataSource, Grid
from dlatent.errors import DataError, cause
from dlatent.fitted.cells import coslat, features_of, without_masks
from dlatent.fitted.features import names_in
from dlatent.fitted.grid import (
    flattened,
    grid_of,
    plain_attributes,
    require_grid,
    row_coordinates,
    spread,
    units,
    unstacked_rows,
)
from dlatent.models.inputs import CellWeights, Data, PathLike, Rows, SampleDims
from dlatent.stores.location import is_place, local_path, place_text
from dlatent.stores.open import open_columns, open_data
from dlatent.stores.places import read_places
from dlatent.stores.schema import Variable, dimension

ROW_RESULTS = ("component", "target")
"""Dimensions of results that have a row for each sample."""

VARIABLE = "variable"
"""The dimension along which the variables of a Dataset lie."""


@dataclass(frozen=True)
class Unwrapped:
    """The plain data of an input, its labels, and the DataArray that it came in (None for other inputs); where it is
    read from, where that is known.  The first dimensions of the DataArray, so many as `lead`, are those of the
    samples."""

    data: Any
    labels: AxisLabels | None
    original: xr.DataArray | None
    places: tuple[str, ...] = ()
    lead: int = 1


def unwrap(
    data: Any, *, dim: SampleDims = None, weights: CellWeights = None, known: AxisLabels | None = None
) -> Unwrapped:
    """Take the data out of a DataArray, a Dataset with one variable that can be meant, or a data frame; others pass.

    Parameters: `dim` and `weights`, of a fit: the dimensions of the samples, and weights of the cells of the others;
    `known`, the labels of the features that a model was fitted to.  With `dim` or a grid in `known` a path is that of a
    Dataset.  Of an AnnData the features of the fit are taken, by their names, of the layer of the fit.
    Raises DataError for a DataArray whose samples or features are not clear, a Dataset with none or several candidates,
    or a data frame of which some columns only are named by texts.
    """
    places = read_places(data)  # before xarray has loaded them
    grid, names = (None, None) if known is None else (known.grid, names_in(known.features))
    if is_place(data) and (dim is not None or (grid is not None and not grid.plain)):
        data = _opened(data)
    data = data if known is None or names is None else open_columns(data, names, known.layer)
    data = as_frame(data)
    if isinstance(data, xr.DataTree):
        raise DataError(
            "a DataTree has many tables, the views of a CorrespondencePPCA; give another model one of its nodes, as "
            "tree[path]"
        )
    if isinstance(data, xr.Dataset):
        data = _field(data, dim, grid)
    if isinstance(data, xr.DataArray):
        return replace(_unwrap_array(data, dim, weights, grid), places=places)
    _require_unlabelled(data, dim, weights, grid)
    return replace(_unwrap_frame(data), places=places) if is_frame(data) else Unwrapped(data, None, None, places)


def _named(dim: SampleDims) -> tuple[str, ...]:
    """The dimensions of the samples, none where they are not said."""
    return () if dim is None else (dim,) if isinstance(dim, str) else tuple(dim)


def _unwrap_array(data: xr.DataArray, dim: SampleDims, weights: CellWeights, known: Grid | None) -> Unwrapped:
    for labelled in (data, weights):
        require_decoded(labelled)
    named = _named(dim)
    renamed = _renamed(data, named, known)
    data, rows = data.rename(renamed), tuple(renamed.get(name, name) for name in named)
    if isinstance(weights, xr.DataArray):
        weights = weights.rename({old: new for old, new in renamed.items() if old in {*weights.dims, *weights.coords}})
    if known is not None:
        return _unwrapped(data, require_grid(data, known), known)
    if dim is None:
        if data.ndim != 2:
            raise DataError(
                f"the DataArray {data.name!r} has dimensions {data.dims}; expected samples × features: say which "
                "dimension the samples lie along, as in fit(X, dim='time'), or stack the others into one"
            )
        rows = (str(data.dims[0]),)
    elif not rows or not {*rows} < {*data.dims} or len({*rows}) < len(rows):
        raise DataError(
            f"dim is {dim!r}; the DataArray {data.name!r} has dimensions {data.dims}: name those of the samples, and "
            "leave at least one for the features"
        )
    data = without_masks(data)
    grid = grid_of(data, rows)
    if dim is not None or weights is not None:
        weights = coslat(data, rows) if isinstance(weights, str) and weights == "coslat" else weights
        grid = features_of(data, rows, grid, weights)
    return _unwrapped(data, rows, grid)


def open_input(
    data: Data, *, dim: SampleDims = None, weights: Any = None, known: AxisLabels | None = None
) -> DataSource:
    """Open any input, with the labels that xarray or the store gives it; other parameters as in `unwrap`."""
    return source_of(unwrap(data, dim=dim, weights=weights, known=known))


def source_of(like: Unwrapped) -> DataSource:
    """The source of plain data with the labels that they came with."""
    source = open_data(like.data)
    source = replace(source, places=(*like.places, *source.places))
    return source if like.labels is None else replace(source, labels=like.labels)


def require_decoded(data: Any) -> None:
    """Refuse a DataArray whose attributes say that its numbers stand for others, or for nothing. Raises DataError."""
    if isinstance(data, xr.DataArray):
        from dlatent.stores.labels import check_decoded

        hint = (
            "decode them, as xr.decode_cf(ds)[name], or open the file with xarray as it does by default; where that is "
            "done, remove the attributes, as X.drop_attrs()"
        )
        check_decoded(data.attrs, data.dtype, f"the DataArray {data.name!r}", hint)


def _renamed(data: xr.DataArray, rows: tuple[str, ...], known: Grid | None) -> dict[Any, Any]:
    """The new names of dimensions and coordinates that would be taken for those of results.

    Coordinates of samples meet those of row results alone.  Samples lie along `rows`, along the dimensions that are
    none of the known grid, or else along the first.
    """
    others = () if known is None else tuple(dim for dim in data.dims if _input_name(dim) not in known.dims)
    unnamed = others if others and len(others) == data.ndim - len(known.dims if known else ()) else data.dims[:1]
    lead = rows or unnamed
    names = [
        *data.dims,
        *(name for name, each in data.coords.items() if not {*lead} & {*each.dims} or name in ROW_RESULTS),
    ]
    renamed = {name: dimension(name) for name in names if isinstance(name, str) and dimension(name) != name}
    if "sample" in data.dims and "sample" not in lead:  # what rows are called that have no name
        renamed["sample"] = _input_name("sample")
    taken = {*data.dims, *data.coords}
    return {old: f"input_{new}" if new in taken else new for old, new in renamed.items()}


def _input_name(dim: Any) -> Any:
    """The name under which a dimension is one of features."""
    return "input_sample" if dim == "sample" else dimension(dim) if isinstance(dim, str) else dim


def _opened(place: PathLike) -> xr.Dataset:
    """The Dataset at a path or URL, or in an open store, in Dask arrays with the chunks that it has there.

    Raises DataError where xarray has no way to read it.
    """
    from dlatent.stores.checked import checked_directory
    from dlatent.stores.files import require_file

    text = place_text(place)
    require_file(local_path(text), text)
    try:
        if not isinstance(place, str | os.PathLike) or os.path.isdir(place):
            return xr.open_dataset(cast(Any, checked_directory(place)), chunks={}, engine="zarr")
        return xr.open_dataset(place, chunks={})
    except (OSError, ValueError, ImportError) as error:
        raise DataError(
            f"xarray cannot open {text} (netCDF needs h5netcdf: pip install h5netcdf): {' '.join(str(error).split())}"
        ) from cause(error)


def _require_unlabelled(data: Any, dim: SampleDims, weights: Any, known: Grid | None) -> None:
    """Refuse what only an input with named dimensions can be asked for. Raises DataError."""
    if dim is not None or weights is not None:
        argument = "weights" if dim is None else "dim"
        raise DataError(
            f"{argument} is for an xarray DataArray or Dataset, and the data are of type {type(data).__name__}"
        )
    if known is not None and known.scale is not None:
        raise DataError("the model was fitted with weights of the features; give new data as a DataArray, too")


def _field(data: xr.Dataset, dim: SampleDims, known: Grid | None) -> xr.DataArray:
    """The variable of a Dataset that is meant, or several over the same dimensions as one array, the last of whose
    dimensions is `VARIABLE`.

    Raises DataError where there are none, or several over different dimensions.
    """
    numbers = {str(name): each for name, each in data.data_vars.items() if each.dtype.kind in "fiub"}
    if known is not None and VARIABLE in known.coords and VARIABLE not in data.dims:
        names = [str(name) for name in known.coords[VARIABLE].values]
        if lacking := [name for name in names if name not in numbers]:
            raise DataError(f"the Dataset lacks the variable {lacking[0]!r}; the model was fitted to {names}")
    else:
        wanted = {*_named(dim)} if known is None else {*known.dims}
        names = [name for name, each in numbers.items() if wanted and wanted < {*map(_input_name, each.dims)}]
        if not wanted or (known is not None and known.plain and not names):
            names = [name for name, each in numbers.items() if each.ndim == 2]
        if not names and known is None:  # the columns of a table
            names = [name for name, each in numbers.items() if each.ndim == 1 and wanted <= {*each.dims}]
    if len(names) == 1:
        return numbers[names[0]]
    dims = {frozenset(numbers[name].dims) for name in names}
    unclear = dim is None and known is None and any(len(each) > 1 for each in dims)  # along which the samples lie
    if unclear or len(dims) != 1 or VARIABLE in data.dims:
        raise DataError(
            f"the Dataset has {len(names)} variables that may be meant, {names}; pass one of them, as ds[name], or "
            "several over the same dimensions, with that of the samples as dim=…"
        )
    for name in names:
        require_decoded(data[name])
    return data[names].to_dataarray(VARIABLE).transpose(..., VARIABLE)


def _unwrapped(data: xr.DataArray, rows: tuple[str, ...], grid: Grid) -> Unwrapped:
    """The data with samples along the dimensions `rows`."""
    turned = without_masks(data).transpose(*rows, ...)
    columns, names = "feature" if "feature" not in rows else "cell", None
    if len(grid.dims) == 1:
        (columns,) = grid.dims
        names = coordinate(data, columns) if grid.kept is None and not grid.levels else None
        names = names if names is None else plain_labels(names)
    if len(rows) == 1:
        labels = AxisLabels((rows[0], columns), coordinate(data, rows[0]), names, grid=grid)
    else:
        stacked = {name: np.asarray(data[name].values) for name in rows}
        labels = AxisLabels(("sample", columns), None, names, grid=grid, stacked=stacked)
    return Unwrapped(flattened(turned, grid), labels, turned, lead=len(rows))


READERS = {"collect": "collect_schema", "df": "fetchnumpy", "to_pandas": "column_names"}
"""Methods that make a data frame of a lazy one of polars, a relation of DuckDB and a table of pyarrow, each with
another by which its kind is known."""


def as_frame(data: Any) -> Any:
    """What holds a table in a manner of its own, or reads it only when asked, as a data frame, and a node of a DataTree
    that has no others below it as a Dataset; others pass."""
    if isinstance(data, xr.DataTree) and not data.children:
        return data.to_dataset()
    read = (getattr(data, name) for name, mark in READERS.items() if hasattr(data, name) and hasattr(data, mark))
    return next(read, lambda: data)()


def is_frame(data: Any) -> bool:
    """True for a data frame: of pandas, of polars, of Dask, or of another kind with columns and a matrix of them."""
    if isinstance(data, (xr.DataArray, xr.Dataset)):
        return False
    return (hasattr(data, "to_numpy") or hasattr(data, "to_dask_array")) and hasattr(data, "columns")


def _unwrap_frame(frame: Any) -> Unwrapped:
    """The numbers of a data frame, with the names of its columns and rows.

    Raises DataError where some names are text and others not, as scikit-learn does.
    """
    names = [name for name in frame.columns if isinstance(name, str)]
    if names and len(names) < frame.shape[1]:
        other = next(name for name in frame.columns if not isinstance(name, str))
        raise DataError(
            f"some columns of the data frame have texts for names, as {names[0]!r}, and others not, as {other!r}; name "
            "all of them by texts, as with X.columns = X.columns.astype(str), or pass X.to_numpy()"
        )
    # Of Dask a pass over its files counts the rows of each partition.
    values = frame.to_dask_array(lengths=True) if hasattr(frame, "to_dask_array") else frame.to_numpy()
    columns = np.array(names) if names else plain_labels(frame.columns)
    return Unwrapped(values, AxisLabels(features=columns, index=index_of(frame)), None)


def plain_labels(labels: Any) -> npt.NDArray[Any]:
    """Labels as numbers, dates or texts; what is none of these, as a tuple of a multi-index, as its text."""
    index = np.asarray(pd.Index(list(labels)))
    return index if index.dtype.kind in "iufM" else np.array([str(label) for label in index], dtype=str)


def coordinate(data: xr.DataArray, dim: str) -> npt.NDArray[Any] | None:
    """The labels along a dimension; None where it has none."""
    return np.array(data.coords[dim].values) if dim in data.coords else None


def stored_coordinates(like: Unwrapped, taken: tuple[str, ...]) -> dict[str, Variable]:
    """The coordinates along the samples, with their attributes, as a store of results takes them beside the names that
    are taken; none where samples lie over several dimensions, which are one there."""
    if like.original is None or like.lead > 1:
        return {}
    return {
        str(name): Variable((str(each.dims[0]),), np.asarray(each.values), plain_attributes(each.attrs))
        for name, each in row_coordinates(like.original).items()
        if name not in taken and not {" ", "/"} & {*str(name)}
        if each.dtype.kind in "biufMU" or all(isinstance(value, str) for value in each.values.tolist())
    }


def index_of(values: Any) -> npt.NDArray[Any] | None:
    """The names of the rows of a table or column of pandas; None of others, and of Dask, which has not read them."""
    return np.asarray(values.index) if isinstance(values, pd.DataFrame | pd.Series) else None


def wrap_rows(
    values: Rows,
    like: Unwrapped,
    columns: str,
    names: npt.NDArray[Any],
    *,
    name: str,
    grid: Grid | None = None,
    power: int = 1,
) -> Rows:
    """Rows of results as a DataArray with the samples' dimension and coordinates, where the input was one.

    Where the columns are features, `grid` is theirs, over whose dimensions the results are spread then, and `power`
    that of their units.
    """
    if like.original is None:
        return values
    rows, coords = like.original.dims[: like.lead], row_coordinates(like.original, like.lead)
    values = values if like.lead == 1 else unstacked_rows(values, like.original.shape[: like.lead])
    if values.ndim == len(rows):
        return xr.DataArray(values, dims=rows, coords=coords, name=name)
    array = xr.DataArray(values, dims=(*rows, columns), coords=coords, name=name)
    if grid is None:
        return array.assign_coords({columns: names})
    return spread(array, columns, grid, 0).assign_attrs(units(grid, power))
