"""Saved results: a Zarr v3 store with named variables and JSON attributes; no pickle, versioned, whole or absent.

Laws (tested in tests/stores/test_stores_results.py): what `load` returns equals what `save` was given, to the last bit;
`xarray.open_zarr(path)` opens the same store.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import zarr

from dlatent.errors import StoreError, cause
from dlatent.stores.atomic import MARKER, RESULT, check_marker, left_by, new_store, sign
from dlatent.stores.checked import place_of
from dlatent.stores.chunked import ALL_WRITTEN, ZarrArray, box, write_array
from dlatent.stores.labels import read_text
from dlatent.stores.location import Place, zarr_location
from dlatent.stores.nodes import open_node
from dlatent.stores.schema import Variable, check

JSON: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"
"""A value that JSON can hold; NaN and infinities are allowed and travel by name."""

MODEL_VERSION = 1
"""Layout version of the results that this library writes."""

CHUNK_BYTES = 16 * 2**20
"""Chunks of a variable are rows of about this many bytes."""

SMALL = 2**30
"""Bytes of variables that are always read."""

MOST_RATIO = 1000
"""How many times what is stored the variables of a larger result may take in memory."""

TEXT_BYTES = 64
"""Bytes that are counted for a text, whose length the metadata do not tell."""

_SPECIAL = "__float__"
_DTYPE = "numpy_dtype"


@dataclass(frozen=True)
class StoredResult:
    """A result of a store: what kind of model, and its JSON attributes and named variables."""

    kind: str
    attributes: Mapping[str, Any]
    variables: Mapping[str, Variable]


def save(
    path: Place,
    *,
    kind: str,
    attributes: Mapping[str, JSON],
    variables: Mapping[str, Variable],
    overwrite: bool = False,
    checkpoint: str | None = None,
) -> None:
    """Write a result as one store, whole or not at all; with `overwrite`, an old one stays until the new one is whole.
    So does one of the same fit, by the identity of its checkpoint.

    Parameters: `kind`, the name of the model; `attributes`, JSON values (numpy scalars allowed); `variables`, arrays
    registered in `stores.schema`, objects that are text included.
    Errors: StoreError where the path is taken, a variable is unknown or has other dimensions than registered, or an
    attribute is no JSON value.
    """
    place = zarr_location(path)
    texts = {name: Variable(v.dims, _plain_text(name, v.values), v.attrs) for name, v in variables.items()}
    check(texts, place)
    described: dict[str, Any] = {"kind": kind, "attributes": _encode(dict(attributes), "attributes")}
    described["digest"] = _digest(described, texts)
    overwrite = overwrite or (checkpoint is not None and left_by(path, checkpoint))
    root = {RESULT: described, **ALL_WRITTEN}
    with new_store(path, kind=RESULT, version=MODEL_VERSION, overwrite=overwrite, attributes=root) as group:
        sign(group, checkpoint)
        for name, variable in texts.items():
            _write(group, name, variable)


def load(path: Place, *, max_bytes: int | None = None, room: int | None = None) -> StoredResult:
    """Read a result back.

    Parameters: `max_bytes`, most bytes that its variables may take in memory (None: 1 GiB, or a thousand times what is
    stored, and no more than `room`).
    Errors: StoreError where the path is no result, half written, changed since it was saved, larger than it may be, or
    of a newer version.
    """
    group = open_node(path)
    place = place_of(group)
    if not isinstance(group, zarr.Group) or MARKER not in group.attrs:
        raise StoreError(f"{place} is no saved result of dlatent: its root has no attribute {MARKER!r}")
    check_marker(group.attrs[MARKER], place, supported=MODEL_VERSION, kind=RESULT)
    described = group.attrs.get(RESULT)
    if not isinstance(described, dict) or not {"kind", "attributes"} <= set(described):
        raise StoreError(f"{place}: the attribute {RESULT!r} is missing or damaged; save the result again")
    try:
        arrays = dict(sorted(group.arrays()))
        _check_size(arrays, place, max_bytes, room)
        # Broadcast from one number: shapes are checked before anything is allocated for them.
        check({name: _described(array) for name, array in arrays.items()}, place)
        variables, attributes = {name: _read(array) for name, array in arrays.items()}, _decode(described["attributes"])
        # Without a digest it was written by another program, and is checked as far as values can be.
        if "digest" in described and described["digest"] != _digest(described, variables):
            raise StoreError(f"{place} has been changed since it was saved (its digest differs); save the result again")
    except (StoreError, MemoryError):
        raise
    except Exception as error:
        raise StoreError(f"{place} is damaged: {error}; save the result again") from cause(error)
    return StoredResult(str(described["kind"]), attributes, variables)


def _check_size(arrays: Mapping[str, ZarrArray], place: str, max_bytes: int | None, room: int | None) -> None:
    """Refuse, by their metadata, variables whose chunks would take more memory than they may."""
    sizes = {name: _decoded_bytes(array) for name, array in arrays.items()}
    total, stored = sum(sizes.values()), None
    if total <= (SMALL if max_bytes is None else max_bytes):
        return
    if max_bytes is None:
        stored = sum(array.nbytes_stored() for array in arrays.values())
        if total <= min(MOST_RATIO * stored, total if room is None else room):
            return
    largest = max(sizes, key=lambda name: sizes[name])
    of = "" if stored is None else f", of {stored:,} bytes that are stored"
    raise StoreError(
        f"{place} would take {total:,} bytes of memory{of}; the largest variable is {largest!r} with "
        f"{sizes[largest]:,}; if you trust it and have the memory, load it with max_bytes={total} "
        f"(--max-model-size {total})"
    )


def _decoded_bytes(array: ZarrArray) -> int:
    """Bytes of all chunks of an array once they are decoded, of which the last may be larger than the array."""
    padded = (-(-n // width) * width for n, width in zip(array.shape, array.shards or array.chunks, strict=True))
    return math.prod(padded) * (array.dtype.itemsize if array.dtype.kind not in "OTU" else TEXT_BYTES)


def _described(array: ZarrArray) -> Variable:
    """A variable from its metadata, with one number in the place of all values."""
    kept = array.attrs.get(_DTYPE)
    dtype = np.dtype(str(kept)) if kept is not None else array.dtype if array.dtype.kind not in "OT" else np.dtype("U1")
    return Variable(_dims(array), np.broadcast_to(np.zeros((), dtype), array.shape))


def _dims(array: ZarrArray) -> tuple[str, ...]:
    names = getattr(array.metadata, "dimension_names", None)
    if names is None or not all(isinstance(name, str) for name in names):
        raise StoreError(f"{place_of(array)} has no dimension names; it was not written by dlatent, or is damaged")
    return tuple(names)


def _digest(described: Mapping[str, Any], variables: Mapping[str, Variable]) -> str:
    """A digest of all that a result holds: its kind, its attributes as they lie in the store, and its variables."""
    digest = hashlib.blake2b(digest_size=16)
    attributes = {name: _encode(dict(variable.attrs), name) for name, variable in variables.items()}
    kept = [described["kind"], described["attributes"], attributes]
    digest.update(json.dumps(kept, sort_keys=True).encode())
    for name, variable in sorted(variables.items()):
        values = variable.values
        text, dtype = values.dtype.kind == "U", values.dtype.newbyteorder("<")
        digest.update(json.dumps([name, variable.dims, values.shape, "U" if text else dtype.str]).encode())
        digest.update(json.dumps(values.tolist()).encode() if text else values.astype(dtype, copy=False).tobytes())
    return digest.hexdigest()


def _write(group: zarr.Group, name: str, variable: Variable) -> None:
    values, attrs = variable.values, _encode(dict(variable.attrs), name)
    if values.dtype.kind in "mM":
        attrs[_DTYPE] = values.dtype.str
        values = values.view(np.int64)
    chunks = box(values.shape, CHUNK_BYTES // max(values.itemsize, 1))
    write_array(group, name, values, chunks, dims=variable.dims, attributes=attrs)


def _read(array: ZarrArray) -> Variable:
    values, attrs = read_text(array), _decode(dict(array.attrs))
    if (dtype := attrs.pop(_DTYPE, None)) is not None:
        values = values.view(dtype)
    return Variable(_dims(array), values, attrs)


def _plain_text(name: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Object and variable-length strings as fixed-width text; other values as they are."""
    array = np.asarray(values)
    if array.dtype.kind not in "OT":
        return array
    if not all(isinstance(value, str) for value in array.ravel().tolist()):
        raise StoreError(f"the variable {name!r} holds Python objects that are no text; give numbers or text")
    return np.array(array.tolist(), dtype=str).reshape(array.shape)


def _encode(value: Any, place: str) -> Any:
    """The value as strict JSON; floats that JSON does not know go by name."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {_SPECIAL: repr(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_encode(item, f"{place}[{number}]") for number, item in enumerate(value)]
    if isinstance(value, Mapping):
        bad = next((key for key in value if not isinstance(key, str) or key == _SPECIAL), None)
        if bad is not None:
            raise StoreError(f"{place}: the key {bad!r} cannot be stored; use text other than {_SPECIAL!r}")
        return {key: _encode(item, f"{place}.{key}") for key, item in value.items()}
    raise StoreError(
        f"{place} is of type {type(value).__qualname__} and no JSON value; pass arrays as variables, and other values "
        "as numbers, text, lists or dictionaries"
    )


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {_SPECIAL}:
            return float(value[_SPECIAL])
        return {key: _decode(item) for key, item in value.items()}
    return [_decode(item) for item in value] if isinstance(value, list) else value
