"""outliers: directions found among outliers, by PPCA with each of the likelihoods of numbers.

300 rows of 20 features have three components and noise 1.  Some rows are noise alone, eight times as wide; or some
entries are, fifteen times as wide; or all noise is Student's with 1.5 degrees of freedom.  Shown is the mean squared
cosine of the angles between the loadings found and the true ones, over ten data sets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg as la

from benchmarks.processes import Stopwatch
from benchmarks.table import grouped, markdown, middle, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

Array = npt.NDArray[np.float64]
OWN = "benchmarks.cases.outliers"
ROWS, FEATURES, COMPONENTS, SEEDS = 300, 20, 3, 10
KINDS = {
    "clean": (0.0, 0.0),
    "5 % of rows": (0.05, 0.0),
    "20 % of rows": (0.2, 0.0),
    "5 % of entries": (0.0, 0.05),
    "20 % of entries": (0.0, 0.2),
    "t(1.5)": (0.0, 0.0),
}
"""Parts of the rows and of the entries that are outliers."""
LEAST = dict(zip(KINDS, (0.992, 0.988, 0.983, 0.987, 0.978, 0.975), strict=True))
"""What Student's entries are known to reach."""
NEAR = 0.95
"""Part of that which is near enough."""


def made(kind: str, seed: int) -> tuple[Array, Array]:
    """Rows with outliers of a kind, and the loadings."""
    rng, (rows, entries) = np.random.default_rng(seed), KINDS[kind]
    loadings = rng.normal(size=(FEATURES, COMPONENTS))
    noise = rng.standard_t(1.5, (ROWS, FEATURES)) if kind == "t(1.5)" else rng.normal(size=(ROWS, FEATURES))
    x = rng.normal(size=(ROWS, COMPONENTS)) @ loadings.T + noise
    outliers = rng.permutation(ROWS)[: round(rows * ROWS)]
    x[outliers] = 8.0 * rng.normal(size=(len(outliers), FEATURES))
    return np.where(rng.random(x.shape) < entries, 15.0 * rng.normal(size=x.shape), x), loadings


def prepare(folder: Path, scale: float) -> Row:
    """Nothing: data are drawn where they are needed."""
    return {"shape": [ROWS, FEATURES]}


def fits(folder: Path, scale: float, likelihood: str) -> Row:
    """Of each kind the mean squared cosine."""
    from dlatent import PPCA

    found: dict[str, Any] = {}
    with Stopwatch() as watch:
        for kind in KINDS:
            cosines = []
            for seed in range(max(1, round(SEEDS * scale))):
                x, loadings = made(kind, seed)
                own = PPCA(COMPONENTS, likelihood=likelihood).fit(x, client="serial").components_.T
                cosines.append(np.square(la.svdvals(la.orth(own).T @ la.orth(loadings))).mean())
            found[kind] = float(np.mean(cosines))
    return {"fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds, **found}


def tasks(scale: float) -> tuple[Task, ...]:
    """A fit with each likelihood."""
    return tuple(Task(name, f"{OWN}:fits", {"likelihood": name}) for name in ("normal", "student", "student_rows"))


def summarise(rows: list[Row]) -> Summary:
    """Cosines of each kind."""
    done = grouped(finished(rows), lambda row: row["task"])
    lines = [(task, *(middle(own, kind) for kind in KINDS), middle(own, "fit_seconds")) for task, own in done.items()]
    text = f"{markdown(('likelihood', *KINDS, 's'), lines)}\n\n{not_run(rows)}".rstrip()
    checks = []
    for kind, least in LEAST.items():
        found = middle(done.get("student", []), kind)
        if found is not None:
            checks.append(Check(f"student, {kind}: {found:.3f}, known {least:.3f}", found >= NEAR * least))
    return Summary(text, tuple(checks))


CASE = Case("outliers", "300 × 20 with outliers, K = 3", f"{OWN}:prepare", tasks, summarise)
