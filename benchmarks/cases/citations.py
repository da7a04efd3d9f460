"""Pages and papers with edges: accuracy of a linear classifier in the spaces of PCA and relational PCA.

Source: Li, Yeung and Zhang (2009), Figures 2 to 4.  Needs DLATENT_DATA with the five files of `FILES`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from benchmarks.cases.citations_spaces import REDUCED, WHOLE, accuracies, graph_data, pca, prpca, unit_scale
from benchmarks.external import data_file
from benchmarks.pictures import clouds, curves
from benchmarks.processes import Stopwatch
from benchmarks.table import grouped, markdown, mean_and_spread, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

REPEATS = 5
COMPONENTS = (10, 20, 30, 40, 50)
ITERATIONS = (1, 2, 3, 5, 10, 20, 50)
START_NOISE = 1e-6
"""The paper's start of EM: principal components, and this noise variance."""


@dataclass(frozen=True)
class Source:
    """A data set: its file, how its edges lose their direction, and the accuracies with K = 50 to be reached."""

    file: str
    direction: Literal["common_neighbours", "symmetrise"]
    pca: float
    prpca: float


SOURCES = {
    "cornell": Source("webkb_cornell.npz", "common_neighbours", 0.77, 0.85),
    "texas": Source("webkb_texas.npz", "common_neighbours", 0.81, 0.88),
    "cora": Source("linqs_cora.npz", "symmetrise", 0.75, 0.79),
    "cora-ml-titles": Source("cora_titles_ml.npz", "symmetrise", 0.66, 0.75),
    "cora-ds-titles": Source("cora_titles_ds.npz", "symmetrise", 0.55, 0.65),
}
WEIGHTINGS: dict[str, dict[str, Any]] = {
    "tfidf": {"weighting": "tfidf", "unit_norm": True},
    "unit": {"unit_norm": True},
    "raw": {},
}
"""What `ingest` does to the numbers of the files.  The first is used throughout, the others to see what it matters."""
HEADLINE = "tfidf"
AT_MAXIMUM = "accuracies_at_maximum"


def prepare(folder: Path, scale: float) -> Row:
    """Ingest the words with each weighting; pages with common neighbours are joined, citations lose their direction."""
    from dlatent import ingest, ingest_graph

    described: Row = {}
    for name, source in SOURCES.items():
        raw = np.load(data_file(source.file), allow_pickle=False)
        counts = sp.csr_array((raw["X_data"], raw["X_indices"], raw["X_indptr"]), shape=tuple(raw["X_shape"]))
        file = folder / "counts.npz"
        sp.save_npz(file, counts)
        for weighting, options in WEIGHTINGS.items():
            ingest(file, folder / f"{name}-{weighting}.zarr", zero_rows="keep", overwrite=True, **options)
        file.unlink()
        place = folder / f"{name}-edges.zarr"
        graph = ingest_graph(raw["edges"], place, samples=counts.shape[0], direction=source.direction, overwrite=True)
        np.save(folder / f"{name}-classes.npy", raw["class_names"][raw["y"]])
        described[name] = {"shape": list(counts.shape), "edges": graph.edges, "classes": len(np.unique(raw["y"]))}
    return {"data_sets": described}


def reduced(folder: Path, scale: float, data: str, method: str, weighting: str, components: list[int]) -> Row:
    """Accuracies in the space of one method, for each K."""
    warnings.simplefilter("ignore")
    documents = graph_data(folder, data, weighting)
    found, seconds = {}, {}
    for k in components:
        with Stopwatch() as watch:
            space = REDUCED[method](documents, k)
        seconds[k] = watch.seconds
        found[k] = accuracies(unit_scale(space), documents.classes, repeats(scale))
    return {"accuracies": found, "seconds": seconds}


def whole(folder: Path, scale: float, data: str, method: str, weighting: str) -> Row:
    """Accuracies with all words or edges, without a reduction; their number is the K of the result."""
    warnings.simplefilter("ignore")
    documents = graph_data(folder, data, weighting)
    space = WHOLE[method](documents)
    return {"accuracies": {space.shape[1]: accuracies(space, documents.classes, repeats(scale))}}


def iterations(folder: Path, scale: float, data: str, weighting: str, n_components: int) -> Row:
    """Accuracies after some M-steps from the start of the paper, and at the maximum (Figure 2)."""
    warnings.simplefilter("ignore")
    documents = graph_data(folder, data, weighting)
    found = {0: accuracies(unit_scale(pca(documents, n_components)), documents.classes, repeats(scale))}
    for count in ITERATIONS:
        # The last iteration of a fit only evaluates the likelihood of what the ones before it have found.
        options = {"solver": "em", "start": "pca", "start_noise": START_NOISE, "max_iter": count + 1}
        space = prpca(documents, n_components, **options)
        found[count] = accuracies(unit_scale(space), documents.classes, repeats(scale))
    best = accuracies(unit_scale(prpca(documents, n_components)), documents.classes, repeats(scale))
    return {"accuracies_by_iteration": found, AT_MAXIMUM: best}


def flat(folder: Path, scale: float, data: str, weighting: str) -> Row:
    """The documents in two dimensions (Figure 3)."""
    documents = graph_data(folder, data, weighting)
    spaces = {"PCA": pca(documents, 2), "relational PCA": prpca(documents, 2)}
    points = {name: np.round(unit_scale(space), 3) for name, space in spaces.items()}
    return {"points": points, "classes": documents.classes}


def repeats(scale: float) -> int:
    """Repeats of the cross-validation."""
    return max(2, round(REPEATS * scale))


def tasks(scale: float) -> tuple[Task, ...]:
    """Each data set with each method; PCA and relational PCA with other weightings, by iteration, and in the plane."""
    module, found = "benchmarks.cases.citations", []
    for data in SOURCES:
        base: dict[str, Any] = {"data": data, "weighting": HEADLINE}
        for method in REDUCED:
            arguments = base | {"method": method, "components": list(COMPONENTS)}
            found.append(Task(f"{data}/{method}", f"{module}:reduced", arguments, once=True))
        found += [Task(f"{data}/{m}", f"{module}:whole", base | {"method": m}, once=True) for m in WHOLE]
        for weighting in list(WEIGHTINGS)[1:]:
            for method in ("pca", "prpca"):
                arguments = {"data": data, "weighting": weighting, "method": method, "components": [COMPONENTS[-1]]}
                found.append(Task(f"{data}/{method}/{weighting}", f"{module}:reduced", arguments, once=True))
    for data in ("cornell", "cora-ds-titles"):
        arguments = {"data": data, "weighting": HEADLINE, "n_components": COMPONENTS[-1]}
        found.append(Task(f"{data}/iterations", f"{module}:iterations", arguments, once=True))
    found.append(Task("cornell/flat", f"{module}:flat", {"data": "cornell", "weighting": HEADLINE}, once=True))
    return tuple(found)


def summarise(rows: list[Row]) -> Summary:
    """Accuracies by method and K, by weighting, and by iteration; and the requirements."""
    latest = {row["task"]: row for row in finished(rows)}.values()
    classified = [row for row in latest if "accuracies" in row]
    headline = [row for row in classified if row["arguments"]["weighting"] == HEADLINE]
    parts = [_by_components(headline), _by_weighting(classified), _by_iteration(list(latest)), not_run(rows)]
    return Summary("\n\n".join(part for part in parts if part), tuple(_checks(headline)))


def _by_components(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        values = {int(k): mean_and_spread(numbers) for k, numbers in row["accuracies"].items()}
        whole_space = None if row["arguments"]["method"] in REDUCED else next(iter(values.items()))
        reduced_cells = [None if whole_space else values.get(k) for k in COMPONENTS]
        everything = f"{whole_space[1]} (of {whole_space[0]})" if whole_space else None
        lines.append((row["arguments"]["data"], row["arguments"]["method"], *reduced_cells, everything))
    return markdown(("data", "method", *(f"K = {k}" for k in COMPONENTS), "all columns"), lines)


def _by_weighting(rows: list[Row]) -> str:
    last, lines = str(COMPONENTS[-1]), []
    for (data, weighting), own in grouped(
        rows, lambda row: (row["arguments"]["data"], row["arguments"]["weighting"])
    ).items():
        by = {row["arguments"]["method"]: row["accuracies"] for row in own}
        cells = [mean_and_spread(by[method][last]) if method in by else None for method in ("pca", "prpca")]
        lines.append((data, weighting, *cells))
    return markdown(("data", "weighting", f"PCA, K = {last}", f"relational PCA, K = {last}"), lines)


def _by_iteration(rows: list[Row]) -> str:
    lines = [
        (
            row["arguments"]["data"],
            *map(mean_and_spread, row["accuracies_by_iteration"].values()),
            mean_and_spread(row[AT_MAXIMUM]),
        )
        for row in rows
        if AT_MAXIMUM in row
    ]
    headers = ("data", "EM iteration 0 (PCA)", *map(str, ITERATIONS), "maximum")
    return markdown(headers, lines) if lines else ""


def _checks(rows: list[Row]) -> list[Check]:
    """Ahead of PCA for every K; with the largest, the gain and the accuracy asked for, up to two deviations."""
    checks, last = [], str(COMPONENTS[-1])
    for data, own in grouped(rows, lambda row: row["arguments"]["data"]).items():
        by = {row["arguments"]["method"]: row["accuracies"] for row in own}
        if not {"pca", "prpca"} <= set(by):
            continue
        gains = {k: np.subtract(by["prpca"][k], by["pca"][k]) for k in by["pca"]}
        ahead = all(gain.mean() > 0 for gain in gains.values())
        checks.append(Check(f"{data}: relational PCA is ahead of PCA for every K", ahead))
        asked = SOURCES[data]
        for what, values, level in (
            ("gain", gains[last], asked.prpca - asked.pca),
            ("accuracy", np.array(by["prpca"][last]), asked.prpca),
        ):
            found = f"{data}: {what} of relational PCA with K = {last}: {mean_and_spread(values)}"
            said = f"{found} (at least {level:.2f} within 2 sd)"
            checks.append(Check(said, bool(values.mean() + 2 * values.std(ddof=1) >= level)))
    return checks


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """Accuracy against K for each data set, accuracy against iterations, and the documents in two dimensions."""
    drawn = []
    latest = list({row["task"]: row for row in finished(rows)}.values())
    classified = [row for row in latest if "accuracies" in row and row["arguments"]["weighting"] == HEADLINE]
    for data, own in grouped(classified, lambda row: row["arguments"]["data"]).items():
        lines = {row["arguments"]["method"]: row["accuracies"] for row in own if row["arguments"]["method"] in REDUCED}
        path = folder / f"citations-{data}.png"
        drawn.append(curves(lines, path, f"{data}: linear SVM, 5-fold", "dimensions", "accuracy"))
    for row in latest:
        data = row["arguments"]["data"]
        if AT_MAXIMUM in row:
            lines = {"EM from principal components": row["accuracies_by_iteration"]}
            path = folder / f"citations-{data}-iterations.png"
            drawn.append(curves(lines, path, f"{data}: accuracy during EM", "EM iterations", "accuracy"))
        if "points" in row:
            points = {name: np.array(values) for name, values in row["points"].items()}
            path = folder / f"citations-{data}-two-dimensions.png"
            drawn.append(clouds(points, row["classes"], path, f"{data}, two dimensions"))
    return drawn


CASE = Case(
    "citations",
    "linked pages and papers: accuracy of a linear SVM after PCA and after relational PCA",
    "benchmarks.cases.citations:prepare",
    tasks,
    summarise,
    draw=draw,
)
