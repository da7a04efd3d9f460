"""Temporary directories beside a local destination: whose they are, and what becomes of them when their owner dies.

A writer works in `.NAME.partial-HOST-RANDOM` and holds a lock (`flock`) on that directory while it lives.  The kernel
gives the lock up when the process ends, however it ends: where the lock is free, the owner is dead, and nothing has to
ask the clock.  A lock is known to one machine only, so the name says which (HOST), and what another machine left is
never touched.  Where a file system has no locks nothing is removed.

Laws (tested in tests/stores/test_stores_temporary.py and test_stores_machine.py):
1. `sweep` removes what dead owners left, and never what a living one works in.
2. Whenever `replace` dies, the old store or the new one is at the destination, or `put_back` brings the old one back,
   which whoever looks there calls first.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import os
import platform
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from dlatent.errors import StoreError

PARTIAL = ".partial-"
"""Part of the name of every directory that a writer has not finished."""

OLD = "old-"
"""Follows `PARTIAL` in the name of a complete store that stepped aside for another."""

HOST = hashlib.blake2b(platform.node().encode(), digest_size=4).hexdigest() + "-"
"""This machine, in the names of the directories that its processes make."""

_LOCKS: dict[str, int] = {}
"""Descriptors that hold the locks of this process, by directory."""

_UNFINISHED: dict[str, int] = {}
"""Directories that were made and not moved to their place, and the process that made them."""


def make(path: Path, mode: int = 0o777) -> Path:
    """A new empty directory for a writer of `path`, locked until `release` or `discard`."""
    while True:
        directory = temporary_path(path)
        _UNFINISHED[str(directory)] = os.getpid()
        directory.mkdir(mode)
        with contextlib.suppress(BlockingIOError, FileNotFoundError):  # somebody sweeps, and came in between
            take(directory)
            return directory


def temporary_path(path: Path, tag: str = "") -> Path:
    """A new name beside `path`."""
    return path.with_name(f".{path.name}{PARTIAL}{tag}{HOST}{secrets.token_hex(6)}")


def made_for(directory: Path) -> Path:
    """The place that `make` was asked for; other directories themselves."""
    name, partial, _ = directory.name[1:].partition(PARTIAL)
    return directory.with_name(name) if partial else directory


def take(directory: Path) -> None:
    """Lock a directory that is new, or that another process made and left.

    Errors: BlockingIOError where a living process has its lock; FileNotFoundError where it is gone.
    """
    try:
        lock = hold(directory)
    except (BlockingIOError, FileNotFoundError):
        raise
    except OSError:  # no locks on this file system
        return
    _LOCKS[str(directory)] = lock
    if not (os.path.lexists(directory) and os.path.samestat(os.stat(directory), os.fstat(lock))):
        _unlock(directory)
        raise FileNotFoundError(directory)


def release(directory: str | os.PathLike[str]) -> None:
    """Give up the lock of a directory that has been moved to its place, or that is left to another process."""
    _UNFINISHED.pop(os.fspath(directory), None)
    _unlock(directory)


def discard(directory: str | os.PathLike[str]) -> None:
    """Remove a directory that `make` made, now and again when the process ends."""
    remove(Path(directory))
    _unlock(directory)


@atexit.register
def _clear() -> None:
    """Remove what an interrupt kept from being removed, or a thread that was still writing has made once more; threads
    have ended when this runs."""
    for directory, process in _UNFINISHED.items():
        if process == os.getpid():
            remove(Path(directory))


def sweep(path: Path) -> None:
    """Put an old store back that a dead writer of `path` moved aside, and remove what dead writers left."""
    put_back(path)
    for leftover in (*_left(path, HOST), *_left(path, OLD + HOST)):
        with contextlib.suppress(OSError):
            lock = hold(leftover)
            try:
                remove(leftover)
            finally:
                os.close(lock)


def put_back(path: Path) -> bool:
    """Move an old store back to `path` whose writer died before the new one was there; whether something is there now.

    A living writer is waited for: between its two renames is only a moment.
    Errors: StoreError where there is an old store that cannot be moved.
    """
    for aside in () if os.path.lexists(path) else _left(path, OLD):
        try:
            if not aside.name.startswith(f".{path.name}{PARTIAL}{OLD}{HOST}"):
                raise PermissionError("another machine has put it there")
            lock = hold(aside, wait=True)
            try:
                if not os.path.lexists(path):
                    aside.rename(path)
            finally:
                os.close(lock)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(
                f"{path} was being replaced when its writer was interrupted; the old store is whole and lies at "
                f"{aside} ({error}): move it back"
            ) from error
    return os.path.lexists(path)


def replace(partial: Path, path: Path) -> None:
    """Move the complete store `partial` to the place of the store at `path`, which is removed."""
    aside, lock = temporary_path(path, OLD), None
    with contextlib.suppress(OSError):
        lock = hold(path)
    try:
        path.rename(aside)
        try:
            partial.rename(path)
        except BaseException:
            aside.rename(path)
            raise
        # Half removed it must not be put back, once somebody has removed the new one.
        with contextlib.suppress(OSError):
            aside = aside.rename(temporary_path(path))
        remove(aside)
    finally:
        if lock is not None:
            os.close(lock)


def remove(place: Path) -> None:
    """Remove a directory, or the link to one, as far as that is possible."""
    with contextlib.suppress(OSError):
        if place.is_symlink():
            place.unlink()
        else:
            shutil.rmtree(place, ignore_errors=True)


def _left(path: Path, tag: str) -> Iterator[Path]:
    """The paths beside `path` with its name and a tag."""
    prefix = f".{path.name}{PARTIAL}{tag}"
    with contextlib.suppress(OSError):
        yield from sorted(path.parent / name for name in os.listdir(path.parent) if name.startswith(prefix))


def hold(directory: Path, *, wait: bool = False) -> int:
    """A descriptor that holds the lock of a directory. Errors: BlockingIOError where another one holds it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _unlock(directory: str | os.PathLike[str]) -> None:
    lock = _LOCKS.pop(os.fspath(directory), None)
    if lock is not None:
        os.close(lock)


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A place to write a local file that comes to its own place as a whole, or not at all."""
    place = Path(path)
    aside = place.with_name(f".{place.stem}.partial-{os.getpid()}{place.suffix}")
    try:
        yield aside
        aside.replace(place)
    finally:
        aside.unlink(missing_ok=True)
