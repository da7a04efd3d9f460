"""Growth, overhead, scaling and profiles: exponents, parts that add up, requirements, and small runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.cases import growth, overhead, profile, scaling
from benchmarks.cluster import cores, fitted
from benchmarks.problems import LENGTH, PART, Problem, model_of, source_of, write
from benchmarks.sampling import DATA, JOINS, READING, Sample, start, stop
from benchmarks.stored import load
from dlatent.engine.connect import connect

pytestmark = pytest.mark.slow


def row_of(task: str, **found: Any) -> dict[str, Any]:
    return {"run": "a", "task": task, "status": "ok", "arguments": {}} | found


def test_problems_share_data_and_are_what_they_say(tmp_path: Path) -> None:
    dense, words, holes = (
        Problem("covariance", 500, 30),
        Problem("krylov", 500, 300),
        Problem("accelerated_em", 500, 30),
    )
    for problem in (dense, words, holes, Problem("relational", 500, 300)):
        write(tmp_path, problem)
    assert Problem("gram", 500, 30, 4).path(tmp_path) == dense.path(tmp_path)
    assert 0.9 < load(str(words.path(tmp_path))).nnz / (500 * LENGTH) <= 1.0
    assert np.isnan(load(str(holes.path(tmp_path)))).mean() == pytest.approx(PART, abs=0.02)
    graph = load(str(Problem("relational", 500, 300).graph(tmp_path)))
    assert graph.nnz == 2 * 5 * 500
    before = dense.path(tmp_path).stat().st_mtime_ns
    write(tmp_path, dense)
    assert dense.path(tmp_path).stat().st_mtime_ns == before


@pytest.mark.parametrize("solver", ["covariance", "krylov", "accelerated_em"])
def test_blocks_are_as_many_as_asked(tmp_path: Path, solver: str) -> None:
    for blocks in (16, 64):
        problem = Problem(solver, 128, 8, 2, blocks)
        write(tmp_path, problem)
        source = source_of(problem, tmp_path)
        assert len(source.blocks) == blocks
        assert not source.sparse
    model = model_of(problem).fit(source)
    assert model.plan_["solver"] == solver


def test_exponents_are_those_of_powers() -> None:
    places = [1.0, 2.0, 4.0, 8.0]
    assert growth.exponent(places, [3.0 * place**1.5 for place in places]) == pytest.approx(1.5)
    assert growth.exponent(places[:1], [1.0]) is None
    bent = [1.0, 1.0, 1.0, 4.0]
    assert growth.final_exponent(places, bent) == pytest.approx(2.0)


def grown(axis: str, solver: str, value: int, seconds: float, passes: int = 9) -> dict[str, Any]:
    names = ["initial mean", *["products"] * passes]
    return row_of(
        f"{axis}/{solver}/{value}",
        pass_names=names,
        pass_seconds=[100.0, *[seconds] * passes],
        pass_busy_seconds=[100.0, *[2.0 * seconds] * passes],
        passes=passes,
        fit_seconds=1.0,
        plan={"tasks_per_pass": 5},
    )


def test_growth_is_held_against_the_arithmetic(tmp_path: Path) -> None:
    linear = [grown("samples", "krylov", n, 1e-3 * n) for n in (800, 100, 200, 400)]
    summary = growth.summarise(linear)
    assert [check.passed for check in summary.checks] == [True, True]
    assert "| samples | krylov | 1.00 | 1.00 | 1.00 | 1 | 0.00 |" in summary.markdown
    quadratic = [grown("samples", "krylov", n, 1e-5 * n**2, passes=n // 20) for n in (100, 200, 400, 800)]
    assert [check.passed for check in growth.summarise(quadratic).checks] == [False, False]
    blocks = [grown("blocks", "accelerated_em", n, 0.1 if n < 4096 else 0.7) for n in growth.BLOCKS]
    (check,) = growth.summarise(blocks).checks
    assert not check.passed
    drawn = growth.draw([*linear, *blocks], tmp_path)
    assert [path.name for path in drawn] == ["growth-samples.png", "growth-blocks.png"]
    assert all(path.stat().st_size > 1000 for path in drawn)


def test_growth_has_every_value_and_no_impossible_fit() -> None:
    for scale in (1.0, 0.01):
        found = growth.problems(scale)
        assert len({task.name for task in growth.tasks(scale)}) == len(found)
        assert {value for axis, value, _ in found if axis == "blocks"} == set(growth.BLOCKS)
        assert all(p.components < min(p.rows, p.features) for _, _, p in found)
        assert all(p.blocks is None or p.rows % p.blocks == 0 for _, _, p in found)


def test_passes_leave_the_pilot_out(tmp_path: Path) -> None:
    for problem in (Problem("krylov", 400, 100, 3), Problem("covariance", 400, 30, 3)):
        write(tmp_path, problem)
        _, row = fitted(model_of(problem), source_of(problem, tmp_path))
        wall, busy = growth.passes_of(row)
        pilots = row["pass_names"].count("initial mean")
        assert len(wall) == row["passes"] == len(busy) == len(row["pass_names"]) - pilots


@pytest.mark.parametrize("engine", overhead.ENGINES)
def test_overhead_counts_the_tasks_of_the_engine(tmp_path: Path, engine: str) -> None:
    found = overhead.measure(tmp_path, 0.1, engine, 16, engine != "processes")
    expected = {"threads": 16 + 5, "long": 16, "processes": 2}
    assert found["tasks"] == expected[engine], "groups and joins, without those of the driver; one for each worker"
    assert found["task_ms"] == pytest.approx(found["beside_ms"] / found["tasks"])
    assert 0 < found["beside_ms"] <= found["pass_ms"]


def test_dask_alone_has_as_many_tasks_as_a_pass(tmp_path: Path) -> None:
    found = overhead.measure_dask(tmp_path, 0.1, 16)
    assert found["tasks"] == 16 + 4 + 1
    assert 0.0 < found["task_ms"] < found["pass_ms"] < 1e3 * found["fit_seconds"]


def test_overhead_names_the_worst() -> None:
    rows = [
        row_of(f"threads/grouped/{n}", tasks=5, first_ms=1.0, pass_ms=ms, busy_ms=0.0, beside_ms=ms, task_ms=ms / 5)
        for n, ms in ((16, 5.0), (4096, 600.0))
    ]
    first, second = overhead.summarise(rows).checks
    assert not first.passed
    assert "threads/grouped/4096" in first.text
    assert not second.passed
    assert all(check.passed for check in overhead.summarise(rows[:1]).checks)


def _overhead_row(task: str, tasks: int, beside: float) -> dict[str, Any]:
    numbers = {"pass_ms": beside, "beside_ms": beside, "task_ms": beside / tasks}
    return row_of(task, tasks=tasks, first_ms=1.0, busy_ms=0.0, **numbers)


@pytest.mark.parametrize(("each", "met"), [(1.5, True), (2.5, False)])
def test_overhead_tells_what_a_further_task_costs(each: float, met: bool) -> None:
    rows = [_overhead_row(f"long/single/{n}", n, 10.0 + each * n) for n in (4, 20, 84)]
    further, quotient = overhead.summarise(rows).checks
    assert further.passed == met
    assert f"({each:.2f} ms)" in further.text
    assert not quotient.passed, "the pass itself counts, too"
    assert "long/single/4" in quotient.text


@pytest.mark.parametrize(("ours", "met"), [(17.0, True), (40.0, False)])
def test_overhead_compares_short_passes_with_as_many_groups_of_dask(ours: float, met: bool) -> None:
    rows = [_overhead_row("dask/tree/4", 5, 18.0), _overhead_row("dask/tree/64", 85, 30.0)]
    rows += [_overhead_row("processes/grouped/64", 2, 17.0), _overhead_row("processes/single/64", 2, ours)]
    grouped, single = overhead.summarise(rows).checks[-2:]
    assert grouped.passed
    assert "Dask 18 ms" in grouped.text
    assert single.passed == met
    assert "Dask 30 ms" in single.text


def test_scaling_divides_one_by_two(tmp_path: Path) -> None:
    rows = [
        row_of(f"accelerated_em/{way}/{workers}", fit_seconds=seconds, passes_seconds=seconds)
        for way, one, two in (("processes", 9.0, 5.0), ("threads", 9.0, 6.0), ("bare", 8.0, 4.2))
        for workers, seconds in ((1, one), (2, two))
    ]
    summary = scaling.summarise(rows)
    assert [check.passed for check in summary.checks] == [True, False]
    assert "bare processes 1.90×" in summary.checks[0].text
    (drawn,) = scaling.draw(rows, tmp_path)
    assert drawn.stat().st_size > 1000


def test_scaling_tells_what_workers_take_from_each_other_from_what_the_engine_adds() -> None:
    rows = [
        row_of(f"accelerated_em/threads/{workers}", fit_seconds=seconds, passes_seconds=seconds, pass_busy_seconds=busy)
        for workers, seconds, busy in ((1, 9.0, [4.0, 4.0]), (2, 6.0, [5.0, 5.0]))
    ]
    done = scaling._by_task(rows)
    assert scaling.dearer(done, "accelerated_em", "threads") == pytest.approx(1.25)
    assert scaling.without_that(done, "accelerated_em", "threads") == pytest.approx(1.5 * 1.25)
    (check,) = scaling.summarise(rows).checks
    assert not check.passed, "the requirement is held against the clock"
    assert "tasks take 1.25× as long" in check.text


@pytest.mark.parametrize("solver", [*scaling.PROBLEMS, "gemm"])
def test_two_bare_processes_share_the_kernels(tmp_path: Path, solver: str) -> None:
    """What two would do together is what one does, and every call runs."""
    if solver != "gemm":
        write(tmp_path, scaling.problem_of(solver, 0.001))
    one = scaling.kernels_of(tmp_path, 0.001, solver, 0, 1)
    two = [scaling.kernels_of(tmp_path, 0.001, solver, number, 2) for number in (0, 1)]
    assert len(two[0]) == len(two[1]) == len(one) / 2
    assert two[1][0]() is not None


def test_threads_are_as_many_as_asked_on_as_many_cores(tmp_path: Path) -> None:
    write(tmp_path, scaling.problem_of("covariance", 0.001))
    source, before = source_of(scaling.problem_of("covariance", 0.001), tmp_path), cores()
    for workers in (1, 3):
        with scaling._cluster("threads", workers, tmp_path) as client, connect(source, client=client) as engine:
            assert engine.resources.total_threads == workers
            assert cores() == before[:workers]
        assert cores() == before


def test_a_bare_process_that_fails_ends_the_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="a bare process failed"):
        scaling.bare(tmp_path / "nowhere", 0.001, "accelerated_em", 2)
    assert "does not exist" in capfd.readouterr().err


def seen_during(engine: str, tmp_path: Path, problem: Problem) -> dict[Sample, float]:
    write(tmp_path, problem)
    start()
    model_of(problem).fit(source_of(problem, tmp_path), client=engine)
    return stop()


@pytest.mark.parametrize(
    ("problem", "rooms"),
    [
        (Problem("accelerated_em", 4000, 60, 8), ("gaussian.", "operators.")),
        (Problem("gram", 400, 10_000), ("operators.kernels:",)),
    ],
    ids=["accelerated_em", "gram"],
)
def test_samples_tell_tasks_from_the_driver(tmp_path: Path, problem: Problem, rooms: tuple[str, ...]) -> None:
    samples = dict[Sample, float]()
    for _ in range(20):  # what a sampler meets of a short fit is a matter of chance
        samples |= seen_during("serial", tmp_path, problem)
        inside = [sample for sample in samples if sample.place == "task" and sample.line.startswith(rooms)]
        if inside and any(sample.place == "driver" for sample in samples):
            break
    else:
        pytest.fail(f"no task or no driver in {samples}")
    assert all(sample.part.split(".")[0] in sample.line for sample in inside)
    assert all(seconds > 0 for seconds in samples.values())


def test_parts_of_a_profile_add_up() -> None:
    line = "gaussian.entries:1: x"
    samples = {
        Sample("task", "entries.posterior", line): 6.0,
        Sample("task", DATA, "engine.fold:2: y"): 1.0,
        Sample("task", READING, "engine.fold:3: z"): 0.5,
        Sample("join", JOINS, "engine.fold:4: u"): 0.2,
        Sample("reader", READING, "engine.fold:5: v"): 3.0,
        Sample("driver", "rows.fit_rows", "solvers.rows:6: w"): 1.5,
    }
    found = profile.attributed(samples, 7.0, 5.0, 8.0)
    parts = found["parts"]
    assert sum(parts.values()) == pytest.approx(7.0)
    assert parts["entries.posterior"] == 3.0
    assert parts[profile.DRIVER] == 2.0
    assert parts[profile.IDLE] == pytest.approx(0.9)
    assert parts[profile.UNKNOWN] == pytest.approx(0.25), "of 4 s inside tasks, 3.75 were sampled"
    assert found["background_reading"] == 3.0
    row = row_of("rows/threads", fit_seconds=7.0, passes=20, **found)
    assert profile.bottleneck(row) == ("entries.posterior", 3.0 / 7.0, line)


@pytest.mark.parametrize("solver", ["covariance", "neighbours"])
def test_a_profile_and_its_picture(tmp_path: Path, solver: str) -> None:
    write(tmp_path, profile.problem_of(solver, 0.02))
    row = row_of(f"{solver}/threads") | profile.fit(tmp_path, 0.02, solver, "threads")
    row["arguments"] = {"solver": solver, "way": "threads"}
    assert sum(row["parts"].values()) == pytest.approx(row["fit_seconds"])
    assert f"| {solver}/threads |" in profile.summarise([row]).markdown
    (drawn,) = profile.draw([row], tmp_path)
    assert drawn.stat().st_size > 1000
