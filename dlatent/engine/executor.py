"""What an executor is: it runs the tasks of a pass somewhere, in this process or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, Protocol, TypeAlias

from dlatent.engine.part import Part, Share, Work
from dlatent.engine.task_graph import Layout, TaskGraph
from dlatent.passes import Resources

OnProgress: TypeAlias = Callable[[int, int], None]
"""Called with the steps done and all steps, perhaps from another thread."""
Take: TypeAlias = Callable[[Any], None]
"""Gets the values of a result in the place of the caller."""
Build: TypeAlias = Callable[[Layout], TaskGraph]
"""Makes the graph of a pass for the places where the groups lie now."""


class Executor(Protocol):
    """Runs passes over the groups of one data source."""

    @property
    def resources(self) -> Resources:
        """Workers, threads and memory."""
        ...

    def available(self) -> Resources:
        """The same as a plan may use it: of the memory of a worker what is left before Dask pauses it."""
        ...

    @property
    def parts(self) -> Sequence[Part]:
        """The groups of blocks."""
        ...

    def execute(
        self, build: Build, work: Work, tell: OnProgress | None = None, take: Take | None = None
    ) -> tuple[list[Any], int]:
        """The results of a graph, and the number of its tasks; with `take`, which gets the values of each result (a
        share) as soon as it is made, empty shares.

        An exception of a task reaches the caller as it is, stops the others, and leaves the executor usable.
        """
        ...

    def homes(self) -> list[str]:
        """The worker of each group."""
        ...

    def keep(self, cache_bytes: int) -> None:
        """Keep so many bytes of blocks between passes, in each process."""
        ...

    def close(self) -> None:
        """Free what is kept between passes."""
        ...


class StepCounter:
    """Counts finished steps for a progress display; `done` may be called from any thread."""

    def __init__(self, total: int, tell: OnProgress | None) -> None:
        self._total, self._tell = total, tell
        self._done, self._lock = 0, Lock()

    def done(self, steps: int) -> None:
        """So many more steps are finished."""
        if self._tell is not None:
            for _ in range(steps):
                with self._lock:
                    self._done += 1
                    self._tell(self._done, self._total)


def layout_of(parts: Sequence[Part], homes: Sequence[str], threads: Mapping[str, int]) -> Layout:
    """Where the groups lie."""
    sizes = tuple(sum(block.nbytes for block in part.blocks) for part in parts)
    return Layout(sizes, tuple(len(part.blocks) for part in parts), tuple(homes), threads)


def chosen(part: Callable[[int], Part], groups: Sequence[int | Sequence[int]]) -> list[Any]:
    """The parts that a task gets: for a number a part, for several a list of parts."""
    return [part(group) if isinstance(group, int) else list(map(part, group)) for group in groups]


def entry(result: Any, at: int | None) -> Any:
    """What a `Ref` means of the result of its task."""
    return result if at is None else result[at]


def taken(at: int | None, take: Take | None, result: Any) -> Any:
    """The same; with `take`, which gets the values of this share, an empty one with its cost."""
    found: Share = entry(result, at)
    if take is None:
        return found
    values, tally = found
    take(values)
    return (), tally
