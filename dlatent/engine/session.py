"""A session: passes over one data source, from when it is opened to when it is closed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Block, DataSource, Graph
from dlatent.engine.executor import Build, InProcess, OnProgress, Take
from dlatent.engine.fold import Share, Tally, Work, join_kept, run_block
from dlatent.engine.task_graph import Layout, Ref, TaskGraph, TaskNode, joined_graph, rows_graph
from dlatent.errors import EngineError
from dlatent.order import FAN_IN, reduce_tree
from dlatent.passes import Edges, NoExchange, Pass, Resources, Tiles

if TYPE_CHECKING:
    from dlatent.engine.cluster import ClusterExecutor
    from dlatent.engine.edges import Traffic

S = TypeVar("S")
T = TypeVar("T")

GROUPS_EACH = 8
"""Groups of a stage for each thread at least: where a stage ends, threads wait for the last one."""
MOST_STAGES = 64


@dataclass(frozen=True)
class PassRecord:
    """Cost of one pass.

    Parameters
    ----------
    name : str
        What the pass does.
    seconds : float
        Wall time.
    bytes_read : int
        Bytes of blocks loaded from their source; cached blocks cost none, blocks in memory count in the first pass
        only.
    blocks : int
        All blocks seen.
    cached : int
        Those that came from memory.
    tasks : int
        Tasks submitted.
    busy_seconds : float
        Time inside tasks, summed over workers.
    """

    name: str
    seconds: float
    bytes_read: int
    blocks: int
    cached: int
    tasks: int
    busy_seconds: float


Executor: TypeAlias = "InProcess | ClusterExecutor"
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


def pass_graph(
    pass_: Pass[Any, Any], layout: Layout, needs: Sequence[Sequence[int]] = (), stage: range | None = None
) -> TaskGraph:
    """The tasks of a pass by its exchange pattern; `needs[g]` are the groups that group g has edges to.

    `stage` are the groups below one node of the tree, where the result of that is asked for, of blocks that do not
    meet.
    """
    if isinstance(pass_.exchange, NoExchange):
        return joined_graph(layout, stage or range(len(layout.homes)))
    if isinstance(pass_.exchange, Edges):
        from dlatent.engine.edges import edges_graph

        return edges_graph(layout, pass_.exchange, needs)
    from dlatent.engine import pairs  # which few fits need

    if isinstance(pass_.exchange, Tiles):
        return pairs.tiles_graph(layout)
    return pairs.mutual_graph(layout) if pass_.exchange.mutual else pairs.pairs_graph(layout)


class Session(AbstractContextManager["Session"]):
    """Runs passes over a data source through an executor, and keeps their records.

    `open_executor` opens another executor, over other data; `on_pass(record)` is called after each pass,
    `on_progress(done, total)` after each group of blocks, possibly from another thread; both may be set at any time.
    `resources` are the workers, threads and memory that the passes can use.  `count` counts something in every block
    during the next pass that maps whole blocks, and `counted` is the sum of all.
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
        self._checks = [each.check for each in (source, graph) if each is not None and each.check is not None]
        self.passes: list[PassRecord] = []
        self.on_pass = on_pass
        self.on_progress = on_progress
        self._executor, self._open = executor, open_executor
        self.resources = executor.resources
        self._survey: npt.NDArray[np.int64] | None = None
        self._begun = self._closed = False
        self.count: Callable[[Block], int] | None = None
        self.counted = 0
        self.journal: Journal | None = None

    @property
    def available(self) -> Resources:
        """The resources that a plan may use now: of the memory of a worker what is left before Dask pauses it."""
        return self._executor.available()

    def run(self, pass_: Pass[Any, S], /) -> S:
        """The result of a pass, joined in the fixed order.

        An exception of a block function reaches the caller as it is, stops the rest of the pass, and leaves the session
        usable.
        """
        if self.count is not None and isinstance(pass_.exchange, NoExchange | Edges):
            pass_, self.count = replace(pass_, count=self.count), None
        needs = []
        if isinstance(pass_.exchange, Edges):
            from dlatent.engine.edges import needs_of

            needs = needs_of(self.survey())
        if self.journal is not None and pass_.recorded:
            return self._journalled(pass_, needs, self.journal)  # type: ignore[no-any-return]
        shares, cost = self._executed(pass_, lambda layout: pass_graph(pass_, layout, needs))
        self._note(pass_, cost)
        return _result(pass_, shares)  # type: ignore[no-any-return]

    def _journalled(self, pass_: Pass[Any, Any], needs: Sequence[Sequence[int]], journal: Journal) -> Any:
        """The result of a pass in stages, each of which is recorded; those that were recorded before are not made
        again."""
        shares = list[Share]()
        for stage in self._stages(pass_, journal.threads):
            name = (pass_, None if stage is None else (stage.start, stage.stop))
            recalled = journal.recall(name)
            if recalled is None:
                build = partial(pass_graph, pass_, needs=needs, stage=stage)
                results, cost = self._executed(pass_, build, stage=stage)
                recalled = ((_result(pass_, results), cost),)
                journal.record(name, recalled[0])
            shares.append(recalled[0])
        work = Work(pass_, first=False, groups=len(shares))
        result, cost = reduce_tree(shares.__getitem__, lambda some: join_kept(work, some), len(shares))
        self._note(pass_, cost)
        return result

    def _stages(self, pass_: Pass[Any, Any], threads: int) -> Sequence[range | None]:
        """The groups of a long pass a few at a time: nodes of the tree of groups of one width, so that they meet as in
        one go."""
        groups, width = len(self._executor.groups), 1
        while width < max(GROUPS_EACH * threads, groups // MOST_STAGES):
            width *= FAN_IN
        if not isinstance(pass_.exchange, NoExchange) or width >= groups:
            return [None]
        return [range(start, min(start + width, groups)) for start in range(0, groups, width)]

    def deliver(self, pass_: Pass[Any, tuple[T, ...]], take: Callable[[tuple[T, ...]], None]) -> None:
        """A pass whose results, tuples, are not joined: `take` gets those of the blocks of one group after the other.

        For results as long as the data: they go from where they are made to the caller, through no other worker, and
        nobody holds all of them but the caller. Groups come in any order, from any thread, several at a time, and one
        may come again after a failure.
        """
        _, cost = self._executed(replace(pass_, combine=operator.add), rows_graph, take)
        self._note(pass_, cost)

    def run_block(self, pass_: Pass[Any, S], block: int, /) -> S:
        """The result of one block alone."""
        group = next(group for group in self._executor.groups if block < group.first + len(group.blocks))
        task = TaskNode(run_block, values=(block - group.first,), groups=(group.index,))
        shares, cost = self._executed(
            pass_, lambda layout: TaskGraph((replace(task, home=layout.homes[group.index]),), (Ref(0),)), complete=False
        )
        self._note(pass_, cost)
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
        self.resources = self._executor.resources

    def survey(self) -> npt.NDArray[np.int64]:
        """How many rows of each group (G, G) the rows of each group have edges to; the graph is read once for it."""
        if self._survey is None:
            from dlatent.engine.edges import survey_graph

            shares, _ = self._executed(Pass(operator.add, None, name="survey"), survey_graph, complete=False)
            self._survey = np.array([counts for counts, _ in shares])
        return self._survey

    def traffic(self) -> Traffic:
        """The traffic of one exchange between the rows of a graph."""
        from dlatent.engine.edges import traffic_of

        rows = [group.stop - group.start for group in self._executor.groups]
        return traffic_of(self.survey(), rows, self._executor.homes())

    def _executed(
        self,
        pass_: Pass[Any, Any],
        build: Build,
        take: Take | None = None,
        *,
        complete: bool = True,
        stage: range | None = None,
    ) -> tuple[list[Share], Tally]:
        """The shares of a pass, or of a stage of it, and their cost."""
        self._require_open()
        started, groups, tell = perf_counter(), len(self._executor.groups), self.on_progress
        if tell is not None and stage is not None:  # of the progress of a stage as one of the whole pass
            tell = partial(_told, tell, stage.start, groups)
        work = Work(pass_, first=not self._begun, groups=groups, cache_bytes=self.resources.cache_bytes)
        shares, tasks = self._executor.execute(build, work, tell, take)
        self._begun = self._begun or complete
        cost = reduce(Tally.plus, (tally for _, tally in shares))
        for check in self._checks if cost.bytes_read else ():  # of data that were replaced meanwhile, nothing holds
            check()
        return shares, cost._replace(seconds=perf_counter() - started, tasks=tasks)

    def _note(self, pass_: Pass[Any, Any], cost: Tally) -> None:
        """Write the record of a pass."""
        self.counted += cost.counted
        self.passes.append(PassRecord(pass_.name, *cost[:-1]))
        if self.on_pass is not None:
            self.on_pass(self.passes[-1])

    def _require_open(self) -> None:
        if self._closed:
            raise EngineError("This session is closed; connect a new one to the data.")

    def close(self) -> None:
        """Free the cached blocks of this source on every worker; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._executor.close()

    def __exit__(self, *_error: object) -> None:
        self.close()


def _result(pass_: Pass[Any, Any], shares: Sequence[Share]) -> Any:
    """The result of a pass, from the shares that its graph gives."""
    if isinstance(pass_.exchange, Tiles):
        entries = dict(chain.from_iterable(tile.items() for tile, _ in shares))
        return tuple(entries[pair] for pair in sorted(entries))
    ((result, _),) = shares
    return result


def _told(tell: OnProgress, before: int, total: int, done: int, _: int) -> None:
    """Tell of the progress of a stage as one of the whole pass."""
    tell(before + done, total)
