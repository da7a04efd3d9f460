"""What a pass cost, and what an executor has."""

from __future__ import annotations

from dataclasses import dataclass, fields

from dlatent.engine.machine import memory


@dataclass(frozen=True)
class PassRecord:
    """What one pass cost.

    Parameters
    ----------
    name : str
        What the pass does.
    seconds : float
        Wall time.
    bytes_read : int
        Bytes of blocks loaded from their source; cached blocks cost none, blocks in memory count in the first pass
        only.
    blocks : int
        All blocks seen.
    cached : int
        Those that came from memory.
    tasks : int
        Tasks submitted.
    busy_seconds : float
        Time inside tasks, summed over workers.
    """

    name: str
    seconds: float
    bytes_read: int
    blocks: int
    cached: int
    tasks: int
    busy_seconds: float


@dataclass(frozen=True)
class PassCost:
    """The record of a pass or of a part of it, and what it counted beside (`Pass.count`)."""

    record: PassRecord
    counted: int

    def plus(self, other: PassCost) -> PassCost:
        """Both together."""
        one, two = self.record, other.record
        sums = (getattr(one, field.name) + getattr(two, field.name) for field in fields(one)[1:])
        return PassCost(PassRecord(one.name, *sums), self.counted + other.counted)


@dataclass(frozen=True)
class Resources:
    """What an executor has: worker processes, threads per worker, memory and cache bytes per worker process; of workers
    that are not there yet also the memory of the driver, the bytes that each gets in a second, and its price."""

    kind: str
    workers: int
    threads: int
    worker_memory: int | None
    cache_bytes: int
    driver: int | None = None
    bandwidth: float | None = None
    price: float | None = None

    @property
    def driver_memory(self) -> int:
        """Bytes of memory that the driver's process may use."""
        return self.driver or memory()

    @property
    def total_threads(self) -> int:
        """Block functions that can run at one time."""
        return self.workers * self.threads
