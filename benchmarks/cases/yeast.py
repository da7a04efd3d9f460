"""Yeast, 14 functional groups of genes at once: F1 and AUC of a linear classifier in the space of each method.

Source: Yu, Yu, Tresp, Kriegel and Wu (2006), Table 3.  Needs DLATENT_DATA with yeast_multilabel.npz.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.cases.citations_spaces import PENALTY, unit_scale
from benchmarks.cases.faces import POSTERIOR, PRINCIPAL, along_axes
from benchmarks.external import data_file
from benchmarks.processes import Stopwatch
from benchmarks.table import grouped, markdown, mean_and_spread, not_run
from benchmarks.task import Case, Row, Summary, Task, finished

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Embedding = Callable[[Array, Array, Mask, int], dict[str, Array]]
"""Genes (N, D), groups (N, L) as 0 and 1, labelled rows, K → embeddings (N, K') by name of the space."""

FILE = "yeast_multilabel.npz"
COMPONENTS = (5, 10, 20)
SPLITS = 50
PER_GROUP = 5
FEW, USUAL = "five per group", "usual split"
MEASURES = ("F1-macro", "F1-micro", "AUC")


def prepare(folder: Path, scale: float) -> Row:
    """Copy the genes as float64, which come with rows of length 1, beside their groups."""
    raw = np.load(data_file(FILE), allow_pickle=False)
    np.savez(folder / "yeast", genes=raw["X"].astype(np.float64), groups=raw["Y"].astype(np.float64), n=raw["n_train"])
    return {"shape": list(raw["X"].shape), "groups": int(raw["Y"].shape[1]), "of_each": raw["Y"].sum(axis=0).tolist()}


def few_labelled(groups: Array, count: int) -> Iterator[Mask]:
    """Which genes are labelled: five random members of each group, who may be members of others; all their groups are
    known."""
    for seed in range(count):
        rng = np.random.default_rng(seed)
        labelled = np.zeros(len(groups), dtype=bool)
        for members in groups.T:
            labelled[rng.permutation(np.flatnonzero(members))[:PER_GROUP]] = True
        yield labelled


def full(genes: Array, groups: Array, labelled: Mask, k: int) -> dict[str, Array]:
    """All features."""
    return {"features": genes}


def pca(genes: Array, groups: Array, labelled: Mask, k: int) -> dict[str, Array]:
    """Principal components of all genes."""
    from dlatent import PPCA

    model = PPCA(k, whiten=True).fit(genes)
    return {PRINCIPAL: along_axes(genes, model), POSTERIOR: np.asarray(model.transform(genes))}


def pls(genes: Array, groups: Array, labelled: Mask, k: int) -> dict[str, Array]:
    """Partial least squares of the labelled genes against their groups."""
    from sklearn.cross_decomposition import PLSRegression

    return {"scores": PLSRegression(k, scale=False).fit(genes[labelled], groups[labelled]).transform(genes)}


def sppca(genes: Array, groups: Array, labelled: Mask, k: int) -> dict[str, Array]:
    """Supervised PPCA of the labelled genes alone."""
    from dlatent import SupervisedPPCA

    model = SupervisedPPCA(k, target_type="multilabel", whiten=True).fit(genes[labelled], groups[labelled])
    return {PRINCIPAL: along_axes(genes, model), POSTERIOR: np.asarray(model.transform(genes))}


def s2ppca(genes: Array, groups: Array, labelled: Mask, k: int) -> dict[str, Array]:
    """Semi-supervised PPCA of all genes, with the groups of the labelled ones."""
    from dlatent import SupervisedPPCA

    model = SupervisedPPCA(k, target_type="multilabel", whiten=True).fit(
        genes, np.where(labelled[:, None], groups, np.nan)
    )
    return {PRINCIPAL: along_axes(genes, model), POSTERIOR: np.asarray(model.transform(genes))}


METHODS: dict[str, Embedding] = {"full": full, "pca": pca, "pls": pls, "sppca": sppca, "s2ppca": s2ppca}


def measured(space: Array, groups: Array, labelled: Mask) -> dict[str, float]:
    """What linear support vector machines, one for each group, learn from labelled genes and tell of the others."""
    from sklearn.metrics import f1_score, roc_auc_score
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import LinearSVC

    machine = LinearSVC(C=PENALTY, dual="auto", max_iter=20_000, random_state=0)
    scaled, truth = unit_scale(space), groups[~labelled].astype(int)
    values = OneVsRestClassifier(machine).fit(scaled[labelled], groups[labelled]).decision_function(scaled[~labelled])
    return {
        "F1-macro": float(f1_score(truth, values > 0, average="macro", zero_division=0)),
        "F1-micro": float(f1_score(truth, values > 0, average="micro", zero_division=0)),
        "AUC": float(roc_auc_score(truth, values, average="macro")),
    }


def scores(folder: Path, scale: float, method: str, n_components: int, labels: str) -> Row:
    """F1 and AUC of one method, per space: over random splits with few labels, or once with the usual training part."""
    warnings.simplefilter("ignore")
    stored = np.load(folder / "yeast.npz")
    genes, groups = stored["genes"], stored["groups"]
    usual = np.arange(len(genes)) < int(stored["n"])
    chosen = [usual] if labels == USUAL else few_labelled(groups, max(2, round(SPLITS * scale)))
    found: dict[str, dict[str, list[float]]] = {}
    known = []
    with Stopwatch() as watch:
        for labelled in chosen:
            known.append(int(labelled.sum()))
            for space, values in METHODS[method](genes, groups, labelled, n_components).items():
                for measure, value in measured(values, groups, labelled).items():
                    found.setdefault(space, {}).setdefault(measure, []).append(value)
    return {"fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds, "scores": found, "labelled": known}


def tasks(scale: float) -> tuple[Task, ...]:
    """Each choice of labelled genes, method and K."""
    found = []
    for labels in (FEW, USUAL):
        for method in METHODS:
            for k in (0,) if method == "full" else COMPONENTS:
                base = {"method": method, "n_components": k, "labels": labels}
                name = f"{'few' if labels == FEW else 'usual'}/{method}" + (f"-{k}" if k else "")
                found.append(Task(name, "benchmarks.cases.yeast:scores", base, once=True))
    return tuple(found)


def summarise(rows: list[Row]) -> Summary:
    """One table for each choice of labels and measure, one column for each K."""
    parts = []
    for labels, own in grouped(finished(rows), lambda row: row["arguments"]["labels"]).items():
        known = {size for row in own for size in row["labelled"]}
        sizes = " to ".join(map(str, sorted({min(known), max(known)})))
        for measure in MEASURES:
            lines = []
            for method, of_method in grouped(own, lambda row: row["arguments"]["method"]).items():
                by_k = {row["arguments"]["n_components"]: row["scores"] for row in of_method}
                for space in of_method[-1]["scores"]:
                    cells = [by_k.get(k, by_k.get(0)) for k in COMPONENTS]
                    lines.append((method, space, *(mean_and_spread(cell and cell[space][measure]) for cell in cells)))
            title = f"**{measure}, {labels}** ({sizes} labelled genes)"
            headers = ("method", "space", *(f"K = {k}" for k in COMPONENTS))
            parts.append(title + "\n\n" + markdown(headers, lines))
    parts.append(
        "Mean ± standard deviation over the splits, on the genes that are not labelled; one linear support vector "
        f"machine for each group (C = {PENALTY:g}, scores divided by their root mean square); AUC is the mean over "
        "the groups."
    )
    return Summary("\n\n".join([*parts, not_run(rows)]).rstrip())


CASE = Case(
    "yeast",
    "Yeast genes with several functional groups each: F1-macro, F1-micro and AUC, few labels and the usual split",
    "benchmarks.cases.yeast:prepare",
    tasks,
    summarise,
)
