"""Blocks that every block of a pass is compared with: a process reads them once, and keeps what it has room for."""

from __future__ import annotations

from threading import Lock
from typing import Any

from dlatent.arrays import BlockSource, Features
from dlatent.engine.cache import measured
from dlatent.engine.machine import cache_share, memory
from dlatent.engine.part import lent


class Shelf:
    """A place for at most `cap` bytes of blocks (None: what its process may cache), which comes with the parameters of
    a pass and goes with them.

    In every process it is another one, empty at first.  It lives as long as the tasks of the pass and no longer than
    its engine, so that nothing is left where a pass fails.
    """

    def __init__(self, cap: int | None = None) -> None:
        self._cap = cap
        self._room = cache_share(memory()) if cap is None else cap
        self._kept: dict[int, Features] = {}
        self._lock = Lock()  # one for each shelf: to read a block may take another pass, with a shelf of its own

    def __reduce__(self) -> tuple[Any, ...]:
        return Shelf, (self._cap,)

    def load(self, source: BlockSource) -> Features:
        """The block, read where it is not kept.

        Of threads that want it at once one reads it and the others wait; blocks for which there is no room are read
        every time, by all threads at once.
        """
        found = self._kept.get(source.start)
        if found is None and source.nbytes <= self._room:
            with self._lock:
                found = self._kept.get(source.start)
                if found is None:
                    found = self._keep(source.start, lent(source.load()))
        return lent(source.load()) if found is None else found

    def _keep(self, start: int, features: Features) -> Features:
        size = measured(features)
        if size <= self._room:
            self._kept[start] = features
            self._room -= size
        return features
