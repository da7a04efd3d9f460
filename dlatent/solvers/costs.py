"""What solvers cost in time and memory, projected before a byte of the data is read.

Rates are those of one thread of an ordinary machine; only their ratios matter to the choice.  Memory is projected from
above: a fit stays within its plan, and tests hold the projection against measurement.
"""

from __future__ import annotations

from typing import NamedTuple

from dlatent.gaussian.moments import CHUNK_ROWS
from dlatent.operators.tall import fresh_directions
from dlatent.order import FAN_IN, FEWEST_STRIPS, MOST_STRETCHES
from dlatent.passes import MET_ENTRIES, Resources
from dlatent.solvers.plan import Plan, Problem

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
"""The same for sparse × thin products."""
SPARSE_GRAM_RATE = 0.2e9
"""The same for sparse × sparse products."""
EXPECTED_PASSES = 12
"""Rayleigh–Ritz EM takes 8 to 13 passes on text and images (benchmarks)."""
EXPECTED_ROW_PASSES = 20
"""Accelerated EM over rows with missing entries takes 10 to 30 passes (benchmarks)."""
DUAL_PASSES = 2
COMPARED_ITERATIONS = 3
"""Subspace iterations for each strength of smoothing that is compared: with fewer, stronger ones look better."""
COMPARED_STEPS = 10
"""Iterations for each of them where entries are missing: of COIL-20 and of Cora the best ones were those after 40."""
OVERSAMPLING = 10
"""Their directions beyond K."""
COMPARED_NUMBERS = 2**24
"""Numbers of the statistics of a pass that compares several of them."""
SPARSE_MEETING_RATE = 0.07e9
"""The same for edges × sparse rows."""
SKEWNESS = 10.0
"""Meetings of entries in products of sparse rows, as a multiple of those of evenly filled columns (text measured)."""
EXPECTED_VIEW_PASSES = 40
"""Accelerated EM over views, from a random start."""
VIEW_STEPS = 300
"""EM iterations on moments from all starts together, where samples lack views."""
ROW_SOLVE = 10.0
"""Time of one inverse of a row's K × K precision in units of K³ operations of a matrix product."""
ROW_CHUNK_BYTES = 32 * MIB
"""Temporary arrays of one thread of route rows."""
TASK_SECONDS = 0.003
FULL_EIGEN = 1500
"""Up to this many features a dense eigendecomposition on the driver is cheaper than iterating on the Gram matrix."""
EXCHANGE_BYTES = 2**30
"""What an exchange may hold on a worker whose memory is not known."""
FACTOR_EVALUATIONS, FACTOR_WORK, FEWEST_EVALUATIONS = 2000, 8e7, 600
"""Evaluations of a likelihood that look for the best factor analysis of complete data: of D features FACTOR_WORK/D², no
less than two climbs take (700 to 1,900 up to 200 features measured)."""
SEARCH_SECONDS = 9.0
"""The same search where entries or views are missing, which ends after so much work."""
SOLVES, PARTLY_SOLVES = 500, 3000
"""Solves of the noise variances of several views, where all samples have them all (400 measured) and where not."""
SOLVED_WIDTH = 150
"""Directions in which several views meet: what a subspace grows to."""
SOLVE_SECONDS = 0.003
"""What an evaluation takes at least."""
SPARSE_SLACK = 1.25
"""What sparse rows take beside their entries while they travel and are multiplied (a million documents measured)."""


def group_number(problem: Problem) -> int:
    """About the number of groups of blocks: three quarters of the tasks of a pass."""
    return max(min(3 * problem.tasks // 4, problem.blocks), 1)


def busy_threads(problem: Problem, machine: Resources) -> int:
    """Threads that have work in a pass: a group of blocks is for one."""
    return min(machine.workers * machine.threads, group_number(problem))


def seen_features(problem: Problem) -> list[tuple[int, int]]:
    """Of each pattern its features, targets included, and how many views of it are seen through a subspace."""
    if problem.views:
        return [(sum(problem.views[view] for view in pattern), len(pattern)) for pattern in problem.present]
    return [(problem.features + problem.targets, 1)] * problem.patterns


def worker_memory(problem: Problem, machine: Resources, statistic: int, parameters: int, columns: int = 0) -> int:
    """Peak of a worker process without its cache; `columns` are numbers that a task makes of each row of a block."""
    # A task has a block, the next one, as it is stored and as its chunks are decoded, copies of rows by pattern,
    # `columns` numbers for each row of it, and the statistics.
    task = problem.decoding + 3 * statistic
    thin = 8 * columns * (problem.samples * problem.largest_block // max(problem.nbytes, 1))
    if problem.nnz is not None:
        task += 5 * problem.largest_block + 2 * thin
    else:
        copies = 3 + (problem.patterns > 1) + (not problem.in_memory)
        # A block of few wide rows has no more of them than it has.
        buffers = min(CHUNK_ROWS * problem.features * 8, problem.largest_block * 8 // problem.itemsize)
        task += copies * problem.largest_block + buffers + thin
    if problem.computed and machine.kind == "cluster":  # the chunks of a group, and the blocks that are made of them
        task += 2 * -(-problem.nbytes // group_number(problem))
    # Statistics of groups wait to be joined, the joined one included: of each node of the tree that is under way all
    # but the last child, and what further threads bring on other branches (measured).
    waiting, nodes = 1 + 2 * (machine.threads - 1), -(-group_number(problem) // machine.workers)
    while nodes > 1:
        waiting += min(nodes, FAN_IN) - 1
        nodes = -(-nodes // FAN_IN)
    held = machine.threads * task + parameters + waiting * statistic
    if machine.kind != "cluster":
        return BASE_MEMORY + held
    # What comes from the driver's memory travels to the workers once, and stays there packed and unpacked.
    carried = problem.target_bytes + (problem.nbytes if problem.in_memory else 0)
    return WORKER_BASE + held + 2 * -(-carried // machine.workers)


def driver_base(problem: Problem, machine: Resources) -> int:
    """What every fit takes on the driver: libraries, the targets, and what is packed of them and of a graph in memory
    where they travel."""
    packed = problem.target_bytes + (problem.graph_bytes if problem.graph_in_memory else 0)
    return BASE_MEMORY + problem.target_bytes + (packed if machine.kind == "cluster" else 0)


def subspace(problem: Problem, machine: Resources, beside: int = 0) -> tuple[int, int]:
    """The widest subspace that a third of the driver's memory holds, and what is left `beside` other needs, between
    four blocks of directions and 600, or those of the expected passes; and its bytes.

    Of one view it has directions, of several these with their products for each pattern.
    """
    fresh, rows = fresh_directions(problem.n_components), problem.features
    if problem.patterns > 1 or problem.targets or problem.views:
        rows += sum(size * views for size, views in seen_features(problem))
    limit = machine.driver_memory
    room = int(min(limit / 3, limit - beside) / (1.5 * 8 * rows))
    most = max(600, EXPECTED_PASSES * fresh + problem.targets)
    rank = max(4 * fresh + problem.targets, min(room, most))
    return rank, 8 * rows * min(rank, problem.features)


def placed(
    solver: str,
    problem: Problem,
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
    own, blocks = driver - BASE_MEMORY if machine.kind != "cluster" else 0, 0 if problem.in_memory else problem.nbytes
    room = machine.cache_bytes if keeps and (blocks or problem.graph_entries) else 0
    if machine.worker_memory:
        room = min(room, int(FILL * machine.worker_memory) - worker - own)
    whole, meeting = blocks + problem.graph_bytes, shares_met(machine) if pairs else 1
    group = max(problem.largest_block if blocks else 0, whole // group_number(problem))
    share = -(-whole // machine.workers) + group
    cache = max(0, min(room, min(meeting * share, whole + group) if pairs else share))
    peak = max(worker + cache, least) + own
    return Plan(
        solver=solver,
        problem=problem,
        resources=machine,
        worker_memory=peak,
        driver_memory=driver if machine.kind == "cluster" else peak,
        cache_bytes=cache,
        cached=problem.in_memory or problem.nbytes + problem.graph_bytes <= cache * machine.workers // meeting,
        max_rank=subspace(problem, machine)[0],
        tasks_per_pass=problem.tasks,
    )


def pass_seconds(
    problem: Problem, machine: Resources, flops: float, rate: float, passes: int = 1, reads: int = 1
) -> float:
    """Seconds of some passes: reading and decoding, in those that do that, arithmetic, and tasks."""
    working = reads * problem.nbytes / DECODE_RATE + passes * flops / rate
    return working / busy_threads(problem, machine) + passes * TASK_SECONDS * problem.tasks


def solving_seconds(problem: Problem, *, whole: bool = False) -> float:
    """Seconds of iterations on the driver beside those that routes count; `whole`: on all features at once.

    Each takes a few eigenvectors of what it works on, or as long.  One noise variance has a closed form.
    """
    if not problem.shared:
        if problem.missing or problem.patterns > 1:
            return 0.0 if problem.prior else SEARCH_SECONDS
        width = problem.features
        evaluations = min(FACTOR_EVALUATIONS, max(FACTOR_WORK / width**2, FEWEST_EVALUATIONS)) if whole else 0.0
    elif problem.targets or problem.views:
        width = min(problem.features + problem.targets, SOLVED_WIDTH)
        evaluations = SOLVES if problem.patterns == 1 else PARTLY_SOLVES
    else:
        return 0.0
    return evaluations * (SOLVE_SECONDS + 4.0 * width**3 / GEMM_RATE)


def shares_met(machine: Resources) -> int:
    """Workers whose share of the data a worker meets, its own among them, where two groups meet once."""
    return machine.workers // 2 + 1


def tile_visits(problem: Problem, machine: Resources, cached: bool) -> int:
    """How often a pass over tiles reads the data: a worker keeps its own groups, where they stay, and reads each of the
    others that it meets for as many of its own, one after the other, as leave work for all threads."""
    groups = group_number(problem)
    if not cached:
        return groups
    own = -(-groups // machine.workers)
    together = max(1, groups**2 // (2 * machine.workers * FEWEST_STRIPS * machine.threads))
    return 1 + machine.workers // 2 * -(-own // together)


def paired_memory(problem: Problem, machine: Resources, groups: int = 1) -> int:
    """The groups of blocks that a thread holds in a pass over pairs: its own, and that which it meets where they meet
    as a whole; and all that meet in a task, where their blocks travel from worker to worker."""
    if (problem.in_memory or problem.computed) and machine.kind == "cluster":
        groups += 2 * ((group_number(problem) - 1) // MOST_STRETCHES)
    return groups * machine.threads * -(-problem.nbytes // group_number(problem))


def graph_memory(problem: Problem, machine: Resources) -> int:
    """The edges that the threads of a worker read and cut at a time."""
    return 3 * problem.graph_bytes // group_number(problem) * machine.threads


def gathered_memory(problem: Problem) -> int:
    """The rows of samples in a graph of which some have no targets, which come together; 0 for other fits."""
    if problem.graph_entries is None or problem.patterns == 1:
        return 0
    return 8 * problem.samples * (problem.features + problem.targets + 1)


def completion_memory(problem: Problem) -> int:
    """What the driver holds of such samples: their rows, those that they say of each other and what becomes of them,
    and a factorisation with the fill-in of random edges, the worst (at five edges of each sample 7 bytes times N²,
    measured), up to that of a full matrix."""
    rows = gathered_memory(problem)
    factors = min(problem.samples * (problem.graph_entries or 0), 48 * problem.samples**2)
    return 6 * rows + factors if rows else 0


def exchange_memory(problem: Problem, machine: Resources, columns: int) -> int:
    """Rows that a worker holds: its own and its neighbours' of one stage, its own of another, those being worked on."""
    own = -(-problem.samples // machine.workers)
    rows = max(problem.reach, own) + own + 4 * -(-problem.samples // group_number(problem)) * machine.threads
    return 8 * columns * rows


def exchange_room(machine: Resources, held: int) -> int:
    """Bytes of a worker's memory that exchanged rows may fill, before anything is cached."""
    if not machine.worker_memory:
        return EXCHANGE_BYTES
    return max(int(FILL * machine.worker_memory) - held, machine.worker_memory // 10)


def exchange_columns(problem: Problem, machine: Resources, columns: int, room: int) -> int:
    """The columns that an exchange can carry in its room, at least one; all exchanges carry about as many."""
    one = max(exchange_memory(problem, machine, 1), 1)
    most = max(1, min(columns, room // one))
    return -(-columns // -(-columns // most))


def column_block_count(problem: Problem, machine: Resources, room: int) -> tuple[int, int]:
    """In how many parts the features of samples in a graph must meet to fit in the room, and what one part takes.

    A row that has met its neighbours has as many entries as all of them together, up to all features; of sparse rows
    the last hop is made for a few at a time.
    """
    whole, last = features_memory(problem, machine)
    column_blocks = max(1, min(-(-whole // max(room - last, room // 2, 1)), problem.features))
    return column_blocks, whole // column_blocks + last


def features_memory(problem: Problem, machine: Resources) -> tuple[int, int]:
    """What whole rows take that meet their neighbours, and where they are sparse what the last hop takes beside.

    In that hop those that a few rows meet are brought together; in the hops before a thread brings together all that
    its group meets.
    """
    if problem.nnz is None:
        return exchange_memory(problem, machine, problem.features), 0
    reach = max(problem.reach / problem.samples, 1 / machine.workers)
    entries = (reach + 1 / machine.workers) * _travelling(problem, problem.hops)
    entries += machine.threads * reach * _travelling(problem, problem.hops - 1) if problem.hops > 1 else 0.0
    whole, last = (int(SPARSE_SLACK * 12 * n) for n in (entries, 4 * MET_ENTRIES * machine.threads))
    return whole, last


def features_bytes(problem: Problem) -> int:
    """Bytes of whole rows that travel between workers in their hops."""
    if problem.nnz is None:
        return 8 * problem.travelling * problem.features * problem.hops
    entries = sum(_travelling(problem, hop) for hop in range(1, problem.hops + 1))
    return int(12 * entries * problem.travelling / problem.samples)


def _travelling(problem: Problem, hop: int) -> float:
    """Entries of sparse rows before a hop, the first of which is 1."""
    assert problem.nnz is not None
    before = (1.0 + (problem.graph_entries or 0) / problem.samples) ** (hop - 1)
    return min(problem.nnz * before, problem.samples * problem.features)


def features_seconds(problem: Problem, machine: Resources) -> float:
    """What hops of the features themselves take, without reading, as for the total variance of samples in a graph."""
    if problem.graph_entries is None:
        return 0.0
    if problem.nnz is None:
        return graph_seconds(problem, machine, problem.features, problem.hops)
    entries = sum(_travelling(problem, hop) for hop in range(1, problem.hops + 1))
    flops = 2.0 * problem.graph_entries / problem.samples * entries
    return flops / SPARSE_MEETING_RATE / busy_threads(problem, machine)


def graph_seconds(problem: Problem, machine: Resources, columns: int, hops: int) -> float:
    """What the exchanges of a pass add: sparse products with the graph, and a task for each group and hop."""
    if problem.graph_entries is None:
        return 0.0
    threads = busy_threads(problem, machine)
    return hops * (2.0 * problem.graph_entries * columns / SPARSE_RATE / threads + TASK_SECONDS * problem.tasks)


class Comparing(NamedTuple):
    """What it takes to compare strengths of smoothing: how often some are compared together, passes, readings of the
    rows, to be exchanged and to be multiplied by what came, and of the edges, in each hop and for the degrees."""

    rounds: int
    passes: int
    reads: int
    edge_reads: int


def compared_width(problem: Problem) -> int:
    """Columns of one strength of smoothing: directions, or later scores, which meet the rows twice, and one of ones."""
    k = min(problem.n_components, problem.features)
    return max(min(k + OVERSAMPLING, problem.features) + 1, 2 * (k + 1))


def compared_columns(problem: Problem) -> int:
    """Columns for the strengths of smoothing that are compared in one pass, at least two; 0 where none are."""
    each = compared_width(problem)
    return each * min(problem.candidates, max(2, COMPARED_NUMBERS // (each * problem.features)))


def compared_together(problem: Problem, columns_at_once: int) -> int:
    """Strengths of smoothing, beside that of 0, which sends nothing, that share their passes."""
    return max(1, min(columns_at_once, compared_columns(problem)) // compared_width(problem) - 1)


def comparing(problem: Problem, columns_at_once: int) -> Comparing:
    """One pass for the mean, and in each round some for f², and two for f; nothing where no strengths are compared."""
    others = max(problem.candidates - 1, 0)
    rounds = -(-others // compared_together(problem, columns_at_once)) if others else 0
    passes = 1 + rounds * (COMPARED_ITERATIONS + 2) if rounds else 0
    hops = 2 * (COMPARED_ITERATIONS + 1) * problem.hops
    return Comparing(rounds, passes, max(2 * passes - 1, 0), rounds * (hops + COMPARED_ITERATIONS + 2))


def compared_seconds(problem: Problem, machine: Resources, rounds: int, reads: int) -> float:
    """What the passes take that compare strengths of smoothing."""
    if not rounds:
        return 0.0
    columns = problem.candidates * (min(problem.n_components + OVERSAMPLING, problem.features) + 1)
    flops = 4.0 * columns * (problem.nnz if problem.nnz is not None else problem.samples * problem.features)
    rate = SPARSE_RATE if problem.nnz is not None else GEMM_RATE
    seconds = reads * pass_seconds(problem, machine, 0.0, rate)
    seconds += (COMPARED_ITERATIONS + 2) * flops / rate / busy_threads(problem, machine)
    half = graph_seconds(problem, machine, -(-columns // rounds), problem.hops)
    return seconds + rounds * 2 * (COMPARED_ITERATIONS + 1) * half
