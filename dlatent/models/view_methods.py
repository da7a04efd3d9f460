"""`fit` of several views, and what a fitted model says of them, each method once; a model takes those that it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array, Block, Grid
from dlatent.engine.connect import Where, connect
from dlatent.errors import DataError
from dlatent.fitted.grid import cells_named, feature_axis, over_features
from dlatent.gaussian.expectation import pattern_projection
from dlatent.gaussian.joint import (
    JointRequest,
    OneView,
    PartsFunction,
    block_results,
    joint_densities,
    joint_predictions,
    joint_scores,
)
from dlatent.gaussian.likelihood import predict_view
from dlatent.models import task as tasks
from dlatent.models.callbacks import Callback, shown
from dlatent.models.docstrings import described
from dlatent.models.feature_methods import covariance_of, drawn, latent
from dlatent.models.inputs import Data, Names, Pairing, PathLike, Rows, ScoresLike, Seed, TargetsLike, Views
from dlatent.models.joint_views import joined_rows, named, pairing
from dlatent.models.labelled import plain_rows
from dlatent.models.map_rows import map_rows
from dlatent.models.row_methods import RowsRun, posterior_dataset
from dlatent.models.task import FitRun
from dlatent.models.views import (
    JointModel,
    JointSamples,
    arrangement,
    opened,
    targets_of_samples,
    with_target_view,
)
from dlatent.passes import Pass
from dlatent.solvers.plan import Plan
from dlatent.stores.joint import joint

M = TypeVar("M", bound=JointModel)
Targets: TypeAlias = "TargetsLike | Mapping[str, TargetsLike]"
"""Targets of all joint samples, or of the rows of one view by its name."""
Given: TypeAlias = "tuple[str, Any] | JointSamples"
"""Name and data of a view that is given alone, or joint samples."""


@described
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
    return self._become(tasks.run(task, FitRun(client, callbacks, checkpoint, resume), self))


@described
def plan(
    self: JointModel, views: Views, *, correspondence: Pairing = None, on: Names = None, client: Where = None
) -> Plan:
    """What `fit` would do and cost, from metadata and the correspondence alone."""
    return tasks.plan(self._task(views, correspondence=correspondence, on=on), client)


@described
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


def only_view(views: Views) -> tuple[str, Any] | None:
    """Name and data of the view, where there is one only."""
    data = named(views)
    return next(iter(data.items())) if len(data) == 1 else None


def given(model: JointModel, views: Views, correspondence: Pairing, on: Names, y: Targets = None) -> Given:
    """A view alone, or joint samples, with their targets where these are given.

    Errors: NotFittedError; DataError for targets of models that have none.
    """
    targets = model._model.targets
    if y is None:
        return only_view(views) or joint_samples(model, views, correspondence, on)
    if targets is None:
        raise DataError(f"{type(model).__name__} has no targets; leave out y, or fit CorrespondenceSupervisedPPCA")
    samples = joint_samples(model, views, correspondence, on)
    y, labels, count, own = targets_of_samples(y, samples)
    rows = targets.encoding.encode(plain_rows(y, labels), count)
    return with_target_view(samples, lambda a, b: rows[a:b], rows.shape[1], ~np.isnan(rows[:, 0]), own)


def joint_samples(model: JointModel, views: Views, correspondence: Pairing, on: Names) -> JointSamples:
    """Joint samples of new data; those of one view are its rows."""
    data, sources = opened(views, on, model._model.labels.views)
    for name in sources:
        model._number(name)
    for name, own in sources.items():
        model._known_view(name).check(own.shape, own.labels.features)
    if len(sources) == 1:
        return JointSamples(sources, np.arange(next(iter(sources.values())).shape[0])[:, None])
    return JointSamples(sources, joined_rows(pairing(views, correspondence, on), on, data, sources))


def mapped(
    model: JointModel, samples: Given, function: PartsFunction, name: str, columns: str = "", names: Any = None, *,
    run: RowsRun, **axis: Any,
) -> Rows | str:  # fmt: skip
    """A function of samples: of those of one view in the kind of its data, or into the store `out`; of joint samples as
    a DataArray in the order of their table, with their rows in each view as coordinates."""
    fitted = model._model
    if not isinstance(samples, JointSamples):
        view, data = samples
        rows = OneView(function, model._number(view), fitted.parameters, fitted.specification)
        known = model._known_view(view)
        return map_rows(data, rows, known, columns=columns, names=names, name=name, **run._asdict(), **axis)
    if run.out is not None:
        raise DataError("out is for the scores of one view without targets; others come in memory")
    sources, table = samples
    numbers, source = _numbers(model, samples), joint(sources, table)
    about = arrangement(source, numbers, fitted.specification.sizes)
    patterns = tuple(tuple(numbers[view] for view in pattern) for pattern in source.patterns)
    request = JointRequest(function, fitted.parameters, fitted.specification, patterns, about)
    local = "serial" if source.in_memory else run.client
    values = np.empty(source.shape[0] if names is None else (source.shape[0], len(names)))

    def take(pieces: tuple[tuple[int, Array], ...]) -> None:
        for start, piece in pieces:
            values[source.order[start : start + len(piece)]] = piece

    grids: dict[str | None, Grid | None] = {name: own.labels.grid for name, own in sources.items()}
    with connect(source, client=local, cache_bytes=0) as session, shown(session, "joint rows"), cells_named(grids):
        session.deliver(Pass(_placed_results, request, name="joint rows"), take)
    places = enumerate(own for own in sources if own in model.view_names_)
    coordinates = {f"row_{own}": ("sample", table[:, view]) for view, own in places}
    labels = {} if names is None else {columns: names}
    dims = ("sample",) if names is None else ("sample", columns)
    return xr.DataArray(values, dims=dims, coords={**labels, **coordinates}, name=name)


def _placed_results(block: Block, request: JointRequest) -> tuple[tuple[int, Array], ...]:
    return tuple((block.start, rows) for rows in block_results(block, request))


def _numbers(model: JointModel, samples: JointSamples) -> list[int]:
    """The number of each of their views in the model."""
    names = [view.name for view in model._model.specification.views]
    return [names.index(name) for name in samples.sources]


def sets_of(
    model: JointModel, samples: JointSamples
) -> tuple[npt.NDArray[np.bool_], list[tuple[int, ...]], npt.NDArray[np.int64]]:
    """The sets of views that occur (sets, views), the same as numbers in the model, and the set of each sample."""
    sets, pattern = np.unique(samples.table >= 0, axis=0, return_inverse=True)
    numbers = _numbers(model, samples)
    patterns = [tuple(number for number, own in zip(numbers, line, strict=True) if own) for line in sets]
    return sets, patterns, pattern.ravel()


@described
def transform(
    self: JointModel,
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
    y : array or mapping, optional
        Targets as in `fit`, of models that have some.
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
    samples, run = given(self, views, correspondence, on, y), RowsRun(out, overwrite, resume, client)
    return mapped(self, samples, joint_scores, "scores", "component", self._model.component, run=run)


@described
def posterior(
    self: JointModel,
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

    Parameters
    ----------
    views : mapping from names to data
        As in `transform`.
    y : array or mapping, optional
        Targets as in `fit`, of models that have some.

    Returns
    -------
    xarray.Dataset
        `scores` (sample, component) and `covariance` (component, component_2); of several views one covariance for each
        set of views that occurs (pattern, component, component_2), `pattern_of` (sample) and `has` (pattern, view),
        which with `y` has a column "targets".
    """
    fitted, samples = self._model, given(self, views, correspondence, on, y)
    scores: Any = mapped(
        self, samples, joint_scores, "scores", "component", fitted.component, run=RowsRun(client=client)
    )
    if isinstance(samples, JointSamples):
        sets, patterns, pattern = sets_of(self, samples)
    else:
        patterns, pattern = [(self._number(samples[0]),)], np.zeros(scores.shape[0], dtype=np.int64)
    covariances = [pattern_projection(fitted.parameters, fitted.specification, own).covariance for own in patterns]
    dataset = posterior_dataset(scores, np.stack(covariances), pattern)
    if not isinstance(samples, JointSamples) or len(patterns) == 1:
        return dataset
    return dataset.assign(has=(("pattern", "view"), sets)).assign_coords(view=list(samples.sources))


@described
def score_samples(
    self: JointModel,
    views: Views,
    y: Targets = None,
    *,
    correspondence: Pairing = None,
    on: Names = None,
    client: Where = None,
) -> Rows:
    """Log-likelihood of each sample: log p of the views, and where given the targets, that it has, in O(DK) each.

    Parameters
    ----------
    views : mapping from names to data
        As in `transform`.
    y : array or mapping, optional
        Targets as in `fit`, of models that have some.

    Returns
    -------
    array of shape (n_samples,)
        In nats, the targets on their rank; for one view without `y` in the kind of its data, else a DataArray (sample)
        in the order of `transform`.
    """
    samples = given(self, views, correspondence, on, y)
    return cast(Rows, mapped(self, samples, joint_densities, "log_likelihood", run=RowsRun(client=client)))


@described
def score(
    self: JointModel,
    views: Views,
    y: Targets = None,
    *,
    correspondence: Pairing = None,
    on: Names = None,
    client: Where = None,
) -> float:
    """Mean log-likelihood per sample, in nats; of models with targets not the accuracy of `predict`.

    Parameters
    ----------
    views : mapping from names to data
        As in `transform`.
    y : array or mapping, optional
        Targets as in `fit`, of models that have some.

    Returns
    -------
    float
        The mean of `score_samples`.
    """
    targets = y if self._model.targets is not None else None
    each = score_samples(self, views, targets, correspondence=correspondence, on=on, client=client)
    return float(np.mean(np.asarray(each)))


@described
def reconstruct(
    self: JointModel,
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

    .. math:: x_w \mid x_v \sim N\left(\mu_w + W_w E[z \mid x_v],\; W_w M_v^{-1} W_w^\top + \Psi_w\right)

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
        For unknown views, and as in PPCA.transform.
    """
    fitted, number, run = self._model, self._number(to_view), RowsRun(out, overwrite, resume, client)
    axis = feature_axis(fitted.labels.views[to_view], fitted.view_sizes[number])
    function = partial(joint_predictions, other=number)
    mean = mapped(self, (from_view, data), function, "reconstructed", run=run, **axis)
    return (mean, predictive_variance(self, from_view, to_view)) if return_variance else mean


@described
def predictive_variance(self: JointModel, from_view: str, to_view: str) -> Array:
    """Variance of each feature of a view given another view, noise included: diag(W_w M_v⁻¹ W_wᵀ + Ψ_w).

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
    fitted, number = self._model, self._number(from_view)
    about = pattern_projection(fitted.parameters, fitted.specification, (number,))
    nothing = np.zeros((0, self._n_features_out))
    return predict_view(nothing, about, self._number(to_view), fitted.parameters, fitted.specification).variance


@described
def inverse_transform(self: JointModel, Z: ScoresLike, view: str) -> npt.NDArray[Any] | xr.DataArray:
    """What the model expects of a view for given latent variables, E[x_v|z] = W_v z + μ_v.

    Parameters
    ----------
    view : str
        Its name.

    Returns
    -------
    array of shape (n_samples, n_features of the view)
        In units of the features; over their dimensions as in PPCA.inverse_transform.

    Raises
    ------
    DataError
        For an unknown view or another number of components.
    """
    fitted, number = self._model, self._number(view)
    own, scores = fitted.specification.slices[number], latent(self, Z, fitted.component)
    return over_features(np.asarray(scores @ fitted.loadings[own].T + fitted.mean[own]), fitted.labels.views[view], Z)


@described
def sample(self: JointModel, n_samples: int = 1, *, random_state: Seed = None) -> dict[str, npt.NDArray[np.float64]]:
    """Draw samples that have every view: z ~ N(0, I), x_v = W_v z + μ_v + ε_v.

    Returns
    -------
    dict of ndarray of shape (n_samples, n_features of the view)
        In units of the features.
    """
    fitted = self._model
    rows, own = drawn(fitted, n_samples, random_state), fitted.specification.slices
    return {name: rows[:, at] for name, at in zip(self.view_names_, own, strict=True)}


@described
def get_covariance(self: JointModel, view: str, other: str | None = None) -> Array:
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
    slices = self._model.specification.slices
    left = slices[self._number(view)]
    return covariance_of(self._model, left, None if other is None else slices[self._number(other)])
