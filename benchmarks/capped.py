"""A hard limit on the memory of a whole process tree: a control group of the kernel, version 1 or 2."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path("/sys/fs/cgroup")


class CapUnavailable(RuntimeError):
    """No control group with a memory limit can be made here; the text says why."""


@dataclass(frozen=True)
class MemoryCap:
    """A control group of its own whose processes together may use `limit` bytes, page cache included."""

    folder: Path
    limit: int
    version: int

    def join(self) -> None:
        """Put the calling process, and thereby all its children, under the limit."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def evidence(self) -> dict[str, Any]:
        """What the kernel says: the limit, the peak, how often it was hit (page cache then makes room), and kills."""
        if self.version == 1:
            return {
                "limit": self._number("memory.limit_in_bytes"),
                "peak_with_page_cache": self._number("memory.max_usage_in_bytes"),
                "times_at_limit": self._number("memory.failcnt"),
                "oom_kills": self._keyed("memory.oom_control").get("oom_kill", -1),
            }
        events = self._keyed("memory.events")
        return {
            "limit": self._number("memory.max"),
            "peak_with_page_cache": self._number("memory.peak"),
            "times_at_limit": events.get("max", -1),
            "oom_kills": events.get("oom_kill", -1),
        }

    def resident(self) -> int:
        """Bytes of anonymous memory now: what the kernel cannot take back, unlike page cache."""
        counts = self._keyed("memory.stat")
        return counts.get("total_rss", counts.get("anon", 0))

    def remove(self) -> None:
        """Delete the group; its processes must have ended, and the kernel may need a moment to see it."""
        for _ in range(50):
            with suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.1)

    def _number(self, name: str) -> int:
        with suppress(OSError, ValueError):
            return int((self.folder / name).read_text())
        return -1

    def _keyed(self, name: str) -> dict[str, int]:
        with suppress(OSError):
            lines = (line.split() for line in (self.folder / name).read_text().splitlines())
            return {line[0]: int(line[1]) for line in lines}
        return {}


def make_cap(limit: int) -> MemoryCap:
    """A new control group below the one of this process. Raises CapUnavailable with the reason."""
    own = {controllers: path for _, controllers, path in _memberships()}
    name = f"dlatent-benchmark-{os.getpid()}-{time.time_ns()}"
    if (ROOT / "memory").is_dir() and "memory" in own:
        return _limited(ROOT / "memory" / own["memory"].lstrip("/") / name, limit, 1)
    if "" in own:
        return _limited(ROOT / own[""].lstrip("/") / name, limit, 2)
    raise CapUnavailable("this system has no control groups at /sys/fs/cgroup")


def _memberships() -> list[list[str]]:
    try:
        return [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError as error:
        raise CapUnavailable(f"this system has no control groups ({error})") from error


def _limited(folder: Path, limit: int, version: int) -> MemoryCap:
    knobs = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes") if version == 1 else ("memory.max",)
    try:
        folder.mkdir()
    except OSError as error:
        raise CapUnavailable(f"the control group {folder} cannot be made: {error}") from error
    try:
        (folder / knobs[0]).write_text(str(limit))
        for knob in (*knobs[1:], "memory.swap.max"):  # no way out by swapping, where the kernel counts swap
            if (folder / knob).exists():
                (folder / knob).write_text("0" if knob == "memory.swap.max" else str(limit))
    except OSError as error:
        folder.rmdir()
        raise CapUnavailable(
            f"{folder} takes no memory limit: {error}; run as root, or under systemd-run --user --scope -p Delegate=yes"
        ) from error
    return MemoryCap(folder, limit, version)
