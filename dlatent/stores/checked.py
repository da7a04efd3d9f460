"""Stores in which a chunk that is not there is an error.

Zarr reads an absent chunk as the array's fill value.  A store that was removed while a fit runs, that was copied in
part, or that a worker does not see would be read as zeros.  The wrapper of this module stands between Zarr and every
store that dlatent reads, in every process.

Laws (tested in tests/stores/test_stores_checked.py):
1. A chunk that is absent, or shorter than the part of it that was asked for, is a StoreError that names it.
2. Each process checks once for each opening, before the first chunk, that it sees the metadata that were opened.
3. Metadata that carry a checksum and do not fit it are a StoreError, and so are metadata that are no JSON.
4. A store that was written over since it was opened is refused after the pass that read it (`unchanged`).
5. An interrupt ends all reads.
6. What may pass, as a busy server or a connection that breaks, is tried `ATTEMPTS` times in all, what will not pass
   once, and what the client of an object store tries again by itself is not tried again here (tested in
   tests/stores/test_stores_retries.py).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import Any, Literal, TypeAlias, TypeVar, cast
from uuid import uuid4

import zarr
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest, RangeByteRequest, Store
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore, WrapperStore

from dlatent.errors import DataError, StoreError, masked, on_interrupt
from dlatent.stores.documents import NewStore, intact
from dlatent.stores.location import DOCUMENTS, STORE_MARKS

MissingChunks: TypeAlias = Literal["raise", "fill"]
"""Whether a chunk that is not there is an error, or holds the fill value because its writer leaves such chunks out."""

ALL_CHUNKS = "all_chunks_written"
"""Attribute of arrays whose writer wrote every chunk: one that is not there is damage, whatever the reader says."""

T = TypeVar("T")
Node = TypeVar("Node", bound="zarr.Array[Any] | zarr.Group")

ATTEMPTS = 5
"""How often a read is tried."""

FIRST_DELAY = 0.5
"""Seconds before it is tried for the second time; then twice as long each time, 7.5 seconds in all."""

BUSY = frozenset((408, 429, 500, 502, 503, 504))
"""Statuses of HTTP after which another answer may come."""

BROKEN = frozenset(("ClientConnectionError", "ClientPayloadError"))
"""Names of errors of HTTP clients, which derive from no exception of Python, for a connection or an answer that broke
off."""

PATIENT = frozenset(("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss"))
"""Protocols of object stores whose clients try again by themselves (s3fs up to 25 times)."""

_known: set[str] = set()
"""Openings whose metadata this process has read or compared."""


_reading: set[asyncio.Task[Any]] = set()
"""Reads that are under way."""


class CheckedStore(WrapperStore[Store]):
    """A store for reading, in which a chunk that is not there is an error unless `missing_chunks` is "fill";
    `complete` says that its writer left none out, so that no reader is advised to take it for fill values.
    `documents` are the metadata that were read, each once, by their keys (None: there are none), and `digests` those of
    the ones that this store gave; `bytes_read` those of chunks, as stored."""

    def __init__(
        self,
        store: Store,
        missing_chunks: MissingChunks = "raise",
        *,
        complete: bool = False,
        documents: dict[str, bytes | None] | None = None,
    ) -> None:
        super().__init__(store)
        self.documents: dict[str, bytes | None] = {} if documents is None else documents
        self.missing_chunks: MissingChunks = missing_chunks
        self._complete = complete
        self._opening, self._opener = uuid4().hex, _this_process()
        self.digests: dict[str, str] = {}
        self.bytes_read = 0
        _known.add(self._opening)

    def __str__(self) -> str:
        return str(self._store)

    def __getstate__(self) -> dict[str, Any]:
        """All but the documents: an array that travels has its own."""
        return {**self.__dict__, "documents": {}}

    @property
    def read_only(self) -> bool:
        """True: writers open stores by themselves."""
        return True

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Metadata, or (a part of) a chunk that is there."""
        if key.rpartition("/")[2] in DOCUMENTS:
            document = await self._document(key, prototype)
            if document is None:
                return None
            self.digests[key] = _digest(document)
            return prototype.buffer.from_bytes(document)
        if self._opening not in _known:
            await self.compare(prototype)
        chunk = await self._got(key, prototype, byte_range)
        if chunk is None:
            await self.compare(prototype)
            if self.missing_chunks == "fill":
                return None
            hint = COPY_AGAIN if self._complete else f"{COPY_AGAIN}.  {FILL}"
            raise StoreError(f"the chunk {key} of {root_of(self)} is not there; {hint}")
        if isinstance(byte_range, RangeByteRequest) and len(chunk) != byte_range.end - byte_range.start:
            raise StoreError(f"the chunk {key} of {root_of(self)} is cut off; copy the store again or write it again")
        self.bytes_read += len(chunk)
        return chunk

    async def _document(self, key: str, prototype: BufferPrototype) -> bytes | None:
        """The metadata of a key; none of format 2 where there are those of format 3."""
        node, _, name = key.rpartition("/")
        if name != STORE_MARKS[0] and self.documents.get(f"{node}/{STORE_MARKS[0]}".lstrip("/")) is not None:
            return None
        if key not in self.documents:
            read = await self._got(key, prototype)
            document = None if read is None else read.to_bytes()
            if document is not None and not intact(document):
                raise StoreError(
                    f"{root_of(self)}/{key}: the metadata are damaged (no JSON, or not what dlatent wrote); copy the "
                    "store again or write it again, or, where they were edited by hand, remove the white space at "
                    "their end"
                )
            self.documents[key] = document
        return self.documents[key]

    async def get_partial_values(self, prototype: BufferPrototype, key_ranges: Any) -> list[Buffer | None]:
        """Several values, each as by `get`."""
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """The keys below a prefix, without those of another name that begins as it does."""
        below = f"{prefix.rstrip('/')}/" if prefix else ""
        async for key in self._store.list_prefix(prefix):
            if key.startswith(below):
                yield key

    async def _got(self, key: str, prototype: BufferPrototype, part: ByteRequest | None = None) -> Buffer | None:
        """The bytes of a key, read again where a server is busy; None where there is nothing."""
        reading = cast("asyncio.Task[Any]", asyncio.current_task())
        _reading.add(reading)
        try:
            kind = "" if key.rpartition("/")[2] in DOCUMENTS else "the chunk "
            place, file = f"{kind}{key} of {root_of(self)}", _local_file(self._store, key)
            if file is not None and not file.is_file() and file.exists() and not file.is_dir():
                raise StoreError(f"{place} is a pipe, a socket or a device, which has no end; {COPY_AGAIN}")
            return await persistent(partial(self._store.get, key, prototype, part), self._store, place)
        except asyncio.CancelledError as error:
            raise StoreError(f"reading {root_of(self)} was interrupted; run again") from error
        finally:
            _reading.discard(reading)

    async def compare(self, prototype: BufferPrototype) -> None:
        """Refuse to read where the metadata that were opened are not there, or are others."""
        place, here = root_of(self), _this_process()
        mount = f"opened by {self._opener}; mount the same store at the same path for every worker"
        for key, digest in self.digests.items():
            document = await self._got(key, prototype)
            if document is None:
                raise StoreError(
                    f"{place}/{key} is not there any more, or {here} does not see it: the store was {mount}, and "
                    "leave it there until the work is done"
                )
            if (seen := _digest(document.to_bytes())) != digest:
                raise StoreError(
                    f"{place}/{key} has the digest {seen} for {here}, but had {digest} when it was {mount}, and do not "
                    "replace it before the work is done"
                )
        _known.add(self._opening)


COPY_AGAIN = "the store is damaged or was not copied as a whole: copy it again"
FILL = (
    "Where its writer leaves out chunks that hold nothing but the fill value, as Zarr does unless told otherwise, say "
    "so when it is opened: missing_chunks='fill', or on the command line --missing-chunks fill"
)


async def persistent(read: Callable[[], Awaitable[T]], store: Store, place: str) -> T:
    """Return the result of `read`, which is tried again where that may help.

    Errors: StoreError that begins with `place`, and says how often it was tried and what came last.
    """
    patient = not PATIENT.isdisjoint(protocols_of(store)) or type(store).__name__ == "ObjectStore"
    attempts = 1 if patient else ATTEMPTS
    for attempt in range(1, attempts + 1):
        try:
            return await read()
        except (StoreError, MemoryError):
            raise
        except Exception as error:
            passing, text = transient(error), " ".join(str(error).split())[:300]
            last = f"{type(error).__name__}: {text}" if text else type(error).__name__
        if not passing:
            break
        if attempt < attempts:
            await asyncio.sleep(FIRST_DELAY * 2 ** (attempt - 1))
    # Without the exception itself: those of HTTP clients do not travel, and a worker could not tell what happened.
    if passing and attempts > 1:
        raise StoreError(f"{place} was not read in {attempts} attempts ({last}); run again when the server answers")
    raise StoreError(f"{place} cannot be read ({last}); check that it is within reach, and your right to read it")


def transient(error: BaseException) -> bool:
    """Whether an error is of the kind that passes: a busy server, a time that ran out, a connection that broke."""
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return status in BUSY
    names = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, (ConnectionError, TimeoutError)) or bool(names & BROKEN)


def checked(node: Node, missing_chunks: MissingChunks | None = None) -> Node:
    """Return the node, read through a `CheckedStore` of its own (`missing_chunks` None: as before, else "raise")."""
    before = node.store
    if missing_chunks not in (None, "raise", "fill"):
        raise DataError(f"missing_chunks is {missing_chunks!r}; expected 'raise' or 'fill'")
    if missing_chunks is None:
        missing_chunks = before.missing_chunks if isinstance(before, CheckedStore) else "raise"
    complete = node.attrs.get(ALL_CHUNKS) is True
    read = before.documents if isinstance(before, CheckedStore) else None
    how: MissingChunks = "raise" if complete else missing_chunks
    store = CheckedStore(unwrapped(before), how, complete=complete, documents=read)
    version = node.metadata.zarr_format
    if isinstance(node, zarr.Array):
        return cast(Node, zarr.open_array(store, path=node.path, mode="r", zarr_format=version))
    consolidated = node.metadata.consolidated_metadata is not None
    group = zarr.open_group(store, path=node.path, mode="r", zarr_format=version, use_consolidated=consolidated)
    return cast(Node, group)


def checked_directory(place: str | os.PathLike[str] | Store) -> CheckedStore:
    """The store in a local directory, or one that is open, for another library, to which a chunk that is not there
    holds the fill value."""
    store = place if isinstance(place, Store) else LocalStore(os.fspath(place), read_only=True)
    return CheckedStore(store, "fill")


def unchanged(*arrays: zarr.Array[Any]) -> None:
    """Refuse arrays in whose place there is nothing any more, or something else than what was opened.

    A store of this library has a mark of its own, so that one that was written over is told from it.
    """
    for array in arrays:
        sync(cast(CheckedStore, array.store).compare(default_buffer_prototype()))


def unwrapped(store: Store) -> Store:
    """The store that a `CheckedStore`, or one that is written, stands before, or the store itself."""
    return store._store if isinstance(store, CheckedStore | NewStore) else store


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
        return masked(str(_filesystem(store).unstrip_protocol(store.path)))
    return masked(str(store))


def _local_file(store: Store, key: str) -> Path | None:
    """The file of a key in a store on a disk."""
    if isinstance(store, LocalStore):
        return store.root / key
    return Path(store.path, key) if isinstance(store, FsspecStore) and "file" in protocols_of(store) else None


def protocols_of(store: Store) -> tuple[str, ...]:
    """Return the protocols of URLs of the store; none where it has no file system of fsspec."""
    store = unwrapped(store)
    if not isinstance(store, FsspecStore):
        return ()
    protocol = _filesystem(store).protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _filesystem(store: FsspecStore) -> Any:
    """The file system of a store, which fsspec wraps where it has no asynchronous one."""
    return getattr(store.fs, "sync_fs", store.fs)


def _end_reads() -> None:
    """End all reads of this process, each with an error in the thread that waits for it."""
    for loop in {task.get_loop() for task in tuple(_reading)}:
        loop.call_soon_threadsafe(lambda: [task.cancel() for task in tuple(_reading)])


on_interrupt(_end_reads)


def _digest(document: bytes) -> str:
    return hashlib.sha256(document).hexdigest()[:16]


def _this_process() -> str:
    return f"process {os.getpid()} on {gethostname()}"
