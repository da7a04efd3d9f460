"""A session: passes over one data source, from when it is opened to when it is closed."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from time import perf_counter
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from dlatent.arrays import DataSource
from dlatent.engine.exchange import Traffic, needs_of, traffic_of
from dlatent.engine.executor import Build, Executor, OnProgress, Take
from dlatent.engine.graph import pass_graph, rows_graph, survey_graph
from dlatent.engine.part import Share, Tally, Work
from dlatent.engine.records import PassRecord, Resources
from dlatent.errors import EngineError
from dlatent.passes import Edges, Pass, Tiles

S = TypeVar("S")
T = TypeVar("T")

OnPass: TypeAlias = Callable[[PassRecord], None]


class Session:
    """Runs passes over a data source through an executor, and keeps their records.

    `on_pass(record)` is called after each pass, `on_progress(done, total)` after each group of blocks, possibly from
    another thread; both may be set at any time.
    """

    def __init__(
        self,
        source: DataSource,
        executor: Executor,
        on_pass: OnPass | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.source = source
        self.passes: list[PassRecord] = []
        self.on_pass = on_pass
        self.on_progress = on_progress
        self._executor = executor
        self._survey: npt.NDArray[np.int64] | None = None
        self._closed = False

    @property
    def resources(self) -> Resources:
        """Workers, threads and memory that the passes can use."""
        return self._executor.resources

    def run(self, pass_: Pass[Any, S], /) -> S:
        """The result of a pass, joined in the fixed order.

        An exception of a block function reaches the caller as it is, stops the rest of the pass, and leaves the session
        usable.
        """
        needs = needs_of(self.survey()) if isinstance(pass_.meeting, Edges) else []
        shares = self._passed(pass_, lambda layout: pass_graph(pass_, layout, needs))
        if isinstance(pass_.meeting, Tiles):
            return tuple(chain.from_iterable(entry for entry, _ in shares))  # type: ignore[return-value]
        ((result, _),) = shares
        return result  # type: ignore[no-any-return]

    def deliver(self, pass_: Pass[Any, tuple[T, ...]], take: Callable[[tuple[T, ...]], None]) -> None:
        """A pass whose results, tuples, are not joined: `take` gets those of the blocks of one group after the other.

        For results as long as the data: they go from where they are made to the caller, through no other worker, and
        nobody holds all of them but the caller. Groups come in any order, from any thread, several at a time, and one
        may come again after a failure.
        """
        self._passed(replace(pass_, combine=operator.add), rows_graph, take)

    def survey(self) -> npt.NDArray[np.int64]:
        """How many rows of each group (G, G) the rows of each group have edges to; the graph is read once for it."""
        if self._survey is None:
            work = Work.of(Pass(_nothing, None, name="survey"), first=False, groups=len(self._executor.parts))
            counts, _ = self._executor.execute(survey_graph, work)
            self._survey = np.array(counts)
        return self._survey

    def traffic(self) -> Traffic:
        """What one exchange between the rows of a graph moves."""
        rows = [part.stop - part.start for part in self._executor.parts]
        return traffic_of(self.survey(), rows, self._executor.homes())

    def _passed(self, pass_: Pass[Any, Any], build: Build, take: Take | None = None) -> list[Share]:
        """Run a pass and write its record."""
        if self._closed:
            raise EngineError("This session is closed; connect a new one to the data.")
        started = perf_counter()
        work = Work.of(pass_, first=not self.passes, groups=len(self._executor.parts))
        shares, tasks = self._executor.execute(build, work, self.on_progress, take)
        cost = Tally()
        for _, tally in shares:
            cost = cost.plus(tally)
        seconds = perf_counter() - started
        record = PassRecord(pass_.name, seconds, cost.bytes_read, cost.blocks, cost.cached, tasks, cost.busy_seconds)
        self.passes.append(record)
        if self.on_pass is not None:
            self.on_pass(record)
        return shares

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
