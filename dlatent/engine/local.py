"""A cluster of worker processes on this machine, for as long as it is needed."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dlatent.engine.malloc import worker_environment

NO_HANGS: dict[str, Any] = {} if sys.version_info >= (3, 12) else {"distributed.worker.profile.enabled": False}
"""Settings of Dask without which a worker can hang for ever on CPython 3.11, when Dask's profiler looks at all threads
while one of them starts or ends (python/cpython#106883)."""

FEWER_TICKS = {"distributed.admin.tick.interval": "500ms"}
"""Dask looks 50 times a second whether its event loops still turn, which takes 1 to 2 % of a core in every process; on
one machine these are the cores that compute."""


def recommended(threads: int = 1) -> dict[str, Any]:
    """Settings of Dask for new workers on this machine: `NO_HANGS`, `FEWER_TICKS`, and `worker_environment`, in which
    variables of the user win."""
    environment = worker_environment(threads)
    return (
        NO_HANGS
        | FEWER_TICKS
        | {f"distributed.nanny.pre-spawn-environ.{name}": value for name, value in environment.items()}
    )


@contextmanager
def local_workers(workers: int, threads: int = 1, memory_limit: str = "auto") -> Iterator[Any]:
    """The client of so many new worker processes in the `recommended` environment, which end with the context.

    With "auto" they share what this process may use; Dask's own "auto" sees the limits of some containers only.
    Errors: ValueError where Dask cannot make sense of the memory limit.
    """
    import dask
    import distributed

    from dlatent.engine.machine import granted  # imported late, as it imports Dask

    start: Any = distributed.LocalCluster  # neither has types
    connect: Any = distributed.Client
    with tempfile.TemporaryDirectory(prefix="dlatent-", ignore_cleanup_errors=True) as scratch:
        with dask.config.set(recommended(threads)):
            cluster = start(
                n_workers=workers,
                threads_per_worker=threads,
                memory_limit=granted() // workers if memory_limit == "auto" else memory_limit,
                # Any free port, so that two clusters do not meet; without a host the whole network could look.
                dashboard_address="127.0.0.1:0",
                local_directory=scratch,
                silence_logs=logging.CRITICAL,  # what matters arrives as an EngineError
            )
        with cluster, connect(cluster, set_as_default=False) as client:
            yield client
