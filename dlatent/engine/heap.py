"""Keeping freed memory while a pass runs: pages that the system has just cleared cost more than the arithmetic on them.

A block function makes and frees the same temporary arrays for every block.  glibc gives each of them back to the system
and asks for it again where `MALLOC_TRIM_THRESHOLD_` is set, as distributed does for its workers, because that also ends
glibc's own adjustment to such programs.  While a pass runs a few mebibytes are kept, or a few blocks where the
environment of the worker allows for it; after it the thresholds are as they were.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""
USUAL_MMAP_THRESHOLD = 128 * 2**10
"""What holds where the environment sets the other one."""
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""What in the environment of a process, before it starts, lets glibc (2.35 or newer) ask the system for huge pages,
where it gives them to those who ask.  Only NumPy asks by itself; what a store decodes comes in small pages else, of
which each costs more than the bytes on it."""
KEPT = 8 * 2**20
"""Bytes from which an array has pages of its own, where the environment does not say more; a thread keeps at most twice
as many that are free."""
MOST_KEPT = 32 * 2**20
"""The most that glibc takes for this."""

_lock = Lock()
_inside = 0


@lru_cache(maxsize=1)
def _settings() -> tuple[Callable[[int, int], int], int, int] | None:
    """mallopt and the thresholds that hold outside of passes; None where the environment or the system has none."""
    given = os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is None or not given.isdigit():
        return None
    usual = os.environ.get("MALLOC_MMAP_THRESHOLD_", "")
    return mallopt, int(given), int(usual) if usual.isdigit() else USUAL_MMAP_THRESHOLD


def _set(trim: int, mmap: int) -> None:
    found = _settings()
    assert found is not None
    found[0](TRIM_THRESHOLD, trim)
    found[0](MMAP_THRESHOLD, mmap)


def worker_environment(threads: int = 1) -> dict[str, str]:
    """What should be in the environment of a worker of so many threads, before it starts: huge pages, and whole blocks
    that are kept for the next.

    Every thread keeps what it has freed.  So that these are few, Zarr decodes with as many threads as the worker
    computes with, and not with one for each core of the machine and four more.
    """
    own = {"MALLOC_MMAP_THRESHOLD_": str(MOST_KEPT), "ZARR_THREADING__MAX_WORKERS": str(threads)}
    return HUGE_PAGES | own


@contextmanager
def kept() -> Iterator[None]:
    """Keep freed memory while any caller is inside, from whichever threads they come.

    Does nothing without glibc, nor where its own adjustment is at work, which could not be restored.
    """
    global _inside
    found = _settings()
    if found is None:
        yield
        return
    with _lock:
        _inside += 1
        if _inside == 1:
            size = max(KEPT, found[2])
            _set(2 * size, size)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _set(*found[1:])
