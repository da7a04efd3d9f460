"""Passes on a Dask cluster, through a `distributed.Client`.

What a lost worker must not take away is made by tasks, which the scheduler can run again: the descriptions of the
groups and the parameters of a pass are results of tasks (data that is scattered dies with its worker). Homes are a
preference, so that a group finds its blocks in the cache of its worker, and goes elsewhere when that worker is gone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias
from uuid import uuid4

import dlatent.engine.sizes  # noqa: F401  (Dask weighs parts and sparse chunks by it)
from dlatent.arrays import DataSource
from dlatent.engine import tasks
from dlatent.engine.base import Progress
from dlatent.engine.cache import release
from dlatent.engine.failures import result_of, threads_of, translated
from dlatent.engine.gather import Resources
from dlatent.engine.graph import Chunks, Graph, Key, chunks_of
from dlatent.engine.held import shell
from dlatent.engine.machine import cache_share
from dlatent.engine.order import reduce_tree
from dlatent.engine.part import Part, Share, Work, halt, owned, parts_of, sealed, unsealed
from dlatent.engine.placement import place
from dlatent.engine.targets import Targets, as_rows

Future: TypeAlias = Any
"""A `distributed.Future`, whose methods have no types."""


@dataclass(frozen=True)
class _Pass:
    """A pass under way: its last future, those of its groups where progress is shown, and the number of its tasks."""

    root: Future
    watched: list[Future]
    tasks: int


class ClusterRunner:
    """One task per group on its home worker, the tree on the workers, one result to the driver."""

    def __init__(self, client: Any, source: DataSource, targets: Targets, cache_bytes: int | None) -> None:
        self._client = client
        self._key = source.key
        with translated(client):
            self.resources = _resources(client, cache_bytes)
        self._parts = parts_of(source, as_rows(targets, source.shape[0]), self.resources.cache_bytes)
        self._chunks = [chunks_of(part.blocks) for part in self._parts]
        self._held = source.nbytes <= self.resources.cache_bytes * self.resources.workers
        self._homes: list[str] = []
        self._staged: list[Future] = []

    @property
    def groups(self) -> int:
        """Number of groups of blocks."""
        return len(self._parts)

    def run(self, work: Work, progress: Progress | None) -> tuple[Share, int]:
        """The joined share of all parts, and the number of tasks; what a pass leaves on the cluster is released."""
        with translated(self._client), _quiet():
            staged = self._settle()
            running = self._begin(work, progress)
            try:
                statistic, tally = result_of(self._client, running.root)
            except BaseException:
                self._stop(work, running)
                raise
            running.root.release()
        if progress is not None and self.groups == 1:
            progress.done()
        return (owned(statistic), tally), running.tasks + staged

    def close(self) -> None:
        """Release the descriptions of the groups, and the cached blocks on every worker."""
        for future in self._staged:
            future.release()
        self._staged = []
        release(self._key)
        self._everywhere(release, self._key)

    def _settle(self) -> int:
        """Choose the homes, and send the descriptions of the groups there, once; returns the number of tasks."""
        self._homes = place(self.groups, threads_of(self._client), self._homes)
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
        return [range(group, group + 1) for group in everything] if self._parts[0].in_memory else [everything]

    def _stage(self, graph: Graph, token: str, group: int) -> Key:
        part, home, chunks = self._parts[group], self._homes[group], self._chunks[group]
        sent = part if chunks is None else shell(part)
        key = graph.add((f"part-{token}", group), unsealed, sealed(vars(sent), Part), home=home)
        if chunks is None or not self._held:
            return key
        for block in chunks:
            graph.include(block.tasks, home)
        cuts = tuple(accumulate((len(block.keys) for block in chunks), initial=0))
        inputs = [key for block in chunks for key in block.keys]
        return graph.add((f"blocks-{token}", group), tasks.hold, cuts, inputs=[key, *inputs], home=home)

    def _begin(self, work: Work, progress: Progress | None) -> _Pass:
        graph, token = Graph(), work.token
        package = graph.add(f"parameters-{token}", tasks.Package, sealed(vars(work), Work), token)
        leaves: list[Key] = []

        def leaf(group: int) -> Key:
            leaves.append(self._fold(graph, work, package, group))
            return leaves[-1]

        def node(shares: list[Key]) -> Key:
            return graph.add((f"{work.name}-join-{token}", len(graph)), tasks.join_shares, inputs=[package, *shares])

        root = reduce_tree(leaf, node, self.groups)
        if progress is None:
            return _Pass(self._client.get(graph.built(), root, sync=False), [], len(graph))
        # A lone group is the root itself: its future is the result, which `run` tells of and gives up.
        others = [key for key in leaves if key != root]
        future, *watched = self._client.get(graph.built(), [root, *others], sync=False)
        for leaf_future in watched:
            leaf_future.add_done_callback(lambda done: _tell(done, progress))
        return _Pass(future, watched, len(graph))

    def _fold(self, graph: Graph, work: Work, package: Key, group: int) -> Key:
        """The task that folds a group; a chain of tasks where the cluster must compute the blocks in every pass."""
        home, chunks, staged = self._homes[group], self._chunks[group], self._staged[group].key
        name = f"{work.name}-{work.token}"
        if chunks is None or self._held:
            return graph.add((name, group), tasks.run_group, inputs=[staged, package], home=home)
        return self._chain(graph, name, [package, staged], chunks, group)

    def _chain(self, graph: Graph, name: str, inputs: list[Key], chunks: list[Chunks], group: int) -> Key:
        home = self._homes[group]
        share: list[Key] = []
        for position, block in enumerate(chunks):
            graph.include(block.tasks, home)
            key = graph.add(
                (name, group, position),
                tasks.add_block,
                position,
                inputs=[*inputs, *share, *block.keys],
                home=home,
            )
            share = [key]
        return share[0]

    def _stop(self, work: Work, running: _Pass) -> None:
        """Withdraw a failed pass: waiting tasks are forgotten, running ones stop before their next block."""
        with suppress(Exception):  # the failure itself is what the caller must see
            self._client.cancel([running.root, *running.watched], force=True)
        self._everywhere(halt, work.token)

    def _everywhere(self, function: Callable[[Any], None], value: Any) -> None:
        """Call a function in every worker process; a cluster that is gone has nothing to be told."""
        if self._client.status == "running":
            with suppress(Exception):
                self._client.run(function, value, on_error="ignore")


def _tell(done: Future, progress: Progress) -> None:
    """Count a finished group, and give up its future, so that its statistic lives no longer than the tree needs it."""
    if done.status == "finished":
        progress.done()
    done.release()


def _resources(client: Any, cache_bytes: int | None) -> Resources:
    threads = threads_of(client)
    limits = [info["memory_limit"] for info in client.scheduler_info()["workers"].values()]
    limit = min((int(limit) for limit in limits if limit), default=None)
    cap = cache_share(limit) if cache_bytes is None else cache_bytes
    return Resources("cluster", len(threads), max(threads.values()), limit, cap)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warning about large graphs: data in memory are sent to the workers once, on purpose."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        yield
