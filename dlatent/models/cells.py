"""Single cells of incomplete data, as of ratings: what the observed entries of their rows say of them."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.engine.connect import Where, connect
from dlatent.errors import DataError
from dlatent.fitted.features import cells_named
from dlatent.fitted.row_work import CellsRequest, block_cells
from dlatent.models.callbacks import shown
from dlatent.models.inputs import Data, TargetsLike
from dlatent.models.labelled import open_input
from dlatent.models.map_rows import fill
from dlatent.models.model import Model
from dlatent.models.observations import require_normal
from dlatent.models.row_methods import encoded
from dlatent.passes import Pass
from dlatent.stores.rows import take_rows


def predict_cells(
    self: Model[Any],
    X: Data,
    rows: npt.ArrayLike,
    columns: npt.ArrayLike,
    y: TargetsLike = None,
    *,
    client: Where = None,
) -> xr.Dataset:
    """Single cells of the data given the observed entries of their rows, as `impute` and `impute_variance` fill them.

    The rows of these cells alone are visited, and none is filled: for ratings of many users and items.

    Parameters
    ----------
    rows : array of int of shape (n_cells,)
        The row of each cell in `X`, counted from 0.
    columns : array of int of shape (n_cells,)
        The column of each.

    Returns
    -------
    xarray.Dataset
        Over `cell` its `mean`, in units of the features, and its `variance`, noise included; the entry itself and 0
        where it is observed.  `row` and `column` are its place.

    Raises
    ------
    NotFittedError
        Before `fit`.
    DataError
        For other features, infinite values, and places outside the data.
    """
    require_normal(self, "predict_cells")
    fitted, features = self._model, self._known_features(holes=None if self._missing == "unstored" else True)
    source = open_input(X, known=fitted.labels.known)
    features.check(source.shape, source.labels.features)
    features.check_kind(source.sparse, source.description)
    at, of = _places("rows", rows, source.shape[0]), _places("columns", columns, source.shape[1])
    if len(at) != len(of):
        raise DataError(f"there are {len(at)} rows and {len(of)} columns; give a row and a column for each cell")
    values = np.empty((len(at), 2))
    if len(at):
        targets, (numbers, inside) = encoded(self, X, y), np.unique(at, return_inverse=True)
        order = np.argsort(inside, kind="stable")
        known = fitted.parameters, fitted.specification, features.without_labels()
        request, sorted_values = CellsRequest(*known, numbers, inside[order], of[order]), np.empty_like(values)
        with (
            connect(
                take_rows(source, numbers),
                targets=None if targets is None else targets[numbers],
                client="serial" if source.in_memory else client,
                cache_bytes=0,
            ) as session,
            shown(session, "cells"),
            cells_named({None: features.grid}),
        ):
            session.deliver(
                Pass(block_cells, request, combine=operator.add, name="cells"), partial(fill, sorted_values)
            )
        values[order] = sorted_values
    grid = fitted.labels.known.grid
    if grid is not None and grid.scale is not None:
        values /= np.column_stack([grid.scale, grid.scale**2])[of]
    both = {"mean": ("cell", values[:, 0]), "variance": ("cell", values[:, 1])}
    return xr.Dataset(both, {"row": ("cell", at), "column": ("cell", of)})


def _places(name: str, places: npt.ArrayLike, size: int) -> npt.NDArray[np.int64]:
    """Errors: DataError for what is no place in an axis of this size."""
    values = np.asarray(places)
    if values.ndim != 1 or (values.dtype.kind not in "iu" and values.size):
        raise DataError(f"{name} must be a list of whole numbers, one for each cell; got {values.dtype} {values.shape}")
    wrong = np.flatnonzero((values < 0) | (values >= size))
    if len(wrong):
        raise DataError(f"{name}[{wrong[0]}] is {values[wrong[0]]}, and X has {size} {name}, 0 to {size - 1}")
    return values.astype(np.int64)
