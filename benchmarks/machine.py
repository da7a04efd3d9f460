"""The machine in words and numbers, without names or addresses."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import psutil

from dlatent.engine.machine import HUGE_PAGES

PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def environment() -> dict[str, str]:
    """The environment of every task, dlatent's and the peers': that of this process, and as workers are best started;
    a GLIBC_TUNABLES of this process comes first."""
    return HUGE_PAGES | dict(os.environ)


def describe() -> dict[str, Any]:
    """Processor, cores, memory, operating system, and how busy the machine is now."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "huge_pages": _huge_pages(),
        "load": round(os.getloadavg()[0], 2),
    }


def in_words(machine: dict[str, Any]) -> str:
    """The description as one sentence."""
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory'] / 2**30:.0f} GiB of memory, "
        f"{machine['system']}{_with_pages(machine)}."
    )


def _with_pages(machine: dict[str, Any]) -> str:
    found = machine.get("huge_pages")
    return f", huge pages: {found}" if found else ""


def _huge_pages() -> str | None:
    """To whom the system gives huge pages (Linux), and what tasks are told about them."""
    if not PAGES.exists():
        return None
    mode = PAGES.read_text().partition("[")[2].partition("]")[0]
    (name,) = HUGE_PAGES
    return f"{mode}, {name}={environment()[name]}"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
