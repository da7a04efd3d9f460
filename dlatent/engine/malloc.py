"""Keeping freed memory: pages that the system has just cleared cost more than the arithmetic on them.

A block function makes and frees the same temporary arrays for every block.  glibc gives each of them back to the system
and asks for it again where `MALLOC_TRIM_THRESHOLD_` is set, as distributed does for its workers.  A process that works
on a part keeps a few mebibytes, or a few blocks where its environment allows for it, until the end of a fit.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""
KEPT = 8 * 2**20
"""Bytes up to which an array is kept in the environment that distributed makes for workers; of what is free a thread
keeps at most twice as many."""
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""What lets glibc (2.35 or newer) ask the system for huge pages, where it gives them to those who ask.  Only NumPy asks
by itself; what a store decodes comes in small pages else, of which each costs more than the bytes on it."""
MOST_KEPT = 32 * 2**20
"""The same elsewhere: the most that glibc takes for this, to which it comes by itself when an array of this size was
freed, but slowly: threads wait for each other meanwhile, as one at a time may change the pages of their process."""


def worker_environment(threads: int = 1) -> dict[str, str]:
    """What should be in the environment of a worker of so many threads, before it starts: huge pages, and whole blocks
    that are kept for the next.

    Every thread keeps what it has freed.  So that these are few, Zarr decodes with as many threads as the worker
    computes with, and not with one for each core of the machine and four more.
    """
    own = {"MALLOC_MMAP_THRESHOLD_": str(MOST_KEPT), "ZARR_THREADING__MAX_WORKERS": str(threads)}
    return HUGE_PAGES | own


@cache
def keep() -> None:
    """Keep freed memory in this process from now on, as much as its environment allows for.

    distributed sets MALLOC_TRIM_THRESHOLD_, with which glibc keeps none and no longer adjusts itself; its nannies leave
    that in the environment of the driver, too, where it wins over what later workers should have.
    """
    trim, mmap = (os.environ.get(f"MALLOC_{name}_THRESHOLD_", "") for name in ("TRIM", "MMAP"))
    mallopt, kept = _function("mallopt"), MOST_KEPT
    if trim.isdigit():
        kept = max(KEPT, int(mmap)) if mmap.isdigit() else KEPT
    elif mmap or "threshold" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    if mallopt is not None:
        mallopt(TRIM_THRESHOLD, 2 * kept)
        mallopt(MMAP_THRESHOLD, kept)


def give_back() -> None:
    """Give the system what is free."""
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


def _function(name: str) -> Any:
    """A function of glibc; None where there is none."""
    return getattr(ctypes.CDLL(None), name, None) if os.name == "posix" else None
