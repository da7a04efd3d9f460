"""Which rows of several views are the same sample: from pairs, from a table, or from labels that the views share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.sparse.csgraph import connected_components

from dlatent.arrays import DataSource
from dlatent.containers import plain_numbers, refuse_mask
from dlatent.errors import DataError
from dlatent.models.aligned import plain_rows
from dlatent.models.docstrings import described
from dlatent.models.inputs import Names, Pairing, Views
from dlatent.models.labelled import as_frame, is_frame, open_input
from dlatent.stores.joint import Table
from dlatent.stores.label_files import read_labels
from dlatent.stores.location import is_place
from dlatent.stores.places import is_multimodal


def named(views: Any) -> dict[str, Any]:
    """Views by name: a mapping as it is, the modalities of a MuData, a sequence under the names "0", "1", …"""
    if is_multimodal(views):
        views = views.mod
    if isinstance(views, Mapping):
        if not views or not all(isinstance(name, str) for name in views):
            raise DataError("views are given as a mapping from names to data; every name must be a text")
        return {name: as_frame(data) for name, data in views.items()}
    if isinstance(views, (list, tuple)):
        return {str(number): as_frame(data) for number, data in enumerate(views)}
    raise DataError(
        f"views are of type {type(views).__name__}; give a mapping from names to data, or a list of data, one for each "
        "view"
    )


def joined_rows(
    views: Views, correspondence: Pairing, on: Names, data: Mapping[str, Any], sources: Mapping[str, DataSource]
) -> Table:
    """The table of all samples: rows of each view (samples, views), −1 where a sample lacks the view.

    The correspondence is the one that is given, or that the views bring along.  First come the samples that it lists,
    in its order, then the other rows of each view in order.
    Errors: DataError naming view and row for rows that are none, or that are listed twice; for no correspondence, and
    for views that share no sample with the others.
    """
    if isinstance(views, JointViews) and correspondence is None and on is None:
        correspondence = views.correspondence
    if is_multimodal(views) and correspondence is None and on is None:
        correspondence = by_observations(views)
    if (correspondence is None) == (on is None):
        raise DataError(
            "give either correspondence=… (pairs of rows, a table with a column for each view, or 'rows' where row i "
            "of each view is of sample i) or on=… (the name of the labels that the views share)"
        )
    names, lengths = list(sources), [source.shape[0] for source in sources.values()]
    if on is None:
        _check_places(sources)
    if isinstance(correspondence, str):
        correspondence = _row_by_row(correspondence, names, lengths)
    listed = _by_labels(on, data, sources) if on is not None else _as_table(correspondence, names)
    _check_table(listed, names, lengths)
    rest = []
    for view, length in enumerate(lengths):
        known = np.zeros(length, dtype=bool)
        known[listed[listed[:, view] >= 0, view]] = True
        unmatched = np.flatnonzero(~known)
        lines = np.full((len(unmatched), len(names)), -1, dtype=np.int64)
        lines[:, view] = unmatched
        rest.append(lines)
    table = np.vstack([listed, *rest])
    _check_connected(table, names)
    return table


def by_observations(mdata: Any) -> Table:
    """The rows of each modality of a MuData for each of its observations, in their order; −1 where it lacks one.

    Errors: DataError for names of observations that are not unique.
    """
    columns = []
    for name, modality in mdata.mod.items():
        if not modality.obs_names.is_unique:
            raise DataError(
                f"names of observations are not unique in the modality {name!r}; make them so, with "
                f"mdata.mod[{name!r}].obs_names_make_unique() and mdata.update()"
            )
        columns.append(modality.obs_names.get_indexer(mdata.obs_names))
    return np.column_stack(columns)


def _check_places(sources: Mapping[str, DataSource]) -> None:
    """Refuse numbers of rows where the rows of a view no longer lie as they came, so that there are two for each."""
    for name, source in sources.items():
        if (origin := source.labels.origin) is not None:
            how = "dropped when its store was ingested" if origin.rows > source.shape[0] else "moved by reorder"
            raise DataError(
                f"rows of view {name!r} were {how}, so that it is not clear which rows the numbers of a correspondence "
                "name; use on='index', the names of rows in the stores (where they have no others, the numbers they "
                "had in the file), or on={name: labels, …}"
            )


def _row_by_row(word: str, names: list[str], lengths: list[int]) -> Table:
    """Row i of each view is of sample i."""
    if word != "rows":
        raise DataError(f"correspondence is {word!r}; the only word that it takes is 'rows'")
    if len(set(lengths)) > 1:
        said = ", ".join(f"{name!r} has {rows}" for name, rows in zip(names, lengths, strict=True))
        raise DataError(f"correspondence='rows' takes views of as many rows each; {said}")
    return np.repeat(np.arange(lengths[0])[:, None], len(names), axis=1)


def _as_table(correspondence: Any, names: list[str]) -> Table:
    """A table of integers with a column for each view, from an array, a data frame or a DataArray."""
    values = correspondence
    if hasattr(values, "columns") and hasattr(values, "to_numpy"):
        lacking = [name for name in names if name not in values.columns]
        if lacking:
            raise DataError(
                f"the correspondence has columns {list(values.columns)}; a column {lacking[0]!r} is missing"
            )
        values = values[names].to_numpy()
    elif isinstance(values, xr.DataArray):
        columns = values.dims[-1]
        if columns in values.coords and set(names) <= set(values[columns].values.tolist()):
            values = values.sel({columns: names})
        values = values.values if values.chunks is None else values.data
    table: npt.NDArray[Any] = plain_numbers(values, "the correspondence")
    if table.ndim != 2 or table.shape[1] != len(names):
        raise DataError(
            f"the correspondence has shape {table.shape}; expected (samples, {len(names)}), for each of the views "
            f"{', '.join(names)} a row number, or −1 where a sample lacks the view"
        )
    if table.dtype.kind == "f":
        table = np.where(np.isnan(table), -1, table)
    if table.dtype.kind not in "iuf" or (table != np.floor(table)).any():
        raise DataError(f"the correspondence has dtype {table.dtype}; expected whole numbers of rows, counted from 0")
    return table.astype(np.int64)


def _check_table(table: Table, names: list[str], lengths: list[int]) -> None:
    for view, (name, length) in enumerate(zip(names, lengths, strict=True)):
        column = table[:, view]
        outside = np.flatnonzero((column < -1) | (column >= length))
        if len(outside):
            line = int(outside[0])
            raise DataError(
                f"line {line} of the correspondence names row {column[line]} of view {name!r}, which has {length} rows"
            )
        twice = np.flatnonzero(np.bincount(column[column >= 0]) > 1)
        if len(twice):
            row = int(twice[0])
            lines = np.flatnonzero(column == row)[:2].tolist()
            raise DataError(
                f"view {name!r}, row {row} is in two correspondences (lines {lines[0]} and {lines[1]}): a row is one "
                "sample, list it once with all its counterparts"
            )
    if (table < 0).all(axis=1).any():
        line = int(np.flatnonzero((table < 0).all(axis=1))[0])
        raise DataError(f"line {line} of the correspondence names no row of any view")


def _check_connected(table: Table, names: list[str]) -> None:
    """Views that share no samples, not even by way of other views, have no common coordinates."""
    has = (table >= 0).astype(np.int64)
    parts, part = connected_components(has.T @ has)
    if parts > 1:
        unmatched = names[int(np.flatnonzero(part != part[0])[0])]
        raise DataError(
            f"view {unmatched!r} shares no sample with {names[0]!r}, not even by way of other views: without a "
            "correspondence there are no common coordinates; list some, or fit the view by itself"
        )


def _by_labels(on: Any, data: Mapping[str, Any], sources: Mapping[str, DataSource]) -> Table:
    """The samples whose labels occur in more than one view, in the order of the first view that has them."""
    names = list(sources)
    places: dict[Any, list[int]] = {}
    for view, name in enumerate(names):
        labels = refuse_mask(labels_of(on, name, data[name], sources[name]), f"on[{name!r}]")
        if labels.ndim != 1:
            raise DataError(f"the labels of view {name!r} have shape {labels.shape}; expected one for each row")
        if len(labels) != sources[name].shape[0]:
            raise DataError(f"view {name!r} has {sources[name].shape[0]} rows, but {len(labels)} labels")
        for row, label in enumerate(labels.tolist()):
            if label is None or label == "" or label != label:
                continue
            rows_of_label = places.setdefault(label, [-1] * len(names))
            if rows_of_label[view] >= 0:
                raise DataError(
                    f"view {name!r} has the label {label!r} in rows {rows_of_label[view]} and {row}; labels that join "
                    "views must be unique in each"
                )
            rows_of_label[view] = row
    shared = [rows for rows in places.values() if sum(row >= 0 for row in rows) > 1]
    if not shared:
        raise DataError(f"no label occurs in two of the views {', '.join(map(repr, names))}; check their labels")
    return np.array(shared, dtype=np.int64)


def labels_of(on: Any, name: str, data: Any, source: DataSource) -> Any:
    """The labels of a view's rows: given as an array, or by the name of a coordinate, an index or a column."""
    if isinstance(on, Mapping):
        if name not in on:
            raise DataError(f"on has labels for {', '.join(map(repr, on))}; those of view {name!r} are missing")
        return plain_rows(on[name], source.labels, "labels")
    if not isinstance(on, str):
        raise DataError(f"on is {on!r}; give the name of the labels, or a mapping from views to arrays of labels")
    if isinstance(data, (xr.DataArray, xr.Dataset)):
        if on in data.coords and data.coords[on].ndim == 1:
            return data.coords[on].values
        raise DataError(f"view {name!r} has no coordinate {on!r}; it has {', '.join(map(str, data.coords)) or 'none'}")
    if is_frame(data):
        if hasattr(data, "index") and data.index.name == on:
            return data.index
        if on in data.columns:
            return data[on]
    if source.labels.samples is not None and on in (source.labels.dims[0], "index"):
        return source.labels.samples
    if is_place(data):
        return read_labels(data, on)
    raise DataError(
        f"view {name!r} is a {source.description} without labels {on!r}; give on={{{name!r}: labels, …}}, or "
        "correspondence=…"
    )


def without_labels(data: Any, on: Any) -> Any:
    """The data of a view without the column of labels, where a data frame has it among the features."""
    if isinstance(on, str) and is_frame(data) and on in data.columns:
        return data.drop(columns=on) if hasattr(data, "iloc") else data.drop(on)
    return data


@described
class JointViews(Mapping[str, Any]):
    """Several views and which of their rows are the same sample, for what takes samples out of data: `joint[rows]`.

    A mapping from names to data, for all methods that take views; they need no `correspondence` with it.  Targets `y`
    are those of its samples: the lines of the correspondence, then the other rows of each view.  The searches of
    scikit-learn cut it as they cut an array.

    Parameters
    ----------
    views : mapping, list or xarray.Dataset
        The data of each view, as in `CorrespondencePPCA.fit`.  Data that are cut lie in memory, or are Dask arrays.

    Attributes
    ----------
    correspondence : ndarray of int of shape (n_samples, n_views)
        Rows of each view of all samples, −1 where a sample lacks the view.
    shape : tuple of int
        The numbers of samples and of views.

    Raises
    ------
    DataError
        As in `CorrespondencePPCA.fit`.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import JointViews
    >>> joint = JointViews({"a": np.eye(3), "b": np.ones((2, 4))}, correspondence=[[0, 1]])
    >>> joint.correspondence.tolist()
    [[0, 1], [1, -1], [2, -1], [-1, 0]]
    >>> joint[[0, 3]].correspondence.tolist()
    [[0, 0], [-1, 1]]
    """

    def __init__(self, views: Views, *, correspondence: Pairing = None, on: Names = None) -> None:
        data = named(views)
        self._data = {name: without_labels(view, on) for name, view in data.items()}
        sources = {name: open_input(view) for name, view in self._data.items()}
        self.correspondence: Table = joined_rows(views, correspondence, on, data, sources)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of samples and of views."""
        return len(self.correspondence), len(self._data)

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, rows: Any) -> Any:
        """The data of a view by its name; or of the samples with these numbers, in this order, the views that they
        have, where `rows` is what indexes an array (N,), alone or before an ellipsis."""
        if isinstance(rows, str):
            return self._data[rows]
        rows = rows[0] if isinstance(rows, tuple) else rows
        table = np.atleast_2d(self.correspondence[rows])
        has, data = table >= 0, dict[str, Any]()
        for view, (name, values) in enumerate(self._data.items()):
            has_view = has[:, view]
            if has_view.any():
                data[name] = _rows_of(values, table[has_view, view], name)
                table[has_view, view] = np.arange(has_view.sum())
        joint = object.__new__(JointViews)
        joint._data, joint.correspondence = data, table[:, has.any(axis=0)]
        return joint

    def __repr__(self) -> str:
        return f"JointViews of {len(self.correspondence):,} samples in the views {', '.join(map(repr, self._data))}"


def _rows_of(values: Any, rows: Table, name: str) -> Any:
    """Some rows of the data of a view."""
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    if not hasattr(values, "shape") or not hasattr(values, "__getitem__"):
        raise DataError(f"view {name!r} is of type {type(values).__name__}, of which no rows are cut; give an array")
    return values[rows]
