"""Kernel models beside the linear ones: 1-NN error in the latent space, on faces and on 20 Newsgroups.

The protocol is that of Yu, Yu, Tresp, Kriegel and Wu (2006), Table 2: few labelled rows of each class, the error of the
nearest labelled row on the others.  Needs DLATENT_DATA with orl_32x32.npz, yale_32x32.npz and newsgroups20.npz.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from benchmarks.cases import faces, newsgroups
from benchmarks.stored import load, path_of
from benchmarks.table import grouped, markdown, mean_and_spread, not_run
from benchmarks.task import Case, Row, Summary, Task, finished

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

COMPONENTS = (5, 10, 20)
FACES, WORDS = ("orl", "yale"), ("newsgroups",)
LANDMARKS = 1000
"""Of 20 Newsgroups, where a line with landmarks stands beside the exact kernel of 400 million entries."""


class Model(NamedTuple):
    """Options of a kernel (none: a linear model), the data sets that it is measured on, and the splits of faces."""

    options: dict[str, Any]
    data: tuple[str, ...] = FACES + WORDS
    splits: int = 50


TUNED = "kernel-s2ppca-rbf-tuned"
MODELS = {
    "rows": Model({}),
    "ppca": Model({}),
    "kernel-ppca-rbf": Model({"kernel": "rbf"}),
    "kernel-ppca-cosine": Model({"kernel": "cosine"}),
    "s2ppca": Model({}),
    "kernel-s2ppca-rbf": Model({"kernel": "rbf"}),
    "kernel-s2ppca-cosine": Model({"kernel": "cosine"}, splits=10),
    "kernel-s2ppca-laplacian": Model({"kernel": "laplacian"}, FACES),
    TUNED: Model({"kernel": "rbf"}, FACES, splits=10),
    "kernel-s2ppca-rbf-landmarks": Model({"kernel": "rbf", "landmarks": LANDMARKS}, WORDS),
}
SPLITS_OF_WORDS = 5
PORTION = 10
"""Splits of faces in a task; a fit to all words is a task of its own."""
FACTORS = (0.25, 1.0, 4.0, 16.0, 64.0)
"""γ of the tuned model over that of the median heuristic."""
SLAB = 500
"""Rows of a kernel that are computed at a time."""


def prepare(folder: Path, scale: float) -> Row:
    """The faces as in the case `faces`, and all of 20 Newsgroups as in `newsgroups`: the scale is one of splits."""
    return {"faces": faces.prepare(folder, scale), **newsgroups.prepare(folder, 1.0)}


def splits(data: str, classes: Labels, first: int, last: int) -> Iterator[Mask]:
    """Which rows are labelled in the splits `first` … `last` − 1; the same for every model."""
    if data in FACES:
        yield from islice(faces.splits(classes, last), first, None)
        return
    for seed in range(first, last):
        yield newsgroups.partly_labelled(classes, seed) >= 0


def read(folder: Path, data: str) -> tuple[Any, Labels]:
    """Rows of unit length, and their classes."""
    if data == "newsgroups":
        return sp.csr_array(load(path_of(folder))), np.load(folder / newsgroups.CLASSES)
    stored = np.load(folder / f"{data}.npz")
    images = stored["images"]
    return images / np.linalg.norm(images, axis=1, keepdims=True), stored["classes"]


def default_kernel(name: str, rows: Any) -> Any:
    """The kernel with the γ that `gamma="median"` takes."""
    from dlatent.operators.kernels import Kernel, median_gamma
    from dlatent.solvers.kernel.solver import SAMPLE, chosen_rows

    return Kernel(name, median_gamma(name, rows[chosen_rows(rows.shape[0], SAMPLE, 0)]))


def written_kernel(folder: Path, kernel: Any, rows: Any) -> Array:
    """K (N, N) as a file that is mapped into memory; the first call computes it, for all fits of all tasks."""
    place = folder / f"kernel-{kernel.name}.npy"
    if not place.exists():
        count, scratch = rows.shape[0], place.with_suffix(".part")
        found = np.lib.format.open_memmap(scratch, mode="w+", dtype=np.float64, shape=(count, count))
        for start in range(0, count, SLAB):
            found[start : start + SLAB] = kernel(rows[start : start + SLAB], rows)
        found.flush()
        scratch.rename(place)
    return np.asarray(np.load(place, mmap_mode="r"))


def estimator(model: str, k: int, **more: Any) -> Any:
    """The model, not fitted."""
    from dlatent import PPCA, KernelPPCA, KernelSupervisedPPCA, SupervisedPPCA

    options = MODELS[model].options
    if not options:
        return {"ppca": PPCA, "s2ppca": SupervisedPPCA}[model](k)
    return (KernelSupervisedPPCA if "s2ppca" in model else KernelPPCA)(k, **(options | more))


def tuned(k: int, rows: Array, targets: Labels, labelled: Mask) -> Any:
    """The model fitted with the best γ of a grid: halves of the labelled rows are held out in turn, one of each class,
    and all unlabelled rows are always there."""
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    known, middle = np.flatnonzero(labelled), default_kernel("rbf", rows).gamma
    held = [known[part] for _, part in StratifiedKFold(2).split(known, targets[known])]
    cuts = [(np.setdiff1d(np.arange(len(rows)), part), part) for part in held]
    model = estimator(TUNED, k, zero_rows="keep")
    search = GridSearchCV(model, {"gamma": [middle * factor for factor in FACTORS]}, scoring="accuracy", cv=cuts)
    return search.fit(rows, targets).best_estimator_


def kernel_facts(kernel: Any, rows: Any) -> Row:
    """How far a kernel is from the inner product: its 5, 50 and 95 % quantiles over pairs of different rows, and the
    part of its variance over these pairs that a linear function of ⟨x, x'⟩ explains."""
    from sklearn.metrics.pairwise import linear_kernel

    from dlatent.solvers.kernel.solver import SAMPLE, chosen_rows

    some = rows[chosen_rows(rows.shape[0], SAMPLE, 0)]
    pairs = np.triu_indices(some.shape[0], 1)
    values, products = kernel(some, some)[pairs], linear_kernel(some)[pairs]
    correlation = np.corrcoef(values, products)[0, 1]
    return {"quantiles": np.quantile(values, (0.05, 0.5, 0.95)).tolist(), "linear_part": float(correlation**2)}


def errors(folder: Path, scale: float, data: str, model: str, n_components: int, first: int, last: int) -> Row:
    """1-NN errors of one model over the splits `first` … `last` − 1, in the posterior means E[z|x]."""
    warnings.simplefilter("ignore")
    rows, classes = read(folder, data)
    options, supervised = MODELS[model].options, "s2ppca" in model
    kernel = default_kernel(options["kernel"], rows) if options else None
    given, more, fits = rows, dict[str, Any](), list[Row]()
    if kernel is not None and data in WORDS and "landmarks" not in options:
        given, more = written_kernel(folder, kernel, rows), {"kernel": "precomputed", "solver": "recomputed"}
        if kernel.name == "cosine":
            more["feature_dimension"] = rows.shape[1]  # of which a given kernel does not tell

    def space(x: Any, classes: Labels, labelled: Mask, k: int) -> dict[str, Any]:
        if model == "rows":
            return {model: x}
        targets = np.where(labelled, classes, -1)
        if model == TUNED:
            found = tuned(k, x, targets, labelled)
        else:
            found = estimator(model, k, **more).fit(x, *((targets,) if supervised else ()))
        fits.append(facts(found))
        return {model: np.asarray(found.transform(x))}

    chosen = splits(data, classes, first, last)
    found = faces.over_splits(space, given, classes, chosen, n_components, once=not supervised)
    row = found | {"errors": found["errors"][model]} | (fits[-1] if fits else {})
    if kernel is None:
        return row
    gammas = [kernel.gamma] if more else [fit["gamma"] for fit in fits]
    return row | kernel_facts(kernel, rows) | ({"gammas": gammas} if kernel.name != "cosine" else {})


def facts(model: Any) -> Row:
    """What a fitted model says of itself."""
    return {
        "gamma": getattr(model, "gamma_", None),
        "trace_error": float(getattr(model, "trace_error_", 0.0)),
        "passes": model.n_passes_,
        "solver": model.plan_["solver"],
        "noise_variance": float(model.noise_variance_),
    }


def tasks(scale: float) -> tuple[Task, ...]:
    """Every data set, model and K, the splits of models that see labels in portions: no process runs for long."""
    found = []
    for data in FACES + WORDS:
        for model in (name for name, one in MODELS.items() if data in one.data):
            count = max(2, round(scale * (SPLITS_OF_WORDS if data in WORDS else MODELS[model].splits)))
            step = (1 if data in WORDS else PORTION) if "s2ppca" in model else count
            for k in (0,) if model == "rows" else COMPONENTS:
                for first in range(0, count, step):
                    last = min(first + step, count)
                    base = {"data": data, "model": model, "n_components": k, "first": first, "last": last}
                    name = f"{data}/{model}" + (f"-{k}" if k else "") + (f"/{first}" if step < count else "")
                    found.append(Task(name, "benchmarks.cases.kernels:errors", base, once=True))
    return tuple(found)


def summarise(rows: list[Row]) -> Summary:
    """One line per data set and model, with the errors at each K; and what the kernels are like."""
    parts = []
    latest = {row["task"]: row for row in finished(rows)}
    for data, own in grouped(latest.values(), lambda row: row["arguments"]["data"]).items():
        lines, kernels = [], {}
        for model, of_model in grouped(own, lambda row: row["arguments"]["model"]).items():
            by_k = grouped(of_model, lambda row: row["arguments"]["n_components"])
            errors_of = {k: [error for row in of_k for error in row["errors"]] for k, of_k in by_k.items()}
            cells = [mean_and_spread(errors_of.get(k, errors_of.get(0))) for k in COMPONENTS]
            last, counts = of_model[-1], " to ".join(map(str, sorted({len(found) for found in errors_of.values()})))
            lines.append((model, *cells, counts, _gammas(of_model), last.get("trace_error") or None,
                          sum(row["fit_cpu_seconds"] for row in of_model)))  # fmt: skip
            if "linear_part" in last and "landmarks" not in model and model != TUNED:
                kernels[MODELS[model].options["kernel"]] = (*last["quantiles"], last["linear_part"])
        headers = ("model", *(f"error at K = {k}" for k in COMPONENTS), "splits", "γ", "trace error", "processor s")
        parts.append(f"**{data}**\n\n" + markdown(headers, lines))
        about = ("kernel", "5 %", "50 %", "95 %", "linear part of its variance")
        parts.append(markdown(about, [(name, *values) for name, values in kernels.items()]))
    parts.append(
        "Errors of the nearest labelled row on the others, mean ± standard deviation over the splits, in the posterior "
        "means; `rows` are the images or words themselves. Rows have unit length, so that the cosine kernel is the "
        "linear one, and its lines stand beside those of the linear models as a check. The second table has quantiles "
        "of k(x, x') over pairs of different rows, and the part of its variance over these pairs that a linear "
        "function of ⟨x, x'⟩ explains: where that is near 1, a kernel has little to add. The tuned γ is the best of "
        f"{', '.join(f'{f:g}' for f in FACTORS)} times the median heuristic at guessing the classes of one half of the "
        "labelled rows from the other half and the unlabelled rows."
    )
    return Summary("\n\n".join([*parts, not_run(rows)]).rstrip())


def _gammas(rows: list[Row]) -> str | None:
    values = sorted({float(f"{value:.3g}") for row in rows for value in row.get("gammas", [])})
    return " to ".join(f"{value:g}" for value in (values if len(values) < 2 else (values[0], values[-1]))) or None


CASE = Case(
    "kernels",
    "kernel models beside linear ones: faces with 2 labelled images per person, newsgroups with 5 documents per class",
    "benchmarks.cases.kernels:prepare",
    tasks,
    summarise,
)
