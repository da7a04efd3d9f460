"""Two views of 20,000 and 30,000 sparse features, 50,000 samples of which 5 % have both, from Zarr stores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.cluster import local_cluster
from benchmarks.processes import Stopwatch
from benchmarks.stored import size_on_disk
from benchmarks.table import grouped, largest, markdown, mebibytes, middle, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

SAMPLES, FEATURES, SHARED, LENGTH, TOPICS, COMPONENTS = 50_000, (20_000, 30_000), 0.05, 80, 12, 10


def prepare(folder: Path, scale: float) -> Row:
    """Counts of words by topics that both views share, rows of length 1; pairs lie anywhere in both stores."""
    import zarr

    from tests.sparse_stores import write_csr

    rng = np.random.default_rng(61)
    samples = max(2000, round(SAMPLES * scale))
    both = round(SHARED * samples)
    alone = (samples - both) // 2
    topic = rng.dirichlet(np.full(TOPICS, 0.2), size=samples)
    rows = {"a": np.arange(both + alone), "b": np.concatenate([np.arange(both), np.arange(both + alone, samples)])}
    order = {name: rng.permutation(own) for name, own in rows.items()}
    entries = []
    for (name, own), width in zip(order.items(), FEATURES, strict=True):
        common = 1.0 / np.arange(1, width + 1)
        words = np.stack([np.cumsum(p / p.sum()) for p in common * rng.gamma(0.3, size=(TOPICS, width))])
        batches = (_draw(topic[own[i : i + 2000]], words, rng) for i in range(0, len(own), 2000))
        group = zarr.create_group(folder / f"{name}.zarr")
        write_csr(group, batches, columns=width, dtype=np.float32)
        entries.append(int(group["data"].shape[0]))
    place = {name: np.argsort(own) for name, own in order.items()}
    np.save(folder / "pairs.npy", np.column_stack([place["a"][:both], place["b"][:both]]))
    disk = sum(size_on_disk(str(folder / f"{name}.zarr")) for name in "ab")
    return {"samples": samples, "both": both, "entries": entries, "stored_bytes": disk}


def _draw(topic: np.ndarray, words: np.ndarray, rng: np.random.Generator) -> sp.csr_array:
    """Words of some samples: each of its words has a topic of its own."""
    count = len(topic)
    chosen = (rng.random((count, LENGTH, 1)) > np.cumsum(topic, axis=1)[:, None, :-1]).sum(axis=2)
    columns = np.empty((count, LENGTH), dtype=np.int64)
    for number, cumulative in enumerate(words):
        at = chosen == number
        columns[at] = np.searchsorted(cumulative, rng.random(int(at.sum()))).clip(0, words.shape[1] - 1)
    lines = np.repeat(np.arange(count), LENGTH)
    rows = sp.csr_array((np.ones(columns.size), (lines, columns.ravel())), shape=(count, words.shape[1]))
    rows.sum_duplicates()
    return sp.csr_array(sp.diags_array(1.0 / np.sqrt((rows**2).sum(axis=1))) @ rows)


def fit(folder: Path, scale: float, model: str, workers: int) -> Row:
    """A fit on worker processes, and its costs."""
    from dlatent import CorrespondenceFactorAnalysis, CorrespondencePPCA

    views = {name: str(folder / f"{name}.zarr") for name in "ab"}
    pairs = np.load(folder / "pairs.npy")
    # Words that no sample holds have no variance of their own; factor analysis would refuse them.
    kind = {"PPCA": CorrespondencePPCA, "factor analysis": CorrespondenceFactorAnalysis}[model]
    made = kind(COMPONENTS, zero_rows="keep")
    with local_cluster(workers, "2GiB", folder) as client:
        plan = made.plan(views, correspondence=pairs, client=client)
        with Stopwatch() as watch:
            made.fit(views, correspondence=pairs, client=client)
    history = made.history_
    return {
        "fit_seconds": watch.seconds,
        "fit_cpu_seconds": watch.cpu_seconds,
        "solver": plan.solver,
        "passes": int(made.n_passes_),
        "pass_seconds": [round(float(s), 3) for s in history["pass_seconds"].values],
        "pass_bytes": [int(n) for n in history["pass_bytes_read"].values],
        "log_likelihood": float(made.log_likelihood_),
        "converged": bool(made.converged_),
        "plan": {"worker_memory": plan.worker_memory, "driver_memory": plan.driver_memory, "passes": plan.passes},
        "shared_error": _shared_error(made, views, pairs),
    }


def _shared_error(model: object, views: dict[str, str], pairs: np.ndarray) -> float:
    """Σ‖z_a − z_b‖² / (Σ‖z_a‖² + Σ‖z_b‖²) of the scores of pairs, each from one view alone: 1 for strangers."""
    one = model.transform({"a": views["a"]}, client="serial")[pairs[:, 0]]  # type: ignore[attr-defined]
    other = model.transform({"b": views["b"]}, client="serial")[pairs[:, 1]]  # type: ignore[attr-defined]
    return float(((one - other) ** 2).sum() / ((one**2).sum() + (other**2).sum()))


def tasks(scale: float) -> tuple[Task, ...]:
    """PPCA and factor analysis on two workers."""
    function = "benchmarks.cases.correspondence_scale:fit"
    return tuple(
        Task(name, function, {"model": name, "workers": 2}, once=True, cold=True)
        for name in ("PPCA", "factor analysis")
    )


def summarise(rows: list[Row]) -> Summary:
    """Passes, time and memory."""
    lines, checks = [], []
    for task, own in grouped(finished(rows), lambda row: row["task"]).items():
        row = own[-1]
        lines.append(
            (
                task, row["solver"], row["passes"], row["converged"], middle(own, "fit_seconds"),
                middle(own, "fit_cpu_seconds"), float(np.median(row["pass_seconds"])),
                mebibytes(max(row["pass_bytes"])), mebibytes(largest(own, "peak_worker_rss")),
                mebibytes(largest(own, "peak_driver_rss")), row["shared_error"],
            )
        )  # fmt: skip
        checks.append(
            Check(
                f"{task}: the workers stay within the plan",
                row["peak_worker_rss"] <= row["plan"]["worker_memory"],
            )
        )
    heads = (
        "model", "solver", "passes", "converged", "s", "processor s", "s a pass", "MiB read in the first pass",
        "worker MiB", "driver MiB", "distance of pairs",
    )  # fmt: skip
    note = "The distance of pairs is that of the scores from either view alone; that of strangers is 1."
    return Summary((markdown(heads, lines) + "\n\n" + note + "\n\n" + not_run(rows)).rstrip(), tuple(checks))


CASE = Case(
    "correspondence-scale",
    "views of 20,000 and 30,000 sparse features, 50,000 samples, 5 % of them in both, K = 10, from Zarr",
    "benchmarks.cases.correspondence_scale:prepare",
    tasks,
    summarise,
    large=True,
)
