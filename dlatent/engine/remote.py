"""The tasks of a pass as one message to a cluster, and what runs of it on the workers.

A message for each task would cost the scheduler twice the time.  Tasks are sorted into layers by the worker that they
should run on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice, pairwise
from threading import Lock
from typing import Any

import scipy.sparse as sp
from dask import sizeof as dask_sizes
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from dlatent.arrays import BlockSource, Features
from dlatent.engine.cache import lent, measured, owned
from dlatent.engine.exchange import Packed
from dlatent.engine.executor import chosen, entry
from dlatent.engine.fold import Work, ended, settled
from dlatent.engine.group import Bundle, Part, Sealed, sealed, unsealed
from dlatent.engine.machine import PACKAGES, own_worker, versions
from dlatent.engine.task_graph import ANYWHERE, TaskGraph, TaskNode
from dlatent.errors import EngineError

LIGHT = 2**20
"""Bytes that weigh less than a round between scheduler and workers, some milliseconds."""
Key = Any
"""A Dask key: a string, or a tuple of a string and integers."""


class DaskGraph:
    """Tasks under construction; a home is a preference that the scheduler may overrule."""

    def __init__(self) -> None:
        self._layers: dict[str, dict[Key, Any]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._layers.values()))

    def add(self, key: Key, call: Callable[..., Any], inputs: Iterable[Key] = (), home: str = ANYWHERE) -> Key:
        """A task `call(*results of the inputs)`, keys of tasks of this graph or futures; returns its key."""
        self._layers.setdefault(home, {})[key] = (call, *inputs)
        return key

    def include(self, tasks: Mapping[Key, Any], home: str) -> None:
        """Tasks of another Dask collection."""
        self._layers.setdefault(home, {}).update(tasks)

    def built(self) -> HighLevelGraph:
        """The graph, with the homes as annotations of its layers."""
        layers = {
            home or "anywhere": MaterializedLayer(
                tasks, {"workers": [home], "allow_other_workers": True} if home else None
            )
            for home, tasks in self._layers.items()
        }
        return HighLevelGraph(layers, {name: set() for name in layers})


class Chunks:
    """The Dask chunks behind one block: their tasks, and their keys from left to right."""

    def __init__(self, collection: tuple[Any, ...]) -> None:
        self.tasks: dict[Key, Any] = {}
        self.keys: list[Key] = []
        for part in collection:
            self.tasks.update(part.__dask_graph__())
            self.keys.extend(_flat(part.__dask_keys__()))


def _flat(keys: Any) -> list[Key]:
    return [key for inner in keys for key in _flat(inner)] if isinstance(keys, list) else [keys]


def chunks_of(blocks: tuple[BlockSource, ...]) -> list[Chunks] | None:
    """The Dask chunks behind the blocks of a part, or None where the blocks load themselves."""
    collections = [block.collection for block in blocks]
    present = [Chunks(collection) for collection in collections if collection is not None]
    return present if len(present) == len(collections) else None


@dataclass(eq=False)
class PersistedBlock:
    """A block source that has its block."""

    start: int
    stop: int
    nbytes: int
    features: Features
    collection: tuple[Any, ...] | None = None

    def load(self) -> Features:
        """The block."""
        return self.features

    def assemble(self, parts: Sequence[Any]) -> Features:
        """The block, which is its only part."""
        (part,) = parts
        return part  # type: ignore[no-any-return]


def persist(group: int, cuts: tuple[int, ...], bundle: Bundle, *chunks: Any) -> Bundle:
    """A part of a bundle, its blocks put together from chunks, of which `cuts[i] … cuts[i + 1]` belong to block i."""
    part, blocks = bundle.parts[group], list[PersistedBlock]()
    for source, (first, last) in zip(part.blocks, pairwise(cuts), strict=True):
        features = assembled(source, chunks[first:last])
        blocks.append(PersistedBlock(source.start, source.stop, measured(features), features))
    return Bundle({group: replace(part, blocks=tuple(blocks), in_memory=True)})


def assembled(source: BlockSource, chunks: Sequence[Any]) -> Features:
    """A block from its computed chunks."""
    return settled(source, source.assemble(chunks))


def shell(part: Part) -> Part:
    """The part to send along with computed chunks: its block sources, without their graphs where they can leave them.

    A block source says so by a method `without_collection()`, which gives a source that can still `assemble`.
    """
    blocks: list[Any] = [getattr(block, "without_collection", lambda block=block: block)() for block in part.blocks]
    return replace(part, blocks=tuple(blocks))


class Package:
    """A pass on its way: sealed until a worker needs it, so that scheduler and network only pass it on.

    Two packages are equal when they belong to the same pass.  `versions` are those of the driver.
    """

    def __init__(self, payload: Sealed, token: str, versions: dict[str, str]) -> None:
        self.payload, self.token, self.versions = payload, token, versions

    def __hash__(self) -> int:
        return hash(self.token)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Package) and other.token == self.token

    def __sizeof__(self) -> int:
        return len(self.payload)


_opening = Lock()


@lru_cache(maxsize=1)
def _unpacked(package: Package) -> Work:
    require_same(package.versions)
    work: Work = unsealed(package.payload)
    return work


def opened(package: Package) -> Work:
    """The pass inside a package, unpacked once per process."""
    with _opening:
        return _unpacked(package)


def forget(keys: Iterable[Hashable]) -> None:
    """Give up what a fit leaves in a worker: as `ended`, and its last parameters."""
    _unpacked.cache_clear()
    ended(keys)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Step:
    """A task of a pass on a worker (see `task_graph.TaskNode`), called with the package where it does not come with the
    task, then with the bundles that its parts are in, the chunks of a computed block, and the results of other tasks.

    Parameters
    ----------
    call, values, groups, block, updates : as in `task_graph.TaskNode`.
    package : where it comes with the task.
    bundles, chunks : their number.
    picks : of each result that `call` gets, which of those given it is, or has at which position.
    """

    call: Callable[..., Any]
    values: tuple[Any, ...]
    groups: tuple[int | Sequence[int], ...]
    block: int | None
    updates: bool
    package: Package | None
    bundles: int
    chunks: int
    picks: tuple[tuple[int, int | None], ...]

    @property
    def __name__(self) -> str:
        """What Dask calls it."""
        return self.call.__name__

    def __call__(self, *given: Any) -> Any:
        """Do the work."""
        rest = iter(given)
        work = opened(self.package or next(rest))
        bundles: list[Bundle] = list(islice(rest, self.bundles))
        chunks = list(islice(rest, self.chunks))
        results = tuple(rest)

        def part(group: int) -> Part:
            return next(bundle.parts[group] for bundle in bundles if group in bundle.parts)

        parts = chosen(part, self.groups)
        features = [] if self.block is None else [assembled(parts[0].blocks[self.block], chunks)]
        inputs = [entry(results[number], at) for number, at in self.picks]
        if self.updates:
            # What other tasks made stays the scheduler's, which may need it again after a worker is lost.
            first, *others = inputs
            inputs = [owned(first), *map(lent, others)]
        return self.call(work, *self.values, *parts, *features, *inputs)


def require_same(driver: Mapping[str, str]) -> None:
    """Refuse to work for a driver that has others, on a worker that came after they were compared.

    Errors: EngineError with both versions.
    """
    worker = own_worker()
    require_versions(versions(), driver, "of this task" if worker is None else worker.address)


def require_versions(found: Mapping[str, str | None], driver: Mapping[str, str], address: str) -> None:
    """Refuse a worker whose versions are not those of the driver.

    Errors: EngineError with both versions.
    """
    differing = [f"{name} {found.get(name) or 'not'}" for name in PACKAGES if found.get(name) != driver[name]]
    if differing:
        own = ", ".join(f"{name} {driver[name]}" for name in PACKAGES)
        raise EngineError(
            f"The worker {address} has {' and '.join(differing)}, but the driver has {own}: the bits of a result would "
            "depend on who has made it. Install the same versions everywhere, then run again."
        )


class Message:
    """A Dask graph in the making, for one attempt at a pass."""

    def __init__(self, work: Work, task_graph: TaskGraph) -> None:
        self.work, self.task_graph = work, DaskGraph()
        self.names = [self._name(task, number) for number, task in enumerate(task_graph.tasks)]
        self._tasks = task_graph.tasks
        packaged = partial(Package, sealed(vars(work), Work), work.token, versions())
        self._package: Package | None = packaged()
        self._given: list[Key] = []
        if len(self._package.payload) * len(task_graph.tasks) > LIGHT:
            # Each worker gets it once from a task of its own.  Where it is light it comes with each task, which saves a
            # round of messages.
            self._given = [self.task_graph.add(f"parameters-{work.token}", packaged)]
            self._package = None

    def add(self, number: int, bundles: Sequence[Key], chunks: Chunks | None) -> None:
        """Add a task of the graph, with the keys of the bundles that its parts are in, and the chunks of its block
        where it gets one."""
        task, computed = self._tasks[number], list[Key]()
        if chunks is not None:
            self.task_graph.include(chunks.tasks, task.home)
            computed = chunks.keys
        sources = list(dict.fromkeys(ref.task for ref in task.inputs))
        places = {source: at for at, source in enumerate(sources)}
        step = Step(
            call=task.call,
            values=task.values,
            groups=task.groups,
            block=task.block,
            updates=task.updates,
            package=self._package,
            bundles=len(bundles),
            chunks=len(computed),
            picks=tuple((places[ref.task], ref.at) for ref in task.inputs),
        )
        inputs = [*self._given, *bundles, *computed, *(self.names[source] for source in sources)]
        self.task_graph.add(self.names[number], step, inputs, task.home)

    def _name(self, task: TaskNode, number: int) -> Key:
        """Steps that progress counts have the name of the pass on Dask's dashboard, others that of their function."""
        own = "" if task.steps else f"{task.call.__name__}-"
        return (f"{self.work.pass_.name}-{own}{self.work.token}", number)


# `dask.sizeof` answers 56 bytes for every `scipy.sparse.csr_array` (it knows only the older matrix classes).
_BYTES: dict[Any, Callable[[Any], int]] = {
    sp.csr_array: measured,
    sp.csc_array: measured,
    sp.coo_array: lambda matrix: sum(array.nbytes for array in (matrix.data, *matrix.coords)),
    Bundle: lambda bundle: sum(1000 + part.nbytes for part in bundle.parts.values()),  # blocks that parts hold
    Packed: lambda packed: 1000 + packed.nbytes,  # rows that were sent here
}
_register: Any = dask_sizes.sizeof.register
for _kind, _size in _BYTES.items():
    _register(_kind, _size)
