"""One Dask graph for a pass, its tasks sorted into layers by the worker that they should run on.

A pass is sent as one message: a message for each task costs the scheduler twice the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dask._task_spec import Task, TaskRef
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from dlatent.arrays import BlockSource

Key = Any
"""A Dask key: a string, or a tuple of a string and integers."""


@dataclass(frozen=True, eq=False)
class Given:
    """An input that travels with each task in the place of the key of a task that makes it."""

    value: Any


class Graph:
    """Tasks under construction; a home is a preference that the scheduler may overrule."""

    def __init__(self) -> None:
        self._layers: dict[str, dict[Key, Any]] = {}
        self._homes: dict[str, str] = {}

    def __len__(self) -> int:
        return sum(map(len, self._layers.values()))

    def add(
        self, key: Key, function: Callable[..., Any], *values: Any, inputs: Any = (), home: str | None = None
    ) -> Key:
        """A task `function(*values, *results of the keys in inputs)`; returns its key."""
        results = (given.value if isinstance(given, Given) else TaskRef(given) for given in inputs)
        self._layer(home)[key] = Task(key, function, *values, *results)
        return key

    def drop(self, key: Key) -> None:
        """Take out a task that has no home."""
        del self._layer(None)[key]

    def include(self, tasks: Mapping[Key, Any], home: str | None) -> None:
        """Tasks of another Dask collection."""
        self._layer(home).update(tasks)

    def built(self) -> HighLevelGraph:
        """The graph, with the homes as annotations of its layers."""
        layers = {
            name: MaterializedLayer(
                tasks, {"workers": [self._homes[name]], "allow_other_workers": True} if name in self._homes else None
            )
            for name, tasks in self._layers.items()
        }
        return HighLevelGraph(layers, {name: set() for name in layers})

    def _layer(self, home: str | None) -> dict[Key, Any]:
        name = "anywhere" if home is None else f"at {home}"
        if home is not None:
            self._homes[name] = home
        return self._layers.setdefault(name, {})


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
