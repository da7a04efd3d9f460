"""Targets in whatever holds them as an array: labels, numbers, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.sparse as sp

from dlatent.arrays import Array
from dlatent.containers import plain_numbers, refuse_mask, without_mask
from dlatent.errors import DataError

FEW = 20
"""Distinct whole floats that may be labels whatever they are; of more all must count from 0 or 1."""


def as_array(targets: Any) -> npt.NDArray[Any]:
    """Targets in whatever holds them as an array, masked ones missing; lists that mix text and None must not become
    text.

    Raises DataError for what is none.
    """
    if isinstance(targets, str):
        raise DataError(
            f"y is the text {targets!r}; give a value for each sample, as adata.obs[{targets!r}] (annotate takes the "
            "name)"
        )
    many = "give a label or a number for each sample, or as many numbers for each"
    if isinstance(targets, str | bytes | Mapping) or not (
        hasattr(targets, "__array__") or isinstance(targets, Iterable)
    ):
        raise DataError(f"y is of type {type(targets).__name__}; {many}")
    try:
        array = _to_numpy(targets)
    except DataError:
        raise
    except (TypeError, ValueError) as error:
        raise DataError(f"y is no array ({error}); {many}") from error
    if array.ndim not in (1, 2) or (array.ndim == 2 and not array.shape[1]):
        raise DataError(f"y has shape {array.shape}; {many}")
    return array


def _to_numpy(targets: Any) -> npt.NDArray[Any]:
    if hasattr(targets, "__dask_graph__"):
        if sp.issparse(meta := getattr(targets, "_meta", None)):  # what Dask puts together must fit before
            targets = targets.map_blocks(plain_numbers, "y", dtype=targets.dtype, meta=meta)
        targets = targets.compute()
    if sp.issparse(targets):
        return np.asarray(plain_numbers(targets, "y").toarray())
    if hasattr(targets, "to_numpy"):
        return np.asarray(targets.to_numpy())
    if hasattr(targets, "__array__"):
        return without_mask(targets)
    values = [None if value is np.ma.masked else value for value in targets]
    mixed = any(issubclass(kind, str) or kind is type(None) for kind in set(map(type, values)))
    return np.array(values, dtype=object) if mixed else without_mask(values)


def with_mask(targets: npt.NDArray[Any], mask: Any, samples: int) -> npt.NDArray[Any]:
    """Targets of which those outside a mask are missing.  Errors: DataError for a mask of another shape."""
    if mask is None:
        return targets
    keep = refuse_mask(mask, "labelled")
    if keep.shape != (samples,) or keep.dtype != bool:
        raise DataError(f"labelled has shape {keep.shape} and dtype {keep.dtype}; expected {samples} booleans")
    hidden = targets.astype(object) if targets.dtype.kind not in "f" else targets.copy()
    hidden[~keep] = np.nan if hidden.dtype.kind == "f" else None
    return hidden


def without_minus_rows(targets: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
    """A 0/1 matrix whose unlabelled rows are −1 throughout, the convention of class labels, with those rows missing."""
    floats = targets.dtype.kind == "f" and kind == "auto"
    if targets.ndim != 2 or targets.shape[1] == 1 or kind not in ("auto", "multilabel") or floats:
        return targets
    numbers = _numbers(targets)
    hidden = (numbers == -1).all(axis=1)
    seen = numbers[~hidden]
    if not hidden.any() or not np.isin(seen[np.isfinite(seen)], (0, 1)).all():
        return targets
    return with_mask(targets, ~hidden, len(targets))


def distinct_values(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
    """The distinct values in the order of their first rows, and which of them each row has (n,)."""
    try:
        which, distinct = pd.factorize(values, use_na_sentinel=False)
    except TypeError as error:
        raise DataError(f"y has values that can be no labels ({error}); use numbers or texts") from error
    return np.asarray(distinct), which


def kind_of(targets: npt.NDArray[Any]) -> str:
    """Whether targets are "class", "multilabel" or "regression", as far as they tell."""
    if targets.ndim == 2:
        numbers = _numbers(targets)
        seen = numbers[np.isfinite(numbers)]
        return "multilabel" if targets.dtype.kind != "f" and np.isin(seen, (0, 1)).all() else "regression"
    if targets.dtype.kind in "USbiu":
        return "class"
    if targets.dtype.kind != "f":
        kinds = set(map(type, targets[~pd.isna(targets)].tolist()))
        numeric = all(issubclass(kind, (int, float)) and kind is not bool for kind in kinds)
        if not numeric or all(issubclass(kind, int) for kind in kinds):
            return "class"
    numbers = _numbers(targets)
    return "class" if _are_labels(np.unique(numbers[~np.isnan(numbers)])) else "regression"


def _are_labels(values: Array) -> bool:
    """Whether distinct floats are labels: whole numbers, at most `FEW` of them beside −1, which is no label, or
    0 … C − 1 or 1 … C."""
    values = values[values != -1.0]
    if not np.isfinite(values).all() or (values != np.floor(values)).any():
        return False
    return len(values) <= FEW or (values[0] in (0.0, 1.0) and values[-1] - values[0] == len(values) - 1)


def _numbers(targets: npt.NDArray[Any]) -> Array:
    """Numbers with NaN for what is missing."""
    if targets.dtype == object:
        targets = np.where(pd.isna(targets), np.nan, targets)
    try:
        return targets.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"y must be numbers for this target type: {error}") from error


def number_matrix(targets: Any, samples: int) -> Array:
    """Targets as numbers with a column for each output.  Errors: DataError for another number of rows."""
    values = _numbers(as_array(targets))
    values = values[:, None] if values.ndim == 1 else values
    if len(values) != samples:
        raise DataError(f"y has {len(values)} rows; the data have {samples} samples")
    return values


def labels_of_rows(targets: Any, samples: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Class labels and which rows have one: None, NaN and −1 are no labels."""
    values = as_array(targets)
    if values.ndim != 1 or len(values) != samples:
        raise DataError(f"class labels have shape {values.shape}; expected {samples} of them")
    present = np.isfinite(values) if values.dtype.kind == "f" else ~pd.isna(values)
    if values.dtype.kind in "iufO":
        present[present] = values[present] != -1
    if values.dtype.kind == "f":
        numbers = np.where(present, values, 0)
        values = numbers.astype(np.int64) if (numbers == np.floor(numbers)).all() else values
    return values, present
