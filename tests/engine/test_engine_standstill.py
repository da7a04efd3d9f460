"""Passes whose tasks Dask keeps for a worker that is gone, while another is there and idle: real processes."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client, LocalCluster
from distributed.core import Status
from engine_cases import COLUMNS, drawn, until

from dlatent import open_graph
from dlatent.engine.connect import connect
from dlatent.passes import Edges, Pass, pair_pass, tile_pass

pytestmark = pytest.mark.slow

SIZES = [3, 1, 40, 7, 7, 7, 90, 2, *[5] * 15]
ROWS = sum(SIZES)
WEIGHTS = np.random.default_rng(5).normal(size=(COLUMNS, 3))
RING = np.arange(ROWS), (np.arange(ROWS) + 1) % ROWS
HALF = sp.csr_array((np.ones(ROWS), RING), shape=(ROWS, ROWS))
GRAPH = open_graph(sp.csr_array(HALF + HALF.T))


def wait(folder: str) -> None:
    """Say that this worker has begun, and wait until somebody says that it is over."""
    if folder:
        (Path(folder) / str(os.getpid())).touch()
        while not (Path(folder) / "over").exists():
            time.sleep(0.01)


def alone(block: Any, folder: str) -> Any:
    wait(folder)
    return block.features.T @ (block.features @ WEIGHTS)


def rows(block: Any, folder: str) -> Any:
    wait(folder)
    return block.features @ WEIGHTS


def keep(_first: Any, last: Any, _hop: int, _folder: str) -> Any:
    return last * 0.5


def folded(block: Any, _folder: str) -> Any:
    return block.features.T @ block.exchanged.met


def meet(own: Any, other: Any, folder: str) -> Any:
    wait(folder)
    return own.features @ (other.features.T @ rows(other, ""))


def meet_once(own: Any, other: Any, folder: str) -> Any:
    return meet(own, other, folder), meet(other, own, "") if own.index < other.index else None


def tile(own: Any, other: Any, folder: str) -> Any:
    wait(folder)
    return np.block([[a.features @ b.features.T for b in other] for a in own])


PASSES: dict[str, Callable[[str], Pass[Any, Any]]] = {
    "alone": lambda folder: Pass(alone, folder),
    "edges": lambda folder: Pass(folded, folder, exchange=Edges(rows, keep, 2)),
    "pairs": lambda folder: pair_pass(meet, folder),
    "pairs that meet once": lambda folder: pair_pass(meet_once, folder, mutual=True),
    "tiles": lambda folder: tile_pass(tile, folder),
}


def bits(found: Any) -> list[bytes]:
    return [each.tobytes() for each in (found if isinstance(found, tuple) else [found])]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """The client of two worker processes, which are paused by nobody but the test."""
    monkeypatch.setattr("dlatent.engine.failures.POLL_SECONDS", 0.5)
    monkeypatch.setattr("dlatent.engine.failures.STILL_SECONDS", 3.0)
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}
    with LocalCluster(**options) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


def set_status(client: Client, worker: str, status: Status) -> None:
    def set_it(dask_worker: Any) -> None:
        dask_worker.status = status

    client.run(set_it, workers=[worker])
    seen = client.scheduler_info
    until(lambda: seen(n_workers=-1)["workers"].get(worker, {}).get("status") == status.name)


def begun(client: Client, folder: Path) -> list[tuple[str, int]]:
    """The workers and their processes, when both have begun."""
    workers = list(client.run(os.getpid).items())
    until(lambda: all((folder / str(pid)).exists() for _, pid in workers))
    return workers


def kill_one_beside_a_paused_one(client: Client, folder: Path) -> None:
    """The other goes on when Dask has given up the killed one."""
    (paused, _), (killed, pid) = begun(client, folder)
    set_status(client, paused, Status.paused)
    os.kill(pid, signal.SIGKILL)
    until(lambda: killed not in client.nthreads())
    set_status(client, paused, Status.running)


def pause_one_for_good(client: Client, folder: Path) -> None:
    """With work of its own."""
    set_status(client, begun(client, folder)[0][0], Status.paused)


CASES = [*((kind, kill_one_beside_a_paused_one) for kind in PASSES), ("edges", pause_one_for_good)]


@pytest.mark.parametrize(("kind", "befalls"), CASES)
def test_a_pass_for_which_nothing_runs_begins_anew_and_says_so(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, befalls: Callable[[Client, Path], None]
) -> None:
    source, found = drawn(SIZES, key=kind), list[Any]()
    with connect(source, graph=GRAPH, client="serial") as session:
        expected = bits(session.run(PASSES[kind]("")))
    with caplog.at_level(logging.WARNING, "dlatent.engine"), connect(source, graph=GRAPH, client=client) as session:
        passing = threading.Thread(target=lambda: found.append(session.run(PASSES[kind](str(tmp_path)))), daemon=True)
        passing.start()
        befalls(client, tmp_path)
        (tmp_path / "over").touch()
        passing.join(60)
        assert found, "the pass stands still"
    assert bits(found[0]) == expected
    said = [record.getMessage() for record in caplog.records if record.name == "dlatent.engine"]
    assert any("begins anew" in line for line in said), said
