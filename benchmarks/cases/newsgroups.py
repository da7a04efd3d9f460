"""20 Newsgroups with 5 labelled documents per class: how many passes to the optimum, beside plain EM.

Needs the environment variable DLATENT_DATA: a folder with newsgroups20.npz (counts as CSR parts, classes as `y`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.cluster import fitted, local_cluster
from benchmarks.external import data_file
from benchmarks.pictures import gaps
from benchmarks.processes import Stopwatch
from benchmarks.stored import path_of, size_on_disk
from benchmarks.table import grouped, largest, markdown, mebibytes, middle, not_run, ratio
from benchmarks.task import Case, Check, Row, Summary, Task, finished

FILE = "newsgroups20.npz"
CLASSES = "classes.npy"
PER_CLASS = 5
COMPONENTS = (10, 20)
LABEL_SEEDS = (0, 1, 2)
STARTS = (1, 2, 3)
EM_PASSES = 1500
LEVELS = {1e-8: 10, 1e-10: 13}
"""Relative distances from the best known log-likelihood, and the most passes allowed to get there."""


def prepare(folder: Path, scale: float) -> Row:
    """Ingest the counts as tf-idf with rows of length one; a scale below 1 takes a random part of the documents."""
    import scipy.sparse as sp

    from dlatent import ingest

    raw = np.load(data_file(FILE), allow_pickle=False)
    counts = sp.csr_array((raw["X_data"], raw["X_indices"], raw["X_indptr"]), shape=tuple(raw["X_shape"]))
    classes = raw["y"]
    if scale < 1:
        chosen = np.sort(np.random.default_rng(0).permutation(len(classes))[: round(scale * len(classes))])
        counts, classes = counts[chosen], classes[chosen]
    source = folder / "counts.npz"
    sp.save_npz(source, counts)
    report = ingest(source, path_of(folder), weighting="tfidf", unit_norm=True, overwrite=True)
    source.unlink()
    np.save(folder / CLASSES, classes)
    return {
        "shape": list(report.shape),
        "nonzeros": report.nnz,
        "stored_bytes": size_on_disk(path_of(folder)),
        "classes": len(np.unique(classes)),
    }


def partly_labelled(classes: npt.NDArray[Any], seed: int, per_class: int = PER_CLASS) -> npt.NDArray[np.int64]:
    """The classes of `per_class` random documents of each class, and −1 for all others."""
    rng = np.random.default_rng(seed)
    labels = np.full(len(classes), -1, dtype=np.int64)
    for name in np.unique(classes):
        chosen = rng.permutation(np.flatnonzero(classes == name))[:per_class]
        labels[chosen] = name
    return labels


def fit(
    folder: Path,
    scale: float,
    model: str,
    n_components: int,
    labels_seed: int,
    variant: str,
    random_state: int = 0,
) -> Row:
    """One fit on two worker processes. `variant`: default tolerance, tight (1e-13), or em (one pass per iteration)."""
    from dlatent import PPCA, SupervisedPPCA

    options: dict[str, Any] = {"random_state": random_state}
    if variant == "tight":
        options |= {"tol": 1e-13, "max_iter": 60}
    if variant == "em":
        # A tolerance that no step meets, so that EM makes all its passes.
        options |= {"solver": "em", "tol": 1e-300, "max_iter": max(20, round(EM_PASSES * scale))}
    kind = PPCA if model == "ppca" else SupervisedPPCA
    labels = None if model == "ppca" else partly_labelled(np.load(folder / CLASSES), labels_seed)
    with local_cluster() as client:
        found, row = fitted(kind(n_components, **options), path_of(folder), labels, client)
    if labels is not None:
        row["target_noise_variance"] = float(found.target_noise_variance_)
    if variant == "em":
        row.pop("pass_seconds"), row.pop("pass_names")
    return row


def decode(folder: Path, scale: float) -> Row:
    """The same store through the same engine, with a block function that only loads; cold, without a cache."""
    from dlatent import open_data
    from dlatent.engine.connect import connect
    from dlatent.passes import Pass

    source = open_data(path_of(folder))
    with local_cluster() as client, connect(source, client=client, cache_bytes=0) as engine:
        engine.run(Pass(rows_of, None, name="warm"))  # the first pass imports code on the workers
        with Stopwatch() as watch:
            engine.run(Pass(rows_of, None, name="load"))
        read = engine.passes[-1].bytes_read
    return {"fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds, "bytes_read": read, "passes": 1}


def rows_of(block: Any, parameters: None) -> int:
    """A block function that does nothing with the loaded rows."""
    return int(block.rows)


def _variants(model: str, k: int, seed: int) -> list[Task]:
    label = f"{model}-{k}" + ("" if model == "ppca" else f"-labels{seed}")
    base = {"model": model, "n_components": k, "labels_seed": seed}
    function = "benchmarks.cases.newsgroups:fit"
    found = [
        Task(f"{label}/fit", function, {**base, "variant": "default"}),
        Task(f"{label}/tight", function, {**base, "variant": "tight"}, once=True),
        Task(f"{label}/em", function, {**base, "variant": "em"}, once=True),
    ]
    for start in STARTS if seed == 0 else STARTS[:1]:
        arguments = {**base, "variant": "tight", "random_state": start}
        found.append(Task(f"{label}/start{start}", function, arguments, once=True))
    return found


def tasks(scale: float) -> tuple[Task, ...]:
    """PPCA and S²PPCA for each K and choice of labels: default, tight, other starts, plain EM; and the limits."""
    found = [
        Task("limit-load", "benchmarks.cases.newsgroups:decode"),
        Task("limit-sparse-pass", "benchmarks.methods.limits:sparse_pass", {"columns": 20}),
    ]
    for k in COMPONENTS:
        found += _variants("ppca", k, 0)
        for seed in LABEL_SEEDS:
            found += _variants("s2ppca", k, seed)
    return tuple(found)


def pass_reaching(trace: list[float], best: float, level: float) -> int | None:
    """The first pass (from 1) at which the log-likelihood is within `level`, relatively, of the best."""
    within = [index for index, value in enumerate(trace, 1) if best - value <= level * abs(best)]
    return within[0] if within else None


def _problem(row: Row) -> str:
    return str(row["task"]).partition("/")[0]


def _variant(row: Row) -> str:
    return str(row["task"]).partition("/")[2]


def summarise(rows: list[Row]) -> Summary:
    """One line per model, K and choice of labels, and the requirements."""
    fits = [row for row in finished(rows) if "/" in row["task"]]
    lines, checks = [], []
    for problem, own in grouped(fits, _problem).items():
        by = grouped(own, _variant)
        best = max(own, key=lambda row: row["log_likelihood"])
        tight = (by.get("tight") or by.get("fit") or own)[0]
        reached = {level: pass_reaching(tight["trace"], best["log_likelihood"], level) for level in LEVELS}
        lines.append(_line(problem, by, best, reached))
        for level, most in LEVELS.items():
            at = reached[level]
            said = f"{problem}: within {level:g} of the best known at pass {at or 'none'} (at most {most})"
            checks.append(Check(said, at is not None and at <= most))
    headers = (
        "problem", "best log-likelihood", "found by", "pass at 1e-8", "at 1e-10", "passes of a fit", "its gap",
        "fit s", "EM s", "EM passes", "gap of EM", "× EM", "worst start", "worker MiB", "projected",
    )  # fmt: skip
    limits = [row for row in finished(rows) if row["task"].startswith("limit")]
    limit_lines = [(row["task"], row["fit_seconds"], row["fit_cpu_seconds"]) for row in limits]
    text = markdown(headers, lines) + "\n\n" + markdown(("limit", "s", "processor s"), limit_lines)
    return Summary((text + "\n\n" + _explanation() + "\n\n" + not_run(rows)).rstrip(), tuple(checks))


def _explanation() -> str:
    return (
        "Passes at 1e-8 and 1e-10 are those of the tight fit, whose path is that of the default fit; a fit ends with "
        "one more pass that evaluates the likelihood on the data. Gaps are relative to the best log-likelihood of all "
        "runs of the problem. EM is plain EM with one pass per iteration on the same engine, all its passes timed."
    )


def _line(problem: str, by: dict[str, list[Row]], best: Row, reached: dict[float, int | None]) -> tuple[Any, ...]:
    top = best["log_likelihood"]

    def gap(rows: list[Row]) -> float | None:
        return max(((top - row["log_likelihood"]) / abs(top) for row in rows), default=None)

    default, em = by.get("fit", []), by.get("em", [])
    starts = [row for name, own in by.items() if name.startswith("start") for row in own]
    speed = ratio(default, em)
    return (
        problem,
        f"{top:.6f}",
        _variant(best),
        *reached.values(),
        middle(default, "passes"),
        gap(default),
        middle(default, "fit_seconds"),
        middle(em, "fit_seconds"),
        len(em[0]["trace"]) if em else None,
        gap(em),
        None if speed is None else f"1/{1 / speed:.0f}",
        gap(starts),
        mebibytes(largest(default, "peak_worker_rss")),
        mebibytes(default[0]["plan"]["worker_memory"]) if default else None,
    )


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """Gaps pass by pass, tight fit against EM."""
    drawn = []
    fits = [row for row in finished(rows) if "/" in row["task"]]
    for problem, own in grouped(fits, _problem).items():
        if problem.endswith(("labels1", "labels2")):
            continue
        top = max(row["log_likelihood"] for row in own)
        traces = {_variant(row): row["trace"] for row in own if _variant(row) in ("tight", "em")}
        path = folder / f"newsgroups-{problem}.png"
        drawn.append(gaps(traces, dict.fromkeys(traces, top), path, f"20 Newsgroups, {problem}"))
    return drawn


CASE = Case(
    "newsgroups",
    "20 Newsgroups, tf-idf, 5 labelled documents per class, two worker processes",
    "benchmarks.cases.newsgroups:prepare",
    tasks,
    summarise,
    draw=draw,
)
