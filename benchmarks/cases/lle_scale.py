"""lle-scale: 200,000 points of a bent sheet in 50 dimensions, 12 neighbours each, on two cores."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from benchmarks.cluster import WORKERS, local_cluster
from benchmarks.processes import Stopwatch
from benchmarks.sheets import sheet_error, write_bent_sheet
from benchmarks.stored import load, path_of
from benchmarks.table import MIB, grouped, largest, markdown, mebibytes, middle, not_run, ratio
from benchmarks.task import Case, Check, Row, Summary, Task, finished

ROWS, FEATURES, NEIGHBOURS = 200_000, 50, 12
SUBSAMPLE, LOOKED_UP = 5000, 500
"""Points that scikit-learn embeds exactly, and points whose neighbours are looked up among all distances."""
PART = 4
"""The multiplications alone are timed on one of so many of the tiles, and their seconds taken as often."""
CAP = 4096 * MIB
TILE = 512
OWN = "benchmarks.cases.lle_scale"


def prepare(folder: Path, scale: float) -> Row:
    """The store, and the flat coordinates beside it."""
    rows = max(2 * SUBSAMPLE, round(ROWS * scale))
    np.save(folder / "sheet.npy", write_bent_sheet(folder / "data.zarr", rows, FEATURES, 61))
    return {"shape": [rows, FEATURES]}


def products(folder: Path, scale: float, dtype: str) -> Row:
    """The limit: the multiplications of all pairs of rows, tile by tile on two threads, and nothing else."""
    rows = np.ascontiguousarray(load(path_of(folder)), dtype=dtype)
    starts = range(0, len(rows) // PART, 4 * TILE)
    with Stopwatch() as watch, ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(partial(_multiplied, rows), starts))
    times = len(rows) / min(len(starts) * 4 * TILE, len(rows))
    return {"fit_seconds": times * watch.seconds, "fit_cpu_seconds": times * watch.cpu_seconds}


def _multiplied(rows: Any, start: int) -> None:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        for first in range(start, min(start + 4 * TILE, len(rows)), TILE):
            for other in range(0, len(rows), 4 * TILE):
                rows[first : first + TILE] @ rows[other : other + 4 * TILE].T


def embedding(folder: Path, scale: float, neighbors: str) -> Row:
    """The whole embedding on two worker processes; its seconds pass by pass, and its error to the sheet."""
    from dlatent import LocallyLinearEmbedding

    model = LocallyLinearEmbedding(n_neighbors=NEIGHBOURS, neighbors=neighbors)
    with local_cluster(WORKERS, "2GiB", folder) as client, Stopwatch() as watch:
        model.fit(path_of(folder), client=client)
    sheet = np.load(folder / "sheet.npy")
    passes = model.history_
    names = [str(name) for name in passes["pass_name"].values]
    seconds = dict(zip(names, passes["pass_seconds"].values.tolist(), strict=True))
    busy = dict(zip(names, passes["pass_busy_seconds"].values.tolist(), strict=True))
    return {
        "fit_seconds": watch.seconds,
        "fit_cpu_seconds": watch.cpu_seconds,
        "neighbour_seconds": seconds.get("bounds", 0.0) + seconds.get("neighbours", 0.0),
        "neighbour_busy_seconds": busy.get("bounds", 0.0) + busy.get("neighbours", 0.0),
        "weight_seconds": seconds["weights"],
        "eigen_seconds": watch.seconds - sum(seconds.values()),
        "eigen_solver": model.eigen_solver_,
        "eigen_residual": model.eigen_residual_,
        "eigenvalues": model.eigenvalues_.tolist(),
        "predicted_fill": model.predicted_fill_,
        "recall": model.neighbor_recall_[0],
        "error": sheet_error(model.embedding_, sheet),
    }


def exactness(folder: Path, scale: float) -> Row:
    """How many neighbours of a sample of points are those of all their distances, taken one by one."""
    from dlatent import open_data
    from dlatent.engine.connect import connect
    from dlatent.solvers.lle.fit import find_neighbours

    rows = np.asarray(load(path_of(folder)))
    with local_cluster(WORKERS, "2GiB", folder) as client:
        engine = connect(open_data(path_of(folder)), client=client)
        with engine, Stopwatch() as watch:
            found, _ = find_neighbours(engine.run, NEIGHBOURS, rows[:1000].mean(axis=0))
    right, sample = 0, np.random.default_rng(0).permutation(len(rows))[:LOOKED_UP]
    for some in np.array_split(sample, 20):
        squares = cdist(rows[some], rows, "sqeuclidean")
        squares[np.arange(len(some)), some] = np.inf
        nearest = np.argpartition(squares, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
        right += int((nearest[:, :, None] == found.indices[some][:, None, :]).sum())
    recall = right / sample.size / NEIGHBOURS
    return {"fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds, "recall": recall}


def subsample(folder: Path, scale: float) -> Row:
    """scikit-learn's exact embedding of some of the points, and ours of the same."""
    from sklearn.manifold import LocallyLinearEmbedding as Peer

    from dlatent import LocallyLinearEmbedding

    at = np.sort(np.random.default_rng(1).permutation(len(np.load(folder / "sheet.npy")))[:SUBSAMPLE])
    rows, sheet = np.asarray(load(path_of(folder)))[at], np.load(folder / "sheet.npy")[at]
    with Stopwatch() as watch:
        peer = Peer(n_neighbors=NEIGHBOURS, tol=1e-12, max_iter=2000, random_state=0).fit(rows).embedding_
    own = LocallyLinearEmbedding(n_neighbors=NEIGHBOURS).fit(rows).embedding_ / np.sqrt(len(rows))
    outside = own - peer @ (peer.T @ own)
    return {
        "fit_seconds": watch.seconds,
        "fit_cpu_seconds": watch.cpu_seconds,
        "angle": float(np.linalg.norm(outside, 2)),
        "error": sheet_error(peer, sheet),
        "own_error": sheet_error(own, sheet),
    }


def tasks(scale: float) -> tuple[Task, ...]:
    """The limits, the embedding by exact and by approximate neighbours, and two checks of quality."""
    return (
        Task("products/float64", f"{OWN}:products", {"dtype": "float64"}),
        Task("products/float32", f"{OWN}:products", {"dtype": "float32"}),
        Task("lle/exact", f"{OWN}:embedding", {"neighbors": "exact"}, cap_bytes=CAP),
        Task("lle/approximate", f"{OWN}:embedding", {"neighbors": "approximate"}, ("pynndescent",), cap_bytes=CAP),
        Task("neighbours looked up", f"{OWN}:exactness", once=True),
        Task("subsample", f"{OWN}:subsample", requires=("sklearn",), once=True),
    )


def summarise(rows: list[Row]) -> Summary:
    """Seconds of each part in those of the products alone, memory, and quality."""
    done = grouped(finished(rows), lambda row: row["task"])
    lines = []
    for task, own in done.items():
        reference = done.get("products/float64", [])
        lines.append(
            (
                task, middle(own, "fit_seconds"), middle(own, "fit_cpu_seconds"), middle(own, "neighbour_seconds"),
                middle(own, "neighbour_busy_seconds"), middle(own, "weight_seconds"), middle(own, "eigen_seconds"),
                own[0].get("eigen_solver"), ratio(own, reference), mebibytes(largest(own, "peak_tree_pss")),
                middle(own, "recall"), middle(own, "error"), middle(own, "angle"),
            )
        )  # fmt: skip
    headers = (
        "task", "s", "cpu s", "neighbours s", "neighbours busy s", "weights s", "eigenvectors s", "solver",
        "× products in float64", "all MiB", "recall", "error to the sheet", "angle to scikit-learn",
    )  # fmt: skip
    return Summary((markdown(headers, lines) + "\n\n" + not_run(rows)).rstrip(), tuple(_checks(done)))


def _checks(done: dict[str, list[Row]]) -> list[Check]:
    checks = []
    for row in done.get("lle/exact", []):
        capped = row.get("cap", {}).get("limit") == CAP and row["cap"]["oom_kills"] == 0
        checks.append(
            Check("the fit ran under a hard cap of 4 GiB on all its processes, and nothing was killed", capped)
        )
        checks.append(Check("the eigenvectors have settled", row["eigen_residual"] <= 1e-3))
    checks += [
        Check("every neighbour of the sample is one of the exact ones", row["recall"] == 1.0)
        for row in done.get("neighbours looked up", [])
    ]
    checks += [
        Check("a subsample is embedded as by scikit-learn, to 1e-6", row["angle"] < 1e-6)
        for row in done.get("subsample", [])
    ]
    return checks


CASE = Case(
    "lle-scale",
    "Locally linear embedding of 200,000 × 50 with 12 exact neighbours",
    f"{OWN}:prepare",
    tasks,
    summarise,
    reference="products/float64",
)
