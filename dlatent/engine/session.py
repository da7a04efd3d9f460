"""A session: passes over one data source, from when it is opened to when it is closed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce
from itertools import chain
from time import perf_counter
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Block, DataSource, Graph
from dlatent.engine.cache import owned
from dlatent.engine.exchange import Traffic, needs_of, traffic_of
from dlatent.engine.executor import Build, Executor, OnProgress, Take
from dlatent.engine.fold import Share, Tally, Work
from dlatent.engine.records import PassCost, PassRecord
from dlatent.engine.task_graph import block_graph, pass_graph, rows_graph, survey_graph
from dlatent.errors import EngineError
from dlatent.order import FAN_IN, reduce_tree
from dlatent.passes import Alone, Edges, Pass, Resources, Tiles

S = TypeVar("S")
T = TypeVar("T")

GROUPS_EACH = 8
"""Groups of a stage for each thread at least: where a stage ends, threads wait for the last one."""
MOST_STAGES = 64

OnPass: TypeAlias = Callable[[PassRecord], None]


class Journal(Protocol):
    """Knows the results of passes that an interrupted fit has made, and gets those that are made.

    `threads`: of the cluster that began; a pass has the same stages on any other.
    """

    threads: int

    def recall(self, work: Any) -> Any:
        """The result that was recorded of some work, as a tuple of one; None where there is none."""
        ...

    def record(self, work: Any, result: Any) -> None:
        """Keep the result of some work."""
        ...


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
        graph: Graph | None = None,
    ) -> None:
        self.source = source
        self._checks = [given.check for given in (source, graph) if given is not None and given.check is not None]
        self.passes: list[PassRecord] = []
        self.on_pass = on_pass
        self.on_progress = on_progress
        self._executor, self._open = executor, open_executor
        self._survey: npt.NDArray[np.int64] | None = None
        self._begun = self._closed = False
        self._count: Callable[[Block], int] | None = None
        self.counted = 0
        self.journal: Journal | None = None

    @property
    def resources(self) -> Resources:
        """Workers, threads and memory that the passes can use."""
        return self._executor.resources

    @property
    def available(self) -> Resources:
        """What a plan may use of them now: of the memory of a worker what is left before Dask pauses it."""
        return self._executor.available()

    def run(self, pass_: Pass[Any, S], /) -> S:
        """The result of a pass, joined in the fixed order.

        An exception of a block function reaches the caller as it is, stops the rest of the pass, and leaves the session
        usable.
        """
        if self._count is not None and isinstance(pass_.meeting, Alone | Edges):
            pass_, self._count = replace(pass_, count=self._count), None
        needs = needs_of(self.survey()) if isinstance(pass_.meeting, Edges) else []
        if self.journal is not None and pass_.recorded:
            return self._journalled(pass_, needs, self.journal)  # type: ignore[no-any-return]
        shares, cost = self._executed(pass_, lambda layout: pass_graph(pass_, layout, needs))
        self._note(cost)
        return _result(pass_, shares)  # type: ignore[no-any-return]

    def _journalled(self, pass_: Pass[Any, Any], needs: Sequence[Sequence[int]], journal: Journal) -> Any:
        """The same, in stages, of which each is recorded; those that were recorded before are not made again."""
        results, costs = list[Any](), list[PassCost]()
        for stage in self._stages(pass_, journal.threads):
            work = (pass_, None if stage is None else (stage.start, stage.stop))
            found = journal.recall(work)
            if found is None:
                build = partial(pass_graph, pass_, needs=needs, stage=stage)
                shares, cost = self._executed(pass_, build, stage=stage)
                result = _result(pass_, shares)
                journal.record(work, (result, cost))
            else:
                ((result, cost),) = found
            results.append(result)
            costs.append(cost)
        self._note(reduce(PassCost.plus, costs))
        return reduce_tree(results.__getitem__, lambda parts: reduce(pass_.combine, _first_owned(parts)), len(results))

    def _stages(self, pass_: Pass[Any, Any], threads: int) -> list[range | None]:
        """The groups of a long pass a few at a time: nodes of the tree of groups of one width, so that they meet as in
        one go."""
        groups, width = len(self._executor.parts), 1
        while width < max(GROUPS_EACH * threads, groups // MOST_STAGES):
            width *= FAN_IN
        if not isinstance(pass_.meeting, Alone) or width >= groups:
            return [None]
        return [range(start, min(start + width, groups)) for start in range(0, groups, width)]

    def count_beside(self, function: Callable[[Block], int]) -> None:
        """Count something in every block during the next pass that maps whole blocks; `counted` is the sum of all."""
        self._count, self.counted = function, 0

    def deliver(self, pass_: Pass[Any, tuple[T, ...]], take: Callable[[tuple[T, ...]], None]) -> None:
        """A pass whose results, tuples, are not joined: `take` gets those of the blocks of one group after the other.

        For results as long as the data: they go from where they are made to the caller, through no other worker, and
        nobody holds all of them but the caller. Groups come in any order, from any thread, several at a time, and one
        may come again after a failure.
        """
        _, cost = self._executed(replace(pass_, combine=operator.add), rows_graph, take)
        self._note(cost)

    def run_block(self, pass_: Pass[Any, S], block: int, /) -> S:
        """The result of one block alone."""
        group = next(g for g, part in enumerate(self._executor.parts) if block < part.first + len(part.blocks))
        position = block - self._executor.parts[group].first
        shares, cost = self._executed(pass_, lambda layout: block_graph(layout, group, position), whole=False)
        self._note(cost)
        return shares[0][0]  # type: ignore[no-any-return]

    @contextmanager
    def over(self, source: DataSource) -> Iterator[Session]:
        """A session over other data with the same client and cache, whose passes are among the records of this one."""
        self._require_open()
        executor = self._open(source, cache_bytes=self.resources.cache_bytes)
        with Session(source, executor, self._open, self.on_pass, self.on_progress) as other:
            other.passes, other.journal = self.passes, self.journal
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

    def _executed(
        self,
        pass_: Pass[Any, Any],
        build: Build,
        take: Take | None = None,
        *,
        whole: bool = True,
        stage: range | None = None,
    ) -> tuple[list[Share], PassCost]:
        """The shares of a pass, or of a stage of it, and their cost."""
        self._require_open()
        started = perf_counter()
        tell = self.on_progress
        if tell is not None and stage is not None:
            tell = partial(_told, tell, stage.start, len(self._executor.parts))
        shares, tasks = self._executor.execute(build, self._work(pass_), tell, take)
        self._begun = self._begun or whole
        tally = reduce(Tally.plus, (tally for _, tally in shares), Tally())
        for check in self._checks if tally.bytes_read else ():  # of data that were replaced meanwhile, nothing holds
            check()
        record = PassRecord(
            pass_.name,
            perf_counter() - started,
            tally.bytes_read,
            tally.blocks,
            tally.cached,
            tasks,
            tally.busy_seconds,
        )
        return shares, PassCost(record, tally.counted)

    def _note(self, cost: PassCost) -> None:
        """Write the record of a pass."""
        self.counted += cost.counted
        self.passes.append(cost.record)
        if self.on_pass is not None:
            self.on_pass(cost.record)

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


def _result(pass_: Pass[Any, Any], shares: Sequence[Share]) -> Any:
    """The result of a pass, from the shares that its graph gives."""
    if isinstance(pass_.meeting, Tiles):
        entries = dict(chain.from_iterable(found.items() for found, _ in shares))
        return tuple(entries[pair] for pair in sorted(entries))
    ((result, _),) = shares
    return result


def _told(tell: OnProgress, before: int, total: int, done: int, _: int) -> None:
    """Tell of the progress of a stage as one of the whole pass."""
    tell(before + done, total)


def _first_owned(parts: Iterable[Any]) -> Iterator[Any]:
    """The parts, of which the first may be added to."""
    first, *others = parts
    return iter((owned(first), *others))


def _nothing(*_values: Any) -> None:
    """The block function of the survey, which looks at no block."""
