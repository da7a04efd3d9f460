"""What a pass cost, and workers that are not there yet."""

from __future__ import annotations

from dataclasses import dataclass, fields

from dask.utils import parse_bytes

from dlatent.engine.machine import cache_share, memory
from dlatent.passes import Resources


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
        sums = (getattr(one, each.name) + getattr(two, each.name) for each in fields(one)[1:])
        return PassCost(PassRecord(one.name, *sums), self.counted + other.counted)


@dataclass(frozen=True)
class Workers:
    """Workers that are not there yet, to plan for before they are rented.

    ``model.plan(X, client=Workers(64, "8GiB", bandwidth="200MB"))`` says whether a fit would have enough memory there,
    and about how long it would take.

    Parameters
    ----------
    number : int
        Worker processes.
    memory : int or str
        Memory of each, in bytes or as a text such as "8GiB".
    threads : int, default 1
        Threads of each.
    driver_memory : int or str, optional
        Memory of the driver; None: what this process may use.
    bandwidth : float or str, optional
        What each gets in a second from the store and from other workers, in bytes or as a text such as "200MB".  With
        it a plan has a duration.
    price : float, optional
        What one costs for an hour, in any currency.
    pause : float, default 0.8
        Part of its memory at which Dask pauses a worker (`distributed.worker.memory.pause`): a plan stays below it.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import PPCA, Workers
    >>> plan = PPCA(5).plan(np.ones((1000, 20)), client=Workers(4, "2GiB", bandwidth="100MB"))
    >>> plan.machine
    'cluster, 4 workers × 1 thread'
    """

    number: int
    memory: int | str
    threads: int = 1
    driver_memory: int | str | None = None
    bandwidth: float | str | None = None
    price: float | None = None
    pause: float = 0.8

    def resources(self) -> Resources:
        """What they have, as numbers.

        Returns
        -------
        Resources
            Workers, threads, memory and bandwidth.

        Raises
        ------
        ValueError
            Where a value is not above 0, or a text is no size.
        """
        limit = int(parse_bytes(self.memory))
        driver = memory() if self.driver_memory is None else int(parse_bytes(self.driver_memory))
        bandwidth = None if self.bandwidth is None else float(parse_bytes(self.bandwidth))
        values = {"number": self.number, "threads": self.threads, "memory": limit, "driver_memory": driver}
        for name, value in {**values, "pause": self.pause, "bandwidth": bandwidth, "price": self.price}.items():
            if value is not None and not value > 0:
                raise ValueError(f"{name} of Workers must be above 0; got {getattr(self, name)!r}")
        return Resources("cluster", self.number, self.threads, limit, cache_share(limit), driver, bandwidth, self.price)
