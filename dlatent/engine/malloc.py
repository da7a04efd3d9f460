"""Keeping freed memory while a pass runs: pages that the system has just cleared cost more than the arithmetic on them.

A block function makes and frees the same temporary arrays for every block.  glibc gives each of them back to the system
and asks for it again where `MALLOC_TRIM_THRESHOLD_` is set, as distributed does for its workers, because that also ends
glibc's own adjustment to such programs.  While a fit runs a few mebibytes are kept, or a few blocks where the
environment of the worker allows for it; after it the thresholds are as they were, and what is free goes back.

In a process where glibc adjusts itself, it does so slowly: two threads then wait for each other, as only one at a time
may change the pages of their process.  A fit puts the thresholds where the adjustment ends, at the first array of 32
MiB that is freed, and leaves them there.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock
from typing import NamedTuple

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
_between = False
"""Whether the thresholds of a fit hold between its tasks, too."""


class _Settings(NamedTuple):
    """Functions of glibc, and the thresholds that hold outside of passes."""

    mallopt: Callable[[int, int], int]
    malloc_trim: Callable[[int], int]
    trim: int
    mmap: int


@lru_cache(maxsize=1)
def _settings() -> _Settings | None:
    """None where the system has none, or where the environment has others than a worker's."""
    library = ctypes.CDLL(None) if os.name == "posix" else None
    mallopt, malloc_trim = (getattr(library, name, None) for name in ("mallopt", "malloc_trim"))
    if mallopt is None or malloc_trim is None:
        return None
    given, usual = (os.environ.get(f"MALLOC_{name}_THRESHOLD_", "") for name in ("TRIM", "MMAP"))
    if given.isdigit():
        return _Settings(mallopt, malloc_trim, int(given), int(usual) if usual.isdigit() else USUAL_MMAP_THRESHOLD)
    adjusts = not usual and "threshold" not in os.environ.get("GLIBC_TUNABLES", "")
    return _Settings(mallopt, malloc_trim, 2 * MOST_KEPT, MOST_KEPT) if adjusts else None


def _set(found: _Settings, trim: int, mmap: int) -> None:
    found.mallopt(TRIM_THRESHOLD, trim)
    found.mallopt(MMAP_THRESHOLD, mmap)


def worker_environment(threads: int = 1) -> dict[str, str]:
    """What should be in the environment of a worker of so many threads, before it starts: huge pages, and whole blocks
    that are kept for the next.

    Every thread keeps what it has freed.  So that these are few, Zarr decodes with as many threads as the worker
    computes with, and not with one for each core of the machine and four more.
    """
    own = {"MALLOC_MMAP_THRESHOLD_": str(MOST_KEPT), "ZARR_THREADING__MAX_WORKERS": str(threads)}
    return HUGE_PAGES | own


@contextmanager
def kept(*, briefly: bool = False) -> Iterator[None]:
    """Keep freed memory while any caller is inside, from whichever threads they come, and unless `briefly` until
    `given_back`: what comes and goes between two tasks are statistics on their way, of the size of a block.

    Does nothing without glibc.
    """
    global _inside, _between
    found = _settings()
    if found is None:
        yield
        return
    with _lock:
        _inside += 1
        if _inside == 1 and not _between:
            size = max(KEPT, found.mmap)
            _set(found, 2 * size, size)
        _between = _between or not briefly
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and not _between:
                _set(found, found.trim, found.mmap)


def given_back() -> None:
    """End what outlives `kept`, and give the system what is free; the next task of another fit begins it anew."""
    global _between
    found = _settings()
    if found is None:
        return
    with _lock:
        _between = False
        if _inside == 0:
            _set(found, found.trim, found.mmap)
    found.malloc_trim(0)
