"""`fit`, `plan` and `partial_fit` of models of one table, each once; a model takes those that it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import xarray as xr

from dlatent.engine.connect import Where
from dlatent.errors import DataError
from dlatent.models import task as tasks
from dlatent.models.callbacks import Callback
from dlatent.models.docstrings import described
from dlatent.models.hyperparameters import COUNT
from dlatent.models.inputs import Data, PathLike, TargetsLike
from dlatent.models.model import LinearModel, Model
from dlatent.models.scikit import available_if
from dlatent.models.task import FitRun
from dlatent.solvers.plan import Plan

M = TypeVar("M", bound=Model)
L = TypeVar("L", bound=LinearModel)


@described
def fit(
    self: M,
    X: Data,
    y: TargetsLike = None,
    *,
    dim: str | None = None,
    weights: xr.DataArray | None = None,
    client: Where = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: PathLike | None = None,
    resume: bool = False,
) -> M:
    """Fit the model to samples × features."""
    task = self._task(X, dim=dim, weights=weights)
    return self._become(tasks.run(task, FitRun(client, callbacks, checkpoint, resume), self))


@described
def plan(
    self: Model,
    X: Data,
    y: TargetsLike = None,
    *,
    dim: str | None = None,
    weights: xr.DataArray | None = None,
    client: Where = None,
) -> Plan:
    """What `fit` would do and cost, from metadata alone: solver and why, passes, bytes, tasks, memory."""
    return tasks.plan(self._task(X, dim=dim, weights=weights), client)


@available_if(lambda model: model._missing == "raise")
@described
def partial_fit(
    self: L,
    X: Data,
    y: TargetsLike = None,
    *,
    dim: str | None = None,
    client: Where = None,
    callbacks: Sequence[Callback] = (),
) -> L:
    """Add rows to those of earlier calls, and fit the model to all of them.

    The model keeps D² moments of the rows, and is after each call that of one fit to all rows, whatever their order and
    parts, to rounding.  `fit` begins anew; a model that was saved and loaded has lost its moments.

    Returns
    -------
    self
        The fitted model; `n_samples_` counts all rows, `history_` and `n_passes_` tell of the last call.

    Raises
    ------
    DataError
        For other features than before, for a model that was fitted by `fit` or loaded, and as in `fit`.
    PlanError
        Where the moments do not fit in memory.
    """
    self._check()
    before = getattr(self, "_fit", None)
    if not COUNT.test(self.n_components):
        raise DataError(f"n_components is {self.n_components!r}; rows that are added need a number")
    if before is not None and before.moments is None:
        raise DataError(
            "the model was fitted by `fit`, or loaded, and has no moments to add to; begin with partial_fit of a clone"
        )
    task = replace(self._task(X, dim=dim, before=before), adding=True)
    if before is None:
        return self._become(tasks.run(task, FitRun(client, callbacks), self))
    fitted = tasks.run(replace(task, earlier=before.moments), FitRun(client, callbacks), self)
    return self._become(replace(fitted, places=(*before.places, *fitted.places)))
