"""Where something lies, a local path or an fsspec URL as given by the user, and errors that name it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

from fsspec.core import url_to_fs

from dlatent.errors import DataError, DlatentError, StoreError, cause
from dlatent.stores.temporary import put_back

if TYPE_CHECKING:
    from zarr.abc.store import Store

STORE_MARKS = ("zarr.json", ".zgroup", ".zarray")
"""Files whose presence makes a directory a node of a Zarr hierarchy."""

DOCUMENTS = (*STORE_MARKS, ".zattrs", ".zmetadata")
"""Names of the files with metadata."""

WHOLE_OBJECTS = {"s3": {"max_concurrency": 1}, "s3a": {"max_concurrency": 1}}
"""Options of file systems, by protocol: s3fs else asks for the size of each object before it reads it, so as to read a
large one in pieces."""

ABSENT = (FileNotFoundError, NotADirectoryError, KeyError)
"""Errors of file systems where nothing is; that of archives says KeyError before fsspec 2026.7."""

NETCDF = (".nc", ".nc4", ".cdf")
"""Endings of netCDF files, which xarray reads."""


Item = TypeVar("Item")
Place: TypeAlias = "str | os.PathLike[str] | Store"
"""A path, an fsspec URL, or an open store of Zarr."""


def along(place: str) -> str:
    """How to fit what has named dimensions."""
    return f"name the dimension that samples lie along, as in fit({place!r}, dim='time'), and features are all others"


_KEYS_OF_BUCKETS = re.compile(r"(?:.*::)?(?:s3a?|gs|gcs)://(?!arn:)[^/]*:.*@")
_SCHEME = re.compile(r"(?:^|(?<=::))[A-Za-z][\w+.-]*(?=://|::)")


def place_text(location: Any) -> str:
    """A path or URL as text, the schemes of its URLs in lower case, as fsspec knows them; of an open store of Zarr the
    URL that it has in this process.

    Errors: DataError for what is none: nothing, a text with a null character, or a URL that ends
    at its scheme.
    """
    if not isinstance(location, str | os.PathLike):
        from dlatent.stores.objects import url_of  # Zarr, which paths do not need

        return url_of(location)
    text = os.fspath(location)
    if not text or "\0" in text or ("://" in text and text.rstrip("/").endswith(":")):
        raise DataError(f"{text!r} names no place: it is empty, or has a null character; give a path or a whole URL")
    return _SCHEME.sub(lambda scheme: scheme[0].lower(), text) if "://" in text else text


def is_place(value: Any) -> bool:
    """Whether a value is a path, a URL or an open store of Zarr."""
    return isinstance(value, str | os.PathLike) or hasattr(type(value), "get_partial_values")


def local_path(location: Place) -> Path | None:
    """The path of a local location, or None for a remote URL such as `s3://bucket/x.zarr`.

    Errors: DataError for keys in the URL of a bucket, which fsspec takes for a part of its name and tells everybody;
    as `place_text`.
    """
    text = place_text(location)
    if "://" not in text and "::" not in text:
        return Path(text).expanduser()
    if text.startswith("file://") and "::" not in text:
        parts = urlsplit(text)
        return Path(unquote(parts.netloc + parts.path))
    if _KEYS_OF_BUCKETS.match(text):
        raise DataError(
            f"{text}: keys are not read from the URL of a bucket; give them by environment variables, such as "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or by fsspec's configuration"
        )
    return None


def zarr_location(location: Place) -> str:
    """The location as text that `zarr.open` takes: an absolute path, or the URL without its last slash."""
    path = local_path(location)
    return os.path.abspath(path) if path is not None else place_text(location).rstrip("/")


def is_node(location: str) -> bool:
    """Whether the location holds a Zarr group or array."""
    if (path := local_path(location)) is not None:
        put_back(path)
    filesystem, root = filesystem_at(location)
    return any(filesystem.exists(f"{root}/{mark}") for mark in STORE_MARKS)


def filesystem_at(place: str) -> tuple[Any, str]:
    """The fsspec filesystem of an absolute path or URL, and the path inside it.

    Errors: StoreError for a kind of URL that fsspec does not know, or has no package for, and for an archive that
    cannot be reached.
    """
    text = place_text(place)
    try:
        filesystem, root = url_to_fs(text, **options_of(text))
    except Exception as error:
        raise unreachable(place, error) from cause(error)
    return filesystem, str(root).rstrip("/")


def options_of(place: str) -> dict[str, Any]:
    """The options of fsspec with which a URL is opened."""
    return WHOLE_OBJECTS.get(place.partition("://")[0], {})


def unreachable(place: str, error: Exception) -> StoreError:
    """The error for a place that fsspec does not open."""
    return StoreError(f"cannot reach {place}: {error}; check the address, and what you may read and write there")


@contextmanager
def guarded(place: str, kind: type[DataError] = DataError) -> Iterator[None]:
    """A context whose exceptions are DlatentErrors: others become `kind`, with the exception as the cause.

    Damaged inputs make the libraries that read them raise nearly anything, so that no list of types is complete.
    """
    try:
        yield
    except (DlatentError, Warning):
        raise
    except MemoryError as error:
        raise kind(f"{place} asks for more memory than there is ({error}); it is damaged, or cut it up") from cause(
            error
        )
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise kind(f"{place}: {error}") from cause(error)
        text = " ".join(str(error).split())[:300]
        raise kind(
            f"{place} cannot be read ({type(error).__name__}: {text}); it is damaged, cut short or of an unknown form, "
            "fetch it or write it again"
        ) from cause(error)


def guarded_each(items: Iterable[Item], place: str, kind: type[DataError] = DataError) -> Iterator[Item]:
    """The items, where only getting the next one is guarded and not what is done with it."""
    iterator = iter(items)
    while True:
        with guarded(place, kind):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item
