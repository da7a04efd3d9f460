"""nan-tall, nan-large and nan-memory: PPCA with a fifth of the entries missing, beside others and the limit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cluster import WORKERS, fitted, local_cluster, warm_up
from benchmarks.generate import CHUNK_BYTES, Factors, power_law
from benchmarks.missing import holes, packed, write_with_holes
from benchmarks.processes import Stopwatch
from benchmarks.stored import path_of, size_on_disk
from benchmarks.table import MIB, grouped, largest, markdown, mebibytes, middle, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

COMPONENTS, PART = 10, 0.2
SAME = 1e-6
"""Relative distance of log-likelihoods that counts as the same."""
CAP, WORKER_LIMIT, SMALL_BLOCK = 1024 * MIB, 420 * MIB, 4 * MIB
"""Little memory wants small blocks: the planner refuses larger ones."""
OTHERS = "benchmarks.methods.of_missing"
OWN = "benchmarks.cases.nan_speed"
SIZES = {"tall": (20_000, 200), "large": (200_000, 500), "memory": (1_000_000, 512)}


def _rows(size: str, scale: float) -> int:
    return max(2000, round(SIZES[size][0] * scale))


def prepare(folder: Path, scale: float, size: str) -> Row:
    """Ten strong factors and a power-law tail, a mean, unit noise; a fifth of the entries NaN, at random."""
    rows, features = _rows(size, scale), SIZES[size][1]
    variances = np.concatenate([power_law(COMPONENTS, 100.0) + 5.0, power_law(20, 4.0)])
    model = Factors(
        features, variances, noise=1.0, mean=3.0 * np.random.default_rng(41).standard_normal(features), seed=42
    )
    dtype, chunk_bytes = "float64", CHUNK_BYTES
    if size == "memory":
        rows, dtype, chunk_bytes = 2 * rows, "float32", SMALL_BLOCK
    array = write_with_holes(folder / "data.zarr", model, rows, dtype, PART, 43, chunk_bytes)
    return {"shape": [rows, features], "bytes": int(array.nbytes), "stored_bytes": size_on_disk(path_of(folder))}


def prepare_tall(folder: Path, scale: float) -> Row:
    """20,000 × 200 float64."""
    return prepare(folder, scale, "tall")


def prepare_large(folder: Path, scale: float) -> Row:
    """200,000 × 500 float64."""
    return prepare(folder, scale, "large")


def prepare_memory(folder: Path, scale: float) -> Row:
    """2,000,000 × 512 float32: 4 GB."""
    return prepare(folder, scale, "memory")


def dlatent(folder: Path, scale: float, workers: int = 2, limit: int | None = None) -> Row:
    """PPCA with missing="nan", on a cluster of worker processes or (workers 0) on the threads of this process."""
    from dlatent import PPCA, open_data

    model = PPCA(COMPONENTS, missing="nan", prior="ml")
    data = open_data(path_of(folder), block_bytes=SMALL_BLOCK if limit else None)
    if workers:
        with local_cluster(workers, limit or "4GiB", folder) as client:
            model, row = fitted(model, data, client=client)
    else:
        warm_up()
        model, row = fitted(model, data)
    seconds = dict(enumerate(accumulate(row["pass_seconds"])))
    visits = [number for number, name in enumerate(row["pass_names"]) if name == "entries"]
    lines = list(model.history_["iteration_log_likelihood"].values)
    # A pass whose point was given up has no line of its own; the last lines belong to the last passes.
    trace = [(seconds[visit], float(value)) for visit, value in zip(visits[-len(lines) :], lines, strict=False)]
    each = [row["pass_seconds"][visit] for visit in visits]
    return row | {
        "trace": trace,
        "entries_pass_seconds": float(np.median(each)),
        "components": packed(model.components_.T, model.mean_, model.noise_variance_),
    }


def two_products(folder: Path, scale: float, size: str) -> Row:
    """The two matrix products that a pass contains, on masks in memory, with one thread per core over row blocks."""
    rows, features = _rows(size, scale), SIZES[size][1]
    pairs, packs = COMPONENTS * (COMPONENTS + 1) // 2, (COMPONENTS + 1) * (COMPONENTS + 2) // 2
    rng = np.random.default_rng(0)
    block = 1.0 - holes((2000, features), PART, (44, 0))
    weights, moments = rng.standard_normal((features, pairs)), rng.standard_normal((len(block), packs))

    def product(_: int) -> Any:
        return block @ weights, block.T @ moments

    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(product, range(WORKERS)))
        with Stopwatch() as watch:
            list(pool.map(product, range(-(-rows // len(block)))))
    return {"fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds}


def tasks(scale: float, size: str) -> tuple[Task, ...]:
    """The limit, dlatent, and the others where they can be expected to end."""
    own = (
        Task("limit-two-products", f"{OWN}:two_products", {"size": size}),
        Task("dlatent", f"{OWN}:dlatent"),
        Task("dlatent-threads", f"{OWN}:dlatent", {"workers": 0}),
    )
    k = {"n_components": COMPONENTS}
    return (
        *own,
        Task("numpy-em", f"{OTHERS}:numpy_em", k | {"iterations": 500}, timeout=1200.0),
        Task("ppca", f"{OTHERS}:ppca_package", k, ("ppca",), timeout=1200.0),
        Task("pyppca", f"{OTHERS}:pyppca_package", k, ("pyppca",), timeout=1200.0),
        Task("iterative-imputer", f"{OTHERS}:iterative_imputer", {}, ("sklearn",), once=True, timeout=1200.0),
    )


def memory_tasks(scale: float) -> tuple[Task, ...]:
    """dlatent alone, under a hard cap of 1 GiB on all its processes."""
    return (Task("dlatent", f"{OWN}:dlatent", {"limit": WORKER_LIMIT}, cap_bytes=CAP, cold=True),)


def reached(row: Row, level: float) -> float | None:
    """Seconds from the start until the log-likelihood was at a level; of methods without a trace, all of their time."""
    for seconds, value in row.get("trace", []):
        if value >= level:
            return float(seconds)
    final = row.get("quality", {}).get("log_likelihood")
    return float(row["fit_seconds"]) if final is not None and final >= level and "trace" not in row else None


def summarise(rows: list[Row]) -> Summary:
    """Seconds to the same likelihood, the cost of a pass beside its two products, and peaks of memory."""
    done = grouped(finished(rows), lambda row: row["task"])
    heights = [row["quality"]["log_likelihood"] for row in finished(rows) if "quality" in row]
    best = max(heights, default=float("nan"))
    level = best - SAME * abs(best)
    limit = middle(done.get("limit-two-products", []), "fit_seconds")
    lines, to_level = [], {}
    for task, own in done.items():
        times = [seconds for row in own if (seconds := reached(row, level)) is not None]
        to_level[task] = float(np.median(times)) if times else None
        final = middle([row["quality"] for row in own if "quality" in row], "log_likelihood")
        cost = middle(own, "entries_pass_seconds")
        lines.append(
            (
                task, middle(own, "fit_seconds"), to_level[task],
                None if final is None else (best - final) / abs(best), middle(own, "passes"), cost,
                None if cost is None or not limit else cost / limit, mebibytes(largest(own, "peak_tree_pss")),
                own[0].get("cap", {}).get("oom_kills"),
            )
        )  # fmt: skip
    headers = (
        "method", "fit s", f"s to the best likelihood − {SAME:g}", "gap at the end", "passes", "a pass, s",
        "× its two products", "peak MiB (tree)", "kills",
    )  # fmt: skip
    text = markdown(headers, lines) + "\n\n" + not_run(rows)
    return Summary(text.rstrip(), tuple(_checks(done, to_level, limit)))


def _checks(done: dict[str, list[Row]], to_level: dict[str, float | None], limit: float | None) -> list[Check]:
    own = [row for name in ("dlatent", "dlatent-threads") for row in done.get(name, [])]
    if not own:
        return [Check("dlatent ran", False)]
    checks = []
    mine = min((s for name in ("dlatent", "dlatent-threads") if (s := to_level.get(name)) is not None), default=None)
    others = [s for name, s in to_level.items() if s is not None and not name.startswith(("dlatent", "limit"))]
    if others and mine is not None:
        times = min(others) / mine
        text = f"ten times faster to the same likelihood than the fastest other that reaches it ({times:.1f}×)"
        checks.append(Check(text, times >= 10.0))
    if limit:
        cost = min(row["entries_pass_seconds"] for row in own) / limit
        checks.append(Check(f"a pass costs at most twice its two matrix products ({cost:.2f}×)", cost <= 2.0))
    capped = [row for row in own if "cap" in row]
    if capped:
        good = all(row["cap"]["limit"] == CAP and row["cap"]["oom_kills"] == 0 for row in capped)
        checks.append(
            Check("4 GB were fitted under a hard cap of 1 GiB on all processes, and nothing was killed", good)
        )
        within = all(row["peak_worker_rss"] <= row["plan"]["worker_memory"] for row in capped)
        checks.append(Check("peak memory of the workers is within the plan's projection", within))
    return checks


def _case(name: str, title: str, size: str, found: Any, *, large: bool = False) -> Case:
    return Case(name, title, f"{OWN}:prepare_{size}", found, summarise, judge="benchmarks.missing:judge", large=large)


TALL = _case("nan-tall", "20,000 × 200, 20 % missing, K = 10", "tall", partial(tasks, size="tall"))
LARGE = _case("nan-large", "200,000 × 500, 20 % missing, K = 10", "large", partial(tasks, size="large"), large=True)
MEMORY = _case(
    "nan-memory", "2,000,000 × 512 float32 (4 GB), 20 % missing, under 1 GiB for all processes", "memory", memory_tasks,
    large=True,
)  # fmt: skip
