"""Open a session: on the cluster at hand, or on the threads of this process."""

from __future__ import annotations

import os
import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from dlatent.arrays import DataSource, Graph
from dlatent.engine.executor import InProcess, OnProgress, Planned, Workers
from dlatent.engine.group import Targets
from dlatent.engine.machine import current_worker
from dlatent.engine.session import Executor, OnPass, Session
from dlatent.errors import DataError, EngineError

if TYPE_CHECKING:
    from distributed import Client


Where: TypeAlias = "Client | str | Workers | None"
"""Where passes run: on the cluster of a client, with None on that at hand or on threads; "serial": one by one.  Plans
are also made for workers that are not there."""

OF_A_WORKER = re.compile(r"Client-worker-[0-9a-f]{8}-")
"""Name of the client that a worker makes for its tasks.  A thread that a task starts and waits for must not take
it: its passes would wait for the thread of the task, maybe for ever."""


def connect(
    source: DataSource,
    *,
    targets: Targets = None,
    client: Where = None,
    cache_bytes: int | None = None,
    graph: Graph | None = None,
    on_pass: OnPass | None = None,
    on_progress: OnProgress | None = None,
    planned: bool = False,
) -> Session:
    """Open a session over a data source.

    Parameters
    ----------
    source : the blocks of the data.
    targets : the rows that blocks carry: an (N, L) array, `CodedTargets`, or None.
    client : a `distributed.Client`; None takes the active one, or the threads of this process where there is none, and
        inside a task of a Dask worker those of its process, unless data lie on the cluster; "serial" is the reference,
        one task after the other.  No client is ever created here.
    cache_bytes : cap of the blocks kept between passes, per worker process; None means 40 % of a worker's memory.
    graph : the graph between the samples, for passes over its edges.
    planned : whether nothing but a plan is wanted, so that `client` may be `Workers`.
    on_pass, on_progress : called with each `PassRecord`, and with (groups done, groups in all) during a pass.
    """
    if not source.blocks:
        raise EngineError(f"The {source.description} has no rows, so there is nothing to pass over.")
    if graph is not None and graph.samples != source.shape[0]:
        raise DataError(
            f"the {graph.description} joins {graph.samples} samples, but the {source.description} has "
            f"{source.shape[0]}; give the edges of exactly these samples"
        )
    if isinstance(client, Workers) and not planned:
        raise ValueError('Workers are to plan for, and compute nothing; give a distributed.Client, "serial" or None.')
    if isinstance(client, str) and client != "serial":
        raise ValueError(f'client must be a distributed.Client, "serial" or None; got {client!r}.')
    open_executor = partial(_executor, client)
    executor = open_executor(source, targets, cache_bytes, graph)
    return Session(source, executor, open_executor, on_pass, on_progress, graph)


def _executor(
    client: Any,
    source: DataSource,
    targets: Targets = None,
    cache_bytes: int | None = None,
    graph: Graph | None = None,
) -> Executor:
    client = client or (active_client() if current_worker() is None else cluster_of(source))
    if hasattr(client, "open_executor"):  # one of another kind, as `dlatent.testing.SimulatedCluster`
        opened: Executor = client.open_executor(source, targets, cache_bytes, graph)
        return opened
    if isinstance(client, Workers):
        return Planned(client, source, targets, graph)
    if client is None or client == "serial":
        return InProcess(source, targets, cache_bytes, graph, serial=client == "serial")
    if not _of_this_process(client):
        raise EngineError(
            "The client was made by the process that this one was forked from, and its connection has stayed there. "
            'Start processes by "spawn" (`multiprocessing.get_context("spawn")`), or make a client in each.'
        )
    if client.asynchronous:
        raise EngineError(
            "The client is asynchronous; passes need a client made with `Client(..., asynchronous=False)`."
        )
    from dlatent.engine.cluster import ClusterExecutor

    return ClusterExecutor(client, source, targets, cache_bytes, graph)


def _of_this_process(client: Client) -> bool:
    """Whether a client was made here; Dask writes the process into its id, as into every UUID of version 1."""
    try:
        return UUID(client.id[-36:]).clock_seq == os.getpid() % 2**14
    except ValueError:
        return True


def active_client() -> Client | None:
    """The running, synchronous client of this process, if there is one that no worker has made for its tasks; looks
    without importing `distributed`."""
    try:
        client: Client = sys.modules["distributed"].Client.current()
    except (KeyError, ValueError, AttributeError):
        return None
    usable = client.status == "running" and not client.asynchronous and not OF_A_WORKER.match(client.id)
    return client if usable else None


def cluster_of(source: DataSource) -> Any:
    """The client of this task's cluster where chunks of the source lie there already, else None: a fit inside a task
    then runs on the threads of its worker's process, and must not wait for tasks that wait for its own thread."""
    if source.blocks[0].collection is None:
        return None
    import distributed

    from dlatent.engine.remote import chunks_of

    of: Any = distributed.futures_of  # has no types
    for tasks, _ in map(chunks_of, source.blocks):
        needed = {key for task in tasks.values() for key in getattr(task, "dependencies", ())}
        if needed - tasks.keys() or of(list(tasks.values())):  # results that their graph does not make
            return distributed.get_client()
    return None
