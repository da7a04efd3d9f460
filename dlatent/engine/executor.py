"""Executors within this process, through Dask's schedulers: on its threads, or one task after the other; and workers
that are not there yet."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
from operator import itemgetter
from threading import Lock, current_thread
from typing import Any, TypeAlias

from dask import threaded
from dask.local import get_sync
from dask.utils import parse_bytes

from dlatent.arrays import DataSource, Graph
from dlatent.engine.cache import CACHE
from dlatent.engine.fold import Share, Work, halt
from dlatent.engine.group import Targets, groups_of
from dlatent.engine.machine import before_pause, cache_share, current_worker, give_back, memory, processors
from dlatent.engine.task_graph import Layout, Ref, TaskGraph, TaskNode
from dlatent.errors import interrupt
from dlatent.passes import Resources

OnProgress: TypeAlias = Callable[[int, int], None]
"""Called with the steps done and all steps, perhaps from another thread."""
Take: TypeAlias = Callable[[Any], None]
"""Gets the values of a result in the place of the caller."""
Build: TypeAlias = Callable[[Layout], TaskGraph]
"""Makes the graph of a pass for the places where the groups lie now."""
LEAST = 2**20
"""Bytes of memory below which a number was meant in another unit."""
HERE = "here"
"""The home of all groups of this process."""

# Dask keeps its threads for later calls, but a forked process has none of those of its parent, and would wait for them.
os.register_at_fork(after_in_child=threaded.pools.clear)


def step_counter(total: int, tell: OnProgress | None) -> Callable[[int], None]:
    """A function that is told how many more steps are finished, for a progress display, from any thread."""
    lock, numbers = Lock(), count(1)

    def done(steps: int) -> None:
        for _ in range(steps if tell else 0):
            with lock:
                tell(next(numbers), total)  # type: ignore[misc]

    return done


def _counted(done: Callable[[int], None], steps: int, call: Callable[..., Any], *inputs: Any) -> Any:
    result = call(*inputs)
    done(steps)
    return result


def taken(take: Take, share: Share) -> Share:
    """An empty share with the cost of one whose values go to `take`."""
    values, tally = share
    take(values)
    return (), tally


class Local:
    """What executors whose tasks run in this process have in common.

    What every executor has: `resources`, and `groups`, those of its data source.
    """

    layout: Layout

    def __init__(self, source: DataSource, targets: Targets, graph: Graph | None, resources: Resources) -> None:
        self.resources, self.groups = resources, groups_of(source, targets, graph)
        # What the source and its edges are called in the cache.
        self._keys = [each.key for each in (self.groups[0], self.groups[0].graph) if each is not None]

    @property
    def nbytes(self) -> tuple[int, ...]:
        """Bytes of the blocks of each group."""
        return tuple(sum(block.nbytes for block in group.blocks) for group in self.groups)

    def called(self, task: TaskNode, work: Work) -> Callable[..., Any]:
        """The call of a task, which takes the results that are its inputs."""
        groups = [self.groups[at] if isinstance(at, int) else [self.groups[i] for i in at] for at in task.groups]
        return partial(task.call, work, *task.values, *groups)

    def homes(self) -> Sequence[str]:
        """The worker of each group."""
        return self.layout.homes

    def keep(self, cache_bytes: int) -> None:
        """Keep so many bytes of blocks between passes, in each process."""
        self.resources = replace(self.resources, cache_bytes=cache_bytes)
        CACHE.release(self._keys, cache_bytes)

    def forget(self) -> None:
        """Lose what is kept between passes."""
        CACHE.release(self._keys)

    def close(self) -> None:
        """Free what is kept between passes."""
        self.forget()
        give_back()


class InProcess(Local):
    """As many tasks at a time as there are processors; or `serial`, one, the reference that all executors must equal
    to the last bit."""

    def __init__(
        self, source: DataSource, targets: Targets, cache_bytes: int | None, graph: Graph | None, *, serial: bool
    ) -> None:
        limit, threads = memory(), 1 if serial else processors()
        cap = cache_share(limit) if cache_bytes is None else cache_bytes
        resources = Resources("serial" if serial else "threads", 1, threads, limit, cap, limit)
        super().__init__(source, targets, graph, resources)
        # A task costs next to nothing here: none takes several groups.
        self.layout = Layout(self.nbytes, (HERE,) * len(self.groups), {HERE: threads})
        self._get: Callable[..., Any] = get_sync if serial else partial(threaded.get, num_workers=threads)

    def available(self) -> Resources:
        """The resources that a plan may use: of the memory of a worker what is left before Dask pauses it."""
        worker = current_worker()
        return self.resources if worker is None else replace(self.resources, worker_memory=before_pause(worker)[0])

    def execute(
        self, build: Build, work: Work, tell: OnProgress | None = None, take: Take | None = None
    ) -> tuple[list[Any], int]:
        """The results of a graph, and the number of its tasks; with `take`, which gets the values of each result (a
        share) as soon as it is made, empty shares.

        An exception of a task reaches the caller as it is, stops the others at their next block, and leaves the
        executor usable.
        """
        task_graph, dask_graph = build(self.layout), dict[Any, Any]()
        done = None if tell is None else step_counter(task_graph.steps, tell)
        for number, task in enumerate(task_graph.tasks):
            call = self.called(task, work)
            if done is not None:
                call = partial(_counted, done, task.steps, call)
            dask_graph[Ref(number)] = (call, *task.inputs)
        wanted = list[Any](task_graph.results)
        for ref in chain(wanted, *(task.inputs for task in task_graph.tasks)):
            if ref.at is not None:
                dask_graph[ref] = (itemgetter(ref.at), Ref(ref.task))
        if take is not None:
            dask_graph |= {("taken", ref): (partial(taken, take), ref) for ref in wanted}
            wanted = [("taken", ref) for ref in wanted]
        try:
            results = self._get(dask_graph, wanted)
        except BaseException as error:
            halt(work.token)
            if not isinstance(error, Exception):
                interrupt()
            # Of a thread that was starting when a signal came the pool does not know: only so does it end, too.
            for pool in threaded.pools.pop(current_thread(), {}).values():
                pool.shutdown(wait=False)
            raise
        return list(results), len(task_graph.tasks)


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
        What each gets in a second from the store and from other workers, in bytes or as a text such as "200MB" or
        "200MB/s".  With it a plan has a duration.
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
        """Their resources, as numbers.

        Returns
        -------
        Resources
            Workers, threads, memory and bandwidth.

        Raises
        ------
        ValueError
            Where a value is not above 0, memory less than a MiB, or a text no size.
        """
        limit = int(self._bytes("memory", self.memory))
        driver = memory() if self.driver_memory is None else int(self._bytes("driver_memory", self.driver_memory))
        rate = self.bandwidth.removesuffix("/s") if isinstance(self.bandwidth, str) else self.bandwidth
        bandwidth = None if rate is None else self._bytes("bandwidth", rate)
        values = {"number": self.number, "threads": self.threads, "memory": limit, "driver_memory": driver}
        for name, value in {**values, "pause": self.pause, "bandwidth": bandwidth, "price": self.price}.items():
            if value is not None and not value > 0:
                raise ValueError(f"{name} of Workers must be above 0; got {getattr(self, name)!r}")
        for name, size in (("memory", limit), ("driver_memory", driver)):
            if size is not None and size < LEAST:
                said = f"{name} of Workers is {getattr(self, name)!r}, which is {size} bytes"
                raise ValueError(f"{said}; give a text such as '8GiB'")
        return Resources("cluster", self.number, self.threads, limit, cache_share(limit), driver, bandwidth, self.price)

    @staticmethod
    def _bytes(name: str, value: float | str) -> float:
        """A size in bytes.  Errors: ValueError, with the name of the argument."""
        try:
            return float(parse_bytes(value))
        except (ValueError, AttributeError):
            raise ValueError(
                f"{name} of Workers is {value!r}; give bytes, or a text such as '8GiB' or '200MB'"
            ) from None


class Planned(InProcess):
    """Has what workers would have that are not there; what a plan must know of a graph is read in this process."""

    def __init__(self, workers: Workers, source: DataSource, targets: Targets, graph: Graph | None) -> None:
        resources = workers.resources()
        super().__init__(source, targets, None, graph, serial=False)
        self.resources, self._workers = resources, workers

    def available(self) -> Resources:
        """The resources that a plan may use, as nothing lies on the workers."""
        return replace(self.resources, worker_memory=int(self._workers.pause * (self.resources.worker_memory or 0)))

    def homes(self) -> Sequence[str]:
        """The worker that each group would have."""
        workers = {f"worker {number:09}": self._workers.threads for number in range(self._workers.number)}
        return place(len(self.groups), workers, ())


def place(groups: int, workers: Mapping[str, int], before: Sequence[str]) -> list[str]:
    """Give every group a home among `workers` (address → threads), as many to each as its share of the threads.

    A group keeps the home it had `before` while that worker lives and has room; the others fill the workers from the
    first to the last, so that at the start each has one contiguous range. Results do not depend on homes.
    """
    threads, seen, room = sum(workers.values()), 0, dict[str, int]()
    for worker in sorted(workers):  # by the sorted addresses only, and so that they add up to `groups`
        room[worker] = groups * (seen + workers[worker]) // threads - groups * seen // threads
        seen += workers[worker]
    homes = list[str | None]()
    for group in range(groups):
        home = before[group] if group < len(before) else ""
        stays = room.get(home, 0) > 0
        homes.append(home if stays else None)
        if stays:
            room[home] -= 1
    vacancies = iter([worker for worker, places in room.items() for _ in range(places)])
    return [next(vacancies) if home is None else home for home in homes]
