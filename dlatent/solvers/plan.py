"""The plan of a fit, known before a byte of the data is read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from html import escape
from typing import Any

from dlatent.errors import number_of
from dlatent.passes import Resources
from dlatent.solvers.task import Task

KEPT = ("solver", "reason", "passes", "bytes_per_pass", "bytes_total", "worker_memory", "driver_memory", "machine")
"""Figures of its plan that a fitted model keeps."""
COMPARED = ("solver", "passes", "work", "solving", "cache_bytes", "worker_memory", "driver_memory")
"""Figures that are shown of plans that were not chosen."""
DURATIONS = ("reading", "computing", "moving", "solving")
"""Parts of the time of a fit."""
EDGE_BYTES = 16
"""Of an entry of the adjacency matrix as workers keep it: a weight and two places."""


@dataclass(frozen=True)
class Duration:
    """About how long a fit takes, at the rates of an ordinary machine, and what it costs.

    Parameters
    ----------
    reading : float
        Seconds in which the workers get the data from their store; they compute meanwhile.
    computing : float
        Seconds of decoding, of arithmetic, and of what the scheduler does.
    moving : float
        Seconds in which parameters go to the workers, sums come back, and rows meet their neighbours.
    solving : float
        Seconds of the iterations on the driver, which look for the best of several maxima, at most.
    seconds : float
        From the first byte to the model.
    worker_hours : float
        Of all workers.
    price : float or None
        Of these; None where that of an hour is not known.
    """

    reading: float
    computing: float
    moving: float
    solving: float
    seconds: float
    worker_hours: float
    price: float | None

    @property
    def bottleneck(self) -> str:
        """The part that takes longest: "reading", "computing", "moving" or "solving"."""
        return max(DURATIONS, key=lambda name: getattr(self, name))

    def __str__(self) -> str:
        parts = ", ".join(
            f"{name} {clock(getattr(self, name))}" for name in ("reading", "computing", "moving", "solving")
        )
        price = "" if self.price is None else f", at a price of {self.price:,.2f}"
        return (
            f"about {clock(self.seconds)} ({parts}; the bottleneck is {self.bottleneck}): "
            f"{self.worker_hours:,.2g} worker hours{price}"
        )


@dataclass(frozen=True)
class Plan:
    """The passes and costs of a fit by one solver, and why the planner chose it; `str(plan)` is its page.

    Parameters
    ----------
    solver : str
        Its name; :doc:`/models/solvers` tells of each.
    task : Task
        What is to be fitted.
    resources : Resources
        What may be used of the workers and the driver.
    worker_memory : int
        Projected peak of a worker process in bytes, cache included.
    driver_memory : int
        Projected peak of the driver in bytes.
    cache_bytes : int
        Bytes of blocks that a worker keeps between passes.
    cached : bool
        Whether all blocks stay in memory between passes.
    max_rank : int
        Widest subspace that the driver will hold.
    tasks_per_pass : int
        One for each group of blocks and one for each join of groups, and those of neighbour sums; or one for each pair
        that meets.
    passes : int
        Passes that are expected, or with solver="em" the most.
    work : float
        Seconds by which solvers are compared; only their ratios matter.
    solving : float
        Seconds of iterations on the driver that no choice hangs on, as nobody knows their number.
    columns_at_once : int
        Columns that one neighbour sum carries; 0 without a graph.
    column_blocks : int
        In how many parts the features themselves are summed over neighbours, for the total variance.
    neighbour_bytes : int
        Bytes that travel between workers in a pass with neighbour sums.
    reads : int
        How often the data are read; 0: once, or in every pass where they do not stay in memory.
    edge_reads : int
        How often the edges of a graph are read, where they do not stay in memory.
    moved : int
        Bytes that go to each worker and come back from it in a pass.
    gathered : int
        Bytes that the driver gets of all workers together in the fit.
    reason : str
        Why this solver.
    alternatives : tuple[Plan, ...]
        The plans of all solvers that can serve, the chosen one among them.
    """

    solver: str
    task: Task = field(repr=False, compare=False)
    resources: Resources
    worker_memory: int
    driver_memory: int
    cache_bytes: int
    cached: bool
    max_rank: int
    tasks_per_pass: int
    passes: int = 0
    work: float = 0.0
    solving: float = 0.0
    columns_at_once: int = 0
    column_blocks: int = 0
    neighbour_bytes: int = 0
    reads: int = 0
    edge_reads: int = 0
    moved: int = 0
    gathered: int = 0
    reason: str = ""
    alternatives: tuple[Plan, ...] = ()

    @property
    def bytes_per_pass(self) -> int:
        """Bytes of the blocks that a pass goes through."""
        return self.task.data.nbytes

    @property
    def bytes_total(self) -> int:
        """Bytes that the fit will read from their source; edges that the cache keeps are not read again."""
        data, edges = self.task.data, EDGE_BYTES * self.task.edges
        blocks = 0 if data.in_memory else data.nbytes
        reads = self.reads or (1 if self.cached else self.passes)
        kept = self.cache_bytes * self.resources.workers
        return blocks * reads + (0 if blocks + edges <= kept else edges * self.edge_reads)

    @property
    def worker_limit(self) -> int | None:
        """Bytes that the plan may fill of a worker, None where unknown: of one of Dask those before it is paused, less
        what its process holds already."""
        return self.resources.worker_memory

    @property
    def driver_limit(self) -> int:
        """Bytes that the driver may use."""
        return self.resources.driver_memory

    @property
    def machine(self) -> str:
        """The engine in words."""
        r = self.resources
        return f"{r.kind}, {number_of(r.workers, 'worker')} × {number_of(r.threads, 'thread')}"

    @property
    def seconds(self) -> float:
        """A guess at how long the fit takes, for what should not be shown of short ones."""
        return self.work + self.solving

    @property
    def duration(self) -> Duration | None:
        """About how long it takes; None where the bandwidth of the workers is not known.

        Parameters go from worker to worker, so that twice as many have them after each step; sums meet in a tree, of
        which each node gets three.  Workers read while they compute.
        """
        r = self.resources
        if r.bandwidth is None:
            return None
        all_workers, steps = r.bandwidth * r.workers, math.ceil(math.log2(r.workers))
        moving = self.passes * (1.5 * steps * self.moved / r.bandwidth + self.neighbour_bytes / all_workers)
        moving += self.gathered / r.bandwidth
        reading = self.bytes_total / all_workers
        seconds = max(reading, self.work) + moving + self.solving
        hours = r.workers * seconds / 3600
        return Duration(reading, self.work, moving, self.solving, seconds, hours, r.price and r.price * hours)

    def summary(self) -> dict[str, Any]:
        """Its part that a fitted model keeps, loaded or not; the planner may change without regard to saved models."""
        return {name: getattr(self, name) for name in KEPT}

    def figures(self) -> dict[str, Any]:
        """All that it says, as plain values by name, those of its alternatives without their task."""
        shown = {each.name: getattr(self, each.name) for each in fields(self)} | self.summary()
        del shown["resources"]
        shown |= {"worker_limit": self.worker_limit, "driver_limit": self.driver_limit}
        others = [{name: getattr(one, name) for name in COMPARED} for one in self.alternatives]
        duration = None if self.duration is None else asdict(self.duration)
        return shown | {"task": self.task.figures(), "alternatives": others, "duration": duration}

    def __str__(self) -> str:
        task, data = self.task, self.task.data
        kind = "sparse" if data.nnz is not None else "dense"
        candidates = 0 if task.between is None else task.between.candidates
        cache = "kept in the workers' memory after the first pass" if self.cached else "read again in every pass"
        shape, tasks = f"{data.samples:,} × {data.features:,} {kind}", number_of(self.tasks_per_pass, "task")
        lines = [
            f"data      {data.description}: {shape}, {size(data.nbytes)} in {number_of(data.blocks, 'block')}",
            f"engine    {self.machine}",
            f"solver    {self.solver}: {self.reason}",
            f"passes    about {self.passes}, {size(self.bytes_per_pass)} and {tasks} each; {cache}",
            *self._neighbours(),
            *([f"choice    n_components by {task.rule!r}, {_choice(task)}"] if task.rule else []),
            *([f"choice    λ of {candidates} by hidden cells, in the first of these passes"] if candidates else []),
            f"reads     about {size(self.bytes_total)} in all",
            f"worker    peak {size(self.worker_memory)} projected" + _of(self.worker_limit, till_pause(self.machine)),
            f"driver    peak {size(self.driver_memory)} projected" + _of(self.driver_limit),
            *([f"time      {self.duration}"] if self.duration else []),
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_page(str(self))

    def _neighbours(self) -> list[str]:
        between = self.task.between
        if between is None:
            return []
        graph, part = between.graph, between.travelling / max(self.task.data.samples, 1)
        moved = (
            f"{size(self.neighbour_bytes)} between workers in each pass ({part:.2f} rows a sample and neighbour sum)"
        )
        blocks = self.column_blocks
        more = f"; {blocks} more {'pass' if blocks == 1 else 'passes'} for the total variance" if blocks else ""
        # Where more moves than is read, the order of the rows decides what a pass takes.
        near = "; `dlatent reorder` may put neighbours nearer" if self.neighbour_bytes > self.bytes_per_pass else ""
        if graph.precision:
            return [f"precision {number_of(graph.entries, 'entry moves', 'entries move')} {moved}{more}"]
        return [f"graph     {number_of(graph.entries // 2, 'edge moves', 'edges move')} {moved}{near}{more}"]


def _of(limit: int | None, till: str = "") -> str:
    return f" of {size(limit)}{till}" if limit else ""


def till_pause(machine: str) -> str:
    """Which part of the memory of a worker a plan may fill, in words; nothing where it is all of it."""
    return " left before Dask pauses it" if machine.startswith("cluster") else ""


def _choice(task: Task) -> str:
    """When a number of components is chosen, and of how many."""
    if task.arrangement is not None:
        return f"at most {task.specification.n_components}, before the fit, from samples of several views"
    if task.chosen_first:
        return "from all eigenvalues after the first pass"
    return f"at most {task.specification.n_components}, after the fit"


def html_page(text: str) -> str:
    """A page of lines, each a name and what is said of it, as a table for a notebook."""
    parts = (line.partition(" ") for line in text.splitlines())
    return html_table((name, text) for name, _, text in parts)


def html_table(lines: Iterable[tuple[str, str]]) -> str:
    """Names and what is said of them as a table for a notebook."""
    cell = '<td style="text-align: left; vertical-align: top">'
    rows = (f"<tr>{cell}<b>{escape(name)}</b></td>{cell}{escape(text.strip())}</td></tr>" for name, text in lines)
    return f"<table>{''.join(rows)}</table>"


def clock(seconds: float) -> str:
    """A time as people write it."""
    if seconds < 99:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 99 * 60 else f"{seconds / 3600:,.1f} h"


def size(nbytes: float) -> str:
    """Bytes as people write them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(nbytes) < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} TiB"
