"""What users give beside the entries of a matrix: their error bars, offsets of their predictors, covariates of rows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array, AxisLabels, DataSource
from dlatent.containers import refuse_mask
from dlatent.errors import DataError
from dlatent.fitted.features import KnownFeatures, require_order
from dlatent.models.aligned import plain_rows
from dlatent.models.inputs import CellWeights, Data, SampleDims
from dlatent.models.labelled import open_input
from dlatent.stores.beside import with_beside
from dlatent.stores.rows import open_computed


class Beside(TypedDict, total=False):
    """What may stand beside the entries."""

    uncertainty: Data | float | None
    offset: Data | None
    covariates: Data | None


NOTHING: Mapping[str, Any] = MappingProxyType({})


def given(beside: Mapping[str, Any]) -> dict[str, Any]:
    """What a user gives.  Errors: TypeError for other keywords."""
    unknown = beside.keys() - Beside.__annotations__.keys()
    if unknown:
        raise TypeError(f"got an unexpected keyword argument {min(unknown)!r}")
    return {name: beside[name] for name in Beside.__annotations__ if beside.get(name) is not None}


def opened_beside(
    source: DataSource,
    beside: Mapping[str, Any],
    dim: SampleDims = None,
    weights: CellWeights = None,
    known: AxisLabels | None = None,
) -> DataSource:
    """The data with what stands beside their entries; `dim`, `weights` and `known` as those of the data.

    Errors: DataError for shapes and labels that are not those of the data.
    """
    values = given(beside)
    if not values:
        return source
    others = {name: _opened(name, value, source, dim, weights, known) for name, value in values.items()}
    return with_beside(source, others)


def _opened(
    name: str, value: Any, source: DataSource, dim: SampleDims, weights: CellWeights, known: AxisLabels | None
) -> DataSource:
    samples, features = source.shape
    if np.ndim(value) == 0 and isinstance(value, (int, float, np.number)):
        if name != "uncertainty":
            raise DataError(f"{name} is the number {value}; give one for each row")
        return open_computed(_Everywhere(float(value), features), source.shape, "number")
    plain = plain_rows(value, source.labels, name)  # which looks at the labels of the rows
    if getattr(value, "ndim", 2) == 1 or (isinstance(value, list) and np.ndim(value) == 1):
        opened = open_input(_numbers(refuse_mask(plain, name), name)[:, None])
    elif name == "covariates":
        opened = open_input(value)
    else:
        each = getattr(value, "shape", source.shape)[-1] != 1  # and not one number for a row
        opened = open_input(value, dim=dim, weights=weights, known=known) if each else open_input(plain)
    widths = {"uncertainty": (features,), "offset": (1, features)}.get(name, (opened.shape[1],))
    if opened.shape[0] != samples or opened.shape[1] not in widths:
        wanted = f"{samples} rows" if name == "covariates" else f"{samples} × {' or '.join(map(str, widths))}"
        raise DataError(f"{name} has shape {opened.shape}, and the data {source.shape}; expected {wanted}")
    if opened.shape[1] == features and name != "covariates":
        require_order(source.labels.features, opened.labels.features, f"the labels of {name}")
    if name == "covariates" and known is not None:
        require_order(known.covariates, opened.labels.features, "the names of the covariates")
    return opened


def require_beside(features: KnownFeatures, source: DataSource) -> None:
    """Refuse rows with other things beside them than those of the fit had.  Errors: DataError."""
    wanted, brought = dict(features.beside), dict(source.beside)
    for name in wanted.keys() - brought.keys():
        raise DataError(f"this {features.model} was fitted with {name}=; give that of these samples, too, as {name}=…")
    for name in brought.keys() - wanted.keys():
        raise DataError(
            f"this {features.model} was fitted without {name}=; leave it out, or fit with it (PPCA and FactorAnalysis "
            "take it)"
        )
    for name, width in wanted.items():
        if brought[name] != width:
            raise DataError(f"{name} has {brought[name]} columns, and that of the fit had {width}; give as many")


def _numbers(values: npt.NDArray[Any], name: str) -> Array:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{name} are numbers, and these are not ({error}); of classes give a column for each but one, as "
            "pandas.get_dummies(…, drop_first=True, dtype=float)"
        ) from error


class _Everywhere:
    """Rows of one number."""

    def __init__(self, value: float, columns: int) -> None:
        self.value, self.columns = value, columns

    def __getitem__(self, rows: slice) -> np.ndarray:
        return np.full((rows.stop - rows.start, self.columns), self.value)
