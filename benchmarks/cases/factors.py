"""factors: the maxima of factor analysis beside scikit-learn's (complete data) and statsmodels' (missing entries)."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.external import data_file
from benchmarks.generate import Array
from benchmarks.missing import holes
from benchmarks.processes import Stopwatch
from benchmarks.table import grouped, markdown, middle, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

PART = 0.2
SAME = 1e-8
"""Relative distance of log-likelihoods that counts as the same."""
COMPONENTS = {"yeast": 10, "digits": 10, "yeast with holes": 2, "digits with holes": 2}
OWN = "benchmarks.cases.factors"


def prepare(folder: Path, scale: float) -> Row:
    """Nothing to write: the data are small."""
    return {"sets": list(COMPONENTS), "missing": PART}


def data(name: str) -> Array:
    """Yeast (2,417 × 103) or digits (1,797 × 61), features that never vary left out; with holes, 400 rows of ten
    features, a fifth of the entries NaN: others take a matrix for each row, and derivatives by differences."""
    if name.startswith("yeast"):
        found = np.load(data_file("yeast_multilabel.npz"), allow_pickle=False)["X"].astype(np.float64)
    else:
        from sklearn.datasets import load_digits

        found = load_digits().data
        found = found[:, found.std(axis=0) > 0]
    if name.endswith("holes"):
        frequent = np.argsort(-(found != 0).mean(axis=0), kind="stable")[:40]
        found = found[:400, np.sort(frequent)[::4]]
        found = (found - found.mean(axis=0)) / found.std(axis=0)
        found[holes(found.shape, PART, (61, 0))] = np.nan
    return found


def dlatent(folder: Path, scale: float, name: str) -> Row:
    """FactorAnalysis by maximum likelihood, with a tight tolerance."""
    from dlatent import FactorAnalysis

    x = data(name)
    with Stopwatch() as watch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        missing = "nan" if name.endswith("holes") else "raise"
        model = FactorAnalysis(COMPONENTS[name], missing=missing, prior="ml", tol=1e-12, max_iter=3000).fit(x)
    return _row(watch, model.log_likelihood_) | {"floors": int(model.at_floor_.sum())}


def of_sklearn(folder: Path, scale: float, name: str) -> Row:
    """scikit-learn's FactorAnalysis with LAPACK's SVD and a tight tolerance."""
    from sklearn.decomposition import FactorAnalysis

    x = data(name)
    with Stopwatch() as watch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options: dict[str, Any] = {"svd_method": "lapack", "tol": 1e-8, "max_iter": 5000}
        model = FactorAnalysis(COMPONENTS[name], **options).fit(x)
    return _row(watch, float(model.score(x) * len(x)))


def of_statsmodels(folder: Path, scale: float, name: str) -> Row:
    """statsmodels' DynamicFactor without dynamics: factor analysis, whose Kalman filter skips what is missing."""
    from statsmodels.tsa.api import DynamicFactor

    x = data(name)
    options = {"k_factors": COMPONENTS[name], "factor_order": 0, "error_cov_type": "diagonal"}
    with Stopwatch() as watch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DynamicFactor(x, exog=np.ones(len(x)), **options)
        found = model.fit(method="lbfgs", maxiter=2000, disp=0, cov_type="none")
    return _row(watch, float(found.llf))


def _row(watch: Stopwatch, value: float) -> Row:
    return {"fit_seconds": watch.seconds, "fit_cpu_seconds": watch.cpu_seconds, "log_likelihood": float(value)}


def tasks(scale: float) -> tuple[Task, ...]:
    """Each data set with dlatent and with the one other that takes it."""
    found = []
    for name in COMPONENTS:
        other = ("statsmodels", "of_statsmodels") if name.endswith("holes") else ("sklearn", "of_sklearn")
        found += [
            Task(f"{name}/dlatent", f"{OWN}:dlatent", {"name": name}),
            Task(f"{name}/{other[0]}", f"{OWN}:{other[1]}", {"name": name}, (other[0],), timeout=1200.0),
        ]
    return tuple(found)


def summarise(rows: list[Row]) -> Summary:
    """Log-likelihoods and seconds, side by side."""
    done = grouped(finished(rows), lambda row: row["task"])
    lines, checks = [], []
    for task, own in done.items():
        lines.append((task, own[-1]["log_likelihood"], middle(own, "fit_seconds"), own[-1].get("floors")))
    for name in COMPONENTS:
        others = [rows for task, rows in done.items() if task.startswith(f"{name}/") and not task.endswith("dlatent")]
        if f"{name}/dlatent" in done and others:
            mine, theirs = done[f"{name}/dlatent"][-1]["log_likelihood"], others[0][-1]["log_likelihood"]
            text = f"{name}: the log-likelihood is that of the other or higher ({mine - theirs:+.3g} nats)"
            checks.append(Check(text, mine >= theirs - SAME * abs(theirs)))
    # Nine digits: the fourth would hide what is compared.
    shown = [(task, f"{value:.9g}", seconds, floors) for task, value, seconds, floors in lines]
    headers = ("data/method", "log-likelihood, nats", "fit s", "noise variances at the floor")
    return Summary((markdown(headers, shown) + "\n\n" + not_run(rows)).rstrip(), tuple(checks))


CASE = Case(
    "factors",
    "factor analysis beside scikit-learn (Yeast, digits, complete) and statsmodels (400 × 10 of each, 20 % missing)",
    "benchmarks.cases.factors:prepare",
    tasks,
    summarise,
)
