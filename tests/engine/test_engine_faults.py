"""Faults of clusters of real processes: a scheduler that is lost, workers that are stopped, that have other versions or
another time."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import site
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import dask
import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster

from dlatent import PPCA
from dlatent.engine.failures import Silence
from dlatent.engine.machine import versions
from dlatent.errors import EngineError
from dlatent.models.callbacks import Callback

X = np.random.default_rng(0).normal(size=(4000, 30)) @ np.diag(np.linspace(3, 1, 30))
MODEL = {"n_components": 3, "solver": "krylov", "tol": 1e-12}
Pair: TypeAlias = tuple[Client, dict[str, subprocess.Popen[bytes]]]


@contextlib.contextmanager
def processes(*commands: list[str], **environment: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Commands of Dask as processes, which end with the context."""
    commands = tuple([sys.executable, "-m", "distributed.cli.dask_" + name, *options] for name, *options in commands)
    with running(*commands, **environment) as begun:
        yield begun


@contextlib.contextmanager
def running(*commands: list[str], **environment: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Any processes, which end with the context."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    begun = [subprocess.Popen(command, env={**os.environ, **environment}, **quiet) for command in commands]
    try:
        yield begun
    finally:
        for process in begun:
            process.kill()
            process.wait()


def worker(address: str, *options: str) -> list[str]:
    return ["worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "1GiB", *options]


@contextlib.contextmanager
def scheduler(path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A scheduler as a process, and its address."""
    file = path / "scheduler.json"
    file.unlink(missing_ok=True)
    with processes(["scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]) as (process,):
        with Client(scheduler_file=str(file), set_as_default=False, timeout=60) as client:
            address = str(client.scheduler.address)
        yield address, process


@pytest.fixture
def store(tmp_path: Path) -> Path:
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(200, 30))
    return tmp_path / "x.zarr"


@pytest.fixture
def empty() -> Iterator[Client]:
    """The client of a cluster without workers."""
    with LocalCluster(n_workers=0, dashboard_address=":0") as cluster, Client(cluster, set_as_default=False) as client:
        yield client


def with_other_scipy(path: Path) -> dict[str, str]:
    """The environment of a process that finds another version of SciPy installed."""
    (path / "scipy-0.0.1.dist-info").mkdir(exist_ok=True)
    (path / "scipy-0.0.1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: scipy\nVersion: 0.0.1\n")
    return {"PYTHONPATH": os.pathsep.join([str(path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])}


@pytest.mark.slow
def test_a_worker_with_another_version_is_refused(empty: Client, store: Path, tmp_path: Path) -> None:
    address = empty.scheduler.address
    with processes(worker(address), **with_other_scipy(tmp_path)):
        empty.wait_for_workers(1, timeout=60)
        (there,) = empty.nthreads()
        own = re.escape(versions()["scipy"])
        with pytest.raises(EngineError, match=f"The worker {there} has scipy 0.0.1, but the driver has .*scipy {own}"):
            PPCA(**MODEL).fit(store, client=empty)
    with processes(worker(address)):
        assert PPCA(**MODEL).fit(store, client=empty).converged_


WITHOUT = """
import runpy, sys
sys.path.append(sys.argv.pop(1))
runpy.run_module("distributed.cli.dask_worker", run_name="__main__")
"""


def test_a_worker_without_dlatent_is_refused(empty: Client, store: Path, tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    for place in map(Path, site.getsitepackages()):
        for entry in place.iterdir():
            if "dlatent" not in entry.name:
                (tmp_path / "packages" / entry.name).symlink_to(entry)
    command = [sys.executable, "-I", "-S", "-c", WITHOUT, str(tmp_path / "packages")]
    with running([*command, *worker(empty.scheduler.address)[1:]]):
        empty.wait_for_workers(1, timeout=60)
        with pytest.raises(EngineError, match="has dlatent not, but the driver has dlatent"):
            PPCA(**MODEL).fit(store, client=empty)


@pytest.mark.slow
def test_a_worker_with_another_version_that_comes_later_is_refused(
    empty: Client, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlatent.engine.cluster.KNOWN_SECONDS", 0.0)
    address = empty.scheduler.address
    with processes(worker(address)), contextlib.ExitStack() as later:
        empty.wait_for_workers(1, timeout=60)

        def join(_: Any) -> None:
            if len(empty.nthreads()) == 1:
                later.enter_context(processes(worker(address), **with_other_scipy(tmp_path)))
                empty.wait_for_workers(2, timeout=60)

        with pytest.raises(EngineError, match=r"has scipy 0\.0\.1, but"):
            PPCA(**MODEL).fit(store, client=empty, callbacks=[Callback(on_pass=join)])


CLOCK = """
import runpy, sys, time
real, hours = time.time, int(sys.argv.pop(1))
time.time = lambda: real() + hours * 3600
runpy.run_module("distributed.cli.dask_worker", run_name="__main__")
"""


@pytest.mark.slow
def test_clocks_do_not_matter(empty: Client, store: Path) -> None:
    options = worker(empty.scheduler.address)[1:]
    with running(*([sys.executable, "-c", CLOCK, str(hours), *options] for hours in (-5, 7))):
        empty.wait_for_workers(2, timeout=60)
        clocks = empty.run(eval, "__import__('time').time()").values()
        hours = sorted(round((clock - time.time()) / 3600) for clock in clocks)
        assert hours == [-5, 7]
        found = PPCA(**MODEL).fit(store, client=empty)
    expected = PPCA(**MODEL).fit(store, client="serial")
    np.testing.assert_array_equal(found.components_, expected.components_)
    assert found.history_["pass_seconds"].values.min() >= 0.0


@pytest.mark.slow
def test_a_scheduler_that_is_killed_costs_one_pass_at_most(store: Path, tmp_path: Path) -> None:
    expected, seen = PPCA(**MODEL).fit(store, client="serial"), list[Any]()
    place = tmp_path / "c"
    with (
        scheduler(tmp_path) as (address, process),
        processes(worker(address), worker(address)),
        Client(address, set_as_default=False) as client,
    ):
        client.wait_for_workers(2, timeout=60)

        def kill(record: Any) -> None:
            seen.append(record)
            if len(seen) == 3:
                process.send_signal(signal.SIGKILL)

        with pytest.raises(EngineError, match="a fit with a checkpoint goes on behind its last pass"):
            PPCA(**MODEL).fit(store, client=client, checkpoint=place, callbacks=[Callback(on_pass=kill)])
        kept = len(list(place.glob("*.npz")))
    assert kept >= len(seen) == 3
    with (
        scheduler(tmp_path) as (address, _),
        processes(worker(address)),
        Client(address, set_as_default=False) as client,
    ):
        found = PPCA(**MODEL).fit(store, client=client, checkpoint=place, resume=True)
    np.testing.assert_array_equal(found.components_, expected.components_)
    assert found.n_passes_ == expected.n_passes_


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """The client of a cluster that gives up silent workers soon, and the processes of its two workers by address."""
    monkeypatch.setattr("dlatent.engine.failures.SILENT_SECONDS", 3.0)
    monkeypatch.setattr("dlatent.engine.failures.POLL_SECONDS", 0.5)
    with (
        dask.config.set({"distributed.scheduler.worker-ttl": "15s"}),
        LocalCluster(n_workers=0, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
        processes(worker(cluster.scheduler_address), worker(cluster.scheduler_address)) as begun,
    ):
        client.wait_for_workers(2, timeout=60)
        number = client.run(os.getpid)
        yield client, {address: one for address, pid in number.items() for one in begun if one.pid == pid}


def fit_while_one_stops(pair: Pair, store: Path, busy: bool) -> tuple[PPCA, float]:
    """A fit during which the worker stops that holds the rows, or the other one; and the seconds from then on."""
    client, begun = pair
    passes, stopped = list[Any](), list[float]()

    def stop(record: Any) -> None:
        passes.append(record)
        if len(passes) == 2:
            (home,) = {address for address, keys in client.has_what().items() if keys}
            for address, process in begun.items():
                if (address == home) == busy:
                    process.send_signal(signal.SIGSTOP)
                    stopped.append(time.monotonic())

    found = PPCA(**MODEL).fit(store, client=client, callbacks=[Callback(on_pass=stop)])
    return found, time.monotonic() - stopped[0]


@pytest.mark.slow
def test_a_worker_that_was_stopped_before_the_fit_is_told_of_and_given_up(
    pair: Pair, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client, begun = pair
    expected = PPCA(**MODEL).fit(store, client="serial")
    begun[max(begun)].send_signal(signal.SIGSTOP)
    with caplog.at_level(logging.WARNING, "dlatent.engine"):
        found = PPCA(**MODEL).fit(store, client=client)
    np.testing.assert_array_equal(found.components_, expected.components_)
    said = [record.getMessage() for record in caplog.records if record.name == "dlatent.engine"]
    assert f"Waiting for the worker {max(begun)}, of which nobody has heard" in said[0]


@pytest.mark.slow
def test_a_worker_that_is_stopped_is_told_of_and_given_up(
    pair: Pair, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = PPCA(**MODEL).fit(store, client="serial")
    with caplog.at_level(logging.WARNING, "dlatent.engine"):
        found, _ = fit_while_one_stops(pair, store, busy=True)
    np.testing.assert_array_equal(found.components_, expected.components_)
    said = [record.getMessage() for record in caplog.records if record.name == "dlatent.engine"]
    assert len(said) == 1
    assert "of which nobody has heard" in said[0]


@pytest.mark.slow
def test_a_fit_does_not_wait_for_a_stopped_worker_without_work(pair: Pair, store: Path) -> None:
    expected = PPCA(**MODEL).fit(store, client="serial")
    found, seconds = fit_while_one_stops(pair, store, busy=False)
    np.testing.assert_array_equal(found.components_, expected.components_)
    assert seconds < 10.0  # the scheduler gives it up after 30


def test_silence_is_told_once_and_by_no_clock_of_others(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = [100.0]
    monkeypatch.setattr("dlatent.engine.failures.monotonic", lambda: at[0])
    silence = Silence()
    for second in range(200):
        at[0] += 1.0
        silence.tell({"a": {"last_seen": 5e9 + second}, "b": {"last_seen": max(3.0, second - 150.0)}})
    (said,) = [record.getMessage() for record in caplog.records]
    assert "the worker b, of which nobody has heard for 30 s" in said
