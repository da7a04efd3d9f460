"""What routes cost in time and memory, projected before a byte of the data is read.

Rates are those of one thread of an ordinary machine; only their ratios matter to the choice.  Memory is projected from
above: a fit stays within its plan, and tests hold the projection against measurement.
"""

from __future__ import annotations

import math

from dlatent.fitting.plan import Cost, Duration, Machine, Problem, size, till_pause
from dlatent.fitting.subspace import extra_directions
from dlatent.linear_gaussian.moments import CHUNK_ROWS
from dlatent.order import FAN_IN, FEWEST_STRIPS, MOST_STRETCHES
from dlatent.passes import MET_ENTRIES

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


def shares_driver(machine: Machine) -> bool:
    """Whether the workers are threads of the driver's process."""
    return machine.kind in ("serial", "threads")


def _task_memory(problem: Problem, statistic: int, columns: int) -> int:
    """A block, the next one, as it is stored and as its chunks are decoded, copies of rows by pattern, `columns`
    numbers for each row of it, and the statistics."""
    thin = 8 * columns * (problem.samples * problem.largest_block // max(problem.nbytes, 1))
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
    base = BASE_MEMORY if shares_driver(machine) else WORKER_BASE
    held = base + machine.threads * _task_memory(problem, statistic, columns) + parameters
    held += _waiting(problem, machine) * statistic
    if not shares_driver(machine):
        # What comes from the driver's memory travels to the workers once, and stays there packed and unpacked.
        carried = problem.target_bytes + (problem.nbytes if problem.in_memory else 0)
        held += 2 * -(-carried // machine.workers)
    return held


def driver_base(problem: Problem, machine: Machine) -> int:
    """What every fit takes on the driver: libraries, the targets, and what is packed of them and of a graph in memory
    where they travel."""
    packed = 0 if shares_driver(machine) else problem.target_bytes + problem.graph_in_memory * graph_bytes(problem)
    return BASE_MEMORY + problem.target_bytes + packed


def paired_memory(problem: Problem, machine: Machine, groups: int = 1) -> int:
    """The groups of blocks that a thread holds in a pass over pairs: its own, and that which it meets where they meet
    as a whole; and all that meet in a task, where their blocks travel from worker to worker."""
    if (problem.in_memory or problem.computed) and not shares_driver(machine):
        groups += 2 * ((group_number(problem) - 1) // MOST_STRETCHES)
    return groups * machine.threads * -(-problem.nbytes // group_number(problem))


def cache_room(problem: Problem, machine: Machine, held: int, driver: int, *, pairs: bool = False) -> int:
    """Bytes of blocks and edges that a worker may keep beside what it and, in the same process, the driver need: its
    share, or in passes over `pairs`, in which two blocks meet once, all that it meets.  Of data in memory only edges,
    which are cut from the graph."""
    if problem.in_memory and not problem.graph_entries:
        return 0
    room = machine.cache_bytes
    if machine.worker_memory:
        beside = driver - BASE_MEMORY if shares_driver(machine) else 0
        room = min(room, int(FILL * machine.worker_memory) - held - beside)
    wanted = graph_bytes(problem) + (0 if problem.in_memory else problem.nbytes)
    group = max(0 if problem.in_memory else problem.largest_block, wanted // group_number(problem))
    share = -(-wanted // machine.workers) + group
    return max(0, min(room, min(shares_met(machine) * share, wanted + group) if pairs else share))


def stays(problem: Problem, machine: Machine, cache_bytes: int, *, pairs: bool = False) -> bool:
    """Whether all blocks stay in memory between passes, or in passes over `pairs` on every worker that meets them."""
    caches = cache_bytes * machine.workers // (shares_met(machine) if pairs else 1)
    return problem.in_memory or problem.nbytes + graph_bytes(problem) <= caches


def shares_met(machine: Machine) -> int:
    """Workers whose share of the data a worker meets, its own among them, where two groups meet once."""
    return machine.workers // 2 + 1


def tile_visits(problem: Problem, machine: Machine, cache_bytes: int) -> int:
    """How often a pass over tiles reads the data: a worker keeps its own groups, where they stay, and reads each of the
    others that it meets for as many of its own, one after the other, as leave work for all threads."""
    groups = group_number(problem)
    if not stays(problem, machine, cache_bytes):
        return groups
    own = -(-groups // machine.workers)
    together = max(1, groups**2 // (2 * machine.workers * FEWEST_STRIPS * machine.threads))
    return 1 + machine.workers // 2 * -(-own // together)


def exchange_memory(problem: Problem, machine: Machine, columns: int) -> int:
    """Rows that a worker holds: its own and its neighbours' of one stage, its own of another, those being worked on."""
    own = -(-problem.samples // machine.workers)
    rows = max(problem.reach, own) + own + 4 * -(-problem.samples // group_number(problem)) * machine.threads
    return 8 * columns * rows


def group_number(problem: Problem) -> int:
    """About the number of groups of blocks: three quarters of the tasks of a pass."""
    return max(min(3 * problem.tasks // 4, problem.blocks), 1)


def busy_threads(problem: Problem, machine: Machine) -> int:
    """Threads that have work in a pass: a group of blocks is for one."""
    return min(machine.workers * machine.threads, group_number(problem))


def graph_memory(problem: Problem, machine: Machine) -> int:
    """The edges that the threads of a worker read and cut at a time."""
    return 3 * graph_bytes(problem) // group_number(problem) * machine.threads


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


def graph_bytes(problem: Problem) -> int:
    """Bytes of the edges as workers keep them: a weight and two places for each entry."""
    return 0 if problem.graph_entries is None else 16 * problem.graph_entries


def edges_read(problem: Problem, machine: Machine, cost: Cost) -> int:
    """Bytes of edges that a fit reads: none where the cache keeps them, beside the blocks, since they were counted."""
    whole = graph_bytes(problem) + (0 if problem.in_memory else problem.nbytes)
    return 0 if whole <= cost.cache_bytes * machine.workers else graph_bytes(problem) * cost.edge_reads


def exchange_room(machine: Machine, held: int) -> int:
    """Bytes of a worker's memory that exchanged rows may fill, before anything is cached."""
    if not machine.worker_memory:
        return EXCHANGE_BYTES
    return max(int(FILL * machine.worker_memory) - held, machine.worker_memory // 10)


def exchange_columns(problem: Problem, machine: Machine, columns: int, room: int) -> int:
    """The columns that an exchange can carry in its room, at least one; all exchanges carry about as many."""
    one = max(exchange_memory(problem, machine, 1), 1)
    most = max(1, min(columns, room // one))
    return -(-columns // -(-columns // most))


def column_block_count(problem: Problem, machine: Machine, room: int) -> tuple[int, int]:
    """In how many parts the features of samples in a graph must meet to fit in the room, and what one part takes.

    A row that has met its neighbours has as many entries as all of them together, up to all features; of sparse rows
    the last hop is made for a few at a time.
    """
    whole, last = features_memory(problem, machine)
    column_blocks = max(1, min(-(-whole // max(room - last, room // 2, 1)), problem.features))
    return column_blocks, whole // column_blocks + last


def features_memory(problem: Problem, machine: Machine) -> tuple[int, int]:
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


def compared_rounds(problem: Problem, columns_at_once: int) -> int:
    """How often that many are compared; 0 where none are."""
    if not problem.candidates:
        return 0
    return -(-(problem.candidates - 1) // compared_together(problem, columns_at_once))


def compared_passes(problem: Problem, columns_at_once: int) -> int:
    """Passes for that: one for the mean, and in each round some for f², and two for f."""
    rounds = compared_rounds(problem, columns_at_once)
    return 1 + rounds * (COMPARED_ITERATIONS + 2) if rounds else 0


def compared_reads(problem: Problem, columns_at_once: int) -> tuple[int, int]:
    """How often these read the rows, to be exchanged, and to be multiplied by what came; and the edges, in each hop and
    for the degrees."""
    passes, rounds = compared_passes(problem, columns_at_once), compared_rounds(problem, columns_at_once)
    hops = 2 * (COMPARED_ITERATIONS + 1) * problem.hops
    return max(2 * passes - 1, 0), rounds * (hops + COMPARED_ITERATIONS + 2)


def compared_seconds(problem: Problem, machine: Machine, columns_at_once: int) -> float:
    """What they take."""
    rounds = compared_rounds(problem, columns_at_once)
    if not rounds:
        return 0.0
    columns = problem.candidates * (min(problem.n_components + OVERSAMPLING, problem.features) + 1)
    flops = 4.0 * columns * (problem.nnz if problem.nnz is not None else problem.samples * problem.features)
    rate = SPARSE_RATE if problem.nnz is not None else GEMM_RATE
    reading = pass_seconds(problem, machine, 0.0, rate, decode=True)
    working = (COMPARED_ITERATIONS + 2) * flops / rate / busy_threads(problem, machine)
    half = graph_seconds(problem, machine, -(-columns // rounds), problem.hops)
    reads, _ = compared_reads(problem, columns_at_once)
    return reads * reading + working + rounds * 2 * (COMPARED_ITERATIONS + 1) * half


def _travelling(problem: Problem, hop: int) -> float:
    """Entries of sparse rows before a hop, the first of which is 1."""
    assert problem.nnz is not None
    before = (1.0 + (problem.graph_entries or 0) / problem.samples) ** (hop - 1)
    return min(problem.nnz * before, problem.samples * problem.features)


def features_seconds(problem: Problem, machine: Machine) -> float:
    """What hops of the features themselves take, without reading, as for the total variance of samples in a graph."""
    if problem.graph_entries is None:
        return 0.0
    if problem.nnz is None:
        return graph_seconds(problem, machine, problem.features, problem.hops)
    entries = sum(_travelling(problem, hop) for hop in range(1, problem.hops + 1))
    flops = 2.0 * problem.graph_entries / problem.samples * entries
    return flops / SPARSE_MEETING_RATE / busy_threads(problem, machine)


def graph_seconds(problem: Problem, machine: Machine, columns: int, hops: int) -> float:
    """What the exchanges of a pass add: sparse products with the graph, and a task for each group and hop."""
    if problem.graph_entries is None:
        return 0.0
    threads = busy_threads(problem, machine)
    return hops * (2.0 * problem.graph_entries * columns / SPARSE_RATE / threads + TASK_SECONDS * problem.tasks)


def pass_seconds(problem: Problem, machine: Machine, flops: float, rate: float, *, decode: bool) -> float:
    """Seconds of one pass: reading, decoding where that is done again, arithmetic, and tasks."""
    threads = busy_threads(problem, machine)
    reading = problem.nbytes / DECODE_RATE if decode else 0.0
    return (reading + flops / rate) / threads + TASK_SECONDS * problem.tasks


def passes_seconds(problem: Problem, machine: Machine, flops: float, rate: float, cache: int, passes: float) -> float:
    """Seconds of some passes, of which all but the first find their blocks in the cache, where it has room for them."""
    first = pass_seconds(problem, machine, flops, rate, decode=True)
    return first + (passes - 1) * pass_seconds(problem, machine, flops, rate, decode=not stays(problem, machine, cache))


def placed(
    name: str, passes: int, seconds: float, cache: int, worker: int, driver: int, machine: Machine, moved: int = 0
) -> Cost:
    """The route's memory; where the workers are threads of the driver, one process holds both."""
    if shares_driver(machine):
        worker = driver = worker + driver - BASE_MEMORY
    return Cost(name, passes, seconds, cache, worker, driver, moved=moved)


def duration(cost: Cost, machine: Machine, read: int) -> Duration | None:
    """How long a fit takes that reads so many bytes, where the bandwidth of its workers is known.

    Parameters go from worker to worker, so that twice as many have them after each step; sums meet in a tree, of which
    each node gets three.  Workers read while they compute.
    """
    if machine.bandwidth is None:
        return None
    one, all_workers = machine.bandwidth, machine.bandwidth * machine.workers
    steps = math.ceil(math.log2(machine.workers))
    moving = cost.passes * (1.5 * steps * cost.moved / one + cost.neighbour_bytes / all_workers) + cost.gathered / one
    reading, computing = read / all_workers, cost.seconds
    seconds = max(reading, computing) + moving + cost.solving
    hours = machine.workers * seconds / 3600
    return Duration(reading, computing, moving, cost.solving, seconds, hours, machine.price and machine.price * hours)


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


def subspace_bound(problem: Problem, machine: Machine, beside: int = 0) -> int:
    """The widest subspace that a third of the driver's memory holds, and what is left `beside` other needs, between
    four blocks of directions and 600, or those of the expected passes."""
    fresh = fresh_directions(problem)
    limit = machine.driver_memory or 4 * 2**30
    room = int(min(limit / 3, limit - beside) / (1.5 * space_memory(problem, 1)))
    most = max(600, EXPECTED_PASSES * fresh + problem.targets)
    return max(4 * fresh + problem.targets, min(room, most))


def fresh_directions(problem: Problem) -> int:
    """New directions of features in a pass; in the second, as many more as there are targets."""
    return problem.n_components + extra_directions(problem.n_components)


def space_memory(problem: Problem, rank: int) -> int:
    """Bytes of a subspace: of one view its directions, of several with their products for each pattern."""
    rows = problem.features
    if problem.patterns > 1 or problem.targets or problem.views:
        rows += sum(size * spans for size, spans in zip(problem.widths, problem.spans, strict=True))
    return 8 * rows * min(rank, problem.features)


def excess(cost: Cost, machine: Machine) -> str | None:
    """Which limit the memory of a route breaks, in words, or None."""
    if machine.worker_memory and cost.worker_memory > machine.worker_memory:
        return f"{size(cost.worker_memory)} of a worker's {size(machine.worker_memory)}{till_pause(machine.kind)}"
    if machine.driver_memory and cost.driver_memory > machine.driver_memory:
        return f"{size(cost.driver_memory)} of the driver's {size(machine.driver_memory)}"
    return None
