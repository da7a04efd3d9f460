"""`impute` and `impute_variance` of models of one table, whose results have a column for each feature."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array
from dlatent.engine.connect import Where
from dlatent.errors import DataError
from dlatent.fitted.grid import feature_axis
from dlatent.fitted.linear import Linear
from dlatent.fitted.rows import RowFunction, function
from dlatent.models.beside import Beside
from dlatent.models.inputs import Data, PathLike, Rows, TargetsLike
from dlatent.models.map_rows import RowsRun
from dlatent.models.model import Model, TransformerMixin
from dlatent.models.row_methods import encoded, mapped


class _Filled(TransformerMixin):
    """Rows of all features as the result of a transformer of scikit-learn: in the container that the model's
    `set_output` says, with the names of features, where they have some."""

    def __init__(self, model: Model[Any], names: npt.NDArray[Any]) -> None:
        self.names, self._sklearn_output_config = names, getattr(model, "_sklearn_output_config", {})

    def transform(self, X: Data, values: Any) -> Any:
        return values

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        return np.array([name if isinstance(name, str) else f"x{name}" for name in self.names], dtype=object)


def filled(
    model: Model[Linear], X: Data, targets: Array | None, rows: RowFunction, name: str, power: int, run: RowsRun,
    **more: Any,
) -> Rows | str:  # fmt: skip
    """A function of rows with a column for each feature, in units of the features to some power."""
    axis = feature_axis(model._model.labels.known, model.n_features_in_)
    if model._missing == "unstored":
        raise DataError(
            "the rows of sparse data are too many to be filled in whole; predict_cells gives the cells that are wanted"
        )
    values = mapped(model, X, rows, name, run=run, targets=targets, holes=True, power=power, **axis, **more)
    plain = isinstance(values, str) or values.ndim > 2  # a place, or features over several dimensions
    return values if plain else _Filled(model, axis["names"]).transform(X, values)


def impute(
    self: Model[Linear],
    X: Data,
    y: TargetsLike = None,
    *,
    out: PathLike | None = None,
    overwrite: bool = False,
    resume: bool = False,
    client: Where = None,
    **beside: Unpack[Beside],
) -> Rows | str:
    r"""The data with each missing entry (NaN) replaced by its mean given the observed ones, and the targets if given.

    .. math:: x_j \mid x_o \sim N\left(\mu_j + w_j^\top E[z \mid x_o],\;
        w_j^\top \,\operatorname{Cov}[z \mid x_o] w_j + \psi_j\right)

    with x_j a missing entry, x_o the observed ones of its row, and w_j the loadings of feature j.

    Returns
    -------
    array of shape (n_samples, n_features), or str
        In the kind of the input, or as `set_output` says, or the path `out`.

    Raises
    ------
    DataError
        For other features, infinite values, or sparse data.
    """
    targets, run = encoded(self, X, y), RowsRun(out, overwrite, resume, client)
    return filled(self, X, targets, function(self._rows.imputed), "imputed", 1, run, beside=beside)


def impute_variance(
    self: Model[Linear],
    X: Data,
    y: TargetsLike = None,
    *,
    out: PathLike | None = None,
    overwrite: bool = False,
    resume: bool = False,
    client: Where = None,
    **beside: Unpack[Beside],
) -> Rows | str:
    """The variance of each missing entry given the observed ones, and the targets if given, noise included.

    Returns
    -------
    array of shape (n_samples, n_features), or str
        0 where an entry was observed; as of `impute`.
    """
    targets, run = encoded(self, X, y), RowsRun(out, overwrite, resume, client)
    return filled(self, X, targets, function(self._rows.imputed_variance), "imputed_variance", 2, run, beside=beside)
