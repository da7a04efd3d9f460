"""The machine in words and numbers, without names or addresses."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import psutil


def describe() -> dict[str, Any]:
    """Processor, cores, memory, operating system, and how busy the machine is now."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "load": round(os.getloadavg()[0], 2),
    }


def in_words(machine: dict[str, Any]) -> str:
    """The description as one sentence."""
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory'] / 2**30:.0f} GiB of memory, "
        f"{machine['system']}."
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
