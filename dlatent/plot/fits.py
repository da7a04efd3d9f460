"""Pictures of a fit: how it went, and how much of the data it explains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from dlatent.plot.axes import axes_or_new, dataset_of, variable, whole_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMALLEST = 1e-16
"""Relative distances below rounding are drawn here."""


def history(result: Any, *, ax: Axes | None = None) -> Axes:
    """Draw how the log-likelihood came near its last value, iteration by iteration.

    Parameters: `result`, a fitted model, its `result_` or its `history_`; `ax`, axes to draw on (None: new ones).
    Returns: the axes; upwards the relative distance to the last log-likelihood, on a logarithmic scale.
    """
    dataset = result if isinstance(result, xr.Dataset) else dataset_of(result)
    values = variable(dataset, "iteration_log_likelihood").values
    distance = np.abs(values - values[-1]) / max(abs(float(values[-1])), 1.0)
    axes = axes_or_new(ax)
    axes.semilogy(np.arange(1, len(values) + 1), np.maximum(distance, SMALLEST), marker="o", markersize=4)
    axes.set_xlabel("iteration")
    axes.set_ylabel("relative distance to the last log-likelihood")
    axes.set_title(f"log-likelihood {values[-1]:.10g}")
    whole_ticks(axes)
    return axes


def explained_variance(result: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the share of the features' total variance that each component explains, and their sum.

    Parameters: `result`, a fitted model or its `result_`; `ax`, axes to draw on (None: new ones).
    Returns: the axes. The loadings of component k explain Σ_d W_dk²; the noise is in none of the components.
    """
    dataset = dataset_of(result)
    loadings = variable(dataset, "loadings")
    (features,) = (dim for dim in loadings.dims if dim != "component")
    total = float(variable(dataset, "total_variance").values[0]) * loadings.sizes[features]
    shares = (loadings**2).sum(str(features)).values / total
    axes = axes_or_new(ax)
    places = np.arange(len(shares))
    axes.bar(places, shares, label="component")
    axes.plot(places, np.cumsum(shares), color="0.3", marker="o", markersize=4, label="up to here")
    axes.set_xlabel("component")
    axes.set_ylabel("share of the total variance")
    axes.set_ylim(0, None)
    whole_ticks(axes)
    axes.legend(frameon=False)
    return axes
