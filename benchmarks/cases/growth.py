"""growth: passes and seconds per pass as samples, components, features and blocks grow, each by itself.

Each point is a fit of its own, from a Zarr store, on two worker processes, with the library's default tolerance; only
with missing entries do fits of many components end after a few iterations, because one of them takes long.
"""

from __future__ import annotations

from dataclasses import replace
from math import log
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.cluster import WORKERS, fitted, local_cluster
from benchmarks.pictures import growing
from benchmarks.problems import Problem, model_of, source_of, write
from benchmarks.table import grouped, markdown, middle, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

BASES: dict[str, dict[str, Problem]] = {
    "samples": {
        "covariance": Problem("covariance", 20_000, 256),
        "krylov": Problem("krylov", 20_000, 5_000),
        "accelerated_em": Problem("accelerated_em", 5_000, 100),
    },
    "components": {
        "covariance": Problem("covariance", 20_000, 512),
        "krylov": Problem("krylov", 20_000, 5_000),
        "accelerated_em": Problem("accelerated_em", 600, 300, iterations=4),
    },
    "features": {
        "covariance": Problem("covariance", 10_000, 0),
        "krylov": Problem("krylov", 10_000, 0),
        "accelerated_em": Problem("accelerated_em", 1_000, 0),
    },
    "blocks": {
        "covariance": Problem("covariance", 65_536, 32),
        "krylov": Problem("krylov", 65_536, 32, 5),
        "accelerated_em": Problem("accelerated_em", 65_536, 32, 5),
    },
}
"""What grows, and the routes with the rest of their problem."""
TIMES = (1, 2, 4, 8)
COMPONENTS = (5, 10, 20, 50, 100, 200)
FEATURES = {"covariance": (100, 300, 1_000, 3_000), "krylov": (100, 1_000, 10_000, 100_000)}
FEATURES["accelerated_em"] = FEATURES["krylov"]
BLOCKS = (16, 64, 256, 1_024, 4_096)
FEWEST = 300
"""Rows at the smallest scale: more than components."""
SLACK = 0.15
"""How far an exponent may lie above that of the arithmetic, which is known."""
EXPONENTS = {
    ("samples", "covariance"): 1.0, ("samples", "krylov"): 1.0, ("samples", "accelerated_em"): 1.0,
    ("components", "covariance"): 0.0, ("components", "krylov"): 1.0, ("components", "accelerated_em"): 2.0,
    ("features", "covariance"): 2.0, ("features", "krylov"): 1.0, ("features", "accelerated_em"): 1.0,
}  # fmt: skip
"""By which power of what grows the arithmetic of a pass grows, at most, as long as K is no larger than D."""
BLOCK_SECONDS = 0.5
"""Most seconds that a pass over 4,096 cached blocks may take beyond one over 16."""


def problems(scale: float) -> list[tuple[str, int, Problem]]:
    """What grows, to which value, and the problem there."""
    found = []
    for axis, bases in BASES.items():
        for solver, base in bases.items():
            rows = max(FEWEST, round(base.rows * scale))
            if axis == "samples":
                found += [(axis, rows * times, replace(base, rows=rows * times)) for times in TIMES]
            elif axis == "components":
                found += [(axis, k, replace(base, rows=rows, components=k)) for k in COMPONENTS]
            elif axis == "features":
                found += [(axis, d, replace(base, rows=rows, features=d)) for d in FEATURES[solver]]
            else:
                rows = max(BLOCKS[-1], rows // BLOCKS[-1] * BLOCKS[-1])
                found += [(axis, b, replace(base, rows=rows, blocks=b)) for b in BLOCKS]
    return found


def prepare(folder: Path, scale: float) -> Row:
    """All stores; many points share one."""
    for _, _, problem in problems(scale):
        write(folder, problem)
    return {"points": len(problems(scale))}


def point(folder: Path, scale: float, **arguments: Any) -> Row:
    """One fit on two worker processes."""
    problem = Problem(**arguments)
    with local_cluster(WORKERS, "3GiB", folder) as client:
        _, row = fitted(model_of(problem), source_of(problem, folder), client=client)
    return row


def tasks(scale: float) -> tuple[Task, ...]:
    """One task for each point."""
    function = "benchmarks.cases.growth:point"
    return tuple(
        Task(f"{axis}/{problem.solver}/{value}", function, problem.arguments, once=True)
        for axis, value, problem in problems(scale)
    )


def passes_of(row: Row) -> tuple[list[float], list[float]]:
    """Wall seconds, and seconds inside tasks, of each pass but the look at one block that comes first."""
    counted = [name != "initial mean" for name in row["pass_names"]]
    wall, busy = row["pass_seconds"], row["pass_busy_seconds"]
    return (
        [seconds for seconds, is_pass in zip(wall, counted, strict=True) if is_pass],
        [seconds for seconds, is_pass in zip(busy, counted, strict=True) if is_pass],
    )


def exponent(places: list[float], values: list[float]) -> float | None:
    """The power of `places` that fits the values best, by least squares of the logarithms."""
    if len(places) < 2:
        return None
    return float(np.polyfit(np.log(places), np.log(np.maximum(values, 1e-9)), 1)[0])


def final_exponent(places: list[float], values: list[float]) -> float | None:
    """The power between the last two values, where fixed costs weigh least."""
    if len(places) < 2:
        return None
    return log(max(values[-1], 1e-9) / max(values[-2], 1e-9)) / log(places[-1] / places[-2])


def _power(value: float | None) -> str | None:
    return None if value is None else f"{round(value, 2) + 0.0:.2f}"


Lines = dict[str, dict[str, list[tuple[float, Row]]]]


def lines_of(rows: list[Row]) -> Lines:
    """For what grows and each route: its values, from small to large, and the medians there."""
    found: Lines = {}
    for task, own in grouped(finished(rows), lambda row: row["task"]).items():
        axis, solver, value = task.split("/")
        wall, busy = (np.mean([np.mean(passes_of(row)[part]) for row in own]) for part in (0, 1))
        later = [median(passes_of(row)[0][1:]) for row in own if len(passes_of(row)[0]) > 1]
        numbers = {
            "passes": middle(own, "passes"),
            "pass": float(wall),
            "busy": float(busy),
            "later": median(later) if later else None,
            "fit": middle(own, "fit_seconds"),
            "driver": median(row["fit_seconds"] - sum(row["pass_seconds"]) for row in own),
            "plan": own[-1]["plan"]["tasks_per_pass"],
        }
        found.setdefault(axis, {}).setdefault(solver, []).append((float(value), numbers))
    return {
        axis: {solver: sorted(points, key=lambda at: at[0]) for solver, points in routes.items()}
        for axis, routes in found.items()
    }


def summarise(rows: list[Row]) -> Summary:
    """The points of each line, the exponents, and those held against the arithmetic."""
    lines, parts, powers = lines_of(rows), list[str](), []
    for axis, routes in lines.items():
        cells = [
            (solver, int(value), at["passes"], at["pass"], at["later"], at["busy"], at["fit"], at["driver"], at["plan"])
            for solver, points in routes.items()
            for value, at in points
        ]
        headers = (
            "solver", axis, "passes", "s a pass", "s a later pass", "busy s a pass", "fit s",
            "s outside passes", "tasks a pass",
        )  # fmt: skip
        parts.append(markdown(headers, cells))
        for solver, points in routes.items():
            places = [value for value, _ in points]
            wall, busy = ([at[name] for _, at in points] for name in ("pass", "busy"))
            powers.append(
                (
                    axis, solver, _power(exponent(places, wall)), _power(exponent(places, busy)),
                    _power(final_exponent(places, busy)), EXPONENTS.get((axis, solver)),
                    _power(exponent(places, [at["passes"] for _, at in points])),
                )
            )  # fmt: skip
    headers = (
        "what grows", "solver", "exponent of s a pass", "of busy s a pass", "at the last step", "of the arithmetic",
        "exponent of passes",
    )  # fmt: skip
    parts.append(markdown(headers, powers))
    parts.append(
        "A pass: the mean over all passes of the fit, of which the first reads the store and later ones find its "
        "blocks in memory; a later pass: the median without the first. Busy: seconds inside tasks, of both workers."
    )
    return Summary("\n\n".join([*parts, not_run(rows)]).rstrip(), tuple(_checks(lines)))


def _checks(lines: Lines) -> list[Check]:
    checks = []
    for (axis, solver), power in EXPONENTS.items():
        points = lines.get(axis, {}).get(solver, [])
        found = exponent([value for value, _ in points], [at["busy"] for _, at in points])
        if found is not None:
            text = f"{axis}, {solver}: work of a pass grows with exponent {found:.2f} (at most {power:g} + {SLACK:g})"
            checks.append(Check(text, found <= power + SLACK))
    for solver, points in lines.get("samples", {}).items():
        counts = [at["passes"] for _, at in points]
        text = f"samples, {solver}: passes do not grow ({', '.join(f'{count:g}' for count in counts)})"
        checks.append(Check(text, counts[-1] <= 1.25 * counts[0] + 1))
    for solver, points in lines.get("blocks", {}).items():
        first, last = points[0][1], points[-1][1]
        if len(points) == len(BLOCKS) and first["later"] is not None:
            more = last["later"] - first["later"]
            said = f"a later pass over 4,096 blocks takes {more:.2f} s more than one over 16"
            checks.append(Check(f"blocks, {solver}: {said} (at most {BLOCK_SECONDS:g})", more <= BLOCK_SECONDS))
    return checks


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """Passes, and seconds per pass, against what grows."""
    found = []
    for axis, routes in lines_of(rows).items():
        curves = {}
        for solver, points in routes.items():
            places = [value for value, _ in points]
            wall = [at["pass"] for _, at in points]
            power = exponent(places, wall)
            name = solver if power is None else f"{solver}: exponent {power:.2f}"
            curves[name] = (places, [at["passes"] for _, at in points], wall)
        found.append(growing(curves, folder / f"growth-{axis}.png", f"Growth with {axis}", axis))
    return found


CASE = Case(
    "growth",
    "passes and seconds per pass against samples, components, features and blocks, on two worker processes",
    "benchmarks.cases.growth:prepare",
    tasks,
    summarise,
    draw=draw,
)
