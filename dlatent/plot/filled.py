"""Pictures of what a model says of values that it was not given, with how sure it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from scipy.special import ndtri

from dlatent.containers import plain_numbers, without_mask
from dlatent.plot.axes import axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BARS: dict[str, Any] = {"fmt": "o", "markersize": 3, "elinewidth": 1, "color": "tab:blue"}


def imputation(
    model: Any,
    X: Any,
    feature: int | Mapping[str, int],
    *,
    truth: Any = None,
    level: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Draw one feature of all samples: what was observed, and what the model fills in, with intervals.

    Parameters
    ----------
    model : fitted model
        A model with `impute` and `impute_variance`.
    X : array_like of shape (N, D) or DataArray
        The samples, NaN where an entry is missing; a DataArray brings the coordinate of the samples to the horizontal
        axis, and may have more dimensions.
    feature : int or mapping
        The feature to draw, by position; of a grid the position along each dimension, `{"lat": 3, "lon": 5}`.
    truth : array_like of shape (N,), optional
        The values of the feature where they are known after all; those of missing entries are drawn.
    level : float, default 0.95
        Probability that the model gives an interval.
    ax : Axes, optional
        Axes to draw on; new ones by default.

    Returns
    -------
    Axes
        Dots for observed entries, error bars for missing ones, crosses for their truth.

    Raises
    ------
    ValueError
        Where there is no such feature, or `level` is no probability.
    """
    width = _width(level)
    given = _feature(X, feature)
    mean, variance = (_feature(function(X), feature).values for function in (model.impute, model.impute_variance))
    (rows,) = given.dims
    x = given.coords[rows].values if rows in given.coords else np.arange(given.size)
    gone = np.isnan(given.values)
    axes = axes_or_new(ax)
    axes.plot(x[~gone], given.values[~gone], linestyle="", marker="o", markersize=3, color="0.3", label="observed")
    half = width * np.sqrt(variance[gone])
    axes.errorbar(x[gone], mean[gone], yerr=half, label=f"filled in, with {level:.0%} interval", **BARS)
    if truth is not None:
        known = without_mask(truth)[gone]
        axes.plot(x[gone], known, linestyle="", marker="x", markersize=4, color="tab:red", label="truth", zorder=3)
    axes.set_xlabel(str(rows))
    axes.set_ylabel(str(given.name))
    axes.legend(frameon=False)
    return axes


def reconstruction(
    model: Any,
    X: Any,
    from_view: str,
    to_view: str,
    feature: int,
    *,
    truth: Any = None,
    level: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Draw one feature of a view as it is reconstructed from another view, with intervals.

    Parameters
    ----------
    model : fitted model
        A model of views, with `reconstruct`.
    X : array_like of shape (N, D)
        Samples of the view `from_view`.
    from_view : str
        The view that is given.
    to_view : str
        The view that is wanted.
    feature : int
        The feature of `to_view` to draw, by position.
    truth : array_like of shape (N,), optional
        The values of the feature where they are known after all.
    level : float, default 0.95
        Probability that the model gives an interval.
    ax : Axes, optional
        Axes to draw on; new ones by default.

    Returns
    -------
    Axes
        Error bars of the samples in their order; with `truth` at the true values, and a line where both are equal.

    Raises
    ------
    ValueError
        Where `level` is no probability.
    """
    width = _width(level)
    found, variances = model.reconstruct(X, from_view, to_view, return_variance=True)
    mean = np.asarray(found)[:, feature]
    variance = np.broadcast_to(np.asarray(variances), np.shape(found))[:, feature]
    x = np.arange(len(mean)) if truth is None else plain_numbers(truth, "truth").astype(np.float64)
    axes = axes_or_new(ax)
    half = width * np.sqrt(variance)
    axes.errorbar(x, mean, yerr=half, label=f"from {from_view}, with {level:.0%} interval", **BARS)
    if truth is not None:
        ends = np.array([x.min(), x.max()])
        axes.plot(ends, ends, color="0.3", linewidth=1, label="equal to the truth", zorder=3)
    axes.set_xlabel("sample" if truth is None else "truth")
    axes.set_ylabel(f"{to_view}, feature {feature}")
    axes.legend(frameon=False)
    return axes


def _width(level: float) -> float:
    """Half the width of an interval of a normal distribution, in standard deviations."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level is {level}; expected a probability, above 0 and below 1")
    return float(ndtri(0.5 + level / 2))


def _feature(X: Any, feature: int | Mapping[str, int]) -> xr.DataArray:
    """One feature of all samples, with its name."""
    if isinstance(X, xr.DataArray):
        data = X
    else:
        data = xr.DataArray(plain_numbers(X, "X").astype(np.float64), dims=("sample", "feature"))
    place = {str(data.dims[1]): feature} if isinstance(feature, int) else dict(feature)
    if data.ndim != len(place) + 1:
        raise ValueError(f"the data have dimensions {data.dims}; give the position along each but that of the samples")
    for dim, at in place.items():
        if not 0 <= at < data.sizes[dim]:
            raise ValueError(f"feature is {at}; the data have {data.sizes[dim]}, counted from 0")
    words = [f"{dim} {data.coords[dim].values[at] if dim in data.coords else at}" for dim, at in place.items()]
    found = data.isel(place, drop=True).rename(", ".join(words))
    return found.copy(data=plain_numbers(found.data, "X"))
