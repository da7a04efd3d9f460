"""What a fit will cost, as a value that is known before a byte of the data is read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from html import escape
from typing import Any

from dlatent.errors import number_of
from dlatent.passes import Resources

KEPT = ("solver", "reason", "passes", "bytes_per_pass", "bytes_total", "worker_memory", "driver_memory", "machine")
"""What a fitted model keeps of its plan."""
COMPARED = ("solver", "passes", "work", "solving", "cache_bytes", "worker_memory", "driver_memory")
"""What is shown of the plans that were not chosen."""
DURATIONS = ("reading", "computing", "moving", "solving")
"""What the time of a fit goes to."""


@dataclass(frozen=True)
class Problem:
    """The shape of a fit, all that the planner knows of the data.

    Parameters
    ----------
    samples : int
        Their number N.
    features : int
        Their number D.
    targets : int
        Columns of the targets on their rank, 0 for PPCA.
    n_components : int
        Number of latent variables K.
    patterns : int
        2 where some rows are unlabelled, else 1.
    nbytes : int
        Bytes of all loaded blocks.
    largest_block : int
        Bytes of the largest of them.
    blocks : int
        Number of blocks.
    tasks : int
        Tasks of a pass, one for each group of blocks and one for each join of groups.
    itemsize : int
        Bytes of a value.
    nnz : int or None
        Stored entries of sparse data, None for dense (and for Dask arrays of sparse chunks).
    description : str
        The input in words.
    in_memory : bool
        Whether the data lie in the driver's memory.
    missing : bool
        Whether any entry may be missing.
    shared : bool
        Whether the features of a view share one noise variance.
    em_passes : int or None
        Most passes of textbook EM, where it is asked for.
    graph_entries : int or None
        Stored entries of the adjacency matrix, None without a graph.
    graph_in_memory : bool
        Whether the graph lies in the driver's memory.
    candidates : int
        Strengths of smoothing over a graph that are compared before the fit.
    hops : int
        How far rows go over the edges on the way to F R, where Δ = γI + F² is between the samples; or to ΔR.
    given_precision : bool
        Whether Δ is given, so that rows meet by its entries and not over edges.
    travelling : int
        Rows that one neighbour sum moves between workers.
    reach : int
        Rows that the fullest worker holds in a neighbour sum, its own and those of its neighbours.
    views : tuple[int, ...]
        Features of each view of joint samples, () for features with targets.
    present : tuple[tuple[int, ...], ...]
        The views of each pattern of joint samples.
    decoding : int
        Bytes that are decoded at a time for a block that is a part of larger chunks; 0 where none is.
    target_bytes : int
        Bytes of the targets as they travel with the blocks.
    computed : bool
        Whether other tasks compute the blocks, as those of a Dask array.
    kernel : str or None
        The name of the kernel that makes the features ("precomputed": the data are K), None without one.
    kernel_itemsize : int
        Bytes of a value of K in a store.
    kernel_place : bool
        Whether there is a place to store K.
    landmarks : int
        Rows in the span of whose features the fit stays; 0 for all rows.
    kept_bytes : int
        Bytes of the caller's rows that the model copies.
    mixtures : int
        Components of a mixture, 1 where the model is none.
    starts : int
        From how many starts a mixture is fitted.
    rule : str, float or None
        How the number of components is chosen, of which `n_components` is then the most; None where it is given.
    weighted : bool
        Whether samples have weights.
    adding : bool
        Whether the samples are added to those of before.
    prior : bool
        Whether the loadings have a prior.
    passes_after : int
        Passes that follow on those of the solver.
    """

    samples: int
    features: int
    targets: int
    n_components: int
    patterns: int
    nbytes: int
    largest_block: int
    blocks: int
    tasks: int
    itemsize: int
    nnz: int | None
    description: str
    in_memory: bool = False
    missing: bool = False
    shared: bool = True
    em_passes: int | None = None
    graph_entries: int | None = None
    graph_in_memory: bool = False
    candidates: int = 0
    hops: int = 1
    given_precision: bool = False
    travelling: int = 0
    reach: int = 0
    views: tuple[int, ...] = ()
    present: tuple[tuple[int, ...], ...] = ()
    decoding: int = 0
    target_bytes: int = 0
    computed: bool = False
    kernel: str | None = None
    kernel_itemsize: int = 8
    kernel_place: bool = False
    landmarks: int = 0
    kept_bytes: int = 0
    mixtures: int = 1
    starts: int = 1
    rule: str | float | None = None
    weighted: bool = False
    adding: bool = False
    prior: bool = False
    passes_after: int = 0

    @property
    def graph_bytes(self) -> int:
        """Bytes of the edges as workers keep them: a weight and two places for each entry."""
        return 16 * (self.graph_entries or 0)


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
        """What takes longest: "reading", "computing", "moving" or "solving"."""
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
    """What a fit by one solver does and costs, and why the planner chose it; `str(plan)` is the page that users see.

    Parameters
    ----------
    solver : str
        "covariance", "krylov", "accelerated_em", "gram" or "mixture"; of kernel models "memory", "recomputed", "stored"
        or "landmarks".
    problem : Problem
        The shape of the fit.
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
        One for each group of blocks and one for each join of groups, or one for each pair that meets.
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
    problem: Problem
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
        return self.problem.nbytes

    @property
    def bytes_total(self) -> int:
        """Bytes that the fit will read from their source; edges that the cache keeps are not read again."""
        p, kept = self.problem, self.cache_bytes * self.resources.workers
        blocks = 0 if p.in_memory else p.nbytes
        reads = self.reads or (1 if self.cached else self.passes)
        return blocks * reads + (0 if blocks + p.graph_bytes <= kept else p.graph_bytes * self.edge_reads)

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
        """What a fitted model keeps of it, loaded or not; the planner may change without regard to saved models."""
        return {name: getattr(self, name) for name in KEPT}

    def figures(self) -> dict[str, Any]:
        """All that it says, as plain values by name, those of its alternatives without their problem."""
        own = {field.name: getattr(self, field.name) for field in fields(self)} | self.summary()
        del own["resources"]
        own |= {"worker_limit": self.worker_limit, "driver_limit": self.driver_limit}
        others = [{name: getattr(one, name) for name in COMPARED} for one in self.alternatives]
        duration = None if self.duration is None else asdict(self.duration)
        return own | {"problem": asdict(self.problem), "alternatives": others, "duration": duration}

    def __str__(self) -> str:
        p = self.problem
        kind = "sparse" if p.nnz is not None else "dense"
        cache = "kept in the workers' memory after the first pass" if self.cached else "read again in every pass"
        shape, tasks = f"{p.samples:,} × {p.features:,} {kind}", number_of(self.tasks_per_pass, "task")
        lines = [
            f"data      {p.description}: {shape}, {size(p.nbytes)} in {number_of(p.blocks, 'block')}",
            f"engine    {self.machine}",
            f"solver    {self.solver}: {self.reason}",
            f"passes    about {self.passes}, {size(self.bytes_per_pass)} and {tasks} each; {cache}",
            *self._neighbours(),
            *([f"choice    n_components by {p.rule!r}, from all eigenvalues after the first pass"] if p.rule else []),
            *([f"choice    λ of {p.candidates} by hidden cells, in the first of these passes"] if p.candidates else []),
            f"reads     about {size(self.bytes_total)} in all",
            f"worker    peak {size(self.worker_memory)} projected" + _of(self.worker_limit, till_pause(self.machine)),
            f"driver    peak {size(self.driver_memory)} projected" + _of(self.driver_limit),
            *([f"time      {self.duration}"] if self.duration else []),
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_page(str(self))

    def _neighbours(self) -> list[str]:
        p = self.problem
        if p.graph_entries is None:
            return []
        part = p.travelling / max(p.samples, 1)
        moved = (
            f"{size(self.neighbour_bytes)} between workers in each pass ({part:.2f} rows a sample and neighbour sum)"
        )
        blocks = self.column_blocks
        more = f"; {blocks} more {'pass' if blocks == 1 else 'passes'} for the total variance" if blocks else ""
        # Where more moves than is read, the order of the rows decides what a pass takes.
        near = "; `dlatent reorder` may put neighbours nearer" if self.neighbour_bytes > self.bytes_per_pass else ""
        if p.given_precision:
            return [f"precision {number_of(p.graph_entries, 'entry moves', 'entries move')} {moved}{more}"]
        return [f"graph     {number_of(p.graph_entries // 2, 'edge moves', 'edges move')} {moved}{near}{more}"]


def _of(limit: int | None, till: str = "") -> str:
    return f" of {size(limit)}{till}" if limit else ""


def till_pause(machine: str) -> str:
    """Which part of the memory of a worker a plan may fill, in words; nothing where it is all of it."""
    return " left before Dask pauses it" if machine.startswith("cluster") else ""


def html_page(text: str) -> str:
    """A page of lines, each a name and what is said of it, as a table for a notebook."""
    parts = (line.partition(" ") for line in text.splitlines())
    return html_table((name, words) for name, _, words in parts)


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
