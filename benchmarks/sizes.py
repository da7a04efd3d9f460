"""How passes, memory and time grow with the data, as the planner projects them: the table of docs/howto/sizing.md.

python -m benchmarks.sizes
"""

from __future__ import annotations

from dlatent.engine.executor import Workers
from dlatent.gaussian.specification import Specification, View
from dlatent.order import group_count, task_count
from dlatent.solvers.plan import Plan, clock, size
from dlatent.solvers.planner import make_plan
from dlatent.solvers.task import DataSize, Task

BLOCK = 32 * 2**20
COMPONENTS = 50
ENTRIES = 100
"""Entries of a sparse row."""
DENSE = [(10**6, 10**3, 10), (10**8, 10**3, 100), (10**9, 10**3, 1000)]
DENSE += [(10**6, 10**4, 10), (10**8, 10**4, 1000), (10**7, 10**5, 1000), (10**6, 10**6, 1000)]
SPARSE = [(10**6, 10**5, 10), (10**8, 10**5, 100), (10**8, 10**6, 100), (10**9, 10**6, 1000)]


def plan(samples: int, features: int, workers: int, *, sparse: bool) -> Plan:
    """PPCA of float32 numbers on workers of one thread, 16 GiB and a gigabit each."""
    nnz = samples * ENTRIES if sparse else None
    nbytes = 4 * samples * features if nnz is None else 8 * nnz + 8 * samples
    blocks = max(1, nbytes // BLOCK)
    tasks = task_count(group_count([BLOCK] * blocks))
    data = DataSize(samples, features, nbytes, BLOCK, blocks, tasks, 4, nnz, "sizes")
    specification = Specification((View("features", features),), ((0,),), COMPONENTS)
    machine = Workers(workers, "16GiB", driver_memory="64GiB", bandwidth="125MB")
    return make_plan(Task(data=data, specification=specification), machine.resources())


def table() -> str:
    """A line for each size."""
    lines = [
        "| data | bytes | workers | passes | a worker | the driver | time | limit |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for sparse, cases in ((False, DENSE), (True, SPARSE)):
        for samples, features, workers in cases:
            made = plan(samples, features, workers, sparse=sparse)
            time = made.duration
            assert time is not None
            part = getattr(time, time.bottleneck) / (time.computing + time.moving)
            cells = [
                f"{_power(samples)} × {_power(features)} {'sparse' if sparse else 'dense'}",
                size(made.bytes_per_pass),
                f"{workers:,}",
                f"{made.passes}",
                size(made.worker_memory),
                size(made.driver_memory),
                clock(time.seconds),
                f"{time.bottleneck}, {100 * part:.0f} %",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _power(number: int) -> str:
    return f"10{str(len(str(number)) - 1).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


if __name__ == "__main__":
    print(table())
