"""What a fit will cost, said before a byte of the data is read: the route and why, passes, bytes, tasks, memory.

The planner compares bytes and arithmetic, not a fixed number of features.  Rates are those of one thread of an ordinary
machine; only their ratios matter to the choice.  Memory is projected from above: a fit that stays within its plan's
limit is a promise, and tests hold the projection against measurement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dlatent.errors import PlanError
from dlatent.fitting.subspace import extra_directions

MIB = 2**20
BASE_MEMORY = 320 * MIB
"""A process with dask, numpy, scipy, zarr and xarray imported, and its allocator's slack."""
DECODE_RATE = 0.5e9
"""Bytes per second and thread, reading and decoding."""
GEMM_RATE = 15e9
"""Floating-point operations per second and thread in float64; twice that in float32."""
SPARSE_RATE = 2e9
"""The same for sparse × thin products."""
SPARSE_GRAM_RATE = 0.2e9
"""The same for sparse × sparse products."""
EXPECTED_PASSES = 12
"""Rayleigh–Ritz EM on text and images took 8 to 13 passes; see docs/models/routes."""
TASK_SECONDS = 0.003
FULL_EIGEN = 1500
"""Up to this many features a dense eigendecomposition on the driver is cheaper than iterating on the Gram matrix."""


class Machine(Protocol):
    """What the planner needs to know of an engine (see engine.gather.Resources)."""

    @property
    def workers(self) -> int:
        """Worker processes."""
        ...

    @property
    def threads(self) -> int:
        """Threads per worker."""
        ...

    @property
    def worker_memory(self) -> int | None:
        """Bytes that a worker process may use."""
        ...

    @property
    def driver_memory(self) -> int | None:
        """Bytes that the driver may use."""
        ...

    @property
    def cache_bytes(self) -> int:
        """Bytes of blocks that a worker keeps."""
        ...

    @property
    def kind(self) -> str:
        """ "serial", "threads" or "cluster"."""
        ...


@dataclass(frozen=True)
class Problem:
    """The shape of a fit: N, D, targets L, K, patterns, bytes of all blocks and of the largest, and the kind of the
    data."""

    instances: int
    features: int
    targets: int
    n_components: int
    patterns: int
    nbytes: int
    largest_block: int
    blocks: int
    groups: int
    itemsize: int
    nnz: int | None
    description: str
    in_memory: bool = False


@dataclass(frozen=True)
class Route:
    """One way to fit: its expected passes, seconds, and peak memory of a worker process and of the driver in bytes."""

    name: str
    passes: int
    seconds: float
    worker_memory: int
    driver_memory: int


@dataclass(frozen=True)
class Plan:
    """The chosen route, why, and what it will cost; `str(plan)` is the page that users see."""

    route: str
    reason: str
    passes: int
    bytes_per_pass: int
    bytes_total: int
    tasks_per_pass: int
    cached: bool
    worker_memory: int
    driver_memory: int
    worker_limit: int | None
    driver_limit: int | None
    max_rank: int
    problem: Problem
    machine: str
    alternatives: tuple[Route, ...] = ()

    def __str__(self) -> str:
        p = self.problem
        kind = "sparse" if p.nnz is not None else "dense"
        cache = "kept in the workers' memory after the first pass" if self.cached else "read again in every pass"
        shape = f"{p.instances:,} × {p.features:,} {kind}"
        lines = [
            f"data      {p.description}: {shape}, {size(p.nbytes)} in {p.blocks} blocks",
            f"engine    {self.machine}",
            f"route     {self.route}: {self.reason}",
            f"passes    about {self.passes}, {size(self.bytes_per_pass)} and {self.tasks_per_pass} tasks each; {cache}",
            f"reads     about {size(self.bytes_total)} in all",
            f"worker    peak {size(self.worker_memory)} projected" + _of(self.worker_limit),
            f"driver    peak {size(self.driver_memory)} projected" + _of(self.driver_limit),
        ]
        return "\n".join(lines)


def _of(limit: int | None) -> str:
    return f" of {size(limit)}" if limit else ""


def size(nbytes: float) -> str:
    """Bytes as people write them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(nbytes) < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} TiB"


def _processes_in_driver(machine: Machine) -> bool:
    return machine.kind in ("serial", "threads")


def _resident(problem: Problem, machine: Machine) -> int:
    """Bytes of blocks a worker process keeps between passes."""
    if problem.in_memory and _processes_in_driver(machine):
        return 0
    return min(machine.cache_bytes, -(-problem.nbytes // machine.workers) + problem.largest_block)


def _block_memory(problem: Problem) -> int:
    """A task's block, the one being fetched and the bytes that it is decoded from, and copies of rows."""
    copies = 5.0 if problem.nnz is not None else 3.0
    return int(copies * problem.largest_block) + 1024 * problem.features * 8 * (2 if problem.nnz is None else 0)


def _memory(problem: Problem, machine: Machine, statistic: int, parameters: int) -> int:
    """Peak of a worker process: interpreter, cache, and per thread the blocks, two statistics and the tree's inputs."""
    per_thread = _block_memory(problem) + 3 * statistic
    tree = 4 * statistic
    return BASE_MEMORY + _resident(problem, machine) + machine.threads * per_thread + tree + parameters


def _pass_seconds(problem: Problem, machine: Machine, flops: float, rate: float, *, decode: bool) -> float:
    threads = machine.workers * machine.threads
    reading = problem.nbytes / DECODE_RATE if decode else 0.0
    return (reading + flops / rate) / threads + TASK_SECONDS * problem.groups


def moments_route(problem: Problem, machine: Machine) -> Route:
    """One pass, statistics of (D+L)² numbers per pattern."""
    width = problem.features + problem.targets
    statistic = 8 * width**2 * problem.patterns
    rate = GEMM_RATE * (2 if problem.itemsize == 4 else 1)
    flops = float(problem.instances) * problem.features**2
    if problem.nnz is not None:
        flops, rate = 2.0 * problem.nnz**2 / max(problem.instances, 1), SPARSE_GRAM_RATE
    if width <= FULL_EIGEN:
        driver = 4.0 * width**3 / GEMM_RATE
    else:
        driver = 4.0 * width**2 * (problem.n_components + extra_directions(problem.n_components)) * 20 / GEMM_RATE
    seconds = _pass_seconds(problem, machine, flops, rate, decode=True) + driver
    worker = _memory(problem, machine, statistic, 8 * width)
    own = BASE_MEMORY + 4 * statistic + 2 * 8 * width**2
    return _placed(Route("moments", 1, seconds, worker, own), machine)


def krylov_route(problem: Problem, machine: Machine, max_rank: int) -> Route:
    """About a dozen passes, statistics of D × (K + extra) numbers per pattern; the driver holds the subspace."""
    extra = extra_directions(problem.n_components)
    columns = min(problem.n_components + extra + problem.targets, problem.features)
    statistic = 8 * problem.features * (columns + 2 + problem.targets) * problem.patterns
    flops = 4.0 * columns * (problem.nnz if problem.nnz is not None else problem.instances * problem.features)
    rate = SPARSE_RATE if problem.nnz is not None else GEMM_RATE
    cached = fits_cache(problem, machine)
    first = _pass_seconds(problem, machine, flops, rate, decode=True)
    later = _pass_seconds(problem, machine, flops, rate, decode=not cached)
    seconds = first + (EXPECTED_PASSES - 1) * later
    worker = _memory(problem, machine, statistic, 8 * problem.features * columns * 2)
    rank = min(max_rank, EXPECTED_PASSES * columns)
    own = BASE_MEMORY + 8 * problem.features * (rank * (1 + problem.patterns) * 2 + columns * 4)
    return _placed(Route("krylov", EXPECTED_PASSES, seconds, worker, own), machine)


def _placed(route: Route, machine: Machine) -> Route:
    """Where the workers are threads of the driver's process, one process holds both."""
    if not _processes_in_driver(machine):
        return route
    both = route.worker_memory + route.driver_memory - BASE_MEMORY
    return Route(route.name, route.passes, route.seconds, both, both)


def fits_cache(problem: Problem, machine: Machine) -> bool:
    """Whether all blocks stay in memory between passes."""
    return problem.in_memory or problem.nbytes <= machine.cache_bytes * machine.workers


def subspace_bound(problem: Problem, machine: Machine) -> int:
    """The widest subspace that a third of the driver's memory holds, between four blocks of directions and 600."""
    columns = problem.n_components + extra_directions(problem.n_components) + problem.targets
    limit = machine.driver_memory or 4 * 2**30
    room = int(limit / 3 / (8 * problem.features * (1 + problem.patterns) * 2))
    return max(4 * columns, min(room, max(600, 12 * columns)))


def make_plan(problem: Problem, machine: Machine, *, route: str = "auto", em_passes: int | None = None) -> Plan:
    """Choose the cheaper route that fits, or the one asked for; PlanError where nothing fits, with the way out.

    `em_passes` is the most passes of solver "em", which makes one per iteration where the route is krylov.
    """
    max_rank = subspace_bound(problem, machine)
    routes = {r.name: r for r in (moments_route(problem, machine), krylov_route(problem, machine, max_rank))}
    fitting = {name: r for name, r in routes.items() if _excess(r, machine) is None}
    wanted = routes if route == "auto" else {route: routes[route]}
    usable = {name: r for name, r in wanted.items() if name in fitting}
    if not usable:
        raise PlanError(_refusal(problem, machine, wanted))
    best = min(usable.values(), key=lambda r: r.seconds)
    cached = fits_cache(problem, machine)
    passes = em_passes if em_passes and best.name == "krylov" else best.passes
    fresh = 0 if problem.in_memory else problem.nbytes
    return Plan(
        route=best.name,
        reason=_reason(best, routes, fitting, route),
        passes=passes,
        bytes_per_pass=problem.nbytes,
        bytes_total=fresh if cached else fresh * passes,
        tasks_per_pass=problem.groups,
        cached=cached,
        worker_memory=best.worker_memory,
        driver_memory=best.driver_memory,
        worker_limit=machine.worker_memory,
        driver_limit=machine.driver_memory,
        max_rank=max_rank,
        problem=problem,
        machine=f"{machine.kind}, {machine.workers} workers × {machine.threads} threads",
        alternatives=tuple(routes.values()),
    )


def _excess(route: Route, machine: Machine) -> str | None:
    """Which limit a route breaks, in words, or None."""
    if machine.worker_memory and route.worker_memory > machine.worker_memory:
        return f"{size(route.worker_memory)} of a worker's {size(machine.worker_memory)}"
    if machine.driver_memory and route.driver_memory > machine.driver_memory:
        return f"{size(route.driver_memory)} of the driver's {size(machine.driver_memory)}"
    return None


def _reason(best: Route, routes: dict[str, Route], fitting: dict[str, Route], asked: str) -> str:
    if asked != "auto":
        return "asked for"
    if len(fitting) == 1:
        return f"the other route does not fit in memory ({', '.join(set(routes) - set(fitting))})"
    other = max(fitting.values(), key=lambda r: r.seconds)
    return f"estimated cost {best.seconds:.2g} s against {other.seconds:.2g} s by {other.name}"


def _refusal(problem: Problem, machine: Machine, wanted: dict[str, Route]) -> str:
    needs = "; ".join(f"route {name} needs {_excess(r, machine)}" for name, r in wanted.items())
    ways = ["give the workers or the driver more memory"]
    if problem.largest_block * 8 > min(r.worker_memory for r in wanted.values()) - BASE_MEMORY:
        ways.insert(
            0,
            f"store the data in smaller row chunks (the largest block is {size(problem.largest_block)}): dlatent ingest",
        )
    if machine.threads > 1:
        ways.insert(0, "use fewer threads per worker")
    if "krylov" in wanted:
        ways.insert(0, "ask for fewer components")
    shape = f"{problem.description} of {problem.instances:,} × {problem.features:,}"
    return f"{shape} does not fit: {needs}. Ways out: {'; '.join(ways)}."
