"""tall, wide and text in words: one line for each method, and the requirements with their figures."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.pictures import bars
from benchmarks.table import MIB, grouped, largest, markdown, mebibytes, middle, not_run, ratio
from benchmarks.task import Check, Row, Summary, finished

Done = dict[str, list[Row]]
"""Rows of tasks that ran to their end, by the name of the task."""

OWN = ("dlatent", "dlatent-threads")
"""The two ways in which dlatent runs: two worker processes, and the threads of one. A time is met by the better one."""
EQUAL = 1e-6
"""Captured variance missing below which a peer has found the same."""
HEADERS = (
    "method", "K", "from", "fit s", "× limit", "processor s", "load s", "wall s", "peak MiB (tree)",
    "peak MiB (worker)", "passes", "MiB read", "captured variance", "missing", "gap of log-likelihood",
)  # fmt: skip


def summary(rows: list[Row], limits: tuple[str, ...], checks: Iterable[Check]) -> Summary:
    """The table of all methods, that of likelihoods of factor analysis, what did not run, and the requirements."""
    done = by_task(rows)
    floor = floors(rows, limits)
    parts = [
        markdown(HEADERS, [_line(task, own, floor) for task, own in done.items()]),
        f"Limit: {' + '.join(limits)}, medians of the same run.",
        _factors(done),
        not_run(rows),
    ]
    return Summary("\n\n".join(filter(None, parts)), tuple(checks))


def by_task(rows: list[Row]) -> Done:
    """The finished rows of each task."""
    return grouped(finished(rows), lambda row: row["task"])


def _line(task: str, own: list[Row], floor: list[Row]) -> tuple[Any, ...]:
    quality = [row["quality"] for row in own if "quality" in row]
    captured = middle(quality, "captured")
    return (
        task,
        own[0]["arguments"].get("n_components"),
        own[0].get("from"),
        middle(own, "fit_seconds"),
        ratio(own, floor),
        middle(own, "fit_cpu_seconds"),
        middle(own, "load_seconds"),
        middle(own, "wall_seconds"),
        mebibytes(largest(own, "peak_tree_pss")),
        mebibytes(largest(own, "peak_worker_rss")) if own[0].get("peak_worker_rss") else None,
        middle(own, "passes"),
        mebibytes(middle(own, "bytes_read")),
        None if captured is None else f"{captured:.8f}",
        middle(quality, "missing"),
        middle(quality, "gap"),
    )


def _factors(done: Done) -> str:
    """Log-likelihoods of the methods whose components are not principal."""
    heights = {task: middle(own, "log_likelihood") for task, own in done.items() if task.endswith("factor-analysis")}
    known = {task: value for task, value in heights.items() if value is not None}
    if not known:
        return ""
    best = max(known.values())
    lines = [(task, f"{value:.3f}", (best - value) / abs(best)) for task, value in known.items()]
    return markdown(("factor analysis", "log-likelihood", "gap to the best"), lines)


def floors(rows: list[Row], names: tuple[str, ...]) -> list[Row]:
    """The limits of each run, added up, as rows."""
    found = []
    for run, own in grouped(finished(rows), lambda row: row["run"]).items():
        parts = [middle([row for row in own if row["task"] == name], "fit_seconds") for name in names]
        if all(part is not None for part in parts):
            found.append({"run": run, "fit_seconds": sum(part for part in parts if part is not None)})
    return found


def variants(done: Done, suffix: str = "") -> Done:
    """The rows of dlatent's two ways for one number of components."""
    return {name: done[name + suffix] for name in OWN if name + suffix in done}


def exact(own: Done, bound: float, words: str = "") -> list[Check]:
    """Every fit of dlatent captures the variance of the exact components."""
    missing = [row["quality"]["missing"] for rows in own.values() for row in rows]
    if not missing:
        return []
    text = f"captured variance of dlatent{words} is exact to {bound:g} (missing: {max(missing):.1e})"
    return [Check(text, max(missing) <= bound)]


def at_most(own: Done, other: list[Row], bound: float, words: str, name: str = "fit_seconds") -> list[Check]:
    """A number of dlatent is at most so many times that of others in the same run."""
    found = {task: ratio(rows, other, name) for task, rows in own.items()}
    ratios = {task: value for task, value in found.items() if value is not None}
    if not ratios:
        return []
    figures = ", ".join(f"{task}: {value:.2f}×" for task, value in ratios.items())
    return [Check(f"{words} ({figures})", min(ratios.values()) <= bound)]


def faster_than_equals(done: Done, own: Done) -> list[Check]:
    """dlatent is faster than every method in the same run that found as good components, where reading counts for all;
    how it stands to a fit of data that are in memory already is said beside it."""
    equal = {task: rows for task, rows in done.items() if not task.startswith(OWN) and _missing(rows) <= EQUAL}
    whole = {task: [_with_loading(row) for row in rows] for task, rows in equal.items()}
    times = {task: middle(rows, "fit_seconds") for task, rows in whole.items()}
    fastest = min((task for task in times if times[task] is not None), key=lambda task: times[task] or 0.0, default="")
    if not fastest:
        return []
    words = f"faster than every other method of equal quality, reading counted, of which the fastest is {fastest}"
    found = at_most(own, whole[fastest], 1.0, words)
    if any(row.get("load_seconds") for row in equal[fastest]):
        alone = ", ".join(f"{ratio(rows, equal[fastest], 'fit_seconds') or 0.0:.2f}×" for rows in own.values())
        found = [Check(f"{check.text}; to its fit in memory alone: {alone}", check.passed) for check in found]
    return found


def _with_loading(row: Row) -> Row:
    return row | {"fit_seconds": row["fit_seconds"] + (row.get("load_seconds") or 0.0)}


def _missing(rows: list[Row]) -> float:
    return max((row["quality"]["missing"] for row in rows if "quality" in row), default=float("inf"))


def less_memory(own: Done, other: list[Row], part: float, words: str) -> list[Check]:
    """The largest peak of all processes of dlatent on its workers against that of others."""
    a, b = largest(own.get("dlatent", []), "peak_tree_pss"), largest(other, "peak_tree_pss")
    if a is None or not b:
        return []
    return [Check(f"{words} ({a / MIB:.0f} MiB against {b / MIB:.0f} MiB: {a / b:.2f})", a / b <= part)]


def within_plan(done: Done) -> list[Check]:
    """Peaks of workers and driver on two workers against what the plan said."""
    own = [row for task, rows in done.items() if task.startswith("dlatent") and "-threads" not in task for row in rows]
    if not own:
        return []
    worker = max(row["peak_worker_rss"] / row["plan"]["worker_memory"] for row in own)
    driver = max(row["peak_driver_rss"] / row["plan"]["driver_memory"] for row in own)
    text = f"peak memory is within the plan's projection (workers: {worker:.2f} of it, driver: {driver:.2f} of it)"
    return [Check(text, max(worker, driver) <= 1.0)]


def nothing_dense(done: Done) -> list[Check]:
    """All processes together stay below one dense matrix of the data's shape, and one of features × features."""
    own = [row for task, rows in done.items() if task.startswith("dlatent") for row in rows]
    if not own:
        return []
    count, width = own[0]["data"]["shape"]
    dense, peak = 8 * width * min(count, width), max(row["peak_tree_pss"] for row in own)
    text = (
        f"no matrix of N × D or D × D: all processes take {peak / MIB:.0f} MiB, the smaller of the two alone would "
        f"take {dense / MIB:.0f} MiB"
    )
    return [Check(text, peak < dense)]


def few_passes(own: Done, bound: int, words: str) -> list[Check]:
    """No fit of dlatent makes more passes."""
    passes = [row["passes"] for rows in own.values() for row in rows]
    return [Check(f"at most {bound} passes{words} ({max(passes)})", max(passes) <= bound)] if passes else []


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """Bars of fit times and of peak memory."""
    done = by_task(rows)
    name = rows[0]["case"]
    seconds = {task: middle(own, "fit_seconds") or 0.0 for task, own in done.items()}
    memory = {task: (largest(own, "peak_tree_pss") or 0.0) / MIB for task, own in done.items()}
    return [
        bars(seconds, folder / f"{name}-seconds.png", f"{name}: seconds of a fit (median)", "seconds"),
        bars(memory, folder / f"{name}-memory.png", f"{name}: peak memory of all processes", "MiB"),
    ]
