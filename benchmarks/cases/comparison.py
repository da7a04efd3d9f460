"""tall, wide and text: dlatent beside its peers and the limits of the machine."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.generate import Factors, power_law, write_dense, zipf_counts
from benchmarks.pictures import bars
from benchmarks.quality import write_exact
from benchmarks.stored import path_of, size_on_disk
from benchmarks.table import grouped, largest, markdown, mebibytes, middle, not_run, ratio
from benchmarks.task import Case, Check, Row, Summary, Task, finished

COMPONENTS = 20
SKLEARN = "benchmarks.methods.of_sklearn"


def _sized(rows: int, scale: float) -> int:
    return max(500, round(rows * scale))


def _dense(folder: Path, rows: int, features: int) -> Row:
    rng = np.random.default_rng(11)
    model = Factors(features, power_law(100, 100.0), noise=1.0, mean=3.0 * rng.standard_normal(features), seed=12)
    array = write_dense(folder / "data.zarr", model, rows, "float64", seed=13)
    return {
        "shape": [rows, features],
        "bytes": int(array.nbytes),
        "stored_bytes": size_on_disk(path_of(folder)),
    } | write_exact(folder, COMPONENTS)


def prepare_tall(folder: Path, scale: float) -> Row:
    """200,000 × 512 float64: 100 factors of variance 100/j, unit noise, a mean."""
    return _dense(folder, _sized(200_000, scale), 512)


def prepare_wide(folder: Path, scale: float) -> Row:
    """20,000 × 5,000 float64 of the same kind."""
    return _dense(folder, _sized(20_000, scale), max(300, round(5_000 * scale**0.5)))


def prepare_text(folder: Path, scale: float) -> Row:
    """20,000 × 25,000 sparse: Zipf's law and 50 topics, tf-idf, rows of length one."""
    import scipy.sparse as sp

    from dlatent.stores.ingest.run import ingest

    counts = zipf_counts(_sized(20_000, scale), max(2_000, round(25_000 * scale**0.5)), topics=50, tokens=130, seed=14)
    source = folder / "counts.npz"
    sp.save_npz(source, counts)
    report = ingest(source, path_of(folder), weighting="tfidf", unit_norm=True, overwrite=True)
    source.unlink()
    return {
        "shape": list(report.shape),
        "nonzeros": report.nnz,
        "stored_bytes": report.bytes_written,
    } | write_exact(folder, COMPONENTS)


def _peer(name: str, function: str, **arguments: Any) -> Task:
    return Task(name, f"{SKLEARN}:{function}", {"n_components": COMPONENTS, **arguments}, requires=("sklearn",))


def _own() -> tuple[Task, ...]:
    function = "benchmarks.methods.of_dlatent:ppca"
    return (
        Task("dlatent", function, {"n_components": COMPONENTS}),
        Task("dlatent-threads", function, {"n_components": COMPONENTS, "workers": 0}),
    )


def dense_tasks(scale: float, *, incremental: bool) -> tuple[Task, ...]:
    """Limits, dlatent, and scikit-learn's solvers."""
    limits = (
        Task("limit-decode", "benchmarks.methods.limits:decode"),
        Task("limit-gram", "benchmarks.methods.limits:gram"),
    )
    solvers = ("covariance_eigh", "randomized", "arpack")
    peers = tuple(_peer(f"sklearn-{solver}", "pca", solver=solver) for solver in solvers)
    return limits + _own() + peers + ((_peer("sklearn-incremental", "incremental_pca"),) if incremental else ())


def text_tasks(scale: float) -> tuple[Task, ...]:
    """Limits, dlatent, and what scikit-learn offers for sparse data."""
    limits = (
        Task("limit-decode", "benchmarks.methods.limits:decode"),
        Task("limit-sparse-pass", "benchmarks.methods.limits:sparse_pass", {"columns": COMPONENTS}),
    )
    peers = (_peer("sklearn-arpack", "pca", solver="arpack"), _peer("sklearn-truncated-svd", "truncated_svd"))
    return limits + _own() + peers


def summarise(rows: list[Row], reference: tuple[str, ...]) -> Summary:
    """One line per task: medians, ratio to the limit of the same run, peaks, quality."""
    done = grouped(finished(rows), lambda row: row["task"])
    floor = _floor(finished(rows), reference)
    lines = []
    for task, own in done.items():
        quality = [row["quality"] for row in own if "quality" in row]
        lines.append(
            (
                task,
                middle(own, "fit_seconds"),
                ratio(own, floor),
                middle(own, "fit_cpu_seconds"),
                middle(own, "wall_seconds"),
                mebibytes(largest(own, "peak_tree_pss")),
                mebibytes(largest(own, "peak_worker_rss")) if own[0].get("peak_worker_rss") else None,
                middle(own, "passes"),
                mebibytes(middle(own, "bytes_read")),
                _digits(middle(quality, "captured")),
                middle(quality, "gap"),
            )
        )
    headers = (
        "method", "fit s", "× limit", "processor s", "wall s", "peak MiB (tree)", "peak MiB (worker)", "passes",
        "MiB read", "captured variance", "gap of log-likelihood",
    )  # fmt: skip
    text = (
        markdown(headers, lines) + f"\n\nLimit: {' + '.join(reference)}, medians of the same run.\n\n" + not_run(rows)
    )
    return Summary(text.rstrip(), tuple(_checks(done)))


def _digits(value: float | None) -> str | None:
    return None if value is None else f"{value:.8f}"


def _floor(rows: list[Row], names: tuple[str, ...]) -> list[Row]:
    """The limits of each run, added up, as rows."""
    floors = []
    for run, own in grouped(rows, lambda row: row["run"]).items():
        parts = [middle([row for row in own if row["task"] == name], "fit_seconds") for name in names]
        if all(part is not None for part in parts):
            floors.append({"run": run, "fit_seconds": sum(part for part in parts if part is not None)})
    return floors


def _checks(done: dict[str, list[Row]]) -> list[Check]:
    own = [row for name in ("dlatent", "dlatent-threads") for row in done.get(name, [])]
    if not own:
        return []
    worst = max(row["quality"]["missing"] for row in own)
    within = all(row["peak_worker_rss"] <= row["plan"]["worker_memory"] for row in done.get("dlatent", []))
    return [
        Check(f"captured variance of dlatent is exact to 1e-6 (missing: {worst:.1e})", worst < 1e-6),
        Check("peak memory of the workers is within the plan's projection", within),
    ]


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """Bars of fit times and of peak memory."""
    done = grouped(finished(rows), lambda row: row["task"])
    name = rows[0]["case"]
    seconds = {task: middle(own, "fit_seconds") or 0.0 for task, own in done.items()}
    memory = {task: (largest(own, "peak_tree_pss") or 0.0) / 2**20 for task, own in done.items()}
    return [
        bars(seconds, folder / f"{name}-seconds.png", f"{name}: seconds of a fit (median)", "seconds"),
        bars(memory, folder / f"{name}-memory.png", f"{name}: peak memory of all processes", "MiB"),
    ]


def _case(name: str, title: str, prepare: str, tasks: Any, reference: tuple[str, ...]) -> Case:
    return Case(
        name,
        title,
        f"benchmarks.cases.comparison:{prepare}",
        tasks,
        partial(summarise, reference=reference),
        judge="benchmarks.quality:judge",
        draw=draw,
    )


TALL = _case(
    "tall", "dense 200,000 × 512 float64, K = 20", "prepare_tall", partial(dense_tasks, incremental=True),
    ("limit-decode", "limit-gram"),
)  # fmt: skip
WIDE = _case(
    "wide", "dense 20,000 × 5,000 float64, K = 20", "prepare_wide", partial(dense_tasks, incremental=False),
    ("limit-decode", "limit-gram"),
)  # fmt: skip
TEXT = _case(
    "text", "sparse 20,000 × 25,000 (Zipf), K = 20", "prepare_text", text_tasks, ("limit-decode", "limit-sparse-pass")
)
