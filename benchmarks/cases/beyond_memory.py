"""Stores larger than memory, fitted under a hard cap on all processes together.

beyond-memory is 8 GB under 1.5 GiB, with many features; big is 16 GB under 2 GiB, where reading takes a like share of
the time as the Gram matrix.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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

COMPONENTS = 20
NOISE = 0.5
OFFSET = 100.0
"""The mean in units of the spread of a feature, which is about 1."""
CHUNK_ROWS = 2048
"""Rows of one product in float32, which are added in float64."""


@dataclass(frozen=True)
class Size:
    """Rows and features, the hard cap on all processes together, and the limit of a worker: two workers and the driver
    fit below the cap."""

    rows: int
    features: int
    cap: int
    worker_limit: int
    seed: int

    def scaled(self, scale: float) -> int:
        """The number of rows at a scale."""
        return max(20_000, round(self.rows * scale))


SIZES = {
    "beyond-memory": Size(2_000_000, 1024, 1536 * MIB, 560 * MIB, 31),
    "big": Size(8_000_000, 512, 2048 * MIB, 800 * MIB, 41),
}


def truth(size: str = "beyond-memory") -> Factors:
    """Rows with a mean of 100 spreads: 20 factors and noise that together give each feature a variance of about 1."""
    features, seed = SIZES[size].features, SIZES[size].seed
    share = power_law(COMPONENTS, 1.0)
    rng = np.random.default_rng(seed)
    mean = OFFSET * (1.0 + 0.1 * rng.standard_normal(features))
    return Factors(features, share / share.sum() * features * (1 - NOISE), noise=NOISE, mean=mean, seed=seed + 1)


def prepare(folder: Path, scale: float, size: str) -> Row:
    """Draw the store chunk by chunk. Raises OSError where the disk has not twice the room."""
    rows, features = SIZES[size].scaled(scale), SIZES[size].features
    room, needed = shutil.disk_usage(folder).free, rows * features * 4
    if room < 2 * needed:
        raise OSError(f"the disk has {room / 1e9:.0f} GB free; the store takes {needed / 1e9:.0f} GB, keep twice that")
    array = write_dense(folder / "data.zarr", truth(size), rows, "float32", seed=SIZES[size].seed + 2)
    return {"shape": [rows, features], "bytes": int(array.nbytes), "stored_bytes": size_on_disk(path_of(folder))}


def prepare_beyond_memory(folder: Path, scale: float) -> Row:
    """2,000,000 × 1,024 float32: 8 GB."""
    return prepare(folder, scale, "beyond-memory")


def prepare_big(folder: Path, scale: float) -> Row:
    """8,000,000 × 512 float32: 16 GB."""
    return prepare(folder, scale, "big")


def fit(folder: Path, scale: float, size: str) -> Row:
    """PPCA on two workers, and how far it is from the truth in units of the statistical error."""
    from dlatent import PPCA

    with local_cluster(WORKERS, SIZES[size].worker_limit, folder) as client:
        model, row = fitted(PPCA(COMPONENTS), path_of(folder), client=client)
    model_rows, known = model.n_samples_, truth(size)
    deviation = NOISE * np.sqrt(2.0 / (model_rows * (len(known.mean) - COMPONENTS)))
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
    return float(np.sqrt((len(known.mean) - COMPONENTS) * NOISE * (weakest + NOISE) / rows) / weakest)


def load(folder: Path, scale: float, size: str) -> Row:
    """Read and decode the store once through the same engine, with a block function that only loads."""
    return _one_pass(folder, size, rows_of)


def load_gram(folder: Path, scale: float, size: str) -> Row:
    """The same with one Gram matrix of the rows, in float32 over 2,048 rows at a time, added in float64."""
    return _one_pass(folder, size, gram_of)


def _one_pass(folder: Path, size: str, function: Callable[[Any, None], Any]) -> Row:
    from dlatent import open_data
    from dlatent.engine.connect import connect
    from dlatent.passes import Pass

    source = open_data(path_of(folder))
    with (
        local_cluster(WORKERS, SIZES[size].worker_limit, folder) as client,
        connect(source, client=client, cache_bytes=0) as engine,
    ):
        with Stopwatch() as watch:
            engine.run(Pass(function, None, name="load"))
        read = engine.passes[-1].bytes_read
    return {"fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds, "bytes_read": read, "passes": 1}


def rows_of(block: Any, parameters: None) -> int:
    """A block function that does nothing with the loaded rows."""
    return int(block.rows)


def gram_of(block: Any, parameters: None) -> Any:
    """A block function that multiplies the rows with themselves, about a point near their mean, and does no more."""
    x = block.features
    total = np.zeros((x.shape[1], x.shape[1]))
    for start in range(0, len(x), CHUNK_ROWS):
        chunk = x[start : start + CHUNK_ROWS] - np.float32(OFFSET)
        total += chunk.T @ chunk
    return total


def tasks(scale: float, size: str) -> tuple[Task, ...]:
    """The limits and the fit, all under the cap and from the disk."""
    module, cap = "benchmarks.cases.beyond_memory", SIZES[size].cap
    functions = {"limit-load": "load", "limit-load-gram": "load_gram", "fit": "fit"}
    return tuple(
        Task(name, f"{module}:{function}", {"size": size}, cap_bytes=cap, cold=True, timeout=7200.0)
        for name, function in functions.items()
    )


def summarise(rows: list[Row], size: str) -> Summary:
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
                "solver", "noise_error", "noise_error_in_deviations", "angle", "angle_expected", "mean_error",
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
    return Summary("\n\n".join(parts).rstrip(), tuple(_checks(done, SIZES[size].cap)))


def _checks(done: dict[str, list[Row]], cap: int) -> list[Check]:
    fits = done.get("fit", [])
    if not fits:
        return [Check("the fit ran under the hard memory cap", False)]
    capped = all(row.get("cap", {}).get("limit") == cap and row["cap"]["oom_kills"] == 0 for row in fits)
    planned = all(row["peak_worker_rss"] <= row["plan"]["worker_memory"] for row in fits)
    near = all(
        abs(row["noise_error_in_deviations"]) < 5
        and row["angle"] < 3 * row["angle_expected"]
        and row["mean_error"] < row["mean_error_expected"]
        for row in fits
    )
    under = f"a hard cap of {cap / 2**30:g} GiB on all its processes"
    checks = [
        Check(f"the fit ran under {under}, and nothing was killed", capped),
        Check("peak memory of the workers is within the plan's projection", planned),
        Check("noise variance, subspace and mean are as near the truth as the number of rows allows", near),
    ]
    cost = ratio(fits, done.get("limit-load-gram", []))
    if cost is not None:
        checks.append(Check(f"at most 1.3× one reading and decoding with one Gram matrix ({cost:.2f}×)", cost <= 1.3))
    return checks


def _case(size: str, title: str) -> Case:
    return Case(
        size,
        title,
        f"benchmarks.cases.beyond_memory:prepare_{size.replace('-', '_')}",
        partial(tasks, size=size),
        partial(summarise, size=size),
        large=True,
    )


CASE = _case("beyond-memory", "2,000,000 × 1,024 float32 (8 GB), mean of 100 spreads, under 1.5 GiB for all processes")
BIG = _case("big", "8,000,000 × 512 float32 (16 GB), mean of 100 spreads, under 2 GiB for all processes")
