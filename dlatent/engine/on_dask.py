"""The Dask engine: the active cluster where there is one, the threads of this process otherwise, and inside tasks."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from dlatent.arrays import DataSource, Links
from dlatent.engine.base import OnPass, OnProgress, PassEngine, Runner, require_blocks
from dlatent.engine.nested import cluster_of, own_worker
from dlatent.engine.targets import Targets
from dlatent.engine.threads import ThreadRunner
from dlatent.errors import EngineError

if TYPE_CHECKING:
    from distributed import Client


OF_A_WORKER = re.compile(r"Client-worker-[0-9a-f]{8}-")
"""What the client is called that a worker makes for its tasks.  A thread that a task starts and waits for must not take
it: its passes would wait for the thread of the task, maybe for ever."""


class DaskEngine(PassEngine):
    """Passes over a data source on a `distributed` cluster, or on local threads through Dask.

    `client` is used where it is given, else the active client of this process; no client is ever created here.  Inside
    a task of a Dask worker the threads of its process are used, unless `client` is given or data lie on the cluster.
    `targets`, `cache_bytes` and `links` as for `dlatent.engine.serial.SerialEngine`.
    """

    def __init__(
        self,
        source: DataSource,
        *,
        targets: Targets = None,
        client: Client | None = None,
        cache_bytes: int | None = None,
        links: Links | None = None,
        on_pass: OnPass | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        runner = _runner(require_blocks(source), targets, client or _client_at_hand(source), cache_bytes, links)
        super().__init__(source, runner, on_pass, on_progress)


def _client_at_hand(source: DataSource) -> Client | None:
    return active_client() if own_worker() is None else cluster_of(source)


def active_client() -> Client | None:
    """The running, synchronous client of this process, if there is one that no worker has made for its tasks; looks
    without importing `distributed`."""
    distributed: Any = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        client: Client = distributed.Client.current()
    except (ValueError, AttributeError):
        return None
    usable = client.status == "running" and not client.asynchronous and not OF_A_WORKER.match(client.id)
    return client if usable else None


def _runner(
    source: DataSource, targets: Targets, client: Client | None, cache_bytes: int | None, links: Links | None
) -> Runner:
    if client is None:
        return ThreadRunner(source, targets, cache_bytes, links)
    if client.asynchronous:
        raise EngineError(
            "The client is asynchronous; passes need a client made with `Client(..., asynchronous=False)`."
        )
    from dlatent.engine.cluster import ClusterRunner

    return ClusterRunner(client, source, targets, cache_bytes, links)
