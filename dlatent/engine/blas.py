"""One BLAS thread per block function, so that tasks do not fight for cores and a sum has one order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock
from typing import Any

import scipy.linalg  # noqa: F401  (loads SciPy's own BLAS, so that the controller finds it)
from threadpoolctl import ThreadpoolController

_lock = Lock()
_depth = 0
_limit: Any = None


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    """The BLAS libraries of this process, looked up once (the search costs milliseconds)."""
    return ThreadpoolController()


@contextmanager
def pinned() -> Iterator[None]:
    """Hold every BLAS library of this process to one thread while any caller is inside.

    The limit belongs to the process, not to a thread: the first to enter sets it and the last to leave restores what
    was there before. OpenMP and the threads of decoders (blosc, zarr) are left alone.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _depth, _limit
    with _lock:
        if _depth == 0:
            _limit = _controller().limit(limits=1, user_api="blas")
        _depth += 1


def _leave() -> None:
    global _depth, _limit
    with _lock:
        _depth -= 1
        if _depth == 0:
            limit, _limit = _limit, None
            limit.restore_original_limits()
