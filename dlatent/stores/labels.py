"""Labels of a matrix in a store: names and coordinates of dimensions, and numbers that stand for others.

Numbers stand for others, or for nothing, as netCDF's conventions (CF) have them: sentinels, packed values.  xarray
decodes them; what is read without it would take −9999 for a measurement.  Law (tested in
tests/stores/test_stores_encoded.py): a store gives the numbers that xarray gives of it, or is refused.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.storage import FsspecStore, LocalStore

from dlatent.arrays import AxisLabels, Origin
from dlatent.errors import DataError, StoreError
from dlatent.stores.checked import CheckedStore, place_of, unwrapped
from dlatent.stores.chunked import ZarrArray, read_all
from dlatent.stores.schema import dimension

ORIGINAL = "original_position"
"""Vector (N,) in `uns` that says at which position each row lay before `reorder`."""

BEFORE, ROWS_BEFORE = "position_before", "rows"
"""Vector (N,) in `uns` of the position of each row in the file, of which `ingest` dropped rows, and its attribute with
the number of rows there."""

MOST_LABELS = 5_000_000
"""Coordinates of a longer axis are not read, as they would fill the driver's memory."""

DIMENSIONS = "_ARRAY_DIMENSIONS"
"""Attribute with the names of dimensions in Zarr v2 (the convention of xarray); Zarr v3 has `dimension_names`."""


FILL = "_FillValue"


def ancestors(node: ZarrArray | zarr.Group) -> Iterator[zarr.Group]:
    """The groups above a node, nearest first: inside its store, and further up while the place above is a group."""
    for store, path in _places_above(node):
        if (group := _group(store, path, node.metadata.zarr_format)) is None:
            return
        yield group


def _places_above(node: ZarrArray | zarr.Group) -> Iterator[tuple[Any, str]]:
    store: Any = node.store
    yield from ((store, str(above).removeprefix(".")) for above in PurePosixPath(node.path).parents)
    while (store := _store_above(store)) is not None:
        yield store, ""


def labels_of(matrix: ZarrArray | zarr.Group, shape: Any, dims: tuple[str, str] | None) -> AxisLabels:
    """Names and coordinates of a Zarr array or sparse matrix: arrays with the name of a dimension inside or beside it,
    or the index of the nearest AnnData above."""
    above, stored = ancestors(matrix), _dimension_names(matrix)
    nearest = list(islice(above, 1))
    names = dims or stored or AxisLabels().dims
    root = next((group for group in chain(nearest, above) if group.attrs.get("encoding-type") == "anndata"), None)
    if root is None:
        groups = [*([matrix] if isinstance(matrix, zarr.Group) else []), *nearest]
        coordinates = [_coordinate(groups, name) for name in stored or names]
        return AxisLabels((dimension(names[0]), dimension(names[1])), *_fitting(coordinates, shape))
    index = [_frame_index(root.get(name)) for name in ("obs", "var")]
    return AxisLabels(names, *_fitting(index, shape), origin=_origin(root, shape[0]))


def read_text(array: ZarrArray) -> npt.NDArray[Any]:
    """A one-dimensional array, strings as fixed-width text."""
    values = read_all(array)
    return np.array(values.tolist(), dtype=str) if values.dtype.kind in "OT" else values


def _dimension_names(matrix: ZarrArray | zarr.Group) -> tuple[str, str] | None:
    names: Any = getattr(matrix.metadata, "dimension_names", None) or matrix.attrs.get(DIMENSIONS)
    if isinstance(names, (list, tuple)) and len(names) == 2 and all(isinstance(name, str) for name in names):
        return names[0], names[1]
    return None


def _coordinate(groups: list[zarr.Group], name: str) -> ZarrArray | None:
    members = (group.get(name) for group in groups)
    return next((member for member in members if isinstance(member, zarr.Array) and member.ndim == 1), None)


def _origin(root: zarr.Group, samples: int) -> Origin | None:
    """Where the rows of an AnnData store lay before."""
    group = root.get("uns")
    for name in (BEFORE, ORIGINAL):
        stored = group.get(name) if isinstance(group, zarr.Group) else None
        if isinstance(stored, zarr.Array) and stored.shape == (samples,) and stored.dtype.kind in "iu":
            rows = stored.attrs.get(ROWS_BEFORE, samples)
            return Origin(rows if isinstance(rows, int) else samples, partial(read_all, stored))
    return None


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


def _group(store: Any, path: str, version: Any) -> zarr.Group | None:
    """The group at a path of a store, of a format of Zarr, or None where there is none or it cannot be seen."""
    try:
        return zarr.open_group(store, path=path, mode="r", zarr_format=version, use_consolidated=False)
    except StoreError:
        raise
    except Exception:
        return None


def _store_above(store: Any) -> Any:
    """The store one directory up, or None for stores that are no directories."""
    below = unwrapped(store)
    if isinstance(below, LocalStore):
        root = below.root.resolve()
        return CheckedStore(LocalStore(root.parent, read_only=True)) if root.parent != root else None
    if isinstance(below, FsspecStore):
        head = below.path.rstrip("/").rpartition("/")[0]
        return CheckedStore(FsspecStore(below.fs, read_only=True, path=head)) if head.strip("/") else None
    return None


def require_decoded(array: ZarrArray) -> None:
    """Refuse a Zarr array whose numbers are not those that xarray gives of it. Errors: DataError."""
    place = place_of(array)
    above, _, name = place.rpartition("/")
    hint = (
        f"xarray decodes them, sentinels to NaN: ds = xarray.open_zarr({above!r}), then pass ds[{name!r}], or write "
        "ds.drop_encoding() to a store of its own"
    )
    check_decoded(cf_attributes(array), array.dtype, place, hint)


def check_decoded(attributes: Mapping[Any, Any], dtype: npt.DTypeLike, place: str, hint: str) -> None:
    """Refuse what has attributes by which its numbers, of that type, stand for others. Errors: DataError."""
    kind = np.dtype(dtype).kind
    encodings = list[str]()
    for name in filter(attributes.__contains__, _ENCODES):
        values = [_plain(value) for value in np.ravel(attributes[name])]
        if any(_ENCODES[name](value, kind) for value in values):
            encodings.append(f"{name}={values[0]}")
    if encodings:
        raise DataError(f"{place} holds encoded values ({', '.join(encodings)}); {hint}")


def cf_attributes(array: ZarrArray) -> dict[str, Any]:
    """The attributes of a Zarr array in the form that they have in Zarr v3.

    In Zarr v2 the fill value of numbers with named dimensions is their sentinel: xarray reads and writes it so.
    """
    attributes, fill = dict(array.attrs), array.fill_value
    numbers = array.dtype.kind in "biuf" and fill is not None and not np.isnan(fill)
    if array.metadata.zarr_format == 2 and DIMENSIONS in attributes and numbers:
        number = np.asarray(fill).item()
        attributes[FILL] = base64.b64encode(struct.pack("<d", number)).decode() if isinstance(number, float) else number
    return attributes


_ENCODES: dict[str, Callable[[Any, str], bool]] = {
    "scale_factor": lambda value, _: value != 1,
    "add_offset": lambda value, _: value != 0,
    FILL: lambda value, _: not _is_nan(value),
    "missing_value": lambda value, _: not _is_nan(value),
    "_Unsigned": lambda value, kind: kind == {"true": "i", "false": "u"}.get(str(value).lower()),
}
"""Attributes, and which values of them say that numbers (of a kind) stand for others."""


def _plain(value: Any) -> Any:
    """A value; of the text that xarray makes of a float for Zarr v3, the float."""
    if isinstance(value, str) and len(value) == 12 and value.endswith("="):
        try:
            return struct.unpack("<d", base64.b64decode(value, validate=True))[0]
        except (ValueError, struct.error):
            return value
    return value


def _is_nan(value: Any) -> bool:
    try:
        return bool(np.isnan(np.float64(value)))
    except (TypeError, ValueError):
        return False
