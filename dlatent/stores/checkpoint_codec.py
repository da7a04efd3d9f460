"""Values of a fit as bytes: arrays in an `.npz` archive, which has checksums, and all else as JSON; no pickle.

Law (tested in tests/stores/test_stores_checkpoint_codec.py): what `decode` returns is what `encode` was given, to the
last bit.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from dlatent.containers import check_parts
from dlatent.errors import StoreError

TREE = "tree"
"""The member of an archive that is the JSON text."""
PACKAGE = "dlatent."
"""Only classes of this package are made again."""

Keep = Callable[[np.ndarray], Any]
"""Function that keeps an array; the result stands for it in the JSON text."""


def encode(value: Any) -> bytes:
    """None, numbers, texts, arrays, CSR matrices, and tuples, dictionaries, named tuples and dataclasses of them.

    Errors: TypeError for anything else.
    """
    arrays = list[np.ndarray]()

    def keep(array: np.ndarray) -> int:
        arrays.append(array)
        return len(arrays) - 1

    tree = json.dumps(_tree(value, keep))
    archive = io.BytesIO()
    members = {str(number): array for number, array in enumerate(arrays)}
    np.savez(archive, allow_pickle=False, **{TREE: np.frombuffer(tree.encode(), np.uint8)}, **members)
    return archive.getvalue()


def decode(content: bytes, place: str) -> Any:
    """The value.  Errors: StoreError that names the place, where the bytes are damaged or not those of `encode`."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return _value(json.loads(archive[TREE].tobytes()), archive)
    except MemoryError:
        raise
    except Exception as error:
        raise StoreError(f"{place} is damaged ({error})") from error


def fingerprint(value: Any) -> str:
    """A digest of a value, which may have functions and objects of any class beside what `encode` takes."""
    tree = _tree(value, _digest, anything=True)
    return hashlib.blake2b(json.dumps(tree).encode(), digest_size=16).hexdigest()


def _digest(array: np.ndarray) -> list[Any]:
    content = np.ascontiguousarray(array)
    return [
        array.dtype.str,
        list(array.shape),
        hashlib.blake2b(content.data.cast("B") if content.size else b"").hexdigest(),
    ]


def _tree(value: Any, keep: Keep, *, anything: bool = False) -> Any:
    again = partial(_tree, keep=keep, anything=anything)
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        return {"scalar": keep(np.asarray(value))}
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError("an array of objects")
        return {"array": keep(value)}
    if isinstance(value, sp.csr_array):
        return {"csr": [list(value.shape), *map(again, (value.data, value.indices, value.indptr))]}
    if type(value) in (tuple, list):
        return {type(value).__name__: [again(item) for item in value]}
    if type(value) is dict:
        return {"dict": [[again(key), again(item)] for key, item in value.items()]}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"object": [_name(type(value)), [again(item) for item in value]]}
    if is_dataclass(value) and not isinstance(value, type):
        return {"object": [_name(type(value)), [again(getattr(value, field.name)) for field in fields(value)]]}
    if not anything:
        raise TypeError(f"a value of {type(value)}")
    if isinstance(value, partial):
        return {"partial": [again(value.func), again(value.args), again(value.keywords)]}
    if hasattr(value, "__qualname__"):
        return {"name": _name(value)}
    return {"object": [_name(type(value)), again(getattr(value, "__dict__", str(value)))]}


def _name(thing: Any) -> str:
    return f"{thing.__module__}:{thing.__qualname__}"


def _value(tree: Any, archive: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "scalar":
        return archive[str(content)][()]
    if kind == "array":
        return archive[str(content)]
    if kind in ("tuple", "list"):
        items = [_value(item, archive) for item in content]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {_value(key, archive): _value(item, archive) for key, item in content}
    if kind == "csr":
        shape, *parts = content
        matrix = sp.csr_array(tuple(_value(part, archive) for part in parts), shape=tuple(shape), copy=False)
        check_parts(matrix, "a matrix in it")
        return matrix
    if kind == "object":
        name, members = content
        return _class(name)(*(_value(member, archive) for member in members))
    raise ValueError(f"an unknown kind {kind!r}")


def _class(name: str) -> Any:
    """A named tuple or dataclass of this package: nothing else is called, whatever the bytes say."""
    module, _, path = name.partition(":")
    if not module.startswith(PACKAGE):
        raise ValueError(f"the class {name} is none of this package")
    kind: Any = getattr(importlib.import_module(module), path)
    if isinstance(kind, type) and (is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))):
        return kind
    raise ValueError(f"{name} is no named tuple or dataclass")
