"""What users would type: the scripts and recipes of deploy/, with the Python of these tests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import psutil

DEPLOY = Path(__file__).parents[2] / "deploy"
SMOKE = ("python", str(DEPLOY / "smoke.py"))
OK = "OK: the same bits with and without the cluster"


def environment(**more: str) -> dict[str, str]:
    """The environment of a user whose `python`, `dask` and `dlatent` are those of the tests."""
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/sbin", os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1", **more}


def load(path: Path) -> ModuleType:
    """A file of deploy/ as a module."""
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def variables(path: Path) -> dict[str, str]:
    """The lines NAME=VALUE of a file."""
    lines = (line.partition("=") for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return {name: value for name, _, value in lines}


def until(done: Callable[[], object], seconds: float, said: Callable[[], str] = str) -> None:
    """Wait till something is so."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, said()
        time.sleep(0.2)


class Command:
    """A command under way, with all that it says; the processes that it has started are `family`."""

    def __init__(self, words: Sequence[str], folder: Path, **more: str) -> None:
        self._log = folder / f"{time.monotonic_ns()}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, cwd=folder, env=environment(**more))
        self.family: set[psutil.Process] = set()

    @property
    def said(self) -> str:
        """So far."""
        return self._log.read_text()

    def wait_for(self, words: str, seconds: float = 120) -> None:
        """Until it says so."""
        until(lambda: re.search(words, self.said) or self.process.poll() is not None, seconds, lambda: self.said)
        assert re.search(words, self.said), self.said
        self.watch()

    def watch(self) -> None:
        """Note the processes that there are now."""
        self.family |= set(psutil.Process(self.process.pid).children(recursive=True))

    def end(self, number: int | None = None, seconds: float = 180) -> int:
        """Its exit status, perhaps after a signal; none of its family is left."""
        if number is not None:
            self.process.send_signal(signal.Signals(number))
        status = self.process.wait(seconds)
        left = psutil.wait_procs(self.family, timeout=30)[1]
        assert not left, f"{left} are left"
        return status
