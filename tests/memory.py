"""The memory that a piece of a test takes.

Not by `tracemalloc` where threads of Zarr may still decode: it ends the process when it is stopped while another thread
allocates without the lock of the interpreter (CPython issue 128679).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlatent.engine.machine import give_back


def peak_of_process() -> int:
    """The most bytes that lay in the memory of this process since `forget_peak`."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) << 10


def forget_peak() -> int:
    """Forget the peak so far; returns what lies in memory now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_of_process()


@contextmanager
def taking_at_most(size: int) -> Iterator[None]:
    """What runs inside takes at most so many bytes more than there were.  What was free before is given back first, so
    that it cannot hide there."""
    give_back()
    before = forget_peak()
    yield
    assert peak_of_process() - before < size
