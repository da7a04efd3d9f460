"""Single cells of incomplete data, as of ratings: what the observed entries of their rows say of them."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import xarray as xr

from dlatent.arrays import Array, Block, Features, Integers
from dlatent.engine.connect import Where, connect
from dlatent.errors import DataError
from dlatent.fitted.grid import cells_named
from dlatent.gaussian.missing_entries.incomplete import Cells, predicted_cells
from dlatent.gaussian.missing_entries.observed import chunks
from dlatent.gaussian.specification import Parameters, Specification
from dlatent.gaussian.views import first_bad_entry
from dlatent.models.callbacks import shown
from dlatent.models.inputs import Data, KnownFeatures, TargetsLike
from dlatent.models.labelled import open_input
from dlatent.models.map_rows import fill
from dlatent.models.model import Model
from dlatent.models.row_methods import encoded
from dlatent.passes import Pass
from dlatent.stores.rows import take_rows


class CellsRequest(NamedTuple):
    """A model, what it asks of the data, the numbers (u,) that the rows have there, and of each cell, in the order of
    rows, which of these it is in, and its column (m,)."""

    parameters: Parameters
    specification: Specification
    features: KnownFeatures
    numbers: Integers
    rows: Integers
    columns: Integers


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
    fitted, features = self._model, self._known_features(holes=None if self._missing == "unstored" else True)
    source = open_input(X, known=fitted.labels.known.grid)
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
            session.deliver(Pass(_of_block, request, combine=operator.add, name="cells"), partial(fill, sorted_values))
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


def _of_block(block: Block, request: CellsRequest) -> tuple[tuple[int, Array], ...]:
    """The first cell of a block of rows, and mean and variance (m, 2) of all its cells."""
    parameters, specification, features, numbers, rows, columns = request
    x, width = block.features, parameters.loadings.shape[1] ** 2
    bad = first_bad_entry(x, holes=features.holes)
    if bad is not None:
        features.check_values(x[[bad.row]], int(numbers[block.start + bad.row]))
    first, pieces = int(np.searchsorted(rows, block.start)), []
    for at in chunks(x, width):
        here = slice(*np.searchsorted(rows, [block.start + at.start, block.start + at.stop]))
        inside, of, y = rows[here] - block.start - at.start, columns[here], block.targets
        found = predicted_cells(x[at], None if y is None else y[at], inside, of, parameters, specification)
        known = _observed(x[at], inside, of)
        values = np.column_stack(found)
        values[known.rows] = np.column_stack([known.values, np.zeros(len(known.values))])
        pieces.append(values)
    return ((first, np.concatenate(pieces)),)


def _observed(x: Features, rows: Integers, columns: Integers) -> Cells:
    """Those of some cells that are observed, by their number in the place of rows."""
    if isinstance(x, sp.csr_array):
        places = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr)) * x.shape[1] + x.indices
        wanted = rows * x.shape[1] + columns
        at = np.minimum(np.searchsorted(places, wanted), len(places) - 1)
        known = np.flatnonzero(places[at] == wanted) if len(places) else np.zeros(0, dtype=np.intp)
        return Cells(known, columns[known], np.asarray(x.data[at[known]], dtype=np.float64))
    values = np.asarray(x[rows, columns], dtype=np.float64)
    known = np.flatnonzero(~np.isnan(values))
    return Cells(known, columns[known], values[known])
