"""A kernel of 20,000 × 20,000 (3.2 GB) fitted under a hard cap of 1.5 GiB on all processes together."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cluster import WORKERS, fitted, local_cluster
from benchmarks.generate import codec
from benchmarks.processes import Stopwatch
from benchmarks.stored import path_of
from benchmarks.table import MIB, grouped, largest, markdown, mebibytes, middle, not_run, ratio
from benchmarks.task import Case, Check, Row, Summary, Task, finished

ROWS, FEATURES, COMPONENTS, CLASSES = 20_000, 50, 10, 10
PER_CLASS = 5
CAP = 1536 * MIB
WORKER_LIMIT = 500 * MIB
"""Bytes per worker: two workers and the driver fit below the cap."""
GAMMA = 0.02
LANDMARKS = 500
KERNEL = "kernel.zarr"
VARIANTS: dict[str, dict[str, Any]] = {
    "recomputed": {"solver": "recomputed"},
    "stored": {"solver": "stored"},
    "stored-float32": {"solver": "stored", "kernel_dtype": "float32"},
    "landmarks": {"landmarks": LANDMARKS},
}


def rows_and_classes(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Classes on closed curves of their own in 50 dimensions, with noise: what a kernel is for."""
    rng = np.random.default_rng(7)
    classes = rng.integers(0, CLASSES, count)
    angle = rng.uniform(0.0, 2.0 * np.pi, count)
    centres = 1.5 * rng.standard_normal((CLASSES, FEATURES))
    planes = rng.standard_normal((CLASSES, 2, FEATURES)) / np.sqrt(FEATURES) * 4.0
    circle = np.cos(angle)[:, None] * planes[classes, 0] + np.sin(angle)[:, None] * planes[classes, 1]
    return centres[classes] + circle + 0.5 * rng.standard_normal((count, FEATURES)), classes


def prepare(folder: Path, scale: float) -> Row:
    """Write the rows. Raises OSError where the disk has not twice the room that the kernel takes."""
    import zarr

    count = max(1000, round(ROWS * scale))
    room, needed = shutil.disk_usage(folder).free, 4 * count**2
    if room < 2 * needed:
        raise OSError(f"the disk has {room / 1e9:.0f} GB free; the kernel takes {needed / 1e9:.0f} GB, keep twice that")
    rows, classes = rows_and_classes(count)
    array = zarr.create_array(
        path_of(folder), shape=rows.shape, chunks=(500, FEATURES), dtype="float64", compressors=codec()
    )
    array[:] = rows
    np.save(folder / "classes.npy", classes)
    return {"shape": list(rows.shape), "kernel_bytes": 8 * count**2}


def labels_of(folder: Path) -> np.ndarray:
    """The classes of five random rows of each, −1 for the others."""
    classes = np.load(folder / "classes.npy")
    rng, labels = np.random.default_rng(0), np.full(len(classes), -1)
    for one in range(CLASSES):
        chosen = rng.permutation(np.flatnonzero(classes == one))[:PER_CLASS]
        labels[chosen] = one
    return labels


def fit(folder: Path, scale: float, model: str, variant: str) -> Row:
    """A fit on two workers."""
    from dlatent import KernelPPCA, KernelSupervisedPPCA

    kind, labels = (KernelPPCA, None) if model == "kernel-ppca" else (KernelSupervisedPPCA, labels_of(folder))
    options: dict[str, Any] = {"kernel_store": folder / KERNEL} | VARIANTS[variant]
    with local_cluster(WORKERS, WORKER_LIMIT, folder) as client:
        found, row = fitted(kind(COMPONENTS, gamma=GAMMA, **options), path_of(folder), labels, client)
        if labels is not None:
            classes = np.load(folder / "classes.npy")
            hidden = labels < 0
            predicted = np.asarray(found.predict(path_of(folder), client=client))
            row["accuracy"] = float((predicted == classes)[hidden].mean())
    return row | {"trace_error": float(found.trace_error_), "left_behind": (folder / KERNEL).exists()}


def compute(folder: Path, scale: float) -> Row:
    """K once through the same engine, times one column."""
    from dlatent import open_data
    from dlatent.engine.connect import connect
    from dlatent.gaussian.kernel import KernelRequest, meet_product
    from dlatent.operators.kernels import Kernel
    from dlatent.passes import pair_pass

    source = open_data(path_of(folder))
    request = KernelRequest(Kernel("rbf", GAMMA), np.ones((source.shape[0], 1)), False)
    with local_cluster(WORKERS, WORKER_LIMIT, folder) as client, connect(source, client=client) as engine:
        with Stopwatch() as watch:
            engine.run(pair_pass(meet_product, request, mutual=True, name="kernel"))
        read = engine.passes[-1].bytes_read
    return {"fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds, "bytes_read": read, "passes": 1}


def read(folder: Path, scale: float) -> Row:
    """Keep the upper triangle, and read it once through the same engine, with a block function that only loads."""
    import operator

    from dlatent import open_data
    from dlatent.engine.connect import connect
    from dlatent.gaussian.kernel import WriteRequest, meet_write
    from dlatent.operators.kernels import Kernel
    from dlatent.passes import Pass, pair_pass
    from dlatent.stores.sinks import TileSink, open_tiles

    source = open_data(path_of(folder))
    bounds = (*(block.start for block in source.blocks), source.shape[0])
    sink = TileSink.create(folder / "limit.zarr", bounds, dtype="float64")
    try:
        with local_cluster(WORKERS, WORKER_LIMIT, folder) as client:
            with connect(source, client=client) as engine, Stopwatch() as writing:
                engine.run(
                    pair_pass(meet_write, WriteRequest(Kernel("rbf", GAMMA), sink), combine=operator.add, name="kernel")
                )
            with connect(open_tiles(sink.location), client=client, cache_bytes=0) as engine:
                with Stopwatch() as watch:
                    engine.run(Pass(rows_of, None, name="load"))
                loaded = engine.passes[-1].bytes_read
    finally:
        sink.abort()
    return {
        "fit_seconds": watch.seconds,
        "fit_cpu_seconds": watch.cpu_seconds,
        "bytes_read": loaded,
        "passes": 1,
        "write_seconds": writing.seconds,
    }


def rows_of(block: Any, parameters: None) -> int:
    """A block function that does nothing with the loaded rows."""
    return int(block.rows)


def tasks(scale: float) -> tuple[Task, ...]:
    """The limits and the fits, all under the cap."""
    module = "benchmarks.cases.kernel_memory"
    found = [
        Task("limit-compute", f"{module}:compute", cap_bytes=CAP),
        Task("limit-read", f"{module}:read", cap_bytes=CAP),
    ]
    for model in ("kernel-ppca", "kernel-s2ppca"):
        for variant in VARIANTS:
            arguments = {"model": model, "variant": variant}
            found.append(Task(f"{model}/{variant}", f"{module}:fit", arguments, cap_bytes=CAP))
    return tuple(found)


def summarise(rows: list[Row]) -> Summary:
    """Times, passes and memory, against computing K once and reading it once."""
    done = grouped(finished(rows), lambda row: row["task"])
    computing, reading = done.get("limit-compute", []), done.get("limit-read", [])
    lines = []
    for task, own in done.items():
        cap = own[0].get("cap", {})
        lines.append(
            (
                task, middle(own, "fit_seconds"), ratio(own, computing), ratio(own, reading),
                middle(own, "fit_cpu_seconds"), middle(own, "passes"),
                None if middle(own, "bytes_read") is None else f"{(middle(own, 'bytes_read') or 0) / 1e9:.2f}",
                mebibytes(largest(own, "peak_worker_rss")), mebibytes(largest(own, "peak_driver_rss")),
                mebibytes(largest(own, "peak_tree_pss")), mebibytes(cap.get("limit")), cap.get("oom_kills"),
                middle(own, "trace_error") or None, middle(own, "accuracy"), own[0].get("log_likelihood"),
            )
        )  # fmt: skip
    headers = (
        "task", "s", "× computing K once", "× reading K once", "processor s", "passes", "GB read", "worker MiB",
        "driver MiB", "all MiB", "cap MiB", "kills", "trace error", "accuracy", "log-likelihood",
    )  # fmt: skip
    text = markdown(headers, lines)
    return Summary((text + "\n\n" + not_run(rows)).rstrip(), tuple(_checks(done)))


def _checks(done: dict[str, list[Row]]) -> list[Check]:
    fits = [row for task, own in done.items() if "/" in task for row in own]
    if not fits:
        return [Check("the fits ran under the hard memory cap", False)]
    capped = all(row.get("cap", {}).get("limit") == CAP and row["cap"]["oom_kills"] == 0 for row in fits)
    planned = all(row["peak_worker_rss"] <= row["plan"]["worker_memory"] for row in fits)
    tidy = not any(row["left_behind"] for row in fits)
    exact = [row["log_likelihood"] for task, own in done.items() if task == "kernel-ppca/recomputed" for row in own]
    stored = [row["log_likelihood"] for task, own in done.items() if task == "kernel-ppca/stored" for row in own]
    same = all(abs(a - b) <= 1e-8 * abs(a) for a in exact for b in stored)
    return [
        Check("all fits ran under a hard cap of 1.5 GiB on all their processes, and nothing was killed", capped),
        Check("peak memory of the workers is within the plan's projection", planned),
        Check("kernels recomputed and stored give one likelihood, to 1e-8", same),
        Check("no kernel was left behind", tidy),
    ]


CASE = Case(
    "kernel-memory",
    "rbf kernel of 20,000 × 20,000 (3.2 GB) under 1.5 GiB for all processes: recomputed, stored, by landmarks",
    "benchmarks.cases.kernel_memory:prepare",
    tasks,
    summarise,
    large=True,
)
