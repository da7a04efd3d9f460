"""Runs the fuzz: workers read damaged inputs under limits of time and memory, and die without harm to the rest."""

from __future__ import annotations

import json
import os
import queue
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

SECONDS, BYTES = 5.0, 1 << 30
"""What one input may take: processor time, and memory on top of what the process had."""

HANG = 120.0
"""Seconds without an answer, after which a worker is taken to hang; far above what a busy machine needs."""

FORMATS = {
    **dict.fromkeys(("svmlight", "matrixmarket", "npz dense", "npz sparse", "npy", "csv", "parquet"), 3),
    **dict.fromkeys(("h5ad", "zarr dense", "zarr csr", "zarr anndata", "labels"), 3),
    **dict.fromkeys(("edges csv", "edges parquet", "edges npz", "edges zarr", "model"), 1),
}
"""Formats and how often they come."""

LIBRARIES = ("h5ad", "zarr anndata")
"""Formats with counts that a library believes, for which it takes memory or time (HDF5; numcodecs for texts of a chunk
that has no checksum): counted as refused, and said in docs/security.md."""


@dataclass
class Summary:
    """How many inputs of each format were accepted, refused, or brought out a failure."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    compared: int = 0
    deaths: int = 0
    failures: list[dict[str, Any]] = field(default_factory=list)

    def add(self, result: dict[str, Any]) -> None:
        """Count one input."""
        self.outcomes[result["format"], result["outcome"]] += 1
        self.compared += bool(result.get("compared"))
        self.deaths += bool(result.get("died"))
        if result["outcome"] not in ("accepted", "refused"):
            self.failures.append(result)

    def table(self) -> str:
        """One line for each format."""
        kinds = ["accepted", "refused", *sorted({kind for _, kind in self.outcomes} - {"accepted", "refused"})]
        lines = [f"{'format':16}" + "".join(f"{kind:>12}" for kind in kinds)]
        lines += [
            f"{name:16}" + "".join(f"{self.outcomes[name, kind]:12}" for kind in kinds)
            for name in FORMATS
            if any(self.outcomes[name, kind] for kind in kinds)
        ]
        totals = [sum(count for (_, found), count in self.outcomes.items() if found == kind) for kind in kinds]
        lines.append(f"{'all':16}" + "".join(f"{total:12}" for total in totals))
        lines.append(f"compared with an independent reader: {self.compared}")
        return "\n".join([*lines, f"refused because a library crashed or did not end: {self.deaths}"])


def fuzz(count: int, seed: int, *, jobs: int = 2, only: str | None = None, skip: tuple[str, ...] = ()) -> Summary:
    """Read inputs 0 … count − 1 of a seed; the same numbers make the same inputs everywhere."""
    from fuzz_seeds import write_seeds

    summary, waiting = Summary(), queue.SimpleQueue[int]()
    for number in range(count):
        waiting.put(number)
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_memory_folder()) as name:
        seeds = Path(name) / "seeds"
        seeds.mkdir()
        found = write_seeds(seeds)
        names = [key for key in FORMATS if (only is None or key == only) and key not in skip]
        plan = {"seed": seed, "formats": names, "seeds": {key: [str(one) for one in found[key]] for key in names}}
        (Path(name) / "plan.json").write_text(json.dumps(plan))
        lock = threading.Lock()

        def work(job: int) -> None:
            worker = _Worker(Path(name), job)
            while True:
                try:
                    number = waiting.get_nowait()
                except queue.Empty:
                    worker.stop()
                    return
                result = worker.run(number)
                with lock:
                    summary.add(result)
                    if sum(summary.outcomes.values()) % 1000 == 0:
                        print(f"{sum(summary.outcomes.values())} read, {len(summary.failures)} failures", flush=True)

        threads = [threading.Thread(target=work, args=(job,)) for job in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return summary


def replay(number: int, seed: int, target: Path, *, only: str | None = None, skip: tuple[str, ...] = ()) -> None:
    """Make one input again, keep it at `target`, and read it in this process; shows the traceback of what is raised."""
    from fuzz_seeds import write_seeds

    target.mkdir(parents=True, exist_ok=True)
    seeds = target / "seeds"
    seeds.mkdir()
    found = write_seeds(seeds)
    names = [key for key in FORMATS if (only is None or key == only) and key not in skip]
    plan = {"seed": seed, "formats": names, "seeds": {key: [str(one) for one in found[key]] for key in names}}
    print(_case(number, plan, target, keep=True))


def _memory_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class _Worker:
    """A process that reads one input after the other, and is started anew when one of them kills it."""

    def __init__(self, folder: Path, job: int) -> None:
        self._folder, self._job = folder, job
        self._process: subprocess.Popen[str] | None = None
        self._done = 0

    def run(self, number: int) -> dict[str, Any]:
        if self._process is None or self._done >= 500:  # a fresh one now and then: libraries keep memory
            self.stop()
            self._start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        alarm = threading.Timer(HANG, process.kill)
        alarm.start()
        try:
            process.stdin.write(f"{number}\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            hung = not alarm.is_alive()
            alarm.cancel()
        self._done += 1
        if line:
            return dict(json.loads(line))
        status = process.wait()
        self._process = None
        plan = json.loads((self._folder / "plan.json").read_text())
        format, _ = _chosen(number, plan)
        outcome = "refused" if format in LIBRARIES else "hangs" if hung else "crash"
        return {"number": number, "format": format, "outcome": outcome, "died": True, "error": f"exit status {status}"}

    def stop(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._process = None

    def _start(self) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), str(self._folder), str(self._job)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._done = 0


def _chosen(number: int, plan: dict[str, Any]) -> tuple[str, np.random.Generator]:
    rng = np.random.default_rng([plan["seed"], number])
    weights = np.array([FORMATS[name] for name in plan["formats"]], dtype=float)
    return plan["formats"][int(rng.choice(len(weights), p=weights / weights.sum()))], rng


def _case(number: int, plan: dict[str, Any], folder: Path, *, keep: bool = False) -> dict[str, Any]:
    from fuzz_mutations import mutate
    from fuzz_targets import differ, expected, run

    from dlatent.errors import DlatentError

    format, rng = _chosen(number, plan)
    given = [Path(one) for one in plan["seeds"][format]]
    source = given[int(rng.integers(len(given)))]
    here = folder / f"case{number}"
    here.mkdir()
    result: dict[str, Any] = {"number": number, "format": format, "source": source.name, "outcome": "accepted"}
    try:
        path = mutate(source, here / f"damaged{source.suffix}", rng)
        before, started = _start_measuring(), time.process_time()
        stored = None
        try:
            stored = run(format, path, source.parent, here, rng)
        except DlatentError as error:
            result.update(outcome="refused", error=str(error)[:300])
            if _has_memory_error(error):
                result["outcome"] = "memory"
        except BaseException as error:
            trace = traceback.extract_tb(error.__traceback__)
            where = " < ".join(f"{Path(at.filename).name}:{at.lineno}" for at in reversed(trace[-6:]))
            result.update(outcome="foreign", error=f"{type(error).__name__}: {str(error)[:200]} at {where}")
            if keep:
                traceback.print_exc()
        seconds, used = time.process_time() - started, _peak() - before
        if seconds > SECONDS:
            result.update(outcome="slow", error=f"{seconds:.1f} s; {result.get('error', '')}")
        if used > BYTES:
            result.update(outcome="memory", error=f"{used / 2**20:.0f} MiB; {result.get('error', '')}")
        if result["outcome"] in ("slow", "memory") and format in LIBRARIES:
            result["outcome"] = "refused"
        if result["outcome"] == "accepted" and stored is not None and not isinstance(stored, bool):
            other = expected(format, path)
            if other is not None:
                result["compared"] = True
                if (how := differ(stored, other)) is not None:
                    result.update(outcome="differs", error=how)
        return result
    finally:
        if not keep:
            shutil.rmtree(here, ignore_errors=True)


def _has_memory_error(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__
    return False


def _start_measuring() -> int:
    """Forget the peak of the memory so far; returns what is used now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) << 10


def _serve(folder: Path, job: int) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    space = folder / f"job{job}"
    space.mkdir(exist_ok=True)
    import fuzz_targets  # noqa: F401  its memory is none of the inputs'

    # No input may take the machine down before its memory is looked at.
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        out.write(json.dumps(_case(int(line), plan, space)) + "\n")
        out.flush()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), int(sys.argv[2]))
