"""Pictures of what the latent variables mean: where samples lie, and which features make a component."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.plot.axes import axes_or_new, dataset_of, variable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OTHERS = "0.8"
"""Grey of samples without a label, or with one that has no colour of its own."""


def scores(
    result: Any,
    *,
    labels: Any = None,
    components: tuple[int, int] = (0, 1),
    most_labels: int = 10,
    ax: Axes | None = None,
) -> Axes:
    """Draw samples by two of their latent variables.

    Parameters: `result`, scores (N, K) as `transform` returns them, or the Dataset of `posterior`; `labels` (N,), one
    per sample, None or NaN for none; `components`, the two to draw, by position; `most_labels`, how many labels get
    a colour, the most frequent first; `ax`, axes to draw on (None: new ones).
    Returns: the axes.
    Errors: ValueError where `labels` has another length, or there is no such component.
    """
    values, names = _values(result)
    if not all(-values.shape[1] <= number < values.shape[1] for number in components):
        raise ValueError(f"components are {components}, but the scores have {values.shape[1]}")
    x, y = (values[:, number] for number in components)
    axes = axes_or_new(ax)
    size = float(np.clip(2e4 / max(len(x), 1), 4, 36))
    if labels is None:
        axes.scatter(x, y, s=size, linewidths=0)
    else:
        _coloured(axes, x, y, _checked(labels, len(x)), most_labels, size)
    axes.set_xlabel(f"component {names[components[0]]}")
    axes.set_ylabel(f"component {names[components[1]]}")
    return axes


def loadings(result: Any, component: int, *, top: int = 15, ax: Axes | None = None) -> Axes:
    """Draw the features with the largest loadings of one component.

    Parameters: `result`, a fitted model or its `result_`; `component`, by position; `top`, how many features; `ax`,
    axes to draw on (None: new ones).
    Returns: the axes, the largest loading on top.
    Errors: ValueError where there is no such component.
    """
    found = variable(dataset_of(result), "loadings")
    (features,) = (dim for dim in found.dims if dim != "component")
    if not 0 <= component < found.sizes["component"]:
        raise ValueError(f"component is {component}; the model has {found.sizes['component']}, counted from 0")
    column = found.isel(component=component).values
    names = found.coords[features].values if features in found.coords else np.arange(len(column))
    order = np.argsort(-np.abs(column), kind="stable")[:top]
    axes = axes_or_new(ax)
    colours = np.where(column[order] < 0, "tab:red", "tab:blue").tolist()
    axes.barh(np.arange(len(order)), column[order], color=colours)
    axes.set_yticks(np.arange(len(order)), [str(name) for name in names[order]])
    axes.invert_yaxis()
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.set_xlabel(f"loading of component {component}")
    return axes


def _values(result: Any) -> tuple[npt.NDArray[Any], Sequence[Any]]:
    """The scores, and the names of the components."""
    if isinstance(result, xr.Dataset):
        result = variable(result, "scores")
    values = np.asarray(result)
    if values.ndim != 2:
        raise ValueError(f"the scores have shape {values.shape}; expected samples × components")
    if isinstance(result, xr.DataArray) and result.dims[1] in result.coords:
        return values, result.coords[result.dims[1]].values.tolist()
    return values, range(values.shape[1])


def _checked(labels: Any, rows: int) -> list[Any]:
    """The labels, with None for NaN."""
    found = np.asarray(labels, dtype=object)
    if found.shape != (rows,):
        raise ValueError(f"labels have shape {found.shape}; there are {rows} samples, so give one for each")
    return [None if value is None or value != value else value for value in found.tolist()]


def _coloured(axes: Axes, x: Any, y: Any, labels: list[Any], most: int, size: float) -> None:
    """One colour for each frequent label over the grey of the others."""
    from matplotlib import colormaps

    present = [label for label in labels if label is not None]
    counts = {label: present.count(label) for label in dict.fromkeys(present)}
    frequent = sorted(counts, key=lambda label: (-counts[label], str(label)))[:most]
    place = {label: number for number, label in enumerate(frequent)}
    of = np.array([place.get(label, -1) for label in labels])
    if (of < 0).any():
        axes.scatter(x[of < 0], y[of < 0], s=size / 2, color=OTHERS, linewidths=0, label="others", zorder=1)
    palette = colormaps["tab10" if len(frequent) <= 10 else "tab20"]
    for label, number in place.items():
        rows = of == number
        colour = palette(number % palette.N)
        axes.scatter(x[rows], y[rows], s=size, color=colour, linewidths=0, alpha=0.8, label=str(label), zorder=2)
    axes.legend(markerscale=float(np.sqrt(30 / size)), frameon=False, fontsize="small")
