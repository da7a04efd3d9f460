"""The features that a fitted model asks of new data, and how they are named; what travels to the rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dlatent.arrays import AxisLabels, Features, Grid
from dlatent.containers import printable
from dlatent.errors import DataError, outside
from dlatent.gaussian.spread import require_genotypes
from dlatent.gaussian.views import first_bad_entry
from dlatent.observations import OBSERVATION_MODELS
from dlatent.observations.statistics import require_allowed

Labels = npt.NDArray[Any] | None
"""Labels of features (D,), or None where the data had none."""
SHOWN = 5


def names_in(labels: Labels) -> npt.NDArray[np.object_] | None:
    """Labels as names, or None where there are none: names are texts, as scikit-learn has it."""
    if labels is None or not len(labels):
        return None
    listed = np.asarray(labels).tolist()
    return np.array(listed, dtype=object) if all(isinstance(label, str) for label in listed) else None


@dataclass(frozen=True)
class KnownFeatures:
    """The features of a fitted model.

    Parameters
    ----------
    model : name of its class.
    width : number of features.
    labels : as the fitted data had them.
    view : name of the view whose features they are, where there are several.
    holes : whether NaN is a missing entry for the model.
    advice : what to do about NaN, beside filling it.
    dense : why sparse rows are refused, about `{data}`; nothing where they are not.
    grid : the dimensions over which the features lie, where the data of the fit were of xarray.
    place : where the model was loaded from, which results must not take; None of one that was fitted.
    layer : of an AnnData, which the model was fitted to; None for X.
    likelihood : the distribution of the entries, where it is not the normal one.
    beside : names and columns of what stood beside the entries; `covariates`, the names of these.
    genotypes : whether entries are numbers of copies of an allele, 0 to 2.
    """

    model: str
    width: int
    labels: Labels
    view: str | None = None
    holes: bool = False
    advice: str = ""
    dense: str = ""
    grid: Grid | None = None
    place: str | None = None
    layer: str | None = None
    likelihood: str | None = None
    beside: tuple[tuple[str, int], ...] = ()
    covariates: Labels = None
    genotypes: bool = False

    def check_kind(self, sparse: bool, data: str) -> None:
        """Refuse sparse rows of a model that takes none: what is not stored would be a zero. Errors: DataError."""
        if sparse and self.dense:
            raise DataError(self.dense.format(data=data))

    def check(self, shape: tuple[int, ...], labels: Labels) -> None:
        """Refuse data with other features, or with the same ones in another order, before any of them is read.

        Where either side has no names the order cannot be checked, which a warning says, as in scikit-learn.
        Errors: DataError.
        """
        place = "" if self.view is None else f"view {self.view!r}: "
        known, others = names_in(self.labels), names_in(labels)
        if known is not None and others is not None:
            _check_names(known, others, place)
        if shape[1] != self.width:
            raise DataError(
                f"{place}X has {shape[1]} features, but {self.model} is expecting {self.width} features as input; pass "
                "those of the fit, in the same order"
            )
        if known is None and others is None:
            require_order(self.labels, labels, f"{place}the labels of the features")
        elif known is None:
            text = f"{place}X has feature names, but {self.model} was fitted without feature names"
            warnings.warn(text, UserWarning, stacklevel=outside())
        elif others is None:
            text = f"{place}X does not have valid feature names, but {self.model} was fitted with feature names"
            warnings.warn(text, UserWarning, stacklevel=outside())

    def check_values(self, x: Features, start: int | None, chunk: int = 0) -> None:
        """Refuse NaN and infinity in rows that begin at row `start` of the data, or in `chunk` where nobody knows.

        Errors: DataError naming row and column; as `check_kind`.
        """
        self.check_kind(sp.issparse(x), f"chunk {chunk} of the data" if start is None else f"block at row {start}")
        x = x[:, : self.width] if self.beside else x
        bad = first_bad_entry(x, holes=self.holes)
        if bad is None:
            if self.genotypes:
                require_genotypes(x, start, chunk)
            if self.likelihood is not None:
                require_allowed(OBSERVATION_MODELS[self.likelihood], x, start, chunk)
            return
        place = "" if self.view is None else f"view {self.view!r}, "
        mend = f"fill or remove them{self.advice}"
        if self.holes:
            mend = "make them NaN if they are missing, or correct them"
        raise DataError(
            f"{place}{bad.place(start, chunk)}, column {bad.column} is {bad.value}, and "
            f"{bad.counted(start, x.shape[0])} {'infinite' if self.holes else 'NaN or infinite'}; {mend}",
            column=bad.column,
        )

    def without_labels(self) -> KnownFeatures:
        """Return a copy for `check_values`, which travels to where the rows are; the labels may be many."""
        return replace(self, labels=None, grid=None, place=None, covariates=None)


def require_order(known: Labels, others: Labels, what: str) -> None:
    """Refuse labels of which some stand in another place than in the model; others are left to their order.

    Labels that are 0, 1, … are what data without any have, so that they are compared with their like alone.
    Errors: DataError.
    """
    if known is None or others is None or len(known) != len(others):
        return
    # Dates as texts, of one unit, as a list of them would be of numbers.
    axes = (np.asarray(axis) for axis in (known, others))
    ours, theirs = (
        (axis.astype("datetime64[ns]").astype(str) if axis.dtype.kind == "M" else axis).tolist() for axis in axes
    )
    count, place = list(range(len(ours))), {label: at for at, label in enumerate(ours)}
    if ours == theirs or (count in (ours, theirs) and set(ours) != set(theirs)):
        return
    moved = (at for at, label in enumerate(theirs) if label in place and ours[at] != label)
    if (at := next(moved, None)) is not None:
        raise DataError(
            f"{what} are those of the model in another order (first at {at}: {theirs[at]!r}, the model has "
            f"{ours[at]!r}); pass them in the same order"
        )


def _check_names(known: npt.NDArray[np.object_], others: npt.NDArray[np.object_], place: str) -> None:
    """The names must be those of the fit, in their order; the text is scikit-learn's."""
    if np.array_equal(known, others):
        return
    unseen, missing = sorted(set(others) - set(known)), sorted(set(known) - set(others))
    text = f"{place}The feature names should match those that were passed during fit.\n"
    if unseen:
        text += "Feature names unseen at fit time:\n" + _listed(unseen)
    if missing:
        text += "Feature names seen at fit time, yet now missing:\n" + _listed(missing)
    if not unseen and not missing:
        text += "Feature names must be in the same order as they were in fit.\n"
    raise DataError(text)


def _listed(names: list[str]) -> str:
    return "".join(f"- {name}\n" for name in names[:SHOWN]) + ("- ...\n" if len(names) > SHOWN else "")


def display_names(labels: AxisLabels, features: int) -> Sequence[Any] | npt.NDArray[Any]:
    """Names of so many features: their labels, their coordinates in a grid, or their numbers."""
    if labels.features is not None:
        names = np.asarray(labels.features)
        return printable(names) if names.dtype.kind == "M" else names
    if labels.grid is None or (labels.grid.plain and not labels.grid.levels):
        return np.arange(features)
    return _spelled(labels.grid, features)


def _spelled(grid: Grid, features: int) -> list[str]:
    """A name for each feature, by its coordinates: "lat=50.5 lon=3"."""
    places = np.unravel_index(np.arange(features) if grid.kept is None else grid.kept, grid.shape)
    columns = []
    for dim, at in zip(grid.dims, places, strict=True):
        for name in grid.levels.get(dim, (dim,)):
            values = grid.coords[name].values[at] if name in grid.coords else at
            columns.append([f"{name}={value}" for value in printable(values)])
    return [" ".join(parts) for parts in zip(*columns, strict=True)]


@contextmanager
def cells_named(grids: Mapping[str | None, Grid | None]) -> Iterator[None]:
    """Name the cell of an entry that cannot be used by its coordinates, where features lie over several dimensions.

    The grids are those of views by name; None is the name where there is one view.
    """
    try:
        yield
    except DataError as error:
        grid = grids.get(error.view)
        if grid is None or grid.plain or error.column is None:
            raise
        place = error.column if grid.kept is None else grid.kept[error.column]
        (cell,) = _spelled(replace(grid, kept=np.array([place])), 1)
        said = f"column {error.column}"
        text = str(error).replace(said, f"cell {cell}, {said} of the features", 1)
        raise DataError(text, column=error.column, view=error.view) from None
