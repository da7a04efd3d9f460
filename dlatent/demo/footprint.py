"""How much memory a driver and its workers take while something runs."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event, Thread
from types import TracebackType
from typing import Self

import psutil

SECONDS = 0.05


class Footprint:
    """A context that looks every 50 ms at the resident memory of this process and of the processes named.

    `peak` is the largest sum in bytes that was seen.  Pages that processes share count in each of them.
    """

    def __init__(self, others: Sequence[int]) -> None:
        self._processes = [psutil.Process(), *(psutil.Process(process) for process in others)]
        self._ended = Event()
        self._thread = Thread(target=self._watch, name="footprint", daemon=True)
        self.peak = 0

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._ended.wait(SECONDS):
            self._look()

    def _look(self) -> None:
        self.peak = max(self.peak, sum(map(_resident, self._processes)))


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:  # a worker that ended takes nothing
        return 0
