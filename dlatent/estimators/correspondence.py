"""Which rows of several data sets are the same instance: index pairs, a table, or labels that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.errors import DataError

Table = npt.NDArray[np.int64]
"""The row of each instance in each view (instances, views), −1 where it is absent."""


def named_views(views: Any) -> dict[str, Any]:
    """Views by name, as given or numbered: "view_0", "view_1", …"""
    if isinstance(views, Mapping):
        return {str(name): data for name, data in views.items()}
    if isinstance(views, (list, tuple)):
        return {f"view_{number}": data for number, data in enumerate(views)}
    raise DataError(f"the views are a {type(views).__name__}; give a mapping of names to data, or a list of data sets")


def instance_table(
    names: Sequence[str],
    rows: Sequence[int],
    labels: Sequence[npt.NDArray[Any] | None],
    correspondence: Any = None,
    on: str | None = None,
) -> Table:
    """All instances of several views, those in correspondence once.

    Parameters: names, numbers of rows and labels of the rows (or None) of the views; `correspondence`, integers (m,
    views), pairs for two views, with −1 where an instance is absent: rows that it does not name are instances of their
    own, after those that it names; or `on="label"`: rows with equal labels are the same instance.
    Returns: the table (instances, views).
    Errors: DataError naming the view and row for rows that do not exist or are named twice, for labels that are missing
    or not unique, and where neither or both ways are given.
    """
    if (correspondence is None) == (on is None):
        raise DataError(
            "give the correspondence either as correspondence=…, integers (instances, views) with -1 where absent, or "
            "by shared labels with on='label'"
        )
    if on is not None:
        return _by_labels(names, rows, labels, on)
    table = np.asarray(correspondence)
    if table.ndim != 2 or table.shape[1] != len(names) or (table.dtype.kind not in "iu" and table.size):
        raise DataError(
            f"the correspondence has shape {table.shape} and dtype {table.dtype}; expected integers with a column for "
            f"each of the {len(names)} views"
        )
    table = table.astype(np.int64)
    for view, (name, count) in enumerate(zip(names, rows, strict=True)):
        _check_column(table[:, view], name, count)
    empty = np.flatnonzero((table < 0).all(axis=1))
    if len(empty):
        raise DataError(f"row {int(empty[0])} of the correspondence names no row of any view; leave it out")
    return np.concatenate([table, *(_alone(table, view, count) for view, count in enumerate(rows))])


def _check_column(column: Table, name: str, count: int) -> None:
    outside = np.flatnonzero((column < -1) | (column >= count))
    if len(outside):
        at = int(outside[0])
        raise DataError(
            f"row {at} of the correspondence names row {int(column[at])} of view {name!r}, which has {count} rows; "
            "rows count from 0, and -1 is absent"
        )
    named, counts = np.unique(column[column >= 0], return_counts=True)
    twice = named[counts > 1]
    if len(twice):
        places = np.flatnonzero(column == twice[0])[:2].tolist()
        raise DataError(
            f"row {int(twice[0])} of view {name!r} is named twice by the correspondence, in rows {places[0]} and "
            f"{places[1]}; a row is one instance"
        )


def _alone(table: Table, view: int, count: int) -> Table:
    """An instance for each row of a view that is in no correspondence."""
    rest = np.setdiff1d(np.arange(count), table[:, view])
    found = np.full((len(rest), table.shape[1]), -1, dtype=np.int64)
    found[:, view] = rest
    return found


def _by_labels(names: Sequence[str], rows: Sequence[int], labels: Sequence[npt.NDArray[Any] | None], on: str) -> Table:
    if on != "label":
        raise DataError(f"on is {on!r}; expected 'label', the labels of the rows")
    known: dict[Any, int] = {}
    columns = []
    for name, count, own in zip(names, rows, labels, strict=True):
        if own is None:
            raise DataError(f"view {name!r} has no labels of its rows; give correspondence=… instead of on='label'")
        values = own.tolist()
        if len(set(values)) < count:
            repeated = next(value for at, value in enumerate(values) if value in values[:at])
            raise DataError(f"the label {repeated!r} stands for several rows of view {name!r}; make labels unique")
        columns.append([known.setdefault(value, len(known)) for value in values])
    table = np.full((len(known), len(names)), -1, dtype=np.int64)
    for view, column in enumerate(columns):
        table[column, view] = np.arange(len(column))
    return table


def places_of(table: Table, rows: Sequence[int]) -> list[npt.NDArray[np.int64]]:
    """The instance of each row of each view."""
    places = []
    for view, count in enumerate(rows):
        place = np.empty(count, dtype=np.int64)
        present = np.flatnonzero(table[:, view] >= 0)
        place[table[present, view]] = present
        places.append(place)
    return places
