"""`fit`, `plan` and `fit_transform` of PPCA and factor analysis: samples may have weights, and entries something beside
them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, Unpack

from dlatent.engine.connect import Where
from dlatent.models import task as tasks
from dlatent.models.beside import Beside
from dlatent.models.callbacks import Callback
from dlatent.models.inputs import CellWeights, Data, PathLike, Rows, SampleDims, SampleWeight, TargetsLike
from dlatent.models.model import Model
from dlatent.models.table import opened
from dlatent.solvers.plan import Plan

M = TypeVar("M", bound=Model[Any])


def fit(
    self: M,
    X: Data,
    y: TargetsLike = None,
    *,
    sample_weight: SampleWeight = None,
    dim: SampleDims = None,
    weights: CellWeights = None,
    client: Where = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: PathLike | None = None,
    resume: bool = False,
    **beside: Unpack[Beside],
) -> M:
    """Fit the model to samples × features.

    With weights w what is maximised is Σ w_i log p(x_i).  What stands beside the entries makes a fit like one with
    missing entries, by the bound of :doc:`/models/likelihoods`.
    """
    task = self._task(opened(self, X, dim, weights, beside=beside), sample_weight=sample_weight)
    return tasks.run(task, tasks.FitRun(client, callbacks, checkpoint, resume), self)


def plan(
    self: Model[Any],
    X: Data,
    y: TargetsLike = None,
    *,
    sample_weight: SampleWeight = None,
    dim: SampleDims = None,
    weights: CellWeights = None,
    client: Where = None,
    **beside: Unpack[Beside],
) -> Plan:
    """Plan `fit` from metadata alone: solver and why, passes, bytes, tasks, memory."""
    return tasks.plan(self._task(opened(self, X, dim, weights, beside=beside), sample_weight=sample_weight), client)


def fit_transform(
    self: Any,
    X: Data,
    y: TargetsLike = None,
    *,
    sample_weight: SampleWeight = None,
    dim: SampleDims = None,
    weights: CellWeights = None,
    client: Where = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: PathLike | None = None,
    resume: bool = False,
    **beside: Unpack[Beside],
) -> Rows:
    """`fit`, then `transform` of the same samples.

    Returns
    -------
    array of shape (n_samples, n_components)
        As `transform`.
    """
    about = {"sample_weight": sample_weight, "dim": dim, "weights": weights, "callbacks": callbacks}
    kept = {"checkpoint": checkpoint, "resume": resume}
    rows: Rows = self.fit(X, client=client, **about, **kept, **beside).transform(X, client=client, **beside)
    return rows
