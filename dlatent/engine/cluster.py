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
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate
from time import monotonic
from typing import Any, TypeAlias
from urllib.parse import urlsplit
from uuid import uuid4

from distributed.scheduler import KilledWorker

from dlatent.arrays import DataSource, Graph
from dlatent.blas import kernels
from dlatent.engine.cache import owned, release, weight
from dlatent.engine.executor import Build, OnProgress, StepCounter, Take, entry, layout_of, taken
from dlatent.engine.failures import (
    Stranded,
    attended,
    deaths,
    persistently,
    results_of,
    threads_of,
    translated,
    workers_of,
)
from dlatent.engine.fold import Work, ended, halt
from dlatent.engine.group import Bundle, Sealed, Targets, as_rows, keys_of, parts_of, sealed, unsealed
from dlatent.engine.machine import FRESH_WORKER, PACKAGES, before_pause, cache_share, granted, memory, versions
from dlatent.engine.placement import place
from dlatent.engine.processes import give_back
from dlatent.engine.remote import LIGHT, DaskGraph, Key, Message, chunks_of, forget, persist, require_versions, shell
from dlatent.engine.task_graph import ANYWHERE, Layout, TaskGraph
from dlatent.order import FAN_IN
from dlatent.passes import Alone, Pairs, Resources, Tiles

Future: TypeAlias = Any
"""A `distributed.Future`, whose methods have no types."""

FEW = 16
"""Results that the driver takes of a pass: each is a part of a message."""
MOST_SPENT = 64
"""Light results that are given up together: each time is a message, and a message delays the next."""
MOST_SPANS = 4
"""Stretches of rows that an error names."""
HERE = ("127.0.0.1", "::1", "localhost")
"""Hosts of workers on the machine of the driver, as a local cluster names them."""
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
        self._keys = keys_of(source, graph)
        with translated(client):
            self.resources = _resources(client, cache_bytes)
        self.parts = parts_of(source, as_rows(targets, source.shape[0]), graph)
        self._nowhere = layout_of(self.parts, [ANYWHERE] * len(self.parts), {})
        self._source = source
        self._chunks = [chunks_of(part.blocks) or [] for part in self.parts]
        self._computed = bool(self._chunks[0])
        self._heavy = source.in_memory or self._computed
        self._persisted = False
        self._homes: list[str] = []
        self._threads: dict[str, int] = {}
        self._checked = set[str]()
        self._asked = 0.0
        self._staged, self._each = list[Future](), 1
        self._spent: list[Future] = []
        self._spent_bytes = 0.0
        self._weights: dict[tuple[str, str], float] = {}
        self._suspects: set[int] | None = None
        self.keep(self.resources.cache_bytes)

    def keep(self, cache_bytes: int) -> None:
        """Keep so many bytes of blocks between passes, on each worker."""
        self.resources = replace(self.resources, cache_bytes=cache_bytes)
        held = self._computed and self._source.nbytes <= cache_bytes * self.resources.workers
        if held != self._persisted:
            self._persisted = held
            self._abandon()  # what was sent are the blocks, or is not
        if self._staged:
            self._everywhere(partial(release, self._keys), cache_bytes)

    def available(self) -> Resources:
        """What a plan may use: of the memory of the fullest worker what is left before Dask pauses it."""
        with translated(self._client), _aside():
            self._looked()
            call = partial(self._client.run, _worker_state, on_error="ignore")
            states = list(attended(self._client, call).values())
        whole = self.resources.worker_memory
        left = [min(at for at in (pause, whole) if at) - held for pause, held in states if pause or whole]
        return replace(self.resources, worker_memory=max(1, min(left)) if left else whole)

    def homes(self) -> list[str]:
        """The worker of each group."""
        with translated(self._client), _quiet(), _aside():
            self._settle()
        return self._homes

    def execute(
        self, build: Build, work: Work, tell: OnProgress | None = None, take: Take | None = None
    ) -> tuple[list[Any], int]:
        """The results of a graph, and the number of its tasks; what a pass leaves on the cluster is released."""
        self._suspects = None
        with translated(self._client, self._blamed), _quiet(), _aside():
            return persistently(
                lambda: self._attempt(build, replace(work, token=uuid4().hex), tell, take), self._blamed
            )

    def _suspect(self, task_graph: TaskGraph, names: Sequence[Key]) -> None:
        """Keep those groups that were on every worker that has died in this pass."""
        for numbers in deaths(self._client, names):
            had = {group for number in numbers for group in task_graph.tasks[number].needed}
            self._suspects = had if self._suspects is None else self._suspects & had

    def _blamed(self) -> str:
        """The rows of these groups, and where they lie; nothing where workers died on different ones."""
        spans = list[list[int]]()
        for part in (self.parts[group] for group in sorted(self._suspects or ())):
            if spans and spans[-1][1] == part.start:
                spans[-1][1] = part.stop
            else:
                spans.append([part.start, part.stop])
        said = [f"{start}:{stop}" for start, stop in spans[:MOST_SPANS]] + ["…"] * (len(spans) > MOST_SPANS)
        return f"rows {', '.join(said)} of the {self._source.description}" if said else ""

    def _attempt(self, build: Build, work: Work, tell: OnProgress | None, take: Take | None) -> tuple[list[Any], int]:
        """Run a pass; where all its workers are lost, give up what is left of it on the way out."""
        staged = self._settle()
        task_graph = build(self._layout(work))
        tail = self._tail(task_graph, work)
        message = self._message(task_graph, work, tail)
        wanted = list(dict.fromkeys(ref.task for ref in task_graph.without(tail)))
        unasked = sorted(set(range(len(task_graph.tasks))).difference(wanted)) if tell is not None else []
        watched = [number for number in unasked if task_graph.tasks[number].steps]
        keys = [message.names[number] for number in (*wanted, *watched)]
        futures = self._client.get(message.task_graph.built(), keys, sync=False)
        asked, progress, unseen = futures[: len(wanted)], StepCounter(task_graph.steps, tell), task_graph.steps
        for number, future in zip(watched, futures[len(wanted) :], strict=True):
            unseen -= task_graph.tasks[number].steps
            future.add_done_callback(partial(_tell, progress, task_graph.tasks[number].steps))
        if self._spent_bytes >= LIGHT or len(self._spent) >= MOST_SPENT:
            self._release()  # after the message that the new pass was, which would wait for another 10 milliseconds

        def came(at: int) -> None:
            progress.done(task_graph.tasks[wanted[at]].steps)

        held = partial(taken, task_graph.results[0].at, take)  # all are at the same place of their task's result
        hooks = (came if task_graph.singly else None, None if take is None else held)
        try:
            found = results_of(self._client, asked, self._homes, *hooks)
        except BaseException as error:
            _release(futures)  # waiting tasks are forgotten, running ones stop before their next block
            self._everywhere(halt, work.token)
            if isinstance(error, (Stranded, KilledWorker)):
                self._suspect(task_graph, message.names)
            if isinstance(error, Stranded):
                self._abandon()
            raise
        results = _joined(task_graph, tail, dict(zip(wanted, found, strict=True)), work) if take is None else found
        self._spent += asked
        if task_graph.singly:
            self._spent_bytes += LIGHT
        else:
            self._weights[_kind(work)] = nbytes = weight(results[0][0])
            self._spent_bytes += len(task_graph.without(tail)) * nbytes
            progress.done(unseen)
        return results, len(message.task_graph) + staged

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
        ended(self._keys)
        self._everywhere(forget, self._keys)

    def _settle(self) -> int:
        """Choose the homes, and send the descriptions of the groups, once; returns the number of tasks."""
        known = bool(self._homes) and monotonic() - self._asked < KNOWN_SECONDS and self._client.status == "running"
        if not known:
            self._threads, self._asked = self._looked(), monotonic()
            if not self._threads.keys() & set(self._homes):
                self._abandon()  # what was sent waits for workers that are all gone, as Dask keeps it for them
            self._homes = place(len(self.parts), self._threads, self._homes)
        if self._staged and all(future.status in ("finished", "pending") for future in self._staged):
            return 0
        longest = max(self.parts, key=lambda part: part.stop - part.start).index
        self._staged, self._each = [], max(1, LIGHT // len(self._described([longest])))
        sent, token = 0, uuid4().hex
        for first in range(0, len(self.parts), self._each):  # a message for each, as blocks may travel along
            task_graph, groups = DaskGraph(), range(first, min(first + self._each, len(self.parts)))
            described = partial(unsealed, self._described(groups))
            key = task_graph.add((f"parts-{token}", first), described, home=self._homes[first])
            self._staged += self._client.get(task_graph.built(), [key], sync=False)
            sent += 1
        if self._persisted:
            task_graph = DaskGraph()
            keys = self._persist(task_graph, f"blocks-{token}")
            self._staged, self._each = self._client.get(task_graph.built(), keys, sync=False), 1
            sent += len(task_graph)
        return sent

    def _looked(self) -> dict[str, int]:
        """The workers that there are, all of the versions of this process, and their threads."""
        threads = threads_of(self._client)
        if new := threads.keys() - self._checked:
            _check_workers(self._client, new)
            self._checked |= new
        return threads

    def _described(self, groups: Iterable[int]) -> Sealed:
        """The descriptions of some groups as a bundle, without graphs of Dask."""
        parts = {group: shell(self.parts[group]) if self._computed else self.parts[group] for group in groups}
        return sealed({"parts": parts}, Bundle)

    def _persist(self, task_graph: DaskGraph, name: str) -> list[Key]:
        """The tasks that put the blocks of each group together from their chunks."""
        for group, home in enumerate(self._homes):
            chunks = self._chunks[group]
            for block in chunks:
                task_graph.include(block.tasks, home)
            cuts = tuple(accumulate((len(block.keys) for block in chunks), initial=0))
            inputs = [self._staged[group // self._each], *(key for block in chunks for key in block.keys)]
            task_graph.add((name, group), partial(persist, group, cuts), inputs, home)
        return [(name, group) for group in range(len(self.parts))]

    def _layout(self, work: Work) -> Layout:
        """Where the groups lie: nowhere where nothing is kept and any worker may take any of them."""
        free = not self.resources.cache_bytes and not self._heavy and isinstance(work.pass_.meeting, Alone)
        free = free and self._each >= len(self.parts)  # heavy descriptions are where the groups are
        homes, computed = self._nowhere.homes if free else tuple(self._homes), self._computed and not self._persisted
        places = replace(self._nowhere, homes=homes, threads=self._threads, heavy=self._heavy)
        return replace(places, computed=computed, bundled=not free and not computed)

    def _message(self, task_graph: TaskGraph, work: Work, tail: Sequence[int]) -> Message:
        """The tasks of a pass but its tail.

        Where groups meet, blocks that the cluster computes are held for the time of the pass, by Dask on disk where
        memory is short: computed where they are needed, they would be computed as often as there are groups.
        """
        message, bundles, each = Message(work, task_graph), self._staged, self._each
        if self._computed and not self._persisted and isinstance(work.pass_.meeting, Pairs | Tiles):
            bundles, each = self._persist(message.task_graph, f"{work.pass_.name}-blocks-{work.token}"), 1
        for number, task in enumerate(task_graph.tasks):
            if number not in tail:
                everything = range(min(1, len(task.groups)))
                needed = everything if len(bundles) == 1 else dict.fromkeys(group // each for group in task.needed)
                block = None if task.block is None else self._chunks[task.needed[0]][task.block]
                message.add(number, [bundles[one] for one in needed], block)
        return message

    def _tail(self, task_graph: TaskGraph, work: Work) -> tuple[int, ...]:
        """The joins that the driver makes itself, as what they join is light, because a task that waits for others
        costs one more round of messages: all of them, the last, or none."""
        nbytes = self._weights.get(_kind(work), float(LIGHT))
        shares = len(task_graph.without(task_graph.joins))
        if shares <= FEW and nbytes * shares < LIGHT:
            return task_graph.joins
        return task_graph.joins[-1:] if nbytes * FAN_IN < LIGHT else ()

    def _everywhere(self, function: Callable[[Any], None], value: Any) -> None:
        """Call a function in every worker process; a cluster that is gone has nothing to be told."""

        async def call() -> None:
            await self._client.run(function, value, on_error="ignore", asynchronous=True)

        if self._client.status == "running":
            with suppress(Exception):
                self._client.sync(call, callback_timeout=CALL_SECONDS)


def _joined(task_graph: TaskGraph, tail: Sequence[int], made: dict[int, Any], work: Work) -> list[Any]:
    """The results of a graph, from those that its tail joins."""
    for number in tail:
        first, *others = (entry(made[ref.task], ref.at) for ref in task_graph.tasks[number].inputs)
        # The first share of a sum is added to, but what has come may be read-only.
        made[number] = task_graph.tasks[number].call(work, owned(first), *others)
    return [entry(made[ref.task], ref.at) for ref in task_graph.results]


def _kind(work: Work) -> tuple[str, str]:
    """What passes have in common whose results are likely to be as large."""
    return work.pass_.name, getattr(work.pass_.map, "__qualname__", "")


def _release(futures: Iterable[Future]) -> None:
    """Give up futures; what nobody else wants is forgotten, with the tasks that wait for it.

    Dask's way to cancel them ends the connection of the client where a task depends on them that it did not ask for.
    """
    for future in futures:
        future.release()


def _tell(progress: StepCounter, steps: int, done: Future) -> None:
    """Count a finished task, and give up its future, so that its statistic lives no longer than the tree needs it."""
    if done.status == "finished":
        progress.done(steps)
    done.release()


def _resources(client: Any, cache_bytes: int | None) -> Resources:
    threads, workers = threads_of(client), workers_of(client)
    limits = [int(info["memory_limit"]) for info in workers.values() if info["memory_limit"]]
    near = sum(urlsplit(address).hostname in HERE for address in workers)
    if near:
        # Workers are told the memory of the machine, not that of its container, which they share.
        limits.append(granted() // near)
    limit = min(limits, default=None)
    cap = cache_share(limit) if cache_bytes is None else cache_bytes
    return Resources("cluster", len(threads), max(threads.values()), limit, cap, memory())


def _worker_state(dask_worker: Any) -> tuple[int | None, int]:
    """In a Dask worker: what it may hold, and the bytes that its process holds beyond those of a fresh one."""
    most, watched = before_pause(dask_worker)
    give_back()
    return most, max(0, int(dask_worker.monitor.get_process_memory()) - FRESH_WORKER) if watched else 0


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warning about large graphs: data in memory are sent to the workers once, on purpose."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        yield


@contextmanager
def _aside() -> Iterator[None]:
    """Leave the thread of this task to other tasks meanwhile; outside of tasks, and where it has left, do nothing."""
    distributed: Any = sys.modules["distributed"]  # which has no types
    try:
        distributed.secede()
    except (ValueError, AttributeError, KeyError):  # no task; no thread of a worker; left before, by its own will
        yield
        return
    try:
        yield
    finally:
        distributed.rejoin()


def _check_workers(client: Any, workers: Iterable[str]) -> None:
    """Refuse workers that have others, before they get any work: one without dlatent ends when it gets a task; and warn
    of those on processors of another kind.

    Errors: EngineError with both versions.
    """
    found = attended(client, lambda: client.get_versions(packages=list(PACKAGES)))["workers"]
    for address in workers:
        if address in found:  # and has not gone again
            require_versions(found[address]["packages"], versions(), address)
    for address, kind in attended(client, partial(client.run, kernels, on_error="ignore")).items():
        if kind != kernels():
            warnings.warn(
                f"The worker {address} computes for processors of the kind {kind}, this process for {kernels()}: "
                "the last bits of a result depend on who has made it.  Take machines of one kind, or set "
                "OPENBLAS_CORETYPE=Haswell in the environment of all of them.",
                RuntimeWarning,
                stacklevel=2,
            )
            break
