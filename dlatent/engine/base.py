"""What all engines share: the parts of one data source, the records of the passes, and the end."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from threading import Lock
from time import perf_counter
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, cast

from dlatent.arrays import Block, DataSource, Form, Rows, add
from dlatent.engine.exchange import LinkedWork, Traffic
from dlatent.engine.gather import PassRecord, Resources
from dlatent.engine.pairs import PairWork, TileWork
from dlatent.engine.part import Share, Work
from dlatent.errors import EngineError

S = TypeVar("S")
T = TypeVar("T")
V = TypeVar("V")
P = TypeVar("P")

OnPass = Callable[[PassRecord], None]
OnProgress = Callable[[int, int], None]
Take = Callable[[Any], None]


class Progress:
    """Counts finished groups for a progress display; `done` may be called from any thread."""

    def __init__(self, total: int, tell: OnProgress) -> None:
        self._total, self._tell = total, tell
        self._done, self._lock = 0, Lock()

    def done(self) -> None:
        """One more group is finished."""
        with self._lock:
            self._done += 1
            self._tell(self._done, self._total)


class Runner(Protocol):
    """Runs the parts of one data source somewhere."""

    @property
    def resources(self) -> Resources:
        """Workers, threads and memory."""
        ...

    @property
    def groups(self) -> int:
        """Number of groups of blocks."""
        ...

    def run(self, work: Work, progress: Progress | None) -> tuple[Share, int]:
        """The joined share of all parts, and the number of tasks it took."""
        ...

    def run_apart(self, work: Work, take: Take, progress: Progress | None) -> tuple[Share, int]:
        """An empty share with what the work cost, after `take` has got that of each part, and the number of tasks."""
        ...

    def run_linked(self, work: LinkedWork, progress: Progress | None) -> tuple[Share, int]:
        """The joined share of all parts after an exchange between their rows, and the number of tasks it took."""
        ...

    def run_pairs(self, work: PairWork, progress: Progress | None) -> tuple[Share, int]:
        """The joined share of all parts after every part has met every part, and the number of tasks it took."""
        ...

    def run_tiles(self, work: TileWork, progress: Progress | None) -> tuple[Share, int]:
        """The entries of all pairs of parts in one tuple, and the number of tasks it took."""
        ...

    def traffic(self) -> Traffic:
        """What one exchange between the rows moves. Reads the links."""
        ...

    def close(self) -> None:
        """Free what the runner keeps between passes."""
        ...


class PassEngine:
    """An engine (see `dlatent.engine.gather.Engine`) over a runner.

    `on_pass(record)` is called after each pass, `on_progress(done, total)` after each group of blocks, possibly from
    another thread; both may be set at any time.
    """

    def __init__(
        self,
        source: DataSource,
        runner: Runner,
        on_pass: OnPass | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.source = source
        self.passes: list[PassRecord] = []
        self.on_pass = on_pass
        self.on_progress = on_progress
        self._runner = runner
        self._closed = False

    @property
    def resources(self) -> Resources:
        """Workers, threads and memory that the passes can use."""
        return self._runner.resources

    def gather(
        self,
        function: Callable[[Block, P], S],
        parameters: P,
        *,
        combine: Callable[[S, S], S] = add,
        form: Form | None = None,
        name: str = "pass",
    ) -> S:
        """One pass: apply `function` to every block and combine in the fixed order.

        `combine(left, right)` may update arrays and tuples of arrays on the left in place. `form` (features → features)
        is applied to blocks when they are read, and what it makes is kept for later passes that ask for it; blocks
        that lie in memory stay as they are, so that the result must not depend on it. An exception of `function`
        reaches the caller as it is, stops the rest of the pass, and leaves the engine usable.
        """
        work = Work.of(name, function, parameters, combine, not self.passes, form)
        return cast(S, self._passed(work, self._runner.run))

    def deliver(
        self,
        function: Callable[[Block, P], tuple[T, ...]],
        parameters: P,
        take: Callable[[tuple[T, ...]], None],
        *,
        name: str = "pass",
    ) -> None:
        """One pass whose results are not joined: `take` gets those of the blocks of one group after the other.

        For results as long as the data: they go from where they are made to the caller, through no other worker, and
        nobody holds all of them but the caller. Groups come in any order, from any thread, several at a time, and one
        may come again after a failure.
        """
        work = Work.of(name, function, parameters, operator.add, not self.passes)
        self._passed(work, lambda work, progress: self._runner.run_apart(work, take, progress))

    def gather_linked(
        self,
        rows: Callable[[Block, P], Rows],
        fold: Callable[[Block, P], S],
        parameters: P,
        *,
        keep: Callable[[Rows, P], Rows],
        hops: int,
        combine: Callable[[S, S], S] = add,
        cached: bool = True,
        name: str = "linked pass",
    ) -> S:
        """One pass in which rows meet their neighbours: R₀ = rows(block), R ← keep(R) + A R, Σ fold(block with both).

        The engine must have been connected with links. `keep` makes an array of its own, and `fold` leaves its block as
        it is; without `cached` the pass leaves its memory to what is exchanged.
        """
        work = LinkedWork.linked(name, rows, keep, hops, fold, parameters, combine, not self.passes, cached)
        return cast(S, self._passed(work, self._runner.run_linked))

    def gather_pairs(
        self,
        meet: Callable[[Any, Any, P], Any],
        parameters: P,
        *,
        along: Callable[[V, V], V] = add,
        finish: Callable[[Block, V, P], T] | None = None,
        combine: Callable[[T, T], T] | None = None,
        mutual: bool = False,
        name: str = "pairs",
    ) -> Any:
        """One pass in which every block b meets every block: V_b = along over b' of meet(b, b', parameters).

        Values should be thin (n rows of the own block, few columns), and `meet` should cut large blocks into tiles: its
        working memory is its own affair. `along(left, right)` joins values of one block with others in the fixed order,
        and `finish(b, V_b, parameters)` makes the result of the block (None: V_b itself), where it may write it to a
        store. With `mutual`, two blocks meet once, and `meet` returns a value for each of them, of which a block that
        meets itself takes the first. Results of all blocks meet by `combine`; None returns them as a tuple in the order
        of the blocks. `along` and `combine` may update arrays and tuples of arrays on the left in place.
        """
        groups, first = self._runner.groups, not self.passes
        work = PairWork.pairs(name, meet, parameters, along, finish, combine, mutual, groups, first)
        return self._passed(work, self._runner.run_pairs)

    def gather_tiles(
        self, meet: Callable[[Sequence[Block], Sequence[Block], P], S], parameters: P, *, name: str = "tiles"
    ) -> tuple[S, ...]:
        """One pass in which every two groups of blocks meet once, with all their blocks in memory: meet(g, g',
        parameters) of the groups g ≤ g', in the order of (g, g').

        Where g' is g, `meet` gets the same list twice.
        """
        work = TileWork.tiles(name, meet, parameters, self._runner.groups, not self.passes)
        return cast(tuple[S, ...], self._passed(work, self._runner.run_tiles))

    def traffic(self) -> Traffic:
        """What one exchange between the rows moves. Reads the links."""
        return self._runner.traffic()

    def _passed(self, work: Any, run: Callable[[Any, Progress | None], tuple[Share, int]]) -> Any:
        """Run a pass and write its record."""
        if self._closed:
            raise EngineError("This engine is closed; connect a new one to the data.")
        started = perf_counter()
        progress = None if self.on_progress is None else Progress(work.steps(self._runner.groups), self.on_progress)
        (statistic, tally), tasks = run(work, progress)
        seconds = perf_counter() - started
        blocks = len(self.source.blocks) * work.visits()
        record = PassRecord(work.name, seconds, tally.bytes_read, blocks, tally.cached, tasks, tally.busy_seconds)
        self.passes.append(record)
        if self.on_pass is not None:
            self.on_pass(record)
        return statistic

    def close(self) -> None:
        """Free the cached blocks of this source on every worker; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def require_blocks(source: DataSource) -> DataSource:
    """Refuse a source without blocks, for which a pass has no result."""
    if not source.blocks:
        raise EngineError(f"The {source.description} has no rows, so there is nothing to pass over.")
    return source


__all__ = ["OnPass", "OnProgress", "PassEngine", "Progress", "Runner", "Take", "require_blocks"]
