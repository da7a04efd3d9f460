"""Pictures of what a model says of values that it was not given, with how sure it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.special import ndtri

from dlatent.plot.axes import axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def imputation(
    model: Any, X: Any, feature: int, *, truth: Any = None, level: float = 0.95, ax: Axes | None = None
) -> Axes:
    """Draw one feature of all samples: what was observed, and what the model fills in, with intervals.

    Parameters
    ----------
    model : fitted model
        A model with `impute` and `impute_variance`.
    X : array_like of shape (N, D)
        The samples, NaN where an entry is missing; a DataArray brings the values of its first dimension to the
        horizontal axis.
    feature : int
        The feature to draw, by position.
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
    if not 0.0 < level < 1.0:
        raise ValueError(f"level is {level}; expected a probability, above 0 and below 1")
    given = np.asarray(X, dtype=np.float64)
    if not 0 <= feature < given.shape[1]:
        raise ValueError(f"feature is {feature}; the data have {given.shape[1]}, counted from 0")
    gone = np.isnan(given[:, feature])
    mean, variance = (np.asarray(function(X))[:, feature] for function in (model.impute, model.impute_variance))
    x, x_name, name = _named(X, feature)
    axes = axes_or_new(ax)
    axes.plot(x[~gone], given[~gone, feature], linestyle="", marker="o", markersize=3, color="0.3", label="observed")
    half = float(ndtri(0.5 + level / 2)) * np.sqrt(variance[gone])
    bars: dict[str, Any] = {"fmt": "o", "markersize": 3, "elinewidth": 1, "color": "tab:blue"}
    axes.errorbar(x[gone], mean[gone], yerr=half, label=f"filled in, with {level:.0%} interval", **bars)
    if truth is not None:
        known = np.asarray(truth)[gone]
        axes.plot(x[gone], known, linestyle="", marker="x", markersize=4, color="tab:red", label="truth", zorder=3)
    axes.set_xlabel(x_name)
    axes.set_ylabel(name)
    axes.legend(frameon=False)
    return axes


def _named(X: Any, feature: int) -> tuple[npt.NDArray[Any], str, str]:
    """Where each sample lies on the horizontal axis, and the names of both axes."""
    if not isinstance(X, xr.DataArray):
        return np.arange(len(X)), "sample", f"feature {feature}"
    rows, columns = (str(dim) for dim in X.dims)
    x = X.coords[rows].values if rows in X.coords else np.arange(X.sizes[rows])
    name = X.coords[columns].values[feature] if columns in X.coords else feature
    return x, rows, f"{columns} {name}"
