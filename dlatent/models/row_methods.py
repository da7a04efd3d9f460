"""Methods of a fitted model of one table on itself and on rows, each once; a model takes those that it has."""

from __future__ import annotations

from typing import Any, Unpack, cast

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array
from dlatent.engine.connect import Where
from dlatent.errors import DataError
from dlatent.fitted.linear import Linear
from dlatent.fitted.rows import RowFunction, function
from dlatent.gaussian.dimension import free_numbers
from dlatent.models.aligned import plain_rows
from dlatent.models.beside import Beside
from dlatent.models.inputs import Data, PathLike, Rows, SampleWeight, TargetsLike, feature_names
from dlatent.models.labelled import open_input
from dlatent.models.map_rows import RowsRun, map_rows
from dlatent.models.model import Model, attribute
from dlatent.models.table import sample_weights


def mapped(
    model: Model[Any], X: Data, rows: RowFunction, name: str, columns: str = "", names: Any = None, *,
    run: RowsRun, holes: bool | None = None, **more: Any,
) -> Rows | str:  # fmt: skip
    """A function of rows over data, in the kind of the data, or into the store `out`; `more` as in `map_rows`."""
    known = model._known_features(holes=holes)
    return map_rows(X, rows, known, run, columns=columns, names=names, name=name, **more)


def encoded(model: Model[Linear], X: Data, y: TargetsLike) -> Array | None:
    """Encoded targets (N, L') of new rows; None without any.

    Errors: NotFittedError; DataError for targets of another kind, and of models without targets.
    """
    fitted = model._model
    if y is None:
        return None
    if fitted.targets is None:
        raise DataError(f"{type(model).__name__} has no targets; leave out y, or fit SupervisedPPCA")
    source = open_input(X, known=fitted.labels.known)
    return fitted.targets.encoding.encode(plain_rows(y, source.labels), source.shape[0], holes=model._rows.holes)


def transform(
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
    r"""Scores: the mean of the latent variables of each sample, given its features and, where present, its targets.

    .. math:: t_k = \lVert w_k \rVert\, E[z_k \mid x], \qquad
        E[z \mid x] = M^{-1} W^\top \Psi^{-1} (x - \mu), \qquad M = I + W^\top \Psi^{-1} W

    with the noise Ψ, which is σ²I in all models but factor analysis; with targets as in SPPCA (7), (8) and (12),
    corrected.  With the lengths of the loadings w_k scores are in units of the features, and distances between them are
    those between the samples as the model sees them; with `whiten=True` they are E[z|x], whose prior variance is 1, and
    which the loadings multiply: `scores @ components_ + mean_`.  `inverse_transform` is right with both.

    Returns
    -------
    array of shape (n_samples, n_components), or str
        In the kind of the input (numpy, lazy Dask, xarray with dims (sample, component)), or the path `out`.

    Warns
    -----
    UserWarning
        Where the order of the features cannot be checked.
    """
    return scored(self, X, encoded(self, X, y), RowsRun(out, overwrite, resume, client), beside=beside)


def scored(
    model: Model[Linear], X: Data, targets: Array | None, run: RowsRun, rows: Any = None, **more: Any
) -> Rows | str:
    """Scores of the factors, by `rows` or as posterior means."""
    scores = function(model._rows.scores if rows is None else rows, score_axes(model))
    names = model._model.component
    grid, attrs = model._known_features().grid, {}
    if grid is not None:
        in_units = not getattr(model, "whiten", True) and model._model.units is None and "units" in grid.attrs
        about = grid.attrs.get("long_name", grid.name)
        attrs = {"long_name": f"scores of {about}"} if about else {}
        attrs |= {"units": grid.attrs["units"]} if in_units else {}
    values = mapped(model, X, scores, "scores", "component", names, run=run, targets=targets, attrs=attrs, **more)
    return values.assign_attrs(attrs) if isinstance(values, xr.DataArray) else values


def score_axes(model: Model[Linear]) -> Array | None:
    """A (K, K) by which scores are Az, of factors that correlate or in units of the features; None where they are z."""
    fitted = model._model
    return fitted.axes if getattr(model, "whiten", True) else np.diag(fitted.lengths)


def posterior(
    self: Model[Linear], X: Data, y: TargetsLike = None, *, client: Where = None, **beside: Unpack[Beside]
) -> xr.Dataset:
    r"""The distribution of the latent variables of each sample, given its features and, where present, its targets.

    .. math:: z \mid x \sim N\left(M^{-1} W^\top \Psi^{-1} (x - \mu),\; M^{-1}\right), \qquad
        M = I + W^\top \Psi^{-1} W

    Both are in the units of `transform`.

    Returns
    -------
    xarray.Dataset
        `scores` (sample, component) and `covariance` (component, component_2), shared by all samples.  With `y` there
        are two covariances (pattern, component, component_2), pattern 0 for samples with targets, and `pattern_of`
        (sample) tells which is whose.  Where entries may be missing each sample has its own (sample, component,
        component_2).
    """
    return posteriors(self, X, encoded(self, X, y), RowsRun(client=client), beside=beside)


def posteriors(model: Model[Linear], X: Data, targets: Array | None, run: RowsRun, **more: Any) -> xr.Dataset:
    """Scores and posterior covariances of the factors."""
    fitted, rows = model._model, model._rows
    scores, axes = labelled_scores(scored(model, X, targets, run, **more)), score_axes(model)
    patterns: tuple[tuple[int, ...], ...] = ((0,),) if targets is None else ((0, 1), (0,))
    shared = [rows.shared_covariance(pattern) for pattern in patterns]
    if shared[0] is None:
        k = len(fitted.component)
        each = mapped(
            model, X, function(rows.covariances), "covariance", "entry", np.arange(k**2), run=run, targets=targets,
            **more,
        )  # fmt: skip
        return posterior_of_each(scores, np.asarray(each), axes)
    pattern = np.zeros(1) if targets is None else np.isnan(targets[:, 0])
    return posterior_dataset(scores, turned(np.stack(shared), axes), pattern.astype(np.int64))


def posterior_of_each(scores: xr.DataArray, covariances: Array, axes: Array | None = None) -> xr.Dataset:
    """Scores and posterior covariances as a Dataset, where each sample has its own (n, K²)."""
    k = scores.shape[-1]
    square: tuple[Any, ...] = (*scores.dims[:-1], "component", "component_2")
    each = turned(covariances.reshape(*scores.shape[:-1], k, k), axes)
    return xr.Dataset({"scores": scores, "covariance": (square, each)})


def turned(covariances: Array, axes: Array | None) -> Array:
    """Covariances of scores Az, from those of z, with the axes A (None: the identity)."""
    return covariances if axes is None else np.asarray(axes @ covariances @ axes.T)


def labelled_scores(scores: Any) -> xr.DataArray:
    """Scores as a DataArray."""
    if isinstance(scores, xr.DataArray):
        return scores
    return xr.DataArray(scores, dims=("sample", "component"), coords={"component": np.arange(scores.shape[1])})


def posterior_dataset(scores: Any, covariances: Array, pattern: npt.NDArray[np.int64]) -> xr.Dataset:
    """Scores and posterior covariances as a Dataset; samples of one pattern share a covariance."""
    scores, square = labelled_scores(scores), ("component", "component_2")
    if len(covariances) == 1:
        return xr.Dataset({"scores": scores, "covariance": (square, covariances[0])})
    pattern_of = (scores.dims[:-1], pattern.reshape(scores.shape[:-1]))
    return xr.Dataset({"scores": scores, "covariance": (("pattern", *square), covariances), "pattern_of": pattern_of})


def score_samples(
    self: Model[Linear], X: Data, y: TargetsLike = None, *, client: Where = None, **beside: Unpack[Beside]
) -> Rows:
    r"""Log-likelihood of each sample, in O(DK) each: log p(x), and log p(x, y) where targets are given.

    .. math:: \log p(x) = -\frac{1}{2} \left[ D \,\log\, 2\pi + \log |C| + (x - \mu)^\top C^{-1} (x - \mu) \right]

    Returns
    -------
    array of shape (n_samples,)
        In nats, targets on their rank, in the kind of the input.  Of another `likelihood` than "normal" and
        "student_rows" it is a lower bound, that which the fit maximises.
    """
    targets = encoded(self, X, y)
    density = function(self._rows.log_density)
    return cast(
        Rows, mapped(self, X, density, "log_likelihood", run=RowsRun(client=client), targets=targets, beside=beside)
    )


def score(
    self: Model[Linear],
    X: Data,
    y: TargetsLike = None,
    *,
    sample_weight: SampleWeight = None,
    client: Where = None,
    **beside: Unpack[Beside],
) -> float:
    """Mean log-likelihood per sample, in nats (as scikit-learn's PCA.score); of models with targets not the accuracy of
    `predict`.

    Returns
    -------
    float
        The mean of `score_samples`, with weights Σ w_i log p(x_i)/Σ w_i.
    """
    targets = y if self._model.targets is not None else None
    each, numbers = np.asarray(score_samples(self, X, targets, client=client, **beside)).ravel(), None
    if sample_weight is not None:
        numbers = sample_weights(sample_weight, open_input(X, known=self._model.labels.known))
    return float(np.average(each, weights=numbers))


def bic(self: Any, X: Data, *, client: Where = None, **beside: Unpack[Beside]) -> float:
    """Bayesian information criterion: the lower, the better.

    Returns
    -------
    float
        −2 log p(X) + `n_parameters_` · log N.
    """
    each = np.asarray(self.score_samples(X, client=client, **beside))
    return float(-2.0 * each.sum() + self.n_parameters_ * np.log(each.size))


def aic(self: Any, X: Data, *, client: Where = None, **beside: Unpack[Beside]) -> float:
    """Akaike's information criterion: the lower, the better.

    Returns
    -------
    float
        −2 log p(X) + 2 `n_parameters_`.
    """
    return float(-2.0 * np.asarray(self.score_samples(X, client=client, **beside)).sum() + 2.0 * self.n_parameters_)


@attribute
def n_components_(self: Model[Linear]) -> int:
    """int: K, given or chosen."""
    fitted = self._model
    return len(fitted.component) - int(fitted.row_effects)


@attribute
def n_components_effective_(self: Model[Linear]) -> int:
    """int: How many components are not zero: with `prior="ard"` those that the data support."""
    fitted = self._model
    return int(fitted.loadings[:, : len(fitted.component) - int(fitted.row_effects)].any(axis=0).sum())


@attribute
def noise_variance_(self: Model[Linear]) -> float:
    """float: σ², in squared units of the features, with `scale="spread"` of their spreads."""
    return float(self._model.noise.variance[0])


@attribute
def at_floor_(self: Model[Linear]) -> tuple[bool, ...]:
    """tuple of bool: Whether the noise variance is at its floor; that of targets, where there are some, is the
    second."""
    return tuple(self._model.noise.at_floor.tolist())


@attribute
def explained_variance_(self: Model[Linear]) -> Array:
    """ndarray of shape (n_components,): Variance along each component, noise included, in the same units."""
    fitted = self._model
    return np.asarray((fitted.fitted_loadings**2).sum(axis=0) + float(fitted.noise.variance[0]))


@attribute
def explained_variance_ratio_(self: Any) -> Array:
    """ndarray of shape (n_components,): The same as fractions of the total variance of the features."""
    fitted: Linear = self._model
    return np.asarray(self.explained_variance_ / (fitted.total_variance[0] * fitted.dimension))


@attribute
def n_features_in_(self: Model[Linear]) -> int:
    """int: Number of features, D."""
    return self._model.columns


@attribute
def feature_names_in_(self: Model[Any]) -> npt.NDArray[np.object_]:
    """ndarray of shape (n_features,): Names of the features, where the data of the fit had names, all of them texts."""
    return feature_names(self, self._model.labels.known.features)


@attribute
def n_parameters_(self: Model[Linear]) -> int:
    """int: Free numbers of the model, rotations of the loadings not counted: DK − K(K − 1)/2 + D, and those of the
    noise; for `bic` and `aic`."""
    features, components = self._model.parameters.loadings.shape
    entries, noise = self._model.entries, len(self._model.noise.variance)
    return free_numbers(features, components, noise if entries is None else entries.numbers(noise))
