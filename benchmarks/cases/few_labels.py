"""Few labels a class: error, log-loss and calibration of what supervised PPCA predicts, beside heads on PPCA's scores.

Faces, objects and text with 2 or 5 labelled rows of each class, and Yeast with 5 genes of each functional group.
Needs DLATENT_DATA with orl_32x32.npz, yale_32x32.npz, coil20_32x32.npz, newsgroups20.npz and yeast_multilabel.npz.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from benchmarks.cases import newsgroups, yeast
from benchmarks.external import data_file
from benchmarks.processes import Stopwatch
from benchmarks.stored import load, path_of
from benchmarks.table import grouped, markdown, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Rows = Array | sp.csr_array

IMAGES = {"orl": "orl_32x32.npz", "yale": "yale_32x32.npz", "coil-20": "coil20_32x32.npz"}
TEXT, GENES = "newsgroups", "yeast"
SETTINGS = (*((data, each) for data in IMAGES for each in (2, 5)), (TEXT, 5), (GENES, 5))
"""Data, and how many rows of each class are labelled."""
COMPONENTS = (20, 50)
SPLITS, PORTION = 20, 5
BINS = 15
SURE = 1e-6
"""A probability below this counts as this: a log-loss of 13.8 for each row that it was wrong about."""
MEASURES = ("error", "log-loss", "calibration error")
TODAY = "likelihood"
"""The method that the others must not be worse than: what the paper's model says."""


class Setting(NamedTuple):
    """What a method sees: rows (N, D), their scores by PPCA (N, K), targets (N, C), which rows are labelled, and
    whether the targets are one-of-C."""

    rows: Rows
    scores: Array
    targets: Array
    labelled: Mask
    classes: bool

    @property
    def codes(self) -> npt.NDArray[np.int64]:
        """Class numbers (N,)."""
        return self.targets.argmax(axis=1)


Method = Callable[[Setting], Array]
"""Probabilities (N, C) of the classes or of the labels."""


def prepare(folder: Path, scale: float) -> Row:
    """Images, text and genes, all as rows of length one; the scale is one of splits."""
    shapes = {}
    for name, file in IMAGES.items():
        raw = np.load(data_file(file), allow_pickle=False)
        np.savez(folder / name, rows=raw["X"].astype(np.float64), classes=raw["y"])
        shapes[name] = list(raw["X"].shape)
    shapes[TEXT] = newsgroups.prepare(folder, 1.0)["shape"]
    shapes[GENES] = yeast.prepare(folder, 1.0)["shape"]
    return {"shape": shapes}


def read(folder: Path, data: str) -> tuple[Rows, Array]:
    """Rows of length one, and their targets (N, C)."""
    if data == GENES:
        stored = np.load(folder / "yeast.npz")
        return stored["genes"], stored["groups"]
    if data == TEXT:
        rows, classes = sp.csr_array(load(path_of(folder))), np.load(folder / newsgroups.CLASSES)
    else:
        stored = np.load(folder / f"{data}.npz")
        rows, classes = unit_length(stored["rows"]), stored["classes"]
    return rows, (classes[:, None] == np.unique(classes)).astype(float)


def unit_length(rows: Array) -> Array:
    """Each row divided by its length."""
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300))


def some_labelled(targets: Array, each: int, seed: int) -> Mask:
    """Which rows are labelled: so many random ones of each class or label."""
    rng, labelled = np.random.default_rng(seed), np.zeros(len(targets), dtype=bool)
    for members in targets.T:
        labelled[rng.permutation(np.flatnonzero(members))[:each]] = True
    return labelled


def supervised(**options: Any) -> Method:
    """What SupervisedPPCA says."""

    def probabilities(given: Setting) -> Array:
        from dlatent import SupervisedPPCA

        k = given.scores.shape[1]
        if given.classes:
            model = SupervisedPPCA(k, **options).fit(given.rows, np.where(given.labelled, given.codes, -1))
            return np.asarray(model.predict_proba(given.rows))
        known = np.where(given.labelled[:, None], given.targets, np.nan)
        model = SupervisedPPCA(k, target_type="multilabel", **options).fit(given.rows, known)
        return np.asarray(model.predict_proba(given.rows))

    return probabilities


def evidence(unit: bool) -> Method:
    """Ridge regression of all indicators on the scores, one prior and one noise variance for all, both by evidence."""

    def probabilities(given: Setting) -> Array:
        space = unit_length(given.scores) if unit else given.scores
        known, targets = space[given.labelled], given.targets[given.labelled]
        moved, centred, count = known - known.mean(axis=0), targets - targets.mean(axis=0), centred_size(targets)
        left, values, axes = np.linalg.svd(moved, full_matrices=False)
        along, best = left.T @ centred, (-np.inf, 0.0, 0.0)
        for ratio in np.logspace(-8, 8, 129) / np.mean(values**2):
            kept = 1.0 + ratio * values**2
            noise = float((centred**2).sum() - ((1.0 - 1.0 / kept) @ along**2).sum()) / count
            value = -count * np.log(max(noise, 1e-12)) - count / (len(known) - 1) * np.log(kept).sum()
            best = max(best, (value, float(ratio), noise))
        _, ratio, noise = best
        shrunk = axes.T @ ((ratio * values / (1.0 + ratio * values**2))[:, None] * along)
        found = np.asarray(targets.mean(axis=0) + (space - known.mean(axis=0)) @ shrunk)
        return softmax(found / max(noise, 1e-12)) if given.classes else found

    return probabilities


def centred_size(targets: Array) -> int:
    """Free numbers of targets about their mean: indicators of classes, whose sum is 1, have a column less."""
    return (len(targets) - 1) * (targets.shape[1] - int(np.allclose(targets.sum(axis=1), 1.0)))


def softmax(values: Array) -> Array:
    """Probabilities that are proportional to the exponentials."""
    from scipy.special import softmax as of

    return np.asarray(of(values, axis=1))


def logistic(space: str) -> Method:
    """Logistic regression on the scores, of length √K or as they are, or on the rows."""

    def probabilities(given: Setting) -> Array:
        from sklearn.linear_model import LogisticRegression
        from sklearn.multiclass import OneVsRestClassifier

        k = given.scores.shape[1]
        data = {"u": np.sqrt(k) * unit_length(given.scores), "scores": given.scores, "rows": given.rows}[space]
        model: Any = LogisticRegression(max_iter=2000)
        if given.classes:
            return np.asarray(model.fit(data[given.labelled], given.codes[given.labelled]).predict_proba(data))
        each = OneVsRestClassifier(model).fit(data[given.labelled], given.targets[given.labelled])
        return np.asarray(each.predict_proba(data))

    return probabilities


def shrunk_discriminants(given: Setting) -> Array:
    """Linear discriminant analysis of the scores, the covariance shrunk by the rule of Ledoit and Wolf."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    return np.asarray(model.fit(given.scores[given.labelled], given.codes[given.labelled]).predict_proba(given.scores))


def spreading(given: Setting) -> Array:
    """Label spreading over the 7 nearest neighbours of the scores of length one."""
    from sklearn.semi_supervised import LabelSpreading

    model = LabelSpreading(kernel="knn", n_neighbors=7, max_iter=100)
    model.fit(unit_length(given.scores), np.where(given.labelled, given.codes, -1))
    return np.nan_to_num(np.asarray(model.label_distributions_), nan=1.0 / given.targets.shape[1])


def nearest(given: Setting) -> Array:
    """The class of the labelled row at the smallest angle."""
    space = unit_length(given.scores)
    at = (space @ space[given.labelled].T).argmax(axis=1)
    return np.asarray(given.targets[given.labelled][at])


def least_squares(given: Setting) -> Array:
    """Partial least squares of the rows against the indicators, K directions."""
    from sklearn.cross_decomposition import PLSRegression

    rows, known, targets = given.rows, given.labelled, given.targets
    if not isinstance(rows, np.ndarray):
        from benchmarks.cases.newsgroups_classes import span_coordinates

        rows = span_coordinates(rows, known)
    k = min(given.scores.shape[1], int(known.sum()) - 1, rows.shape[1])
    found = np.asarray(PLSRegression(k, scale=False).fit(rows[known], targets[known]).predict(rows))
    return softmax(found / max(float(np.mean((found[known] - targets[known]) ** 2)), 1e-3)) if given.classes else found


METHODS: dict[str, Method] = {
    TODAY: supervised(head="likelihood"),
    "head auto": supervised(),
    "prior": evidence(unit=False),
    "prior, u": evidence(unit=True),
    "logistic, u": logistic("u"),
    "logistic, scores": logistic("scores"),
    "logistic, rows": logistic("rows"),
    "LDA, shrunk": shrunk_discriminants,
    "label spreading, u": spreading,
    "1-NN, u": nearest,
    "PLS, rows": least_squares,
}
OF_CLASSES = ("LDA, shrunk", "label spreading, u", "1-NN, u")
"""Methods that have no answer to several labels at once."""
NO_PROBABILITIES = ("1-NN, u",)
LARGE = ("label spreading, u",)
"""Methods that are too slow for the largest data."""


def measured(probabilities: Array, targets: Array, *, classes: bool) -> dict[str, float]:
    """Error, log-loss in nats and expected calibration error; of several labels at once the means over the labels."""
    if not classes:
        said, truth = np.clip(probabilities, SURE, 1.0 - SURE), targets > 0.5
        right = (said > 0.5) == truth
        sure, loss = np.maximum(said, 1.0 - said), -np.log(np.where(truth, said, 1.0 - said))
    else:
        right = probabilities.argmax(axis=1) == targets.argmax(axis=1)
        sure = probabilities.max(axis=1)
        loss = -np.log(np.maximum((probabilities * targets).sum(axis=1), SURE))
    return dict(zip(MEASURES, (1.0 - right.mean(), loss.mean(), calibration_error(sure, right)), strict=True))


def calibration_error(sure: Array, right: npt.NDArray[np.bool_]) -> float:
    """Σ over bins of the predicted probability: part of the predictions × |mean probability − part that was right|."""
    at = np.minimum((sure.ravel() * BINS).astype(int), BINS - 1)
    difference = np.bincount(at, sure.ravel() - right.ravel(), minlength=BINS)
    return float(np.abs(difference).sum() / right.size)


def measures(folder: Path, scale: float, data: str, each: int, n_components: int, first: int, last: int) -> Row:
    """Every method on the splits `first` … `last` − 1 of one setting."""
    from dlatent import PPCA

    warnings.simplefilter("ignore")
    rows, targets = read(folder, data)
    classes = data != GENES
    scores = np.asarray(PPCA(n_components, whiten=True).fit_transform(rows))
    found: dict[str, dict[str, list[float]]] = {}
    with Stopwatch() as watch:
        for seed in range(first, last):
            labelled = some_labelled(targets, each, seed)
            given = Setting(rows, scores, targets, labelled, classes)
            for name, method in METHODS.items():
                if (not classes and name in OF_CLASSES) or (data == TEXT and name in LARGE):
                    continue
                for measure, value in measured(method(given)[~labelled], targets[~labelled], classes=classes).items():
                    found.setdefault(name, {}).setdefault(measure, []).append(float(value))
    return {"fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds, "measured": found}


def tasks(scale: float) -> tuple[Task, ...]:
    """Each setting and K, the splits in portions."""
    count, found = max(2, round(SPLITS * scale)), []
    for data, each in SETTINGS:
        for k in COMPONENTS:
            for first in range(0, count, PORTION):
                base = {"data": data, "each": each, "n_components": k, "first": first}
                base["last"] = min(first + PORTION, count)
                name = f"{data}-{each}/{k}/{first}"
                found.append(Task(name, "benchmarks.cases.few_labels:measures", base, once=True))
    return tuple(found)


def summarise(rows: list[Row]) -> Summary:
    """One table for each measure, mean ± standard error; whether methods of dlatent are no worse than `TODAY`."""
    latest = {row["task"]: row for row in finished(rows)}.values()
    settings = grouped(latest, lambda row: tuple(row["arguments"][name] for name in ("data", "each", "n_components")))
    parts, checks = list[str](), list[Check]()
    for measure in MEASURES:
        lines = []
        for (data, each, k), own in settings.items():
            cells = [mean_and_error(values_of(own, name, measure)) for name in METHODS]
            lines.append((data, each, k, len(values_of(own, TODAY, measure)), *cells))
        headers = ("data", "labels a class", "K", "splits", *METHODS)
        parts.append(f"**{measure}**\n\n" + markdown(headers, lines))
    parts.append(
        "Mean ± standard error over the splits, on the rows that are not labelled. All rows have length 1; u: scores "
        f"scaled to length 1. Of yeast the error is that of a label. Probabilities below {SURE:g} count as that."
    )
    for name in METHODS:
        if name.startswith("head "):
            for (data, each, k), own in settings.items():
                gain = np.subtract(values_of(own, TODAY, "error"), values_of(own, name, "error"))
                spread = float(np.std(gain, ddof=1) / np.sqrt(len(gain)))
                said = (
                    f"{name}, {data}, {each} labels, K = {k}: error {-gain.mean():+.3f} ± {spread:.3f} beside {TODAY}"
                )
                checks.append(Check(f"{said} (no worse by more than that)", bool(gain.mean() >= -spread)))
    return Summary("\n\n".join([*parts, not_run(rows)]).rstrip(), tuple(checks))


def values_of(rows: list[Row], method: str, measure: str) -> list[float]:
    """A measure of a method over all splits; nothing where the method has none."""
    if measure != MEASURES[0] and method in NO_PROBABILITIES:
        return []
    return [value for row in rows for value in row["measured"].get(method, {}).get(measure, ())]


def mean_and_error(values: list[float]) -> str | None:
    """Mean ± standard error."""
    if not values:
        return None
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}"


CASE = Case(
    "few-labels",
    "2 or 5 labelled rows a class of faces, objects, text and genes: error, log-loss and calibration on the others",
    "benchmarks.cases.few_labels:prepare",
    tasks,
    summarise,
)
