"""`residuals` of rows: how far their entries are from what the model expects of them."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import xarray as xr

from dlatent.arrays import Array
from dlatent.engine.connect import Where
from dlatent.fitted.grid import feature_axis, over_features
from dlatent.fitted.linear import Linear
from dlatent.fitted.rows import function
from dlatent.models.beside import Beside
from dlatent.models.inputs import Data
from dlatent.models.map_rows import RowsRun
from dlatent.models.model import Model
from dlatent.models.row_methods import mapped


def residuals(self: Model[Linear], X: Data, *, client: Where = None, **beside: Unpack[Beside]) -> xr.Dataset:
    r"""Standardised (Pearson) residuals: how far each entry is from what the other entries of its row say of it.

    .. math:: r_{ij} = \frac{x_{ij} - m_{ij}}{\sqrt{V_{ij}}}, \qquad m_{ij} = E[x_{ij} \mid x_{i,-j}], \quad
        V_{ij} = \operatorname{Var}[x_{ij} \mid x_{i,-j}]

    with the parameters of the fit, and the posterior of z without the term of the entry.  If the model is right,
    residuals of normal entries are N(0, 1), those of Student's distribution about t, with its scale in the place of
    the variance, and others have variances near 1.

    Returns
    -------
    xarray.Dataset
        `mean` m, of a missing entry as in `impute`, and `residual` r, NaN there (sample, feature).  With
        `likelihood="student"` the `weight` E[u] (sample, feature), with "student_rows" (sample): about 1, and near 0 of
        what is far off.  Its attributes are the `likelihood` and, of Student's, the `degrees_of_freedom`.
    """
    fitted, entries = self._model, self._model.entries
    features, known = len(fitted.mean), fitted.labels.known
    told = {"likelihood": "normal"} if entries is None else entries.told()
    names = np.arange((2 + ("student" in told["likelihood"])) * features)
    values = mapped(
        self, X, function(self._rows.residuals), "residuals", "entry", names, run=RowsRun(client=client), beside=beside
    )
    rows = values.dims[:-1] if isinstance(values, xr.DataArray) else ("sample",)
    axis = feature_axis(known, features)

    def over(part: Array) -> xr.DataArray:
        array = over_features(part, known, values)
        if isinstance(array, xr.DataArray):
            return array
        return xr.DataArray(array, dims=(*rows, axis["columns"]), coords={axis["columns"]: axis["names"]})

    parts = np.split(np.asarray(values).reshape(-1, len(names)), len(names) // features, axis=1)
    arrays = dict(zip(("mean", "residual", "weight"), map(over, parts), strict=False))
    for name in arrays.keys() - {"mean"}:  # which alone are in the units of the data
        arrays[name].attrs = {}
    if told["likelihood"] == "student_rows":
        arrays["weight"] = arrays["weight"].max([dim for dim in arrays["weight"].dims if dim not in rows])
    return xr.Dataset(arrays, attrs=told)
