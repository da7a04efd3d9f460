"""What this process is, and what its machine grants it: versions, processors and bytes of memory, containers included;
inside a task of a Dask worker, what the worker has."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dask
from dask.system import cpu_count

PACKAGES = ("dlatent", "numpy", "scipy")
"""What decides the bits of a result."""
CACHE_SHARE = 0.4
"""Share of a worker's memory that cached blocks may fill; the rest is for statistics and blocks in flight."""
FRESH_WORKER = 200 * 2**20
"""What a worker that has done nothing holds, which plans count as a part of a fit (`fitting.costs.WORKER_BASE`)."""
NO_LIMIT = 2**60
"""The kernel says "no limit" by a number of about 2⁶³."""


def own_worker() -> Any:
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
    worker = own_worker()
    return max(1, int(cpu_count() if worker is None else worker.state.nthreads))


def memory() -> int:
    """Bytes of memory that this process may use: of the machine, or of its container where that is less."""
    worker = own_worker()
    if worker is not None and worker.memory_manager.memory_limit:
        return int(worker.memory_manager.memory_limit)
    return granted()


def granted() -> int:
    """Bytes of memory of the machine, or of the container, for all workers in it."""
    from distributed.system import memory_limit  # imported late: it costs a third of a second

    # Dask looks at the root of the control groups alone, which is that of the process in some containers only.
    return min(int(memory_limit()), control_group_limit() or NO_LIMIT)


def control_group_limit(process: Path = Path("/proc/self"), top: Path = Path("/sys/fs/cgroup")) -> int | None:
    """The least limit in bytes of the control group of a process (its folder in /proc) and of all groups above it, of
    version 1 or 2; None where there is no limit, and on systems without control groups.

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
        root, name = (top / "memory", "memory.limit_in_bytes") if controllers else (top, "memory.max")
        group = root if ".." in path else root / path.lstrip("/")
        for folder in (group, *group.parents):
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
