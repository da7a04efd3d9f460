"""Pictures of a fit: how it went, and how much of the data it explains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from dlatent.plot.axes import axes_or_new, component_variances, dataset_of, variable, whole_ticks

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
"""What `select_n_components` compares."""


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

    Parameters
    ----------
    result : fitted model or Dataset
        A model, or its `result_`.
    ax : Axes, optional
        Axes to draw on; new ones by default.

    Returns
    -------
    Axes
        The loadings of component k explain Σ_d W_dk²; the noise is in none of the components.
    """
    dataset = dataset_of(result)
    loadings = variable(dataset, "loadings")
    features = int(loadings.notnull().any("component").sum())  # cells of a grid that are none are NaN
    shares = component_variances(result) / (float(variable(dataset, "total_variance").values[0]) * features)
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
    axes.set_xlabel("number of the component")
    axes.set_ylabel("variance")
    whole_ticks(axes)
    axes.legend(frameon=False)
    return axes


def selection(found: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Draw what is known of each number of components by the criterion that compared them.

    Parameters
    ----------
    found : Dataset
        What `select_n_components` returns.
    ax : Axes, optional
        Axes to draw on; new ones by default.

    Returns
    -------
    Axes
        Upwards the score, in nats but for eigenvalues, beside which lie those of noise; a vertical line at the best
        number.
    """
    scores, best = variable(found, found.attrs["score"]), int(found.attrs["best"])
    order = np.argsort(found["n_components"].values)
    axes, numbers = axes_or_new(ax), found["n_components"].values[order]
    axes.plot(numbers, scores.values[order], marker="o", markersize=4)
    axes.axvline(best, color="tab:red", linewidth=1, label=f"{best} chosen")
    if "noise_eigenvalue" in found:
        axes.plot(numbers, found["noise_eigenvalue"].values[order], color="0.3", linestyle="--", label="of noise")
    axes.set_xlabel("number of components")
    axes.set_ylabel(SCORES[found.attrs["score"]])
    whole_ticks(axes)
    axes.legend(frameon=False)
    return axes


def smoothing(result: Any, *, ax: Axes | None = None) -> Axes:
    """Draw how well each strength of smoothing over a graph predicts hidden cells.

    Parameters
    ----------
    result : fitted GraphPPCA
        Whose `smoothing` was "auto".
    ax : Axes, optional
        Axes to draw on; new ones by default.

    Returns
    -------
    Axes
        Upwards the correlation of reconstructions with hidden cells, with the standard error of its difference to the
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
    axes.set_xlabel("smoothing λ")
    axes.set_ylabel("correlation with hidden cells")
    axes.legend(frameon=False)
    return axes
