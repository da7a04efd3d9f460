"""A cluster of worker processes for a task, and one fit on it, measured."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import numpy as np
from distributed import Client, LocalCluster

from benchmarks.processes import Stopwatch
from benchmarks.stored import tiny_store

WORKERS = 2


@contextmanager
def local_cluster(
    workers: int = WORKERS, memory_limit: str | int = "4GiB", place: Path | None = None
) -> Iterator[Client]:
    """Worker processes of one thread each, as dlatent wants them, and their client, after a tiny fit of dlatent."""
    from dlatent.engine.machine import recommended

    with dask.config.set(recommended()), bare_cluster(workers, memory_limit, place) as client:
        warm_up(client)
        yield client


@contextmanager
def bare_cluster(
    workers: int = WORKERS, memory_limit: str | int = "4GiB", place: Path | None = None
) -> Iterator[Client]:
    """Worker processes of one thread each, and their client; no dashboard, and nothing of dlatent."""
    with (
        tempfile.TemporaryDirectory(dir=place, prefix="workers-") as scratch,
        dask.config.set({"distributed.worker.daemon": True}),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            memory_limit=memory_limit,
            dashboard_address=None,
            local_directory=scratch,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(workers)
        yield client


def warm_up(client: Client | None = None) -> None:
    """Fit a tiny store by each route, so that imports on the driver and on every worker are behind us."""
    from dlatent import PPCA

    with tempfile.TemporaryDirectory(prefix="dlatent-warm-") as place:
        path = tiny_store(Path(place))
        for solver in ("covariance", "krylov"):
            for tolerance in (1e-3, 1e-4):  # two fits, so that each of two workers has had tasks
                PPCA(2, solver=solver, tol=tolerance).fit(path, client=client)


def cores() -> list[int]:
    """The cores that this thread may run on (Linux)."""
    return sorted(os.sched_getaffinity(0))


def keep_to(chosen: Iterable[int]) -> None:
    """Hold all threads of this process, and those that they will start, to these cores (Linux)."""
    allowed = list(chosen)
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), allowed)


def fitted(
    model: Any, data: Any, targets: Any = None, client: Client | None = None, **inputs: Any
) -> tuple[Any, dict[str, Any]]:
    """Fit a model of dlatent, with further inputs such as edges; the model, and what the fit cost and reached."""
    plan = model.plan(data, targets, client=client, **inputs)
    with Stopwatch() as watch:
        model.fit(data, targets, client=client, **inputs)
    history, passes = model.history_, model.history_
    return model, {
        "fit_seconds": watch.seconds,
        "fit_cpu_seconds": watch.cpu_seconds,
        "solver": plan.solver,
        "passes": int(model.n_passes_),
        "bytes_read": int(passes["pass_bytes_read"].sum()),
        "tasks": int(passes["pass_tasks"].sum()),
        "pass_seconds": [round(float(s), 5) for s in passes["pass_seconds"].values],
        "pass_busy_seconds": [round(float(s), 5) for s in passes["pass_busy_seconds"].values],
        "pass_names": [str(name) for name in passes["pass_name"].values],
        "log_likelihood": float(model.log_likelihood_),
        "trace": [float(v) for v in history["iteration_log_likelihood"].values],
        "converged": bool(model.converged_),
        "at_floor": [bool(low) for low in model.at_floor_],
        "noise_variance": np.asarray(model.noise_variance_).tolist(),
        "plan": {
            "solver": plan.solver,
            "passes": plan.passes,
            "tasks_per_pass": plan.tasks_per_pass,
            "bytes_total": plan.bytes_total,
            "worker_memory": plan.worker_memory,
            "driver_memory": plan.driver_memory,
            "cached": plan.cached,
        },
    }
