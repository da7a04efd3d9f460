"""Stores of Zarr that are open, as places: each has a URL in this process, under which fsspec finds it."""

from __future__ import annotations

import hashlib
from itertools import count
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from fsspec import AbstractFileSystem, register_implementation
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore

from dlatent.errors import DataError, StoreError

PROTOCOL = "openstore"
"""The scheme of the URLs."""

_open: WeakValueDictionary[str, Store] = WeakValueDictionary()
"""The stores by the name that their URLs have."""


def url_of(store: Any) -> str:
    """The URL of an open store; of one on a disk of this machine the path. Errors: DataError for what is no store."""
    if isinstance(store, LocalStore):
        return str(store.root)
    if not isinstance(store, Store):
        kind = f"{type(store).__module__}.{type(store).__qualname__}"
        raise DataError(
            f"a place is given as a {kind}; give a path or URL, as text, or a store of Zarr, as session.store of "
            "icechunk or zarr.storage.ObjectStore of obstore"
        )
    # By its text, which is that of a copy for reading, too, and of another endpoint or account.
    text = f"{type(store).__name__}-{hashlib.sha256(str(store).encode()).hexdigest()[:12]}"
    names = (f"{text}-{number}" for number in count())
    name = next(name for name in names if name not in _open or _same(_open[name], store))
    if name not in _open or _open[name].read_only:
        _open[name] = store
    return f"{PROTOCOL}://{name}"


def _same(known: Store, store: Store) -> bool:
    """Whether a store is one that is known, or a copy of it that may write or may not."""
    try:
        return known is store or bool(known == store.with_read_only(known.read_only))
    except NotImplementedError:
        return False


def opened(place: str) -> Store | None:
    """The open store of a URL, or that a node with this URL is in; None of other places. Errors: StoreError where it is
    not open any more, or another process has it."""
    if not place.startswith(f"{PROTOCOL}://"):
        return None
    return _found(place)[0]


def reopened(place: str, store: Store | None) -> None:
    """Know a store, which came from another process, by the URL that it had there."""
    if store is not None:
        _open.setdefault(place.removeprefix(f"{PROTOCOL}://").partition("/")[0], store)


def _found(path: str) -> tuple[Store, str]:
    """The store of a path, and the key in it."""
    name, _, key = path.removeprefix(f"{PROTOCOL}://").partition("/")
    if name not in _open:
        raise StoreError(f"the store {PROTOCOL}://{name} is not open in this process; give the store itself, or a URL")
    return _open[name], key.rstrip("/")


class StoreFiles(AbstractFileSystem):  # type: ignore[misc]
    """The keys of open stores as files of fsspec."""

    protocol: ClassVar[str] = PROTOCOL
    cachable = False

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        """What is in a directory."""
        root = str(self._strip_protocol(path)).rstrip("/")
        names = _names(*_found(root))
        if not names:
            raise FileNotFoundError(path)
        paths = [f"{root}/{name}" for name in names]
        return [self.info(each) for each in paths] if detail else paths

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """Whether a file or a directory is there, and its size."""
        path = str(self._strip_protocol(path))
        store, key = _found(path)
        if _names(store, key):
            return {"name": path, "size": 0, "type": "directory"}
        above, _, name = key.rpartition("/")
        if not key or name not in _names(store, above):  # asked for so, as not every store takes every key
            raise FileNotFoundError(path)
        if not sync(store.exists(key)):  # a directory without anything, which a disk keeps
            return {"name": path, "size": 0, "type": "directory"}
        return {"name": path, "size": sync(store.getsize(key)), "type": "file"}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """The bytes of a file, or a part of them."""
        self.info(path)
        store, key = _found(self._strip_protocol(path))
        part = None if start is None and end is None else OffsetByteRequest(start or 0)
        asked = part if end is None else RangeByteRequest(start or 0, end)
        content = sync(store.get(key, default_buffer_prototype(), asked))
        if content is None:
            raise FileNotFoundError(path)
        return bytes(content.to_bytes())

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        """Write a file."""
        store, key = _found(self._strip_protocol(path))
        sync(store.set(key, default_buffer_prototype().buffer.from_bytes(value)))

    def rm_file(self, path: str) -> None:
        """Remove a file."""
        store, key = _found(self._strip_protocol(path))
        sync(store.delete(key))

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove a file, or all that is below a directory."""
        store, key = _found(self._strip_protocol(path))
        sync(store.delete_dir(key) if recursive else store.delete(key))


def _names(store: Store, key: str) -> list[str]:
    """What is in a directory of a store."""

    async def listed() -> list[str]:
        return [name.rstrip("/") async for name in store.list_dir(key)]

    return sorted(sync(listed()))


register_implementation(PROTOCOL, StoreFiles, clobber=True)
