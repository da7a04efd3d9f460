"""Pictures of a fit: how it went, how much of the data it explains, and what it says of values not given to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from scipy.special import ndtri

from dlatent.containers import plain_numbers, printable, without_mask
from dlatent.plot.axes import (
    axes_or_new,
    component_variances,
    dataset_of,
    labelled,
    probability,
    refuse_annotated,
    variable,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMALLEST = 1e-16
"""Relative distances below rounding are drawn here."""
SCORES = {
    "held_out_log_likelihood": "held-out log-likelihood per entry",
    "cross_validated_log_likelihood": "log-likelihood per sample of folds left out",
    "bic": "Bayesian information criterion",
    "log_evidence": "log-evidence",
    "eigenvalue": "eigenvalue",
}
"""Criteria of `select_n_components`."""
BARS: dict[str, Any] = {"fmt": "o", "markersize": 3, "elinewidth": 1, "color": "tab:blue"}


def history(result: Any, *, ax: Axes | None = None) -> Axes:
    """Draw how the log-likelihood came near its last value, iteration by iteration.

    Parameters
    ----------
    result : fitted model or Dataset
        A model, its `result_` or its `history_`.
    ax : Axes, optional
        Axes to draw on; new ones by default.

    Returns
    -------
    Axes
        Upwards the relative distance to the last log-likelihood, on a logarithmic scale.
    """
    values = variable(result, "iteration_log_likelihood").values
    distance = np.abs(values - values[-1]) / max(abs(float(values[-1])), 1.0)
    axes = axes_or_new(ax)
    axes.semilogy(np.arange(1, len(values) + 1), np.maximum(distance, SMALLEST), marker="o", markersize=4)
    axes.set_title(f"log-likelihood {values[-1]:.10g}")
    return labelled(axes, "iteration", "relative distance to the last log-likelihood", whole_numbers=True)


def explained_variance(result: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the share of the features' total variance that each component explains.

    Parameters
    ----------
    result : fitted model or Dataset
        A model, or its `result_`.
    ax : Axes, optional
        Axes to draw on; new ones by default.

    Returns
    -------
    Axes
        The loadings of component k explain Σ_d W_dk²; the noise is in none of the components.  Of one table there is a
        bar for each component, and their sum so far; of several views a map of views and components, in per cent.
    """
    dataset = dataset_of(result)
    if "explained_variance_ratio" in dataset:
        return _view_shares(dataset["explained_variance_ratio"], axes_or_new(ax))
    loadings = variable(result, "loadings")
    features = int(loadings.notnull().any("component").sum())  # cells of a grid that are none are NaN
    shares = component_variances(result) / (float(variable(result, "total_variance").values[0]) * features)
    axes = axes_or_new(ax)
    places = np.arange(len(shares))
    axes.bar(places, shares, label="component")
    axes.plot(places, np.cumsum(shares), color="0.3", marker="o", markersize=4, label="up to here")
    axes.set_ylim(0, None)
    return labelled(axes, "component", "share of the total variance", whole_numbers=True, legend=True)


def _view_shares(shares: xr.DataArray, axes: Axes) -> Axes:
    """The map of views and components."""
    percent = 100.0 * shares.values
    image = axes.imshow(percent, cmap="Blues", vmin=0.0, aspect="auto")
    axes.figure.colorbar(image, ax=axes, label="% of the variance of the view")
    for (view, component), value in np.ndenumerate(percent):
        dark = value > 0.6 * percent.max()
        axes.text(component, view, f"{value:.0f}", ha="center", va="center", color="white" if dark else "0.2")
    axes.set_xticks(range(percent.shape[1]), shares["component"].values.tolist())
    axes.set_yticks(range(len(percent)), shares["view"].values.tolist())
    return labelled(axes, "component", "view")


def spectrum(result: Any, *, chosen: Any = None, ax: Axes | None = None) -> Axes:
    """Draw the variance along each component above the noise, and where the number of components was cut.

    A component that stands clear of the noise says something of its own; one at the level of the noise does not.

    Parameters
    ----------
    result : fitted model or Dataset
        A model whose features share one noise variance (PPCA and its relatives), or its `result_`.  Fit it with more
        components than are wanted, to see where the others lie.
    chosen : int or Dataset, optional
        The number of components that was chosen, or what `select_n_components` returns.
    ax : Axes, optional
        Axes to draw on; new ones by default.

    Returns
    -------
    Axes
        On a logarithmic scale Σ_d W_dk² + σ² for k = 1 … K, which are the largest eigenvalues of the covariance, and
        σ² as a dashed line, the mean of all others.

    Raises
    ------
    TypeError
        Where each feature has a noise variance of its own, so that there is no one level.
    """
    dataset = dataset_of(result)
    variances = component_variances(result)
    if "noise_variance" not in dataset:
        raise TypeError("each feature has its own noise variance here, so that there is no level to draw; see loadings")
    noise = float(dataset["noise_variance"].values[0])
    values = variances + noise
    axes = axes_or_new(ax)
    axes.semilogy(np.arange(1, len(values) + 1), values, marker="o", markersize=4, label="variance along a component")
    axes.axhline(noise, color="0.3", linestyle="--", linewidth=1, label="noise variance")
    if chosen is not None:
        best = int(chosen.attrs["best"] if isinstance(chosen, xr.Dataset) else chosen)
        axes.axvline(best, color="tab:red", linewidth=1, label=f"{best} chosen")
    return labelled(axes, "number of the component", "variance", whole_numbers=True, legend=True)


def selection(dataset: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Draw what is known of each number of components by the criterion that compared them.

    Parameters
    ----------
    dataset : Dataset
        What `select_n_components` returns.
    ax : Axes, optional
        Axes to draw on; new ones by default.

    Returns
    -------
    Axes
        Upwards the score, in nats but for eigenvalues, beside which lie those of noise; a vertical line at the best
        number.
    """
    scores, best = variable(dataset, dataset.attrs["score"]), int(dataset.attrs["best"])
    order = np.argsort(dataset["n_components"].values)
    axes, numbers = axes_or_new(ax), dataset["n_components"].values[order]
    axes.plot(numbers, scores.values[order], marker="o", markersize=4)
    axes.axvline(best, color="tab:red", linewidth=1, label=f"{best} chosen")
    if "noise_eigenvalue" in dataset:
        axes.plot(numbers, dataset["noise_eigenvalue"].values[order], color="0.3", linestyle="--", label="of noise")
    return labelled(axes, "number of components", SCORES[dataset.attrs["score"]], whole_numbers=True, legend=True)


def smoothing(result: Any, *, ax: Axes | None = None) -> Axes:
    """Draw how well scores with each strength of smoothing over a graph agree with hidden cells.

    Parameters
    ----------
    result : fitted GraphPPCA
        Whose `smoothing` was "auto".
    ax : Axes, optional
        Axes to draw on; new ones by default.

    Returns
    -------
    Axes
        Upwards the correlation of scores with hidden cells, with the standard error of its difference to the
        largest; a vertical line at the one that was chosen.

    Raises
    ------
    ValueError
        Where the smoothing was given.
    """
    scores = result.smoothing_scores_
    if scores is None:
        raise ValueError("the smoothing was given, so that nothing was compared; fit with smoothing='auto'")
    axes, places = axes_or_new(ax), np.arange(scores.sizes["smoothing"])
    labels = [f"{value:g}" for value in scores["smoothing"].values]
    axes.errorbar(places, scores["smoothing_correlation"], scores["smoothing_error"], marker="o", markersize=4)
    at = int(np.flatnonzero(scores["smoothing"].values == result.smoothing_)[0])
    axes.axvline(at, color="tab:red", linewidth=1, label=f"λ = {result.smoothing_:g} chosen")
    axes.set_xticks(places, labels)
    return labelled(axes, "smoothing λ", "correlation with hidden cells", legend=True)


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
    truth : array_like of shape (N,) or of the shape of X, optional
        The values of the feature, or of all, where they are known after all; those of missing entries are drawn.
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
        Where there is no such feature, `level` is no probability, or `truth` has another shape.
    """
    width = _width(level)
    for values in (X, truth):
        refuse_annotated(values, "its matrix, as adata.to_df()")
    column = _feature(X, feature)
    if truth is not None and np.shape(truth) == np.shape(X):
        truth = _feature(truth, feature).values
    if truth is not None and np.shape(truth) != column.shape:
        raise ValueError(f"truth has the shape {np.shape(truth)}; expected {column.shape} or {np.shape(X)}")
    mean, variance = (_feature(function(X), feature).values for function in (model.impute, model.impute_variance))
    (rows,) = column.dims
    x = column.coords[rows].values if rows in column.coords else np.arange(column.size)
    gone = np.isnan(column.values)
    axes = axes_or_new(ax)
    axes.plot(x[~gone], column.values[~gone], linestyle="", marker="o", markersize=3, color="0.3", label="observed")
    half = width * np.sqrt(variance[gone])
    axes.errorbar(x[gone], mean[gone], yerr=half, label=f"filled in, with {level:.0%} interval", **BARS)
    if truth is not None:
        known = without_mask(truth)[gone]
        axes.plot(x[gone], known, linestyle="", marker="x", markersize=4, color="tab:red", label="truth", zorder=3)
    return labelled(axes, str(rows), str(column.name), legend=True)


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
        Where `level` is no probability, or `truth` has another shape.
    """
    width = _width(level)
    means, variances = model.reconstruct(X, from_view, to_view, return_variance=True)
    mean = np.asarray(means)[:, feature]
    variance = np.broadcast_to(np.asarray(variances), np.shape(means))[:, feature]
    x = np.arange(len(mean)) if truth is None else plain_numbers(truth, "truth").astype(np.float64)
    if x.shape != mean.shape:
        raise ValueError(f"truth has the shape {x.shape}, and the feature {mean.shape}; give truth[:, {feature}]")
    axes = axes_or_new(ax)
    half = width * np.sqrt(variance)
    axes.errorbar(x, mean, yerr=half, label=f"from {from_view}, with {level:.0%} interval", **BARS)
    if truth is not None:
        ends = np.array([x.min(), x.max()])
        axes.plot(ends, ends, color="0.3", linewidth=1, label="equal to the truth", zorder=3)
    return labelled(axes, "sample" if truth is None else "truth", f"{to_view}, feature {feature}", legend=True)


def _width(level: float) -> float:
    """Half the width of an interval of a normal distribution, in standard deviations."""
    return float(ndtri(0.5 + probability("level", level) / 2))


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
    names = [f"{dim} {printable(data[dim].values[at]) if dim in data.coords else at}" for dim, at in place.items()]
    column = data.isel(place, drop=True).rename(", ".join(names))
    return column.copy(data=plain_numbers(column.data, "X"))
