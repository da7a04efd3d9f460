"""The result of `fit` of any model, its parameters and its course: as a store, as a Dataset, and as a summary."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from dlatent.engine.session import PassRecord
from dlatent.errors import StoreError, masked
from dlatent.fitted import stored
from dlatent.fitted.grid import spread_all
from dlatent.fitted.stored import attribute, part, table
from dlatent.fitted.summary import Summary
from dlatent.gaussian.moments import Moments
from dlatent.solvers.solution import Iteration
from dlatent.stores.location import zarr_location
from dlatent.stores.places import read_places, require_apart
from dlatent.stores.schema import GRID, Variable

INITIAL_MEAN = "initial mean"
"""The name of the pass that is not counted as one."""
PathLike = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class Report:
    """How a fit went; `log_likelihood` is None of what has no likelihood."""

    log_likelihood: float | None = attribute()
    checked_log_likelihood: float | None = attribute()
    converged: bool = attribute()
    iterations: int = attribute()
    samples: int = attribute()
    plan: dict[str, str | int] = attribute()
    notices: tuple[tuple[str, str], ...] = attribute()
    history: tuple[Iteration, ...] = table(Iteration, "iteration")
    passes: tuple[PassRecord, ...] = table(PassRecord, "pass")


@dataclass(frozen=True, eq=False)
class FittedModel(ABC):
    """The parameters of a fit; each family of models has its own."""

    @abstractmethod
    def summary(self, samples: int) -> Summary:
        """The parameters of a fit to so many samples, as JSON values; lists are tables."""

    def attributes(self, report: Report, passes: int) -> dict[str, Any]:
        """The attributes of `result_`."""
        course = {name: getattr(report, name) for name in ("log_likelihood", "converged", "iterations", "samples")}
        return course | {"passes": passes}


@dataclass(frozen=True, eq=False)
class Fit:
    """The model and the report of its fit, which are kept, and what is not.

    Parameters
    ----------
    moments : of all rows, where more rows may be added.
    places : where the data of the fit are read from, as far as that is known.
    checkpoint : the identity of the checkpoint of the fit, where there was one.
    place : where the model was loaded from.
    """

    model: FittedModel = part()
    report: Report = part()
    moments: Moments | None = field(default=None, repr=False)
    places: tuple[str, ...] = ()
    checkpoint: str | None = None
    place: str | None = None


def passes_of(fit: Fit) -> int:
    """Passes over the data, the initial mean of their first block not counted."""
    return sum(record.name != INITIAL_MEAN for record in fit.report.passes)


def save(path: PathLike, kind: str, parameters: dict[str, Any], fit: Fit, *, overwrite: bool) -> None:
    """Write the fit of a kind of model with these hyperparameters, whole or not at all.

    Errors: StoreError as `results.save`, and where the place is that of what the model was fitted to.
    """
    from dlatent.stores import results  # Zarr, which only a store needs

    require_apart(path, *fit.places)
    results.save(
        path,
        kind=kind,
        attributes={"parameters": {k: _plain(value) for k, value in parameters.items()}, **stored.json_values(fit)},
        variables=stored.variables(fit),
        overwrite=overwrite,
        checkpoint=fit.checkpoint,
    )


def _plain(value: Any) -> Any:
    """A hyperparameter as it is kept: paths as text, URLs without credentials."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    return masked(value) if isinstance(value, str) else value


def from_saved(path: PathLike, variables: dict[str, Variable], attributes: Any) -> Fit:
    """The fit that was kept as these at a place.  Errors: any, for what no fit leaves."""
    values = {name: variable.values for name, variable in variables.items()}
    fit = stored.from_saved(Fit, values, attributes)
    if values:
        raise StoreError(f"there is a variable {min(values)!r}, which the model does not have")
    (place, *_) = read_places(zarr_location(path))
    return Fit(fit.model, fit.report, place=place)


def result(kind: str, fit: Fit) -> xr.Dataset:
    """The arrays of a fit with named dimensions and the coordinates of the data."""
    report, model = fit.report, fit.model
    variables = {name: v for name, v in stored.variables(fit, saved_only=False).items() if not name.startswith(GRID)}
    along = {name for name, v in variables.items() if name in v.dims or name == "feature_view"}
    used = {dim for name, v in variables.items() if name not in along for dim in v.dims}
    arrays = {name: (v.dims, np.array(v.values)) for name, v in variables.items()}
    values = model.attributes(report, passes_of(fit))
    dataset = xr.Dataset(
        {name: value for name, value in arrays.items() if name not in along},
        coords={name: value for name, value in arrays.items() if name in along and used >= {*value[0]}},
        # netCDF has no truth values.
        attrs={"model": kind} | {name: int(v) if isinstance(v, bool) else v for name, v in values.items()},
    )
    labels: Any = getattr(model, "labels", None)
    if labels is None or "feature" not in dataset.dims:
        return dataset
    feature = labels.known.dims[1]
    dataset = dataset.rename({"feature": feature}) if feature != "feature" else dataset
    return dataset if labels.known.grid is None else spread_all(dataset, feature, labels.known.grid)


def history(report: Report) -> xr.Dataset:
    """Iterations and passes of a fit as a Dataset with the dimensions `iteration` and `pass`."""
    return xr.Dataset({name: (v.dims, v.values) for name, v in stored.variables(report).items()})


def summary(kind: str, parameters: dict[str, Any], fit: Fit) -> Summary:
    """A model of some kind with these hyperparameters, as JSON values; lists are tables."""
    report, records = fit.report, fit.report.passes
    values: Summary = {
        "kind": kind,
        "parameters": parameters,
        "samples": report.samples,
        "converged": report.converged,
        "passes": passes_of(fit),
        "seconds": float(sum(record.seconds for record in records)),
    }
    if report.log_likelihood is not None:
        values |= {
            "log_likelihood": report.log_likelihood,
            "iterations": report.iterations,
            "solver": report.plan["solver"],
            "bytes_read": sum(record.bytes_read for record in records),
            "warnings": [text for _, text in report.notices],
        }
    return values | fit.model.summary(report.samples)
