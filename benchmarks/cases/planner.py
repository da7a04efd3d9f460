"""What the planner chooses over many shapes, and its projections beside measurement for a few real fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import zarr

from benchmarks.cluster import fitted, local_cluster
from benchmarks.generate import CHUNK_BYTES, Factors, power_law, write_dense, zipf_counts
from benchmarks.table import MIB, grouped, largest, markdown, mebibytes, middle, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

GIB = 2**30
WORKERS = 2
SHAPES: tuple[tuple[int, int, float | None], ...] = (
    (10_000, 60, None),
    (200_000, 512, None),
    (2_000_000, 1_024, None),
    (4_000_000, 1_024, None),
    (100_000, 2_000, None),
    (20_000, 5_000, None),
    (20_000, 20_000, None),
    (100_000_000, 100, None),
    (400, 1_024, None),
    (20_000, 25_000, 0.003),
    (800_000, 47_000, 0.0016),
    (2_000_000, 1_000_000, 1e-4),
    (500_000, 300, 0.05),
)
"""Samples, features, and the share of stored entries for sparse data."""
K = (10, 50)
LIMITS = (512 * MIB, 2 * GIB)

FITS: dict[str, tuple[int, int, str]] = {
    "tall": (150_000, 256, "float64"),
    "square": (20_000, 1_500, "float64"),
    "wide": (6_000, 4_000, "float32"),
    "few": (800, 3_000, "float64"),
    "text": (20_000, 20_000, "sparse"),
    "labelled-text": (20_000, 20_000, "sparse"),
    "labelled-tall": (60_000, 200, "float64"),
    "labelled-outputs": (20_000, 20_000, "sparse"),
    "one-chunk": (600_000, 128, "float32"),
}
"""Fits that are run: samples, features, type; `one-chunk` lies in a store of one chunk, larger than its blocks."""
OUTPUTS = 60
"""Targets of `labelled-outputs`; the other targets are five classes."""
NEEDLESS = 2.5
"""A projection of so many times what was taken would refuse fits that have room."""


def prepare(folder: Path, scale: float) -> Row:
    """One store per shape."""
    import scipy.sparse as sp

    from dlatent import ingest

    for name, (rows, features, kind) in FITS.items():
        count = max(500, round(rows * scale))
        if kind == "sparse":
            sp.save_npz(folder / "counts.npz", zipf_counts(count, features, topics=30, tokens=100, seed=41))
            ingest(folder / "counts.npz", folder / f"{name}.zarr", weighting="tfidf", unit_norm=True, overwrite=True)
            (folder / "counts.npz").unlink()
        else:
            model = Factors(features, power_law(30, 30.0), noise=1.0, mean=np.full(features, 2.0), seed=42)
            write_dense(folder / f"{name}.zarr", model, count, kind, 43)
        if name == "one-chunk":
            values = zarr.open_array(folder / f"{name}.zarr", mode="r")[:]
            zarr.create_array(folder / f"{name}.zarr", data=values, chunks=values.shape, overwrite=True)
    return {"shape": {name: list(size) for name, size in FITS.items()}}


def choices(folder: Path, scale: float) -> Row:
    """The plans for all shapes, worker limits and K; the stores have metadata and no values, and none are read."""
    found = []
    for index, (rows, features, density) in enumerate(SHAPES):
        _store_without_values(folder / f"shape-{index}.zarr", rows, features, density)
    for limit in LIMITS:
        with local_cluster(WORKERS, limit) as client:
            for index, (rows, features, density) in enumerate(SHAPES):
                for k in K:
                    asked = {"rows": rows, "features": features, "density": density, "k": k, "limit": limit}
                    found.append(asked | _choice(str(folder / f"shape-{index}.zarr"), k, client))
    return {"choices": found}


def _choice(path: str, k: int, client: Any) -> Row:
    from dlatent import PPCA, PlanError

    try:
        plan = PPCA(k).plan(path, client=client)
    except PlanError as error:
        return {"refused": str(error).replace(path, "the store")}
    names = ("solver", "passes", "bytes_total", "worker_memory", "driver_memory", "reason")
    return {name: getattr(plan, name) for name in names}


def _store_without_values(path: Path, rows: int, features: int, density: float | None) -> None:
    """A store as it would be with values: opening it reads metadata and row pointers only."""
    if density is None:
        step = max(1, CHUNK_BYTES // (8 * features))
        zarr.create_array(
            path, shape=(rows, features), chunks=(min(step, rows), features), dtype="float64", overwrite=True
        )
        return
    group = zarr.create_group(path, overwrite=True)
    pointers = np.linspace(0, round(rows * features * density), rows + 1).astype(np.int64)
    group.create_array("indptr", data=pointers, chunks=(1 << 17,))
    for name, dtype in (("data", "float64"), ("indices", "int32")):
        group.create_array(name, shape=(int(pointers[-1]),), chunks=(1 << 19,), dtype=dtype)
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [rows, features]})


def fit(folder: Path, scale: float, name: str, n_components: int, solver: str) -> Row:
    """One fit on two workers, which keeps its plan beside what it took."""
    from dlatent import PPCA, SupervisedPPCA

    path = str(folder / f"{name}.zarr")
    rows = max(500, round(FITS[name][0] * scale))
    labelled = name.startswith("labelled")
    targets = None
    if labelled:
        targets = np.random.default_rng(44).integers(5, size=rows)
        if name == "labelled-outputs":
            targets = np.eye(OUTPUTS)[np.random.default_rng(44).integers(OUTPUTS, size=rows)]
        missing = np.nan if targets.ndim == 2 else -1
        targets[np.random.default_rng(45).permutation(rows)[rows // 10 :]] = missing
    kind: Any = SupervisedPPCA if labelled else PPCA
    with local_cluster(WORKERS, 2 * GIB) as client:
        model = kind(n_components, solver=solver, zero_rows="keep")
        _, row = fitted(model, path, targets, client)
    return row


def tasks(scale: float) -> tuple[Task, ...]:
    """The table of choices, and the fits."""
    module = "benchmarks.cases.planner"
    found = [Task("choices", f"{module}:choices", once=True)]
    wanted = [(name, 20, "auto") for name in FITS] + [
        ("square", 20, "krylov"),
        ("text", 50, "auto"),
        ("labelled-outputs", 50, "auto"),
    ]
    for name, k, solver in wanted:
        arguments = {"name": name, "n_components": k, "solver": solver}
        label = f"{name}-{k}" + ("" if solver == "auto" else f"-{solver}")
        found.append(Task(label, f"{module}:fit", arguments, once=True))
    return tuple(found)


def summarise(rows: list[Row]) -> Summary:
    """Both tables, and whether every projection held."""
    done = grouped(finished(rows), lambda row: row["task"])
    table = [choice for row in done.pop("choices", []) for choice in row["choices"]]
    parts, checks = [], []
    lines = []
    for task, own in done.items():
        plan, worker, driver = own[0]["plan"], largest(own, "peak_worker_rss"), largest(own, "peak_driver_rss")
        held = [
            (worker or 0) <= plan["worker_memory"],
            (driver or 0) <= plan["driver_memory"],
            plan["worker_memory"] <= NEEDLESS * (worker or np.inf),
            plan["driver_memory"] <= NEEDLESS * (driver or np.inf),
            (middle(own, "passes") or 0) <= 1.5 * plan["passes"],
            (middle(own, "bytes_read") or 0) <= plan["bytes_total"] * 1.05 + 64 * MIB,
        ]
        lines.append(
            (
                task, plan["solver"], plan["passes"], middle(own, "passes"), mebibytes(plan["worker_memory"]),
                mebibytes(worker), mebibytes(plan["driver_memory"]), mebibytes(driver), mebibytes(plan["bytes_total"]),
                mebibytes(middle(own, "bytes_read")), plan["tasks_per_pass"], _tasks(own),
            )
        )  # fmt: skip
        named = ("worker memory", "driver memory", "worker's need", "driver's need", "passes", "bytes read")
        broken = [name for name, holds in zip(named, held, strict=True) if not holds]
        checks.append(
            Check(
                f"{task}: projections hold (passes to a half)" + (f" (not {', '.join(broken)})" if broken else ""),
                all(held),
            )
        )
    headers = (
        "fit", "solver", "passes planned", "took", "worker MiB planned", "took", "driver MiB planned", "took",
        "MiB read planned", "took", "tasks a pass planned", "took",
    )  # fmt: skip
    if lines:
        parts += ["Projections beside measurement:", markdown(headers, lines)]
    if table:
        parts += ["The planner's choices for float64 data and two workers of one thread:", _choices_table(table)]
    return Summary(("\n\n".join(parts) + "\n\n" + not_run(rows)).rstrip(), tuple(checks))


def _tasks(rows: list[Row]) -> float | None:
    row = rows[0]
    return row["tasks"] / max(1, len(row["pass_names"]))


def _stored(density: float | None) -> str:
    return "dense" if density is None else f"{density:.2%}"


def _choices_table(table: list[Row]) -> str:
    headers = (
        "samples",
        "features",
        "stored",
        "K",
        "worker limit MiB",
        "solver",
        "passes",
        "worker MiB",
        "read GB",
        "why",
    )
    return markdown(
        headers,
        [
            (
                f"{c['rows']:,}", f"{c['features']:,}", _stored(c["density"]), c["k"],
                mebibytes(c["limit"]), c.get("solver", "refused"), c.get("passes"), mebibytes(c.get("worker_memory")),
                None if "refused" in c else f"{c['bytes_total'] / 1e9:.1f}", c.get("reason", c.get("refused")),
            )
            for c in table
        ],
    )  # fmt: skip


CASE = Case(
    "planner",
    "the planner's choices, and its projections beside measurement",
    "benchmarks.cases.planner:prepare",
    tasks,
    summarise,
)
