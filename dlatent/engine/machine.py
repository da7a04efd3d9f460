"""This process and the resources that its machine grants: versions, processors and bytes of memory, with containers,
inside a task of a Dask worker what the worker has; freed memory that it keeps; and workers on this machine.

Pages that the system has just cleared cost more than the arithmetic on them.  A block function makes and frees the same
temporary arrays for every block.  glibc gives each of them back to the system and asks for it again where
`MALLOC_TRIM_THRESHOLD_` is set, as distributed does for its workers.  A process that works on a group keeps a few
mebibytes, or a few blocks where its environment allows for it, until the end of a fit.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dask
import psutil
from dask.system import cpu_count

PACKAGES = ("dlatent", "numpy", "scipy")
"""Packages that decide the bits of a result."""
CACHE_SHARE = 0.4
"""Share of a worker's memory that cached blocks may fill; the rest is for statistics and blocks in flight."""
FRESH_WORKER = 200 * 2**20
"""Memory of a worker that has done nothing; plans count it as a part of a fit (`solvers.costs.WORKER_BASE`)."""
VERSION_1 = ("memory.limit_in_bytes", "memory.soft_limit_in_bytes")
VERSION_2 = ("memory.max", "memory.high")
"""Where the control groups of Linux keep their limits, hard and soft; above a soft one the kernel slows processes."""
NO_LIMIT = 2**60
"""The kernel says "no limit" by a number of about 2⁶³."""


def current_worker() -> Any:
    """The Dask worker whose task this thread runs, or None; looks without importing `distributed`."""
    distributed: Any = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.get_worker()
    except (ValueError, AttributeError):
        return None


@cache
def versions() -> dict[str, str]:
    """The versions in this process of what decides the bits of a result."""
    return {name: version(name) for name in PACKAGES}


def processors() -> int:
    """Processors that this process may use (affinity and container limits respected)."""
    worker = current_worker()
    return max(1, int(cpu_count() if worker is None else worker.state.nthreads))


def memory() -> int:
    """Bytes of memory that this process may use: of the machine, or of its container where that is less."""
    worker = current_worker()
    if worker is not None and worker.memory_manager.memory_limit:
        return int(worker.memory_manager.memory_limit)
    return granted()


def granted() -> int:
    """Bytes of memory of the machine, of the container, or that a batch system allows, for all workers in it."""
    # Dask's own limit takes a third of a second to import, and looks at the root of the control groups alone.
    limits = [int(psutil.virtual_memory().total), control_group_limit() or NO_LIMIT]
    if sys.platform != "win32":
        import resource  # which Windows has not

        allowed = resource.getrlimit(resource.RLIMIT_RSS)[1]
        limits.append(allowed if allowed > 0 else NO_LIMIT)
    return min(limits)


def control_group_limit(process: Path = Path("/proc/self"), top: Path = Path("/sys/fs/cgroup")) -> int | None:
    """The least limit in bytes, hard or soft, of the control group of a process (its folder in /proc) and of all groups
    above it, of version 1 or 2; None where there is no limit, and on systems without control groups.

    A container may see its own group only, as the top, under the path of another name space: what is not there is
    skipped.
    """
    try:
        groups = (process / "cgroup").read_text().splitlines()
    except OSError:
        return None
    limits = list[int]()
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, names = (top / "memory", VERSION_1) if controllers else (top, VERSION_2)
        group = root if ".." in path else root / path.lstrip("/")
        for folder in (group, *group.parents):
            for name in names:
                with suppress(OSError, ValueError):  # "max" is no number, and no limit
                    limits.append(int((folder / name).read_text()))
            if folder == root:
                break
    return min((limit for limit in limits if 0 < limit < NO_LIMIT), default=None)


def before_pause(worker: Any) -> tuple[int | None, bool]:
    """Bytes that a Dask worker may hold before Dask pauses it, or its nanny ends it, None without a limit; and whether
    Dask looks at all."""
    manager = worker.memory_manager
    ends = dask.config.get("distributed.worker.memory.terminate", None) if worker.nanny else None
    parts = [float(part) for part in (manager.memory_pause_fraction, ends) if part]
    limit: int | None = manager.memory_limit
    return int(min(parts, default=1.0) * limit) if limit else None, bool(parts)


def cache_share(worker_memory: int | None) -> int:
    """Default bytes of cache for a worker with this much memory; 1 GB where its memory is not known."""
    return 1_000_000_000 if worker_memory is None else int(CACHE_SHARE * worker_memory)


TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""
KEPT = 8 * 2**20
"""Bytes up to which an array is kept in the environment that distributed makes for workers; of what is free a thread
keeps at most twice as many."""
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Setting that lets glibc (2.35 or newer) ask the system for huge pages, where it gives them to those who ask.  NumPy
asks by itself; else what a store decodes comes in small pages, of which each costs more than the bytes on it."""
MOST_KEPT = 32 * 2**20
"""Elsewhere: the largest value that glibc takes for this.  It comes to it by itself when an array of this size was
freed, but slowly: threads wait for each other meanwhile, as one at a time may change the pages of their process."""


def worker_environment(threads: int = 1) -> dict[str, str]:
    """Return the environment variables of a worker of so many threads, before it starts: huge pages, and whole blocks
    that are kept for the next.

    Every thread keeps what it has freed.  So that these are few, Zarr decodes with as many threads as the worker
    computes with, and not with one for each core of the machine and four more.
    """
    return HUGE_PAGES | {"MALLOC_MMAP_THRESHOLD_": str(MOST_KEPT), "ZARR_THREADING__MAX_WORKERS": str(threads)}


@cache
def keep_freed() -> None:
    """Keep freed memory in this process from now on, as much as its environment allows for.

    distributed sets MALLOC_TRIM_THRESHOLD_, with which glibc keeps none and no longer adjusts itself; its nannies leave
    that in the environment of the driver, too, where it wins over what later workers should have.
    """
    trim, mmap = (os.environ.get(f"MALLOC_{name}_THRESHOLD_", "") for name in ("TRIM", "MMAP"))
    mallopt, kept = _function("mallopt"), MOST_KEPT
    if trim.isdigit():
        kept = max(KEPT, int(mmap)) if mmap.isdigit() else KEPT
    elif mmap or "threshold" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    if mallopt is not None:
        mallopt(TRIM_THRESHOLD, 2 * kept)
        mallopt(MMAP_THRESHOLD, kept)


def give_back() -> None:
    """Give the system what is free."""
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


@cache
def _function(name: str) -> Any:
    """A function of glibc; None where there is none."""
    return getattr(ctypes.CDLL(None), name, None) if os.name == "posix" else None


NO_HANGS: dict[str, Any] = {} if sys.version_info >= (3, 12) else {"distributed.worker.profile.enabled": False}
"""Settings of Dask without which a worker can hang for ever on CPython 3.11, when Dask's profiler looks at all threads
while one of them starts or ends (python/cpython#106883)."""

FEWER_TICKS = {"distributed.admin.tick.interval": "500ms"}
"""Dask looks 50 times a second whether its event loops still turn, which takes 1 to 2 % of a core in every process; on
one machine these are the cores that compute."""


def recommended(threads: int = 1) -> dict[str, Any]:
    """Settings of Dask for new workers on this machine: `NO_HANGS`, `FEWER_TICKS`, and `worker_environment`, in which
    variables of the user win."""
    environment = worker_environment(threads).items()
    return (
        NO_HANGS | FEWER_TICKS | {f"distributed.nanny.pre-spawn-environ.{name}": value for name, value in environment}
    )


@contextmanager
def local_workers(workers: int, threads: int = 1, memory_limit: str = "auto") -> Iterator[Any]:
    """The client of so many new worker processes in the `recommended` environment, which end with the context.

    With "auto" they share what this process may use; Dask's own "auto" sees the limits of some containers only.
    Errors: ValueError where Dask cannot make sense of the memory limit.
    """
    import distributed  # late: it costs a third of a second

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
