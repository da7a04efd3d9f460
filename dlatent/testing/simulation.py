"""A cluster that is simulated in this process, under a clock of its own: for tests of models, of passes and of
executors.

The task graphs are those that real workers get, and one task is called after the other.  A seed decides how long each
takes, and so in which order they end; which workers are slow, come late, die with all results that they hold, and come
back; which tasks run twice, and when blocks that were kept are gone.  Nothing waits, as time is virtual.  The same seed
does the same again, to the bit.

A result that is lost is made again, from what made it.  What goes to another worker or to the driver is a copy; a task
that changes its first input in place (`TaskNode.updates`) uses it up.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any

import numpy as np

from dlatent.arrays import DataSource, Graph
from dlatent.engine.executor import Build, Local, OnProgress, Take, place, step_counter, taken
from dlatent.engine.fold import Work, halt
from dlatent.engine.group import Targets
from dlatent.engine.task_graph import Layout, TaskGraph
from dlatent.errors import EngineError
from dlatent.passes import Resources

MEMORY = 2**30
"""Bytes of a simulated worker, and of the driver."""
SLOWEST = 5.0
"""How many times as long as the quickest worker the slowest takes."""
AT_HOME = 0.8
"""Part of the tasks that go to their home where it is free."""
AWAY = 3.0
"""How long a worker that has died is away, in the time of a task."""


class DriverDied(Exception):
    """The driver of a simulated cluster has died: nothing that it knew is left but what was written."""


@dataclass(frozen=True)
class SimulatedCluster:
    """Workers that do not exist, to be given as `client`.

    Parameters
    ----------
    seed : int
        Decides all that happens.
    workers, threads : int
        Their number, and the tasks that each works on at a time.
    deaths : float
        How many workers die in a pass, on average.
    repeats : float
        How likely a task is given to a second worker, too, so that its result may come twice.
    forgotten : float
        How likely all blocks that are kept between passes are gone when a task begins.
    late : float
        How long the workers but the first stay away at the start, on average, in the time of a task.
    driver_tasks, scheduler_tasks : int, optional
        After so many tasks of all passes the driver dies, by `DriverDied`, or the scheduler, by `EngineError`.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import PPCA, open_data
    >>> from dlatent.testing import SimulatedCluster
    >>> X = np.random.default_rng(0).normal(size=(300, 4))
    >>> data = open_data(X, block_bytes=640)
    >>> found, expected = (PPCA(1).fit(data, client=where) for where in (SimulatedCluster(seed=7), "serial"))
    >>> bool((found.components_ == expected.components_).all())
    True
    """

    seed: int
    workers: int = 3
    threads: int = 2
    deaths: float = 1.0
    repeats: float = 0.05
    forgotten: float = 0.05
    late: float = 0.0
    driver_tasks: int | None = None
    scheduler_tasks: int | None = None

    def open_executor(
        self, source: DataSource, targets: Targets = None, cache_bytes: int | None = None, graph: Graph | None = None
    ) -> SimulatedExecutor:
        """An executor over data."""
        return SimulatedExecutor(self, source, targets, cache_bytes, graph)


class SimulatedExecutor(Local):
    """Passes on a simulated cluster."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        source: DataSource,
        targets: Targets,
        cache_bytes: int | None,
        graph: Graph | None,
    ) -> None:
        self.cluster, self.rng, self.ended = cluster, np.random.default_rng(cluster.seed), 0
        cap = MEMORY // 2 if cache_bytes is None else cache_bytes
        resources = Resources("cluster", cluster.workers, cluster.threads, MEMORY, cap, MEMORY)
        super().__init__(source, targets, graph, resources)
        names = [f"worker {number}" for number in range(cluster.workers)]
        self.slowness = dict(zip(names, self.rng.uniform(1.0, SLOWEST, len(names)).tolist(), strict=True))
        threads, bundled = dict.fromkeys(names, cluster.threads), bool(self.rng.random() < 0.5)
        self.late = dict(zip(names[1:], self.rng.exponential(cluster.late, len(names) - 1).tolist(), strict=True))
        self.layout = Layout(self.nbytes, tuple(place(len(self.groups), threads, ())), threads, bundled)

    def available(self) -> Resources:
        """The resources that a plan may use."""
        return self.resources

    def execute(
        self, build: Build, work: Work, tell: OnProgress | None = None, take: Take | None = None
    ) -> tuple[list[Any], int]:
        """The results of a graph, and the number of its tasks; as `InProcess.execute`."""
        graph = build(self.layout)
        try:
            return _Attempt(self, graph, work, tell, take).results(), len(graph.tasks)
        except Exception as error:
            halt(work.token)
            error.add_note(f"simulated with seed {self.cluster.seed}")
            raise


@dataclass
class _Worker:
    """One that may be there, with the tasks that it works on; `life` counts its deaths."""

    there: bool = True
    life: int = 0
    busy: int = 0


@dataclass(order=True)
class _Event:
    """What happens at a time: a task ends on a worker in one of its lives, or, without a task, the worker comes."""

    time: float
    order: int
    worker: str = field(compare=False)
    life: int = field(compare=False)
    task: int | None = field(compare=False, default=None)
    inputs: tuple[Any, ...] = field(compare=False, default=())


def _copied(value: Any) -> Any:
    """What arrives where a value was sent."""
    return pickle.loads(pickle.dumps(value, protocol=5))


class _Attempt:
    """One graph on the way."""

    def __init__(
        self, executor: SimulatedExecutor, graph: TaskGraph, work: Work, tell: OnProgress | None, take: Take | None
    ) -> None:
        self.executor, self.graph, self.work, self.rng, self.take = executor, graph, work, executor.rng, take
        self.done = step_counter(graph.steps, tell)
        self.workers = {name: _Worker() for name in executor.slowness}
        self.held: dict[int, tuple[str, Any]] = {}
        self.running: dict[int, int] = {}
        self.came: dict[int, Any] = {}
        self.told = set[int]()
        self.ended, deaths = count(), self.rng.poisson(executor.cluster.deaths)
        self.fatal = set(self.rng.integers(0, len(graph.tasks), deaths).tolist())
        self.events, self.now, self.order = list[_Event](), 0.0, count()
        while executor.late:
            name, comes = executor.late.popitem()
            self.workers[name].there = False
            heappush(self.events, _Event(comes, next(self.order), name, 0))

    def results(self) -> list[Any]:
        """What the caller wants, once all of it has come."""
        wanted = {ref.task for ref in self.graph.results}
        while wanted - self.came.keys():
            for number in self._ready(wanted - self.came.keys()):
                self._start(number)
            if not self.events:
                raise EngineError("nothing is left that may happen, and results are missing")
            event = heappop(self.events)
            self.now, worker = event.time, self.workers[event.worker]
            if event.task is None:
                worker.there = True
            elif event.life == worker.life:
                self._end(event, worker)
        return [self.came[ref.task] if ref.at is None else self.came[ref.task][ref.at] for ref in self.graph.results]

    def _ready(self, wanted: set[int]) -> Iterator[int]:
        """The tasks that may begin, of those whose results are missing for what is wanted."""
        waiting, seen = sorted(wanted, reverse=True), set[int]()
        while waiting:
            number = waiting.pop()
            if number in seen or number in self.running or number in self.held:
                continue
            seen.add(number)
            lacking = [source for source in self.graph.tasks[number].sources if source not in self.held]
            if not lacking:
                yield number
            waiting += reversed(lacking)

    def _start(self, number: int) -> None:
        """Give a task to its home, or to another worker, or to two."""
        task, threads = self.graph.tasks[number], self.executor.cluster.threads
        free = [name for name, worker in self.workers.items() if worker.there and worker.busy < threads]
        if not free:
            return
        self.rng.shuffle(free)
        if task.home in free and self.rng.random() < AT_HOME:
            free.remove(task.home)
            free.insert(0, task.home)
        twice = not task.updates and self.rng.random() < self.executor.cluster.repeats
        for name in free[: 1 + twice]:
            inputs = []
            for ref in task.inputs:
                holder, value = self.held[ref.task]
                value = value if ref.at is None else value[ref.at]
                inputs.append(value if holder == name else _copied(value))
            if task.updates and self.held[task.inputs[0].task][0] == name and task.inputs[0].at is None:
                del self.held[task.inputs[0].task]
            worker = self.workers[name]
            worker.busy += 1
            self.running[number] = self.running.get(number, 0) + 1
            ends = self.now + self.rng.exponential(self.executor.slowness[name])
            heappush(self.events, _Event(ends, next(self.order), name, worker.life, number, tuple(inputs)))

    def _end(self, event: _Event, worker: _Worker) -> None:
        """Call a task, keep its result where it was made, and bring it to the caller where that is wanted."""
        assert event.task is not None
        executor, cluster, number = self.executor, self.executor.cluster, event.task
        task = self.graph.tasks[number]
        if self.rng.random() < cluster.forgotten:
            executor.forget()
        result = executor.called(task, self.work)(*event.inputs)
        worker.busy -= 1
        self._ended(number)
        if number not in self.held and number not in self.came:
            self.held[number] = event.worker, result
        if number not in self.told:
            self.told.add(number)
            self.done(task.steps)
        if any(ref.task == number for ref in self.graph.results):
            came = _copied(result)
            self.came[number] = came if self.take is None else taken(self.take, came)
        executor.ended += 1
        if cluster.driver_tasks is not None and executor.ended > cluster.driver_tasks:
            raise DriverDied(f"the driver died after {cluster.driver_tasks} tasks")
        if cluster.scheduler_tasks is not None and executor.ended > cluster.scheduler_tasks:
            raise EngineError(f"the scheduler ended after {cluster.scheduler_tasks} tasks; fit again")
        if next(self.ended) in self.fatal:
            self._die(event.worker, worker)

    def _ended(self, number: int) -> None:
        self.running[number] -= 1
        if not self.running[number]:
            del self.running[number]

    def _die(self, name: str, worker: _Worker) -> None:
        """Lose what a worker holds and works on; another one comes in its place."""
        self.held = {number: (holder, value) for number, (holder, value) in self.held.items() if holder != name}
        for event in self.events:
            if event.worker == name and event.task is not None and event.life == worker.life:
                self._ended(event.task)
        worker.there, worker.life, worker.busy = False, worker.life + 1, 0
        comes = self.now + self.rng.exponential(AWAY)
        heappush(self.events, _Event(comes, next(self.order), name, worker.life))
        self.executor.forget()
