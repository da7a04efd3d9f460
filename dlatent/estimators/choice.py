"""How many components: by the likelihood of cells that the fits did not see."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from sklearn.base import clone

from dlatent.arrays import DataSource
from dlatent.engine.connect import Where, connect
from dlatent.errors import DataError, DataWarning
from dlatent.estimators.docstrings import described
from dlatent.estimators.inputs import Data, TargetsLike
from dlatent.estimators.map_rows import open_input
from dlatent.estimators.ppca import PPCA
from dlatent.estimators.supervised import SupervisedPPCA
from dlatent.linear_gaussian.held_out import HeldOutRequest, Hiding, block_held_out
from dlatent.passes import Pass
from dlatent.stores.held_out import hide_cells


@described
def select_n_components(
    model: PPCA,
    X: Data,
    candidates: Sequence[int],
    y: TargetsLike = None,
    *,
    held_out: float = 0.1,
    random_state: int = 0,
    dim: str | None = None,
    client: Where = None,
) -> xr.Dataset:
    """Fit the model with each number of components to a part of the cells, and score the predictions of the others.

    A cell's score is log p(x_ij | the row's cells that the fit saw), so that too many components lose, unlike with the
    likelihood of the fit.  All fits see the same cells.

    Parameters
    ----------
    model : PPCA, FactorAnalysis or SupervisedPPCA
        An estimator, whose other hyperparameters are kept.
    X : array, data frame, Zarr array, path or URL, of shape (n_samples, n_features)
        The data: dense, or sparse with `missing="unstored"`.
    candidates : sequence of int
        Numbers of components.
    y : array of shape (n_samples,) or (n_samples, n_targets), optional
        Targets of a supervised model, none of them held out.
    held_out : float, default 0.1
        The part of the cells that is held out.
    random_state : int, default 0
        Decides which cells are.

    Returns
    -------
    xarray.Dataset
        Over `n_components`: `held_out_log_likelihood` (nats a cell), `held_out_rmse`, `log_likelihood`, `passes` and
        `converged`.  The attribute `best` is the number with the highest score.

    Raises
    ------
    DataError
        For parameters that make no sense, and as in `fit`.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import PPCA, select_n_components
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 10)) + rng.normal(size=(200, 10))
    >>> select_n_components(PPCA(), X, [1, 2, 3]).attrs["best"]
    2
    """
    if not 0.0 < held_out < 1.0:
        raise DataError(f"held_out is {held_out!r}; expected a part of the cells, above 0 and below 1")
    if not candidates:
        raise DataError("there are no numbers of components to choose from")
    if "missing" not in model.get_params():
        raise DataError(f"{type(model).__name__} has no missing entries to score; choose by prediction (GridSearchCV)")
    source, _ = open_input(X, dim=dim)
    if source.sparse and model.missing != "unstored":
        raise DataError(
            "cells of sparse data can be held out where their stored entries are the observed ones: missing='unstored'"
        )
    hiding = Hiding(float(held_out), int(random_state))
    visible = hide_cells(source, hiding)
    lines = [_line(model, k, source, visible, y, hiding, client) for k in candidates]
    best = max(lines, key=lambda line: line["held_out_log_likelihood"])
    names = [name for name in lines[0] if name != "n_components"]
    return xr.Dataset(
        {name: ("n_components", np.array([line[name] for line in lines])) for name in names},
        coords={"n_components": [line["n_components"] for line in lines]},
        attrs={"best": best["n_components"], "model": type(model).__name__, "held_out": float(held_out)},
    )


def _line(
    model: PPCA, k: int, source: DataSource, visible: DataSource, y: TargetsLike, hiding: Hiding, client: Where
) -> dict[str, Any]:
    """One candidate: its fit to the visible cells, and its score on the others."""
    missing = "unstored" if source.sparse else "nan"
    fitted = clone(model).set_params(n_components=k, missing=missing, solver="auto")
    supervised = isinstance(fitted, SupervisedPPCA)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # rows that hiding has emptied
        fitted.fit(visible, *((y,) if supervised else ()), client=client)
    targets = fitted._encode_new(source, y) if supervised else None
    request = HeldOutRequest(fitted._parameters, fitted._specification, hiding)
    with connect(source, targets=targets, client=client, cache_bytes=0) as session:
        found = session.run(Pass(block_held_out, request, name="held out"))
    if not found.cells:
        raise DataError("no cell was held out; hold out a larger part")
    return {
        "n_components": int(k),
        "held_out_log_likelihood": found.log_likelihood / found.cells,
        "held_out_rmse": float(np.sqrt(found.squared_error / found.cells)),
        "log_likelihood": fitted.log_likelihood_,
        "passes": fitted.n_passes_,
        "converged": fitted.converged_,
    }
