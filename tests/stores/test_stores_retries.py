"""What may pass is tried again a few times, what will not pass is tried once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import fsspec
import pytest
from zarr.storage import FsspecStore, MemoryStore

from dlatent.errors import StoreError
from dlatent.stores import checked as retries
from dlatent.stores.checked import ATTEMPTS, FIRST_DELAY, persistent, transient


class Answered(Exception):
    """An answer with a status, as HTTP clients raise it."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status}, secret=no")
        self.status = status


class ClientPayloadError(Exception):
    """Has the name of the error of aiohttp for an answer that breaks off."""


class Retryable:
    """A read that fails so many times, and then gives its number."""

    def __init__(self, error: Exception, failures: int) -> None:
        self.error, self.failures, self.reads = error, failures, 0

    async def __call__(self) -> int:
        self.reads += 1
        if self.reads <= self.failures:
            raise self.error
        return self.reads


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited, without waiting."""
    found, real, here = list[float](), asyncio.sleep, threading.current_thread()

    async def sleep(seconds: float) -> None:
        if threading.current_thread() is not here:  # the event loop of a cluster of other tests
            await real(seconds)
        else:
            found.append(seconds)

    monkeypatch.setattr(retries.asyncio, "sleep", sleep)
    return found


PASSING = [*map(Answered, (408, 429, 500, 502, 503, 504)), ConnectionResetError("reset"), TimeoutError()]
PASSING += [ClientPayloadError("cut"), ConnectionRefusedError("refused")]
LASTING = [*map(Answered, (400, 401, 403, 404, 410, 501)), PermissionError("no"), ValueError("what"), OSError(5, "I/O")]


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_what_may_pass_is_tried_again(error: Exception, slept: list[float]) -> None:
    assert transient(error)
    read = Retryable(error, 2)
    assert asyncio.run(persistent(read, MemoryStore(), "here")) == 3
    assert slept == [FIRST_DELAY, 2 * FIRST_DELAY]


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_it_ends_after_a_few_attempts(error: Exception, slept: list[float]) -> None:
    read = Retryable(error, 1000)
    with pytest.raises(
        StoreError, match=rf"^here was not read in {ATTEMPTS} attempts \({type(error).__name__}"
    ) as said:
        asyncio.run(persistent(read, MemoryStore(), "here"))
    assert said.value.__cause__ is said.value.__context__ is None  # which a worker could not send
    assert read.reads == ATTEMPTS
    assert slept == [FIRST_DELAY * 2**n for n in range(ATTEMPTS - 1)]


@pytest.mark.parametrize("error", LASTING, ids=repr)
def test_what_lasts_is_tried_once(error: Exception, slept: list[float]) -> None:
    assert not transient(error)
    read = Retryable(error, 1)
    with pytest.raises(StoreError, match=rf"^here cannot be read \({type(error).__name__}"):
        asyncio.run(persistent(read, MemoryStore(), "here"))
    assert read.reads == 1
    assert not slept


@pytest.mark.parametrize("error", [StoreError("mine"), MemoryError("full"), KeyboardInterrupt()], ids=repr)
def test_what_is_no_answer_of_the_store_passes(error: Any, slept: list[float]) -> None:
    read = Retryable(error, 1)
    with pytest.raises(type(error)) as raised:
        asyncio.run(persistent(read, MemoryStore(), "here"))
    assert raised.value is error
    assert not slept


def test_a_client_that_tries_again_by_itself_is_asked_once(slept: list[float]) -> None:
    pytest.importorskip("s3fs")
    store = FsspecStore(fsspec.filesystem("s3", asynchronous=True), path="bucket/x.zarr")
    read = Retryable(Answered(503), 1)
    with pytest.raises(StoreError, match=r"here cannot be read .*: 503"):
        asyncio.run(persistent(read, store, "here"))
    assert read.reads == 1
    assert not slept
