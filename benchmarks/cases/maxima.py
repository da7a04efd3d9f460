"""maxima: of random problems of factor analysis and of mixtures, how many end below the best of 20 searches."""

from __future__ import annotations

import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.maxima import FLOOR, Problem, best, complete, of_views, with_holes
from benchmarks.mixture_maxima import FLOOR as MIXTURE_FLOOR
from benchmarks.mixture_maxima import best_mixture, mixture
from benchmarks.processes import Stopwatch
from benchmarks.table import markdown, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

KINDS = {"complete": (complete, 300), "missing": (with_holes, 100), "views": (of_views, 50)}
MIXTURES = 40
MIXTURES_NEAR = 0.1
"""Nats below the best of 20 runs of textbook EM that count as none."""
NEAR = 1e-6
"""Nats below the best that count as none."""
TOLERANCE = 1e-9
"""Part of the log-likelihood that fits may leave by their own tolerance."""
OWN = "benchmarks.cases.maxima"


def prepare(folder: Path, scale: float) -> Row:
    """Nothing to write: problems come from their seeds."""
    return {"problems": {name: count for name, (_, count) in KINDS.items()}}


def fitted(problem: Problem) -> Any:
    """The library's fit of a problem by maximum likelihood, with the floor of the oracle."""
    from dlatent import CorrespondenceFactorAnalysis, FactorAnalysis

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if len(problem.sizes) == 1:
            missing: Any = "nan" if np.isnan(problem.rows).any() else "raise"
            return FactorAnalysis(problem.components, missing=missing, prior="ml", noise_floor=FLOOR).fit(problem.rows)
        bounds = np.cumsum([0, *problem.sizes])
        views = {str(number): problem.rows[:, a:b] for number, (a, b) in enumerate(pairwise(bounds))}
        have = {name: ~np.isnan(rows[:, 0]) for name, rows in views.items()}
        table = np.stack([np.where(own, np.cumsum(own) - 1, -1) for own in have.values()], axis=1)
        views = {name: rows[have[name]] for name, rows in views.items()}
        return CorrespondenceFactorAnalysis(problem.components, noise_floor=FLOOR).fit(views, correspondence=table)


def compare(folder: Path, scale: float, kind: str) -> Row:
    """Differences to the best of 20 searches, of all problems of a kind (a `scale` below 1 takes the first of them)."""
    make, count = KINDS[kind]
    gaps, near, passes = list[float](), list[float](), list[int]()
    with Stopwatch() as watch:
        for seed in range(max(1, round(count * min(scale, 1.0)))):
            problem = make(seed)
            model, height = fitted(problem), best(problem)
            gaps.append(height - model.log_likelihood_)
            near.append(max(NEAR, TOLERANCE * abs(height)))
            passes.append(model.n_passes_)
    return differences(watch.seconds, gaps, near, passes)


def compare_mixtures(folder: Path, scale: float) -> Row:
    """Differences to the best of 20 runs of EM from random rows, with the floor of the oracle and no prior."""
    from dlatent import PPCAMixture

    gaps, passes = list[float](), list[int]()
    with Stopwatch() as watch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(max(1, round(MIXTURES * min(scale, 1.0)))):
            problem = mixture(seed)
            noise: Any = "diagonal" if problem.diagonal else "isotropic"
            options = {"noise_floor": MIXTURE_FLOOR, "noise_prior": 0.0}
            model = PPCAMixture(problem.components, problem.mixtures, noise=noise, **options).fit(problem.rows)
            gaps.append(best_mixture(problem) - model.log_likelihood_)
            passes.append(model.n_passes_)
    return differences(watch.seconds, gaps, [MIXTURES_NEAR] * len(gaps), passes)


def differences(seconds: float, gaps: list[float], near: list[float], passes: list[int]) -> Row:
    """What is told of the nats that fits are below the best, and of those that count as none."""
    found = np.array(gaps)
    return {
        "fit_seconds": seconds,
        "problems": len(found),
        "below": int((found > NEAR).sum()),
        "below_tolerance": int((found > np.array(near)).sum()),
        "worst": float(found.max()),
        "above": int((found < -NEAR).sum()),
        "most_above": float(-found.min()),
        "passes": float(np.mean(passes)),
    }


def tasks(scale: float) -> tuple[Task, ...]:
    """A task for each kind of problem."""
    of_factors = tuple(Task(kind, f"{OWN}:compare", {"kind": kind}, once=True) for kind in KINDS)
    return (*of_factors, Task("mixtures", f"{OWN}:compare_mixtures", {}, once=True))


def summarise(rows: list[Row]) -> Summary:
    """Counts and the largest differences."""
    names = ("task", "problems", "below", "below_tolerance", "worst", "above", "most_above", "passes")
    lines = [tuple(row[name] for name in names) for row in finished(rows)]
    headers = (
        "problems", "of them", "more than 1e-6 nats below the best of 20", "more than the tolerance below",
        "worst, nats", "more than 1e-6 above it", "most, nats", "passes",
    )  # fmt: skip
    checks = tuple(
        Check(
            f"{row['task']}: at most a fiftieth of the fits are below", row["below_tolerance"] * 50 <= row["problems"]
        )
        for row in finished(rows)
    )
    return Summary((markdown(headers, lines) + "\n\n" + not_run(rows)).rstrip(), checks)


CASE = Case(
    "maxima",
    "factor analysis and mixtures of random problems beside the best of 20 searches from dense likelihoods",
    "benchmarks.cases.maxima:prepare",
    tasks,
    summarise,
)
