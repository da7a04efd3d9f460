"""What runs on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from threading import Lock
from typing import Any

from dlatent.engine.executor import chosen, entry
from dlatent.engine.held import assembled
from dlatent.engine.part import Bundle, Part, Sealed, Work, ended, lent, owned, unsealed
from dlatent.engine.versions import require_same


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
