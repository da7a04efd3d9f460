"""What this machine grants this process: processors and bytes of memory, containers included; inside a task of a Dask
worker, what the worker has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask
from dask.system import cpu_count

from dlatent.engine.malloc import give_back
from dlatent.engine.nested import own_worker

CACHE_SHARE = 0.4
"""Share of a worker's memory that cached blocks may fill; the rest is for statistics and blocks in flight."""
FRESH_WORKER = 200 * 2**20
"""What a worker that has done nothing holds, which plans count as a part of a fit (`fitting.costs.WORKER_BASE`)."""
NO_LIMIT = 2**60
"""The kernel says "no limit" by a number of about 2⁶³."""


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
    return min(int(memory_limit()), control_group_limit(Path("/proc/self")) or NO_LIMIT)


def control_group_limit(process: Path) -> int | None:
    """The least limit in bytes of the control group of a process (its folder in /proc) and of all groups above it, of
    version 1 or 2; None where there is no limit, and on systems without control groups."""
    try:
        groups = (process / "cgroup").read_text().splitlines()
        mounts = (process / "mountinfo").read_text().splitlines()
    except OSError:
        return None
    limits: list[int] = []
    for name, folder, top in _memory_groups(groups, mounts):
        for group in (folder, *folder.parents):
            with suppress(OSError, ValueError):  # "max" is no number, and no limit
                limits.append(int((group / name).read_text()))
            if group == top:
                break
    return min((limit for limit in limits if 0 < limit < NO_LIMIT), default=None)


def _memory_groups(groups: list[str], mounts: list[str]) -> Iterator[tuple[str, Path, Path]]:
    """The name of the file with the limit, the folder of the process's own group, and that of the highest group."""
    own: dict[str, str] = {}
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            own["cgroup" if controllers else "cgroup2"] = path
    for line in mounts:
        place, _, kind = line.partition(" - ")
        root, top = (_unescaped(field) for field in place.split()[3:5])
        system, _, options = kind.split()[:3]
        if system not in own or (system == "cgroup" and "memory" not in options.split(",")):
            continue
        name = "memory.max" if system == "cgroup2" else "memory.limit_in_bytes"
        folder = Path(top)
        # A container may see its own group only, as the root of the mount, under the path of another name space.
        with suppress(ValueError):
            inside = Path(own[system]).relative_to(root)
            if ".." not in inside.parts:
                folder /= inside
        yield name, folder, Path(top)


def _unescaped(field: str) -> str:
    """A path of mountinfo, where spaces and the like are octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


def before_pause(worker: Any) -> tuple[int | None, bool]:
    """Bytes that a Dask worker may hold before Dask pauses it, or its nanny ends it, None without a limit; and whether
    Dask looks at all."""
    manager = worker.memory_manager
    ends = dask.config.get("distributed.worker.memory.terminate", None) if worker.nanny else None
    parts = [float(part) for part in (manager.memory_pause_fraction, ends) if part]
    limit: int | None = manager.memory_limit
    return int(min(parts, default=1.0) * limit) if limit else None, bool(parts)


def worker_state(dask_worker: Any) -> tuple[int | None, int]:
    """In a Dask worker: what it may hold, and the bytes that its process holds beyond those of a fresh one."""
    most, watched = before_pause(dask_worker)
    give_back()
    return most, max(0, int(dask_worker.monitor.get_process_memory()) - FRESH_WORKER) if watched else 0


def cache_share(worker_memory: int | None) -> int:
    """Default bytes of cache for a worker with this much memory; 1 GB where its memory is not known."""
    return 1_000_000_000 if worker_memory is None else int(CACHE_SHARE * worker_memory)
