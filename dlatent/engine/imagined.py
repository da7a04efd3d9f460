"""Workers that are not there yet, for plans."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dask.utils import parse_bytes

from dlatent.arrays import DataSource, Graph
from dlatent.engine.in_process import InProcess
from dlatent.engine.machine import cache_share, memory
from dlatent.engine.placement import place
from dlatent.engine.targets import Targets
from dlatent.passes import Resources


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
        values = {
            "number": self.number,
            "threads": self.threads,
            "memory": limit,
            "driver_memory": driver,
            "pause": self.pause,
        }
        for name, value in {**values, "bandwidth": bandwidth, "price": self.price}.items():
            if value is not None and not value > 0:
                raise ValueError(f"{name} of Workers must be above 0; got {getattr(self, name)!r}")
        return Resources("cluster", self.number, self.threads, limit, cache_share(limit), driver, bandwidth, self.price)


class Imagined(InProcess):
    """Has what the workers would have; what a plan must know of a graph is read in this process."""

    def __init__(self, workers: Workers, source: DataSource, targets: Targets, graph: Graph | None) -> None:
        resources = workers.resources()
        self._workers = {f"worker {number:09}": workers.threads for number in range(workers.number)}
        super().__init__(source, targets, None, graph, serial=False)
        self.resources, self._pause = resources, workers.pause

    def available(self) -> Resources:
        """What a plan may use, as nothing lies on the workers."""
        return replace(self.resources, worker_memory=int(self._pause * (self.resources.worker_memory or 0)))

    def homes(self) -> list[str]:
        """The worker that each group would have."""
        return place(len(self.parts), self._workers, ())
