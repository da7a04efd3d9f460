"""Which places are one: what is written must lie apart from what is read.

Laws (tested in tests/stores/test_stores_places.py):
1. An output is no input, lies in none and has none in it, however its path or URL is written; nor does it lie in the
   store that an input is a part of.
2. What is replaced is a store that dlatent or Zarr has written, whole, and nothing else.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from dlatent.arrays import DataSource, Graph
from dlatent.errors import StoreError
from dlatent.stores.lazy import is_dask_array, is_zarr, read_by
from dlatent.stores.location import DOCUMENTS, STORE_MARKS, Place, filesystem_at, is_place, local_path, place_text
from dlatent.stores.temporary import put_back

MOST_WRAPPERS = 20
"""How many objects of xarray may stand between an array and the node of Zarr that it is read from."""

SPELLINGS = {"s3a": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs"}
"""Schemes that have another name, by which it goes here."""

_SECRET = re.compile(r"(?<=://)[^/@:]*:(?!\d+(?:/|$)).*@|(?<=://)\*\*\*@|\?.*")
_USER = re.compile(r"^[^/@]*@")
_ZARRS = re.compile(r"c(?:\.\d+)*|\d+(?:\.\d+)*|.*\.[0-9a-f]{32}\.partial")
"""Names of chunks, and of files that Zarr had not finished."""


def require_apart(output: Place, *inputs: Any) -> None:
    """Refuse an output that is an input, lies in one, or has one in it; `inputs` as those of `read_places`.

    Errors: StoreError.
    """
    output, asked = place_text(output), dict[Name, bool]()  # whether a store is there, of places above several inputs
    for place in read_places(*inputs):
        there = local_path(_last(place))
        lost = there is None or put_back(there)  # where nothing is, nothing can be lost
        if lost and (relation := _relation(output, place, asked)):
            raise StoreError(f"{output} {relation} {place}, which is read; choose another place to write to")


def require_separate(*outputs: Place | None) -> None:
    """Refuse outputs that are one place, or of which one lies in another; None is passed over.

    Errors: StoreError.
    """
    for one, other in combinations([place_text(output) for output in outputs if output is not None], 2):
        if relation := _relation(one, other):
            raise StoreError(f"{one} {relation} {other}, and both are written; give two places")


def read_places(*inputs: Any) -> tuple[str, ...]:
    """The paths and URLs, without credentials, that inputs are read from, as far as these can tell: paths themselves,
    sources and graphs, nodes of Zarr, what Dask and xarray read from Zarr, AnnData with a file, mappings of these."""
    places = (place for data in inputs for place in _places(data))
    return tuple("::".join(map(_public, place.split("::"))) for place in places)


def _public(url: str) -> str:
    """A URL without user and password, and without its query; a path as it is."""
    return _SECRET.sub("", url) if "://" in url else url


def _places(data: Any) -> Iterator[str]:
    if is_place(data):
        yield os.fspath(data) if isinstance(data, str | os.PathLike) else place_text(data)
    elif isinstance(data, (DataSource, Graph)):
        yield from data.places
    elif data is None or isinstance(data, np.ndarray):
        return
    elif is_zarr(data):
        from dlatent.stores.checked import place_of, unwrapped  # Zarr, which arrays do not need

        store: Any = unwrapped(data.store)
        if type(store).__name__ == "ZipStore":
            yield str(store.path)
        elif type(store).__name__ == "FsspecStore":
            yield place_of(data)
        else:
            yield "/".join(filter(None, (place_text(store), data.path)))
    elif isinstance(data, Mapping) and not hasattr(data, "data_vars"):
        yield from read_places(*data.values())
    elif hasattr(data, "encoding") and type(data).__module__.startswith("xarray"):
        variables = data.data_vars.values() if hasattr(data, "data_vars") else [data]
        sources = [data.encoding.get("source"), *(_behind(variable.variable._data) for variable in variables)]
        yield from read_places(*sources)
    elif is_annotated(data):
        yield from read_places(getattr(data, "filename", None))
    elif is_dask_array(data):
        for _, shared in read_by(data):
            inner = [argument for value in shared for argument in getattr(value, "args", ())]
            for value in map(_behind, (*shared, *inner)):
                if isinstance(value, os.PathLike) or is_zarr(value):
                    yield from _places(value)


def _behind(value: Any) -> Any:
    """The array in the wrappers of xarray and Dask."""
    for _ in range(MOST_WRAPPERS):
        if is_zarr(value) or hasattr(value, "__dask_graph__"):
            return value
        inner = next((getattr(value, name) for name in ("array", "_array", "value") if hasattr(value, name)), None)
        if inner is None or callable(inner):
            return value if isinstance(value, os.PathLike) else None
        value = inner
    return None


def is_annotated(data: Any) -> bool:
    """Whether the value behaves as an AnnData: in memory, backed by a file, or lazy."""
    # Of its class: a view cuts its matrix where it is asked for it.
    return all(hasattr(type(data), name) for name in ("X", "layers", "obs_names", "var_names", "obsm"))


def is_multimodal(data: Any) -> bool:
    """Whether the value behaves as a MuData."""
    # Of the value: `mod` is no part of the class in older versions.
    return all(hasattr(type(data), name) for name in ("obs_names", "obsm")) and hasattr(data, "mod")


def _relation(output: Place, place: str, asked: dict[Name, bool] | None = None) -> str | None:
    """How an output touches another place, in words, or (with `asked`) lies in the store that the other is a part of;
    None where they are apart."""
    (ours, above), (theirs, beyond) = _names(output), _names(place)
    if ours & theirs:
        return "is the same place as"
    if theirs & above:
        return "lies inside"
    if ours & beyond:
        return "holds"
    if asked is None:
        return None
    for name in above & beyond:
        if name not in asked:
            asked[name] = _is_node(name)
        if asked[name]:
            return "lies in the same store as"
    return None


Name = str | tuple[int, int]
"""A path without links, a URL in one spelling, or the device and the number of a local file."""


def _names(location: Place) -> tuple[set[Name], set[Name]]:
    """The names of a place, and those of all places above it."""
    last = _last(location)
    path = local_path(last)
    if path is None:
        url = _plain_url(last)
        scheme, _, inside = url.partition("://")
        above: set[Name] = {f"{scheme}://{one}" for one in map(str, Path(inside).parents) if one != "."}
        return {url}, above
    spelled = Path(os.path.abspath(path)), Path(os.path.realpath(path))
    parents = {parent for one in spelled for parent in one.parents}
    return _local_names(spelled), _local_names(parents)


def _last(location: Place) -> str:
    """The last of a chain of URLs, which the others are read from."""
    last = place_text(location).rpartition("::")[2]
    return last.replace("local://", "file://", 1) if last.startswith("local://") else last


def _local_names(paths: Iterable[Path]) -> set[Name]:
    names = set[Name]()
    for path in paths:
        names.add(str(path))
        with suppress(OSError):
            there = path.stat()
            names.add((there.st_dev, there.st_ino))
    return names


def _plain_url(url: str) -> str:
    """The one spelling of a URL: one of several schemes, no user, no query, no slash too many."""
    scheme, _, rest = _public(url).partition("://")
    scheme = SPELLINGS.get(scheme, scheme)
    rest = rest if scheme == "abfs" else _USER.sub("", rest)  # there it is no user but the container
    return f"{scheme}://{posixpath.normpath(rest.lstrip('/'))}"


def check_outside_stores(path: str | os.PathLike[str]) -> None:
    """Refuse a file in a store of Zarr.

    Errors: StoreError.
    """
    for above in filter(_is_node, _names(path)[1]):
        raise StoreError(f"{os.fspath(path)} lies in the store {above}; choose another place to write to")


def check_replaced(place: str) -> None:
    """Refuse to replace what is no store, a store with something else in it, or a part of a store.

    Errors: StoreError.
    """
    filesystem, root = filesystem_at(place)
    if filesystem.isdir(root) and not filesystem.ls(root):
        return
    metadata = _metadata(filesystem, root)
    if not metadata:
        raise StoreError(
            f"{place} exists and is no Zarr store, so it is not replaced; remove it or choose another place"
        )
    if stray := _stray(filesystem, root):
        raise StoreError(
            f"{place} has something in it that is not Zarr's, {stray}, so it is not replaced; remove it or choose "
            "another place"
        )
    above = root.rpartition("/")[0]
    if above and "dlatent" not in metadata.get("attributes", ()) and _metadata(filesystem, above):
        raise StoreError(f"{place} is a part of a store, which is only replaced as a whole; choose another place")


def _is_node(place: Name) -> bool:
    """Whether a node of Zarr is at a path or URL."""
    with suppress(Exception):
        return isinstance(place, str) and bool(_metadata(*filesystem_at(place)))
    return False


def _metadata(filesystem: Any, root: str) -> Mapping[str, Any]:
    """The metadata of a node of Zarr; nothing where there is none."""
    for mark in STORE_MARKS:
        with suppress(OSError, ValueError):
            metadata = json.loads(filesystem.cat_file(f"{root}/{mark}"))
            if isinstance(metadata, dict) and metadata.get("zarr_format") in (2, 3):
                return metadata
    return {}


def _stray(filesystem: Any, root: str) -> str | None:
    """Something in a store that Zarr has not written."""
    paths = {path: path.rpartition("/")[2] for path in filesystem.find(root)}
    stray = (path for path, name in paths.items() if name not in DOCUMENTS and not _ZARRS.fullmatch(name))
    return next(stray, None)
