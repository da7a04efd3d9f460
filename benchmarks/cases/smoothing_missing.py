"""Rows with missing entries whose samples are in a graph: accuracy of scores, and error of what is filled in.

Images and genes are joined to those that are near in half of the features, and described by the other half; papers are
joined by citations.  Cells are taken away at random.  Needs DLATENT_DATA with coil20_32x32.npz, yeast_multilabel.npz
and linqs_cora.npz.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from benchmarks.cases.citations_spaces import Array, accuracies, unit_scale
from benchmarks.external import data_file
from benchmarks.processes import Stopwatch
from benchmarks.table import grouped, markdown, mean_and_spread, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

COMPONENTS = 15
NEIGHBOURS = 6
REPEATS = 5
GONE = (0.3, 0.6, 0.9)
METHODS = ("ppca", "GraphPPCA")
DATA = ("coil-20", "yeast", "cora")


class Linked(NamedTuple):
    """Rows (N, D), edges between them, and their classes, None where they have several."""

    rows: Array
    graph: sp.csr_array
    classes: npt.NDArray[Any] | None


def prepare(folder: Path, scale: float) -> Row:
    """Nothing is written: the data are small."""
    return {"shape": {name: list(linked(name).rows.shape) for name in DATA}}


def linked(name: str) -> Linked:
    """One of the data sets."""
    if name == "cora":
        raw = np.load(data_file("linqs_cora.npz"), allow_pickle=False)
        words = sp.csr_array((raw["X_data"], raw["X_indices"], raw["X_indptr"]), shape=tuple(raw["X_shape"]))
        words = words[:, words.sum(axis=0) > 0]
        rows = (words @ sp.diags_array(np.log(words.shape[0] / words.astype(bool).sum(axis=0)))).toarray()
        ends = raw["edges"]
        graph = sp.csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(len(rows), len(rows)))
        return Linked(rows / np.linalg.norm(rows, axis=1)[:, None], _both_ways(graph), raw["y"])
    if name == "yeast":
        features, classes = np.load(data_file("yeast_multilabel.npz"), allow_pickle=False)["X"].astype(float), None
    else:
        raw = np.load(data_file("coil20_32x32.npz"), allow_pickle=False)
        features, classes = raw["X"].astype(float), raw["y"]
        features = features[:, features.std(axis=0) > 0]
    return Linked(features[:, 1::2], _nearest(features[:, ::2]), classes)


def _nearest(features: Array) -> sp.csr_array:
    from sklearn.neighbors import kneighbors_graph

    return _both_ways(sp.csr_array(kneighbors_graph(features / features.std(axis=0), NEIGHBOURS)))


def _both_ways(graph: sp.csr_array) -> sp.csr_array:
    found = sp.csr_array(graph + graph.T)
    found.data[:] = 1.0
    return found


def measure(folder: Path, scale: float, data: str, gone: float, method: str) -> Row:
    """Accuracies in the scores, and the error of hidden cells over that of the means of the features."""
    from dlatent import PPCA, GraphPPCA

    warnings.simplefilter("ignore")
    rows, graph, classes = linked(data)
    hidden = np.random.default_rng(0).random(rows.shape) < gone
    holes = np.where(hidden, np.nan, rows)
    edges = {} if method == "ppca" else {"graph": graph}
    model: Any = (PPCA if method == "ppca" else GraphPPCA)(COMPONENTS, missing="nan", zero_rows="keep")
    with Stopwatch() as watch:
        model.fit(holes, **edges)
        scores, filled = model.transform(holes, **edges), model.impute(holes, **edges)
    means = np.nan_to_num(np.nanmean(holes, axis=0))
    error, base = (float(np.sqrt(np.mean((made - rows)[hidden] ** 2))) for made in (filled, means + 0.0 * rows))
    told = (
        None if classes is None else accuracies(unit_scale(np.asarray(scores)), classes, max(2, round(REPEATS * scale)))
    )
    smoothing = getattr(model, "smoothing_", 0.0)
    return {
        "accuracies": told, "error": error / base, "smoothing": smoothing, "passes": model.n_passes_,
        "seconds": watch.seconds,
    }  # fmt: skip


def tasks(scale: float) -> tuple[Task, ...]:
    """Each data set, part of the cells and method."""
    each = ((data, gone, method) for data in DATA for gone in GONE for method in METHODS)
    module = "benchmarks.cases.smoothing_missing:measure"
    return tuple(
        Task(f"{data}/{gone}/{method}", module, {"data": data, "gone": gone, "method": method}, once=True)
        for data, gone, method in each
    )


def summarise(rows: list[Row]) -> Summary:
    """Accuracies and errors by data and part of the cells."""
    latest = list({row["task"]: row for row in finished(rows)}.values())
    lines, checks = [], list[Check]()
    for (data, gone), own in grouped(latest, lambda row: (row["arguments"]["data"], row["arguments"]["gone"])).items():
        by = {row["arguments"]["method"]: row for row in own}
        if len(by) < len(METHODS):
            continue
        plain, linked_rows = (by[method] for method in METHODS)
        told = [mean_and_spread(row["accuracies"]) for row in (plain, linked_rows)]
        lines.append(
            (
                data,
                gone,
                *told,
                plain["error"],
                linked_rows["error"],
                f"{linked_rows['smoothing']:g}",
                linked_rows["passes"],
            )
        )
        if plain["accuracies"]:
            best, without = (float(np.mean(row["accuracies"])) for row in (linked_rows, plain))
            said = f"{data}, {gone:.0%} missing: GraphPPCA {best:.3f}, PPCA {without:.3f} (not below)"
            checks.append(Check(said, best >= without))
    headers = ("data", "missing", "PPCA", "GraphPPCA", "error, PPCA", "error, GraphPPCA", "λ chosen", "passes")
    return Summary("\n\n".join(filter(None, [markdown(headers, lines), not_run(rows)])), tuple(checks))


CASE = Case(
    "smoothing-missing",
    "linked samples with missing entries: accuracy after PPCA of rows averaged over the graph, and filled entries",
    "benchmarks.cases.smoothing_missing:prepare",
    tasks,
    summarise,
)
