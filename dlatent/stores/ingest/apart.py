"""A reader in a process of its own: HDF5 is native code, and a damaged file that crashes it ends that process only."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlatent.errors import DataError, DlatentError
from dlatent.stores.byte_source import copied, file_name, file_size
from dlatent.stores.guard import guarded, guarded_each
from dlatent.stores.ingest.annotated import AnnotatedReader
from dlatent.stores.ingest.batches import Batch, Reader
from dlatent.stores.limits import DEFAULT, Limits
from dlatent.stores.table_files import needed

START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from dlatent.stores.ingest.apart import serve; serve()"
)
"""What the other process runs: it finds modules where this one does."""

MEMORY = 1 << 30
"""Bytes of memory that the other process may always take to read a file."""

COPIES = 16
"""How many times the bytes of a batch of rows it may take besides."""


@dataclass(frozen=True)
class _Failed:
    """An error of the other process: its message, and where it happened."""

    message: str
    trace: str


class _ElsewhereError(Exception):
    """The traceback of another process, as the cause of an error here."""


class Hdf5Reader(Reader):
    """Reads an AnnData file (.h5ad) in another process, whose death is a DataError; batches come through a pipe."""

    def __init__(self, location: str, directory: Path, *, labels: str | None = None, limits: Limits = DEFAULT) -> None:
        super().__init__(file_name(location), file_size(location))
        self._errors = directory / "errors"
        if location.startswith("memory:"):  # lies in this process and no other
            location = str(copied(location, directory / "copy.h5ad"))
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", START, json.dumps([str(place) for place in sys.path])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        try:
            self._ask((location, directory, self.description, labels, limits))
            self.columns, self.column_names, self.label_name = self._answer()
        except BaseException:
            self.close()
            raise

    def batches(self, batch_bytes: int) -> Iterator[Batch]:
        """The rows in order."""
        self._ask(batch_bytes)
        while (answer := self._answer()) is not None:
            self.bytes_done, batch = answer
            yield batch

    def close(self) -> None:
        """End the other process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def _ask(self, request: Any) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died, which the answer tells
            pickle.dump(request, self._process.stdin)
            self._process.stdin.flush()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        try:
            answer = pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):
            raise DataError(self._death(self._process.wait())) from None
        if isinstance(answer, _Failed):
            raise DataError(answer.message) from _ElsewhereError(answer.trace)
        return answer

    def _death(self, status: int) -> str:
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        said = self._errors.read_text(errors="replace").strip().splitlines()
        last = f": {said[-1]}" if said else ""
        if status == -getattr(signal, "SIGPROF", 27):
            return f"{self.description}: HDF5 reads without an end; the file is damaged, fetch it again"
        if status == -getattr(signal, "SIGKILL", 9):
            return (
                f"{self.description}: the process that reads it was killed, mostly for want of memory; free some{last}"
            )
        return (
            f"{self.description}: the process that reads it crashed ({how}{last}); the file is damaged, fetch it "
            "again, or read it with anndata where that can, and write it anew with write_zarr"
        )


def serve() -> None:
    """Answer one `Hdf5Reader` on standard output: what the file is like, then batches until None; or what failed."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not come between
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with its pipe

    def answer(value: Any) -> None:
        pickle.dump(value, out, protocol=5)
        out.flush()

    with contextlib.suppress(BrokenPipeError, EOFError):
        try:
            _serve(answer)
        except DlatentError as error:
            answer(_Failed(str(error), "".join(traceback.format_exception(error))))


def watch(size: int) -> Callable[[], None]:
    """What ends this process when it has computed for long since the last call, in native code, too.

    Damaged files make HDF5 go in circles.  No step of reading takes as long: 5 seconds and one for each 10 MB of file.
    """
    if not hasattr(signal, "setitimer"):
        return lambda: None
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    seconds = 5 + size / 1e7
    return lambda: signal.setitimer(signal.ITIMER_PROF, seconds) and None


@contextlib.contextmanager
def bounded(size: int, limits: Limits, name: str, more: int = 0) -> Iterator[None]:
    """A context in which this process may take no more memory than a file of `size` bytes may unpack to, and `more`.

    A damaged length makes HDF5 ask for gigabytes, before it looks whether the file has them.
    """
    most = max(MEMORY, limits.expansion * size) + more
    before = _address_space()
    if before is None:  # the system tells no sizes, or knows no such limit
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    old = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([before + most, *old]), hard))
    try:
        yield
    except Exception as error:
        if not _wants_memory(error):
            raise
        raise DataError(
            f"{name}: reading it would take more than {most:,} bytes of memory, over {limits.expansion} times the "
            f"{size:,} bytes of the file; if it is no damage, raise the limit with max_expansion (--max-expansion)"
        ) from error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space() -> int | None:
    """Bytes of addresses that this process has taken, which is what the system limits."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def _wants_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that it came from, says that memory could not be had."""
    while error is not None:
        if isinstance(error, MemoryError) or "memory allocation failed" in str(error).lower():
            return True
        error = error.__cause__ or error.__context__
    return False


def _serve(answer: Any) -> None:
    location, directory, name, labels, limits = pickle.load(sys.stdin.buffer)
    if labels is not None:
        needed("anndata.io", name)  # takes seconds, which are not those of the file
    size = file_size(location)
    with bounded(size, limits, name), guarded(name):
        options = {"labels": labels, "name": name, "limits": limits, "alive": watch(size)}
        reader = AnnotatedReader(location, directory, zarr_store=False, **options)
    answer((reader.columns, reader.column_names, reader.label_name))
    batch_bytes = pickle.load(sys.stdin.buffer)
    with bounded(size, limits, name, COPIES * batch_bytes):
        for batch in guarded_each(reader.batches(batch_bytes), name):
            answer((reader.bytes_done, batch))
    answer(None)
