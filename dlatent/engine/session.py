"""A session: passes over one data source, from when it is opened to when it is closed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from time import perf_counter
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Block, DataSource
from dlatent.engine.exchange import Traffic, needs_of, traffic_of
from dlatent.engine.executor import Build, Executor, OnProgress, Take
from dlatent.engine.part import Share, Tally, Work
from dlatent.engine.records import PassRecord, Resources
from dlatent.engine.task_graph import block_graph, pass_graph, rows_graph, survey_graph
from dlatent.errors import EngineError
from dlatent.passes import Alone, Edges, Pass, Tiles

S = TypeVar("S")
T = TypeVar("T")

OnPass: TypeAlias = Callable[[PassRecord], None]


class Session:
    """Runs passes over a data source through an executor, and keeps their records.

    `open_executor` opens another executor, over other data; `on_pass(record)` is called after each pass,
    `on_progress(done, total)` after each group of blocks, possibly from another thread; both may be set at any time.
    """

    def __init__(
        self,
        source: DataSource,
        executor: Executor,
        open_executor: Callable[..., Executor],
        on_pass: OnPass | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.source = source
        self.passes: list[PassRecord] = []
        self.on_pass = on_pass
        self.on_progress = on_progress
        self._executor, self._open = executor, open_executor
        self._survey: npt.NDArray[np.int64] | None = None
        self._begun = self._closed = False
        self._count: Callable[[Block], int] | None = None
        self.counted = 0

    @property
    def resources(self) -> Resources:
        """Workers, threads and memory that the passes can use."""
        return self._executor.resources

    def run(self, pass_: Pass[Any, S], /) -> S:
        """The result of a pass, joined in the fixed order.

        An exception of a block function reaches the caller as it is, stops the rest of the pass, and leaves the session
        usable.
        """
        if self._count is not None and isinstance(pass_.meeting, Alone | Edges):
            pass_, self._count = replace(pass_, count=self._count), None
        needs = needs_of(self.survey()) if isinstance(pass_.meeting, Edges) else []
        shares = self._passed(pass_, lambda layout: pass_graph(pass_, layout, needs))
        if isinstance(pass_.meeting, Tiles):
            entries = dict(chain.from_iterable(found.items() for found, _ in shares))
            return tuple(entries[pair] for pair in sorted(entries))  # type: ignore[return-value]
        ((result, _),) = shares
        return result  # type: ignore[no-any-return]

    def count_beside(self, function: Callable[[Block], int]) -> None:
        """Count something in every block during the next pass that maps whole blocks; `counted` is the sum of all."""
        self._count, self.counted = function, 0

    def deliver(self, pass_: Pass[Any, tuple[T, ...]], take: Callable[[tuple[T, ...]], None]) -> None:
        """A pass whose results, tuples, are not joined: `take` gets those of the blocks of one group after the other.

        For results as long as the data: they go from where they are made to the caller, through no other worker, and
        nobody holds all of them but the caller. Groups come in any order, from any thread, several at a time, and one
        may come again after a failure.
        """
        self._passed(replace(pass_, combine=operator.add), rows_graph, take)

    def run_block(self, pass_: Pass[Any, S], block: int, /) -> S:
        """The result of one block alone."""
        group = next(g for g, part in enumerate(self._executor.parts) if block < part.first + len(part.blocks))
        position = block - self._executor.parts[group].first
        ((result, _),) = self._passed(pass_, lambda layout: block_graph(layout, group, position), whole=False)
        return result  # type: ignore[no-any-return]

    @contextmanager
    def over(self, source: DataSource) -> Iterator[Session]:
        """A session over other data with the same client and cache, whose passes are among the records of this one."""
        self._require_open()
        executor = self._open(source, cache_bytes=self.resources.cache_bytes)
        with Session(source, executor, self._open, self.on_pass, self.on_progress) as other:
            other.passes = self.passes
            yield other

    def keep(self, cache_bytes: int) -> None:
        """Keep so many bytes of blocks between passes from now on, in each process."""
        self._executor.keep(cache_bytes)

    def survey(self) -> npt.NDArray[np.int64]:
        """How many rows of each group (G, G) the rows of each group have edges to; the graph is read once for it."""
        self._require_open()
        if self._survey is None:
            work = self._work(Pass(_nothing, None, name="survey"))
            counts, _ = self._executor.execute(survey_graph, work)
            self._survey = np.array(counts)
        return self._survey

    def traffic(self) -> Traffic:
        """What one exchange between the rows of a graph moves."""
        rows = [part.stop - part.start for part in self._executor.parts]
        return traffic_of(self.survey(), rows, self._executor.homes())

    def _work(self, pass_: Pass[Any, Any]) -> Work:
        cap, groups = self.resources.cache_bytes, len(self._executor.parts)
        return Work.of(pass_, first=not self._begun, groups=groups, cache_bytes=cap)

    def _passed(
        self, pass_: Pass[Any, Any], build: Build, take: Take | None = None, *, whole: bool = True
    ) -> list[Share]:
        """Run a pass and write its record."""
        self._require_open()
        started = perf_counter()
        shares, tasks = self._executor.execute(build, self._work(pass_), self.on_progress, take)
        self._begun = self._begun or whole
        cost = Tally()
        for _, tally in shares:
            cost = cost.plus(tally)
        self.counted += cost.counted
        seconds = perf_counter() - started
        record = PassRecord(pass_.name, seconds, cost.bytes_read, cost.blocks, cost.cached, tasks, cost.busy_seconds)
        self.passes.append(record)
        if self.on_pass is not None:
            self.on_pass(record)
        return shares

    def _require_open(self) -> None:
        if self._closed:
            raise EngineError("This session is closed; connect a new one to the data.")

    def close(self) -> None:
        """Free the cached blocks of this source on every worker; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._executor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _nothing(*_values: Any) -> None:
    """The block function of the survey, which looks at no block."""
