"""`fit` and `plan` of models of one table whose samples may have weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import xarray as xr

from dlatent.engine.connect import Where
from dlatent.models import task as tasks
from dlatent.models.callbacks import Callback
from dlatent.models.docstrings import described
from dlatent.models.inputs import Data, PathLike, SampleWeight, TargetsLike
from dlatent.models.model import Model
from dlatent.models.task import FitRun
from dlatent.solvers.plan import Plan

M = TypeVar("M", bound=Model)


@described
def fit(
    self: M,
    X: Data,
    y: TargetsLike = None,
    *,
    sample_weight: SampleWeight = None,
    dim: str | None = None,
    weights: xr.DataArray | None = None,
    client: Where = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: PathLike | None = None,
    resume: bool = False,
) -> M:
    """Fit the model to samples × features.

    With weights w what is maximised is Σ w_i log p(x_i).
    """
    task = self._task(X, sample_weight=sample_weight, dim=dim, weights=weights)
    return self._become(tasks.run(task, FitRun(client, callbacks, checkpoint, resume), self))


@described
def plan(
    self: Model,
    X: Data,
    y: TargetsLike = None,
    *,
    sample_weight: SampleWeight = None,
    dim: str | None = None,
    weights: xr.DataArray | None = None,
    client: Where = None,
) -> Plan:
    """What `fit` would do and cost, from metadata alone: solver and why, passes, bytes, tasks, memory."""
    return tasks.plan(self._task(X, sample_weight=sample_weight, dim=dim, weights=weights), client)
