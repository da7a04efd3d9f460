"""Where a store lies: a local path or an fsspec URL, as given by the user."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from fsspec.core import url_to_fs

from dlatent.errors import DataError, StoreError
from dlatent.stores.beside import put_back

STORE_MARKS = ("zarr.json", ".zgroup", ".zarray")
"""Files whose presence makes a directory a node of a Zarr hierarchy."""

NETCDF = (".nc", ".nc4", ".cdf")
"""Endings of netCDF files, which xarray reads."""


def along(place: str) -> str:
    """How to fit what has named dimensions."""
    return f"name the dimension that samples lie along, as in fit({place!r}, dim='time'), and features are all others"


_KEYS_OF_BUCKETS = re.compile(r"(?:.*::)?(?:s3a?|gs|gcs)://(?!arn:)[^/]*:.*@")


def place_text(location: Any) -> str:
    """A path or URL as text. Errors: DataError for what is none, as a store that is open."""
    if not isinstance(location, str | os.PathLike):
        kind = f"{type(location).__module__}.{type(location).__qualname__}"
        raise DataError(f"a place is given as a {kind}; give a path or URL, as text")
    return os.fspath(location)


def local_path(location: str | os.PathLike[str]) -> Path | None:
    """The path of a local location, or None for a remote URL such as `s3://bucket/x.zarr`.

    Errors: as `place_text`; DataError for keys in the URL of a bucket, which fsspec takes for a part of its name and
    tells everybody.
    """
    text = place_text(location)
    if "://" not in text and "::" not in text:
        return Path(text).expanduser()
    if text.startswith("file://"):
        parts = urlsplit(text)
        return Path(unquote(parts.netloc + parts.path))
    if _KEYS_OF_BUCKETS.match(text):
        raise DataError(
            f"{text}: keys are not read from the URL of a bucket; give them by environment variables, such as "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or by fsspec's configuration"
        )
    return None


def is_special(path: Path) -> bool:
    """Whether a path is neither a file nor a directory, but a pipe, a socket or a device: reading it may never end."""
    return path.exists() and not path.is_file() and not path.is_dir()


def zarr_location(location: str | os.PathLike[str]) -> str:
    """The location as text that `zarr.open` takes: an absolute path, or the URL without its last slash."""
    path = local_path(location)
    return os.path.abspath(path) if path is not None else os.fspath(location).rstrip("/")


def require_apart(destination: str | os.PathLike[str], *sources: Any) -> None:
    """Refuse to write over what is still to be read: object stores remove the old store before the new one is written.

    Local stores are replaced once the new one is complete; sources that are no paths are passed over.
    Errors: StoreError.
    """
    if local_path(destination) is not None:
        return
    place = zarr_location(destination)
    for source in sources:
        if isinstance(source, str | os.PathLike) and f"{zarr_location(source)}/".startswith(f"{place}/"):
            raise StoreError(
                f"{zarr_location(source)} would be removed before it is read; choose another place than {place}"
            )


def is_node(location: str) -> bool:
    """Whether the location holds a Zarr group or array."""
    path = local_path(location)
    if path is not None:
        return put_back(path) and any((path / mark).is_file() for mark in STORE_MARKS)
    filesystem, root = filesystem_at(location)
    return any(filesystem.exists(f"{root}/{mark}") for mark in STORE_MARKS)


def filesystem_at(place: str) -> tuple[Any, str]:
    """The fsspec filesystem of an absolute path or URL, and the path inside it."""
    filesystem, root = url_to_fs(place)
    return filesystem, str(root).rstrip("/")
