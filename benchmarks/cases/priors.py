"""priors: what a prior on the loadings costs beside maximum likelihood, in passes and seconds."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import comparison, nan_speed
from benchmarks.cluster import warm_up
from benchmarks.processes import Stopwatch
from benchmarks.stored import path_of
from benchmarks.table import grouped, markdown, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

COMPONENTS = {"text": comparison.COMPONENTS, "tall": comparison.COMPONENTS, "nan": nan_speed.COMPONENTS}
PREPARED = {"text": comparison.prepare_text, "tall": comparison.prepare_tall, "nan": nan_speed.prepare_tall}
TURNS, MOST = 5, 1.3
"""Fits of each, in turns; and by how much more one with the prior may cost."""


def prepare(folder: Path, scale: float) -> Row:
    """The data of the cases text, tall and nan-tall."""
    shapes = {}
    for name, prepared in PREPARED.items():
        (folder / name).mkdir(exist_ok=True)
        shapes[name] = prepared(folder / name, scale)["shape"]
    return {"shape": shapes}


def in_turns(folder: Path, scale: float, data: str) -> Row:
    """Passes and seconds of fits with and without the prior on the threads of this process, in turns."""
    from dlatent import PPCA

    warnings.simplefilter("ignore")
    warm_up()
    missing: Any = "nan" if data == "nan" else "raise"
    passes, seconds = dict[str, int](), dict[str, list[float]]({"ml": [], "ard": []})
    for _ in range(TURNS):
        for prior, taken in seconds.items():
            with Stopwatch() as watch:
                model = PPCA(COMPONENTS[data], missing=missing, prior=prior).fit(path_of(folder / data))
            passes[prior] = int(model.n_passes_)
            taken.append(watch.seconds)
    return {"fit_seconds": sum(map(sum, seconds.values())), "passes_of": passes, "seconds_of": seconds}


def tasks(scale: float) -> tuple[Task, ...]:
    """Each data set."""
    return tuple(Task(data, "benchmarks.cases.priors:in_turns", {"data": data}, once=True) for data in COMPONENTS)


def summarise(rows: list[Row]) -> Summary:
    """Passes, medians of seconds and their ratio."""
    lines, checks = list[tuple[Any, ...]](), list[Check]()
    for data, own in grouped(finished(rows), lambda row: row["task"]).items():
        passes, seconds = own[-1]["passes_of"], own[-1]["seconds_of"]
        each = {prior: float(np.median(taken)) for prior, taken in seconds.items()}
        more = passes["ard"] / passes["ml"], each["ard"] / each["ml"]
        lines.append((data, passes["ml"], passes["ard"], each["ml"], each["ard"], more[1]))
        for what, factor in zip(("passes", "seconds"), more, strict=True):
            checks.append(Check(f"{data}: {what} with the prior × {factor:.2f} (at most {MOST})", factor <= MOST))
    headers = ("data", "passes, ml", "passes, ard", "s, ml", "s, ard", "ratio")
    return Summary((markdown(headers, lines) + "\n\n" + not_run(rows)).rstrip(), tuple(checks))


CASE = Case(
    "priors",
    'PPCA with prior="ard" beside maximum likelihood, in turns: text, tall and nan-tall',
    "benchmarks.cases.priors:prepare",
    tasks,
    summarise,
)
