"""`fit` of several views, and what a fitted model says of them, each method once; a model takes those that it has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array
from dlatent.engine.connect import Where
from dlatent.fitted.grid import feature_axis, over_features
from dlatent.fitted.observations import ObservationRows, entry_means
from dlatent.gaussian.expectation import pattern_projection
from dlatent.gaussian.likelihood import (
    PartsFunction,
    joint_log_likelihoods,
    joint_predictions,
    joint_scores,
    predict_view,
)
from dlatent.gaussian.view_heads import expected_by
from dlatent.models import task as tasks
from dlatent.models.callbacks import Callback
from dlatent.models.inputs import Data, Names, Pairing, PathLike, Rows, ScoresLike, Seed, TargetsLike, Views
from dlatent.models.linear import covariance_of, drawn, expected, latent
from dlatent.models.map_rows import RowsRun
from dlatent.models.observations import fitted_likelihoods, of_samples, require_normal
from dlatent.models.row_methods import labelled_scores, posterior_dataset, posterior_of_each
from dlatent.models.views import Joint, JointSamples, Targets, mapped, new_samples, number_of, sets_of, view_names
from dlatent.observations import OBSERVATION_MODELS
from dlatent.solvers.plan import Plan

M = TypeVar("M", bound=Joint)


def fit(
    self: M,
    views: Views,
    y: TargetsLike = None,
    *,
    correspondence: Pairing = None,
    on: Names = None,
    client: Where = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: PathLike | None = None,
    resume: bool = False,
) -> M:
    """Fit the model to all samples: those of several views, and those that have only one.

    Raises
    ------
    DataError
        For views that cannot be fitted, naming view and row.
    """
    task = self._task(views, correspondence=correspondence, on=on)
    return tasks.run(task, tasks.FitRun(client, callbacks, checkpoint, resume), self)


def plan(self: Joint, views: Views, *, correspondence: Pairing = None, on: Names = None, client: Where = None) -> Plan:
    """Plan `fit`: its passes and its cost, from metadata and the correspondence alone."""
    return tasks.plan(self._task(views, correspondence=correspondence, on=on), client)


def fit_transform(
    self: Any, X: Views, y: Targets = None, *, correspondence: Pairing = None, on: Names = None, client: Where = None
) -> Rows:
    """`fit`, then `transform` of the same views.

    Parameters
    ----------
    X : mapping, list or xarray.Dataset
        The views, as in `fit`.

    Returns
    -------
    array of shape (n_samples, n_components)
        As `transform`.
    """
    self.fit(X, y, correspondence=correspondence, on=on, client=client)
    return cast(Rows, self.transform(X, correspondence=correspondence, on=on, client=client))


def transform(
    self: Joint,
    views: Views,
    y: Targets = None,
    *,
    correspondence: Pairing = None,
    on: Names = None,
    out: PathLike | None = None,
    overwrite: bool = False,
    resume: bool = False,
    client: Where = None,
) -> Rows | str:
    """Scores: the mean of the latent variables of each sample, given the views, and where present the targets, that it
    has.

    Parameters
    ----------
    out : path or URL, optional
        Of one view without `y`: a Zarr store to write the result to, instead of memory.

    Returns
    -------
    array of shape (n_samples, n_components), or str
        For one view in the kind of its data, or the path `out`.  For several, and with `y`, a DataArray (sample,
        component) of all samples, those that correspond first, whose coordinates `row_NAME` are their rows in each view
        (−1: none).

    Raises
    ------
    DataError
        For other features or unknown views, for labels that the model does not know, and as in `fit`.
    """
    samples, run = new_samples(self, views, correspondence, on, y), RowsRun(out, overwrite, resume, client)
    scores = of_samples(self, joint_scores, ObservationRows.scores)
    return mapped(self, samples, scores, "scores", "component", self._model.component, run=run)


def posterior(
    self: Joint,
    views: Views,
    y: Targets = None,
    *,
    correspondence: Pairing = None,
    on: Names = None,
    client: Where = None,
) -> xr.Dataset:
    r"""The distribution of the latent variables of each sample, given the views x, and where present the targets, that
    it has.

    .. math:: z \mid x \sim N\left(M^{-1} W^\top \Psi^{-1} (x - \mu),\; M^{-1}\right)

    Returns
    -------
    xarray.Dataset
        `scores` (sample, component) and `covariance` (component, component_2); of several views one covariance for each
        set of views that occurs (pattern, component, component_2), `pattern_of` (sample) and `has` (pattern, view),
        which with `y` has a column "targets".  With another `likelihood`, or with `missing="nan"`, each sample has its
        own (sample, component, component_2).
    """
    fitted, samples = self._model, new_samples(self, views, correspondence, on, y)
    function, run = of_samples(self, joint_scores, ObservationRows.scores), RowsRun(client=client)
    scores: Any = mapped(self, samples, function, "scores", "component", fitted.component, run=run)
    if fitted.entries is not None:
        function, entries = of_samples(self, joint_scores, ObservationRows.covariances), np.arange(scores.shape[1] ** 2)
        each = mapped(self, samples, function, "covariance", "entry", entries, run=run)
        return posterior_of_each(labelled_scores(scores), np.asarray(each))
    if isinstance(samples, JointSamples):
        sets, patterns, pattern = sets_of(self, samples)
    else:
        patterns, pattern = [(number_of(self, samples[0]),)], np.zeros(scores.shape[0], dtype=np.int64)
    covariances = [pattern_projection(fitted.parameters, fitted.specification, each).covariance for each in patterns]
    dataset = posterior_dataset(scores, np.stack(covariances), pattern)
    if not isinstance(samples, JointSamples) or len(patterns) == 1:
        return dataset
    return dataset.assign(has=(("pattern", "view"), sets)).assign_coords(view=list(samples.sources))


def score_samples(
    self: Joint,
    views: Views,
    y: Targets = None,
    *,
    correspondence: Pairing = None,
    on: Names = None,
    client: Where = None,
) -> Rows:
    """Log-likelihood of each sample: log p of the views, and where given the targets, that it has, in O(DK) each.

    Returns
    -------
    array of shape (n_samples,)
        In nats, the targets on their rank; for one view without `y` in the kind of its data, else a DataArray (sample)
        in the order of `transform`.  Of another `likelihood` than "normal" it is a lower bound, that which the fit
        maximises.
    """
    samples = new_samples(self, views, correspondence, on, y)
    density = of_samples(self, joint_log_likelihoods, ObservationRows.log_density)
    return cast(Rows, mapped(self, samples, density, "log_likelihood", run=RowsRun(client=client)))


def score(
    self: Joint,
    views: Views,
    y: Targets = None,
    *,
    correspondence: Pairing = None,
    on: Names = None,
    client: Where = None,
) -> float:
    """Mean log-likelihood per sample, in nats; of models with targets not the accuracy of `predict`.

    Returns
    -------
    float
        The mean of `score_samples`.
    """
    targets = y if self._model.targets is not None else None
    each = score_samples(self, views, targets, correspondence=correspondence, on=on, client=client)
    return float(np.mean(np.asarray(each)))


def reconstruct(
    self: Joint,
    data: Data,
    from_view: str,
    to_view: str,
    *,
    return_variance: bool = False,
    out: PathLike | None = None,
    overwrite: bool = False,
    resume: bool = False,
    client: Where = None,
) -> Rows | str | tuple[Rows | str, Array]:
    r"""Another view of the same samples.

    With `head="auto"` by the regression of x_w on x_v that was learned from the samples with both, with
    `head="likelihood"` as the model of the fit expects it:

    .. math:: x_w \mid x_v \sim N\left(\mu_w + W_w E[z \mid x_v],\; W_w M_v^{-1} W_w^\top + \Psi_w\right)

    With another `likelihood` in some view it is E[x_w given x_v] by the model, whose variance each sample has its own.

    Parameters
    ----------
    data : array, data frame, Zarr array, path or URL, of shape (n_samples, n_features of from_view)
        Rows of the view that is given.
    from_view : str
        Its name.
    to_view : str
        The view that is wanted.

    Returns
    -------
    reconstructed : array of shape (n_samples, n_features of to_view), or str
        In the kind of the data (numpy, lazy Dask, xarray), or the path `out`.
    variance : ndarray of shape (n_features of to_view,)
        With `return_variance` only: the variance of each feature, the same for all samples.

    Raises
    ------
    DataError
        For unknown views, for a variance where entries are not normal, and as in PPCA.transform.
    """
    fitted, number, run = self._model, number_of(self, to_view), RowsRun(out, overwrite, resume, client)
    axis = feature_axis(fitted.labels.views[to_view], fitted.view_sizes[number])
    head = fitted.head_of(number_of(self, from_view), number)
    usual: PartsFunction = partial(joint_predictions, other=number) if head is None else partial(expected_by, head=head)
    function = of_samples(self, usual, ObservationRows.expected, number)
    mean = mapped(self, (from_view, data), function, "reconstructed", run=run, **axis)
    return (mean, predictive_variance(self, from_view, to_view)) if return_variance else mean


def predictive_variance(self: Joint, from_view: str, to_view: str) -> Array:
    """Variance of each feature of a view given another view, noise included.

    With `head="auto"` the mean square of what the regression misses of samples that are left out, with
    `head="likelihood"` diag(W_w M_v⁻¹ W_wᵀ + Ψ_w).

    Parameters
    ----------
    from_view : str
        The view that is given.
    to_view : str
        The view that is wanted.

    Returns
    -------
    ndarray of shape (n_features of to_view,)
        In squared units of the features.

    Raises
    ------
    DataError
        For unknown views.
    """
    require_normal(self, "the variance of a view, the same for all samples,")
    fitted, number = self._model, number_of(self, from_view)
    head = fitted.head_of(number, number_of(self, to_view))
    if head is not None:
        return head.variance
    about = pattern_projection(fitted.parameters, fitted.specification, (number,))
    nothing = np.zeros((0, self._n_features_out))
    return predict_view(nothing, about, number_of(self, to_view), fitted.parameters, fitted.specification).variance


def inverse_transform(self: Joint, Z: ScoresLike, view: str) -> npt.NDArray[Any] | xr.DataArray:
    """Return the expected features of a view for given latent variables, E[x_v|z] = W_v z + μ_v.

    Parameters
    ----------
    view : str
        Its name.

    Returns
    -------
    array of shape (n_samples, n_features of the view)
        In units of the features, of another `likelihood` the means of entries about W_v z + μ_v; over their dimensions
        as in PPCA.inverse_transform.

    Raises
    ------
    DataError
        For an unknown view or another number of components.
    """
    fitted, number = self._model, number_of(self, view)
    at, scores = fitted.specification.slices[number], latent(self, Z, fitted.component, lazy=True)
    means = partial(entry_means, model=OBSERVATION_MODELS[fitted_likelihoods(fitted)[view]])
    return over_features(expected(scores, fitted.loadings[at], fitted.mean[at], means), fitted.labels.views[view], Z)


def sample(self: Joint, n_samples: int = 1, *, random_state: Seed = None) -> dict[str, npt.NDArray[np.float64]]:
    """Draw samples that have every view: z ~ N(0, I), x_v = W_v z + μ_v + ε_v, or entries of the `likelihood` about
    W_v z + μ_v.

    Returns
    -------
    dict of ndarray of shape (n_samples, n_features of the view)
        In units of the features.
    """
    fitted = self._model
    rows, slices = drawn(fitted, n_samples, random_state), fitted.specification.slices
    return {name: rows[:, at] for name, at in zip(view_names(self), slices, strict=True)}


def get_covariance(self: Joint, view: str, other: str | None = None) -> Array:
    """The model's covariance of a view, W_vW_vᵀ + Ψ_v, or that between two views, W_vW_wᵀ.

    Parameters
    ----------
    view : str
        Its name.
    other : str, optional
        Another view.

    Returns
    -------
    ndarray of shape (n_features of the view, n_features of the other or of the view)
        In squared units of the features.
    """
    require_normal(self, "the covariance of the features")
    slices = self._model.specification.slices
    left = slices[number_of(self, view)]
    return covariance_of(self._model, left, None if other is None else slices[number_of(self, other)])
