"""Types of the input of users, and the names of the features of a fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import xarray as xr

from dlatent.arrays import DataSource, Graph
from dlatent.fitted.features import Labels, names_in
from dlatent.stores.location import Place

if TYPE_CHECKING:
    from dlatent.engine.lazy import Lazy
    from dlatent.stores.nodes import Node


class Frame(Protocol):
    """A data frame, as pandas and polars have it, or Dask with `to_dask_array`."""

    @property
    def columns(self) -> Iterable[Any]:
        """Names of the columns."""

    def to_numpy(self) -> npt.NDArray[Any]:
        """The values."""


class Annotated(Protocol):
    """A matrix with annotated rows and columns, as anndata has it."""

    @property
    def X(self) -> Any:
        """The matrix."""

    @property
    def obs_names(self) -> Iterable[Any]:
        """Names of the rows."""

    @property
    def var_names(self) -> Iterable[Any]:
        """Names of the columns."""


class Network(Protocol):
    """A graph as networkx has it."""

    def is_directed(self) -> bool:
        """Whether edges have a direction."""

    @property
    def nodes(self) -> Iterable[Any]:
        """Names of the nodes."""


PathLike: TypeAlias = Place
"""A path, an fsspec URL, or an open store of Zarr."""
Matrix: TypeAlias = "npt.NDArray[Any] | sp.sparray | sp.spmatrix | Lazy | Frame"
"""A matrix that lies in memory, or a Dask array."""
Data: TypeAlias = "Matrix | Annotated | xr.DataArray | xr.Dataset | Node | DataSource | PathLike"
"""Samples × features."""
Views: TypeAlias = "Mapping[str, Data] | list[Data] | tuple[Data, ...]"
"""Data sets by name, or in order."""
TargetsLike: TypeAlias = "npt.ArrayLike | Matrix | xr.DataArray | Sequence[Any] | None"
"""Labels or numbers of each sample."""
Mask: TypeAlias = "npt.ArrayLike | xr.DataArray | None"
"""A value for each sample."""
SampleWeight: TypeAlias = "npt.ArrayLike | xr.DataArray | None"
"""A number of at least 0 for each sample."""
SampleDims: TypeAlias = "str | Sequence[str] | None"
"""The dimension that the samples lie along, or several."""
CellWeights: TypeAlias = "xr.DataArray | Literal['coslat'] | None"
"""Weights of the features of xarray data."""
Pairing: TypeAlias = "npt.ArrayLike | xr.DataArray | Frame | Literal['rows'] | None"
"""Rows that correspond, a column for each view."""
Names: TypeAlias = "str | Mapping[str, npt.ArrayLike] | None"
"""The name of labels of samples, or the labels of each view."""
GraphLike: TypeAlias = "Matrix | Network | Node | Graph | PathLike | Sequence[Any] | None"
"""Edges between samples."""
Seed: TypeAlias = "int | np.random.Generator | None"
"""A seed, a generator, or None for another draw at every call."""
ScoresLike: TypeAlias = "npt.ArrayLike | xr.DataArray"
"""Samples × components."""
Rows: TypeAlias = "npt.NDArray[Any] | xr.DataArray | Lazy"
"""Rows of results in the kind of the data: NumPy, xarray, or a Dask array that is not computed yet."""


def feature_names(model: object, labels: Labels) -> npt.NDArray[np.object_]:
    """The names that a model was fitted with. Errors: AttributeError where there were none."""
    return view_feature_names(model, {"": labels})[""]


def view_feature_names(model: object, labels: Mapping[str, Labels]) -> dict[str, npt.NDArray[np.object_]]:
    """Return the feature names of each view that had names. Errors: AttributeError where none had."""
    each = {view: names_in(each_labels) for view, each_labels in labels.items()}
    named = {view: names for view, names in each.items() if names is not None}
    if not named:
        raise AttributeError(f"this {type(model).__name__} was fitted to features without names")
    return named
