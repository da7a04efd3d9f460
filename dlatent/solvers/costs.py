"""The costs of solvers in time and memory, projected before a byte of the data is read.

Rates are those of one thread of an ordinary machine; only their ratios matter to the choice.  Memory is projected from
above: a fit stays within its plan, and tests hold the projection against measurement.
"""

from __future__ import annotations

from dlatent.gaussian.moments import CHUNK_ROWS
from dlatent.operators.tall import fresh_directions
from dlatent.order import FAN_IN, FEWEST_STRIPS, MOST_STRETCHES
from dlatent.passes import Resources
from dlatent.solvers.plan import EDGE_BYTES, Plan
from dlatent.solvers.task import DataSize, Task

MIB = 2**20
BASE_MEMORY = 280 * MIB
"""The driver with everything imported and a scheduler, and the slack of its allocator (240 MiB measured)."""
WORKER_BASE = 200 * MIB
"""A worker process of a cluster, and the slack of its allocator (140 MiB measured)."""
FILL = 0.9
"""Part of what a worker may hold that cached blocks and exchanged rows fill at most."""
DECODE_RATE = 0.5e9
"""Bytes per second and thread, reading and decoding."""
GEMM_RATE = 15e9
"""Floating-point operations per second and thread in float64; twice that in float32."""
SPARSE_RATE = 2e9
"""Operations of sparse × thin products."""
SPARSE_GRAM_RATE = 0.2e9
"""Operations of sparse × sparse products."""
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
"""EM iterations on moments from all starts together, where samples lack views."""
ROW_SOLVE = 10.0
"""Time of one inverse of a row's K × K precision in units of K³ operations of a matrix product."""
ROW_CHUNK_BYTES = 32 * MIB
"""Temporary arrays of one thread of accelerated EM."""
TASK_SECONDS = 0.003
FULL_EIGEN = 1500
"""Up to this many features a dense eigendecomposition on the driver is cheaper than iterating on the Gram matrix."""
FACTOR_EVALUATIONS, FACTOR_SECONDS = 60, 0.001
"""Evaluations of a likelihood that look for the best factor analysis of complete data (20 to 70 where starts agree,
some hundreds where not), and seconds of one at least."""
SEARCH_SECONDS = 9.0
"""Of that search where entries or views are missing, or from sums of rows, which ends after so much work."""
SOLVES, PARTLY_SOLVES = 500, 3000
"""Solves of the noise variances of several views, where all samples have them all (400 measured) and where not."""
SOLVED_WIDTH = 150
"""Directions in which several views meet: what a subspace grows to."""
SOLVE_SECONDS = 0.003
"""Of an evaluation at least."""


def group_number(data: DataSize) -> int:
    """About the number of groups of blocks: three quarters of the tasks of a pass."""
    return max(min(3 * data.tasks // 4, data.blocks), 1)


def busy_threads(data: DataSize, machine: Resources) -> int:
    """Threads that have work in a pass: a group of blocks is for one."""
    return min(machine.total_threads, group_number(data))


def seen_features(task: Task) -> list[tuple[int, int]]:
    """Of each pattern its features, targets included, and how many views of it are seen through a subspace."""
    sizes, patterns = task.specification.sizes, task.specification.patterns
    if task.arrangement is not None:
        return [(sum(sizes[view] for view in pattern), len(pattern)) for pattern in patterns]
    return [(task.data.features + task.columns, 1)] * len(patterns)


def worker_memory(task: Task, machine: Resources, statistic: int, parameters: int, columns: int = 0) -> int:
    """Peak of a worker process without its cache; `columns` are numbers that a task makes of each row of a block."""
    data = task.data
    # A task has a block, the next one, as it is stored and as its chunks are decoded, copies of rows by pattern,
    # `columns` numbers for each row of it, and the statistics.
    each = data.decoding + 3 * statistic
    thin = 8 * columns * (data.samples * data.largest_block // max(data.nbytes, 1))
    if data.nnz is not None:
        each += 5 * data.largest_block + 2 * thin
    else:
        copies = 3 + (len(task.specification.patterns) > 1) + (not data.in_memory)
        # A block of few wide rows has no more of them than it has.
        buffers = min(CHUNK_ROWS * data.features * 8, data.largest_block * 8 // data.itemsize)
        each += copies * data.largest_block + buffers + thin
    if data.computed and machine.kind == "cluster":  # the chunks of a group, and the blocks that are made of them
        each += 2 * -(-data.nbytes // group_number(data))
    # Statistics of groups wait to be joined, the joined one included: of each node of the tree that is under way all
    # but the last child, and what further threads bring on other branches (measured).
    waiting, nodes = 1 + 2 * (machine.threads - 1), -(-group_number(data) // machine.workers)
    while nodes > 1:
        waiting += min(nodes, FAN_IN) - 1
        nodes = -(-nodes // FAN_IN)
    working = machine.threads * each + parameters + waiting * statistic
    if machine.kind != "cluster":
        return BASE_MEMORY + working
    # What comes from the driver's memory travels to the workers once, and stays there packed and unpacked.
    carried = data.target_bytes + (data.nbytes if data.in_memory else 0)
    return WORKER_BASE + working + 2 * -(-carried // machine.workers)


def driver_base(task: Task, machine: Resources) -> int:
    """Bytes of every fit on the driver: libraries, the targets, and what is packed of them and of a graph in memory
    where they travel."""
    sent = targets = task.data.target_bytes
    if task.between is not None and task.between.graph.in_memory:
        sent += EDGE_BYTES * task.edges
    return BASE_MEMORY + targets + (sent if machine.kind == "cluster" else 0)


def subspace(task: Task, machine: Resources, reserved: int = 0) -> tuple[int, int]:
    """The widest subspace that a third of the driver's memory holds, or all of it less `reserved` bytes, between four
    blocks of directions and 600, or those of the expected passes; and its bytes.

    Of one view it has directions, of several these with their products for each pattern.
    """
    fresh, rows, columns = fresh_directions(task.specification.n_components), task.data.features, task.columns
    if len(task.specification.patterns) > 1 or columns or task.arrangement is not None:
        rows += sum(size * views for size, views in seen_features(task))
    limit = machine.driver_memory
    room = int(min(limit / 3, limit - reserved) / (1.5 * 8 * rows))
    most = max(600, EXPECTED_PASSES * fresh + columns)
    rank = max(4 * fresh + columns, min(room, most))
    return rank, 8 * rows * min(rank, task.data.features)


def placed(
    solver: str,
    task: Task,
    machine: Resources,
    worker: int,
    driver: int,
    *,
    keeps: bool = True,
    pairs: bool = False,
    least: int = 0,
) -> Plan:
    """The plan of a solver by what it takes of a worker and of the driver: what of it is left `keeps` blocks and edges.

    Where the workers are threads of the driver, one process holds both.  A worker keeps its share of the blocks and
    edges, or in passes over `pairs`, in which two blocks meet once, all that it meets.  Of data in memory it keeps
    edges only, which are cut from the graph.  `least` is what a worker takes at another time.
    """
    data, edges = task.data, EDGE_BYTES * task.edges
    process, blocks = driver - BASE_MEMORY if machine.kind != "cluster" else 0, 0 if data.in_memory else data.nbytes
    room = machine.cache_bytes if keeps and (blocks or edges) else 0
    if machine.worker_memory:
        room = min(room, int(FILL * machine.worker_memory) - worker - process)
    together, shares = blocks + edges, shares_met(machine) if pairs else 1
    group = max(data.largest_block if blocks else 0, together // group_number(data))
    share = -(-together // machine.workers) + group
    cache = max(0, min(room, min(shares * share, together + group) if pairs else share))
    peak = max(worker + cache, least) + process
    return Plan(
        solver=solver,
        task=task,
        resources=machine,
        worker_memory=peak,
        driver_memory=driver if machine.kind == "cluster" else peak,
        cache_bytes=cache,
        cached=data.in_memory or data.nbytes + edges <= cache * machine.workers // shares,
        max_rank=subspace(task, machine)[0],
        tasks_per_pass=data.tasks + (task.between.hops * task.between.tasks if task.between else 0),
    )


def product_rate(data: DataSize) -> float:
    """Operations of products of the data with thin matrices that a thread makes in a second."""
    return GEMM_RATE if data.nnz is None else SPARSE_RATE


def pass_seconds(
    data: DataSize, machine: Resources, flops: float, rate: float, passes: int = 1, reads: int = 1
) -> float:
    """Seconds of some passes: reading and decoding, in those that do that, arithmetic, and tasks."""
    working = reads * data.nbytes / DECODE_RATE + passes * flops / rate
    return working / busy_threads(data, machine) + passes * TASK_SECONDS * data.tasks


def solving_seconds(task: Task, *, every_feature: bool = False) -> float:
    """Seconds of iterations on the driver beside those that solvers count; `every_feature`: on all features at once.

    Each takes a few eigenvectors of what it works on, or as long.  One noise variance has a closed form.
    """
    features, partly = task.data.features, len(task.specification.patterns) > 1
    if not task.shared:
        if task.missing or partly or not every_feature:
            return SEARCH_SECONDS if task.prior == "ml" else 0.0
        rank = min(features, task.data.samples)
        return FACTOR_EVALUATIONS * (FACTOR_SECONDS + (4.0 * rank + features) * rank**2 / GEMM_RATE)
    if len(task.specification.views) > 1:
        width = min(features + task.columns, SOLVED_WIDTH)
        evaluations = PARTLY_SOLVES if partly else SOLVES
    else:
        return 0.0
    return evaluations * (SOLVE_SECONDS + 4.0 * width**3 / GEMM_RATE)


def shares_met(machine: Resources) -> int:
    """Workers whose share of the data a worker meets, its own among them, where two groups meet once."""
    return machine.workers // 2 + 1


def tile_visits(data: DataSize, machine: Resources, cached: bool) -> int:
    """How often a pass over tiles reads the data: a worker keeps its own groups, where they stay, and reads each of the
    others that it meets for as many of its own, one after the other, as leave work for all threads."""
    groups = group_number(data)
    if not cached:
        return groups
    share = -(-groups // machine.workers)
    together = max(1, groups**2 // (2 * machine.workers * FEWEST_STRIPS * machine.threads))
    return 1 + machine.workers // 2 * -(-share // together)


def paired_memory(data: DataSize, machine: Resources, groups: int = 1) -> int:
    """The groups of blocks that a thread holds in a pass over pairs: its own, and that which it meets where they meet
    as a whole; and all that meet in a task, where their blocks travel from worker to worker."""
    if (data.in_memory or data.computed) and machine.kind == "cluster":
        groups += 2 * ((group_number(data) - 1) // MOST_STRETCHES)
    return groups * machine.threads * -(-data.nbytes // group_number(data))
