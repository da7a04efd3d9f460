"""nan-passes: how many passes over the data lead to the maximum, with three tenths of the entries missing."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.external import data_file
from benchmarks.generate import Array, Factors, power_law
from benchmarks.missing import holes
from benchmarks.processes import Stopwatch
from benchmarks.table import grouped, markdown, middle, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

COMPONENTS, PART, GAP, SEEDS, MOST = 10, 0.3, 1e-8, 5, 25
PLAIN_PASSES = 3000
SETS = ("yeast", "orl", "spiked", "power")
FILES = {"yeast": "yeast_multilabel.npz", "orl": "orl_32x32.npz"}


def prepare(folder: Path, scale: float) -> Row:
    """Nothing to write: the data are small, and drawn or read by each task."""
    return {"sets": list(SETS), "missing": PART}


def data(name: str, seed: int, scale: float) -> Array:
    """One of the data sets with three tenths of its entries NaN; the seed draws the holes, and artificial data."""
    if name in FILES:
        found = np.load(data_file(FILES[name]), allow_pickle=False)["X"].astype(np.float64)
    else:
        # Ten equal spikes, or variances 20 / j with a little noise: 2,000 × 200.
        spiked = name == "spiked"
        variances = np.linspace(20.0, 5.0, 10) if spiked else power_law(200, 20.0)
        mean = np.random.default_rng(seed).standard_normal(200)
        model = Factors(200, variances, noise=1.0 if spiked else 0.05, mean=mean, seed=seed)
        found = model.rows(max(200, round(2000 * scale)), (seed, 0), "float64")
    found[holes(found.shape, PART, (seed, 1))] = np.nan
    return found


def passes(folder: Path, scale: float, name: str, model: str) -> Row:
    """Passes until the log-likelihood is within 1e-8, relatively, of the maximum, for each seed; and plain EM's."""
    import dlatent

    make = {"ppca": dlatent.PPCA, "fa": dlatent.FactorAnalysis}[model]
    found: dict[str, list[Any]] = {"passes": [], "converged_after": [], "gap": [], "plain": [], "plain_gap": []}
    with Stopwatch() as watch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(SEEDS):
            x = data(name, seed, scale)
            best = make(COMPONENTS, missing="nan", prior="ml", tol=1e-14, max_iter=1000).fit(x).log_likelihood_
            fast, reached = traced(make(COMPONENTS, missing="nan", prior="ml", random_state=seed), x, best)
            most = max(100, round(PLAIN_PASSES * min(scale, 1.0)))
            options = {"solver": "em", "tol": 1e-300, "max_iter": most, "random_state": seed}
            plain, plainly = traced(make(COMPONENTS, missing="nan", prior="ml", **options), x, best)
            found["passes"].append(reached)
            found["converged_after"].append(int(fast.n_passes_))
            found["gap"].append((best - fast.log_likelihood_) / abs(best))
            found["plain"].append(plainly)
            found["plain_gap"].append((best - plain.log_likelihood_) / abs(best))
    return {"fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds} | found


def traced(model: Any, x: Array, best: float) -> tuple[Any, int | None]:
    """Fit, and count the passes (all of them, those for the start too) until the gap is closed; None if never."""
    from dlatent import Callback

    count, closed = [0], list[int]()

    def on_iteration(line: Any) -> None:
        if best - line.log_likelihood <= GAP * abs(best):
            closed.append(count[0])

    def on_pass(record: Any) -> None:
        count[0] += record.name != "initial mean"

    class Enough(Exception):
        """Plain EM has closed the gap, and needs not go on."""

    def stop_early(line: Any) -> None:
        on_iteration(line)
        if closed and model.solver == "em":
            raise Enough

    try:
        model.fit(x, callbacks=[Callback(on_pass=on_pass, on_iteration=stop_early)])
    except Enough:
        model.log_likelihood_ = best
    return model, closed[0] if closed else None


def tasks(scale: float) -> tuple[Task, ...]:
    """Each data set with PPCA and with factor analysis."""
    function = "benchmarks.cases.nan_passes:passes"
    return tuple(
        Task(f"{model}/{name}", function, {"name": name, "model": model}, once=True)
        for model in ("ppca", "fa")
        for name in SETS
    )


def summarise(rows: list[Row]) -> Summary:
    """Passes of each seed, and the medians held against the goal."""
    lines, checks = [], []
    for task, own in grouped(finished(rows), lambda row: row["task"]).items():
        row = own[-1]
        reached = [MOST * 1000 if count is None else count for count in row["passes"]]
        lines.append(
            (
                task, _shown(row["passes"]), float(np.median(reached)), _shown(row["converged_after"]),
                max(row["gap"]), _shown(row["plain"]), max(row["plain_gap"]), middle(own, "fit_seconds"),
            )
        )  # fmt: skip
        if task.startswith("ppca"):
            text = f"{task}: the median of passes to a gap of 1e-8 is at most {MOST} ({np.median(reached):g})"
            checks.append(Check(text, float(np.median(reached)) <= MOST))
        closer = all(gap < GAP for gap in row["gap"])
        checks.append(Check(f"{task}: every fit ends within 1e-8 of the maximum", closer))
    headers = (
        "model/data", "passes to 1e-8", "median", "passes when it stopped", "largest gap then", "plain EM",
        "its largest gap", "s",
    )  # fmt: skip
    return Summary((markdown(headers, lines) + "\n\n" + not_run(rows)).rstrip(), tuple(checks))


def _shown(values: list[Any]) -> str:
    return ", ".join("never" if value is None else str(value) for value in values)


CASE = Case(
    "nan-passes",
    "passes to the maximum, 30 % missing, K = 10, five seeds: Yeast, ORL, 2,000 × 200 spiked and power-law",
    "benchmarks.cases.nan_passes:prepare",
    tasks,
    summarise,
)
