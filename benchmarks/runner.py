"""Run the tasks of a case, each in its own process, and write one JSON line per result."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.capped import CapUnavailable, MemoryCap, make_cap
from benchmarks.machine import describe, environment
from benchmarks.processes import MemoryWatch
from benchmarks.task import Case, Row, Task

PREPARED = "prepared.json"
REPOSITORY = Path(__file__).resolve().parent.parent
TIMED_OUT = 124
"""Exit status of a task that was killed at its time limit, as that of `timeout`."""
PROBE = "import importlib.util as u, sys; print(*[m for m in sys.argv[1:] if u.find_spec(m) is None])"


class TaskFailed(RuntimeError):
    """A task ended with an error; the text is the end of what it printed."""


@dataclass(frozen=True)
class Options:
    """How to run: which tasks (patterns of names), how often, at what scale, where the data and the results go."""

    methods: tuple[str, ...] = ("*",)
    repeats: int = 3
    scale: float = 1.0
    work: Path = Path()
    out: Path | None = None
    peers_python: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ran:
    """What one process left: its own findings, the file of components if any, and what was measured from outside."""

    found: Row
    measured: Row


def run_case(case: Case, options: Options, say: Callable[[str], None]) -> list[Row]:
    """Prepare the data, then run the chosen tasks in turns, so that slow spells of the machine hit all alike."""
    folder = options.work / f"{case.name}-{options.scale:g}"
    folder.mkdir(parents=True, exist_ok=True)
    run, machine, rows = uuid4().hex[:8], describe(), list[Row]()
    chosen = [task for task in case.tasks(options.scale) if any(fnmatch(task.name, p) for p in options.methods)]
    try:
        data = prepared(case, folder, options.scale, say) if chosen else {}
    except TaskFailed as error:
        raise TaskFailed(f"{case.name}: the data cannot be prepared: {error}") from error
    for repeat in range(options.repeats):
        for task in chosen:
            if task.once and repeat:
                continue
            row = {"run": run, "time": time.strftime("%Y-%m-%d %H:%M:%S"), "case": case.name, "task": task.name}
            row |= {"repeat": repeat, "scale": options.scale, "arguments": dict(task.arguments)}
            row |= _outcome(case, task, folder, options) | {"data": data, "machine": machine}
            row["load"] = round(os.getloadavg()[0], 2)
            rows.append(row)
            _append(options.out, row)
            say(_line(row))
    return rows


def prepared(case: Case, folder: Path, scale: float, say: Callable[[str], None]) -> Row:
    """The description of the data, which are written in the first run."""
    marker = folder / PREPARED
    if not marker.exists():
        say(f"{case.name}: preparing the data")
        task = Task("prepare", case.prepare, timeout=7200.0)
        found = run_process(task, folder, scale, sys.executable).found
        marker.write_text(json.dumps({name: value for name, value in found.items() if name != "versions"}))
    return dict(json.loads(marker.read_text()))


def _outcome(case: Case, task: Task, folder: Path, options: Options) -> Row:
    python, missing = interpreter(task.requires, (sys.executable, *options.peers_python))
    if missing:
        return {"status": "skipped", "reason": f"not installed: {', '.join(missing)}"}
    with tempfile.TemporaryDirectory(dir=options.work, prefix="result-") as scratch:
        try:
            ran = run_process(task, folder, options.scale, python, Path(scratch))
            quality = _judged(case, folder, options.scale, Path(scratch))
        except CapUnavailable as error:
            return {"status": "skipped", "reason": f"no hard memory cap: {error}"}
        except TaskFailed as error:
            return {"status": "failed", "reason": without_places(str(error), options.work)}
    return {"status": "ok"} | ran.measured | ran.found | ({"quality": quality} if quality else {})


def interpreter(modules: Sequence[str], pythons: Sequence[str]) -> tuple[str, list[str]]:
    """The first interpreter that has all modules, else that which lacks the fewest, and what it lacks."""
    lacking = [(python, _missing(modules, python)) for python in pythons]
    return min(lacking, key=lambda found: len(found[1]))


def _missing(modules: Sequence[str], python: str) -> list[str]:
    if not modules:
        return []
    asked = subprocess.run([python, "-c", PROBE, *modules], capture_output=True, text=True, check=True)
    return asked.stdout.split()


def _judged(case: Case, folder: Path, scale: float, scratch: Path) -> Row:
    components = scratch / "result.npy"
    if case.judge is None or not components.exists():
        return {}
    judge = Task("judge", case.judge, {"components": os.fspath(components)})
    found = run_process(judge, folder, scale, sys.executable).found
    return {name: value for name, value in found.items() if name != "versions"}


def run_process(task: Task, folder: Path, scale: float, python: str, scratch: Path | None = None) -> Ran:
    """Run a task in a process of its own, watched from here. Raises TaskFailed, CapUnavailable."""
    if scratch is None:
        with tempfile.TemporaryDirectory(prefix="dlatent-benchmark-") as place:
            return run_process(task, folder, scale, python, Path(place))
    request, result, log = scratch / "request.json", scratch / "result.json", scratch / "log.txt"
    asked = {"function": task.function, "arguments": dict(task.arguments), "folder": os.fspath(folder), "scale": scale}
    request.write_text(json.dumps(asked))
    if task.cold:
        forget(folder)
    cap = make_cap(task.cap_bytes) if task.cap_bytes else None
    command = [python, "-m", "benchmarks.child", os.fspath(request), os.fspath(result)]
    try:
        code, measured = _watched(command, log, cap, task.timeout)
        if cap is not None:
            measured["cap"] = cap.evidence()
    finally:
        if cap is not None:
            cap.remove()
    if code or not result.exists():
        late = f"timed out after {task.timeout:g} s, " if code == TIMED_OUT else ""
        raise TaskFailed(f"{late}exit status {code}{_cap_note(measured)}: {_tail(log)}")
    return Ran(json.loads(result.read_text()), measured)


def forget(folder: Path) -> None:
    """Write what waits to be written, and drop the page cache of all files in a folder."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _watched(command: list[str], log: Path, cap: MemoryCap | None, timeout: float) -> tuple[int, Row]:
    places = [os.fspath(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(filter(None, places)), "PYTHONWARNINGS": "ignore"}
    started = time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment() | own,
            cwd=REPOSITORY,
            start_new_session=True,
            preexec_fn=None if cap is None else cap.join,
        )
    memory = MemoryWatch(process.pid)
    code, cpu = _waited(process, started + timeout)
    seconds = time.perf_counter() - started
    return code, {"wall_seconds": seconds, "cpu_seconds": cpu} | memory.stop()


def _waited(process: subprocess.Popen[bytes], deadline: float) -> tuple[int, float]:
    """Exit status, and processor seconds of the process and of all descendants that it waited for."""
    for _ in _ticks(deadline):
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, usage.ru_utime + usage.ru_stime
    os.killpg(process.pid, signal.SIGKILL)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = -9
    return TIMED_OUT, usage.ru_utime + usage.ru_stime


def _ticks(deadline: float) -> Iterator[None]:
    while time.perf_counter() < deadline:
        yield
        time.sleep(0.02)


def without_places(text: str, work: Path) -> str:
    """The text without the folders of this machine, which tell readers of results nothing."""
    places = {os.fspath(work): "WORK", os.fspath(REPOSITORY): ".", sys.prefix: "PYTHON", sys.base_prefix: "PYTHON"}
    for place, name in places.items():
        text = text.replace(place, name)
    return text


def _cap_note(measured: Row) -> str:
    kills = measured.get("cap", {}).get("oom_kills", 0)
    return f" ({kills} processes killed at the memory cap)" if kills > 0 else ""


def _tail(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip(" ^~")]
    return " | ".join(lines[-5:])[-1500:]


def _append(out: Path | None, row: Row) -> None:
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("a") as lines:
            lines.write(json.dumps(row) + "\n")


def _line(row: dict[str, Any]) -> str:
    if row["status"] != "ok":
        return f"{row['case']} {row['task']}: {row['status']}: {row['reason']}"
    fit = f", fit {row['fit_seconds']:.2f} s" if "fit_seconds" in row else ""
    captured = row.get("quality", {}).get("captured")
    quality = f", captured {captured:.6f}" if captured is not None else ""
    return (
        f"{row['case']} {row['task']} #{row['repeat']}: {row['wall_seconds']:.2f} s wall, {row['cpu_seconds']:.2f} s "
        f"processors{fit}, {row['peak_tree_pss'] / 2**20:.0f} MiB{quality}"
    )
