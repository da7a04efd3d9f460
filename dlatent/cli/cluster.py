"""Where a command computes: the threads of this process, a cluster started for it, or one that is there already."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from dlatent.cli.arguments import UsageError
from dlatent.engine.local import local_workers
from dlatent.errors import EngineError

CONNECT_SECONDS = 15


@contextmanager
def connected(arguments: argparse.Namespace) -> Iterator[Any]:
    """A `distributed.Client` for the command, or None for the threads of this process; a cluster made here ends here.

    Errors: UsageError for options of workers without workers; EngineError where the scheduler cannot be reached.
    """
    own = arguments.workers is not None
    if not own and (arguments.threads_per_worker is not None or arguments.memory_limit is not None):
        raise UsageError("--threads-per-worker and --memory-limit describe new workers; give --workers N with them")
    if own:
        with _local(arguments) as client:
            yield client
    elif arguments.scheduler is not None:
        with _patient(arguments.wait), _remote(arguments.scheduler) as client:
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
        yield client


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Let processes that are started now ignore Ctrl-C, which a terminal sends to all: this one ends them in order."""
    if threading.current_thread() is not threading.main_thread():  # only there can signals be set
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _remote(address: str) -> Iterator[Any]:
    import distributed

    connect: Any = distributed.Client

    try:
        client = connect(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise EngineError(
            f"no Dask scheduler answers at {address} ({error}); check the address, or start one with: dask scheduler"
        ) from error
    with client:
        yield client
