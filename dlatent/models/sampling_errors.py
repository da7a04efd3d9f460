"""How far eigenvalues and components would change with other samples: North's rule of thumb, and a block bootstrap."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import xarray as xr

from dlatent.engine.connect import Where
from dlatent.errors import DataError, NoiseFloorWarning
from dlatent.fitted.linear import LinearGaussian
from dlatent.fitted.rows import AlongAxes
from dlatent.gaussian.resampling import block_counts, replicate
from dlatent.models import task as tasks
from dlatent.models.inputs import Data, Seed
from dlatent.models.map_rows import RowsRun
from dlatent.models.model import Model, available_if
from dlatent.models.observations import require_normal
from dlatent.models.rotation import over_components
from dlatent.models.row_methods import mapped
from dlatent.models.table import opened


def north_rule(self: Any, *, n_effective: float | None = None) -> xr.Dataset:
    r"""Standard errors of the eigenvalues by North's rule of thumb, and which of them are not told apart.

    .. math:: \delta\lambda_k \approx \lambda_k \sqrt{2/N}

    Components whose eigenvalues are nearer to each other than their errors are mixed: other samples would give other
    combinations of them.

    Parameters
    ----------
    n_effective : float, optional
        The number of independent samples; by default that of all samples.  Of a time series with the correlation r
        between neighbours it is about N(1 − r)/(1 + r).

    Returns
    -------
    xarray.Dataset
        `eigenvalue` (component), those of the covariance, with `eigenvalue_error` in the same units, and `overlaps`
        (component, component_2), whether the intervals λ ± δλ of two of them have a point in common.

    Raises
    ------
    DataError
        For a number of samples that is not positive.

    References
    ----------
    North, Bell, Cahalan and Moeng (1982), "Sampling errors in the estimation of empirical orthogonal functions".
    """
    require_normal(self, "North's rule")
    samples = self.n_samples_ if n_effective is None else n_effective
    if not samples > 0:
        raise DataError(f"n_effective is {n_effective}; expected a positive number of samples")
    fitted = self._model
    free = len(fitted.component) - int(fitted.row_effects)
    values = self.explained_variance_[:free]
    errors = values * np.sqrt(2.0 / samples)
    overlaps = np.abs(values[:, None] - values) <= errors[:, None] + errors
    np.fill_diagonal(overlaps, False)
    variables = {
        "eigenvalue": (("component",), values),
        "eigenvalue_error": (("component",), errors),
        "overlaps": (("component", "component_2"), overlaps),
    }
    return xr.Dataset(variables, {"component": fitted.component[:free]}, {"n_effective": float(samples)})


@available_if(lambda model: model._missing == "raise")
def bootstrap(
    self: Model[LinearGaussian],
    X: Data,
    *,
    block_length: int,
    n_replicates: int = 200,
    dim: str | None = None,
    n_axes: int = 500,
    random_state: Seed = 0,
    client: Where = None,
) -> xr.Dataset:
    r"""Standard errors of loadings and explained variance by a bootstrap of blocks of consecutive samples.

    Samples that follow each other are seldom independent; blocks keep what they have in common.  The data are fitted
    once more with more components, and visited once for scores along these axes; all replicates are made of these
    scores.  Each component of a replicate is compared with the one of the fit that it is most alike, with the same
    sign.  With `scale="spread"` the spreads of all replicates are those of the data.

    Parameters
    ----------
    block_length : int
        Consecutive samples of a block, a few times as many as it takes to forget; 1 for independent samples.
    n_replicates : int, default 200
        How often samples are drawn anew.
    dim : str, optional
        Where samples lie over several dimensions the one along which they follow each other, by default the last.
    n_axes : int, default 500
        How many leading axes the replicates are made of.  With min(N − 1, D) of them or more errors are exact; with
        fewer what lies outside is left out of the errors of loadings, and those are too small where that is much beside
        a component.
    random_state : int or numpy.random.Generator, default 0
        Seed of the draws.

    Returns
    -------
    xarray.Dataset
        `loadings` and `explained_variance_ratio` of the fit; `loadings_error` and `explained_variance_ratio_error`, the
        standard deviations over the replicates; and `replicate_ratio` (replicate, component).

    Raises
    ------
    DataError
        For data of other features, for blocks that are longer than the data, and for less than two replicates or fewer
        axes than components.

    References
    ----------
    Künsch (1989), "The jackknife and the bootstrap for general stationary observations"; Fisher, Caffo, Schwartz and
    Zipunnikov (2016), "Fast, exact bootstrap principal component analysis for p > 1 million".
    """
    require_normal(self, "the bootstrap")
    fitted, k = self._model, self.n_components_  # type: ignore[attr-defined]
    if n_replicates < 2 or n_axes < k:
        raise DataError(f"n_replicates is {n_replicates} and n_axes {n_axes}; expected at least 2, and {k} components")
    source = opened(self, X, before=self._fit)
    stacked = source.labels.stacked
    dims = tuple(stacked) or source.labels.dims[:1]
    sizes = tuple(map(len, stacked.values())) or source.shape[:1]
    if dim is not None and dim not in dims:
        raise DataError(f"dim is {dim!r}; the samples lie along {dims}")
    axis = len(dims) - 1 if dim is None else dims.index(dim)
    if not 1 <= block_length <= sizes[axis]:
        raise DataError(
            f"block_length is {block_length}; expected 1 to {sizes[axis]}, the samples along {dims[axis]!r}"
        )
    length = max(min(n_axes, source.shape[0] - 1, source.shape[1]), k)
    scale = "none" if fitted.units is None else "spread"
    asked = {"n_components": length, "solver": "auto", "prior": "ml", "scale": scale}
    wider = type(self)(**self.get_params() | asked)
    with warnings.catch_warnings():  # that no noise is left is what is asked for
        warnings.simplefilter("ignore", NoiseFloorWarning)
        tasks.run(wider._task(source), tasks.FitRun(client), wider)
    axes = np.linalg.qr(wider._model.fitted_loadings)[0]
    units = np.ones(1) if wider._model.units is None else wider._model.units
    along, names = AlongAxes(axes, wider._model.mean, units), np.arange(axes.shape[1] + 1)
    values: Any = mapped(self, X, along, "scores", "component", names, run=RowsRun(client=client))
    rows, directions = np.asarray(values).reshape(-1, len(names)), axes.T @ fitted.fitted_loadings
    directions = directions / np.maximum(np.linalg.norm(directions, axis=0), np.finfo(float).tiny)
    draws = block_counts(sizes, axis, block_length, n_replicates, np.random.default_rng(random_state))
    made = [replicate(rows[:, :-1], rows[:, -1], counts, directions, len(axes)) for counts in draws]
    coefficients = np.stack([each.loadings for each in made])
    ratios = np.stack([each.eigenvalues / each.total for each in made])
    about = (coefficients - coefficients.mean(axis=0)) / np.sqrt(n_replicates - 1)
    # Of each component RᵀR is the covariance.
    roots = [np.asarray(np.linalg.qr(about[:, :, each], mode="r")) for each in range(about.shape[2])]
    errors = [np.linalg.norm(axes @ root.T, axis=1) * units for root in roots]
    variables = {
        "loadings": (("feature", "component"), fitted.loadings),
        "loadings_error": (("feature", "component"), np.column_stack(errors)),
        "explained_variance_ratio": (("component",), self.explained_variance_ratio_),  # type: ignore[attr-defined]
        "explained_variance_ratio_error": (("component",), ratios.std(axis=0, ddof=1)),
        "replicate_ratio": (("replicate", "component"), ratios),
    }
    return over_components(fitted, variables, block_length=block_length, n_replicates=n_replicates)
