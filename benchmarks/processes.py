"""Memory and processor time of a tree of processes, sampled from outside."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from time import perf_counter
from typing import Any

import psutil

INTERVAL = 0.2
"""Seconds between samples; a shorter peak of one process is still seen, as the kernel keeps its high-water mark."""
RISE, SELDOM = 1.01, 2.0
"""Proportional sets are read when the resident ones have risen by this factor, or after so many seconds: the system
walks all page tables for them, and holds up those who ask it for memory (of two workers on two cores it took 7 %)."""

_HIGH_WATER = re.compile(rb"VmHWM:\s+(\d+) kB")


def tree(root: int) -> list[psutil.Process]:
    """The process and all its descendants that are alive."""
    try:
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def processor_seconds(root: int) -> float:
    """User and system seconds of the tree so far, dead children of the living included."""
    total = 0.0
    for process in tree(root):
        with suppress(psutil.Error):
            spent = process.cpu_times()
            total += spent.user + spent.system
            # Children that have ended and were waited for; the living are in the tree themselves.
            total += getattr(spent, "children_user", 0.0) + getattr(spent, "children_system", 0.0)
    return total


@dataclass
class Stopwatch:
    """Wall seconds and processor seconds of this process and its descendants inside a with-block."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def __enter__(self) -> Stopwatch:
        self._cpu, self._wall = processor_seconds(os.getpid()), perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = perf_counter() - self._wall
        self.cpu_seconds = processor_seconds(os.getpid()) - self._cpu


def role_of(process: psutil.Process, root: int) -> str:
    """ "driver" for the root, "worker" for processes that multiprocessing made, "helper" for all others."""
    if process.pid == root:
        return "driver"
    command = " ".join(process.cmdline())
    return "worker" if "multiprocessing" in command and "resource_tracker" not in command else "helper"


def high_water(pid: int) -> int:
    """The largest resident set of a process so far, in bytes (what ru_maxrss will be)."""
    with open(f"/proc/{pid}/status", "rb") as status:
        found = _HIGH_WATER.search(status.read())
    return int(found.group(1)) * 1024 if found else 0


def proportional(process: psutil.Process) -> int:
    """Proportional set size in bytes: shared pages divided among those who share them."""
    with open(f"/proc/{process.pid}/smaps_rollup", "rb") as rollup:
        for line in rollup:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return int(process.memory_info().rss)


@dataclass
class MemoryWatch:
    """Samples a tree in a thread until `stop`; peaks in bytes."""

    root: int
    peak_tree_pss: int = 0
    peak_tree_rss: int = 0
    high_waters: dict[int, int] = field(default_factory=dict)
    roles: dict[int, str] = field(default_factory=dict)
    samples: int = 0
    proportional_samples: int = 0

    def __post_init__(self) -> None:
        self._risen, self._due = 0.0, 0.0
        self._over = Event()
        self._thread = Thread(target=self._watch, name="memory-watch", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(INTERVAL):
            self._sample()

    def _sample(self) -> None:
        alive, rss = tree(self.root), 0
        for process in alive:
            with suppress(psutil.Error, OSError):
                role = self.roles.get(process.pid) or role_of(process, self.root)
                self.high_waters[process.pid] = max(self.high_waters.get(process.pid, 0), high_water(process.pid))
                self.roles[process.pid] = role
                rss += process.memory_info().rss
        self.peak_tree_rss = max(self.peak_tree_rss, rss)
        self.samples += 1
        if rss > self._risen or perf_counter() > self._due:
            self._sample_proportional(alive)
            self._risen, self._due = max(self._risen, RISE * rss), perf_counter() + SELDOM

    def _sample_proportional(self, alive: list[psutil.Process]) -> None:
        pss = 0
        for process in alive:
            with suppress(psutil.Error, OSError):
                pss += proportional(process)
        self.peak_tree_pss = max(self.peak_tree_pss, pss)
        self.proportional_samples += 1

    def stop(self) -> dict[str, Any]:
        """End the sampling; the peaks by name."""
        self._over.set()
        self._thread.join()
        return {
            "peak_tree_pss": self.peak_tree_pss,
            "peak_tree_rss": self.peak_tree_rss,
            "peak_driver_rss": self._largest("driver"),
            "peak_worker_rss": self._largest("worker"),
            "memory_samples": self.samples,
            "proportional_samples": self.proportional_samples,
        }

    def _largest(self, role: str) -> int:
        return max((peak for pid, peak in self.high_waters.items() if self.roles[pid] == role), default=0)
