"""What this machine grants this process: processors and bytes of memory, containers included."""

from __future__ import annotations

from dask.system import cpu_count

CACHE_SHARE = 0.4
"""Share of a worker's memory that cached blocks may fill; the rest is for statistics and blocks in flight."""


def processors() -> int:
    """Processors that this process may use (affinity and container limits respected)."""
    return max(1, int(cpu_count()))


def memory() -> int:
    """Bytes of memory that this process may use: of the machine, or of its container where that is less."""
    from distributed.system import memory_limit  # imported late: it costs a third of a second

    return int(memory_limit())


def cache_share(worker_memory: int | None) -> int:
    """Default bytes of cache for a worker with this much memory; 1 GB where its memory is not known."""
    return 1_000_000_000 if worker_memory is None else int(CACHE_SHARE * worker_memory)
