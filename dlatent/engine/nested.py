"""A fit inside a task of a Dask worker, which must not wait for tasks that wait for its own thread.

Where the caller names no client, such a fit runs on the threads of its worker's process: it asks the cluster for
nothing.  Where he names one, or his data lie on the cluster, the task leaves its thread to others while it waits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dlatent.arrays import BlockSource, DataSource
from dlatent.engine.dask_graph import Chunks


def own_worker() -> Any:
    """The Dask worker whose task this thread runs, or None; looks without importing `distributed`."""
    distributed: Any = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.get_worker()
    except (ValueError, AttributeError):
        return None


def cluster_of(source: DataSource) -> Any:
    """The client of this task's cluster where chunks of the source lie there already, else None."""
    return _distributed().get_client() if any(map(_lies_elsewhere, source.blocks)) else None


def _lies_elsewhere(block: BlockSource) -> bool:
    """Whether the chunks of a block need results that their graph does not make."""
    if block.collection is None:
        return False
    tasks = Chunks(block.collection).tasks
    needed = {key for task in tasks.values() for key in getattr(task, "dependencies", ())}
    return bool(needed - tasks.keys() or _distributed().futures_of(list(tasks.values())))


@contextmanager
def aside() -> Iterator[None]:
    """Leave the thread of this task to other tasks meanwhile; outside of tasks, and where it has left, do nothing."""
    distributed = _distributed()
    try:
        distributed.secede()
    except (ValueError, AttributeError, KeyError):  # no task; no thread of a worker; left before, by its own will
        yield
        return
    try:
        yield
    finally:
        distributed.rejoin()


def _distributed() -> Any:
    """The library, imported late, of which nothing has types."""
    import distributed

    return distributed
