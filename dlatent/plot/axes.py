"""Common parts of all pictures: the axes to draw on, and the Dataset of a fitted model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.errors import DlatentError
from dlatent.stores.places import is_annotated, is_multimodal

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class PlotError(DlatentError, ImportError):
    """matplotlib is not installed, or cartopy for a map with coastlines."""


def axes_or_new(ax: Axes | None) -> Axes:
    """The axes given, or those of a new figure.

    Errors: PlotError where matplotlib is not installed.
    """
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise PlotError("pictures need matplotlib; install it with: pip install matplotlib") from error
    return pyplot.subplots(layout="constrained")[1]


def map_axes(ax: Axes | None) -> Any:
    """The axes given, or those of a new figure with longitude and latitude as they are, which can draw coastlines.

    Errors: PlotError where cartopy is not installed; ValueError for axes without a projection.
    """
    if ax is not None and not hasattr(ax, "coastlines"):
        raise ValueError("coastlines need axes with a projection, as plt.axes(projection=cartopy.crs.Robinson())")
    try:
        from cartopy import crs
    except ImportError as error:
        raise PlotError("coastlines need cartopy; install it with: pip install cartopy") from error
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.figure(layout="constrained").add_subplot(projection=crs.PlateCarree())


def labelled(axes: Axes, across: str, upwards: str, *, whole_numbers: bool = False, legend: bool = False) -> Axes:
    """The axes with their labels, ticks across at whole numbers only, and a legend, where asked."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel(across)
    axes.set_ylabel(upwards)
    if whole_numbers:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if legend:
        axes.legend(frameon=False)
    return axes


def probability(name: str, value: float) -> float:
    """A probability. Errors: ValueError for anything else."""
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} is {value}; expected a probability, above 0 and below 1")
    return value


def refuse_annotated(values: Any, instead: str) -> None:
    """Refuse an AnnData or a MuData where an array is expected, before NumPy looks into it, for ever.

    Errors: TypeError.
    """
    if is_annotated(values) or is_multimodal(values):
        raise TypeError(f"expected an array; got {type(values).__name__}: pass {instead}")


def dataset_of(result: Any) -> xr.Dataset:
    """The Dataset of a fitted model: of its attribute `result_`, or as given.

    Errors: TypeError for anything else.
    """
    dataset = result if isinstance(result, xr.Dataset) else getattr(result, "result_", None)
    if not isinstance(dataset, xr.Dataset):
        raise TypeError(f"expected a fitted model or its result_ (an xarray Dataset); got {type(result).__name__}")
    return dataset


def variable(result: Any, name: str) -> xr.DataArray:
    """A variable of a fitted model or of its Dataset.

    Errors: TypeError where the Dataset has none of this name.
    """
    dataset = dataset_of(result)
    if name not in dataset:
        raise TypeError(f"the Dataset has no variable {name!r}, so it is no result_ of a fitted model")
    return dataset[name]


def comparable_loadings(result: Any) -> tuple[xr.DataArray, str]:
    """Loadings of features that compare with each other, and what to say of their units: of a fit in units of the
    spreads they are in these, too, or the feature with the largest numbers would hide all others."""
    dataset, loadings = dataset_of(result), variable(result, "loadings")
    if "feature_scale" not in dataset:
        return loadings, ""
    return loadings / dataset["feature_scale"], ", in spreads of the features"


def feature_dims(loadings: xr.DataArray) -> list[str]:
    """The dimensions of loadings that are not the component's: one, or those of a grid."""
    return [str(dim) for dim in loadings.dims if dim != "component"]


def component_variances(result: Any) -> npt.NDArray[np.float64]:
    """Σ_d W_dk² of each component; of weighted features where the fit had weights."""
    components = getattr(result, "components_", None)
    if isinstance(components, np.ndarray):
        return np.asarray((components**2).sum(axis=1))
    loadings = variable(result, "loadings")
    return np.asarray((loadings**2).sum(feature_dims(loadings)).values)
