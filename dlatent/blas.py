"""One BLAS thread per block function, so that tasks do not fight for cores and a sum has one order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock, local
from typing import Any, NamedTuple

import scipy.linalg  # noqa: F401  (loads SciPy's own BLAS, so that the search finds it)
from threadpoolctl import ThreadpoolController


class _Limited:
    """Libraries held to one thread while anybody is inside; the last to leave restores what was before."""

    def __init__(self) -> None:
        self.depth = 0
        self._before: list[tuple[Any, int]] = []

    def enter(self, libraries: tuple[Any, ...]) -> None:
        if self.depth == 0:
            self._before = [(library, library.get_num_threads()) for library in libraries]
            for library in libraries:
                _set_threads(library, 1)
        self.depth += 1

    def leave(self) -> None:
        self.depth -= 1
        if self.depth == 0:
            for library, threads in self._before:
                _set_threads(library, threads)


class _Libraries(NamedTuple):
    """BLAS libraries with one pool for the process, and those (over OpenMP) with a limit for each calling thread."""

    of_process: tuple[Any, ...]
    of_thread: tuple[Any, ...]


class _Thread(local):
    def __init__(self) -> None:
        self.limited = _Limited()


_lock = Lock()
_process = _Limited()
_thread = _Thread()


@lru_cache(maxsize=1)
def _libraries() -> _Libraries:
    """The BLAS libraries of this process, looked up once (the search costs milliseconds)."""
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    over_openmp = [getattr(library, "threading_layer", None) == "openmp" for library in found]
    return _Libraries(
        tuple(library for library, own in zip(found, over_openmp, strict=True) if not own),
        tuple(library for library, own in zip(found, over_openmp, strict=True) if own),
    )


@contextmanager
def pinned() -> Iterator[None]:
    """Hold every BLAS library to one thread while any caller is inside, from whichever threads they come.

    Most libraries have one limit for the process: the first to enter sets it, the last to leave restores it. OpenMP
    outside BLAS and the threads of decoders (blosc, zarr) are left alone.
    """
    with _lock:
        libraries = _libraries()
        _process.enter(libraries.of_process)
    _thread.limited.enter(libraries.of_thread)
    try:
        yield
    finally:
        _thread.limited.leave()
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
    found = (library for kind in _libraries() for library in kind)
    return ", ".join(sorted({str(getattr(library, "architecture", library.internal_api)) for library in found}))
