"""Pictures of what the latent variables mean: which features make a component."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.containers import printable
from dlatent.plot.axes import axes_or_new, comparable_loadings, dataset_of, feature_dims, map_axes, variable
from dlatent.plot.samples import score_values, scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def loadings(
    result: Any, component: int = 0, *, top: int = 15, view: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the features with the largest loadings of one component.

    Loadings of a fit with `scale="spread"` are divided by the spreads of the features.

    Parameters
    ----------
    result : fitted model or Dataset
        A model, or its `result_`.
    component : int, default 0
        The component to draw, by position.
    top : int, default 15
        How many features.
    view : str, optional
        The view whose features are drawn, of a model of several; by default all.
    ax : Axes, optional
        Axes to draw on; new ones by default.

    Returns
    -------
    Axes
        The largest loading on top.

    Raises
    ------
    ValueError
        Where there is no such component or view.
    """
    values, units = comparable_loadings(result)
    if view is not None:
        values = values[_of_view(dataset_of(result), view)]
    column, names = _column(values, component)
    order = np.argsort(-np.abs(column), kind="stable")[:top]
    axes = axes_or_new(ax)
    colours = np.where(column[order] < 0, "tab:red", "tab:blue").tolist()
    axes.barh(np.arange(len(order)), column[order], color=colours)
    axes.set_yticks(np.arange(len(order)), [str(name) for name in names[order]])
    axes.invert_yaxis()
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.set_xlabel(f"loading of component {component}{'' if view is None else f', {view}'}{units}")
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
    if one.ndim > 2:
        dim = str(one.dims[-1])
        label = repr(one[dim].values[:1].tolist()[0]) if dim in one.coords else "0"
        raise ValueError(
            f"the features have the dimensions {feature_dims(values)}; a map has two: select along the others, as in "
            f"loadings_map(model.result_.{'sel' if dim in one.coords else 'isel'}({dim}={label}))"
        )
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
    Loadings of a fit with `scale="spread"` are divided by the spreads of the features.

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
    values, _ = comparable_loadings(model)
    axes = scores(result, labels=labels, components=components, ax=ax)
    columns, names = zip(*(_column(values, component) for component in components), strict=True)
    arrows = np.column_stack(columns)
    reach = float(np.linalg.norm(score_values(result)[0][:, list(components)], axis=1).max())
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


def _of_view(dataset: xr.Dataset, view: str) -> npt.NDArray[np.bool_]:
    """Which features are those of a view."""
    views = dataset["feature_view"].values if "feature_view" in dataset else np.array([])
    if view not in views:
        known = ", ".join(map(repr, dict.fromkeys(views.tolist()))) or "none"
        raise ValueError(f"the model has no view {view!r}; it has {known}")
    return np.asarray(views == view)


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
