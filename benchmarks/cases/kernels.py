"""Kernel models beside the linear ones: 1-NN error in the latent space, on faces and on 20 Newsgroups.

The protocol is that of Yu, Yu, Tresp, Kriegel and Wu (2006), Table 2: few labelled rows of each class, the error of the
nearest labelled row on the others.  Needs DLATENT_DATA with orl_32x32.npz, yale_32x32.npz and newsgroups20.npz.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.cases import faces, newsgroups
from benchmarks.processes import Stopwatch
from benchmarks.stored import load, path_of
from benchmarks.table import grouped, markdown, middle, not_run
from benchmarks.task import Case, Row, Summary, Task, finished

Array = npt.NDArray[np.float64]

COMPONENTS = (5, 10, 20)
SPLITS = {"orl": 50, "yale": 50, "newsgroups": 5}
LANDMARKS = 1000
"""Of 20 Newsgroups, whose kernel has 400 million entries."""
MODELS: dict[str, dict[str, Any]] = {
    "rows": {},
    "ppca": {},
    "kernel-ppca-rbf": {"kernel": "rbf"},
    "kernel-ppca-cosine": {"kernel": "cosine"},
    "s2ppca": {},
    "kernel-s2ppca-rbf": {"kernel": "rbf"},
    "kernel-s2ppca-cosine": {"kernel": "cosine"},
    "kernel-s2ppca-laplacian": {"kernel": "laplacian"},
}
NOT_FOR_WORDS = ("kernel-s2ppca-laplacian",)


def prepare(folder: Path, scale: float) -> Row:
    """The faces as in the case `faces`, and all of 20 Newsgroups as in `newsgroups`: the scale is one of splits."""
    return {"faces": faces.prepare(folder, scale), **newsgroups.prepare(folder, 1.0)}


def splits(data: str, classes: npt.NDArray[Any], count: int) -> Iterator[npt.NDArray[np.bool_]]:
    """Which rows are labelled; the same for every model."""
    if data != "newsgroups":
        yield from faces.splits(classes, count)
        return
    for seed in range(count):
        yield newsgroups.partly_labelled(classes, seed) >= 0


def read(folder: Path, data: str) -> tuple[Any, npt.NDArray[Any]]:
    """Rows of unit length, and their classes."""
    if data == "newsgroups":
        return load(path_of(folder)), np.load(folder / newsgroups.CLASSES)
    stored = np.load(folder / f"{data}.npz")
    images = stored["images"]
    return images / np.linalg.norm(images, axis=1, keepdims=True), stored["classes"]


def estimator(model: str, k: int, data: str) -> Any:
    """The model, not fitted."""
    from dlatent import PPCA, KernelPPCA, KernelSupervisedPPCA, SupervisedPPCA

    options = MODELS[model]
    if not options:
        return {"ppca": PPCA, "s2ppca": SupervisedPPCA}[model](k)
    kind = KernelPPCA if "s2ppca" not in model else KernelSupervisedPPCA
    return kind(k, landmarks=LANDMARKS if data == "newsgroups" else None, **options)


def nearest_error(space: Any, classes: npt.NDArray[Any], labelled: npt.NDArray[np.bool_]) -> float:
    """Share of the other rows whose nearest labelled row is of another class; rows of words are sparse."""
    if isinstance(space, np.ndarray):
        return faces.nearest_error(space, classes, labelled)
    # Rows of unit length: the nearest is the one with the largest inner product.
    nearest = (space[~labelled] @ space[labelled].T).toarray().argmax(axis=1)
    return float((classes[labelled][nearest] != classes[~labelled]).mean())


def errors(folder: Path, scale: float, data: str, model: str, n_components: int) -> Row:
    """1-NN errors of one model over the splits, in the posterior means E[z|x]."""
    warnings.simplefilter("ignore")
    rows, classes = read(folder, data)
    found, space, fitted = list[float](), None, None
    with Stopwatch() as watch:
        for labelled in splits(data, classes, max(2, round(SPLITS[data] * scale))):
            if space is None or "s2ppca" in model:
                if model == "rows":
                    space = rows
                else:
                    fitted = estimator(model, n_components, data)
                    fitted.fit(rows, *((np.where(labelled, classes, -1),) if "s2ppca" in model else ()))
                    space = np.asarray(fitted.transform(rows))
            found.append(nearest_error(space, classes, labelled))
    return {
        "fit_seconds": watch.seconds,
        "fit_cpu_seconds": watch.cpu_seconds,
        "errors": found,
        "gamma": float(getattr(fitted, "gamma_", np.nan)),
        "trace_error": float(getattr(fitted, "trace_error_", 0.0)),
        "route": None if fitted is None else fitted._fitted.plan.route,
        "noise_variance": None if fitted is None else float(fitted.noise_variance_),
    }


def tasks(scale: float) -> tuple[Task, ...]:
    """Every data set, model and K."""
    found = []
    for data in SPLITS:
        for model in MODELS:
            if data == "newsgroups" and model in NOT_FOR_WORDS:
                continue
            for k in (0,) if model == "rows" else COMPONENTS:
                name = f"{data}/{model}" + (f"-{k}" if k else "")
                arguments = {"data": data, "model": model, "n_components": k}
                found.append(Task(name, "benchmarks.cases.kernels:errors", arguments, once=True))
    return tuple(found)


def summarise(rows: list[Row]) -> Summary:
    """One line per data set and model, with the errors at each K."""
    parts = []
    done = finished(rows)
    for data, own in grouped(done, lambda row: row["arguments"]["data"]).items():
        lines = []
        for model, of_model in grouped(own, lambda row: row["arguments"]["model"]).items():
            by_k = {row["arguments"]["n_components"]: row for row in of_model}
            cells = [_cell(by_k.get(k, by_k.get(0))) for k in COMPONENTS]
            last = of_model[-1]
            trace = last["trace_error"] or None
            lines.append((model, *cells, last["gamma"] if last["gamma"] == last["gamma"] else None, trace,
                          middle(of_model, "fit_seconds")))  # fmt: skip
        headers = ("model", *(f"error at K = {k}" for k in COMPONENTS), "γ", "trace error", "s for all splits")
        parts.append(f"**{data}**\n\n" + markdown(headers, lines))
    parts.append(
        "Errors of the nearest labelled row on the others, mean ± standard deviation over the splits, in the posterior "
        "means; `rows` are the images or words themselves. Rows have unit length, so that the cosine kernel is the "
        "linear one, and its lines stand beside those of the linear models as a check (on words up to the landmarks)."
    )
    return Summary("\n\n".join([*parts, not_run(rows)]).rstrip())


def _cell(row: Row | None) -> str | None:
    if row is None:
        return None
    return f"{np.mean(row['errors']):.3f} ± {np.std(row['errors'], ddof=1):.3f}"


CASE = Case(
    "kernels",
    "kernel models beside linear ones: faces with 2 labelled images per person, newsgroups with 5 documents per class",
    "benchmarks.cases.kernels:prepare",
    tasks,
    summarise,
)
