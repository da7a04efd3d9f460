"""Numbers that stand for others, or for nothing, as netCDF's conventions (CF) have them: sentinels, packed values.

xarray decodes them; what is read without it would take −9999 for a measurement.  Law (tested in
tests/stores/test_stores_encoded.py): a store gives the numbers that xarray gives of it, or is refused.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.errors import DataError
from dlatent.stores.chunked import ZarrArray
from dlatent.stores.labels import DIMENSIONS
from dlatent.stores.strict import place_of

FILL = "_FillValue"


def require_decoded(array: ZarrArray) -> None:
    """Refuse a Zarr array whose numbers are not those that xarray gives of it. Errors: DataError."""
    place = place_of(array)
    above, _, name = place.rpartition("/")
    way_out = (
        f"xarray decodes them, sentinels to NaN: ds = xarray.open_zarr({above!r}), then pass ds[{name!r}], or write "
        "ds.drop_encoding() to a store of its own"
    )
    check_decoded(cf_attributes(array), array.dtype, place, way_out)


def check_decoded(attributes: Mapping[Any, Any], dtype: npt.DTypeLike, place: str, way_out: str) -> None:
    """Refuse what has attributes by which its numbers, of that type, stand for others. Errors: DataError."""
    kind = np.dtype(dtype).kind
    given = {name: [_plain(value) for value in np.ravel(attributes[name])] for name in _ENCODES if name in attributes}
    found = [f"{name}={values[0]}" for name, values in given.items() if any(_ENCODES[name](v, kind) for v in values)]
    if found:
        raise DataError(f"{place} holds encoded values ({', '.join(found)}); {way_out}")


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
