"""Metadata documents of stores: their checksums, and stores that are being written, which know their own documents.

Law (tested in tests/stores/test_stores_requests.py): a server is asked for no document that this process has written,
and gets each one once, with its checksum.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
from collections.abc import Iterable

import zarr
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore, WrapperStore

from dlatent.stores.location import ABSENT, STORE_MARKS, local_path, options_of
from dlatent.stores.objects import opened

DOCUMENT = STORE_MARKS[0]
"""Name of the files with metadata of Zarr v3."""

MARK_BYTES = 8
"""Bytes of the mark of a store, and of the checksum."""

_CHECKSUM = re.compile(rb"\n([ \t]{%d})\Z" % (2 * MARK_BYTES * 8))


def with_checksum(document: bytes, mark: bytes) -> bytes:
    """The metadata document with a checksum at its end, so that a flipped bit in it is found.

    It follows the JSON text as white space (a space is 0, a tab is 1), which every reader of JSON passes over.  A
    program that changes the metadata on purpose writes the document anew, without it, so that what others change or
    copy is not refused.  A checksum among the attributes would be copied along (xarray does) and then be wrong.
    `mark` (`MARK_BYTES` bytes) is the store's own, so that another store with equal metadata is told from it.
    """
    text = _CHECKSUM.sub(b"", document)
    bits = int.from_bytes(mark + _check_bits(text, mark), "big")
    return text + b"\n" + f"{bits:0{2 * MARK_BYTES * 8}b}".encode().translate(bytes.maketrans(b"01", b" \t"))


def intact(document: bytes) -> bool:
    """Whether a document fits its checksum; of one without, whether it is JSON."""
    match = _CHECKSUM.search(document)
    if match is None:
        try:
            json.loads(document)
        except ValueError:
            return False
        return True
    bits = int(match[1].translate(bytes.maketrans(b" \t", b"01")), 2).to_bytes(2 * MARK_BYTES, "big")
    return bits[MARK_BYTES:] == _check_bits(document[: match.start()], bits[:MARK_BYTES])


def _check_bits(text: bytes, mark: bytes) -> bytes:
    return hashlib.sha256(mark + text).digest()[:MARK_BYTES]


def store_at(place: str, *, read_only: bool = False) -> Store:
    """The store of Zarr at an absolute path or URL, or the open one that has this URL. Errors: any of fsspec."""
    own = opened(place)
    if own is not None and place.count("/") == 2:  # else it is a node inside, which fsspec finds
        return own
    if local_path(place) is not None:
        return LocalStore(place, read_only=read_only)
    absent = (*ABSENT, IsADirectoryError)
    return FsspecStore.from_url(place, options_of(place), read_only=read_only, allowed_exceptions=absent)


class NewStore(WrapperStore[Store]):
    """A store that this process alone gives metadata: `documents`, by their keys, are all that there are."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.mark, self.documents = secrets.token_bytes(MARK_BYTES), dict[str, bytes]()

    def _with_store(self, store: Store) -> NewStore:
        other = NewStore(store)
        other.mark, other.documents = self.mark, self.documents
        return other

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """A document without a question, or (a part of) a chunk."""
        if not _is_document(key):
            return await self._store.get(key, prototype, byte_range)
        document = self.documents.get(key)
        return None if document is None else prototype.buffer.from_bytes(document)

    async def exists(self, key: str) -> bool:
        """Whether there is a document, without a question, or a chunk."""
        return key in self.documents if _is_document(key) else await self._store.exists(key)

    async def set(self, key: str, value: Buffer) -> None:
        """Write a document with its checksum, or a chunk."""
        if _is_document(key):
            document = with_checksum(value.to_bytes(), self.mark)
            value = default_buffer_prototype().buffer.from_bytes(document)
            self.documents[key] = document
        await self._store.set(key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Write what is not there."""
        if not await self.exists(key):
            await self.set(key, value)

    async def _set_many(self, values: Iterable[tuple[str, Buffer]]) -> None:
        await asyncio.gather(*(self.set(key, value) for key, value in values))

    async def delete(self, key: str) -> None:
        """Remove a document that is there, or a chunk."""
        if not _is_document(key) or self.documents.pop(key, None) is not None:
            await self._store.delete(key)

    async def delete_dir(self, prefix: str) -> None:
        """Remove a node."""
        for key in [key for key in self.documents if key.startswith(f"{prefix.rstrip('/')}/")]:
            del self.documents[key]
        await self._store.delete_dir(prefix)


def _is_document(key: str) -> bool:
    return key.rpartition("/")[2] == DOCUMENT


_written: dict[str, NewStore] = {}
"""The stores that this process writes, by their places."""


def begin(location: str) -> NewStore:
    """A store at a place where there is none, which this process has until `forget`."""
    _written[location] = NewStore(store_at(location))
    return _written[location]


def forget(location: str) -> None:
    """Have a store no longer."""
    _written.pop(location, None)


def written_here(location: str) -> NewStore | None:
    """The store that this process writes at a place."""
    return _written.get(location)


def written(location: str) -> NewStore:
    """The store that this process writes, or takes over from another that has left it."""
    if location not in _written:
        left = store_at(location)
        paths = [path for path, _ in zarr.open_group(left, mode="r", zarr_format=3).members(max_depth=None)]
        store = begin(location)
        for key in (DOCUMENT, *(f"{path}/{DOCUMENT}" for path in paths)):
            document = sync(left.get(key, default_buffer_prototype()))
            if document is not None:
                sync(store.set(key, document))
    return _written[location]
