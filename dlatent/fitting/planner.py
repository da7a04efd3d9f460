"""Choosing a route by bytes and arithmetic, and projecting its memory, before a byte of the data is read.

Nothing depends on a fixed number of features.  Rates are those of one thread of an ordinary machine; only
their ratios matter to the choice.  Memory is projected from above: a fit stays within its plan, and tests hold the
projection against measurement.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlatent.errors import PlanError
from dlatent.fitting.plan import Machine, Plan, Problem, Route, size
from dlatent.fitting.subspace import extra_directions
from dlatent.linear_gaussian.moments import CHUNK_ROWS
from dlatent.linear_gaussian.patterns import LARGEST, MOST

MIB = 2**20
BASE_MEMORY = 280 * MIB
"""The driver with everything imported and a scheduler, and the slack of its allocator (240 MiB measured)."""
WORKER_BASE = 200 * MIB
"""A worker process of a cluster, and the slack of its allocator (140 MiB measured)."""
FILL = 0.9
"""Part of a worker's memory that a plan may fill, cache included: beyond it Dask pauses and restarts workers."""
DECODE_RATE = 0.5e9
"""Bytes per second and thread, reading and decoding."""
GEMM_RATE = 15e9
"""Floating-point operations per second and thread in float64; twice that in float32."""
SPARSE_RATE = 2e9
"""The same for sparse × thin products."""
SPARSE_GRAM_RATE = 0.2e9
"""The same for sparse × sparse products."""
EXPECTED_PASSES = 12
"""Rayleigh–Ritz EM takes 8 to 13 passes on text and images (benchmarks)."""
EXPECTED_ROW_PASSES = 20
"""Accelerated EM over rows with missing entries takes 10 to 30 passes (benchmarks)."""
DUAL_PASSES = 2
SKEWNESS = 10.0
"""Meetings of entries in products of sparse rows, as a multiple of those of evenly filled columns (text measured)."""
EXPECTED_VIEW_PASSES = 40
"""Accelerated EM over views, from a random start."""
VIEW_STEPS = 300
"""EM iterations on moments from all starts together, where instances lack views."""
ROW_SOLVE = 10.0
"""Time of one inverse of a row's K × K precision in units of K³ operations of a matrix product."""
ROW_CHUNK_BYTES = 32 * MIB
"""Temporary arrays of one thread of route rows."""
TASK_SECONDS = 0.003
FULL_EIGEN = 1500
"""Up to this many features a dense eigendecomposition on the driver is cheaper than iterating on the Gram matrix."""
EXCHANGE_BYTES = 2**30
"""What an exchange may hold on a worker whose memory is not known."""
SPARSE_SLACK = 1.25
"""What sparse rows take beside their entries while they travel and are multiplied (a million documents measured)."""
HOPS = 2
"""Exchanges of a pass over links: Δ reaches the neighbours of neighbours."""
STRIPS = 4
"""Tasks for each thread of a worker in a pass over tiles, at least, as the engine cuts them."""
FAN_IN = 4
"""Statistics that a node of the tree of groups joins, as the engine has it."""


def _shares_driver(machine: Machine) -> bool:
    """Whether the workers are threads of the driver's process."""
    return machine.kind in ("serial", "threads")


def _task_memory(problem: Problem, statistic: int, columns: int) -> int:
    """A block, the next one, as it is stored and as its chunks are decoded, copies of rows by pattern, `columns`
    numbers for each row of it, and the statistics."""
    thin = 8 * columns * (problem.instances * problem.largest_block // max(problem.nbytes, 1))
    if problem.nnz is not None:
        return 5 * problem.largest_block + problem.decoding + 2 * thin + 3 * statistic
    copies = 3 + (problem.patterns > 1) + (not problem.in_memory)
    # A block of few wide rows has no more of them than it has.
    buffers = min(CHUNK_ROWS * problem.features * 8, problem.largest_block * 8 // problem.itemsize)
    return copies * problem.largest_block + problem.decoding + buffers + thin + 3 * statistic


def _waiting(problem: Problem, machine: Machine) -> int:
    """Statistics of groups that wait on a worker to be joined, the joined one included: of each node of the tree that
    is under way all but the last child, and what further threads bring on other branches (measured)."""
    found, nodes = 1 + 2 * (machine.threads - 1), -(-group_number(problem) // machine.workers)
    while nodes > 1:
        found += min(nodes, FAN_IN) - 1
        nodes = -(-nodes // FAN_IN)
    return found


def worker_memory(problem: Problem, machine: Machine, statistic: int, parameters: int, columns: int = 0) -> int:
    """Peak of a worker process without its cache; `columns` are numbers that a task makes of each row of a block."""
    base = BASE_MEMORY if _shares_driver(machine) else WORKER_BASE
    held = base + machine.threads * _task_memory(problem, statistic, columns) + parameters
    held += _waiting(problem, machine) * statistic
    if not _shares_driver(machine):
        # What comes from the driver's memory travels to the workers once, and stays there packed and unpacked.
        carried = problem.target_bytes + (problem.nbytes if problem.in_memory else 0)
        held += 2 * -(-carried // machine.workers)
    return held


def driver_base(problem: Problem, machine: Machine) -> int:
    """What every fit takes on the driver: libraries, and the targets, which are packed where they travel."""
    return BASE_MEMORY + problem.target_bytes * (1 if _shares_driver(machine) else 2)


def paired_memory(problem: Problem, machine: Machine, groups: int = 1) -> int:
    """The groups of blocks that a thread holds in a pass over pairs: its own, and that which it meets where they meet
    as a whole."""
    return groups * machine.threads * -(-problem.nbytes // group_number(problem))


def cache_room(problem: Problem, machine: Machine, held: int, driver: int, *, pairs: bool = False) -> int:
    """Bytes of blocks and links that a worker may keep beside what it and, in the same process, the driver need: its
    share, or in passes over `pairs`, in which two blocks meet once, all that it meets.  Of data in memory only links,
    which are cut from the graph."""
    if problem.in_memory and not problem.links:
        return 0
    room = machine.cache_bytes
    if machine.worker_memory:
        beside = driver - BASE_MEMORY if _shares_driver(machine) else 0
        room = min(room, int(FILL * machine.worker_memory) - held - beside)
    wanted = _links_bytes(problem) + (0 if problem.in_memory else problem.nbytes)
    group = max(0 if problem.in_memory else problem.largest_block, wanted // group_number(problem))
    share = -(-wanted // machine.workers) + group
    return max(0, min(room, min(_shares_met(machine) * share, wanted + group) if pairs else share))


def stays(problem: Problem, machine: Machine, cache_bytes: int, *, pairs: bool = False) -> bool:
    """Whether all blocks stay in memory between passes, or in passes over `pairs` on every worker that meets them."""
    caches = cache_bytes * machine.workers // (_shares_met(machine) if pairs else 1)
    return problem.in_memory or problem.nbytes + _links_bytes(problem) <= caches


def _shares_met(machine: Machine) -> int:
    """Workers whose share of the data a worker meets, its own among them, where two groups meet once."""
    return machine.workers // 2 + 1


def _tile_visits(problem: Problem, machine: Machine, cache_bytes: int) -> int:
    """How often a pass over tiles reads the data: a worker keeps its own groups, where they stay, and reads each of the
    others that it meets for as many of its own, one after the other, as leave work for all threads."""
    groups = group_number(problem)
    if not stays(problem, machine, cache_bytes):
        return groups
    own = -(-groups // machine.workers)
    together = max(1, groups**2 // (2 * machine.workers * STRIPS * machine.threads))
    return 1 + machine.workers // 2 * -(-own // together)


def _exchange_memory(problem: Problem, machine: Machine, columns: int) -> int:
    """Rows that a worker holds: its own and its neighbours' of one stage, its own of another, those being worked on."""
    own = -(-problem.instances // machine.workers)
    rows = max(problem.reach, own) + own + 4 * -(-problem.instances // group_number(problem)) * machine.threads
    return 8 * columns * rows


def group_number(problem: Problem) -> int:
    """About the number of groups of blocks: three quarters of the tasks of a pass."""
    return max(min(3 * problem.tasks // 4, problem.blocks), 1)


def _link_memory(problem: Problem, machine: Machine) -> int:
    """The links that the threads of a worker read and cut at a time."""
    return 3 * _links_bytes(problem) // group_number(problem) * machine.threads


def _links_bytes(problem: Problem) -> int:
    """Bytes of the links as workers keep them: a weight and two places for each entry."""
    return 0 if problem.links is None else 16 * problem.links


def _exchange_room(machine: Machine, held: int) -> int:
    """Bytes of a worker's memory that exchanged rows may fill, before anything is cached."""
    if not machine.worker_memory:
        return EXCHANGE_BYTES
    return max(int(FILL * machine.worker_memory) - held, machine.worker_memory // 10)


def _columns_at_once(problem: Problem, machine: Machine, columns: int, room: int) -> int:
    """The columns that an exchange can carry in its room, at least one; all exchanges carry about as many."""
    one = max(_exchange_memory(problem, machine, 1), 1)
    most = max(1, min(columns, room // one))
    return -(-columns // -(-columns // most))


def _slabs(problem: Problem, machine: Machine, room: int) -> tuple[int, int]:
    """In how many parts the features of linked instances must meet to fit in the room, and what one part takes.

    A row that has met its neighbours has as many entries as all of them together, up to all features.
    """
    if problem.nnz is None:
        whole = _exchange_memory(problem, machine, problem.features)
    else:
        grown = min(1.0 + (problem.links or 0) / problem.instances, problem.features * problem.instances / problem.nnz)
        group = grown * problem.nnz / group_number(problem) * machine.threads
        reach = max(problem.reach / problem.instances, 1 / machine.workers)
        entries = (reach + 1 / machine.workers + machine.threads * reach) * problem.nnz + 3 * group
        whole = int(SPARSE_SLACK * 12 * entries)
    slabs = max(1, min(-(-whole // room), problem.features))
    return slabs, whole // slabs


def _linked_seconds(problem: Problem, machine: Machine, columns: int, hops: int) -> float:
    """What the exchanges of a pass add: sparse products with the graph, and a task for each group and hop."""
    if problem.links is None:
        return 0.0
    threads = machine.workers * machine.threads
    return hops * (2.0 * problem.links * columns / SPARSE_RATE / threads + TASK_SECONDS * problem.tasks)


def _pass_seconds(problem: Problem, machine: Machine, flops: float, rate: float, *, decode: bool) -> float:
    threads = machine.workers * machine.threads
    reading = problem.nbytes / DECODE_RATE if decode else 0.0
    return (reading + flops / rate) / threads + TASK_SECONDS * problem.tasks


def moments_route(problem: Problem, machine: Machine) -> Route:
    """One pass, statistics of (D+L)² numbers per pattern; nothing is worth caching."""
    width = problem.features + problem.targets
    square = 8 * width**2
    statistic = sum(8 * own**2 for own in problem.widths)
    rate = GEMM_RATE * (2 if problem.itemsize == 4 else 1)
    flops = float(problem.instances) * max(problem.views, default=problem.features) ** 2
    if problem.nnz is not None:
        flops, rate = 2.0 * problem.nnz**2 / max(problem.instances, 1), SPARSE_GRAM_RATE
    if width <= FULL_EIGEN:
        driver = 4.0 * width**3 / GEMM_RATE
    else:
        driver = 4.0 * width**2 * (problem.n_components + extra_directions(problem.n_components)) * 20 / GEMM_RATE
    if problem.views:
        # Iterations on the Gram matrices of all patterns: on all features, or on subspaces of many shared ones.
        shared = "krylov" in problem.routes and problem.features > FULL_EIGEN
        steps = 20 if shared else VIEW_STEPS
        driver = 4.0 * sum(own**2 for own in problem.widths) * problem.n_components * steps / GEMM_RATE
    if problem.links is not None and problem.nnz is not None:
        flops, rate = 2.0 * problem.instances * width**2, GEMM_RATE  # rows that meet their neighbours become dense
    seconds = _pass_seconds(problem, machine, flops, rate, decode=True) + driver
    seconds += _linked_seconds(problem, machine, width, 1)
    worker = worker_memory(problem, machine, statistic, 8 * width)
    if problem.links is not None:
        worker += _link_memory(problem, machine) + _exchange_memory(problem, machine, width + 1)
    # What came, the same about the mean, and the terms of one pattern while it is moved there; iterations on it.
    own = (
        driver_base(problem, machine)
        + 3 * statistic
        + 3 * square
        + _space_memory(problem, subspace_bound(problem, machine))
    )
    route = placed("moments", 1, seconds, 0, worker, own, machine)
    return route if problem.links is None else replace(route, columns_at_once=width + 1)


def krylov_route(problem: Problem, machine: Machine) -> Route:
    """About a dozen passes, statistics of D × (K + extra) numbers per pattern; the driver holds the subspace."""
    fresh = _fresh(problem)
    columns = min(fresh + problem.targets, problem.features)
    own = sum(size * spans for size, spans in zip(problem.widths, problem.spans, strict=True))
    statistic = 8 * (own * columns + 2 * sum(problem.widths))
    flops = 4.0 * columns * (problem.nnz if problem.nnz is not None else problem.instances * problem.features)
    rate = SPARSE_RATE if problem.nnz is not None else GEMM_RATE
    held = worker_memory(problem, machine, statistic, 16 * problem.features * columns, columns)
    exchanged, at_once, slabs, slabbed = columns + problem.targets + 1, 0, 0, 0
    if problem.links is not None:
        held += _link_memory(problem, machine)
        room = _exchange_room(machine, held)
        at_once = _columns_at_once(problem, machine, exchanged, room)
        kept = min(_links_bytes(problem) // machine.workers, room // 2)
        slabs, slab = _slabs(problem, machine, room - kept)
        slabbed = held + kept + slab
        held += _exchange_memory(problem, machine, at_once)
    driver, rank = _krylov_driver(problem, machine, statistic, held)
    cache = cache_room(problem, machine, held, driver)
    first = _pass_seconds(problem, machine, flops, rate, decode=True)
    later = _pass_seconds(problem, machine, flops, rate, decode=not stays(problem, machine, cache))
    seconds = first + (EXPECTED_PASSES - 1) * later
    if problem.links is not None:
        seconds += EXPECTED_PASSES * _linked_seconds(problem, machine, exchanged, HOPS) + slabs * first
        seconds += (EXPECTED_PASSES * (2 * -(-exchanged // at_once) - 1)) * problem.nbytes / DECODE_RATE
    route = placed("krylov", EXPECTED_PASSES, seconds, cache, max(held + cache, slabbed), driver, machine)
    return replace(route, columns_at_once=at_once, slabs=slabs, max_rank=rank)


def _krylov_driver(problem: Problem, machine: Machine, statistic: int, worker: int) -> tuple[int, int]:
    """The memory of the driver, and the widest subspace that leaves room for all else."""
    # A statistic that came and its copy; the products, directions and messages of one pass (measured).
    one = 8 * problem.features * min(_fresh(problem), problem.features)
    base, passing = driver_base(problem, machine), 2 * statistic + 10 * one
    taken = base + passing + (worker - BASE_MEMORY if _shares_driver(machine) else 0)
    rank = subspace_bound(problem, machine, taken)
    space = _space_memory(problem, rank)
    # When the subspace is thinned out, half of it exists twice for a moment.
    return base + space + max(passing, space // 2 + 4 * one), rank


def rows_route(problem: Problem, machine: Machine) -> Route:
    """About twenty passes, statistics of D × K²/2 numbers: any entry may be missing, and noise may be per feature; of
    joint instances, which lack whole views, only D × K for each pattern."""
    if problem.views:
        return _joint_rows_route(problem, machine)
    k, width = problem.n_components, problem.features + problem.targets
    packed = (k + 1) * (k + 2) // 2
    statistic = 8 * max(width * (packed + k + 2), min(MOST * width**2, LARGEST))
    cells = float(problem.nnz) if problem.nnz is not None else float(problem.instances) * width
    rate = SPARSE_RATE if problem.nnz is not None else GEMM_RATE
    flops = 4.0 * cells * (packed + k) + problem.instances * float(k) ** 3 * ROW_SOLVE
    held = worker_memory(problem, machine, statistic, 2 * statistic) + machine.threads * ROW_CHUNK_BYTES
    # The points and images that the acceleration remembers, and a few statistics.
    own = driver_base(problem, machine) + 8 * width * (k + 2) * 24 + 6 * statistic
    cache = cache_room(problem, machine, held, own)
    first = _pass_seconds(problem, machine, flops, rate, decode=True)
    later = _pass_seconds(problem, machine, flops, rate, decode=not stays(problem, machine, cache))
    seconds = first + (EXPECTED_ROW_PASSES - 1) * later
    return placed("rows", EXPECTED_ROW_PASSES, seconds, cache, held + cache, own, machine)


def dual_route(problem: Problem, machine: Machine, *, textbook: bool = False) -> Route:
    """One pass for the inner products of all pairs of instances, one for the loadings; the driver holds N² numbers, and
    where they are few, or for textbook EM, all combinations of the instances."""
    count, k = problem.instances, problem.n_components
    columns = k + extra_directions(k) + problem.targets
    groups = group_number(problem)
    flops, rate = float(count) ** 2 * problem.features, GEMM_RATE
    if problem.nnz is not None:
        flops, rate = SKEWNESS * problem.nnz**2 / max(problem.features, 1) / 2.0, SPARSE_GRAM_RATE
    if not problem.targets and count <= FULL_EIGEN:
        driver = 4.0 * count**3 / GEMM_RATE
    else:
        driver = 4.0 * count**2 * columns * EXPECTED_PASSES / GEMM_RATE
    square = 8 * count**2
    held = worker_memory(problem, machine, 8 * problem.features * (k + 1), 8 * count * (k + 1))
    # A worker holds its tiles of half of the products until the driver has them.
    held += paired_memory(problem, machine, 2) + square // (2 * machine.workers)
    own = driver_base(problem, machine) + (8 if textbook or count <= FULL_EIGEN else 3) * square
    cache = cache_room(problem, machine, held, own)
    threads = machine.workers * machine.threads
    reading = _tile_visits(problem, machine, cache) * problem.nbytes / DECODE_RATE
    seconds = driver + (flops / rate + reading) / threads + TASK_SECONDS * groups * _shares_met(machine)
    seconds += _pass_seconds(problem, machine, 2.0 * (problem.nnz or count * problem.features) * k, rate, decode=False)
    return placed("dual", DUAL_PASSES, seconds, cache, held + cache, own, machine)


def _joint_rows_route(problem: Problem, machine: Machine) -> Route:
    k = problem.n_components
    statistic = 8 * sum(problem.widths) * (k + 3)
    cells = float(problem.nnz) if problem.nnz is not None else problem.nbytes / problem.itemsize
    rate = SPARSE_RATE if problem.nnz is not None else GEMM_RATE
    held = worker_memory(problem, machine, statistic, 8 * problem.features * (k + 3))
    own = BASE_MEMORY + 8 * problem.features * (k + 2) * 24 + 6 * statistic
    cache = cache_room(problem, machine, held, own)
    flops = 4.0 * cells * (k + 1)
    first = _pass_seconds(problem, machine, flops, rate, decode=True)
    later = _pass_seconds(problem, machine, flops, rate, decode=not stays(problem, machine, cache))
    seconds = first + (EXPECTED_VIEW_PASSES - 1) * later
    return placed("rows", EXPECTED_VIEW_PASSES, seconds, cache, held + cache, own, machine)


_ROUTES = {"moments": moments_route, "krylov": krylov_route, "rows": rows_route, "dual": dual_route}


def placed(name: str, passes: int, seconds: float, cache: int, worker: int, driver: int, machine: Machine) -> Route:
    """The route's memory; where the workers are threads of the driver, one process holds both."""
    if _shares_driver(machine):
        worker = driver = worker + driver - BASE_MEMORY
    return Route(name, passes, seconds, cache, worker, driver)


def subspace_bound(problem: Problem, machine: Machine, beside: int = 0) -> int:
    """The widest subspace that a third of the driver's memory holds, and what is left `beside` other needs, between
    four blocks of directions and 600, or those of the expected passes."""
    fresh = _fresh(problem)
    limit = machine.driver_memory or 4 * 2**30
    room = int(min(limit / 3, limit - beside) / (1.5 * _space_memory(problem, 1)))
    most = max(600, EXPECTED_PASSES * fresh + problem.targets)
    return max(4 * fresh + problem.targets, min(room, most))


def _fresh(problem: Problem) -> int:
    """New directions of features in a pass; in the second, as many more as there are targets."""
    return problem.n_components + extra_directions(problem.n_components)


def _space_memory(problem: Problem, rank: int) -> int:
    """Bytes of a subspace: of one view its directions, of several with their products for each pattern."""
    rows = problem.features
    if problem.patterns > 1 or problem.targets or problem.views:
        rows += sum(size * spans for size, spans in zip(problem.widths, problem.spans, strict=True))
    return 8 * rows * min(rank, problem.features)


@dataclass(frozen=True)
class _Choice:
    """All routes, and those of the wanted ones that fit."""

    routes: dict[str, Route]
    fitting: dict[str, Route]
    asked: str


def make_plan(problem: Problem, machine: Machine, *, route: str = "auto", em_passes: int | None = None) -> Plan:
    """Choose the cheaper route that fits, or the one asked for; PlanError where nothing fits, with the way out.

    `em_passes` is the most passes of solver "em", which makes one per iteration unless the route is moments.
    """
    routes = {name: _ROUTES[name](problem, machine) for name in problem.routes}
    if em_passes and "dual" in routes:
        routes["dual"] = dual_route(problem, machine, textbook=True)
    if route not in ("auto", *routes):
        raise PlanError(f"route {route!r} is none for this model and these data; take {' or '.join(routes)}, or 'auto'")
    wanted = routes if route == "auto" else {route: routes[route]}
    fitting = {name: r for name, r in routes.items() if excess(r, machine) is None}
    usable = [r for name, r in fitting.items() if name in wanted]
    if not usable:
        raise PlanError(_refusal(problem, machine, wanted))
    best = min(usable, key=lambda r: r.seconds)
    passes = em_passes if em_passes and best.name not in ("moments", "dual") else best.passes
    cached = stays(problem, machine, best.cache_bytes)
    reads = 1 if cached else passes
    if best.name == "dual":
        reads = _tile_visits(problem, machine, best.cache_bytes) + (not cached)
    return Plan(
        route=best.name,
        reason=_reason(best, _Choice(routes, fitting, route)),
        passes=passes,
        bytes_per_pass=problem.nbytes,
        bytes_total=0 if problem.in_memory else problem.nbytes * reads,
        tasks_per_pass=problem.tasks,
        cached=cached,
        cache_bytes=best.cache_bytes,
        worker_memory=best.worker_memory,
        driver_memory=best.driver_memory,
        worker_limit=machine.worker_memory,
        driver_limit=machine.driver_memory,
        max_rank=best.max_rank or subspace_bound(problem, machine),
        problem=problem,
        machine=f"{machine.kind}, {machine.workers} workers × {machine.threads} threads",
        alternatives=tuple(routes.values()),
        columns_at_once=best.columns_at_once,
        slabs=best.slabs,
        exchange_bytes=_exchange_bytes(problem, best),
    )


def _exchange_bytes(problem: Problem, route: Route) -> int:
    """Bytes that travel between workers in a pass."""
    if problem.links is None:
        return 0
    if route.name == "moments":
        return 8 * problem.travelling * (problem.features + problem.targets + 1)
    columns = problem.n_components + extra_directions(problem.n_components)
    return 8 * problem.travelling * min(columns, problem.features) * HOPS


def excess(route: Route, machine: Machine) -> str | None:
    """Which limit a route breaks, in words, or None."""
    if machine.worker_memory and route.worker_memory > machine.worker_memory:
        return f"{size(route.worker_memory)} of a worker's {size(machine.worker_memory)}"
    if machine.driver_memory and route.driver_memory > machine.driver_memory:
        return f"{size(route.driver_memory)} of the driver's {size(machine.driver_memory)}"
    return None


def _reason(best: Route, choice: _Choice) -> str:
    if choice.asked != "auto":
        return "asked for"
    if len(choice.routes) == 1:
        return "entries may be missing in any place" if best.name == "rows" else "the only one for these data"
    others = [r for name, r in choice.routes.items() if name != best.name]
    costs = " and ".join(f"{r.seconds:.2g} s by {r.name}" for r in others if r.name in choice.fitting)
    said = [f"estimated cost {best.seconds:.2g} s against {costs}"] if costs else []
    large = [r for r in others if r.name not in choice.fitting]
    said += [f"{r.name} would need {size(max(r.worker_memory, r.driver_memory))}, which does not fit" for r in large]
    return "; ".join(said)


def _refusal(problem: Problem, machine: Machine, wanted: dict[str, Route]) -> str:
    needs = "; ".join(f"route {name} needs {excess(r, machine)}" for name, r in wanted.items())
    ways = ["give the workers or the driver more memory"]
    blocks = machine.threads * 5 * problem.largest_block
    if 2 * blocks > min(r.worker_memory for r in wanted.values()) - BASE_MEMORY:
        smaller = f"dlatent.stores.open.open(data, block_bytes={problem.largest_block // 4})"
        ways.insert(0, f"work on smaller blocks, {smaller}, of data in row chunks no larger than that (dlatent ingest)")
    if machine.threads > 1:
        ways.insert(0, "use fewer threads per worker")
    if wanted.keys() & {"krylov", "rows"} and problem.n_components > 1:
        ways.insert(0, "ask for fewer components")
    shape = f"{problem.description} of {problem.instances:,} × {problem.features:,}"
    return f"{shape} does not fit: {needs}. Ways out: {'; '.join(ways)}."
