"""Models of one table with loadings of its features, and what they say of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array
from dlatent.containers import precision_of, refuse_mask
from dlatent.errors import DataError
from dlatent.fitted.features import require_order
from dlatent.fitted.fit import FACTORS, require_room
from dlatent.fitted.grid import over_features
from dlatent.fitted.linear import Linear, LinearGaussian
from dlatent.fitted.observations import entry_means
from dlatent.fitted.row_work import expected_rows
from dlatent.models import cells, fill_methods, row_methods
from dlatent.models.hyperparameters import COUNT_OR_AUTO, SHARED, model, parameter
from dlatent.models.inputs import ScoresLike, Seed
from dlatent.models.labelled import unwrap
from dlatent.models.model import Model, attribute
from dlatent.models.observations import require_normal
from dlatent.observations.posterior import Own
from dlatent.stores.lazy import is_dask_array

NUMBER = replace(SHARED["n_components"], allowed=COUNT_OR_AUTO, kind='int or "auto"')
COUNTED = "K, the number of latent variables; less than the number of samples, and at most that of features."
SUPPORTED = (
    '"auto" keeps those that the data support, of at most 50, or 20 with missing entries: the ones that automatic '
    'relevance determination leaves on, as with `prior="ard"`.'
)
MANY = (
    '"auto" takes 50, or as many as there can be, as the prior of the default head keeps more of them from doing harm; '
    "with missing entries those of 20 that the data support."
)


@attribute
def components_(self: Model[Linear]) -> Array:
    """ndarray of shape (n_components, n_features): Wᵀ, loadings in units of the features; rows in decreasing order of
    explained variance.  They multiply latent variables, which `transform` gives with `whiten=True`."""
    return self._model.loadings.T


@attribute
def mean_(self: Model[Linear]) -> Array:
    """ndarray of shape (n_features,): μ, in units of the features."""
    return self._model.mean


@attribute
def effects_(self: Model[Linear]) -> Array:
    """ndarray of shape (n_covariates, n_features): Bᵀ, what one unit of a covariate adds to the predictor of each
    feature, given the scores."""
    effects = None if self._model.entries is None else self._model.entries.effects
    return np.zeros((0, self._model.columns)) if effects is None else effects.T


def inverse_transform(self: Model[Linear], Z: ScoresLike) -> npt.NDArray[Any] | xr.DataArray:
    r"""Return the expected features for given scores, in the units of `transform`.

    .. math:: E[x \mid z] = W z + \mu = \sum_k t_k \, w_k / \lVert w_k \rVert + \mu

    of latent variables z, the scores with `whiten=True`, or of scores t in units of the features, with the lengths of
    the w_k in the units of the fit (`scale`).  By hand it is `transform(X) @ components_ + mean_` with `whiten=True`,
    and `transform(X) @ result_["loadings"] + result_["mean"]` of xarray; without, loadings do not multiply scores.

    Returns
    -------
    array of shape (n_samples, n_features)
        In units of the features, of another `likelihood` the means of entries about Wz + μ; lazy where `Z` is.  A
        DataArray over the dimensions of the features where the fit had several of them, and where it had a DataArray
        and `Z` is one.

    Raises
    ------
    DataError
        For another number of components, unless labels of a DataArray say which, or for their labels in another order.
    """
    fitted, scores = self._model, latent(self, Z, self._model.component, lazy=True)
    loadings = fitted.loadings
    if not getattr(self, "whiten", True):
        loadings = loadings / np.where(fitted.lengths > 0.0, fitted.lengths, np.inf)
    entries = fitted.entries
    means = np.asarray if entries is None else partial(entry_means, model=entries.model)
    return over_features(expected(scores, loadings, fitted.mean, means), fitted.labels.known, Z)


@model
class LinearModel(Model[LinearGaussian]):
    """A model x = Wz + μ + ε of one table of samples × features."""

    n_components: int | Literal["auto"] = parameter(
        NUMBER, default="auto", kw_only=False, text=f"{COUNTED}  {SUPPORTED}"
    )  # type: ignore[assignment]

    n_components_, n_components_effective_ = row_methods.n_components_, row_methods.n_components_effective_
    noise_variance_, at_floor_ = row_methods.noise_variance_, row_methods.at_floor_
    explained_variance_ = row_methods.explained_variance_
    explained_variance_ratio_ = row_methods.explained_variance_ratio_
    n_features_in_, feature_names_in_ = row_methods.n_features_in_, row_methods.feature_names_in_
    score_samples, score = row_methods.score_samples, row_methods.score
    impute_variance, predict_cells = fill_methods.impute_variance, cells.predict_cells
    components_, mean_, inverse_transform = components_, mean_, inverse_transform

    def get_covariance(self) -> Array:
        """The model's covariance of the features, C = WWᵀ + Ψ.

        Returns
        -------
        ndarray of shape (n_features, n_features)
            In squared units of the features.
        """
        require_normal(self, "the covariance of the features")
        return covariance_of(self._model, self._model.features)

    def get_precision(self) -> Array:
        r"""The inverse of `get_covariance`, with the noise Ψ, σ²I or diag ψ.

        .. math:: C^{-1} = \Psi^{-1} - \Psi^{-1} W (I + W^\top \Psi^{-1} W)^{-1} W^\top \Psi^{-1}

        Returns
        -------
        ndarray of shape (n_features, n_features)
            In units of the features to the power of −2.
        """
        require_normal(self, "the precision of the features")
        fitted = self._model
        loadings = fitted.parameters.loadings[fitted.features]
        instead = "use its formula in the documentation instead, whose factors are features × components"
        require_room(len(loadings), len(loadings), "the precision of the features", instead)
        noise = fitted.specification.per_feature(fitted.parameters.noise_variance)[fitted.features]
        white = loadings / np.sqrt(noise)[:, None]
        factor = np.linalg.cholesky(np.eye(white.shape[1]) + white.T @ white)
        explained = np.linalg.solve(factor, (white / np.sqrt(noise)[:, None]).T)
        precision = np.asarray(-explained.T @ explained)
        precision.flat[:: len(noise) + 1] += 1.0 / noise
        return precision


def sample(
    self: LinearModel, n_samples: int = 1, *, random_state: Seed = None
) -> npt.NDArray[np.float64] | xr.DataArray:
    """Draw samples from the model: z ~ N(0, I), x = Wz + μ + ε, or entries of the `likelihood` about Wz + μ.

    Returns
    -------
    array of shape (n_samples, n_features)
        In units of the features; a DataArray over the dimensions of the features where the fit had several of them.
    """
    fitted = self._model
    return over_features(drawn(fitted, n_samples, random_state), fitted.labels.known)


def drawn(fitted: Any, n_samples: int, random_state: Seed) -> Array:
    """Samples of all stacked features, whose covariance is divided by the precision of a row."""
    rng, p = np.random.default_rng(random_state), fitted.parameters
    if fitted.entries is not None:
        return np.asarray(fitted.entries.model.sample(n_samples, p, Own.of(p, fitted.specification), rng))
    z = rng.standard_normal((n_samples, p.loadings.shape[1]))
    noise = np.sqrt(fitted.specification.per_feature(p.noise_variance))
    rows = np.asarray(z @ p.loadings.T + p.mean + rng.standard_normal((n_samples, len(p.mean))) * noise)
    precision = fitted.row_precision
    return rows if precision == 1.0 else np.asarray(p.mean + (rows - p.mean) / np.sqrt(precision))


def latent(model: Model[Any], Z: ScoresLike, component: Any, *, lazy: bool = False) -> Any:
    """Latent variables (n, K) that a user gives, in the order of the components; with `lazy` a Dask array stays one.

    Those of a DataArray with the labels of some components are 0 for the others.
    Errors: DataError for another number of components, or for labels in another order.
    """
    named = Z if isinstance(Z, xr.DataArray) else None
    if named is not None and "component" in named.coords and not named["component"].dims:
        label = named["component"].item()
        raise DataError(
            f"the scores are those of component {label}, without a dimension for it; keep it, as in "
            f"scores.sel(component=[{label}])"
        )
    rows = [str(dim) for dim in named.dims[:-1]] if named is not None and named.ndim > 2 else None
    unwrapped = unwrap(Z, dim=rows)
    scores = unwrapped.data if lazy and is_dask_array(unwrapped.data) else refuse_mask(unwrapped.data, "Z")
    labels = None if unwrapped.labels is None else unwrapped.labels.features
    if named is not None and labels is not None and len(labels) < len(component):
        chosen = np.isin(component, labels)
        if chosen.sum() == len(labels):
            require_order(component[chosen], labels, "the labels of the components")
            return scores @ np.eye(len(component), dtype=precision_of(scores))[chosen]
    if scores.ndim != 2 or scores.shape[1] != len(component):
        raise DataError(
            f"the scores have shape {scores.shape}; expected samples × {len(component)} components; "
            "of some of them give a DataArray with their labels"
        )
    for names in (component, model.get_feature_names_out()):
        require_order(names, labels, "the labels of the components")
    return scores


def expected(scores: Any, loadings: Array, mean: Array, means: Callable[[Array], Array] = np.asarray) -> Any:
    """Wz + μ for each row z of the scores, or the `means` of these, NumPy or, for a Dask array, lazy."""
    rows = partial(expected_rows, loadings=loadings, mean=mean, means=means)
    if not is_dask_array(scores):
        return rows(scores)
    from dlatent.engine.lazy import map_chunks  # which only Dask arrays need

    return map_chunks(scores, rows, len(mean), precision_of(scores))


def covariance_of(fitted: Any, features: slice, other: slice | None = None) -> Array:
    """The model's covariance of some of the stacked features, or that between them and others."""
    loadings = fitted.parameters.loadings
    left, right = loadings[features], loadings[features if other is None else other]
    require_room(len(left), len(right), "the covariance of the features", FACTORS)
    covariance = np.asarray(left @ right.T)
    if other is None or other == features:
        noise = fitted.specification.per_feature(fitted.parameters.noise_variance)[features]
        covariance.flat[:: len(left) + 1] += noise
    return covariance
