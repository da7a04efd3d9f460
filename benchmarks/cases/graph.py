"""A million linked documents under a hard cap of 3 GiB: what a round over edges costs beside one without them."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import numpy as np
import zarr

from benchmarks.cluster import WORKERS, fitted, local_cluster
from benchmarks.stored import size_on_disk
from benchmarks.table import MIB, grouped, largest, markdown, mebibytes, middle, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

SAMPLES, FEATURES, LENGTH, TOPICS, COMPONENTS = 1_000_000, 20_000, 50, 50, 20
GRAPH_EACH = 5
"""Edges for each sample: 5,000,000 in the whole graph."""
PARTS = {"quarter": 4, "half": 2, "whole": 1}
"""Three graphs, of these parts of the samples."""
CAP = 3072 * MIB
WORKER_LIMIT = 1320 * MIB
SLOWDOWN = 2.0
"""Most seconds of a round over edges, in seconds of a round of PPCA over the same data in the same run."""
GROWTH = 1.25
"""Most memory of the driver for the whole, in that for the quarter, which has a fourth of the samples."""


def prepare(folder: Path, scale: float) -> Row:
    """Three graphs with hubs, whose edges keep to topics, and the documents of their samples, in random order.

    Samples of a topic are scattered over the rows, so that every block has edges to every other: the worst order.
    """
    from dlatent import ingest_graph
    from tests.graphs import power_law_graph, topic_documents
    from tests.sparse_stores import write_csr

    words, described = max(500, round(FEATURES * scale**0.5)), {}
    for name, part in PARTS.items():
        count = max(400, round(SAMPLES * scale / part))
        topics = np.random.default_rng(51).integers(TOPICS, size=count)
        documents = zarr.create_group(_data(folder, name), overwrite=True)
        write_csr(documents, topic_documents(topics, words, length=LENGTH, random_state=52), columns=words)
        graph = power_law_graph(count, GRAPH_EACH * count, groups=topics, random_state=53)
        ingest_graph(graph, _graph(folder, name), overwrite=True)
        described[name] = {
            "shape": [count, words],
            "graph": graph.nnz // 2,
            "most_graph": int(np.diff(graph.indptr).max()),
            "stored_bytes": size_on_disk(_data(folder, name)) + size_on_disk(_graph(folder, name)),
        }
    return {"graphs": described}


def _data(folder: Path, name: str) -> str:
    return str(folder / f"{name}-data.zarr")


def _graph(folder: Path, name: str) -> str:
    return str(folder / f"{name}-edges.zarr")


def prpca(folder: Path, scale: float, graph: str) -> Row:
    """Relational PPCA on two workers."""
    from dlatent import RelationalPPCA

    with local_cluster(WORKERS, WORKER_LIMIT, folder) as client:
        _, row = fitted(
            RelationalPPCA(COMPONENTS, solver="krylov"),
            _data(folder, graph),
            client=client,
            graph=_graph(folder, graph),
        )
    return row


def ppca(folder: Path, scale: float, graph: str) -> Row:
    """PPCA of the same documents on the same cluster."""
    from dlatent import PPCA

    with local_cluster(WORKERS, WORKER_LIMIT, folder) as client:
        _, row = fitted(PPCA(COMPONENTS, solver="krylov"), _data(folder, graph), client=client)
    return row


def tasks(scale: float) -> tuple[Task, ...]:
    """Both models on each graph, all under the cap."""
    module = "benchmarks.cases.graph"
    return tuple(
        Task(f"{model}/{name}", f"{module}:{model}", {"graph": name}, cap_bytes=CAP, cold=True)
        for name in PARTS
        for model in ("ppca", "prpca")
    )


def rounds(row: Row) -> tuple[float, float]:
    """Seconds of the first round with the sums, which reads from the disk, and of a later round, on average.

    A round multiplies one block of directions with the data: one pass, or several where the plan takes some columns at
    a time.  The last round is the evaluation of the likelihood.
    """
    names, seconds = row["pass_names"], row["pass_seconds"]
    begin = 1 + max(index for index, name in enumerate(names) if name == "energy" or index == names.index("products"))
    return float(sum(seconds[:begin])), float(sum(seconds[begin:])) / len(row["trace"])


def summarise(rows: list[Row]) -> Summary:
    """Times of rounds, memory against plan and cap, for each model and graph."""
    done = grouped(finished(rows), lambda row: row["task"])
    lines = []
    for task, own in done.items():
        plan, cap = own[-1]["plan"], own[-1].get("cap", {})
        graph = own[-1]["data"]["graphs"][own[-1]["arguments"]["graph"]]
        lines.append(
            (
                task, *graph["shape"], graph["graph"],
                plan["solver"], middle(own, "passes"), middle(own, "fit_seconds"),
                *(median(times) for times in zip(*map(rounds, own), strict=True)), slowdown(own, done),
                mebibytes(largest(own, "peak_driver_rss")),
                mebibytes(plan["driver_memory"]), mebibytes(largest(own, "peak_worker_rss")),
                mebibytes(plan["worker_memory"]), mebibytes(largest(own, "peak_tree_pss")), mebibytes(cap.get("limit")),
                cap.get("oom_kills"),
            )
        )  # fmt: skip
    headers = (
        "task", "samples", "features", "graph", "solver", "passes", "fit s", "first round s", "s a round", "× PPCA",
        "driver MiB", "planned", "worker MiB", "planned", "all MiB", "cap MiB", "kills",
    )  # fmt: skip
    return Summary((markdown(headers, lines) + "\n\n" + not_run(rows)).rstrip(), tuple(_checks(done)))


def slowdown(rows: list[Row], done: dict[str, list[Row]]) -> float | None:
    """Seconds of a later round over those of PPCA on the same graph in the same run, the median over runs."""
    graph = rows[0]["arguments"]["graph"]
    plain = grouped(done.get(f"ppca/{graph}", []), lambda row: row["run"])
    ratios = [
        median(rounds(row)[1] for row in own) / median(rounds(row)[1] for row in plain[run])
        for run, own in grouped(rows, lambda row: row["run"]).items()
        if run in plain
    ]
    return float(median(ratios)) if ratios else None


def _checks(done: dict[str, list[Row]]) -> list[Check]:
    fits = [row for task, own in done.items() if task.startswith("prpca/") for row in own]
    if not fits:
        return [Check("relational PPCA ran under the hard memory cap", False)]
    capped = all(row.get("cap", {}).get("limit") == CAP and row["cap"]["oom_kills"] == 0 for row in fits)
    planned = all(row["peak_worker_rss"] <= row["plan"]["worker_memory"] for row in fits)
    checks = [
        Check("relational PPCA ran under a hard cap of 3 GiB on all its processes, and nothing was killed", capped),
        Check("peak memory of the workers is within the plan's projection", planned),
    ]
    for name in PARTS:
        times = slowdown(done[f"prpca/{name}"], done) if f"prpca/{name}" in done else None
        if times is not None:
            said = f"{name}: a round over edges takes {times:.2f} times one of PPCA (at most {SLOWDOWN:g})"
            checks.append(Check(said, times <= SLOWDOWN))
    small, large = (largest(done.get(f"prpca/{name}", []), "peak_driver_rss") for name in ("quarter", "whole"))
    if small and large:
        said = f"four times the samples take {large / small:.2f} times the driver's memory (at most {GROWTH:g})"
        checks.append(Check(said, large <= GROWTH * small))
    return checks


CASE = Case(
    "graph",
    "up to 1,000,000 sparse documents × 20,000 with 5,000,000 edges, under 3 GiB for all processes",
    "benchmarks.cases.graph:prepare",
    tasks,
    summarise,
    large=True,
)
