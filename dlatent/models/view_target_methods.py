"""Fits of several views with targets, and what a fitted model says of targets, each method once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array
from dlatent.engine.connect import Where
from dlatent.errors import DataError
from dlatent.gaussian.head import Head, joint_labels, joint_outputs
from dlatent.models import task as tasks
from dlatent.models import view_methods
from dlatent.models.callbacks import Callback
from dlatent.models.inputs import Mask, Names, Pairing, PathLike, Rows, Seed, Views
from dlatent.models.linear import drawn
from dlatent.models.map_rows import RowsRun
from dlatent.models.model import available_if
from dlatent.models.target_methods import decisions, may_have_labels, output_variance, predicted, probable, targets_of
from dlatent.models.views import (
    Joint,
    JointSamples,
    Samples,
    Targets,
    mapped,
    new_samples,
    number_of,
    sets_of,
    view_names,
)
from dlatent.solvers.plan import Plan

M = TypeVar("M", bound=Joint)


def plan(
    self: Joint,
    views: Views,
    y: Targets = None,
    *,
    correspondence: Pairing = None,
    on: Names = None,
    labelled: Mask = None,
    client: Where = None,
) -> Plan:
    """Plan `fit`: its passes and its cost, from metadata, the targets and the correspondence alone.

    Parameters
    ----------
    y : array or mapping
        The targets of all samples in the order of `transform` (the lines of the correspondence, then the other rows of
        each view), or a mapping from the name of one view to the targets of its rows.  Samples without have NaN, None
        or (class labels) −1.
    labelled : array of bool, optional
        Which of the rows of `y` have targets; another way to say it than by NaN, None or −1.
    """
    return tasks.plan(self._task(views, y=y, labelled=labelled, correspondence=correspondence, on=on), client)


def fit(
    self: M,
    views: Views,
    y: Targets = None,
    *,
    correspondence: Pairing = None,
    on: Names = None,
    labelled: Mask = None,
    client: Where = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: PathLike | None = None,
    resume: bool = False,
) -> M:
    """Fit the model to the views and the targets that each sample has.

    Parameters
    ----------
    y : array or mapping
        The targets of all samples in the order of `transform` (the lines of the correspondence, then the other rows of
        each view), or a mapping from the name of one view to the targets of its rows.  Samples without have NaN, None
        or (class labels) −1.
    labelled : array of bool, optional
        Which of the rows of `y` have targets; another way to say it than by NaN, None or −1.

    Raises
    ------
    DataError
        For views or targets that cannot be fitted, naming view and row: also where no sample has a target, all are of
        one class, the lengths differ, or a sample has only some of its targets.
    """
    task = self._task(views, y=y, labelled=labelled, correspondence=correspondence, on=on)
    return tasks.run(task, tasks.FitRun(client, callbacks, checkpoint, resume), self)


def predictions(model: Joint, samples: Samples, client: Where, form: Any = np.asarray, name: str = "decision") -> Any:
    """Return `form` of the log-probabilities (N, C) of classes or of the log-odds (N, L) of labels, or the means (N, L)
    of numbers."""
    targets, rule = targets_of(model), model._model.predictor()
    function: Callable[..., Array] = partial(joint_labels, rule=rule, form=form)
    if isinstance(rule, Head):
        function, name = partial(joint_outputs, head=rule), "outputs"
    return mapped(model, samples, function, name, "target", targets.names, run=RowsRun(client=client))


@available_if(may_have_labels)
def predict_proba(
    self: Joint, views: Views, *, correspondence: Pairing = None, on: Names = None, client: Where = None
) -> Rows:
    """Probabilities of the classes or labels given the views that a sample has; see SupervisedPPCA.predict_proba.

    Returns
    -------
    array of shape (n_samples, n_classes) or (n_samples, n_targets)
        For one view in the kind of its data, for several a DataArray (sample, target) in the order of `transform`; of
        classes columns are as in `classes_`, and rows add up to 1.

    Raises
    ------
    AttributeError
        For targets that are numbers.
    """
    samples = new_samples(self, views, correspondence, on)
    return cast(Rows, predictions(self, samples, client, probable(targets_of(self)), "probabilities"))


def decision_function(
    self: Joint, views: Views, *, correspondence: Pairing = None, on: Names = None, client: Where = None
) -> Rows:
    """For labels what decides on them; else E[y|x] = b + A E[z|x] given the views x of a sample.

    Returns
    -------
    array of shape (n_samples,) or (n_samples, n_targets)
        For one view in the kind of its data, for several a DataArray in the order of `transform`: of two classes the
        log-odds, of more log p(c|x); of several labels the log-odds of each; of numbers their means.
    """
    values = predictions(self, new_samples(self, views, correspondence, on), client)
    return cast(Rows, decisions(targets_of(self), values))


def predict(
    self: Joint,
    views: Views,
    *,
    correspondence: Pairing = None,
    on: Names = None,
    return_variance: bool = False,
    client: Where = None,
) -> Rows | tuple[Rows, Rows]:
    r"""Predict the targets from the views x that a sample has; A, b and S as in SupervisedPPCA.predict.

    .. math:: y \mid x \sim N\left(b + A E[z \mid x],\; A M^{-1} A^\top + S\right)

    Returns
    -------
    predicted : array of shape (n_samples,) or (n_samples, n_targets)
        Class labels, 0 and 1, or means, as in SupervisedPPCA.predict.
    variance : array of shape (n_targets,) or (n_samples, n_targets)
        With `return_variance` only: the variance of each target, for several views that of each sample, as it depends
        on the views that a sample has.
    """
    samples = new_samples(self, views, correspondence, on)
    means = predictions(self, samples, client)
    values = predicted(targets_of(self), means)
    if not return_variance:
        return values
    if not isinstance(samples, JointSamples):
        return values, predictive_variance(self, samples[0])
    _, patterns, pattern = sets_of(self, samples)
    each = np.stack([output_variance(self._model, numbers) for numbers in patterns])
    return values, cast(xr.DataArray, means).copy(data=each[pattern]).rename("variance")


def predictive_variance(self: Joint, from_view: str | Sequence[str] | None = None, to_view: str | None = None) -> Array:
    """Variance of each target given some of the views, or of each feature of a view given another.

    Parameters
    ----------
    from_view : str or sequence of str, optional
        The views that are given; by default all.
    to_view : str, optional
        The view whose features are meant; by default the targets.

    Returns
    -------
    ndarray of shape (n_targets,) or (n_features of to_view,)
        In squared units of the targets or features.

    Raises
    ------
    DataError
        For unknown views.
    """
    fitted = self._model
    if to_view is not None:
        if not isinstance(from_view, str):
            raise DataError(f"from_view is {from_view!r}; name the one view from which {to_view!r} is predicted")
        return view_methods.predictive_variance(self, from_view, to_view)
    names = view_names(self) if from_view is None else (from_view,) if isinstance(from_view, str) else from_view
    return output_variance(fitted, tuple(sorted({number_of(self, name) for name in names})))


def sample(
    self: Joint, n_samples: int = 1, *, random_state: Seed = None
) -> tuple[dict[str, npt.NDArray[np.float64]], npt.NDArray[np.float64]]:
    """Draw samples that have every view, and their targets.

    Returns
    -------
    views : dict of ndarray of shape (n_samples, n_features of the view)
        In units of the features.
    targets : ndarray of shape (n_samples, n_targets)
        In units of the targets.
    """
    rows, slices = drawn(self._model, n_samples, random_state), self._model.specification.slices
    views = {name: rows[:, at] for name, at in zip(view_names(self), slices, strict=False)}
    return views, targets_of(self).encoding.decode(rows[:, slices[-1]])
