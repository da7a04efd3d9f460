"""What a pass costs beside the arithmetic: milliseconds per pass over many small blocks.

Run `python -m benchmarks.overhead`. Each block has 10 rows of 20 float32 columns, so that nearly all of the time is the
engine's own; the blocks are in the cache after the first pass. Goals on a quiet machine: 256 blocks in under 500 ms,
4096 blocks in at most 500 ms, and at most 2 ms a task beside the time inside the tasks.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

from dlatent.arrays import Array, Block, DataSource, Features
from dlatent.engine.connect import connect

ROWS, COLUMNS = 10, 20
BLOCKS = (16, 64, 256, 4096)


@dataclass(frozen=True)
class DrawnRows:
    """Rows that are drawn when they are loaded."""

    start: int
    stop: int
    nbytes: int = ROWS * COLUMNS * 4
    collection: tuple[Any, ...] | None = None

    def load(self) -> Features:
        random = np.random.default_rng(self.start)
        return random.normal(size=(self.stop - self.start, COLUMNS)).astype(np.float32)

    def assemble(self, parts: Sequence[Any]) -> Features:
        (part,) = parts
        return part


def product(block: Block, weights: Array) -> tuple[Array, float]:
    return block.features.T @ (block.features @ weights), float(block.rows)


def measure(client: Client | None, blocks: int, passes: int) -> tuple[float, float, float, int]:
    """Milliseconds of the first pass, of a later one, and beside its tasks (medians), and the tasks of a pass."""
    rows = tuple(DrawnRows(index * ROWS, (index + 1) * ROWS) for index in range(blocks))
    source = DataSource((blocks * ROWS, COLUMNS), np.dtype(np.float32), rows, ("overhead", blocks, client is None))
    weights = np.ones((COLUMNS, 3))
    with connect(source, client=client) as engine:
        for _ in range(passes + 1):
            engine.gather(product, weights)
        first, *later = engine.passes
        threads = engine.resources.total_threads
    beside = median(record.seconds - record.busy_seconds / threads for record in later)
    return 1e3 * first.seconds, 1e3 * median(record.seconds for record in later), 1e3 * beside, later[-1].tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passes", type=int, default=20, help="passes measured after the first")
    passes = parser.parse_args().passes
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}")
    print(f"{'engine':24}{'blocks':>8}{'tasks':>8}{'first, ms':>12}{'median, ms':>12}{'ms a task':>12}")
    report("local threads", None, passes)
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster, set_as_default=False) as client:
        report("cluster, 2 processes", client, passes)


def report(name: str, client: Client | None, passes: int) -> None:
    for blocks in BLOCKS:
        first, later, beside, tasks = measure(client, blocks, passes)
        print(f"{name:24}{blocks:8}{tasks:8}{first:12.1f}{later:12.1f}{beside / tasks:12.2f}", flush=True)


if __name__ == "__main__":
    main()
