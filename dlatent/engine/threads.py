"""Passes on the threads of this process, through Dask's threaded scheduler."""

from __future__ import annotations

from functools import partial
from typing import Any

from dask.delayed import delayed

from dlatent.arrays import DataSource
from dlatent.engine.base import Progress
from dlatent.engine.cache import release
from dlatent.engine.gather import Resources
from dlatent.engine.machine import cache_share, memory, processors
from dlatent.engine.order import reduce_tree
from dlatent.engine.part import Part, Share, Work, halt, join, parts_of, run_part
from dlatent.engine.targets import Targets, as_rows


class ThreadRunner:
    """One task per group and one per node of the tree, on as many threads as there are processors."""

    def __init__(self, source: DataSource, targets: Targets, cache_bytes: int | None) -> None:
        limit = memory()
        cap = cache_share(limit) if cache_bytes is None else cache_bytes
        self.resources = Resources("threads", 1, processors(), limit, cap)
        self._key = source.key
        self._parts = parts_of(source, as_rows(targets, source.shape[0]), cap)

    @property
    def groups(self) -> int:
        """Number of groups of blocks."""
        return len(self._parts)

    def run(self, work: Work, progress: Progress | None) -> tuple[Share, int]:
        """The joined share of all parts, and the number of tasks; a failure stops all threads at their next block."""
        tasks: list[Any] = []

        def leaf(group: int) -> Any:
            tasks.append(delayed(partial(_run, self._parts[group], work, progress), pure=False, traverse=False)())
            return tasks[-1]

        def node(shares: list[Any]) -> Any:
            tasks.append(delayed(partial(_join, work), pure=False, traverse=False)(*shares))
            return tasks[-1]

        root = reduce_tree(leaf, node, self.groups)
        try:
            share: Share = root.compute(scheduler="threads", num_workers=self.resources.threads, optimize_graph=False)
        except BaseException:
            halt(work.token)
            raise
        return share, len(tasks)

    def close(self) -> None:
        """Free the cached blocks."""
        release(self._key)


def _run(part: Part, work: Work, progress: Progress | None) -> Share:
    share = run_part(part, work)
    if progress is not None:
        progress.done()
    return share


def _join(work: Work, *shares: Share) -> Share:
    return join(list(shares), work)
