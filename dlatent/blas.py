"""One BLAS thread per block function, so that tasks do not fight for cores and a sum has one order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock, local
from typing import Any

import scipy.linalg  # noqa: F401  (loads SciPy's own BLAS, so that the search finds it)
from threadpoolctl import ThreadpoolController


class _Limited:
    """Libraries held to one thread while anybody is inside; the last to leave restores what was before."""

    depth = 0
    _before: tuple[tuple[Any, int], ...] = ()

    def enter(self, libraries: tuple[Any, ...]) -> None:
        if self.depth == 0:
            self._before = tuple((library, library.get_num_threads()) for library in libraries)
            for library in libraries:
                _set_threads(library, 1)
        self.depth += 1

    def leave(self) -> None:
        self.depth -= 1
        if self.depth == 0:
            for library, threads in self._before:
                _set_threads(library, threads)


class _LimitedThread(_Limited, local):
    """The limit of each thread by itself."""


_lock = Lock()
_process = _Limited()
_thread = _LimitedThread()


@lru_cache(maxsize=1)
def _libraries() -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The BLAS libraries with one pool for the process, and those (over OpenMP) with a limit for each calling thread;
    looked up once, as the search costs milliseconds."""
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    of_thread = tuple(library for library in libraries if getattr(library, "threading_layer", None) == "openmp")
    return tuple(library for library in libraries if library not in of_thread), of_thread


@contextmanager
def pinned() -> Iterator[None]:
    """Hold every BLAS library to one thread while any caller is inside, from whichever threads they come.

    Most libraries have one limit for the process: the first to enter sets it, the last to leave restores it. OpenMP
    outside BLAS and the threads of decoders (blosc, zarr) are left alone.
    """
    with _lock:
        of_process, of_thread = _libraries()
        _process.enter(of_process)
    _thread.enter(of_thread)
    try:
        yield
    finally:
        _thread.leave()
        with _lock:
            _process.leave()


def _forked() -> None:
    """Free the libraries that other threads held when this process was forked, and have not come along."""
    global _lock
    _lock = Lock()
    _process.depth = min(_process.depth, 1)
    if _process.depth:
        _process.leave()


os.register_at_fork(after_in_child=_forked)


def _set_threads(library: Any, threads: int) -> None:
    # Newer versions of threadpoolctl (3.8 is one) let one thread own a library's limit and silently ignore all others.
    # Here the first to enter and the last to leave are different threads, so ownership is cleared before and after.
    disown = getattr(library, "clear_controlling_thread", None)
    if disown is not None:
        disown(force=True)
    library.set_num_threads(threads)
    if disown is not None:
        disown(force=True)


def kernels() -> str:
    """The kinds of processors for which the BLAS libraries of this process compute, such as "Haswell": others round
    otherwise in the last digits."""
    libraries = (library for kind in _libraries() for library in kind)
    return ", ".join(sorted({str(getattr(library, "architecture", library.internal_api)) for library in libraries}))
