"""A sampling profiler: what every thread of a process is at, every few milliseconds, in the words of the engine.

A sample weighs the seconds since the one before, so that a call that holds the interpreter, and delays the sampler,
still counts in full.  Samples see Python functions: what a function calls in compiled code counts as its own.
"""

from __future__ import annotations

import linecache
import sys
from collections import Counter
from threading import Event, Thread, get_ident
from time import perf_counter
from types import FrameType
from typing import NamedTuple

INTERVAL = 0.004
ENGINE, LIBRARY = "dlatent.engine.", "dlatent."
TASKS = {
    "fold.run_group", "pairs.meet", "pairs.meet_once", "pairs.finish", "pairs.tiles",
    "edges.project", "edges.spread", "edges.fold_met",
}  # fmt: skip
"""Functions of the engine that work on blocks, whose seconds the engine counts as busy."""
JOINING, PASS, LOADING, WAITING = {"fold.join"}, "base._passed", "fold._load", "fold.read_ahead"
DATA, READING, ADDING, JOINS = "waiting for data", "reading", "adding statistics", "joining groups"


class Sample(NamedTuple):
    """Where a thread was (task, join, reader or driver), the part of the work, and the line of source."""

    place: str
    part: str
    line: str


def classified(frame: FrameType | None) -> Sample | None:
    """What a stack is at, by its functions of the library from the inside out; None where it has none, or where the
    driver waits for a pass.

    All of a task that is not reading, waiting for data or adding statistics is named by its innermost function.
    """
    own: FrameType | None = None
    engine, names = list[str](), list[str]()
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(LIBRARY):
            own = own or frame
            names.append(f"{module.rpartition('.')[2]}.{frame.f_code.co_name}")
            if module.startswith(ENGINE):
                engine.append(names[-1])
        frame = frame.f_back
    if own is None:
        return None
    line = _line(own)
    # The innermost: a join of shares that are made one after the other asks for the work that makes the next.
    work = next((name for name in engine if name in TASKS | JOINING), None)
    if LOADING in engine:
        return Sample("reader" if work is None else "task", READING, line)
    if work in JOINING:
        return Sample("join", JOINS, line)
    if work is not None:
        part = ADDING if names[0] == "arrays.add" else DATA if names[0] == WAITING else names[0]
        return Sample("task", part, line)
    return None if PASS in engine else Sample("driver", names[0], line)


def _line(frame: FrameType) -> str:
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    return f"{frame.f_globals['__name__'].removeprefix(LIBRARY)}:{frame.f_lineno}: {text}"


class Sampler:
    """Samples all threads of this process but its own, until it is stopped."""

    def __init__(self) -> None:
        self._seconds: Counter[Sample] = Counter()
        self._over = Event()
        self._thread = Thread(target=self._watch, name="sampler", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        before = perf_counter()
        while not self._over.wait(INTERVAL):
            now = perf_counter()
            for thread, frame in sys._current_frames().items():
                sample = None if thread == get_ident() else classified(frame)
                if sample is not None:
                    self._seconds[sample] += now - before  # type: ignore[assignment]
            before = now

    def stop(self) -> dict[Sample, float]:
        """Seconds of each sample."""
        self._over.set()
        self._thread.join()
        return dict(self._seconds)


_samplers: list[Sampler] = []


def start() -> None:
    """Begin in this process; `Client.run` calls it in workers."""
    _samplers.append(Sampler())


def stop() -> dict[Sample, float]:
    """End what `start` has begun."""
    return _samplers.pop().stop()
