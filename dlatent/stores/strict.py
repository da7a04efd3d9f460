"""Stores in which a chunk that is not there is an error.

Zarr reads an absent chunk as the array's fill value.  A store that was removed while a fit runs, that was copied in
part, or that a worker does not see would be read as zeros.  The wrapper of this module stands between Zarr and every
store that dlatent reads, in every process.

Laws (tested in tests/stores/test_stores_strict.py):
1. A chunk that is absent, or shorter than the part of it that was asked for, is a StoreError that names it.
2. Each process checks once for each opening, before the first chunk, that it sees the metadata that were opened.
3. Metadata that carry a digest (`seal`) and do not fit it are a StoreError, and so are metadata that are no JSON.
4. A store that was written over since it was opened is refused after the pass that read it (`unchanged`).
5. Nothing is opened that is neither a file nor a directory, as reading it may never end; an interrupt ends all reads.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import Any, Literal, TypeAlias, TypeVar, cast
from uuid import uuid4

import zarr
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest, RangeByteRequest, Store
from zarr.storage import FsspecStore, LocalStore, WrapperStore

from dlatent.errors import DataError, StoreError, masked
from dlatent.interrupts import on_interrupt
from dlatent.stores.location import is_special
from dlatent.stores.retries import filesystem_of, persistent, protocols
from dlatent.stores.seal import intact

MissingChunks: TypeAlias = Literal["raise", "fill"]
"""Whether a chunk that is not there is an error, or holds the fill value because its writer leaves such chunks out."""

ALL_CHUNKS = "all_chunks_written"
"""Attribute of arrays whose writer wrote every chunk: one that is not there is damage, whatever the reader says."""

Node = TypeVar("Node", bound="zarr.Array[Any] | zarr.Group")

DOCUMENTS = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
"""Names of the files with metadata."""

_known: set[str] = set()
"""Openings whose metadata this process has read or compared."""


_reading: set[asyncio.Task[Any]] = set()
"""Reads that are under way."""


class StrictStore(WrapperStore[Store]):
    """A store for reading, in which a chunk that is not there is an error unless `missing_chunks` is "fill";
    `complete` says that its writer left none out, so that no reader is advised to take it for fill values.
    `digests` are those of the metadata that were opened, by their keys; `bytes_read` those of chunks, as stored."""

    def __init__(self, store: Store, missing_chunks: MissingChunks = "raise", *, complete: bool = False) -> None:
        super().__init__(store)
        self.missing_chunks: MissingChunks = missing_chunks
        self._complete = complete
        self._opening, self._opener = uuid4().hex, _this_process()
        self.digests: dict[str, str] = {}
        self.bytes_read = 0
        _known.add(self._opening)

    def __str__(self) -> str:
        return str(self._store)

    @property
    def read_only(self) -> bool:
        """True: writers open stores by themselves."""
        return True

    @property
    def wrapped(self) -> Store:
        """The store itself."""
        return self._store

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Metadata, or (a part of) a chunk that is there."""
        if key.rpartition("/")[2] in DOCUMENTS:
            found = await self._got(key, prototype, byte_range)
            if found is not None:
                self._note(key, found.to_bytes())
            return found
        if self._opening not in _known:
            await self._compare(prototype)
        chunk = await self._got(key, prototype, byte_range)
        if chunk is None:
            await self._compare(prototype)
            if self.missing_chunks == "fill":
                return None
            way_out = COPY_AGAIN if self._complete else f"{COPY_AGAIN}.  {FILL}"
            raise StoreError(f"the chunk {key} of {root_of(self)} is not there; {way_out}")
        if isinstance(byte_range, RangeByteRequest) and len(chunk) != byte_range.end - byte_range.start:
            raise StoreError(f"the chunk {key} of {root_of(self)} is cut off; copy the store again or write it again")
        self.bytes_read += len(chunk)
        return chunk

    async def get_partial_values(self, prototype: BufferPrototype, key_ranges: Any) -> list[Buffer | None]:
        """Several values, each as by `get`."""
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def _got(self, key: str, prototype: BufferPrototype, part: ByteRequest | None = None) -> Buffer | None:
        """What the store has, tried again where a server is busy; None where it says that there is nothing."""
        reading = cast("asyncio.Task[Any]", asyncio.current_task())
        _reading.add(reading)
        try:
            return await self._tried(key, prototype, part)
        except asyncio.CancelledError as error:
            raise StoreError(f"reading {root_of(self)} was interrupted; run again") from error
        finally:
            _reading.discard(reading)

    async def _tried(self, key: str, prototype: BufferPrototype, part: ByteRequest | None) -> Buffer | None:
        kind = "" if key.rpartition("/")[2] in DOCUMENTS else "the chunk "
        place = f"{kind}{key} of {root_of(self)}"
        file = _local_file(self._store, key)
        if file is not None and await asyncio.to_thread(is_special, file):
            raise StoreError(f"{place} is no file, but a pipe, a socket or a device, which is not read; {COPY_AGAIN}")
        return await persistent(partial(self._store.get, key, prototype, part), self._store, place)

    def _note(self, key: str, document: bytes) -> None:
        """Check metadata that are read, and keep their digest for other processes."""
        if not intact(document):
            raise StoreError(
                f"{root_of(self)}/{key}: the metadata are damaged (no JSON, or not what dlatent wrote); copy the store "
                "again or write it again, or, where they were edited by hand, remove the white space at their end"
            )
        self.digests[key] = _digest(document)

    async def _compare(self, prototype: BufferPrototype) -> None:
        """Refuse to read where the metadata that were opened are not there, or are others."""
        place, here = root_of(self), _this_process()
        mount = f"opened by {self._opener}; mount the same store at the same path for every worker"
        for key, digest in self.digests.items():
            found = await self._got(key, prototype)
            if found is None:
                raise StoreError(
                    f"{place}/{key} is not there any more, or {here} does not see it: the store was {mount}, and "
                    "leave it there until the work is done"
                )
            if (own := _digest(found.to_bytes())) != digest:
                raise StoreError(
                    f"{place}/{key} has the digest {own} for {here}, but had {digest} when it was {mount}, and do not "
                    "replace it before the work is done"
                )
        _known.add(self._opening)


COPY_AGAIN = "the store is damaged or was not copied as a whole: copy it again"
FILL = (
    "Where its writer leaves out chunks that hold nothing but the fill value, as Zarr does unless told otherwise, say "
    "so when it is opened: missing_chunks='fill', or on the command line --missing-chunks fill"
)


def strict(node: Node, missing_chunks: MissingChunks | None = None) -> Node:
    """The same node, read through a `StrictStore` of its own (`missing_chunks` None: as before, else "raise")."""
    before = node.store
    if missing_chunks is None:
        missing_chunks = before.missing_chunks if isinstance(before, StrictStore) else "raise"
    complete = node.attrs.get(ALL_CHUNKS) is True
    store = StrictStore(unwrapped(before), "raise" if complete else missing_chunks, complete=complete)
    version = node.metadata.zarr_format
    if isinstance(node, zarr.Array):
        return cast(Node, zarr.open_array(store, path=node.path, mode="r", zarr_format=version))
    consolidated = node.metadata.consolidated_metadata is not None
    group = zarr.open_group(store, path=node.path, mode="r", zarr_format=version, use_consolidated=consolidated)
    return cast(Node, group)


def strict_store(place: str | os.PathLike[str]) -> StrictStore:
    """The store in a local directory for another library, to which a chunk that is not there holds the fill value."""
    return StrictStore(LocalStore(os.fspath(place), read_only=True), "fill")


def unchanged(*arrays: zarr.Array[Any]) -> None:
    """Refuse arrays in whose place there is nothing any more, or something else than what was opened.

    A store of this library has a mark of its own, so that one that was written over is told from it.
    """
    for array in arrays:
        before, place = cast(StrictStore, array.store), place_of(array)
        way_out = "do not replace or remove it before the work is done"
        try:
            found = cast(StrictStore, strict(array).store)
        except (FileNotFoundError, KeyError) as error:
            raise StoreError(f"{place} is not there any more; {way_out}") from error
        if found.digests != before.digests:
            raise StoreError(f"{place} is not what was opened any more: its metadata were written anew; {way_out}")


def check_missing_chunks(value: str) -> None:
    """Refuse other words than those of `MissingChunks`."""
    if value not in ("raise", "fill"):
        raise DataError(f"missing_chunks is {value!r}; expected 'raise' or 'fill'")


def unwrapped(store: Store) -> Store:
    """The store that a `StrictStore` stands before, or the store itself."""
    return store.wrapped if isinstance(store, StrictStore) else store


def place_of(node: zarr.Array[Any] | zarr.Group) -> str:
    """The path or URL of a node for messages, without credentials."""
    root = root_of(node.store)
    return f"{root}/{node.path}" if node.path else root


def root_of(store: Store) -> str:
    """The path or URL of the root of a store for messages, without credentials."""
    store = unwrapped(store)
    if isinstance(store, LocalStore):
        return str(store.root)
    if isinstance(store, FsspecStore):
        return masked(str(filesystem_of(store).unstrip_protocol(store.path)))
    return masked(str(store))


def protocols_of(store: Store) -> tuple[str, ...]:
    """What URLs of the store begin with; none where it has no file system of fsspec."""
    return protocols(unwrapped(store))


def _end_reads() -> None:
    """End all reads of this process, each with an error in the thread that waits for it."""
    for loop in {task.get_loop() for task in tuple(_reading)}:
        loop.call_soon_threadsafe(lambda: [task.cancel() for task in tuple(_reading)])


on_interrupt(_end_reads)


def _local_file(store: Store, key: str) -> Path | None:
    """The file of a key in a store on a disk."""
    if isinstance(store, LocalStore):
        return store.root / key
    return Path(store.path, key) if isinstance(store, FsspecStore) and "file" in protocols(store) else None


def _digest(document: bytes) -> str:
    return hashlib.sha256(document).hexdigest()[:16]


def _this_process() -> str:
    return f"process {os.getpid()} on {gethostname()}"
