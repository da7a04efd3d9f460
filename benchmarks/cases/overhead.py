"""overhead: what a pass costs beside the arithmetic, over 16 to 4,096 blocks, on two processes and on threads.

A block has 10 rows of 20 float32 columns, so that nearly all of the time is the engine's own, and lies in the cache
after the first pass.  Small data are cut into few groups of blocks, each of them one task; data that are announced as
large (128 MB a block) into as many groups as there are blocks, up to 1,024, which shows what a task costs.

A task takes several small groups of a worker; in *long* passes each group is a task of its own here, as it is where
groups are large.

Beside them stands Dask alone: trees with a task for each group, of functions that do nothing, on the same two
processes.  They tell how much of a pass is Dask's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.cluster import WORKERS, local_cluster
from benchmarks.processes import Stopwatch
from benchmarks.table import grouped, markdown, middle, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished
from dlatent.order import reduce_tree

ROWS, COLUMNS, DIRECTIONS = 10, 20, 3
BLOCKS = (16, 64, 256, 1_024, 4_096)
LEAVES = (4, 16, 64, 256, 1_024)
"""Of the trees of Dask alone: as many as the groups of so many blocks."""
ENGINES = ("processes", "long", "threads")
PASSES = 30
"""Passes that are measured, after one that loads the blocks and some that fill the caches of scheduler and workers."""
FIRST = 4
LARGE = 128_000_000
"""Bytes of a block that becomes a group of its own."""
TASK_MILLISECONDS, PASS_MILLISECONDS = 2.0, 500.0
"""Most milliseconds of a task, beside the time inside tasks, and most of a pass over 4,096 blocks."""


@dataclass(frozen=True)
class DrawnRows:
    """Rows that are drawn when they are loaded; `nbytes` may say more than they have."""

    start: int
    stop: int
    nbytes: int = ROWS * COLUMNS * 4
    collection: tuple[Any, ...] | None = None

    def load(self) -> Any:
        """The rows."""
        random = np.random.default_rng(self.start)
        return random.normal(size=(self.stop - self.start, COLUMNS)).astype(np.float32)

    def assemble(self, parts: Sequence[Any]) -> Any:
        """The rows, which are their only part."""
        (part,) = parts
        return part


def product(block: Any, weights: Any) -> tuple[Any, float]:
    """A block function with next to nothing to do."""
    return block.features.T @ (block.features @ weights), float(block.rows)


def source_of(blocks: int, large: bool) -> Any:
    """So many small blocks."""
    from dlatent.arrays import DataSource

    size = {"nbytes": LARGE} if large else {}
    rows = tuple(DrawnRows(index * ROWS, (index + 1) * ROWS, **size) for index in range(blocks))
    return DataSource((blocks * ROWS, COLUMNS), np.dtype(np.float32), rows, ("overhead", blocks, large))


@contextmanager
def _client(engine: str, folder: Path) -> Iterator[Any]:
    if engine == "threads":
        yield None
        return
    with local_cluster(WORKERS, place=folder) as client:
        yield client


def prepare(folder: Path, scale: float) -> Row:
    """Nothing to write: blocks are drawn."""
    return {"rows": ROWS, "columns": COLUMNS}


def _count(scale: float) -> int:
    return FIRST + max(5, round(PASSES * min(scale, 1.0)))


def _found(watch: Stopwatch, tasks: int, seconds: list[float], busy: list[float], threads: int) -> Row:
    """Milliseconds of all passes, and of what is not inside tasks: later ones in the median."""
    later = list(zip(seconds, busy, strict=True))[FIRST:]
    beside = median(wall - inside / threads for wall, inside in later)
    return {
        "fit_seconds": watch.seconds,
        "fit_cpu_seconds": watch.cpu_seconds,
        "tasks": tasks,
        "first_ms": 1e3 * seconds[0],
        "pass_ms": 1e3 * median(wall for wall, _ in later),
        "busy_ms": 1e3 * median(inside for _, inside in later),
        "beside_ms": 1e3 * beside,
        "task_ms": 1e3 * beside / tasks,
    }


def measure(folder: Path, scale: float, engine: str, blocks: int, large: bool) -> Row:
    """Milliseconds of passes, and of what is not inside tasks; tasks as the engine counts them."""
    from dlatent.engine import task_graph
    from dlatent.engine.connect import connect
    from dlatent.passes import Pass

    weights = np.ones((COLUMNS, DIRECTIONS))
    with (
        _client(engine, folder) as client,
        patch.object(task_graph, "BUNDLE_BYTES", 0 if engine == "long" else task_graph.BUNDLE_BYTES),
        Stopwatch() as watch,
        connect(source_of(blocks, large), client=client) as connected,
    ):
        for _ in range(_count(scale)):
            connected.run(Pass(product, weights))
        records, threads = connected.passes, connected.resources.total_threads
    seconds, busy = [record.seconds for record in records], [record.busy_seconds for record in records]
    return _found(watch, records[-1].tasks, seconds, busy, threads)


def _nothing(*inputs: Any) -> int:
    return 0


def _tree(number: int, leaves: int) -> tuple[dict[Any, Any], Any]:
    """A graph in the shape of a pass, and its root."""
    graph: dict[Any, Any] = {}

    def task(inputs: Iterable[Any]) -> Any:
        function = (_nothing, *inputs)  # first, as the tasks of inputs are made meanwhile
        key = (f"nothing-{number}", len(graph))
        graph[key] = function
        return key

    return graph, reduce_tree(lambda _: task(()), task, leaves)


def measure_dask(folder: Path, scale: float, leaves: int) -> Row:
    """Milliseconds of passes in which Dask runs a tree of functions that do nothing."""
    seconds = list[float]()
    with local_cluster(WORKERS, place=folder) as client, Stopwatch() as watch:
        for number in range(_count(scale)):
            started = perf_counter()
            graph, root = _tree(number, leaves)
            client.get(graph, root)
            seconds.append(perf_counter() - started)
    return _found(watch, len(graph), seconds, [0.0] * len(seconds), WORKERS)


def tasks(scale: float) -> tuple[Task, ...]:
    """Each engine, number of blocks, and kind of groups; then Dask alone."""
    alone = tuple(
        Task(f"dask/tree/{leaves}", "benchmarks.cases.overhead:measure_dask", {"leaves": leaves}) for leaves in LEAVES
    )
    return alone + tuple(
        Task(
            f"{engine}/{'single' if large else 'grouped'}/{blocks}",
            "benchmarks.cases.overhead:measure",
            {"engine": engine, "blocks": blocks, "large": large},
        )
        for engine in ENGINES
        for large in (False, True)
        for blocks in BLOCKS
    )


def summarise(rows: list[Row]) -> Summary:
    """A line for each number of blocks, and the requirements."""
    done = grouped(finished(rows), lambda row: row["task"])
    names = ("tasks", "first_ms", "pass_ms", "busy_ms", "beside_ms", "task_ms")
    lines = [(task, *(middle(own, name) for name in names)) for task, own in done.items()]
    headers = (
        "engine/groups/blocks", "tasks", "first pass, ms", "later pass, ms", "inside tasks, ms (all threads)",
        "beside tasks, ms", "ms a task",
    )  # fmt: skip
    text = markdown(headers, lines) + (
        "\n\nBeside tasks: a pass without the share of one thread of the time inside tasks. Grouped: blocks of 800 "
        "bytes, a few groups; single: each block a group of its own, up to 1,024 groups. Long: passes on processes "
        "cut into a task for each group. Dask: trees of functions that do nothing.\n\n"
    )
    for engine in (*ENGINES, "dask"):
        found = _line(done, engine)
        if found:
            text += f"{engine}: {found[0]:.0f} ms a pass and {found[1]:.2f} ms a task, by least squares.\n\n"
    return Summary((text + not_run(rows)).rstrip(), tuple(_checks(done)))


def _line(done: dict[str, list[Row]], engine: str) -> tuple[float, float] | None:
    """What a pass costs, and each of its tasks in addition, where an engine has made passes of several numbers."""
    own = [row for task, rows in done.items() if task.startswith(f"{engine}/") for row in rows]
    if len({row["tasks"] for row in own}) < 2:
        return None
    each, pass_ms = np.polyfit([row["tasks"] for row in own], [row["beside_ms"] for row in own], 1)
    return float(pass_ms), float(each)


def _against_dask(done: dict[str, list[Row]]) -> list[Check]:
    """Short passes, of two tasks however many groups there are, beside Dask's tree with a task for each group: what is
    saved with tasks must not be lost elsewhere."""
    checks = []
    for task, rows in done.items():
        engine, groups, blocks = task.split("/")
        leaves = LEAVES[0] if groups == "grouped" else min(int(blocks), LEAVES[-1])
        ours, theirs = middle(rows, "beside_ms"), middle(done.get(f"dask/tree/{leaves}", []), "beside_ms")
        if engine == "processes" and ours and theirs:
            text = f"{task}: a short pass costs at most what Dask alone takes for {leaves} groups"
            checks.append(Check(f"{text} ({ours:.0f} ms, Dask {theirs:.0f} ms)", ours <= theirs))
    return checks


def _checks(done: dict[str, list[Row]]) -> list[Check]:
    checks = []
    for engine in ENGINES:
        own = {task: rows for task, rows in done.items() if task.startswith(f"{engine}/")}
        found = _line(done, engine)
        if found:
            text = f"{engine}: a further task costs a pass at most {TASK_MILLISECONDS:g} ms beside its work"
            checks.append(Check(f"{text} ({found[1]:.2f} ms)", found[1] <= TASK_MILLISECONDS))
        costs = {task: middle(rows, "task_ms") or 0.0 for task, rows in own.items()}
        if costs:
            worst = max(costs, key=lambda task: costs[task])
            text = f"{engine}: what a pass costs is at most {TASK_MILLISECONDS:g} ms for each of its tasks, few or many"
            said = f"{text} ({costs[worst]:.2f} ms in {worst})"
            checks.append(Check(said, costs[worst] <= TASK_MILLISECONDS))
        many = own.get(f"{engine}/grouped/{BLOCKS[-1]}")
        if many:
            pass_ms = middle(many, "pass_ms") or 0.0
            text = f"{engine}: a pass over 4,096 small blocks takes at most {PASS_MILLISECONDS:g} ms ({pass_ms:.0f} ms)"
            checks.append(Check(text, pass_ms <= PASS_MILLISECONDS))
    return checks + _against_dask(done)


CASE = Case(
    "overhead",
    "what a pass costs beside the arithmetic: 16 to 4,096 blocks, on two worker processes and on threads",
    "benchmarks.cases.overhead:prepare",
    tasks,
    summarise,
)
