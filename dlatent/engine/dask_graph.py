"""One Dask graph for a pass, its tasks sorted into layers by the worker that they should run on.

A pass is sent as one message: a message for each task costs the scheduler twice the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from dlatent.arrays import BlockSource
from dlatent.engine.task_graph import ANYWHERE

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
