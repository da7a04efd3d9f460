"""A fit as a Zarr store and as a Dataset; nothing here knows a model or a field."""

from __future__ import annotations

import os
from collections import UserDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from dlatent.errors import StoreError, masked
from dlatent.fitted import stored
from dlatent.fitted.fit import Fit, passes_of
from dlatent.fitted.grid import spread_all
from dlatent.stores.location import zarr_location
from dlatent.stores.places import read_places, require_apart
from dlatent.stores.schema import GRID, Variable

PathLike = str | os.PathLike[str]


def save(path: PathLike, kind: str, parameters: dict[str, Any], fit: Fit, *, overwrite: bool) -> None:
    """Write the fit of a kind of model with these hyperparameters, whole or not at all.

    Errors: StoreError as `results.save`, and where the place is that of what the model was fitted to.
    """
    from dlatent.stores import results  # Zarr, which only a store needs

    require_apart(path, *fit.places)
    results.save(
        path,
        kind=kind,
        attributes={"parameters": {name: _plain(value) for name, value in parameters.items()}, **stored.facts(fit)},
        variables=stored.variables(fit),
        overwrite=overwrite,
        checkpoint=fit.checkpoint,
    )


def _plain(value: Any) -> Any:
    """A hyperparameter as it is kept: paths as text, URLs without credentials."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    return masked(value) if isinstance(value, str) else value


class Asked(UserDict[str, Any]):
    """Values that remember the names that were asked for: a model asks for all that it has."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.names = set[str]()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)


def restored(path: PathLike, variables: dict[str, Variable], attributes: Any) -> Fit:
    """The fit that was kept as these at a place.  Errors: any, for what no fit leaves."""
    values = Asked({name: variable.values for name, variable in variables.items()})
    fit = stored.restored(Fit, values, attributes)
    (place, *_) = read_places(zarr_location(path))
    unknown = set(variables) - values.names
    if unknown:
        raise StoreError(f"there is a variable {min(unknown)!r}, which the model does not have")
    return Fit(fit.model, fit.report, place=place)


def result(kind: str, fit: Fit) -> xr.Dataset:
    """The arrays of a fit with named dimensions and the coordinates of the data."""
    report, model = fit.report, fit.model
    variables = {name: v for name, v in stored.variables(fit, whole=False).items() if not name.startswith(GRID)}
    along = {name for name, v in variables.items() if name in v.dims or name == "feature_view"}
    used = {dim for name, v in variables.items() if name not in along for dim in v.dims}
    arrays = {name: (v.dims, np.array(v.values)) for name, v in variables.items()}
    facts = model.attributes(report, passes_of(fit))
    dataset = xr.Dataset(
        {name: value for name, value in arrays.items() if name not in along},
        coords={name: value for name, value in arrays.items() if name in along and used >= {*value[0]}},
        # netCDF has no truth values.
        attrs={"model": kind} | {name: int(v) if isinstance(v, bool) else v for name, v in facts.items()},
    )
    labels: Any = getattr(model, "labels", None)
    if labels is None or "feature" not in dataset.dims:
        return dataset
    feature = labels.known.dims[1]
    dataset = dataset.rename({"feature": feature}) if feature != "feature" else dataset
    return dataset if labels.known.grid is None else spread_all(dataset, feature, labels.known.grid)
