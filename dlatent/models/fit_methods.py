"""`fit`, `plan` and `partial_fit` of models of one table, whose samples may be in a graph, each signature once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from dlatent.engine.connect import Where
from dlatent.errors import DataError
from dlatent.models import task as tasks
from dlatent.models.callbacks import Callback
from dlatent.models.hyperparameters import COUNT_OR_AUTO
from dlatent.models.inputs import (
    CellWeights,
    Data,
    GraphLike,
    Mask,
    PathLike,
    Rows,
    SampleDims,
    TargetsLike,
)
from dlatent.models.model import Model, available_if
from dlatent.models.table import opened
from dlatent.solvers.plan import Plan
from dlatent.solvers.task import MOST_KEPT

M = TypeVar("M", bound=Model[Any])


def fit(
    self: M,
    X: Data,
    y: TargetsLike = None,
    *,
    dim: SampleDims = None,
    weights: CellWeights = None,
    client: Where = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: PathLike | None = None,
    resume: bool = False,
) -> M:
    """Fit the model to samples × features."""
    task, run = self._task(opened(self, X, dim, weights)), tasks.FitRun(client, callbacks, checkpoint, resume)
    return tasks.run(task, run, self)


def plan(
    self: Model[Any],
    X: Data,
    y: TargetsLike = None,
    *,
    dim: SampleDims = None,
    weights: CellWeights = None,
    client: Where = None,
) -> Plan:
    """Plan `fit` from metadata alone: solver and why, passes, bytes, tasks, memory."""
    return tasks.plan(self._task(opened(self, X, dim, weights)), client)


def fit_predict(
    self: Any,
    X: Data,
    y: TargetsLike = None,
    *,
    dim: SampleDims = None,
    weights: CellWeights = None,
    client: Where = None,
    callbacks: Sequence[Callback] = (),
) -> Rows:
    """`fit`, then `predict` of the same samples.

    Returns
    -------
    array of int of shape (n_samples,)
        As `predict`.
    """
    rows: Rows = self.fit(X, dim=dim, weights=weights, client=client, callbacks=callbacks).predict(X, client=client)
    return rows


def fit_targets(
    self: M,
    X: Data,
    y: TargetsLike = None,
    *,
    labelled: Mask = None,
    dim: SampleDims = None,
    weights: CellWeights = None,
    client: Where = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: PathLike | None = None,
    resume: bool = False,
) -> M:
    """Fit the model to features and targets.

    What is maximised is Σ log p(x, y) over samples with targets, plus Σ log p(x) over those without.

    Parameters
    ----------
    y : array of shape (n_samples,) or (n_samples, n_targets)
        The targets: labels or numbers.  Samples without have NaN, None or (class labels) −1.

    Raises
    ------
    DataError
        For data that cannot be fitted, and where no sample has a target, all are of one class, the lengths differ, or a
        sample has only some of its targets.
    """
    task = self._task(opened(self, X, dim, weights), y=y, labelled=labelled)
    return tasks.run(task, tasks.FitRun(client, callbacks, checkpoint, resume), self)


def plan_targets(
    self: Model[Any],
    X: Data,
    y: TargetsLike = None,
    *,
    labelled: Mask = None,
    dim: SampleDims = None,
    weights: CellWeights = None,
    client: Where = None,
) -> Plan:
    """Plan `fit`: its passes and its cost, from metadata and the targets alone.

    Parameters
    ----------
    y : array of shape (n_samples,) or (n_samples, n_targets)
        The targets: labels or numbers.  Samples without have NaN, None or (class labels) −1.
    """
    return tasks.plan(self._task(opened(self, X, dim, weights), y=y, labelled=labelled), client)


def fit_graph(
    self: M,
    X: Data,
    y: TargetsLike = None,
    *,
    graph: GraphLike = None,
    dim: SampleDims = None,
    weights: CellWeights = None,
    client: Where = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: PathLike | None = None,
    resume: bool = False,
) -> M:
    """Fit the model to samples × features and the graph between the samples.

    Raises
    ------
    DataError
        For data or a graph that cannot be fitted, naming row, column and block, or the edge.
    """
    run = tasks.FitRun(client, callbacks, checkpoint, resume)
    return tasks.run(self._task(opened(self, X, dim, weights), graph=graph), run, self)


def plan_graph(
    self: Model[Any],
    X: Data,
    y: TargetsLike = None,
    *,
    graph: GraphLike = None,
    dim: SampleDims = None,
    weights: CellWeights = None,
    client: Where = None,
) -> Plan:
    """Plan `fit`: its cost, with the traffic of its neighbour sums; reads the graph once, and no data."""
    return tasks.plan(self._task(opened(self, X, dim, weights), graph=graph), client)


def fit_precision(
    self: M,
    X: Data,
    y: TargetsLike = None,
    *,
    graph: GraphLike = None,
    precision: GraphLike = None,
    dim: SampleDims = None,
    weights: CellWeights = None,
    client: Where = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: PathLike | None = None,
    resume: bool = False,
) -> M:
    """Fit the model to samples × features and the graph between the samples, or a precision.

    Raises
    ------
    DataError
        For data, a graph or a precision that cannot be fitted, naming row, column and block, the edge or the entry.
    """
    task = self._task(opened(self, X, dim, weights), graph=graph, precision=precision)
    return tasks.run(task, tasks.FitRun(client, callbacks, checkpoint, resume), self)


def plan_precision(
    self: Model[Any],
    X: Data,
    y: TargetsLike = None,
    *,
    graph: GraphLike = None,
    precision: GraphLike = None,
    dim: SampleDims = None,
    weights: CellWeights = None,
    client: Where = None,
) -> Plan:
    """Plan `fit`: its cost, with the traffic of its neighbour sums; reads the graph once, and no data."""
    return tasks.plan(self._task(opened(self, X, dim, weights), graph=graph, precision=precision), client)


def fit_graph_targets(
    self: M,
    X: Data,
    y: TargetsLike = None,
    *,
    labelled: Mask = None,
    graph: GraphLike = None,
    dim: SampleDims = None,
    weights: CellWeights = None,
    client: Where = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: PathLike | None = None,
    resume: bool = False,
) -> M:
    """Fit the model to features, targets of all samples or of some, and the graph between the samples.

    Parameters
    ----------
    y : array of shape (n_samples,) or (n_samples, n_targets)
        The targets: labels or numbers.  Samples without have NaN, None or (class labels) −1.

    Raises
    ------
    DataError
        For data, targets or a graph that cannot be fitted; also where some samples have no targets, and γ = 0 or
        there are more than 20,000.
    """
    task = self._task(opened(self, X, dim, weights), y=y, labelled=labelled, graph=graph)
    return tasks.run(task, tasks.FitRun(client, callbacks, checkpoint, resume), self)


def plan_graph_targets(
    self: Model[Any],
    X: Data,
    y: TargetsLike = None,
    *,
    labelled: Mask = None,
    graph: GraphLike = None,
    dim: SampleDims = None,
    weights: CellWeights = None,
    client: Where = None,
) -> Plan:
    """Plan `fit`: its cost, with the traffic of its neighbour sums; reads the graph once, and no features.

    Parameters
    ----------
    y : array of shape (n_samples,) or (n_samples, n_targets)
        The targets: labels or numbers.  Samples without have NaN, None or (class labels) −1.
    """
    return tasks.plan(self._task(opened(self, X, dim, weights), y=y, labelled=labelled, graph=graph), client)


@available_if(lambda model: model._missing == "raise" and getattr(model, "likelihood", "normal") == "normal")
def partial_fit(
    self: M,
    X: Data,
    y: TargetsLike = None,
    *,
    dim: SampleDims = None,
    client: Where = None,
    callbacks: Sequence[Callback] = (),
) -> M:
    """Add rows to those of earlier calls, and fit the model to all of them.

    The model keeps D² moments of the rows, and is after each call that of one fit to all rows, whatever their order and
    parts, to rounding.  `fit` begins anew, and keeps the moments, too, of at most 500 features and where the solver is
    "covariance"; a model that was saved and loaded has lost them.

    Returns
    -------
    self
        The fitted model; `n_samples_` counts all rows, `history_` and `n_passes_` tell of the last call.

    Raises
    ------
    DataError
        For other features than before, for a model without moments, and as in `fit`.
    PlanError
        Where the moments do not fit in memory.
    """
    before = getattr(self, "_fit", None)
    source = opened(self, X, dim, before=before)
    if not COUNT_OR_AUTO.test(self.n_components):
        raise DataError(f"n_components is {self.n_components!r}; rows that are added need a number, or 'auto'")
    if self._scaled:
        raise DataError(
            f"scale={vars(self)['scale']!r} needs the spreads of all rows before the first is fitted; with partial_fit "
            "standardise the features, or leave scale='none'"
        )
    if before is not None and before.moments is None:
        raise DataError(
            f"the model has no moments to add to: `fit` keeps those of at most {MOST_KEPT} features, where the solver "
            "is 'covariance' and samples have no weights, and `load` has none; begin with partial_fit of a clone"
        )
    moments, places = (None, ()) if before is None else (before.moments, before.places)
    task = self._task(source, before=before)
    tasks.run(replace(task, adding=True, earlier=moments), tasks.FitRun(client, callbacks), self)
    return self._become(replace(self._fit, places=(*places, *self._fit.places)))
