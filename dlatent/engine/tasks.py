"""What runs on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

from dlatent.engine import held
from dlatent.engine.executor import chosen, entry
from dlatent.engine.part import Part, Sealed, Work, ended, lent, owned, settled, unsealed


class Package:
    """A pass on its way: sealed until a worker needs it, so that scheduler and network only pass it on.

    Two packages are equal when they belong to the same pass.
    """

    def __init__(self, payload: Sealed, token: str) -> None:
        self.payload, self.token = payload, token

    def __hash__(self) -> int:
        return hash(self.token)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Package) and other.token == self.token

    def __sizeof__(self) -> int:
        return len(self.payload)


_opening = Lock()


@lru_cache(maxsize=1)
def _unpacked(package: Package) -> Work:
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
    """A task of a pass on a worker (see `graph.Node`), called with the package and the parts where they do not come
    with the task, then with the chunks of a computed block, and with the results of other tasks.

    Parameters
    ----------
    call, values, block, updates : as in `graph.Node`.
    package, parts : what comes with the task.
    groups : the parts that `call` gets, by their places in the pool of those that are given (see `executor.chosen`).
    pool : number of parts that are given; None where they are given as one, those of all groups.
    chunks : number of chunks.
    picks : of each result that `call` gets, which of those given it is, or has at which position.
    """

    call: Callable[..., Any]
    values: tuple[Any, ...]
    block: int | None
    updates: bool
    package: Package | None
    parts: tuple[Sealed, ...]
    groups: tuple[int | Sequence[int], ...]
    pool: int | None
    chunks: int
    picks: tuple[tuple[int, int | None], ...]

    @property
    def __name__(self) -> str:
        """What Dask calls it."""
        return self.call.__name__

    def __call__(self, *given: Any) -> Any:
        """Do the work."""
        package, given = (given[0], given[1:]) if self.package is None else (self.package, given)
        count = 1 if self.pool is None else self.pool
        pool: Sequence[Part] = [unsealed(part) for part in self.parts] or (
            given[0] if self.pool is None else given[:count]
        )
        parts, given = chosen(pool, self.groups), given[count:]
        chunks, results = given[: self.chunks], given[self.chunks :]
        features = [] if self.block is None else [_assembled(parts[0], self.block, chunks)]
        inputs = [entry(results[number], at) for number, at in self.picks]
        if self.updates:
            # What other tasks made stays the scheduler's, which may need it again after a worker is lost.
            first, *others = inputs
            inputs = [owned(first), *map(lent, others)]
        return self.call(opened(package), *self.values, *parts, *features, *inputs)


def _assembled(part: Part, block: int, chunks: Iterable[Any]) -> Any:
    source = part.blocks[block]
    return settled(source, source.assemble(tuple(chunks)))


def together(*parts: Part) -> tuple[Part, ...]:
    """Some parts as one value."""
    return parts


def hold(cuts: tuple[int, ...], part: Part, *chunks: Any) -> Part:
    """Put the blocks of a part together from computed chunks."""
    return held.hold(part, cuts, *chunks)
