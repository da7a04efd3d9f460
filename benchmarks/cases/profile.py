"""profile: where the time of a fit goes, for each route, on two worker processes and on two threads.

The engine's records give the seconds of passes and those inside tasks; a sampling profiler in every process says what
the tasks do.  The parts add up to the wall seconds of the fit: what no sample explains is shown as such.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from pathlib import Path

from benchmarks.cluster import WORKERS, local_cluster, warm_up
from benchmarks.pictures import stacked
from benchmarks.problems import Problem, inputs_of, model_of, source_of, write
from benchmarks.processes import Stopwatch
from benchmarks.sampling import DATA, JOINS, READING, Sample, start, stop
from benchmarks.table import grouped, markdown, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished

PROBLEMS = {
    "covariance": Problem("covariance", 60_000, 1_000),
    "krylov": Problem("krylov", 200_000, 10_000, 20),
    "accelerated_em": Problem("accelerated_em", 60_000, 200),
    "gram": Problem("gram", 2_000, 20_000),
    "kernel": Problem("kernel", 8_000, 50),
    "relational": Problem("relational", 50_000, 5_000, 20),
    "neighbours": Problem("neighbours", 20_000, 50),
}
WAYS = ("processes", "threads")
DRIVER, IDLE, OTHER, UNKNOWN = "driver", "scheduling and idle", "other functions of tasks", "not attributed"
NAMED = 4
"""Functions of tasks that have a part of their own."""
MOST_UNKNOWN = 0.1
"""Largest part of the time of a fit that may stay without a name."""


def problem_of(solver: str, scale: float) -> Problem:
    """The problem at a scale: fewer rows."""
    full = PROBLEMS[solver]
    return Problem(solver, max(500, round(full.rows * scale)), full.features, full.components)


def prepare(folder: Path, scale: float) -> Row:
    """All stores."""
    for solver in PROBLEMS:
        write(folder, problem_of(solver, scale))
    return {"problems": {solver: problem_of(solver, scale).arguments for solver in PROBLEMS}}


def fit(folder: Path, scale: float, solver: str, way: str) -> Row:
    """One fit, sampled in every process."""
    problem = problem_of(solver, scale)
    with local_cluster(WORKERS, "3GiB", folder) if way == "processes" else nullcontext() as client:
        if client is None:
            warm_up()
        else:
            client.run(start)
        start()
        model = model_of(problem)
        with Stopwatch() as watch:
            model.fit(source_of(problem, folder), client=client, **inputs_of(problem, folder))
        samples = Counter(stop())
        for other in client.run(stop).values() if client is not None else ():
            samples.update({Sample(*key): seconds for key, seconds in other.items()})  # tuples after their way here
    passes = model.history_
    return {
        "fit_seconds": watch.seconds,
        "fit_cpu_seconds": watch.cpu_seconds,
        "passes": int(model.n_passes_),
    } | attributed(
        dict(samples), watch.seconds, float(passes["pass_seconds"].sum()), float(passes["pass_busy_seconds"].sum())
    )


def attributed(samples: dict[Sample, float], wall: float, passes: float, busy: float) -> Row:
    """The parts of a fit in wall seconds, seconds inside tasks divided among the workers; they add up to `wall`."""
    tasks, lines, driver = Counter[str](), Counter[str](), Counter[str]()
    joining = background = 0.0
    for sample, seconds in samples.items():
        if sample.place == "task":
            tasks[sample.part] += seconds / WORKERS  # type: ignore[assignment]
            lines[f"{sample.part}|{sample.line}"] += seconds / WORKERS  # type: ignore[assignment]
        elif sample.place == "join":
            joining += seconds / WORKERS
        elif sample.place == "reader":
            background += seconds
        else:
            driver[sample.part] += seconds  # type: ignore[assignment]
            lines[f"{DRIVER}|{sample.line}"] += seconds  # type: ignore[assignment]
    named = {name for name, _ in tasks.most_common(NAMED)} | {DATA, READING}
    parts = {DRIVER: wall - passes}
    parts |= {name: seconds for name, seconds in tasks.most_common() if name in named}
    parts[OTHER] = sum(seconds for name, seconds in tasks.items() if name not in named)
    parts[JOINS] = joining
    parts[IDLE] = max(0.0, passes - busy / WORKERS - joining)
    parts[UNKNOWN] = wall - sum(parts.values())
    return {
        "parts": parts,
        "lines": dict(lines.most_common(12)),
        "driver_parts": dict(driver.most_common(5)),
        "background_reading": background,
    }


def tasks(scale: float) -> tuple[Task, ...]:
    """Each route on processes and on threads."""
    return tuple(
        Task(f"{solver}/{way}", "benchmarks.cases.profile:fit", {"solver": solver, "way": way}, once=True)
        for solver in PROBLEMS
        for way in WAYS
    )


def bottleneck(row: Row) -> tuple[str, float, str]:
    """The largest part of a fit, its share, and the line of source that most of it was spent in."""
    part, seconds = max(row["parts"].items(), key=lambda item: item[1])
    at = [place.partition("|")[2] for place in row["lines"] if place.partition("|")[0] == part]
    return part, seconds / row["fit_seconds"], at[0] if at else ""


def summarise(rows: list[Row]) -> Summary:
    """The shares of each fit, and the largest, which is the next bottleneck."""
    lines, checks, shares = [], [], []
    for task, own in grouped(finished(rows), lambda row: row["task"]).items():
        row = own[-1]
        wall = row["fit_seconds"]
        part, share, line = bottleneck(row)
        lines.append((task, wall, row["passes"], part, f"{share:.0%}", f"`{line}`" if line else None))
        found = sorted(row["parts"].items(), key=lambda item: -item[1])
        said = ", ".join(f"{name} {seconds / wall:.0%}" for name, seconds in found if seconds >= 0.005 * wall)
        driver = next(iter(row["driver_parts"]), None)
        shares.append((task, said, driver, row["background_reading"]))
        lost = abs(row["parts"][UNKNOWN]) / wall
        text = f"{task}: at most {MOST_UNKNOWN:.0%} of the time is without a name ({lost:.1%})"
        checks.append(Check(text, lost <= MOST_UNKNOWN))
    parts = [
        markdown(("route/workers", "fit s", "passes", "next bottleneck", "share", "its heaviest line"), lines),
        markdown(("route/workers", "shares of the wall time", "driver most in", "s read in the background"), shares),
        "Seconds inside tasks are divided by the two workers, so that all shares add up to the wall time. Reading in "
        "the background goes on while tasks compute, and is not in the shares. A negative share without a name says "
        "that samples counted more than the clocks.",
        not_run(rows),
    ]
    return Summary("\n\n".join(parts).rstrip(), tuple(checks))


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """A bar of shares for each fit, one picture for each kind of workers."""
    found = []
    for way, own in grouped(finished(rows), lambda row: row["arguments"]["way"]).items():
        bars = {
            row["arguments"]["solver"]: {
                name: max(0.0, 100.0 * seconds / row["fit_seconds"]) for name, seconds in row["parts"].items()
            }
            for row in own
        }
        title = f"Where the time goes, on two {way}"
        found.append(stacked(bars, folder / f"profile-{way}.png", title, "% of the fit's wall time"))
    return found


CASE = Case(
    "profile",
    "where the time of a fit goes, route by route, on two worker processes and on two threads",
    "benchmarks.cases.profile:prepare",
    tasks,
    summarise,
    draw=draw,
)
