"""Pictures of entries: how far they are from what a model expects, and how little outliers count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri, stdtrit

from dlatent.containers import printable
from dlatent.plot.axes import axes_or_new, labelled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS, BINS = 2000, 20
"""Points that are drawn at most, and groups of equally many entries."""


def residuals(model: Any, X: Any, *, ax: Axes | None = None, **beside: Any) -> Axes:
    """Draw the standardised residuals of the entries of rows, as the likelihood of the model asks for.

    Parameters
    ----------
    model : fitted PPCA or FactorAnalysis
        Whose `residuals` are drawn.
    X : array_like of shape (N, D)
        Rows, in memory.
    ax : Axes, optional
        Axes to draw on; new ones by default.
    **beside : optional
        What the fit had beside the entries, as `uncertainty`.

    Returns
    -------
    Axes
        Of normal entries, and those of Student's distribution, quantiles against those of the distribution; on the line
        where the model is right, and steeper at the ends where tails are heavier.  Of counts residuals against means,
        and the root mean square of groups of entries with like means, which is 1 where counts vary as the model says.
        Of binary entries the mean residuals of groups with like probabilities, and twice their standard error.
    """
    result = model.residuals(X, **beside)
    values = result["residual"].values.ravel()
    known = ~np.isnan(values)
    values, means, axes = values[known], result["mean"].values.ravel()[known], axes_or_new(ax)
    likelihood, freedom = result.attrs["likelihood"], result.attrs.get("degrees_of_freedom")
    if likelihood == "normal" or freedom is not None:
        return _quantiles(axes, values, freedom)
    order = np.argsort(means, kind="stable")
    groups = [each for each in np.array_split(order, BINS) if len(each)]
    middle = [means[each].mean() for each in groups]
    if likelihood == "bernoulli":
        error = np.array([2.0 / np.sqrt(len(each)) for each in groups])
        axes.fill_between(middle, -error, error, color="0.85", label="± two standard errors")
        axes.plot(middle, [values[each].mean() for each in groups], marker="o", markersize=4, label="mean of a group")
        return labelled(axes, "expected probability", "standardised residual", legend=True)
    some = order[np.linspace(0, len(order) - 1, min(POINTS, len(order))).astype(int)]
    axes.scatter(means[some], values[some], s=4, color="0.6", linewidths=0, label="entries")
    sizes = [np.sqrt((values[each] ** 2).mean()) for each in groups]
    axes.plot(middle, sizes, marker="o", markersize=4, label="root mean square")
    axes.axhline(1.0, color="0.3", linestyle="--", linewidth=1, label="of the model")
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=2.0)
    return labelled(axes, "expected count", "standardised residual", legend=True)


def _quantiles(axes: Axes, values: npt.NDArray[Any], freedom: float | None) -> Axes:
    """Quantiles of residuals against those of their distribution, evenly spaced as those of normal ones are."""
    n = len(values)
    ends = ndtri(0.5 / n)
    at = np.unique(np.rint(n * ndtr(np.linspace(ends, -ends, POINTS)) - 0.5).astype(int).clip(0, n - 1))
    expected = ndtri((at + 0.5) / n) if freedom is None else stdtrit(freedom, (at + 0.5) / n)
    axes.plot(expected, np.sort(values)[at], linestyle="", marker="o", markersize=3)
    axes.axline((0.0, 0.0), slope=1.0, color="0.3", linewidth=1)
    name = "of the normal distribution" if freedom is None else f"of Student's, {freedom:.3g} degrees of freedom"
    return labelled(axes, f"quantile {name}", "standardised residual")


def weights(model: Any, X: Any, *, most: int = 40, ax: Axes | None = None) -> Axes:
    """Draw the weights that a robust likelihood gives entries, or rows, the rows with the lowest on top.

    Parameters
    ----------
    model : fitted PPCA or FactorAnalysis
        With `likelihood="student"` or "student_rows".
    X : array_like of shape (N, D)
        Rows, in memory.
    most : int, default 40
        How many rows are drawn, those with the lowest weights, or the lowest mean weights.
    ax : Axes, optional
        Axes to draw on; new ones by default.

    Returns
    -------
    Axes
        An image of rows and features, white where an entry is missing, or a bar for each row, with labels of the rows
        where they have some.

    Raises
    ------
    TypeError
        Where the likelihood gives none.
    """
    result = model.residuals(X)
    if "weight" not in result:
        raise TypeError(
            f"likelihood={result.attrs['likelihood']!r} gives all entries the same weight; fit with "
            "likelihood='student' or 'student_rows'"
        )
    weight = result["weight"]
    rows = str(weight.dims[0])
    names = weight[rows].values if rows in weight.coords else getattr(X, "index", np.arange(weight.sizes[rows]))
    values = weight.values.reshape(weight.sizes[rows], -1)
    order = np.argsort(np.nanmean(values, axis=1), kind="stable")[:most]
    axes = axes_or_new(ax)
    if result.attrs["likelihood"] == "student":
        image = axes.imshow(values[order], cmap="viridis", vmin=0.0, aspect="auto", interpolation="nearest")
        axes.figure.colorbar(image, ax=axes, label="weight")
        labelled(axes, str(weight.dims[-1]), rows)
    else:
        axes.barh(np.arange(len(order)), values[order, 0])
        axes.axvline(1.0, color="0.3", linestyle="--", linewidth=1)
        axes.invert_yaxis()
        labelled(axes, "weight", rows)
    axes.set_yticks(
        np.arange(len(order)), [str(printable(name)) for name in np.asarray(names)[order]], fontsize="small"
    )
    return axes
