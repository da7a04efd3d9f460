"""An 8 GB store fitted under a hard cap of 1.5 GiB on all processes together."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import subspace_angles

from benchmarks.cluster import WORKERS, fitted, local_cluster
from benchmarks.generate import Factors, power_law, write_dense
from benchmarks.processes import Stopwatch
from benchmarks.stored import path_of, size_on_disk
from benchmarks.table import MIB, grouped, largest, markdown, mebibytes, middle, not_run, ratio
from benchmarks.task import Case, Check, Row, Summary, Task, finished

ROWS, FEATURES, COMPONENTS = 2_000_000, 1024, 20
CAP = 1536 * MIB
WORKER_LIMIT = 560 * MIB
"""Bytes per worker: two workers and the driver fit below the cap."""
NOISE = 0.5
OFFSET = 100.0
"""The mean in units of the spread of a feature, which is about 1."""


def truth() -> Factors:
    """Rows with a mean of 100 spreads: 20 factors and noise that together give each feature a variance of about 1."""
    share = power_law(COMPONENTS, 1.0)
    rng = np.random.default_rng(31)
    mean = OFFSET * (1.0 + 0.1 * rng.standard_normal(FEATURES))
    return Factors(FEATURES, share / share.sum() * FEATURES * (1 - NOISE), noise=NOISE, mean=mean, seed=32)


def prepare(folder: Path, scale: float) -> Row:
    """Draw the store chunk by chunk. Raises OSError where the disk has not twice the room."""
    rows = max(20_000, round(ROWS * scale))
    room, needed = shutil.disk_usage(folder).free, rows * FEATURES * 4
    if room < 2 * needed:
        raise OSError(f"the disk has {room / 1e9:.0f} GB free; the store takes {needed / 1e9:.0f} GB, keep twice that")
    array = write_dense(folder / "data.zarr", truth(), rows, "float32", seed=33)
    return {"shape": [rows, FEATURES], "bytes": int(array.nbytes), "stored_bytes": size_on_disk(path_of(folder))}


def fit(folder: Path, scale: float) -> Row:
    """PPCA on two workers, and how far it is from the truth in units of the statistical error."""
    from dlatent import PPCA

    with local_cluster(WORKERS, WORKER_LIMIT, folder) as client:
        model, row = fitted(PPCA(COMPONENTS), path_of(folder), client=client)
    model_rows, known = model.n_samples_, truth()
    deviation = NOISE * np.sqrt(2.0 / (model_rows * (FEATURES - COMPONENTS)))
    expected = NOISE * (1.0 - (COMPONENTS + 1) / model_rows)  # the maximum-likelihood estimate is biased by this much
    return row | {
        "noise_error": (model.noise_variance_ - NOISE) / NOISE,
        "noise_error_in_deviations": (model.noise_variance_ - expected) / deviation,
        "angle": float(subspace_angles(model.components_.T, known.basis).max()),
        "angle_expected": expected_angle(known, model_rows),
        "mean_error": float(np.abs(model.mean_ - known.mean.astype(np.float32)).max()),
        "mean_error_expected": float(5.0 * np.sqrt(1.2 / model_rows)),
    }


def expected_angle(known: Factors, rows: int) -> float:
    """About the angle by which N rows miss the weakest factor: sqrt((D − K) σ² (λ + σ²) / (N λ²)), λ its variance."""
    weakest = float(known.variances.min())
    return float(np.sqrt((FEATURES - COMPONENTS) * NOISE * (weakest + NOISE) / rows) / weakest)


def load(folder: Path, scale: float) -> Row:
    """Read and decode the store once through the same engine, with a block function that only loads."""
    from dlatent.engine.connect import connect
    from dlatent.stores.open import open as open_source

    source = open_source(path_of(folder))
    with (
        local_cluster(WORKERS, WORKER_LIMIT, folder) as client,
        connect(source, client=client, cache_bytes=0) as engine,
    ):
        with Stopwatch() as watch:
            engine.gather(rows_of, None, name="load")
        read = engine.passes[-1].bytes_read
    return {"fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds, "bytes_read": read, "passes": 1}


def rows_of(block: Any, parameters: None) -> int:
    """A block function that does nothing with the loaded rows."""
    return int(block.rows)


def gram(folder: Path, scale: float) -> Row:
    """The products of one Gram matrix over as many rows, in float32 with float64 sums, on rows already in memory."""
    rows = max(20_000, round(ROWS * scale))
    block = truth().rows(4096, (0, 0), "float32") - np.float32(OFFSET)
    total = np.zeros((FEATURES, FEATURES))
    with Stopwatch() as watch:
        for _ in range(-(-rows // len(block))):
            total += block.T @ block
    return {"fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds}


def tasks(scale: float) -> tuple[Task, ...]:
    """The limits and the fit; all that touch the store run under the cap."""
    module = "benchmarks.cases.beyond_memory"
    return (
        Task("limit-load", f"{module}:load", cap_bytes=CAP, cold=True),
        Task("limit-gram", f"{module}:gram"),
        Task("fit", f"{module}:fit", cap_bytes=CAP, cold=True),
    )


def summarise(rows: list[Row]) -> Summary:
    """Times, memory against plan and cap, and the distance from the truth."""
    done = grouped(finished(rows), lambda row: row["task"])
    load_rows, fits = done.get("limit-load", []), done.get("fit", [])
    lines = []
    for task, own in done.items():
        cap = own[0].get("cap", {})
        seconds, read = middle(own, "fit_seconds"), middle(own, "bytes_read")
        lines.append(
            (
                task, seconds, ratio(own, load_rows), middle(own, "fit_cpu_seconds"), middle(own, "passes"),
                None if not read or not seconds else f"{read / seconds / 1e6:.0f}",
                mebibytes(largest(own, "peak_worker_rss")), mebibytes(largest(own, "peak_driver_rss")),
                mebibytes(largest(own, "peak_tree_pss")), mebibytes(cap.get("limit")),
                mebibytes(cap.get("peak_with_page_cache")), cap.get("oom_kills"),
            )
        )  # fmt: skip
    headers = (
        "task", "s", "× one load", "processor s", "passes", "MB/s", "worker MiB", "driver MiB", "all MiB", "cap MiB",
        "peak with page cache MiB", "kills",
    )  # fmt: skip
    parts = [markdown(headers, lines)]
    if fits:
        truth_lines = [
            (name, fits[-1][name])
            for name in (
                "route", "noise_error", "noise_error_in_deviations", "angle", "angle_expected", "mean_error",
                "mean_error_expected",
            )
        ]  # fmt: skip
        plan = fits[-1]["plan"]
        truth_lines += [
            ("projected peak of a worker, MiB", mebibytes(plan["worker_memory"])),
            ("projected peak of the driver, MiB", mebibytes(plan["driver_memory"])),
        ]
        parts.append(markdown(("the fit", "value"), truth_lines))
    parts += [
        "The kernel counts page cache within the cap and gives it up to make room, so that its peak reaches the cap in "
        "a run that reads more than fits; a kill would mean that the processes themselves needed more.",
        not_run(rows),
    ]
    return Summary("\n\n".join(parts).rstrip(), tuple(_checks(rows, fits)))


def _checks(rows: list[Row], fits: list[Row]) -> list[Check]:
    if not fits:
        return [Check("the fit ran under the hard memory cap", False)]
    capped = all(row.get("cap", {}).get("limit") == CAP and row["cap"]["oom_kills"] == 0 for row in fits)
    planned = all(row["peak_worker_rss"] <= row["plan"]["worker_memory"] for row in fits)
    near = all(
        abs(row["noise_error_in_deviations"]) < 5
        and row["angle"] < 3 * row["angle_expected"]
        and row["mean_error"] < row["mean_error_expected"]
        for row in fits
    )
    return [
        Check("the fit ran under a hard cap of 1.5 GiB on all its processes, and nothing was killed", capped),
        Check("peak memory of the workers is within the plan's projection", planned),
        Check("noise variance, subspace and mean are as near the truth as the number of rows allows", near),
    ]


CASE = Case(
    "beyond-memory",
    "2,000,000 × 1,024 float32 (8 GB), mean of 100 spreads, under 1.5 GiB for all processes",
    "benchmarks.cases.beyond_memory:prepare",
    tasks,
    summarise,
    large=True,
)
