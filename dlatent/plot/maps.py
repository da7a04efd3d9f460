"""Pictures of what the latent variables mean: where samples lie, and which features make a component."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.containers import printable, without_mask
from dlatent.plot.axes import axes_or_new, feature_dims, labelled, map_axes, probability, variable

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
    ellipses: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw samples by two of their latent variables.

    Parameters
    ----------
    result : array_like of shape (N, K) or Dataset
        Scores as `transform` returns them, or what `posterior` returns.
    labels : array_like of shape (N,), optional
        One per sample, None or NaN for none.
    components : tuple of int, default (0, 1)
        The two to draw, by position.
    most_labels : int, default 10
        How many labels get a colour, the most frequent first.
    ellipses : float, optional
        The probability of an ellipse around each sample, such as 0.5; for what `posterior` returns.
    ax : Axes, optional
        Axes to draw on; new ones by default.

    Returns
    -------
    Axes
        A point for each sample.

    Raises
    ------
    ValueError
        Where `labels` has another length, there is no such component, or `ellipses` is no probability.
    TypeError
        For ellipses of scores alone.
    """
    values, names = _values(result)
    if not all(-values.shape[1] <= number < values.shape[1] for number in components):
        raise ValueError(f"components are {components}, but the scores have {values.shape[1]}")
    x, y = (values[:, number] for number in components)
    axes = axes_or_new(ax)
    if ellipses is not None:
        _around(axes, values[:, list(components)], _covariances(result, len(x), list(components)), ellipses)
    size = float(np.clip(2e4 / max(len(x), 1), 4, 36))
    if labels is None:
        axes.scatter(x, y, s=size, linewidths=0)
    else:
        _coloured(axes, x, y, _checked(labels, len(x)), most_labels, size)
    return labelled(axes, *(f"component {names[number]}" for number in components))


def loadings(result: Any, component: int = 0, *, top: int = 15, ax: Axes | None = None) -> Axes:
    """Draw the features with the largest loadings of one component.

    Parameters
    ----------
    result : fitted model or Dataset
        A model, or its `result_`.
    component : int, default 0
        The component to draw, by position.
    top : int, default 15
        How many features.
    ax : Axes, optional
        Axes to draw on; new ones by default.

    Returns
    -------
    Axes
        The largest loading on top.

    Raises
    ------
    ValueError
        Where there is no such component.
    """
    values = variable(result, "loadings")
    column, names = _column(values, component)
    order = np.argsort(-np.abs(column), kind="stable")[:top]
    axes = axes_or_new(ax)
    colours = np.where(column[order] < 0, "tab:red", "tab:blue").tolist()
    axes.barh(np.arange(len(order)), column[order], color=colours)
    axes.set_yticks(np.arange(len(order)), [str(name) for name in names[order]])
    axes.invert_yaxis()
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.set_xlabel(f"loading of component {component}")
    return axes


def loadings_map(
    result: Any,
    component: int = 0,
    *,
    shape: tuple[int, int] | None = None,
    coastlines: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw the loadings of one component where the features lie: a map of a field, or an image.

    Parameters
    ----------
    result : fitted model or Dataset
        A model, or its `result_`.  Where it was fitted to an array with two dimensions beside that of the samples, they
        are the axes, with their coordinates and units.
    component : int, default 0
        The component to draw, by position.
    shape : tuple of int, optional
        Rows and columns of an image, row by row, where the features are one dimension.
    coastlines : bool, default False
        Draw coastlines, where the features lie over longitude and latitude in degrees.  That needs cartopy, which
        fetches them from the network the first time.
    ax : Axes, optional
        Axes to draw on; new ones by default.  They may have a projection of cartopy.

    Returns
    -------
    Axes
        Loadings as colours, white for 0; cells that are no features are grey.

    Raises
    ------
    ValueError
        Where the features are not over two dimensions, there is no such component, or coastlines are asked for on
        axes without a projection.
    """
    values = variable(result, "loadings")
    _check_component(values, component)
    one = values.isel(component=component)
    if shape is not None:
        if one.size != shape[0] * shape[1]:
            raise ValueError(f"the model has {one.size} features, which make no image of {shape[0]} × {shape[1]}")
        one = xr.DataArray(one.values.reshape(shape), dims=("row", "column"), attrs=one.attrs)
    if one.ndim != 2:
        raise ValueError(
            f"the features have the dimensions {feature_dims(values)}; a map has two: give the shape of an image, or "
            "fit an array with two dimensions beside that of the samples"
        )
    axes: Axes = map_axes(ax) if coastlines else axes_or_new(ax)
    axes.set_facecolor("0.85")
    most = float(np.abs(one).max())
    units = f" ({one.attrs['units']})" if "units" in one.attrs else ""
    colours: dict[str, Any] = {"vmin": -most, "vmax": most, "cmap": "RdBu_r"}
    geographic: Any = axes
    if hasattr(axes, "coastlines"):
        from cartopy import crs

        colours["transform"] = crs.PlateCarree()
        one = one.T if str(one.dims[0]).lower().startswith("lon") else one
    one.plot.pcolormesh(ax=axes, cbar_kwargs={"label": f"loading{units}"}, **colours)
    if coastlines:
        geographic.coastlines(linewidth=0.6, color="0.3")
    if shape is not None:
        axes.invert_yaxis()
        axes.set_aspect("equal")
    axes.set_title(f"component {component}")
    return axes


def biplot(
    model: Any,
    result: Any,
    *,
    labels: Any = None,
    components: tuple[int, int] = (0, 1),
    top: int = 8,
    ax: Axes | None = None,
) -> Axes:
    """Draw samples and features together: scores as points, and loadings as arrows from the middle.

    An arrow points to samples in which its feature is large; features with arrows in one direction go together.

    Parameters
    ----------
    model : fitted model or Dataset
        A model, or its `result_`.
    result : array_like of shape (N, K) or Dataset
        Scores, or what `posterior` returns.
    labels : array_like of shape (N,), optional
        Labels of the samples, as for `scores`.
    components : tuple of int, default (0, 1)
        The two to draw, by position.
    top : int, default 8
        How many features are drawn at most, those with the longest arrows; of features whose arrows end near each other
        the longest stands for all.
    ax : Axes, optional
        Axes to draw on; new ones by default.

    Returns
    -------
    Axes
        Scores, and on top the arrows, of which the longest reaches as far as the farthest samples; their lengths
        compare with each other.
    """
    values = variable(model, "loadings")
    axes = scores(result, labels=labels, components=components, ax=ax)
    columns, names = zip(*(_column(values, component) for component in components), strict=True)
    arrows = np.column_stack(columns)
    reach = float(np.linalg.norm(_values(result)[0][:, list(components)], axis=1).max())
    arrows *= reach / float(np.linalg.norm(arrows, axis=1).max())
    drawn = _apart(arrows, 0.15 * reach, top)
    for number in drawn:
        tip = tuple(arrows[number])
        axes.annotate("", xy=tip, xytext=(0, 0), arrowprops={"arrowstyle": "->", "color": "0.2"})
        side = "left" if tip[0] >= 0 else "right"
        offset = (3 if tip[0] >= 0 else -3, 0)
        axes.annotate(
            str(names[0][number]), tip, offset, textcoords="offset points", ha=side, va="center", fontsize="small"
        )
    axes.update_datalim(arrows[drawn] * [1.5, 1.2])
    axes.autoscale_view()
    return axes


def _apart(arrows: npt.NDArray[Any], distance: float, most: int) -> list[int]:
    """The longest arrows that end at a distance from each other."""
    shown: list[int] = []
    for number in np.argsort(-np.linalg.norm(arrows, axis=1), kind="stable").tolist():
        if len(shown) < most and all(np.linalg.norm(arrows[number] - arrows[other]) > distance for other in shown):
            shown.append(number)
    return shown


def _check_component(values: xr.DataArray, component: int) -> None:
    if not 0 <= component < values.sizes["component"]:
        raise ValueError(f"component is {component}; the model has {values.sizes['component']}, counted from 0")


def _column(array: xr.DataArray, component: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The loadings of one component, and the names of the features; a cell of a grid is named by its coordinates."""
    _check_component(array, component)
    column, dims = array.isel(component=component, drop=True), feature_dims(array)
    if len(dims) == 1:
        (features,) = dims
        if features not in array.coords:
            return column.values, np.arange(column.size)
        return column.values, np.array(printable(array.coords[features].values), dtype=object)
    labels = [printable(array[dim].values) for dim in dims]
    names = [" ".join(map(str, cell)) for cell in product(*labels)]
    good = ~np.isnan(column.values.ravel())
    return column.values.ravel()[good], np.array(names, dtype=object)[good]


def _covariances(result: Any, rows: int, components: list[int]) -> npt.NDArray[Any]:
    """The posterior covariance of two latent variables, (N, 2, 2)."""
    if not isinstance(result, xr.Dataset) or "covariance" not in result:
        raise TypeError("ellipses are drawn from covariances, which posterior() gives; scores alone have none")
    covariances = result["covariance"].values
    if "pattern_of" in result:
        covariances = covariances[result["pattern_of"].values]
    return np.broadcast_to(covariances, (rows, *covariances.shape[-2:]))[:, components][:, :, components]


def _around(axes: Axes, middle: npt.NDArray[Any], covariances: npt.NDArray[Any], level: float) -> None:
    """An ellipse around each point that holds the probability."""
    from matplotlib.collections import EllipseCollection

    lengths, directions = np.linalg.eigh(covariances)
    # Of two dimensions a part 1 − exp(−r²/2) lies within r standard deviations.
    widths = 2 * np.sqrt(-2 * np.log1p(-probability("ellipses", level)) * lengths)
    angles = np.degrees(np.arctan2(directions[:, 1, 0], directions[:, 0, 0]))
    drawn = EllipseCollection(
        widths[:, 0], widths[:, 1], angles, units="xy", offsets=middle, offset_transform=axes.transData,
        facecolors="none", edgecolors="0.6", linewidths=0.5, zorder=0.5,
    )  # fmt: skip
    axes.add_collection(drawn)


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
    plain = without_mask(labels) if isinstance(labels, np.ma.MaskedArray) else labels
    values = np.asarray(plain, dtype=object)
    if values.shape != (rows,):
        raise ValueError(f"labels have shape {values.shape}; there are {rows} samples, so give one for each")
    return [None if value is None or value != value else value for value in values.tolist()]


def _coloured(axes: Axes, x: Any, y: Any, labels: list[Any], most: int, size: float) -> None:
    """One colour for each frequent label over the grey of the others."""
    from matplotlib import colormaps

    counts = Counter(label for label in labels if label is not None)
    frequent = sorted(counts, key=lambda label: (-counts[label], str(label)))[:most]
    with suppress(TypeError):  # labels of several kinds, which have no order
        frequent.sort()
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
