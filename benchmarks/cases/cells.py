"""cells: counts of genes and levels of proteins of the same cells, by models of views that know counts and that do not.

1,500 cells have negative binomial counts of 300 genes, about 64 % of them zeros, by five components and a depth of
their own, and the first 500 of them levels of 30 proteins by the same components.  Shown are the largest angles between
the loadings found and the true ones, and R² of the expected levels of the other cells, whose counts alone are known.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg as la

from benchmarks.processes import Stopwatch
from benchmarks.table import grouped, markdown, middle, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

Array = npt.NDArray[np.float64]
OWN = "benchmarks.cases.cells"
CELLS, PAIRED, GENES, PROTEINS, COMPONENTS, SEEDS = 1500, 500, 300, 30, 5, 3
MEASURES = ("R²", "angle of genes", "angle of proteins")


class Data(NamedTuple):
    """Counts (cells, genes) and levels (paired cells, proteins), the expected levels, and the loadings of both."""

    counts: Array
    levels: Array
    expected: Array
    genes: Array
    proteins: Array

    @property
    def logarithms(self) -> Array:
        """log(1 + x) of counts that are divided by their depth."""
        depth = self.counts.sum(axis=1, keepdims=True)
        return np.log1p(self.counts / depth * np.median(depth))


def made(seed: int) -> Data:
    """Cells drawn by NumPy alone."""
    rng = np.random.default_rng(seed)
    genes, proteins = 0.6 * rng.normal(size=(GENES, COMPONENTS)), rng.normal(size=(PROTEINS, COMPONENTS))
    z, depth = rng.normal(size=(CELLS, COMPONENTS)), 0.5 * rng.normal(size=(CELLS, 1))
    rates = np.exp(z @ genes.T + rng.normal(-1.0, 1.0, GENES) + depth)
    counts, expected = rng.poisson(rates * rng.gamma(2.0, 0.5, rates.shape)).astype(float), z @ proteins.T
    return Data(counts, (expected + rng.normal(size=expected.shape))[:PAIRED], expected, genes, proteins)


def prepare(folder: Path, scale: float) -> Row:
    """Nothing: data are drawn where they are needed."""
    return {"shape": [CELLS, GENES + PROTEINS]}


def measured(data: Data, guess: Array, loadings: dict[str, Array]) -> dict[str, float]:
    """R² of levels of the cells that lack them, and angles of loadings (features, components)."""
    others = data.expected[PAIRED:]
    unexplained = ((guess - others) ** 2).sum() / ((others - others.mean(axis=0)) ** 2).sum()
    angles = {
        f"angle of {view}": float(np.degrees(la.subspace_angles(found, getattr(data, view)).max()))
        for view, found in loadings.items()
    }
    return {"R²": float(1.0 - unexplained), **angles}


def _means(watch: Stopwatch, rows: list[dict[str, float]]) -> Row:
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    return {"fit_seconds": watch.seconds / len(rows), "fit_cpu_seconds": watch.cpu_seconds / len(rows), **means}


def _seeds(scale: float) -> range:
    return range(max(1, round(SEEDS * scale)))


def dlatent(folder: Path, scale: float, likelihood: str) -> Row:
    """Correspondence PPCA of counts, or of their logarithms."""
    from dlatent import CorrespondencePPCA

    rows, pairs = [], np.column_stack([np.arange(PAIRED)] * 2)
    with Stopwatch() as watch:
        for seed in _seeds(scale):
            data = made(seed)
            views = {"genes": data.logarithms if likelihood == "normal" else data.counts, "proteins": data.levels}
            model = CorrespondencePPCA(COMPONENTS, likelihood={"genes": likelihood}, tol=1e-6)
            model.fit(views, correspondence=pairs, client="serial")
            guess = np.asarray(model.reconstruct(views["genes"][PAIRED:], "genes", "proteins"))
            loadings = {view: each[:COMPONENTS].T for view, each in model.components_.items()}
            rows.append(measured(data, guess, loadings))
    return _means(watch, rows)


def ridge(folder: Path, scale: float) -> Row:
    """Ridge regression from logarithms of counts to levels, of the cells that have both."""
    from sklearn.linear_model import RidgeCV

    rows = []
    with Stopwatch() as watch:
        for seed in _seeds(scale):
            data = made(seed)
            model = RidgeCV(np.geomspace(1.0, 1e5, 20)).fit(data.logarithms[:PAIRED], data.levels)
            rows.append(measured(data, model.predict(data.logarithms[PAIRED:]), {}))
    return _means(watch, rows)


def tasks(scale: float) -> tuple[Task, ...]:
    """Models that know counts, and that do not."""
    own = (
        ("negative_binomial", "dlatent-negative-binomial"),
        ("poisson", "dlatent-poisson"),
        ("normal", "dlatent-log"),
    )
    return (
        *(Task(name, f"{OWN}:dlatent", {"likelihood": likelihood}) for likelihood, name in own),
        Task("ridge", f"{OWN}:ridge"),
    )


def summarise(rows: list[Row]) -> Summary:
    """Means of the data sets, and the time of a fit."""
    done = grouped(finished(rows), lambda row: row["task"])
    lines = [(task, *(middle(own, each) for each in (*MEASURES, "fit_cpu_seconds"))) for task, own in done.items()]
    text = f"{markdown(('method', *MEASURES, 'CPU s'), lines)}\n\n{not_run(rows)}".rstrip()
    known = {name: value for name, own in done.items() if (value := middle(own, "R²")) is not None}
    best = known.pop("dlatent-negative-binomial", None)
    if best is None or not known:
        return Summary(text)
    return Summary(
        text, (Check(f"counts as counts tell most of the levels ({best:.3f})", best >= max(known.values())),)
    )


CASE = Case("cells", "1,500 cells, 300 genes and 30 proteins, K = 5", f"{OWN}:prepare", tasks, summarise)
