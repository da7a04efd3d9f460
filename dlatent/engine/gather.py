"""What a pass over the data is: the protocol of every engine, and the laws that all of them obey.

Laws (tested in tests/engine):
1. `gather(f, p)` = combine over all blocks of f(block, p), in one fixed order that depends on the blocks alone.
2. The result does not depend, to the last bit, on the engine, the number of workers or threads, on caching or on a lost
   worker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from dlatent.arrays import Block, Form, add
from dlatent.engine.machine import memory

S = TypeVar("S")
P = TypeVar("P")


@dataclass(frozen=True)
class PassRecord:
    """What one pass cost.

    `bytes_read`: bytes of blocks loaded from their source (cached blocks cost none, blocks in memory count in the first
    pass only); `blocks` all blocks seen, `cached` those that came from memory; `tasks` tasks submitted; `seconds` wall
    time; `busy_seconds` time inside tasks, summed over workers.
    """

    name: str
    seconds: float
    bytes_read: int
    blocks: int
    cached: int
    tasks: int
    busy_seconds: float


@dataclass(frozen=True)
class Resources:
    """What an engine has: worker processes, threads per worker, memory and cache bytes per worker process."""

    kind: str
    workers: int
    threads: int
    worker_memory: int | None
    cache_bytes: int

    @property
    def driver_memory(self) -> int:
        """Bytes of memory that the driver's process may use."""
        return memory()

    @property
    def total_threads(self) -> int:
        """Block functions that can run at one time."""
        return self.workers * self.threads


class Engine(Protocol):
    """Runs passes over one data source."""

    passes: list[PassRecord]

    @property
    def resources(self) -> Resources:
        """Workers, threads and memory that the passes can use."""
        ...

    def gather(
        self,
        function: Callable[[Block, P], S],
        parameters: P,
        *,
        combine: Callable[[S, S], S] = add,
        form: Form | None = None,
        name: str = "pass",
    ) -> S:
        """One pass: apply `function` to every block, in the `form` asked for or in that of the source, and combine in
        the fixed order."""
        ...

    def close(self) -> None:
        """Free the cached blocks of this source on every worker."""
        ...


__all__ = ["Any", "Engine", "PassRecord", "Resources"]
