"""Where a command computes: the threads of this process, a cluster started for it, or one that is there already."""

from __future__ import annotations

import argparse
import asyncio
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from dlatent.cli.arguments import UsageError
from dlatent.cli.certificates import GIVE, check_unused, encrypted, security
from dlatent.engine.local import local_workers
from dlatent.errors import EngineError

CONNECT_SECONDS = 15
NO_TLS = ("WRONG_VERSION_NUMBER", "cannot convert to SSL")
"""What is said of a scheduler that speaks without TLS: an answer that is none, or words before it was asked."""


@contextmanager
def connected(arguments: argparse.Namespace) -> Iterator[Any]:
    """A `distributed.Client` for the command, or None for the threads of this process; a cluster made here ends here.

    Errors: UsageError for options of workers without workers, and for certificates that are of no use; EngineError
    where the scheduler cannot be reached, or does not accept them.
    """
    own = arguments.workers is not None
    if not own and (arguments.threads_per_worker is not None or arguments.memory_limit is not None):
        raise UsageError("--threads-per-worker and --memory-limit describe new workers; give --workers N with them")
    if arguments.scheduler is None:
        check_unused(arguments)
    if own:
        with _local(arguments) as client:
            yield client
    elif arguments.scheduler is not None:
        with _patient(arguments.wait), _remote(arguments.scheduler, security(arguments)) as client:
            yield client
    else:
        yield None


@contextmanager
def _patient(wait: str | None) -> Iterator[None]:
    """Wait so long for workers, where the user says it."""
    import dask

    from dlatent.engine.failures import WAIT

    with dask.config.set({} if wait is None else {WAIT: wait}):
        yield


@contextmanager
def _local(arguments: argparse.Namespace) -> Iterator[Any]:
    limit = arguments.memory_limit or "auto"
    with ExitStack() as opened:
        try:
            with _deaf_children():
                client = opened.enter_context(
                    local_workers(arguments.workers, arguments.threads_per_worker or 1, limit)
                )
        except ValueError as error:
            raise UsageError(f"a cluster cannot be started with memory limit {limit!r}: {error}") from error
        except RuntimeError as error:
            first: BaseException = error
            while first.__cause__ is not None:
                first = first.__cause__
            raise EngineError(
                f"worker processes cannot be started: {first}; where Dask's configuration requires encryption "
                "(distributed.comm.require-encryption) it must name certificates of scheduler, worker and client"
            ) from error
        yield client


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Let processes that are started now ignore Ctrl-C and the loss of a terminal, of which it tells all: this one ends
    them in order."""
    if threading.current_thread() is not threading.main_thread():  # only there can signals be set
        yield
        return
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in (signal.SIGINT, signal.SIGHUP)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


@contextmanager
def _remote(address: str, certified: Any) -> Iterator[Any]:
    import distributed

    connect: Any = distributed.Client

    try:
        with ThreadPoolExecutor(1) as apart:  # from a notebook, whose thread has an event loop already
            apart.submit(asyncio.run, _greet(address, certified)).result()
        client = connect(address, timeout=CONNECT_SECONDS, security=certified, set_as_default=False)
    except (OSError, ValueError) as error:
        raise EngineError(_unanswered(address, error)) from error
    with client:
        yield client


async def _greet(address: str, certified: Any) -> None:
    """Ask a scheduler what it is, in bounded time: a client would wait for ever for one that takes the connection and
    is silent."""
    from distributed.comm import core

    connect: Any = core.connect
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            comm = await connect(address, timeout=CONNECT_SECONDS, **certified.get_connection_args("client"))
            try:
                await comm.write({"op": "identity", "reply": True})
                met = (await comm.read())["type"]
            finally:
                comm.abort()
    except (OSError, ValueError):
        raise
    except Exception as error:  # another server sends what Dask takes for the lengths of messages, or their words
        raise EngineError(_other(address, "another server")) from error
    if met != "Scheduler":
        raise EngineError(_other(address, f"a {met}"))


def _other(address: str, met: str) -> str:
    """What is met at an address in the place of a scheduler, and the way out."""
    return (
        f"what answers at {address} is no Dask scheduler but {met}; give the port of the scheduler, most often 8786, "
        "not that of its dashboard"
    )


def _unanswered(address: str, error: Exception) -> str:
    """Why nobody is met at an address, and the way out."""
    from distributed.comm.core import CommClosedError

    said, met = str(error.__cause__ or error), isinstance(error, CommClosedError)
    if encrypted(address) and any(mark in said for mark in NO_TLS):
        return f"the scheduler at {address} does not speak TLS ({said}); an address without it begins with tcp://"
    if met and encrypted(address):
        return (
            f"the scheduler at {address} and this command do not accept each other's certificates ({said}); give "
            f"those of its cluster with {GIVE}"
        )
    if met:
        return (
            f"the scheduler at {address} ended the connection at once ({said}); if it needs certificates, give its "
            f"address as tls://HOST:PORT, with {GIVE}"
        )
    return (
        f"no Dask scheduler answers at {address} ({str(error) or 'it is silent'}); check the address, or start one "
        "with: dask scheduler"
    )
