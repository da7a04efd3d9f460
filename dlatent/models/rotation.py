"""Loadings of simple structure: those of factors, and those of principal components, as rotated EOFs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import xarray as xr

from dlatent.arrays import Array
from dlatent.containers import precision_of
from dlatent.errors import DataError
from dlatent.fitted.grid import row_coordinates, spread_all, unstacked_rows
from dlatent.fitted.linear import Linear
from dlatent.gaussian.canonical import Rotated, oblimin, promax, quartimax, varimax
from dlatent.models.hyperparameters import Rotation
from dlatent.models.inputs import ScoresLike
from dlatent.models.linear import latent
from dlatent.models.model import Model
from dlatent.models.row_methods import score_axes

METHODS: dict[str, Callable[..., Rotated]] = {
    "varimax": varimax,
    "quartimax": quartimax,
    "promax": promax,
    "oblimin": oblimin,
}
OBLIQUE = ("promax", "oblimin")


def simple_structure(loadings: Array, method: str, power: float = 4.0) -> Rotated:
    """A rotation of loadings (D, K); components that are switched off stay where they are.  Errors: DataError."""
    if method not in METHODS:
        *first, last = map(repr, get_args(Rotation))
        raise DataError(f"method is {method!r}; expected {', '.join(first)} or {last}")
    on = np.asarray(loadings.any(axis=0))
    turn, correlations = np.eye(len(on)), np.eye(len(on))
    if on.any():
        best = METHODS[method](loadings[:, on], **({"power": power} if method == "promax" else {}))
        turn[np.ix_(on, on)], correlations[np.ix_(on, on)] = best.transformation, best.correlations
    return Rotated(loadings @ turn, correlations, turn)


def over_components(fitted: Linear, variables: dict[str, Any], **attributes: Any) -> xr.Dataset:
    """Variables with the dimensions "feature" and "component" as a Dataset with the names and the grid of the fit."""
    known = fitted.labels.known
    named = {
        name: (tuple(known.dims[1] if dim == "feature" else dim for dim in dims), values)
        for name, (dims, values) in variables.items()
    }
    coordinates = {} if known.features is None else {known.dims[1]: np.asarray(known.features)}
    dataset = xr.Dataset(named, coords={**coordinates, "component": fitted.component}, attrs=attributes)
    return dataset if known.grid is None else spread_all(dataset, known.dims[1], known.grid)


def with_scores(turned: xr.Dataset, model: Model[Linear], Z: ScoresLike | None) -> xr.Dataset:
    """A rotation with the scores T⁻¹z of each z of Z, where there are some, with the names and coordinates of the
    samples; of a Dask array they are lazy."""
    if Z is None:
        return turned
    scores, grid = latent(model, Z, model._model.component, lazy=True), model._model.labels.known.grid
    values = scores @ np.linalg.inv(turned["transformation"].values).T.astype(precision_of(scores))
    if not isinstance(Z, xr.DataArray):
        return turned.assign(scores=(("sample", "component"), values))
    lead = Z.ndim - 1
    rows, coords = unstacked_rows(values, Z.shape[:lead]), row_coordinates(Z, lead)
    about = None if grid is None else grid.attrs.get("long_name", grid.name)
    attrs = {"long_name": f"scores of {about}" if about else "scores", "units": "1"}
    dims = (*Z.dims[:lead], "component")
    return turned.assign(scores=xr.DataArray(rows, dims=dims, coords=coords, attrs=attrs))


def rotated(
    self: Model[Linear], method: Rotation = "varimax", Z: ScoresLike | None = None, *, power: float = 4.0
) -> xr.Dataset:
    r"""The components turned to loadings of simple structure: rotated empirical orthogonal functions.

    .. math:: \Lambda = U \operatorname{diag}(\lambda)^{1/2} T, \qquad
        \Lambda \Phi \Lambda^\top = U \operatorname{diag}(\lambda) U^\top

    with the directions U of the components, the variances λ along them, noise included (`explained_variance_`), and the
    correlations Φ of the rotated scores.  So each EOF has the length of the standard deviation of its time series, as
    is usual before a rotation.  The scores, `transform(X) @ inv(transformation).T`, have variance 1, with and without
    `whiten`.  Of complete data the loadings times these, and the mean, are the projection of x onto the components,
    which no rotation changes; `inverse_transform` has the part of it that is no noise.

    Parameters
    ----------
    method : {"varimax", "quartimax", "promax", "oblimin"}, default "varimax"
        The first two are orthogonal, the others oblique; "oblimin" is the direct one with γ = 0.  Rows of the loadings
        are scaled to length 1 meanwhile (Kaiser).
    Z : array or xarray.DataArray of shape (n_samples, n_components), optional
        Scores, as `transform` gives them, to be turned with the components.
    power : float, default 4.0
        Of promax.

    Returns
    -------
    xarray.Dataset
        `loadings` Λ (feature, component), in decreasing order of what they explain, `explained_variance_ratio`
        (component), `correlations` Φ and `transformation` (component, component_2); with `Z` `scores` (sample,
        component), with the samples' dimensions and coordinates.

    Raises
    ------
    DataError
        For another method, or scores of other components.

    References
    ----------
    Richman (1986), "Rotation of principal components"; Hannachi, Jolliffe and Stephenson (2007), "Empirical orthogonal
    functions and related techniques in atmospheric science: a review", section 4.
    """
    fitted = self._model
    lengths, axes = fitted.lengths, score_axes(self)
    free = len(lengths) - int(fitted.row_effects)
    # w_k = u_k √(λ_k − σ²)
    on = np.flatnonzero(lengths[:free] > 0.0)
    to_eofs = np.zeros(len(lengths))
    to_eofs[on] = np.sqrt(1.0 + float(fitted.noise.variance[0]) / lengths[on] ** 2)
    turn = simple_structure(fitted.fitted_loadings * to_eofs, method, power)
    to_eofs = np.where(to_eofs > 0.0, to_eofs, 1.0)
    scale = (np.ones(len(lengths)) if axes is None else np.where(lengths > 0.0, lengths, 1.0)) / to_eofs
    explained = (turn.loadings * (turn.loadings @ turn.correlations)).sum(axis=0)
    square = ("component", "component_2")
    variables = {
        "loadings": (("feature", "component"), (fitted.loadings * to_eofs) @ turn.transformation),
        "explained_variance_ratio": (("component",), explained / (fitted.total_variance[0] * fitted.dimension)),
        "correlations": (square, turn.correlations),
        "transformation": (square, scale[:, None] * turn.transformation),
    }
    return with_scores(over_components(fitted, variables, method=method), self, Z)
