"""Papers with edges and 5 or 20 labels a class: accuracy on the others from the words, the edges, and both.

The data are those of `citations`.  Needs DLATENT_DATA with the same five files.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from benchmarks.cases.citations import HEADLINE
from benchmarks.cases.citations_spaces import graph_data, unit_rows
from benchmarks.cases.few_labels import PORTION, SPLITS, mean_and_error, some_labelled
from benchmarks.cases.newsgroups_classes import span_coordinates
from benchmarks.processes import Stopwatch
from benchmarks.table import grouped, markdown, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

Array = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

SOURCES = ("cora", "cora-ml-titles")
EACH = (5, 20)
SMOOTHED, COMPONENTS = 50, 20
"""Components of GraphPPCA, and of supervised PPCA of its scores, or of the words."""
STEPS, KEPT = 100, 0.9
"""Of label spreading: its steps, and the weight of the neighbours."""
OURS = "GraphPPCA, S²PPCA"


class Setting(NamedTuple):
    """What a method sees: words (N, D), edges (N, N), the scores of GraphPPCA (N, K) in units of the features, class
    numbers (N,), and which rows are labelled."""

    rows: sp.csr_array
    graph: sp.csr_array
    scores: Array
    codes: Codes
    labelled: Mask

    @property
    def known(self) -> Codes:
        """The class numbers, −1 where there is no label."""
        return np.where(self.labelled, self.codes, -1)


Method = Callable[[Setting], Codes]
"""The class numbers (N,) that a method tells."""


def smoothed_scores(rows: sp.csr_array, graph: sp.csr_array) -> Array:
    """Scores of GraphPPCA with the edges."""
    from dlatent import GraphPPCA

    return np.asarray(GraphPPCA(SMOOTHED, zero_rows="keep").fit_transform(rows, graph=graph))


def supervised(rows: Any, known: Codes) -> Codes:
    """What semi-supervised PPCA tells."""
    from dlatent import SupervisedPPCA

    return np.asarray(SupervisedPPCA(COMPONENTS, zero_rows="keep").fit(rows, known).predict(rows))


def divided(graph: sp.csr_array) -> sp.csr_array:
    """D^(−½) A D^(−½)."""
    degrees = graph.sum(axis=1)
    roots = np.where(degrees > 0.0, 1.0 / np.sqrt(np.maximum(degrees, 1e-300)), 0.0)
    return sp.csr_array(sp.diags_array(roots) @ graph @ sp.diags_array(roots))


def label_spreading(given: Setting) -> Codes:
    """F ← 0.9 S F + 0.1 Y (Zhou et al. 2004), of the edges alone."""
    step, told = divided(given.graph), (given.known[:, None] == np.unique(given.codes)).astype(float)
    found = told
    for _ in range(STEPS):
        found = KEPT * (step @ found) + (1.0 - KEPT) * told
    return np.asarray(found.argmax(axis=1))


def averaged_words(given: Setting) -> Codes:
    """SGC (Wu et al. 2019): logistic regression on rows after two steps of (D + I)^(−½)(A + I)(D + I)^(−½); its
    penalty by 5-fold cross-validation."""
    from sklearn.linear_model import LogisticRegressionCV

    step = divided(sp.csr_array(given.graph + sp.eye_array(given.graph.shape[0])))
    rows = span_coordinates(sp.csr_array(step @ (step @ given.rows)), given.labelled)
    model = LogisticRegressionCV(Cs=9, cv=5, max_iter=1000, scoring="accuracy")
    return np.asarray(model.fit(rows[given.labelled], given.codes[given.labelled]).predict(rows))


METHODS: dict[str, Method] = {
    "S²PPCA, words": lambda given: supervised(given.rows, given.known),
    "label spreading": label_spreading,
    "SGC": averaged_words,
    OURS: lambda given: supervised(given.scores, given.known),
}


def measures(folder: Path, scale: float, data: str, each: int, first: int, last: int) -> Row:
    """Accuracies of every method on the unlabelled rows of the splits `first` … `last` − 1."""
    warnings.simplefilter("ignore")
    documents = graph_data(folder, data, HEADLINE)
    rows, codes = unit_rows(documents.features), np.unique(documents.classes, return_inverse=True)[1]
    targets, found = np.eye(codes.max() + 1)[codes], dict[str, list[float]]()
    with Stopwatch() as watch:
        scores = smoothed_scores(rows, documents.graph)
        for seed in range(first, last):
            given = Setting(rows, documents.graph, scores, codes, some_labelled(targets, each, seed))
            for name, method in METHODS.items():
                right = (method(given) == codes)[~given.labelled]
                found.setdefault(name, []).append(float(right.mean()))
    return {"fit_seconds": watch.seconds, "accuracies": found}


def tasks(scale: float) -> tuple[Task, ...]:
    """Each data set and number of labels, the splits in portions."""
    count, found = max(2, round(SPLITS * scale)), []
    for data in SOURCES:
        for each in EACH:
            for first in range(0, count, PORTION):
                arguments = {"data": data, "each": each, "first": first, "last": min(first + PORTION, count)}
                name = f"{data}-{each}/{first}"
                found.append(Task(name, "benchmarks.cases.few_labels_graph:measures", arguments, once=True))
    return tuple(found)


def summarise(rows: list[Row]) -> Summary:
    """Mean accuracies ± standard error; whether words and edges together are ahead of the others."""
    latest = {row["task"]: row for row in finished(rows)}.values()
    lines, checks = [], list[Check]()
    for (data, each), own in grouped(latest, lambda row: (row["arguments"]["data"], row["arguments"]["each"])).items():
        values = {name: [one for row in own for one in row["accuracies"][name]] for name in METHODS}
        lines.append((data, each, len(values[OURS]), *map(mean_and_error, values.values())))
        for name, others in values.items():
            if name != OURS:
                gain = float(np.mean(values[OURS]) - np.mean(others))
                checks.append(Check(f"{data}, {each} labels: {gain:+.3f} beside {name} (ahead)", gain > 0.0))
    table = markdown(("data", "labels a class", "splits", *METHODS), lines)
    return Summary("\n\n".join(filter(None, [table, not_run(rows)])), tuple(checks))


CASE = Case(
    "few-labels-graph",
    "papers with edges and 5 or 20 labels a class: accuracy on the others from words, edges, and both",
    "benchmarks.cases.citations:prepare",
    tasks,
    summarise,
)
