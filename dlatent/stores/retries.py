"""Reads that are tried again where a server is busy or a connection breaks, a few times, and then end.

Law (tested in tests/stores/test_stores_retries.py): what may pass is tried `ATTEMPTS` times in all, what will not pass
once, and what the client of an object store tries again by itself is not tried again here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from zarr.abc.store import Store
from zarr.storage import FsspecStore

from dlatent.errors import StoreError

T = TypeVar("T")

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


async def persistent(read: Callable[[], Awaitable[T]], store: Store, place: str) -> T:
    """What `read` gives, which is tried again where that may help.

    Errors: StoreError that begins with `place`, and says how often it was tried and what came last.
    """
    attempts = 1 if _patient(store) else ATTEMPTS
    for attempt in range(1, attempts + 1):
        try:
            return await read()
        except (StoreError, MemoryError):
            raise
        except Exception as error:
            passing, cause = transient(error), _named(error)
        if not passing:
            break
        if attempt < attempts:
            await asyncio.sleep(FIRST_DELAY * 2 ** (attempt - 1))
    # Without the exception itself: those of HTTP clients do not travel, and a worker could not tell what happened.
    if passing and attempts > 1:
        raise StoreError(f"{place} was not read in {attempts} attempts ({cause}); run again when the server answers")
    raise StoreError(f"{place} cannot be read ({cause}); check that it is within reach, and your right to read it")


def transient(error: BaseException) -> bool:
    """Whether an error is of the kind that passes: a busy server, a time that ran out, a connection that broke."""
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return status in BUSY
    names = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, (ConnectionError, TimeoutError)) or bool(names & BROKEN)


def filesystem_of(store: FsspecStore) -> Any:
    """The file system of a store, which fsspec wraps where it has no asynchronous one."""
    return getattr(store.fs, "sync_fs", store.fs)


def protocols(store: Store) -> tuple[str, ...]:
    """What URLs of a store begin with; none where it has no file system of fsspec."""
    if not isinstance(store, FsspecStore):
        return ()
    found = filesystem_of(store).protocol
    return (found,) if isinstance(found, str) else tuple(found)


def _patient(store: Store) -> bool:
    """Whether the client of a store tries again by itself."""
    return not PATIENT.isdisjoint(protocols(store)) or type(store).__name__ == "ObjectStore"


def _named(error: Exception) -> str:
    """The type and the text of an error, in a line."""
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
