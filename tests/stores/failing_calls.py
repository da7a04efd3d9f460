"""Commands whose n-th call of the file system fails, each in a process of its own.

Calls are counted where Python hands them to the system: audit events for those with a name, the bytes of files, and
`fsync`.  Only those below the folder of a command count, and one thread makes them, so that a number means the same
call at every run.  What C code reads and writes by itself, as Arrow does, is not seen.
"""

from __future__ import annotations

import builtins
import errno
import importlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import zarr
from scipy.io import mmwrite

from dlatent import PPCA, ingest, load, rechunk
from dlatent.errors import DlatentError
from dlatent.stores.checkpoint import discard

DIED = 77
"""Exit status of a process that ends in the middle of a call."""
SHORT, DEATH = "short", "death"
ERRORS = ("ENOSPC", "EIO", "EACCES")

EVENTS = {
    "open": "open",
    "os.rename": "rename",
    "os.link": "rename",
    "os.mkdir": "mkdir",
    "os.listdir": "list",
    "os.scandir": "list",
    "os.remove": "remove",
    "os.rmdir": "remove",
}
"""Audit events by kind of call; os.replace says os.rename, and shutil.rmtree says what it does."""

UNNAMED = ("read", "write", "fsync")
"""Kinds of calls that know a descriptor only, so that their errors name no file."""

LATE = (
    *("dlatent.models.saved", "dlatent.models.map_rows", "dlatent.stores.ingest.run", "dlatent.stores.sinks"),
    *("dask.threaded", "pandas", "fsspec.implementations.local", "importlib_metadata", "email.policy"),
)
"""Modules that commands import when they need them."""

ROWS = np.random.default_rng(0).normal(size=(90, 3)) @ np.random.default_rng(1).normal(size=(3, 5))


def prepare(folder: Path) -> None:
    """The inputs of all commands, and a store that each is to replace."""
    folder.mkdir(parents=True)
    zarr.create_array(folder / "x.zarr", data=ROWS + 1.0, chunks=(30, 5))
    np.savetxt(folder / "rows.csv", ROWS, delimiter=",", header="a,b,c,d,e", comments="")
    np.save(folder / "rows.npy", ROWS)
    mmwrite(folder / "rows.mtx", sp.csc_array(ROWS * (ROWS > 0.0)))  # by columns: sorted on disk
    PPCA(2).fit(ROWS, client="serial").save(folder / "model.zarr")


def fitted(folder: Path, out: Path) -> None:
    """A fit with a checkpoint, which goes when the model is saved."""
    kept = f"{out}.checkpoint"
    model = PPCA(2, solver="krylov").fit(folder / "x.zarr", client="serial", checkpoint=kept, resume=True)
    model.save(out, overwrite=True)
    discard(kept)


def added(folder: Path, out: Path) -> None:
    """Rows in two parts."""
    model = PPCA(2).partial_fit(folder / "x.zarr", client="serial")
    model.partial_fit(folder / "x.zarr", client="serial").save(out, overwrite=True)


def mapped(folder: Path, out: Path, **options: Any) -> None:
    """Scores of stored rows by a stored model."""
    load(folder / "model.zarr").transform(folder / "x.zarr", out=out, overwrite=True, client="serial", **options)


COMMANDS: dict[str, Callable[[Path, Path], Any]] = {
    "fit": fitted,
    "partial_fit": added,
    "transform": mapped,
    "transform, resumed": lambda folder, out: mapped(folder, out, resume=True),
    "ingest csv, resumed": lambda folder, out: ingest(
        folder / "rows.csv", out, block_bytes=2000, overwrite=True, resume=True
    ),
    "ingest npy": lambda folder, out: ingest(folder / "rows.npy", out, block_bytes=2000, overwrite=True),
    "ingest mtx": lambda folder, out: ingest(folder / "rows.mtx", out, block_bytes=2000, overwrite=True),
    "rechunk": lambda folder, out: rechunk(folder / "x.zarr", out, chunk_bytes=400, overwrite=True),
}
"""What reads in a folder and writes to a place."""


class Calls:
    """The calls of this process below a folder, of which one goes wrong."""

    def __init__(self, folder: str, number: int, how: str) -> None:
        self.folder, self.number, self.how = folder, number, how
        self.made = list[tuple[str, str]]()
        self.counting = True
        sys.addaudithook(self._heard)
        real, sync = io.open, os.fsync

        def opened(file: Any, mode: str = "r", buffering: int = -1, *args: Any, **options: Any) -> Any:
            if not isinstance(file, str | os.PathLike) or not os.fspath(file).startswith(folder):
                return real(file, mode, buffering, *args, **options)
            raw: Any = Bytes(self, file, mode.replace("b", "").replace("t", ""))
            if buffering:
                kind = io.BufferedRandom if "+" in mode else io.BufferedReader if "r" in mode else io.BufferedWriter
                raw = kind(raw)
            return raw if "b" in mode else io.TextIOWrapper(raw, *args, **options)

        def synced(descriptor: int) -> None:
            self.made_one("fsync", named(descriptor))
            sync(descriptor)

        io.open = builtins.open = opened
        os.fsync = synced

    def _heard(self, event: str, values: tuple[Any, ...]) -> None:
        if event in EVENTS and self.counting:
            name = values[0] if event != "os.listdir" else values[0] or "."
            name = named(name) if isinstance(name, int) else os.fsdecode(name)
            # A name without a folder is one that shutil.rmtree removes.
            if name.startswith(self.folder) or not os.path.dirname(name):
                self.made_one(EVENTS[event], name)

    def made_one(self, kind: str, name: str) -> bool:
        """Count a call; whether it goes wrong in a way that its caller knows."""
        if not self.counting:
            return False
        self.made.append((kind, name))
        if len(self.made) != self.number:
            return False
        if self.how in ERRORS:
            number = getattr(errno, self.how)
            raise OSError(number, os.strerror(number), *(() if kind in UNNAMED else (name,)))
        if self.how == DEATH and kind != "write":
            os._exit(DIED)
        return True


class Bytes(io.FileIO):
    """A file whose reads and writes are counted; one may end in the middle."""

    def __init__(self, calls: Calls, file: Any, mode: str) -> None:
        self.calls, self.cut = calls, False
        super().__init__(file, mode)

    def _short(self) -> bool:
        if self.cut:
            return True
        self.cut = self.calls.made_one("read", os.fspath(self.name)) and self.calls.how == SHORT
        return False

    def read(self, size: int | None = -1, /) -> bytes:
        """Bytes; half of them at the call that is cut short, and none after it."""
        over = self._short()
        content = b"" if over else super().read(-1 if size is None else size)
        return content[: len(content) // 2] if self.cut else content

    def readall(self) -> bytes:
        """All bytes."""
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        """Bytes into a buffer."""
        content = self.read(len(memoryview(buffer).cast("B")))
        memoryview(buffer).cast("B")[: len(content)] = content
        return len(content)

    def write(self, content: Any, /) -> int:
        """Write; half of it where the process dies then."""
        if self.calls.made_one("write", os.fspath(self.name)) and self.calls.how == DEATH:
            view = memoryview(content).cast("B")
            super().write(view[: len(view) // 2])
            os._exit(DIED)
        return super().write(content)


def named(descriptor: int) -> str:
    """The path of a descriptor."""
    return os.readlink(f"/proc/self/fd/{descriptor}")


def carry_out(command: str, folder: str, out: str, number: int, how: str, said: str) -> None:
    """A command in this process, and what became of it."""
    calls = Calls(os.path.dirname(folder), number, how)
    answer: dict[str, Any] = {"named": True, "error": None}
    try:
        COMMANDS[command](Path(folder), Path(out))
    except Exception as error:
        answer = {"named": isinstance(error, DlatentError), "error": f"{type(error).__name__}: {error}"}
    calls.counting = False
    Path(said).write_text(json.dumps({**answer, "calls": calls.made}))


def serve() -> None:
    """Carry out commands, each in a fork of this process, which has no threads."""
    for module in LATE:
        importlib.import_module(module)
    zarr.config.set({"async.concurrency": 1, "threading.max_workers": 1})
    for line in sys.stdin:
        child = os.fork()
        if not child:
            carry_out(*json.loads(line))
            os._exit(0)  # no clearing up at the end: a command must not need it
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


class Server:
    """Commands in processes of their own."""

    def __init__(self, folder: Path) -> None:
        self._said = folder / "said.json"
        words = [sys.executable, "-W", "ignore", "-m", __name__]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, command: str, folder: Path, out: Path, number: int = 0, how: str = "") -> dict[str, Any] | None:
        """Error and calls of a command; None where it died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = [command, str(folder), str(out), number, how, str(self._said)]
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        assert status in (0, DIED), f"{command}, call {number}, {how}: exit status {status}"
        answer: dict[str, Any] = json.loads(self._said.read_text())
        return None if status else answer

    def end(self) -> None:
        """No more commands."""
        self._process.communicate(timeout=60)


if __name__ == "__main__":
    serve()
