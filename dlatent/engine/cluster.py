"""Passes on a Dask cluster, through a `distributed.Client`.

What a lost worker must not take away is made by tasks, which the scheduler can run again: the descriptions of the
groups and the parameters of a pass are results of tasks (data that is scattered dies with its worker). Homes are a
preference, so that a group finds its blocks in the cache of its worker, and goes elsewhere when that worker is gone.
Where nothing is kept between passes groups have no home, and go to whichever worker is free.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, TypeAlias
from uuid import uuid4

from distributed.scheduler import KilledWorker

from dlatent.arrays import DataSource, Graph
from dlatent.engine.cache import weight
from dlatent.engine.executor import Build, OnProgress, Take, place, step_counter, taken
from dlatent.engine.failures import Stranded, attended, deaths, persistently, results_of, threads_of, translated
from dlatent.engine.fold import Share, Work, halt, join_kept
from dlatent.engine.group import Bundle, Serialised, Targets, deserialised, groups_of, serialised
from dlatent.engine.remote import (
    LIGHT,
    DaskGraph,
    Key,
    Message,
    chunks_of,
    computed_group,
    entry,
    forget,
    require_alike,
    resources_of,
    shell,
    worker_state,
)
from dlatent.engine.task_graph import ANYWHERE, Layout, TaskGraph
from dlatent.order import FAN_IN
from dlatent.passes import NoExchange, Resources

Future: TypeAlias = Any
"""A `distributed.Future`, whose methods have no types."""

FEW = 16
"""Results that the driver takes of a pass: each is a part of a message."""
MOST_SPENT = 64
"""Light results that are given up together: each time is a message, and a message delays the next."""
MOST_SPANS = 4
"""Stretches of rows that an error names."""
KNOWN_SECONDS = 1.0
"""How long the list of workers is taken as known; to ask takes as long as a few tasks, and homes are a preference."""
CALL_SECONDS = 5.0
"""How long the end of a fit waits until each worker has freed what it kept: a stopped one is told, and does so when it
goes on."""


class ClusterExecutor:
    """Each task at the home of its group; the tree on the workers, and one result to the driver, or where they are
    light a few, which the driver joins."""

    def __init__(
        self, client: Any, source: DataSource, targets: Targets, cache_bytes: int | None, graph: Graph | None
    ) -> None:
        self._client = client
        with translated(client):
            self.resources = resources_of(client, cache_bytes)
        self.groups = groups_of(source, targets, graph)
        # What the source and its edges are called in the caches.
        self._keys = [each.key for each in (self.groups[0], self.groups[0].graph) if each is not None]
        self._source = source
        # Chunks of Dask that the cluster computes: in every pass, or once, where they are persisted.
        self._computed, self._persisted = source.blocks[0].collection is not None, False
        self._nbytes = tuple(sum(block.nbytes for block in group.blocks) for group in self.groups)
        self._homes, self._threads, self._checked, self._asked = list[str](), dict[str, int](), set[str](), 0.0
        self._staged, self._each = list[Future](), 1
        self._spent, self._spent_bytes = list[Future](), 0.0
        self._weights: dict[tuple[str, str], float] = {}
        self._suspects: set[int] | None = None
        self.keep(self.resources.cache_bytes)

    def keep(self, cache_bytes: int) -> None:
        """Keep so many bytes of blocks between passes, on each worker."""
        self.resources = replace(self.resources, cache_bytes=cache_bytes)
        persisted = self._computed and self._source.nbytes <= cache_bytes * self.resources.workers
        if persisted != self._persisted:
            self._persisted = persisted
            self._abandon()  # what was sent are the blocks, or is not
        self._recomputed = self._computed and not persisted
        if self._staged:
            self._everywhere(forget, self._keys, cache_bytes)

    def available(self) -> Resources:
        """The resources that a plan may use: of the memory of the fullest worker what is left before Dask pauses it."""
        with self._calls():
            self._looked()
            call = partial(self._client.run, worker_state, on_error="ignore")
            states = list(attended(self._client, call).values())
        limit = self.resources.worker_memory
        left = [min(at for at in (pause, limit) if at) - used for pause, used in states if pause or limit]
        return replace(self.resources, worker_memory=max(1, min(left)) if left else limit)

    def homes(self) -> list[str]:
        """The worker of each group."""
        with self._calls():
            self._settle()
        return self._homes

    def execute(
        self, build: Build, work: Work, tell: OnProgress | None = None, take: Take | None = None
    ) -> tuple[list[Any], int]:
        """The results of a graph, and the number of its tasks; what a pass leaves on the cluster is released."""
        self._suspects = None
        with self._calls():
            return persistently(
                lambda: self._attempt(build, replace(work, token=uuid4().hex), tell, take), self._blamed
            )

    @contextmanager
    def _calls(self) -> Iterator[None]:
        """Failures in the words of this library; the thread of this task left to others meanwhile; and no warning about
        large graphs: data in memory are sent to the workers once, on purpose."""
        with translated(self._client, self._blamed), warnings.catch_warnings(), _aside():
            warnings.filterwarnings("ignore", message="Sending large graph")
            yield

    def _suspect(self, task_graph: TaskGraph, names: Sequence[Key]) -> None:
        """Keep those groups that were on every worker that has died in this pass."""
        for numbers in deaths(self._client, names):
            had = {group for number in numbers for group in task_graph.tasks[number].needed}
            self._suspects = had if self._suspects is None else self._suspects & had

    def _blamed(self) -> str:
        """The rows of these groups, and where they lie; nothing where workers died on different ones."""
        spans = list[list[int]]()
        for group in (self.groups[index] for index in sorted(self._suspects or ())):
            if spans and spans[-1][1] == group.start:
                spans[-1][1] = group.stop
            else:
                spans.append([group.start, group.stop])
        said = [f"{start}:{stop}" for start, stop in spans[:MOST_SPANS]] + ["…"] * (len(spans) > MOST_SPANS)
        return f"rows {', '.join(said)} of the {self._source.description}" if said else ""

    def _attempt(self, build: Build, work: Work, tell: OnProgress | None, take: Take | None) -> tuple[list[Share], int]:
        """Run a pass; where all its workers are lost, give up what is left of it."""
        sent = self._settle()
        task_graph = build(self._layout(work))
        tail = self._tail(task_graph, work)
        message = self._message(task_graph, work, tail)
        wanted = list(dict.fromkeys(ref.task for ref in task_graph.without(tail)))
        done, steps = step_counter(task_graph.steps, tell), [task.steps for task in task_graph.tasks]
        unasked = sorted(set(range(len(steps))).difference(wanted)) if tell is not None else []
        watched = [number for number in unasked if steps[number]]
        keys = [message.names[number] for number in (*wanted, *watched)]
        futures = self._client.get(message.dask_graph.built(), keys, sync=False)
        shares = futures[: len(wanted)]
        for number, future in zip(watched, futures[len(wanted) :], strict=True):
            future.add_done_callback(partial(_tell, done, steps[number]))
        if self._spent_bytes >= LIGHT or len(self._spent) >= MOST_SPENT:
            self._release()  # after the message that the new pass was, which would wait for another 10 milliseconds

        came = [partial(done, steps[number]) for number in wanted]
        hold = None if take is None else partial(taken, take)
        try:
            results = results_of(self._client, shares, self._homes, came, hold, singly=task_graph.singly)
        except BaseException as error:
            _release(futures)  # waiting tasks are forgotten, running ones stop before their next block
            self._everywhere(halt, work.token)
            if isinstance(error, (Stranded, KilledWorker)):
                self._suspect(task_graph, message.names)
            if isinstance(error, Stranded):
                self._abandon()
            raise
        if take is None:
            known = dict(zip(wanted, results, strict=True))
            for number in tail:
                known[number] = join_kept(work, (entry(known, ref) for ref in task_graph.tasks[number].inputs))
            results = [entry(known, ref) for ref in task_graph.results]
        self._spent += shares
        if task_graph.singly:
            self._spent_bytes += LIGHT
        else:
            self._weights[_kind(work)] = nbytes = weight(results[0][0])
            self._spent_bytes += len(task_graph.without(tail)) * nbytes
        return results, len(message.dask_graph) + sent

    def _release(self) -> None:
        """Release the results of passes that the driver has."""
        _release(self._spent)
        self._spent, self._spent_bytes = [], 0.0

    def _abandon(self) -> None:
        """Forget the homes and what was sent there, so that the next pass begins anew."""
        _release(self._staged)
        self._staged, self._homes = [], []

    def close(self) -> None:
        """Release the descriptions of the groups, the last result, and on every worker the cached blocks and the last
        parameters."""
        self._release()
        _release(self._staged)
        self._staged = []
        forget(self._keys)
        self._everywhere(forget, self._keys)

    def _settle(self) -> int:
        """Choose the homes, and send the descriptions of the groups, once; returns the number of tasks."""
        known = bool(self._homes) and monotonic() - self._asked < KNOWN_SECONDS and self._client.status == "running"
        if not known:
            self._threads, self._asked = self._looked(), monotonic()
            if not self._threads.keys() & set(self._homes):
                self._abandon()  # what was sent waits for workers that are all gone, as Dask keeps it for them
            self._homes = place(len(self.groups), self._threads, self._homes)
        if self._staged and all(future.status in ("finished", "pending") for future in self._staged):
            return 0
        longest = max(self.groups, key=lambda group: group.stop - group.start).index
        self._staged, self._each = [], max(1, LIGHT // len(self._described([longest])))
        every, token = range(len(self.groups)), uuid4().hex
        for first in every[:: self._each]:  # a message for each, as blocks may travel along
            dask_graph = DaskGraph()
            described = partial(deserialised, self._described(every[first : first + self._each]))
            key = dask_graph.add((f"groups-{token}", first), described, home=self._homes[first])
            self._staged += self._client.get(dask_graph.built(), [key], sync=False)
        sent = len(self._staged)
        if self._persisted:
            dask_graph = DaskGraph()
            keys = self._compute(dask_graph, f"blocks-{token}", every)
            self._staged, self._each = self._client.get(dask_graph.built(), list(keys.values()), sync=False), 1
            sent += len(dask_graph)
        return sent

    def _looked(self) -> dict[str, int]:
        """The workers that there are, all of the versions of this process, and their threads."""
        threads = threads_of(self._client)
        if new := threads.keys() - self._checked:
            require_alike(self._client, new)
            self._checked |= new
        return threads

    def _described(self, indices: Iterable[int]) -> Serialised:
        """The descriptions of some groups as a bundle, without graphs of Dask."""
        groups = {index: shell(self.groups[index]) if self._computed else self.groups[index] for index in indices}
        return serialised({"groups": groups}, Bundle)

    def _compute(self, dask_graph: DaskGraph, name: str, indices: Iterable[int]) -> dict[int, Key]:
        """The tasks that put the blocks of groups together from their chunks; a bundle for each."""
        keys = dict[int, Key]()
        for index in indices:
            home, chunks = self._homes[index], list[list[Key]]()
            for tasks, of_block in map(chunks_of, self.groups[index].blocks):
                dask_graph.layers[home].update(tasks)
                chunks.append(of_block)
            inputs = self._staged[index // self._each], chunks
            keys[index] = dask_graph.add((name, index), partial(computed_group, index), *inputs, home=home)
        return keys

    def _layout(self, work: Work) -> Layout:
        """Where the groups lie: nowhere where nothing is kept and any worker may take any of them."""
        heavy = self._source.in_memory or self._computed
        # Heavy descriptions are where the groups are.
        light = self._each >= len(self.groups) and not heavy
        free = light and not self.resources.cache_bytes and isinstance(work.pass_.exchange, NoExchange)
        return Layout(
            nbytes=self._nbytes,
            homes=(ANYWHERE,) * len(self.groups) if free else tuple(self._homes),
            threads=self._threads,
            bundled=not free and not self._recomputed,
            heavy=heavy,
        )

    def _message(self, task_graph: TaskGraph, work: Work, tail: Sequence[int]) -> Message:
        """The tasks of a pass but its tail.

        Blocks that the cluster computes are there for the time of the pass, as bundles of whole groups, by Dask on disk
        where memory is short: computed where groups meet, they would be computed as often as there are groups.
        """
        work = replace(work, first=work.first or self._recomputed)
        message, computed = Message(work, task_graph), dict[int, Key]()
        if self._recomputed:
            read = {group for task in task_graph.tasks if task.reads for group in task.needed}
            computed = self._compute(message.dask_graph, f"{work.pass_.name}-blocks-{work.token}", sorted(read))
        for number, task in enumerate(task_graph.tasks):
            if number not in tail:
                staged = (self._staged[at] for at in dict.fromkeys(group // self._each for group in task.needed))
                bundles = (computed[group] for group in task.needed) if computed and task.reads else staged
                message.add(number, list(bundles))
        return message

    def _tail(self, task_graph: TaskGraph, work: Work) -> tuple[int, ...]:
        """The joins that the driver makes itself, as what they join is light, because a task that waits for others
        costs one more round of messages: all of them, the last, or none."""
        nbytes = self._weights.get(_kind(work), float(LIGHT))
        shares = len(task_graph.without(task_graph.joins))
        if shares <= FEW and nbytes * shares < LIGHT:
            return task_graph.joins
        return task_graph.joins[-1:] if nbytes * FAN_IN < LIGHT else ()

    def _everywhere(self, function: Callable[..., None], *values: Any) -> None:
        """Call a function in every worker process; a cluster that is gone has nothing to be told."""

        async def call() -> None:
            await self._client.run(function, *values, on_error="ignore", asynchronous=True)

        if self._client.status == "running":
            with suppress(Exception):
                self._client.sync(call, callback_timeout=CALL_SECONDS)


def _kind(work: Work) -> tuple[str, str]:
    """The key of passes whose results are likely to be equally large."""
    return work.pass_.name, getattr(work.pass_.map, "__qualname__", "")


def _release(futures: Iterable[Future]) -> None:
    """Give up futures; what nobody else wants is forgotten, with the tasks that wait for it.

    Dask's way to cancel them ends the connection of the client where a task depends on them that it did not ask for.
    """
    for future in futures:
        future.release()


def _tell(done: Callable[[int], None], steps: int, future: Future) -> None:
    """Count a finished task, and give up its future, so that its statistic lives no longer than the tree needs it."""
    if future.status == "finished":
        done(steps)
    future.release()


@contextmanager
def _aside() -> Iterator[None]:
    """Leave the thread of this task to other tasks meanwhile; outside of tasks, and where it has left, do nothing."""
    distributed: Any = sys.modules["distributed"]  # which has no types
    with ExitStack() as left:
        with suppress(ValueError, AttributeError, KeyError):  # no task; no thread of a worker; left before, by itself
            distributed.secede()
            left.callback(distributed.rejoin)
        yield
