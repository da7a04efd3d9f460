"""Dimension names and coordinates that a store carries beside its matrix."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.storage import FsspecStore, LocalStore

from dlatent.arrays import AxisLabels, Origin
from dlatent.errors import StoreError
from dlatent.stores.chunked import ZarrArray, read_all
from dlatent.stores.schema import dimension
from dlatent.stores.strict import StrictStore, unwrapped

ORIGINAL = "original_position"
"""Vector (N,) in `uns` that says at which position each row lay before `reorder`."""

BEFORE, ROWS_BEFORE = "position_before", "rows"
"""Vector (N,) in `uns` of the position of each row in the file, of which `ingest` dropped rows, and its attribute with
the number of rows there."""

MOST_LABELS = 5_000_000
"""Coordinates of a longer axis are not read, as they would fill the driver's memory."""

DIMENSIONS = "_ARRAY_DIMENSIONS"
"""Attribute with the names of dimensions in Zarr v2 (the convention of xarray); Zarr v3 has `dimension_names`."""


def ancestors(node: ZarrArray | zarr.Group) -> Iterator[zarr.Group]:
    """The groups above a node, nearest first: inside its store, and further up while the place above is a group."""
    store, inside = node.store, PurePosixPath(node.path)
    while str(inside) not in (".", "/"):
        inside = inside.parent
        group = _group(store, "" if str(inside) == "." else str(inside))
        if group is None:
            return
        yield group
    above: Any = store
    while (above := _store_above(above)) is not None and (group := _group(above, "")) is not None:
        yield group


def array_labels(array: ZarrArray, dims: tuple[str, str] | None) -> AxisLabels:
    """Names and coordinates of a Zarr array: siblings with the name of a dimension, or the index of AnnData."""
    found = _dimension_names(array)
    names = dims or found or AxisLabels().dims
    return _labels(names, found or names, list(ancestors(array)), [], array.shape)


def csr_labels(group: zarr.Group, shape: tuple[int, int], dims: tuple[str, str] | None) -> AxisLabels:
    """Names and coordinates of a sparse matrix: arrays in or beside its group, or the index of AnnData."""
    named = group.attrs.get(DIMENSIONS)
    found = (str(named[0]), str(named[1])) if isinstance(named, list) and len(named) == 2 else None
    names = dims or found or AxisLabels().dims
    return _labels(names, found or names, list(ancestors(group)), [group], shape)


def _labels(
    names: tuple[str, str], stored: tuple[str, str], above: list[zarr.Group], inside: list[zarr.Group], shape: Any
) -> AxisLabels:
    """What the nearest AnnData root says, or the arrays beside or inside the matrix with the `stored` names."""
    root = next((group for group in above if group.attrs.get("encoding-type") == "anndata"), None)
    if root is None:
        own = [_coordinate([*inside, *above[:1]], name) for name in stored]
        return AxisLabels((dimension(names[0]), dimension(names[1])), *_fitting(own, shape))
    index = [_frame_index(root.get(name)) for name in ("obs", "var")]
    return AxisLabels(names, *_fitting(index, shape), origin=_origin(root, shape[0]))


def read_text(array: ZarrArray) -> npt.NDArray[Any]:
    """A one-dimensional array, strings as fixed-width text."""
    values = read_all(array)
    return np.array(values.tolist(), dtype=str) if values.dtype.kind in "OT" else values


def _dimension_names(array: ZarrArray) -> tuple[str, str] | None:
    names = getattr(array.metadata, "dimension_names", None) or array.attrs.get(DIMENSIONS)
    if isinstance(names, (list, tuple)) and len(names) == 2 and all(isinstance(name, str) for name in names):
        return str(names[0]), str(names[1])
    return None


def _coordinate(groups: list[zarr.Group], name: str) -> ZarrArray | None:
    for group in groups:
        member = group.get(name)
        if isinstance(member, zarr.Array) and member.ndim == 1:
            return member
    return None


def _origin(root: zarr.Group, samples: int) -> Origin | None:
    """Where the rows of an AnnData store lay before."""
    uns = root.get("uns")
    if not isinstance(uns, zarr.Group):
        return None
    for name in (BEFORE, ORIGINAL):
        stored = uns.get(name)
        if isinstance(stored, zarr.Array) and stored.shape == (samples,) and stored.dtype.kind in "iu":
            rows = stored.attrs.get(ROWS_BEFORE, samples)
            return Origin(rows if isinstance(rows, int) else samples, partial(_positions, stored))
    return None


def _positions(stored: ZarrArray) -> npt.NDArray[np.int64]:
    return read_all(stored).astype(np.int64)


def _frame_index(frame: Any) -> ZarrArray | None:
    if not isinstance(frame, zarr.Group):
        return None
    return _coordinate([frame], str(frame.attrs.get("_index", "_index")))


def _fitting(
    arrays: list[ZarrArray | None], shape: tuple[Any, ...]
) -> tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None]:
    first, second = (
        read_text(array) if array is not None and array.shape == (length,) and length <= MOST_LABELS else None
        for array, length in zip(arrays, shape, strict=True)
    )
    return first, second


def _group(store: Any, path: str) -> zarr.Group | None:
    """The group at a path of a store, or None where there is none or it cannot be seen."""
    try:
        return zarr.open_group(store, path=path, mode="r", use_consolidated=False)
    except StoreError:
        raise
    except Exception:
        return None


def _store_above(store: Any) -> Any:
    """The store one directory up, or None for stores that are no directories."""
    below = unwrapped(store)
    if isinstance(below, LocalStore):
        root = below.root.resolve()
        return StrictStore(LocalStore(root.parent, read_only=True)) if root.parent != root else None
    if isinstance(below, FsspecStore):
        head = below.path.rstrip("/").rpartition("/")[0]
        return StrictStore(FsspecStore(below.fs, read_only=True, path=head)) if head.strip("/") else None
    return None
