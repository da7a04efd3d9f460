"""Views that are cut along their joint samples, as one table is along its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dlatent.errors import DataError
from dlatent.models.correspondence_table import joined_rows, named, without_labels
from dlatent.models.docstrings import described
from dlatent.models.inputs import Names, Pairing, Views
from dlatent.models.map_rows import open_input
from dlatent.stores.joint_rows import Table


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
        self._data = {name: without_labels(own, on) for name, own in data.items()}
        sources = {name: open_input(own)[0] for name, own in self._data.items()}
        self.correspondence: Table = joined_rows(correspondence, on, data, sources)

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
            own = has[:, view]
            if own.any():
                data[name] = _rows_of(values, table[own, view], name)
                table[own, view] = np.arange(own.sum())
        made = object.__new__(JointViews)
        made._data, made.correspondence = data, table[:, has.any(axis=0)]
        return made

    def __repr__(self) -> str:
        return f"JointViews of {len(self.correspondence):,} samples in the views {', '.join(map(repr, self._data))}"


def _rows_of(values: Any, rows: Table, name: str) -> Any:
    """Some rows of the data of a view."""
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    if not hasattr(values, "shape") or not hasattr(values, "__getitem__"):
        raise DataError(f"view {name!r} is of type {type(values).__name__}, of which no rows are cut; give an array")
    return values[rows]


def pairing(views: Views, correspondence: Pairing, on: Names) -> Pairing:
    """The correspondence that was given, or the one that the views bring along."""
    return (
        views.correspondence
        if isinstance(views, JointViews) and correspondence is None and on is None
        else correspondence
    )
