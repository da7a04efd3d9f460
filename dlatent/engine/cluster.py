"""Passes on a Dask cluster, through a `distributed.Client`.

What a lost worker must not take away is made by tasks, which the scheduler can run again: the descriptions of the
groups and the parameters of a pass are results of tasks (data that is scattered dies with its worker). Homes are a
preference, so that a group finds its blocks in the cache of its worker, and goes elsewhere when that worker is gone.
Where nothing is kept between passes groups have no home, and go to whichever worker is free.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from time import monotonic
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit
from uuid import uuid4

import numpy as np
import numpy.typing as npt

import dlatent.engine.sizes  # noqa: F401  (Dask weighs parts and sparse chunks by it)
from dlatent.arrays import DataSource, Links
from dlatent.engine import tasks
from dlatent.engine.base import Progress, Take
from dlatent.engine.exchange import LinkedWork, Traffic, needs_of, traffic_of, walk
from dlatent.engine.failures import Stranded, persistently, results_of, threads_of, translated, workers_of
from dlatent.engine.gather import Resources
from dlatent.engine.graph import Chunks, Given, Graph, Key, chunks_of
from dlatent.engine.held import shell
from dlatent.engine.machine import cache_share, granted
from dlatent.engine.nested import aside
from dlatent.engine.order import FAN_IN, branches, reduce_tree
from dlatent.engine.pairs import PairWork, TileWork, meetings, walk_pairs
from dlatent.engine.part import (
    Part,
    Sealed,
    Share,
    Work,
    ended,
    halt,
    handed_over,
    join,
    keys_of,
    owned,
    parts_of,
    sealed,
    unsealed,
    weight,
)
from dlatent.engine.placement import Strip, meeting_places, place, strips
from dlatent.engine.targets import Targets, as_rows

Future: TypeAlias = Any
"""A `distributed.Future`, whose methods have no types."""

LIGHT = 2**20
"""Bytes that weigh less than a round between scheduler and workers, some milliseconds."""
MOST_SPENT = 64
"""Light results that are given up together: each time is a message, and a message delays the next."""
BUNDLED = 2**25
"""Bytes of one statistic for each thread of a worker, of which it can hold some more than the planner counts."""
SHORT_SECONDS = 2.0
"""A pass that took less, for which nobody needs a display of progress, has one task for each thread."""
HERE = ("127.0.0.1", "::1", "localhost")
"""Hosts of workers on the machine of the driver, as a local cluster names them."""
KNOWN_SECONDS = 1.0
"""How long the list of workers is taken as known; to ask takes as long as a few tasks, and homes are a preference."""


@dataclass(frozen=True)
class _Pass:
    """A pass under way: its last futures, those of other groups where progress is shown, the number of its tasks, and,
    where each of the last has several shares, their nodes of the tree."""

    last: list[Future]
    watched: list[Future]
    tasks: int
    bundles: list[list[range]]

    @property
    def shares(self) -> int:
        """How many shares the results of the last futures hold."""
        return sum(map(len, self.bundles)) or len(self.last)

    def joined(self, results: list[Any], work: Work) -> Share:
        """The share of the pass, from the results of the last futures."""
        # The first share of a sum is added to, but what has come may be read-only; tiles are only put together.
        taken = (lambda share: share) if isinstance(work, TileWork) else owned
        bundles = self.bundles or [[range(at, at + 1)] for at in range(len(results))]
        shares = results if self.bundles else [(result,) for result in results]
        made = dict[range, Share]()
        for nodes, own in zip(bundles, shares, strict=True):
            made.update(zip(nodes, map(taken, own), strict=True))
        leaves = max(node.stop for node in made)
        return reduce_tree(lambda at: made[range(at, at + 1)], lambda nodes: join(nodes, work), leaves, made)


class _Place(NamedTuple):
    """Where a share is: the result of a task, or one of several shares that are its result."""

    key: Key
    at: int | None


@dataclass(frozen=True)
class _Pieces:
    """The graph of a pass in the making, its parameters or their key, the keys of its groups, those that the last
    join joins, and of tasks with several shares their nodes of the tree."""

    graph: Graph
    work: Work
    package: Key | Given
    leaves: list[Key] = field(default_factory=list)
    joined: list[Key] = field(default_factory=list)
    bundles: list[list[range]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """A prefix of keys that no other pass has."""
        return f"{self.work.name}-{self.work.token}"

    def join(self, shares: Iterable[Key]) -> Key:
        """The task that joins shares."""
        keys = list(shares)  # first, as the tasks of joins below this one are made meanwhile
        self.joined[:] = keys
        return self.join_placed(_Place(key, None) for key in keys).key

    def join_placed(self, shares: Iterable[_Place]) -> _Place:
        """The task that joins shares of which some come with others."""
        places = list(shares)
        keys = list(dict.fromkeys(place.key for place in places))
        chosen = [(keys.index(place.key), place.at) for place in places]
        key = (f"{self.work.name}-join-{self.work.token}", len(self.graph))
        return _Place(self.graph.add(key, tasks.join_shares, chosen, inputs=[self.package, *keys]), None)


Draw: TypeAlias = "Callable[[Work, _Pieces], list[Key]]"
"""Adds the tasks of a pass to its graph, and returns the keys of those whose results the driver asks for."""


class ClusterRunner:
    """One task per group on its home worker, or in a short pass one per thread; the tree on the workers, and one result
    to the driver, or where it is light a few, which the driver joins."""

    def __init__(
        self, client: Any, source: DataSource, targets: Targets, cache_bytes: int | None, links: Links | None
    ) -> None:
        self._client = client
        self._keys = keys_of(source, links)
        self._links_travel = links is not None and links.in_memory
        with translated(client):
            self.resources = _resources(client, cache_bytes)
        self._parts = parts_of(source, as_rows(targets, source.shape[0]), self.resources.cache_bytes, links)
        self._chunks = [chunks_of(part.blocks) for part in self._parts]
        self._held = source.nbytes <= self.resources.cache_bytes * self.resources.workers
        bound = self.resources.cache_bytes or source.in_memory or self._chunks[0] is not None
        self._carried = [] if bound else _light(self._parts)
        self._homes: list[str] = []
        self._threads: dict[str, int] = {}
        self._asked = 0.0
        self._staged: list[Future] = []
        self._spent: list[Future] = []
        self._spent_bytes = 0.0
        self._before: dict[tuple[str, str], tuple[float, float]] = {}
        self._survey: npt.NDArray[np.int64] | None = None

    @property
    def groups(self) -> int:
        """Number of groups of blocks."""
        return len(self._parts)

    def run(self, work: Work, progress: Progress | None) -> tuple[Share, int]:
        """The joined share of all parts, and the number of tasks; what a pass leaves on the cluster is released."""
        return self._finish(work, progress, self._plain)

    def run_apart(self, work: Work, take: Take, progress: Progress | None) -> tuple[Share, int]:
        """The same, but the driver gets what every part makes from where it is made, and gives it to `take`."""
        return self._finish(work, progress, self._apart, take)

    def run_linked(self, work: LinkedWork, progress: Progress | None) -> tuple[Share, int]:
        """The same after an exchange between rows, which happens between the workers."""
        self.survey()
        return self._finish(work, progress, self._linked)

    def run_pairs(self, work: PairWork, progress: Progress | None) -> tuple[Share, int]:
        """The same after every part has met every part."""
        return self._finish(work, progress, self._paired)

    def run_tiles(self, work: TileWork, progress: Progress | None) -> tuple[Share, int]:
        """The same of what every two parts make of each other."""
        return self._finish(work, progress, self._tiled)

    def survey(self) -> npt.NDArray[np.int64]:
        """How many rows of each group the rows of each group have links to."""
        if self._survey is None:
            with translated(self._client), _quiet(), aside():
                self._survey = persistently(self._surveyed)
        return self._survey

    def _surveyed(self) -> npt.NDArray[np.int64]:
        self._settle()
        graph, token = Graph(), uuid4().hex
        keys = [
            graph.add((f"survey-{token}", group), tasks.survey_group, inputs=[staged.key], home=home)
            for group, (staged, home) in enumerate(zip(self._staged, self._homes, strict=True))
        ]
        futures = self._client.get(graph.built(), keys, sync=False)
        try:
            return np.array(results_of(self._client, futures, self._homes))
        except Stranded:
            self._abandon()
            raise

    def traffic(self) -> Traffic:
        """What one exchange moves, with every group at its home."""
        survey = self.survey()
        return traffic_of(survey, [part.stop - part.start for part in self._parts], self._homes)

    def _finish(self, work: Work, progress: Progress | None, draw: Draw, take: Take | None = None) -> tuple[Share, int]:
        with translated(self._client), _quiet(), aside():
            return persistently(lambda: self._attempt(replace(work, token=uuid4().hex), progress, draw, take))

    def _attempt(self, work: Work, progress: Progress | None, draw: Draw, take: Take | None) -> tuple[Share, int]:
        """Run a pass; where all its workers are lost, give up what is left of it on the way out."""
        staged = 0 if self._carried and draw in (self._plain, self._apart) else self._settle()
        started = monotonic()
        running = self._begin(work, progress, draw)
        if self._spent_bytes >= LIGHT or len(self._spent) >= MOST_SPENT:
            self._release()  # after the message that the new pass was, which would wait for another 10 milliseconds
        singly = take is not None or isinstance(work, TileWork)
        hold = None if take is None else partial(handed_over, take=take)

        def came(number: int) -> None:
            _count(progress, 1 if take is not None else len(running.bundles[number]))

        try:
            results = results_of(self._client, running.last, self._homes, came if singly else None, hold)
        except BaseException as error:
            self._stop(work, running)
            if isinstance(error, Stranded):
                self._abandon()
            raise
        statistic, tally = running.joined(results, work)
        nbytes = weight(statistic)
        self._before[work.kind] = nbytes, monotonic() - started
        self._spent += running.last
        self._spent_bytes += running.shares * nbytes
        if not singly:
            _count(progress, work.steps(self.groups) - len(running.watched))
        return (statistic, tally), running.tasks + staged

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
        self._everywhere(tasks.forget, self._keys)

    def _settle(self) -> int:
        """Choose the homes, and send the descriptions of the groups there, once; returns the number of tasks."""
        known = bool(self._homes) and monotonic() - self._asked < KNOWN_SECONDS and self._client.status == "running"
        if not known:
            self._threads, self._asked = threads_of(self._client), monotonic()
            if not self._threads.keys() & set(self._homes):
                self._abandon()  # what was sent waits for workers that are all gone, as Dask keeps it for them
            self._homes = place(self.groups, self._threads, self._homes)
        if self._staged and all(future.status in ("finished", "pending") for future in self._staged):
            return 0
        self._staged, tasks_sent, token = [], 0, uuid4().hex
        for groups in self._messages():
            graph = Graph()
            keys = [self._stage(graph, token, group) for group in groups]
            self._staged += self._client.get(graph.built(), keys, sync=False)
            tasks_sent += len(graph)
        return tasks_sent

    def _messages(self) -> list[range]:
        """The groups that are described in one message: all, or one by one where their blocks travel along."""
        everything = range(self.groups)
        travel = self._parts[0].in_memory or self._links_travel
        return [range(group, group + 1) for group in everything] if travel else [everything]

    def _stage(self, graph: Graph, token: str, group: int) -> Key:
        part, home, chunks = self._parts[group], self._homes[group], self._chunks[group]
        sent = part if chunks is None else shell(part)
        key = graph.add((f"part-{token}", group), unsealed, sealed(vars(sent), Part), home=home)
        if chunks is None or not self._held:
            return key
        return _held(graph, (f"blocks-{token}", group), key, chunks, home)

    def _begin(self, work: Work, progress: Progress | None, draw: Draw) -> _Pass:
        graph = Graph()
        new = _Pieces(graph, work, self._packed(graph, work))
        last = draw(work, new)
        # What is not watched, groups among the last or inside their tasks, `_attempt` tells of at the end.
        others = [] if progress is None else [key for key in new.leaves if key not in last]
        futures = self._client.get(graph.built(), [*last, *others], sync=False)
        results, watched = futures[: len(last)], futures[len(last) :]
        if progress is not None:
            for future in watched:
                future.add_done_callback(partial(_tell, progress))
        return _Pass(results, watched, len(graph), new.bundles)

    def _short(self, work: Work) -> bool:
        """Whether a pass was short when it was last made, and its statistic light enough for threads to hold some."""
        nbytes, seconds = self._before.get(work.kind, (0.0, SHORT_SECONDS))
        light = nbytes * self.resources.threads < BUNDLED
        return light and seconds < SHORT_SECONDS and self.computed(0) is None and not self._carried

    def _bundled(self, new: _Pieces) -> list[Key]:
        """A task for each thread, which joins what it can of its groups: a task costs what a few messages do, in a
        short pass more than its work.  What is left is joined by the driver where it is light."""
        made, keys, bundles = dict[range, _Place](), list[Key](), list[list[range]]()
        for home in dict.fromkeys(self._homes):
            own = [group for group, at in enumerate(self._homes) if at == home]
            size = -(-len(own) // self._threads.get(home, 1))
            for start in range(0, len(own), size):
                groups = own[start : start + size]
                nodes = branches(groups, self.groups)
                inputs = [new.package, *(self._staged[group].key for group in groups)]
                key = new.graph.add(
                    (new.name, groups[0]), tasks.run_branches, list(map(len, nodes)), inputs=inputs, home=home
                )
                made.update((node, _Place(key, at)) for at, node in enumerate(nodes))
                keys.append(key)
                bundles.append(nodes)
        nbytes, _ = self._before[new.work.kind]
        if len(made) == 1 or nbytes * len(made) < LIGHT:
            new.bundles[:] = bundles
            return keys
        return [reduce_tree(lambda group: made[range(group, group + 1)], new.join_placed, self.groups, made).key]

    def _last(self, new: _Pieces, root: Key) -> list[Key]:
        """The keys whose results the driver asks for: the root, or what it would join where that is light, because a
        task that waits for others costs one more round of messages."""
        nbytes, _ = self._before.get(new.work.kind, (LIGHT, 0.0))
        if not new.joined or nbytes * FAN_IN >= LIGHT:
            return [root]
        new.graph.drop(root)
        return new.joined

    def _packed(self, graph: Graph, work: Work) -> Key | Given:
        """The parameters themselves where they are light for all tasks together, else the key of a task that has them,
        from which each worker gets them once."""
        payload = sealed(vars(work), type(work))
        chained = 0 if self.computed(0) is None else sum(len(part.blocks) for part in self._parts)
        takers = max(work.steps(self.groups), chained)
        if len(payload) * takers <= LIGHT:
            return Given(tasks.Package(payload, work.token))
        return graph.add(f"parameters-{work.token}", tasks.Package, payload, work.token)

    def _plain(self, work: Work, new: _Pieces) -> list[Key]:
        if self._short(work):
            return self._bundled(new)

        def leaf(group: int) -> Key:
            new.leaves.append(self._fold(new, group))
            return new.leaves[-1]

        return self._last(new, reduce_tree(leaf, new.join, self.groups))

    def _apart(self, work: Work, new: _Pieces) -> list[Key]:
        """The tasks of the groups, whose results the driver gets one by one."""
        return [self._fold(new, group) for group in range(self.groups)]

    def _fold(self, new: _Pieces, group: int) -> Key:
        """The task that folds a group; a chain of tasks where the cluster must compute the blocks in every pass.

        Where nothing of a group stays on a worker, the next free one takes the next group, so that a slow one takes
        fewer: Dask does so with tasks of no home that wait for few others, and the description comes with the task.
        """
        if self._carried:
            inputs = [Given(self._carried[group]), new.package]
            return new.graph.add((new.name, group), tasks.run_sealed, inputs=inputs)
        home, chunks, staged = self._homes[group], self.computed(group), self._staged[group].key
        if chunks is None:
            return new.graph.add((new.name, group), tasks.run_group, inputs=[staged, new.package], home=home)
        return self.chain(new, tasks.add_block, [new.package, staged], group, new.name)

    def computed(self, group: int) -> list[Chunks] | None:
        """The chunks that the cluster must compute in every pass, or None where the blocks of a group are at hand."""
        return None if self._held else self._chunks[group]

    def chain(self, new: _Pieces, function: Callable[..., Any], inputs: list[Key], group: int, name: str) -> Key:
        """A task for each block of a group, which takes the share of those before it along."""
        home = self._homes[group]
        share: list[Key] = []
        for position, block in enumerate(self._chunks[group] or []):
            new.graph.include(block.tasks, home)
            key = new.graph.add(
                (name, group, position), function, position, inputs=[*inputs, *share, *block.keys], home=home
            )
            share = [key]
        return share[0]

    def _linked(self, work: Work, new: _Pieces) -> list[Key]:
        assert isinstance(work, LinkedWork)
        return self._last(new, walk(_LinkedSteps(self, new), needs_of(self.survey()), work.hops))

    def _paired(self, work: Work, new: _Pieces) -> list[Key]:
        assert isinstance(work, PairWork)
        return self._last(new, walk_pairs(_PairSteps(self, new), work))

    def _tiled(self, work: Work, new: _Pieces) -> list[Key]:
        """The tasks of a pass over tiles, whose results the driver gets from where they are made: joined on the way,
        all of them would lie on one worker."""
        return _PairSteps(self, new).tiles(strips(self._homes, self._threads))

    def place(self, group: int) -> tuple[Key, str]:
        """The key of a group's description, and its home."""
        return self._staged[group].key, self._homes[group]

    def blocks(self, group: int) -> list[Chunks]:
        """The chunks of each block of a group."""
        return self._chunks[group] or []

    def _stop(self, work: Work, running: _Pass) -> None:
        """Withdraw a failed pass: waiting tasks are forgotten, running ones stop before their next block."""
        _release([*running.last, *running.watched])
        self._everywhere(halt, work.token)

    def _everywhere(self, function: Callable[[Any], None], value: Any) -> None:
        """Call a function in every worker process; a cluster that is gone has nothing to be told."""
        if self._client.status == "running":
            with suppress(Exception):
                self._client.run(function, value, on_error="ignore")


class _LinkedSteps:
    """The tasks of a pass over links, each at the home of its group."""

    def __init__(self, runner: ClusterRunner, new: _Pieces) -> None:
        self._runner, self._new = runner, new
        self.join = new.join

    def project(self, group: int) -> Key:
        graph, name = self._new.graph, f"{self._new.name}-rows"
        staged, home = self._runner.place(group)
        if self._runner.computed(group) is None:
            return graph.add((name, group), tasks.project_group, inputs=[staged, self._new.package], home=home)
        blocks = []
        for position, block in enumerate(self._runner.blocks(group)):
            graph.include(block.tasks, home)
            inputs = [staged, self._new.package, *block.keys]
            blocks.append(graph.add((name, group, position), tasks.project_one, position, inputs=inputs, home=home))
        return graph.add((name, group), tasks.stack, inputs=blocks, home=home)

    def spread(self, group: int, own: Key, near: list[Key]) -> Key:
        staged, home = self._runner.place(group)
        key = (f"{self._new.name}-hop", group, len(self._new.graph))
        inputs = [staged, self._new.package, own, *near]
        return self._new.graph.add(key, tasks.spread_group, inputs=inputs, home=home)

    def fold(self, group: int, first: Key, own: Key, near: list[Key]) -> Key:
        staged, home = self._runner.place(group)
        new, inputs = self._new, [staged, self._new.package, first, own, *near]
        if self._runner.computed(group) is None:
            leaf = new.graph.add((new.name, group), tasks.fold_group, inputs=inputs, home=home)
        else:
            met = new.graph.add((f"{new.name}-met", group), tasks.meet_group, inputs=inputs, home=home)
            leaf = self._runner.chain(new, tasks.fold_one, [staged, new.package, met], group, new.name)
        new.leaves.append(leaf)
        return leaf


class _PairSteps:
    """The tasks of a pass over pairs: a chain for each group, at its home, which takes its share along.

    Blocks that the cluster computes are kept for the time of the pass, by Dask on disk where memory is short: computed
    where they are needed, they would be computed as often as there are groups.
    """

    def __init__(self, runner: ClusterRunner, new: _Pieces) -> None:
        self._new, self.join = new, new.join
        self._homes, self._parts = list[str](), list[Key]()
        for group in range(runner.groups):
            key, home = runner.place(group)
            chunks = runner.computed(group)
            if chunks is not None:
                key = _held(new.graph, (f"{new.name}-blocks", group), key, chunks, home)
            self._homes.append(home)
            self._parts.append(key)
        self._meeting_place = meeting_places(self._homes)

    def meet(self, group: int, other: int, share: Key | None) -> Key:
        inputs = [self._new.package, self._parts[group], self._parts[other], *([] if share is None else [share])]
        key = (f"{self._new.name}-pair", group, other)
        self._new.leaves.append(self._new.graph.add(key, tasks.meet_parts, inputs=inputs, home=self._homes[group]))
        return key

    def meet_once(self, group: int, other: int) -> Key:
        inputs = [self._new.package, self._parts[group], self._parts[other]]
        key = (f"{self._new.name}-pair", group, other)
        home = self._meeting_place(group, other)
        self._new.leaves.append(self._new.graph.add(key, tasks.meet_once, inputs=inputs, home=home))
        return key

    def tiles(self, found: list[Strip]) -> list[Key]:
        """A task for each strip of meetings."""
        keys, number = list[Key](), {pair: at for at, pair in enumerate(meetings(len(self._parts)))}
        for strip in found:
            resident = self._homes[strip.guest] == strip.home
            inputs = [self._new.package, *(self._parts[group] for group in (strip.guest, *strip.hosts))]
            key = (self._new.name, len(keys))
            keys.append(self._new.graph.add(key, tasks.meet_tiles, resident, inputs=inputs, home=strip.home))
            pairs = ((min(host, strip.guest), max(host, strip.guest)) for host in strip.hosts)
            self._new.bundles.append([range(number[pair], number[pair] + 1) for pair in pairs])
        return keys

    def gain(self, group: int, sides: tuple[int, ...], inputs: list[Key]) -> Key:
        key = (f"{self._new.name}-gain", group, len(self._new.graph))
        return self._new.graph.add(
            key, tasks.gain_share, sides, inputs=[self._new.package, *inputs], home=self._homes[group]
        )

    def finish(self, group: int, share: Key) -> Key:
        inputs = [self._new.package, self._parts[group], share]
        return self._new.graph.add((self._new.name, group), tasks.finish_part, inputs=inputs, home=self._homes[group])


def _light(parts: list[Part]) -> list[Sealed]:
    """The descriptions of the groups where they are light enough to come with every task; else none."""
    found, weight = list[Sealed](), 0
    for part in parts:
        found.append(sealed(vars(part), Part))
        weight += len(found[-1])
        if weight > LIGHT:
            return []
    return found


def _held(graph: Graph, key: Key, part: Key, chunks: list[Chunks], home: str) -> Key:
    """The task that puts the blocks of a part together from their chunks."""
    for block in chunks:
        graph.include(block.tasks, home)
    cuts = tuple(accumulate((len(block.keys) for block in chunks), initial=0))
    inputs = [name for block in chunks for name in block.keys]
    return graph.add(key, tasks.hold, cuts, inputs=[part, *inputs], home=home)


def _release(futures: Iterable[Future]) -> None:
    """Give up futures; what nobody else wants is forgotten, with the tasks that wait for it.

    Dask's way to cancel them ends the connection of the client where a task depends on them that it did not ask for.
    """
    for future in futures:
        future.release()


def _count(progress: Progress | None, groups: int) -> None:
    """Count finished groups, or meetings of two, where progress is shown."""
    if progress is not None:
        for _ in range(groups):
            progress.done()


def _tell(progress: Progress, done: Future) -> None:
    """Count a finished group, and give up its future, so that its statistic lives no longer than the tree needs it."""
    if done.status == "finished":
        progress.done()
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
    return Resources("cluster", len(threads), max(threads.values()), limit, cap)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warning about large graphs: data in memory are sent to the workers once, on purpose."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        yield
