"""The harness itself: processes, memory, failures, skips, result lines and the hard memory cap."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.capped import CapUnavailable, make_cap
from benchmarks.catalogue import CASES
from benchmarks.processes import MemoryWatch, Stopwatch
from benchmarks.runner import Options, TaskFailed, interpreter, run_case
from benchmarks.task import Case, Row, Summary, Task
from dlatent.engine.machine import worker_environment

pytestmark = pytest.mark.slow

MIB = 2**20
FUNCTIONS = """
import time
import numpy as np

def prepare(folder, scale):
    count = folder / "prepared.txt"
    count.write_text(str(int(count.read_text()) + 1 if count.exists() else 1))
    return {"shape": [3, 4], "times_prepared": int(count.read_text())}

def work(folder, scale, value):
    return {"fit_seconds": 0.5, "passes": np.int64(value), "components": np.full((2, 3), scale)}

def judge(folder, scale, components):
    return {"captured": float(np.load(components).sum())}

def fail(folder, scale):
    raise RuntimeError("the wheels came off")

def sleep(folder, scale):
    time.sleep(60)

def fill(folder, scale, mib):
    filled = np.ones(mib * 2**17)
    return {"sum": float(filled.sum())}
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "tiny_tasks.py").write_text(FUNCTIONS)
    monkeypatch.setenv("PYTHONPATH", os.fspath(tmp_path / "modules"))
    return "tiny_tasks"


def case_of(module: str, *tasks: Task) -> Case:
    return Case(
        "tiny", "a test", f"{module}:prepare", lambda scale: tasks, lambda rows: Summary(""), judge=f"{module}:judge"
    )


def run(case: Case, tmp_path: Path, **options: object) -> list[Row]:
    chosen = Options(work=tmp_path, **{"repeats": 1, **options})  # type: ignore[arg-type]
    return run_case(case, chosen, lambda text: None)


def test_a_result_is_one_line_with_everything_that_was_measured(module: str, tmp_path: Path) -> None:
    out = tmp_path / "results" / "rows.jsonl"
    twice = Task("work", f"{module}:work", {"value": 7})
    once = Task("first", f"{module}:work", {"value": 1}, once=True)
    rows = run(case_of(module, twice, once), tmp_path, repeats=2, out=out)
    assert [json.loads(line) for line in out.read_text().splitlines()] == rows
    assert [(row["task"], row["repeat"]) for row in rows] == [("work", 0), ("first", 0), ("work", 1)]
    row = rows[0]
    assert row["status"] == "ok"
    assert row["passes"] == 7
    assert row["quality"] == {"captured": 6.0}
    assert row["wall_seconds"] > 0
    assert row["cpu_seconds"] > 0
    assert row["versions"]["numpy"] == np.__version__
    assert {"processor", "cores", "memory", "system"} <= set(row["machine"])
    assert len({row["run"] for row in rows}) == 1


def test_data_are_prepared_once_per_scale(module: str, tmp_path: Path) -> None:
    case = case_of(module, Task("work", f"{module}:work", {"value": 1}))
    run(case, tmp_path)
    (row,) = run(case, tmp_path)
    (other,) = run(case, tmp_path, scale=0.5)
    assert row["data"] == other["data"] == {"shape": [3, 4], "times_prepared": 1}
    assert sorted(path.name for path in tmp_path.glob("tiny-*")) == ["tiny-0.5", "tiny-1"]


def test_failures_and_skips_are_results_with_a_reason(module: str, tmp_path: Path) -> None:
    tasks = (
        Task("fail", f"{module}:fail"),
        Task("skip", f"{module}:work", {"value": 1}, requires=("numpy", "no_such_module")),
        Task("slow", f"{module}:sleep", timeout=2.0),
    )
    found = {row["task"]: row for row in run(case_of(module, *tasks), tmp_path)}
    assert found["fail"]["status"] == "failed"
    assert "the wheels came off" in found["fail"]["reason"]
    assert str(Path(__file__).parents[2]) not in found["fail"]["reason"]
    assert found["skip"]["status"] == "skipped"
    assert found["skip"]["reason"] == "not installed: no_such_module"
    assert found["slow"]["reason"].startswith("timed out after 2 s, exit status 124")


def test_the_first_interpreter_with_all_modules_runs_a_task(tmp_path: Path) -> None:
    poor, rich = tmp_path / "poor", tmp_path / "rich"
    for path, options in ((poor, "-S "), (rich, "")):  # -S: without the installed packages
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {options}"$@"\n')
        path.chmod(0o755)
    asked = [os.fspath(poor), os.fspath(rich), sys.executable]
    assert interpreter(("json",), asked) == (asked[0], [])
    assert interpreter(("json", "numpy"), asked) == (asked[1], [])
    assert interpreter(("numpy", "no_such_module"), asked) == (asked[1], ["no_such_module"])
    assert interpreter((), asked) == (asked[0], [])


def test_only_the_chosen_methods_run(module: str, tmp_path: Path) -> None:
    tasks = tuple(Task(name, f"{module}:work", {"value": 1}) for name in ("own", "peer-one", "peer-two"))
    rows = run(case_of(module, *tasks), tmp_path, methods=("peer-*",))
    assert [row["task"] for row in rows] == ["peer-one", "peer-two"]


def test_data_that_cannot_be_prepared_are_said(module: str, tmp_path: Path) -> None:
    case = Case("tiny", "a test", f"{module}:fail", lambda s: (Task("x", f"{module}:fail"),), lambda rows: Summary(""))
    with pytest.raises(TaskFailed, match=r"tiny: the data cannot be prepared.*the wheels came off"):
        run(case, tmp_path)


def test_memory_of_children_is_seen_from_outside() -> None:
    grandchild = "import time; b = bytearray(120 * 2**20); b[::4096] = b'x' * len(b[::4096]); time.sleep(1.5)"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])"
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        watch = MemoryWatch(process.pid)
        process.wait()
        found = watch.stop()
    assert 120 * MIB < found["peak_tree_pss"] < 220 * MIB
    assert found["peak_tree_rss"] >= found["peak_tree_pss"]
    assert found["peak_driver_rss"] < 60 * MIB


def test_a_stopwatch_counts_the_processor_time_of_children() -> None:
    with Stopwatch() as watch:
        subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.4: pass"], check=True)
        time.sleep(0.3)
    assert watch.seconds > 0.7
    assert 0.35 < watch.cpu_seconds < watch.seconds + 0.2


@pytest.fixture
def needs_cap() -> None:
    try:
        make_cap(64 * MIB).remove()
    except CapUnavailable as error:
        pytest.skip(f"no hard memory cap can be made here: {error}")


@pytest.mark.usefixtures("needs_cap")
def test_the_cap_is_hard_and_leaves_evidence(module: str, tmp_path: Path) -> None:
    tasks = (
        Task("small", f"{module}:fill", {"mib": 10}, cap_bytes=160 * MIB),
        Task("large", f"{module}:fill", {"mib": 400}, cap_bytes=160 * MIB),
    )
    small, large = run(case_of(module, *tasks), tmp_path)
    assert small["status"] == "ok"
    assert small["cap"]["limit"] == 160 * MIB
    assert small["cap"]["oom_kills"] == 0
    assert 10 * MIB < small["cap"]["peak_with_page_cache"] <= 160 * MIB
    assert large["status"] == "failed"
    assert "killed at the memory cap" in large["reason"]


def test_without_a_cap_the_task_is_skipped_loudly(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(limit: int) -> None:
        raise CapUnavailable("nothing to be had")

    monkeypatch.setattr("benchmarks.runner.make_cap", refuse)
    (row,) = run(case_of(module, Task("small", f"{module}:fill", {"mib": 1}, cap_bytes=MIB)), tmp_path)
    assert (row["status"], row["reason"]) == ("skipped", "no hard memory cap: nothing to be had")


def test_every_function_that_a_case_names_exists() -> None:
    from benchmarks.child import resolved

    for case in CASES.values():
        tasks = case.tasks(1.0)
        assert len({task.name for task in tasks}) == len(tasks)
        for name in {case.prepare, *(task.function for task in tasks), *([case.judge] if case.judge else [])}:
            assert callable(resolved(name))


def test_list_names_all_cases_and_methods(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert all(f"{name}: " in said for name in CASES)
    assert "sklearn-arpack" in said


WORKER = """
import json, os, sys
from benchmarks.cluster import bare_cluster, local_cluster

def asked(made):
    with made(1, "1GiB") as client:
        (found,) = client.run(lambda: dict(os.environ)).values()
    return [found, "dlatent" in sys.modules]

if __name__ == "__main__":
    print(json.dumps([asked(bare_cluster), asked(local_cluster)]))
"""


def test_workers_of_dlatent_have_what_it_recommends_and_those_of_peers_need_no_dlatent(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    recommended = worker_environment()
    given = {name: value for name, value in os.environ.items() if name not in recommended}
    given["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, str(script)], env=given, capture_output=True, text=True, check=True)
    (bare, imported), (own, _) = json.loads(done.stdout)
    assert not imported
    assert not set(recommended) & set(bare)
    assert {name: own.get(name) for name in recommended} == recommended
