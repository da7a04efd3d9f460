"""scaling: one and two workers on problems whose time is arithmetic, beside the same kernels in bare processes.

A worker is a core: it is held to one, and cannot read ahead on that of the worker that is not there.  The client and
the scheduler, which have a machine of their own elsewhere, go wherever they find room, so that two workers share both
cores with them.

The machine's own ratio is that of the block functions alone, in one and in two processes without Dask that hold their
blocks in memory: two cores may be two threads of one, share their caches or lower their clock, and what bare processes
do not gain no engine can.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import cycle, product
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.cluster import cores, fitted, keep_to, local_cluster, warm_up
from benchmarks.pictures import compared
from benchmarks.problems import Problem, model_of, source_of, write
from benchmarks.table import grouped, markdown, middle, not_run
from benchmarks.task import Case, Check, Row, Summary, Task, finished
from dlatent.errors import ConvergenceWarning

PROBLEMS = {
    "covariance": Problem("covariance", 160_000, 2_000),
    "krylov": Problem("krylov", 48_000, 5_000, 30, blocks=80),
    "krylov-sparse": Problem("krylov", 800_000, 47_000, 20),
    "krylov-sparse-double": Problem("krylov", 1_600_000, 47_000, 20),
    "accelerated_em": Problem("accelerated_em", 400_000, 200),
    "gram": Problem("gram", 3_000, 44_000),
}
"""One for each route, and sparse data beside dense; fits of about 10 to 20 seconds on one core, in which the part of
the driver, and of messages, is small.  Of the first sparse ones, of the shape of RCV1, a pass takes half a second on
two workers; twice as many documents tell how much of what is missing there is messages and the driver."""
GEMM = 1_500
"""Rows and columns of the plain matrix product."""
WAYS = ("processes", "threads", "bare")
LEAST = 1.7
"""How many times as fast two workers must be as one."""
VISITS = {"covariance": 4, "krylov": 12, "krylov-sparse": 4, "krylov-sparse-double": 2, "accelerated_em": 8, "gram": 2}
BARE_BLOCKS = 16
"""How often bare kernels visit each of so many blocks: even numbers, so that two processes share the work evenly."""
MEETING = 2
"""Blocks of a group that meets another, of which the fit here has two or three."""


def problem_of(name: str, scale: float) -> Problem:
    """The problem at a scale: fewer rows, and for the dual fewer features."""
    full = PROBLEMS[name]
    if name == "gram":
        rows, features = (round(size * scale**0.5) for size in (full.rows, full.features))
        return replace(full, rows=max(200, rows), features=max(1_000, features))
    return replace(full, rows=max(1_000, round(full.rows * scale)))


def prepare(folder: Path, scale: float) -> Row:
    """All stores."""
    for name in PROBLEMS:
        write(folder, problem_of(name, scale))
    return {"problems": {name: problem_of(name, scale).arguments for name in PROBLEMS}}


def fit(folder: Path, scale: float, solver: str, way: str, workers: int) -> Row:
    """One fit on so many worker processes, or on so many threads of this process, after a short one.

    The first passes of a process wait for memory from the system, which on a virtual machine may be slow to give it.
    """
    problem = problem_of(solver, scale)
    with _cluster(way, workers, folder) as client:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model_of(problem).set_params(max_iter=1).fit(source_of(problem, folder), client=client)
        _, row = fitted(model_of(problem), source_of(problem, folder), client=client)
    return row | {"passes_seconds": sum(row["pass_seconds"])}


@contextmanager
def _cluster(way: str, workers: int, folder: Path) -> Iterator[Any]:
    if way == "processes":
        with local_cluster(workers, "6GiB", folder) as client:
            for core, address in zip(cycle(cores()), client.nthreads()):
                client.run(keep_to, [core], workers=[address])
            yield client
    else:
        with patch("dlatent.engine.executor.processors", return_value=workers):
            warm_up()
            before = cores()
            keep_to(before[:workers])
            try:
                yield None
            finally:
                keep_to(before)


def bare(folder: Path, scale: float, solver: str, workers: int) -> Row:
    """The kernels of a route alone, in so many processes that share the blocks; the seconds of the slowest."""
    context = get_context("spawn")
    gate, found = context.Barrier(workers), context.SimpleQueue()
    members = [
        context.Process(target=_member, args=(folder, scale, solver, number, workers, gate, found))
        for number in range(workers)
    ]
    for member in members:
        member.start()
    for member in members:
        member.join()
    if any(member.exitcode for member in members):
        raise RuntimeError("a bare process failed; its error is above")
    seconds = [found.get() for _ in members]
    return {"fit_seconds": max(seconds), "member_seconds": seconds}


def _member(folder: Path, scale: float, solver: str, number: int, workers: int, gate: Any, found: Any) -> None:
    """One bare process: its share of the kernels, once one of them has run and all other processes are ready."""
    from threadpoolctl import threadpool_limits

    allowed = cores()
    keep_to([allowed[number % len(allowed)]])
    with threadpool_limits(1):
        try:
            kernels = kernels_of(folder, scale, solver, number, workers)
            kernels[0]()
        except BaseException:
            gate.abort()  # or the others would wait for this one
            raise
        gate.wait()
        started = perf_counter()
        for kernel in kernels:
            kernel()
        found.put(perf_counter() - started)


def kernels_of(folder: Path, scale: float, solver: str, number: int, workers: int) -> list[Callable[[], Any]]:
    """What one of so many processes computes: products, or the block function of a route for each of its blocks."""
    if solver == "gemm":
        a, b = np.random.default_rng(0).standard_normal((2, GEMM, GEMM))
        return [lambda: a @ b] * (max(4, round(40 * scale)) // 2 * 2 // workers)
    from dlatent.arrays import Block
    from dlatent.operators.sparse import by_columns

    problem = problem_of(solver, scale)
    sources = source_of(problem, folder).blocks[:BARE_BLOCKS]
    blocks = [Block(index, source.start, by_columns(source.load())) for index, source in enumerate(sources)]
    function = _block_function(problem)
    arguments: Iterable[tuple[Any, ...]] = product(blocks)
    if solver == "gram":
        arguments = product([blocks[at : at + MEETING] for at in range(0, len(blocks), MEETING)], repeat=2)
    return ([partial(function, *chosen) for chosen in arguments] * VISITS[solver])[number::workers]


def _block_function(problem: Problem) -> Callable[..., Any]:
    """The block function that a pass of the route spends its time in, with parameters of the right shapes."""
    from dlatent.gaussian.kernel import KernelRequest, meet_kernel
    from dlatent.gaussian.missing_entries.entries import EntryRequest, block_entries
    from dlatent.gaussian.moments import MomentRequest, block_moments
    from dlatent.gaussian.products import ProductRequest, block_products
    from dlatent.gaussian.specification import Parameters, Specification, View
    from dlatent.operators.kernels import Kernel

    features, k, rng = problem.features, problem.components, np.random.default_rng(0)
    origin, patterns = np.zeros(features), ((0,),)
    if problem.solver == "covariance":
        return lambda block: block_moments(block, MomentRequest(origin, patterns, False))
    if problem.solver == "krylov":
        directions = np.asfortranarray(rng.standard_normal((features, k + max(5, k // 2))))
        return lambda block: block_products(block, ProductRequest((directions,), origin, patterns, False))
    if problem.solver == "accelerated_em":
        parameters = Parameters(rng.standard_normal((features, k)), origin, np.ones(1))
        specification = Specification((View("features", features),), patterns, k)
        request = EntryRequest(parameters, specification, origin, np.ones(features))
        return lambda block: block_entries(block, request)
    request_of_pairs = KernelRequest(Kernel("linear", shift=origin), None, False)
    return lambda own, other: meet_kernel(own, other, request_of_pairs)


def tasks(scale: float) -> tuple[Task, ...]:
    """Each route on one and two worker processes and threads, and its kernels and a plain product in bare processes."""
    found = []
    for solver in (*PROBLEMS, "gemm"):
        for way in WAYS if solver in PROBLEMS else ("bare",):
            for workers in (1, 2):
                arguments: Row = {"solver": solver, "workers": workers}
                function = "bare"
                if way != "bare":
                    function, arguments["way"] = "fit", way
                found.append(Task(f"{solver}/{way}/{workers}", f"benchmarks.cases.scaling:{function}", arguments))
    return tuple(found)


def ratios(done: dict[str, list[Row]], solver: str, way: str, name: str) -> float | None:
    """Seconds with one worker over seconds with two, of medians."""
    one, two = (middle(done.get(f"{solver}/{way}/{workers}", []), name) for workers in (1, 2))
    return one / two if one and two else None


def _by_task(rows: list[Row]) -> dict[str, list[Row]]:
    """The rows that are measured, of each task, with the seconds inside the tasks of all passes."""
    measured = [
        row | ({"busy_seconds": sum(row["pass_busy_seconds"])} if "pass_busy_seconds" in row else {})
        for row in finished(rows)
    ]
    return grouped(measured, lambda row: row["task"])


def dearer(done: dict[str, list[Row]], solver: str, way: str) -> float | None:
    """How many times as long the same tasks take where two workers share the machine, of medians."""
    busy = ratios(done, solver, way, "busy_seconds")
    return 1.0 / busy if busy else None


def without_that(done: dict[str, list[Row]], solver: str, way: str) -> float | None:
    """The ratio of fits, had the same tasks taken as long on two workers as on one."""
    found, times = ratios(done, solver, way, "fit_seconds"), dearer(done, solver, way)
    return found * times if found and times else None


def summarise(rows: list[Row]) -> Summary:
    """Seconds and ratios of fits, their passes and the bare kernels."""
    done = _by_task(rows)
    lines = []
    for solver in (*PROBLEMS, "gemm"):
        for way in WAYS:
            seconds = [middle(done.get(f"{solver}/{way}/{workers}", []), "fit_seconds") for workers in (1, 2)]
            if seconds != [None, None]:
                passes = [middle(done.get(f"{solver}/{way}/{workers}", []), "passes_seconds") for workers in (1, 2)]
                lines.append(
                    (
                        solver, way, *seconds, ratios(done, solver, way, "fit_seconds"), *passes,
                        ratios(done, solver, way, "passes_seconds"),
                        dearer(done, solver, way), without_that(done, solver, way),
                    )
                )  # fmt: skip
    headers = (
        "solver", "workers are", "s with 1", "s with 2", "ratio", "s in passes with 1", "with 2", "ratio of passes",
        "same tasks on two", "ratio without that",
    )  # fmt: skip
    text = markdown(headers, lines) + (
        "\n\nFits on one and two worker processes, or threads, of one BLAS thread each; bare: the block functions of a "
        "route, or a plain product, in one and in two processes without Dask, on blocks in memory.\n\n"
        "Same tasks on two: the seconds inside all tasks, over those with one worker. What is above 1 is the share of "
        "memory, caches and cores that workers take from each other, and scheduler and client from them. The ratio "
        "without that holds what the engine adds: waiting, messages, and work of the driver.\n\n"
    )
    return Summary((text + not_run(rows)).rstrip(), tuple(_checks(done)))


def _checks(done: dict[str, list[Row]]) -> list[Check]:
    checks = []
    for solver in PROBLEMS:
        own = ratios(done, solver, "bare", "fit_seconds")
        for way in WAYS[:2]:
            found, passes = (ratios(done, solver, way, name) for name in ("fit_seconds", "passes_seconds"))
            if found is not None and passes is not None:
                limit = "" if own is None else f"; the kernels in bare processes {own:.2f}×"
                times = dearer(done, solver, way)
                same = "" if times is None else f"; its tasks take {times:.2f}× as long beside each other"
                text = (
                    f"{solver} on two {way}: {found:.2f}× (at least {LEAST:g}×; its passes {passes:.2f}×{limit}{same})"
                )
                checks.append(Check(text, found >= LEAST))
    return checks


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """The ratios of all routes beside those of bare processes."""
    done = _by_task(rows)
    bars = {
        way: {solver: ratios(done, solver, way, "fit_seconds") or 0.0 for solver in (*PROBLEMS, "gemm")} for way in WAYS
    }
    return [compared(bars, folder / "scaling.png", "Strong scaling: seconds with one over with two workers", LEAST)]


CASE = Case(
    "scaling",
    "one and two workers, processes and threads, beside the same kernels in bare processes",
    "benchmarks.cases.scaling:prepare",
    tasks,
    summarise,
    draw=draw,
)
