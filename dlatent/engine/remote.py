"""The tasks of a pass as one message to a cluster, what runs of it on the workers, and what these have.

A message for each task would cost the scheduler twice the time.  Tasks are sorted into layers by the worker that they
should run on.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import scipy.sparse as sp
from dask import sizeof as dask_sizes
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from dlatent.arrays import BlockSource, Features
from dlatent.blas import kernels
from dlatent.engine.cache import CACHE, measured, owned, read_only
from dlatent.engine.edges import SentRows
from dlatent.engine.failures import attended, threads_of, workers_of
from dlatent.engine.fold import Work, settled
from dlatent.engine.group import Bundle, Group, Serialised, deserialised, serialised
from dlatent.engine.machine import (
    FRESH_WORKER,
    PACKAGES,
    before_pause,
    cache_share,
    give_back,
    granted,
    memory,
    versions,
)
from dlatent.engine.task_graph import ANYWHERE, Ref, TaskGraph, TaskNode
from dlatent.errors import EngineError
from dlatent.passes import Resources

LIGHT = 2**20
"""Bytes that weigh less than a round between scheduler and workers, some milliseconds."""
HERE = ("127.0.0.1", "::1", "localhost")
"""Hosts of workers on the machine of the driver, as a local cluster names them."""
Key = Any
"""A Dask key: a string, or a tuple of a string and integers."""


class DaskGraph:
    """Tasks under construction; a home is a preference that the scheduler may overrule."""

    def __init__(self) -> None:
        self.layers = defaultdict[str, dict[Key, Any]](dict)

    def __len__(self) -> int:
        return sum(map(len, self.layers.values()))

    def add(self, key: Key, call: Callable[..., Any], *inputs: Any, home: str = ANYWHERE) -> Key:
        """A task `call(*results)` of keys, or lists of keys, of tasks of this graph or futures; returns its key."""
        self.layers[home][key] = (call, *inputs)
        return key

    def built(self) -> HighLevelGraph:
        """The graph, with the homes as annotations of its layers."""
        layers = {
            home or "anywhere": MaterializedLayer(
                tasks, {"workers": [home], "allow_other_workers": True} if home else None
            )
            for home, tasks in self.layers.items()
        }
        return HighLevelGraph(layers, {name: set() for name in layers})


def chunks_of(block: BlockSource) -> tuple[dict[Key, Any], list[Key]]:
    """The tasks of the Dask chunks behind a block, and their keys from left to right."""
    tasks, keys = dict[Key, Any](), list[Key]()
    for part in block.collection or ():
        tasks.update(part.__dask_graph__())
        keys += flatten(part.__dask_keys__())  # type: ignore[no-untyped-call]
    return tasks, keys


@dataclass(eq=False)
class ComputedBlock:
    """A block source that has its block."""

    start: int
    stop: int
    nbytes: int
    features: Features

    def load(self) -> Features:
        """The block."""
        return self.features


def computed_group(index: int, bundle: Bundle, chunks: Sequence[Sequence[Any]]) -> Bundle:
    """A group of a bundle, each of its blocks put together from its computed chunks."""
    group, blocks = bundle.groups[index], list[Any]()
    for source, parts in zip(group.blocks, chunks, strict=True):
        features = settled(source, source.assemble(parts))
        blocks.append(ComputedBlock(source.start, source.stop, measured(features), features))
    return Bundle({index: replace(group, blocks=tuple(blocks), in_memory=True)})


def shell(group: Group) -> Group:
    """The group to send along with computed chunks: its block sources, without their graphs where they can leave them.

    A block source says so by a method `without_collection()`, which gives a source that can still `assemble`.
    """
    blocks: list[Any] = [getattr(block, "without_collection", lambda block=block: block)() for block in group.blocks]
    return replace(group, blocks=tuple(blocks))


@dataclass(frozen=True, eq=False)
class Package:
    """A pass on its way: serialised until a worker needs it, so that scheduler and network only pass it on."""

    payload: Serialised
    token: str


_opened: dict[str, Work] = {}
_opening = Lock()


def opened(package: Package) -> Work:
    """The pass inside a package, unpacked once per process, and kept until the next."""
    with _opening:
        if package.token not in _opened:
            _opened.clear()
            _opened[package.token] = deserialised(package.payload)
        return _opened[package.token]


def forget(keys: Iterable[Hashable], above: int = -1) -> None:
    """Give up what a fit leaves in a worker: cached blocks of its sources, its last parameters, and freed memory; or
    the blocks where they are more than `above` bytes."""
    CACHE.release(keys, above)
    if above < 0:
        _opened.clear()
        give_back()


@dataclass(frozen=True, eq=False, repr=False)
class Step:
    """A task of a pass on a worker, called with the package where it does not come with the task, then with as many
    `bundles`, in which its groups are, and the results of other tasks."""

    task: TaskNode
    package: Package | None
    bundles: int

    @property
    def __name__(self) -> str:
        """The name of the task in Dask."""
        return self.task.call.__name__

    def __call__(self, *values: Any) -> Any:
        """Do the work."""
        rest, task = iter(values), self.task
        work = opened(self.package or next(rest))
        bundles: list[Bundle] = list(islice(rest, self.bundles))
        known = {index: group for bundle in bundles for index, group in bundle.groups.items()}
        groups = [known[at] if isinstance(at, int) else [known[i] for i in at] for at in task.groups]
        results = dict(zip(task.sources, rest, strict=True))
        inputs = [entry(results, ref) for ref in task.inputs]
        if task.updates:
            # What other tasks made stays the scheduler's, which may need it again after a worker is lost.
            first, *others = inputs
            inputs = [owned(first), *(owned(other, read_only) for other in others)]
        return task.call(work, *task.values, *groups, *inputs)


def entry(results: Mapping[int, Any], ref: Ref) -> Any:
    """Return the result that a reference names."""
    return results[ref.task] if ref.at is None else results[ref.task][ref.at]


class Message:
    """A Dask graph in the making, for one attempt at a pass."""

    def __init__(self, work: Work, task_graph: TaskGraph) -> None:
        self.dask_graph, self._tasks = DaskGraph(), task_graph.tasks
        self.names = [self._name(work, task, number) for number, task in enumerate(task_graph.tasks)]
        packaged = partial(Package, serialised(vars(work), Work), work.token)
        self._package: Package | None = packaged()
        self._packages: list[Key] = []
        if len(self._package.payload) * len(task_graph.tasks) > LIGHT:
            # Each worker gets it once from a task of its own.  Where it is light it comes with each task, which saves a
            # round of messages.
            self._packages = [self.dask_graph.add(f"parameters-{work.token}", packaged)]
            self._package = None

    def add(self, number: int, bundles: Sequence[Key]) -> None:
        """Add a task of the graph, with the keys of the bundles that its groups are in."""
        task = self._tasks[number]
        inputs = *self._packages, *bundles, *(self.names[source] for source in task.sources)
        step = Step(task, self._package, len(bundles))
        self.dask_graph.add(self.names[number], step, *inputs, home=task.home)

    @staticmethod
    def _name(work: Work, task: TaskNode, number: int) -> Key:
        """Steps that progress counts have the name of the pass on Dask's dashboard, others that of their function."""
        step = "" if task.steps else f"{task.call.__name__}-"
        return (f"{work.pass_.name}-{step}{work.token}", number)


def resources_of(client: Any, cache_bytes: int | None) -> Resources:
    """Return the resources of a cluster; each worker keeps so many bytes of blocks, None for its share."""
    threads, workers = threads_of(client), workers_of(client)
    limits = [int(info["memory_limit"]) for info in workers.values() if info["memory_limit"]]
    near = sum(urlsplit(address).hostname in HERE for address in workers)
    if near:
        # Workers are told the memory of the machine, not that of its container, which they share.
        limits.append(granted() // near)
    limit = min(limits, default=None)
    cap = cache_share(limit) if cache_bytes is None else cache_bytes
    return Resources("cluster", len(threads), max(threads.values()), limit, cap, memory())


def worker_state(dask_worker: Any) -> tuple[int | None, int]:
    """In a Dask worker: what it may hold, and the bytes that its process holds beyond those of a fresh one."""
    most, watched = before_pause(dask_worker)
    give_back()
    return most, max(0, int(dask_worker.monitor.get_process_memory()) - FRESH_WORKER) if watched else 0


def require_alike(client: Any, workers: Set[str]) -> None:
    """Refuse workers that have others, before they get any work: one without dlatent ends when it gets a task; and warn
    of those on processors of another kind.

    Errors: EngineError with both versions.
    """
    told, driver = attended(client, lambda: client.get_versions(packages=list(PACKAGES)))["workers"], versions()
    for address in told.keys() & workers:  # some have gone again
        packages = told[address]["packages"]
        differing = [f"{name} {packages.get(name) or 'not'}" for name in PACKAGES if packages.get(name) != driver[name]]
        if differing:
            raise EngineError(
                f"The worker {address} has {' and '.join(differing)}, but the driver has "
                f"{', '.join(f'{name} {driver[name]}' for name in PACKAGES)}: the bits of a result would depend on who "
                "has made it. Install the same versions everywhere, then run again."
            )
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


def _of_bundle(bundle: Bundle) -> int:
    """Blocks that lie in memory, with the groups."""
    sizes = (block.nbytes for group in bundle.groups.values() if group.in_memory for block in group.blocks)
    return 1000 * len(bundle.groups) + sum(sizes)


# `dask.sizeof` answers 56 bytes for every `scipy.sparse.csr_array` (it knows only the older matrix classes).
_BYTES: dict[Any, Callable[[Any], int]] = {
    sp.csr_array: measured,
    sp.csc_array: measured,
    sp.coo_array: lambda matrix: sum(array.nbytes for array in (matrix.data, *matrix.coords)),
    Bundle: _of_bundle,
    SentRows: lambda sent: 1000 + sent.nbytes,  # rows that were sent here
    Package: lambda package: len(package.payload),
}
_register: Any = dask_sizes.sizeof.register
for _kind, _size in _BYTES.items():
    _register(_kind, _size)
