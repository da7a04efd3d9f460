"""20 Newsgroups with 5 labelled documents per class: 1-NN error in the space of each method, 50 random splits.

Source: Yu, Yu, Tresp, Kriegel and Wu (2006), Table 2.  Needs DLATENT_DATA with newsgroups20.npz.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from benchmarks.cases import faces, newsgroups
from benchmarks.stored import load, path_of
from benchmarks.table import grouped, markdown, mean_and_spread, not_run
from benchmarks.task import Case, Row, Summary, Task, finished

Array = npt.NDArray[np.float64]

SPLITS = 50
PORTION = 10
"""Splits of a task whose method has a space of its own for each of them: no process runs for long."""
PSEUDO, NULL = "discriminants, pseudo-inverse of S_w", "discriminants, null space of S_w"
NEGLIGIBLE = 1e-8
"""A direction with less than this part of the largest singular value is rounding."""


def prepare(folder: Path, scale: float) -> Row:
    """All of 20 Newsgroups as in `newsgroups`: the scale is one of splits."""
    return newsgroups.prepare(folder, 1.0)


def span_coordinates(rows: sp.csr_array, labelled: npt.NDArray[np.bool_]) -> Array:
    """All rows (N, r) along the principal axes of the labelled ones, about their mean.

    Directions that a method takes from labelled rows alone lie in their span, so that it loses nothing here.
    """
    known = rows[labelled].toarray()
    mean = known.mean(axis=0)
    _, values, axes = np.linalg.svd(known - mean, full_matrices=False)
    kept = axes[values > NEGLIGIBLE * values[0]].T
    return np.asarray(rows @ kept - mean @ kept)


def lda(rows: sp.csr_array, classes: npt.NDArray[Any], labelled: npt.NDArray[np.bool_], k: int) -> dict[str, Any]:
    """Fisher's discriminants of the labelled documents, at most C − 1, in two ways, as S_w has no inverse.

    `PSEUDO` are leading eigenvectors of S_w⁺S_b, in the N₁ − C directions in which documents of a class differ;
    `NULL` are principal axes of the class means in the C − 1 other directions of the span, where they do not.
    """
    coordinates = span_coordinates(rows, labelled)
    known, (names, codes) = coordinates[labelled], np.unique(classes[labelled], return_inverse=True)
    means = np.stack([known[codes == code].mean(axis=0) for code in range(len(names))])
    _, values, axes = np.linalg.svd(known - means[codes])
    rank = int((values > NEGLIGIBLE * values[0]).sum())
    found = {}
    for name, base in {PSEUDO: axes[:rank].T / values[:rank], NULL: axes[rank:].T}.items():
        _, _, directions = np.linalg.svd((means - known.mean(axis=0))[codes] @ base, full_matrices=False)
        found[name] = coordinates @ (base @ directions[: min(k, len(names) - 1)].T)
    return found


def pls(rows: sp.csr_array, classes: npt.NDArray[Any], labelled: npt.NDArray[np.bool_], k: int) -> dict[str, Any]:
    """Partial least squares of the labelled documents against their one-of-C classes."""
    return faces.pls(span_coordinates(rows, labelled), classes, labelled, k)


def full(rows: sp.csr_array, classes: npt.NDArray[Any], labelled: npt.NDArray[np.bool_], k: int) -> dict[str, Any]:
    """All words."""
    return {"words": rows}


METHODS: dict[str, faces.Embedding] = faces.METHODS | {"full": full, "lda": lda, "pls": pls}


def errors(folder: Path, scale: float, method: str, n_components: int, first: int, last: int) -> Row:
    """1-NN errors of one method over the splits `first` … `last` − 1."""
    warnings.simplefilter("ignore")
    rows, classes = sp.csr_array(load(path_of(folder))), np.load(folder / newsgroups.CLASSES)
    chosen = (newsgroups.partly_labelled(classes, seed) >= 0 for seed in range(first, last))
    once = method in faces.UNSUPERVISED
    return faces.over_splits(METHODS[method], rows, classes, chosen, n_components, once=once)


def tasks(scale: float) -> tuple[Task, ...]:
    """Each method and K, the splits of those that see labels in portions."""
    count, found = max(2, round(SPLITS * scale)), []
    for method in METHODS:
        step = count if method in faces.UNSUPERVISED else PORTION
        for k in (0,) if method == "full" else faces.COMPONENTS:
            for first in range(0, count, step):
                last = min(first + step, count)
                base = {"method": method, "n_components": k, "first": first, "last": last}
                name = method + (f"-{k}" if k else "") + (f"/{first}-{last - 1}" if step < count else "")
                found.append(Task(name, "benchmarks.cases.newsgroups_classes:errors", base, once=True))
    return tuple(found)


def summarise(rows: list[Row]) -> Summary:
    """Mean and standard deviation per method and space, one column for each K."""
    latest = {row["task"]: row for row in finished(rows)}
    lines = []
    for method, own in grouped(latest.values(), lambda row: row["arguments"]["method"]).items():
        for space in own[0]["errors"]:
            by_k = grouped(own, lambda row: row["arguments"]["n_components"])
            found = {k: [e for row in of_k for e in row["errors"][space]] for k, of_k in by_k.items()}
            cells = [mean_and_spread(found.get(k, found.get(0))) for k in faces.COMPONENTS]
            counts = sorted({len(values) for values in found.values()})
            seconds = sum(row["fit_cpu_seconds"] for row in own)
            lines.append((method, space, *cells, " to ".join(map(str, counts)), f"{seconds:.0f}"))
    headers = ("method", "space of 1-NN", *(f"K = {k}" for k in faces.COMPONENTS), "splits", "processor s")
    text = (
        "Errors of the nearest labelled document on all others, mean ± standard deviation over the splits; tf-idf, "
        "rows of length 1; `full` are all words. The processor seconds are those of all spaces and K of a method "
        "together. LDA and PLS see the labelled rows alone, by coordinates in their span."
    )
    return Summary("\n\n".join([markdown(headers, lines), text, not_run(rows)]).rstrip())


CASE = Case(
    "newsgroups-classes",
    "20 Newsgroups, 50 random splits with 5 labelled documents per class, 1-NN error on the others",
    "benchmarks.cases.newsgroups_classes:prepare",
    tasks,
    summarise,
)
