"""Checkpoints: the results of the passes that a fit has made, so that an interrupted fit goes on without them.

All that a fit does between its passes follows from their results, so that these, in their order, are its whole state.
A checkpoint is a directory, or a prefix of an object store:

    fit.json       what is fitted to what: a difference refuses the checkpoint
    000000.npz …   the results, each with the digest of its pass; a pass in stages has one for each

Laws (tested in tests/stores/test_stores_checkpoint.py and test_stores_machine.py):
1. Every file is whole or not there, whenever its writer dies.  One that is damaged counts as not there.
2. A result is given for the pass that it was recorded of, and in its place only; else it and all after it are removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from dlatent.errors import DataError, StoreError, cause
from dlatent.stores.checkpoint_codec import decode, encode, fingerprint
from dlatent.stores.documents import MARK_BYTES, intact, with_checksum
from dlatent.stores.location import ABSENT, Place, filesystem_at, local_path, unreachable, zarr_location
from dlatent.stores.temporary import release, take

HEADER, VERSION = "fit.json", 1
ENTRY = "{:06d}.npz"
RESULT = re.compile(r"\d{6,}\.npz")
UNFINISHED = ".part"
THREADS = "threads"


class Checkpoint:
    """The journal of one fit: results are recalled in the order in which they were recorded, then recorded.

    Parameters
    ----------
    place : a directory or an fsspec URL.
    about : what is fitted to what, JSON values by name.
    choices : JSON values that hold for a fit that goes on, too, whatever these would be by then.
    threads : of the cluster that begins; of one that goes on it is the number that was recorded.
    resume : whether a checkpoint that is there goes on; else it is an error.

    Raises
    ------
    StoreError : there is a checkpoint and `resume` is False; it is of another fit (with what differs); it cannot be
        read or written; another process writes it.
    """

    def __init__(
        self,
        place: Place,
        about: Mapping[str, Any],
        choices: Mapping[str, Any],
        *,
        threads: int = 1,
        resume: bool = False,
    ) -> None:
        self.place = zarr_location(place)
        self._next = 0
        self._files = _Files(self.place)
        self._files.open()
        try:
            plain = json.loads(json.dumps(dict(about)))
            self.choices = self._begun(plain, {**choices, THREADS: threads}, resume)
            self.threads: int = self.choices.pop(THREADS)
            self.identity = identity(self.place)
        except BaseException:
            self.close()
            raise

    def _begun(self, about: dict[str, Any], choices: dict[str, Any], resume: bool) -> dict[str, Any]:
        """The choices that hold."""
        header = read_header(self.place)
        if header is None:
            if any(not _belongs(name) for name in self._files.names()):
                raise StoreError(f"{self.place} exists and is no checkpoint; choose another place")
            self._files.forget(0)
            document = json.dumps({"dlatent_checkpoint": VERSION, "about": about, "choices": choices}, indent=1)
            self._files.write(HEADER, with_checksum(document.encode(), os.urandom(MARK_BYTES)))
            return choices
        if not resume:
            raise StoreError(
                f"{self.place} is the checkpoint of a fit; go on with resume=True (dlatent fit --resume), or remove it"
            )
        if differing := _differences(header["about"], about):
            raise StoreError(
                f"{self.place} is the checkpoint of something else: {'; '.join(differing)}; give what it was begun "
                "with, remove it, or choose another place"
            )
        if header["choices"].keys() != choices.keys():
            raise StoreError(f"{self.place} is a damaged checkpoint: its choices are {header['choices']}; remove it")
        return header["choices"]

    def recall(self, work: Any) -> Any:
        """The result that was recorded of this work, as a tuple of one; None where there is none."""
        content = self._files.read(ENTRY.format(self._next))
        if content is None:
            return None
        try:
            digest, result = decode(content, self.place)
        except StoreError:
            digest, result = None, None
        if digest != fingerprint(work):
            self._files.forget(self._next)
            return None
        self._next += 1
        return (result,)

    def record(self, work: Any, result: Any) -> None:
        """Add the result of some work, which is on the disk or in the object store when this returns."""
        self._files.write(ENTRY.format(self._next), encode((fingerprint(work), result)))
        self._next += 1

    def restart(self) -> None:
        """Remove everything that was recorded."""
        self._files.forget(0)
        self._next = 0

    def close(self) -> None:
        """Let other processes write the checkpoint."""
        self._files.close()


def checkpoint_location(target: Place) -> str:
    """Where the checkpoint of a store lies. Errors: DataError for an open one, which has nothing beside it."""
    place = zarr_location(target)
    if not isinstance(target, str | os.PathLike):
        raise DataError(f"{place} is an open store, and a checkpoint lies beside its store; give a path or URL")
    return f"{place}.checkpoint"


@contextmanager
def checkpoint_of_store(target: Place, about: Mapping[str, Any], *, threads: int = 1) -> Iterator[Checkpoint]:
    """The checkpoint of a store that is being written, which lies beside it and goes when the store is whole.

    Errors: StoreError as `Checkpoint`.
    """
    place = checkpoint_location(target)
    with closing(Checkpoint(place, about, {}, threads=threads, resume=True)) as checkpoint:
        yield checkpoint
    discard(place)


def read_header(place: Place) -> dict[str, dict[str, Any]] | None:
    """Read what a checkpoint is `about`, and its `choices`; None where there is no checkpoint.

    Errors: StoreError where the checkpoint is damaged or of a newer version.
    """
    files = _Files(zarr_location(place))
    content = files.read(HEADER)
    if content is None:
        return None
    try:
        if not intact(content):
            raise ValueError(f"{HEADER} is not what was written")
        header = json.loads(content)
        version, parts = header["dlatent_checkpoint"], {name: dict(header[name]) for name in ("about", "choices")}
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{files.place} is a damaged checkpoint ({error}); remove it") from error
    if version != VERSION:
        raise StoreError(f"{files.place} is a checkpoint of version {version}; this dlatent goes on with {VERSION}")
    return parts


def identity(place: Place) -> str | None:
    """Return the identity of a checkpoint, which the store that is made with it keeps; None where there is none."""
    content = _Files(zarr_location(place)).read(HEADER)
    return None if content is None else hashlib.sha256(content).hexdigest()[:16]


def discard(place: Place) -> None:
    """Remove a checkpoint: its results, and then what says whose they are."""
    files = _Files(zarr_location(place))
    files.open()
    with closing(files):
        files.clear()


def recorded(place: Place) -> tuple[int, int]:
    """How many results a checkpoint has, and their bytes."""
    files = _Files(zarr_location(place))
    sizes = [files.size(name) for name in files.results()]
    return len(sizes), sum(sizes)


def damaged_results(place: Place) -> list[str]:
    """List the damages of the results of a checkpoint, one sentence each."""
    files, damages = _Files(zarr_location(place)), list[str]()
    for name in files.results():
        try:
            decode(files.read(name) or b"", f"{files.place}/{name}")
        except StoreError as error:
            damages.append(f"{error}; a fit that goes on makes it and all after it again")
    return damages


def _differences(recorded: Mapping[str, Any], about: Mapping[str, Any]) -> list[str]:
    """How two descriptions differ, in words."""
    texts = list[str]()
    for name in sorted({*recorded, *about}):
        then, now = recorded.get(name), about.get(name)
        if isinstance(then, dict) and isinstance(now, dict):
            texts += [f"{name} {text}" for text in _differences(then, now)]
        elif then != now:
            texts.append(f"{name} was {then!r} and is {now!r}")
    return texts


def _belongs(name: str) -> bool:
    """Whether a file of this name is one of a checkpoint, whole or not."""
    name = name.removesuffix(UNFINISHED)
    return name == HEADER or RESULT.fullmatch(name) is not None


class _Files:
    """The files of a checkpoint, each written whole: a local one is renamed, an object appears when it is complete."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._local = local_path(place)
        self._system, self._root = filesystem_at(place)

    def open(self) -> None:
        """Make the directory, and keep other processes of this machine from writing to it."""
        if self._local is None:
            return
        try:
            self._local.mkdir(parents=True, exist_ok=True)
            take(self._local)
        except BlockingIOError as error:
            raise StoreError(f"{self.place} is being written by another process; wait for it") from error
        except OSError as error:
            raise StoreError(f"cannot write a checkpoint at {self.place}: {error}; choose another place") from error

    def close(self) -> None:
        """Let others write."""
        if self._local is not None:
            release(self._local)

    def names(self) -> list[str]:
        """The files."""
        self._system.invalidate_cache()
        return [str(path).rsplit("/", 1)[-1] for path in self._asked("ls", self._root, detail=False) or ()]

    def results(self) -> list[str]:
        """The files of results, in order."""
        return sorted(filter(RESULT.fullmatch, self.names()))

    def read(self, name: str) -> bytes | None:
        """The content; None where there is no such file."""
        content = self._asked("cat_file", f"{self._root}/{name}")
        return None if content is None else bytes(content)

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return int(self._asked("size", f"{self._root}/{name}") or 0)

    def _asked(self, method: str, *args: Any, **options: Any) -> Any:
        """The answer of the file system; None where nothing is there. Errors: StoreError."""
        try:
            return getattr(self._system, method)(*args, **options)
        except ABSENT:
            return None
        except Exception as error:  # those of object stores are of any type
            raise unreachable(self.place, error) from cause(error)

    def write(self, name: str, content: bytes) -> None:
        """Write a file, on the disk when this returns."""
        try:
            if self._local is None:
                self._system.pipe_file(f"{self._root}/{name}", content)
                return
            unfinished = self._local / f"{name}{UNFINISHED}"
            try:
                with open(unfinished, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                unfinished.replace(self._local / name)
            finally:
                unfinished.unlink(missing_ok=True)
            _sync(self._local)
        except Exception as error:
            raise StoreError(
                f"cannot write the checkpoint {self.place}: {error}; make room, check the address and your right to"
                " write there, or resume it elsewhere from a copy"
            ) from cause(error)

    def forget(self, first: int) -> None:
        """Remove the results from that on, the last first: what is left is a beginning at every moment."""
        self._remove(name for name in reversed(self.results()) if name >= ENTRY.format(first))

    def clear(self) -> None:
        """Remove everything of the checkpoint, and the directory where nothing else is in it.

        What says whose results they were goes last: while that is there, work can go on.
        """
        self.forget(0)
        self._remove((*(name for name in self.names() if _belongs(name) and name != HEADER), HEADER))
        if self._local is not None:
            with suppress(OSError):  # somebody has put something else there
                self._local.rmdir()

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._asked("rm_file", f"{self._root}/{name}")


def _sync(directory: Path) -> None:
    """Put the names of a directory on the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
