"""The costs of neighbour sums, and of the comparison of strengths of smoothing; for tasks of samples in a graph."""

from __future__ import annotations

from typing import NamedTuple

from dlatent.passes import MET_ENTRIES, Resources
from dlatent.solvers.costs import (
    FILL,
    SPARSE_RATE,
    TASK_SECONDS,
    busy_threads,
    group_number,
    pass_seconds,
    product_rate,
)
from dlatent.solvers.plan import EDGE_BYTES
from dlatent.solvers.task import Between, Task

COMPARED_ITERATIONS = 3
"""Subspace iterations for each strength of smoothing that is compared: with fewer, stronger ones look better."""
COMPARED_STEPS = 10
"""Iterations for each of them where entries are missing: of COIL-20 and of Cora the best ones were those after 40."""
OVERSAMPLING = 10
"""Their directions beyond K."""
COMPARED_NUMBERS = 2**24
"""Numbers of the statistics of a pass that compares several of them."""
SPARSE_EXCHANGE_RATE = 0.07e9
"""Operations of edges × sparse rows."""
EXCHANGE_BYTES = 2**30
"""Bytes that an exchange may hold on a worker whose memory is not known."""
SPARSE_SLACK = 1.25
"""Bytes of sparse rows that travel and are multiplied, over those of their entries (a million documents measured)."""


def between_of(task: Task) -> Between:
    """The graph between the samples, and how they depend on each other."""
    assert task.between is not None
    return task.between


def graph_memory(task: Task, machine: Resources) -> int:
    """The edges that the threads of a worker read and cut at a time."""
    return 3 * EDGE_BYTES * task.edges // group_number(task.data) * machine.threads


def gathered_memory(task: Task) -> int:
    """The rows of samples in a graph of which some have no targets, which come together; 0 for other fits."""
    if len(task.specification.patterns) == 1:
        return 0
    return 8 * task.data.samples * (task.data.features + task.columns + 1)


def completion_memory(task: Task) -> int:
    """Bytes of such samples on the driver: their rows, those that they say of each other and what becomes of them,
    and a factorisation with the fill-in of random edges, the worst (at five edges of each sample 7 bytes times N²,
    measured), up to that of a full matrix."""
    rows, samples = gathered_memory(task), task.data.samples
    return 6 * rows + min(samples * task.edges, 48 * samples**2) if rows else 0


def exchange_memory(task: Task, machine: Resources, columns: int) -> int:
    """Rows that a worker holds: its own and its neighbours' of one stage, its own of another, those being worked on."""
    samples = task.data.samples
    share = -(-samples // machine.workers)
    at_work = 4 * -(-samples // group_number(task.data)) * machine.threads
    return 8 * columns * (max(between_of(task).reach, share) + share + at_work)


def exchange_room(machine: Resources, used: int) -> int:
    """Bytes of a worker's memory that exchanged rows may fill, before anything is cached."""
    if not machine.worker_memory:
        return EXCHANGE_BYTES
    return max(int(FILL * machine.worker_memory) - used, machine.worker_memory // 10)


def exchange_columns(task: Task, machine: Resources, columns: int, room: int) -> int:
    """The columns that an exchange can carry in its room, at least one; all exchanges carry about as many."""
    one = max(exchange_memory(task, machine, 1), 1)
    most = max(1, min(columns, room // one))
    return -(-columns // -(-columns // most))


def column_block_count(task: Task, machine: Resources, room: int) -> tuple[int, int]:
    """In how many parts the features of samples in a graph must meet to fit in the room, and what one part takes.

    A row that has met its neighbours has as many entries as all of them together, up to all features; of sparse rows
    the last hop is made for a few at a time.
    """
    every, last = features_memory(task, machine)
    column_blocks = max(1, min(-(-every // max(room - last, room // 2, 1)), task.data.features))
    return column_blocks, every // column_blocks + last


def features_memory(task: Task, machine: Resources) -> tuple[int, int]:
    """Bytes of the rows that meet their neighbours, and where they are sparse of the last hop beside them.

    In that hop those that a few rows meet are brought together; in the hops before a thread brings together all that
    its group meets.
    """
    if task.data.nnz is None:
        return exchange_memory(task, machine, task.data.features), 0
    between = between_of(task)
    reach = max(between.reach / task.data.samples, 1 / machine.workers)
    entries = (reach + 1 / machine.workers) * _travelling(task, between.hops)
    entries += machine.threads * reach * _travelling(task, between.hops - 1) if between.hops > 1 else 0.0
    every, last = (int(SPARSE_SLACK * 12 * n) for n in (entries, 4 * MET_ENTRIES * machine.threads))
    return every, last


def features_bytes(task: Task) -> int:
    """Bytes of the rows themselves that travel between workers in their hops."""
    data, between = task.data, between_of(task)
    if data.nnz is None:
        return 8 * between.travelling * data.features * between.hops
    return int(12 * _all_hops(task) * between.travelling / data.samples)


def _all_hops(task: Task) -> float:
    """Entries of sparse rows before their hops together."""
    return sum(_travelling(task, hop) for hop in range(1, between_of(task).hops + 1))


def _travelling(task: Task, hop: int) -> float:
    """Entries of sparse rows before a hop, the first of which is 1."""
    data = task.data
    before = (1.0 + task.edges / data.samples) ** (hop - 1)
    return min(data.entries * before, data.samples * data.features)


def features_seconds(task: Task, machine: Resources) -> float:
    """Seconds of hops of the features themselves, without reading, as for the total variance of samples in a graph."""
    if task.data.nnz is None:
        return graph_seconds(task, machine, task.data.features, between_of(task).hops)
    flops = 2.0 * task.edges / task.data.samples * _all_hops(task)
    return flops / SPARSE_EXCHANGE_RATE / busy_threads(task.data, machine)


def graph_seconds(task: Task, machine: Resources, columns: int, hops: int) -> float:
    """Seconds that exchanges add to a pass: sparse products with the graph, and a task for each group and hop."""
    threads = busy_threads(task.data, machine)
    return hops * (2.0 * task.edges * columns / SPARSE_RATE / threads + TASK_SECONDS * task.data.tasks)


class Comparing(NamedTuple):
    """The work of comparing strengths of smoothing: how often some are compared together, passes, readings of the
    rows, to be exchanged and to be multiplied by what came, and of the edges, in each hop and for the degrees."""

    rounds: int
    passes: int
    reads: int
    edge_reads: int


def compared_width(task: Task) -> int:
    """Columns of one strength of smoothing: directions, or later scores, and one of ones."""
    return min(task.specification.n_components + OVERSAMPLING, task.data.features) + 1


def compared_columns(task: Task) -> int:
    """Columns for the strengths of smoothing that are compared in one pass, at least two; 0 where none are."""
    each = compared_width(task)
    return each * min(between_of(task).candidates, max(2, COMPARED_NUMBERS // (each * task.data.features)))


def compared_together(task: Task, columns_at_once: int) -> int:
    """Strengths of smoothing, beside that of 0, which sends nothing, that share their passes."""
    return max(1, min(columns_at_once, compared_columns(task)) // compared_width(task) - 1)


def comparing(task: Task, columns_at_once: int) -> Comparing:
    """One pass for the mean, and in each round some for f², and two for f; nothing where no strengths are compared."""
    others = max(between_of(task).candidates - 1, 0)
    rounds = -(-others // compared_together(task, columns_at_once)) if others else 0
    passes = 1 + rounds * (COMPARED_ITERATIONS + 2) if rounds else 0
    hops = 2 * (COMPARED_ITERATIONS + 1) * between_of(task).hops
    return Comparing(rounds, passes, max(2 * passes - 1, 0), rounds * (hops + COMPARED_ITERATIONS + 2))


def compared_seconds(task: Task, machine: Resources, rounds: int, reads: int) -> float:
    """Seconds of the passes that compare strengths of smoothing."""
    if not rounds:
        return 0.0
    data, between = task.data, between_of(task)
    columns = between.candidates * (min(task.specification.n_components + OVERSAMPLING, data.features) + 1)
    rate = product_rate(data)
    seconds = reads * pass_seconds(data, machine, 0.0, rate)
    seconds += (COMPARED_ITERATIONS + 2) * (4.0 * columns * data.entries) / rate / busy_threads(data, machine)
    half = graph_seconds(task, machine, -(-columns // rounds), between.hops)
    return seconds + rounds * 2 * (COMPARED_ITERATIONS + 1) * half
