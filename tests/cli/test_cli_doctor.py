"""`dlatent doctor`: each finding by a real fault of a real process, and none where all is well."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from socket import gethostname
from typing import Any

import numpy as np
import psutil
import pytest
from distributed import Client, LocalCluster

import dlatent
from dlatent import ingest
from dlatent.cli.main import main
from dlatent.engine.doctor import ANSWER_SECONDS, unencrypted
from dlatent.engine.machine import recommended

SPAWNED = "distributed.nanny.pre-spawn-environ."
WELL = {name.removeprefix(SPAWNED): str(value) for name, value in recommended(1).items() if SPAWNED in name}
WELL |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False"}
OLD = """
import distributed.versions as versions
versions.version = lambda name, real=versions.version: "1.0" if name == "scipy" else real(name)
"""
LATE = "import time\ntime.time = lambda: time.time_ns() / 1e9 - 3600\n"


class Processes:
    """A scheduler and workers."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.all = folder, dict[str, subprocess.Popen[bytes]]()
        self._start("scheduler", ["scheduler", "--host", "127.0.0.1", "--port", "0"], WELL)
        self.address = self._said("scheduler", r"Scheduler at:\s+(tcp://[\d.:]+)")

    def work(self, name: str, *words: str, under: tuple[str, ...] = (), **environment: str | None) -> None:
        """Start a worker; variables that are None are not set."""
        own = {key: value for key, value in {**WELL, **environment}.items() if value is not None}
        where = ["--local-directory", str(self.folder / "scratch"), "--memory-limit", "256MiB", "--no-nanny", *words]
        command = ["worker", self.address, "--host", "127.0.0.1", "--nthreads", "1", "--name", name, "--no-dashboard"]
        self._start(name, [*command, *where], own, under)

    def wait(self) -> None:
        """Till all workers are there."""
        for name in self.all:
            self._said(name, r"(Registered to|Scheduler at:)")

    def stop(self) -> None:
        for process in reversed(self.all.values()):
            process.kill()
        for process in self.all.values():
            process.wait(30)

    def _start(self, name: str, words: list[str], own: dict[str, str], under: tuple[str, ...] = ()) -> None:
        role, *words = words
        left = {key: value for key, value in os.environ.items() if key not in WELL and not key.startswith("MALLOC_")}
        with (self.folder / f"{name}.log").open("wb") as log:
            command = [*under, sys.executable, "-m", f"distributed.cli.dask_{role}", *words]
            self.all[name] = subprocess.Popen(command, stdout=log, stderr=log, env={**left, **own}, cwd=self.folder)

    def _said(self, name: str, words: str) -> str:
        log, end = self.folder / f"{name}.log", time.monotonic() + 120
        while not (found := re.search(words, log.read_text())):
            assert self.all[name].poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        return found[1]


def apart(mount: str) -> tuple[str, ...]:
    """The words with which a command sees other files than all others; () where the system does not allow that."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        return ()
    return ("unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, and another one with the same rows but the first."""
    place = tmp_path_factory.mktemp("doctor")
    rows = np.random.default_rng(0).normal(size=(4000, 40))
    for name in ("seen", "other"):
        (place / name).mkdir()
        np.save(place / "rows.npy", rows)
        ingest(place / "rows.npy", place / name / "x.zarr", block_bytes=100_000)
        rows[0, 0] += 1
    (place / "old.py").write_text(OLD)
    (place / "late.py").write_text(LATE)
    return place


@pytest.fixture(scope="module")
def ill(folder: Path) -> Iterator[dict[str, Any]]:
    """What the doctor says of a cluster in which each worker has another fault: JSON, with names for addresses."""
    seen, most = folder / "seen", f"{int(0.7 * psutil.virtual_memory().total)}B"
    processes = Processes(folder)
    try:
        processes.work("well")
        processes.work("plain", **(dict.fromkeys(WELL) | {"OPENBLAS_NUM_THREADS": "3"}))
        processes.work("greedy", "--memory-limit", most)
        processes.work("greedier", "--memory-limit", most)
        processes.work("endless", "--memory-limit", "0", "--local-directory", "/dev/shm/dlatent-doctor")
        processes.work("old", "--preload", str(folder / "old.py"))
        processes.work("late", "--preload", str(folder / "late.py"))
        processes.work("few", under=("sh", "-c", 'ulimit -n 200 && exec "$@"', "sh"))
        processes.work("stopped")
        for name, mount in (("blind", "mount -t tmpfs none"), ("elsewhere", f"mount --bind {folder / 'other'}")):
            if words := apart(f"{mount} {seen}"):
                processes.work(name, under=words)
        processes.wait()
        with Client(processes.address, set_as_default=False) as client:
            workers = client.scheduler_info(n_workers=-1)["workers"]
        names = {address: str(info["name"]) for address, info in workers.items()}
        processes.all["stopped"].send_signal(signal.SIGSTOP)
        words = ["doctor", str(seen / "x.zarr"), "--scheduler", processes.address, "--json"]
        words += ["--writable", str(seen / "y.zarr"), "--writable", str(folder / "gone.zarr" / "y.zarr")]
        began = time.monotonic()
        command = [sys.executable, "-m", "dlatent.cli.main", *words]
        ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | WELL)
        seconds = time.monotonic() - began
        told = ended.stdout
        for address, name in names.items():
            told = told.replace(f'"{address}"', f'"{name}"')
        assert told, ended.stderr
        yield json.loads(told) | {"status": ended.returncode, "seconds": seconds}
    finally:
        processes.stop()
        shutil.rmtree("/dev/shm/dlatent-doctor", ignore_errors=True)


def said(ill: dict[str, Any], name: str) -> dict[str, Any]:
    """What is said of one worker: the remedies by the faults."""
    return {one["what"]: one for one in ill["findings"] if one["where"] == name}


@pytest.mark.slow
def test_nothing_is_said_of_a_worker_that_is_well(ill: dict[str, Any]) -> None:
    assert ill["status"] == 7
    assert ill["fit"] is False
    assert "well" in ill["workers"]
    assert said(ill, "well") == said(ill, "scheduler") == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "what", "mend", "wrong"),
    [
        ("old", "has scipy 1.0, and this process scipy", "install the same", True),
        ("late", "has a clock that differs by 3[56]", "set its clock", True),
        ("endless", "has no limit of memory", "--memory-limit", True),
        ("endless", r"scratch directory /dev/shm/\S* in memory \(tmpfs\)", "--local-directory", False),
        ("few", r"may open 200 files, and connections to \d+ workers are files", "say ulimit -n 65536", True),
        ("stopped", f"gave no answer in {ANSWER_SECONDS:.0f} s", "look at its machine", True),
        ("plain", r"lets BLAS use \d+ threads beside 1 of Dask", "OPENBLAS_NUM_THREADS=1", False),
        ("plain", "clears memory anew", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 MALLOC_MMAP_THRESHOLD_=33554432", False),
    ],
)
def test_each_fault_is_found(ill: dict[str, Any], name: str, what: str, mend: str, wrong: bool) -> None:
    (one,) = [one for text, one in said(ill, name).items() if re.search(what, text)]
    assert mend in one["mend"]
    assert one["wrong"] is wrong


@pytest.mark.slow
def test_workers_that_may_together_use_more_than_there_is(ill: dict[str, Any]) -> None:
    (one,) = [one for one in ill["findings"] if "that may use" in one["what"]]
    assert re.search(r"grants [\d.]+ GiB to \d+ workers", one["what"])
    assert one["wrong"]
    assert said(ill, "greedy") == {}  # each of them could be there alone


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 does not hang")
def test_a_profiler_that_can_hang(ill: dict[str, Any]) -> None:
    (one,) = [one for what, one in said(ill, "plain").items() if "profiler" in what]
    assert one["mend"].startswith("set DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=False")
    assert "dask.config.set({'distributed.worker.profile.enabled': False}) before a LocalCluster" in one["mend"]
    assert one["wrong"]


@pytest.mark.slow
@pytest.mark.skipif(not apart("true"), reason="the system gives no process a mount namespace of its own")
def test_a_store_that_others_do_not_see(ill: dict[str, Any], folder: Path) -> None:
    place = str(folder / "seen" / "x.zarr")
    blind, elsewhere = said(ill, "blind"), said(ill, "elsewhere")
    assert f"{place} does not exist" in blind[f"cannot read {place}"]["mend"]
    assert "same path everywhere" in elsewhere[f"sees another store at {place} than this process"]["mend"]
    (seen,) = ill["stores"].values()
    assert {"this process", "well"} <= seen.keys()
    assert not {"blind", "stopped"} & seen.keys()
    assert seen["well"]["loaded"] >= 100_000


@pytest.mark.slow
def test_a_stopped_worker_is_not_waited_for_without_end(ill: dict[str, Any]) -> None:
    assert ill["seconds"] < 4 * ANSWER_SECONDS


def test_a_cluster_that_is_well(run: Any, store: Path, tmp_path: Path) -> None:
    ended = run("doctor", store, "--workers", "1", "--memory-limit", "512MiB", "--writable", tmp_path / "out.zarr")
    assert ended.status == 0, ended.out
    assert "1 worker that answers" in ended.out
    assert f"{store}: read by 1 at once" in ended.out
    assert "WRONG" not in ended.out
    assert ended.out.endswith("nothing is wrong\n")
    assert list(tmp_path.iterdir()) == []


def test_workers_without_a_limit_of_memory(run: Any) -> None:
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with LocalCluster(**options, memory_limit=0) as cluster:
        ended = run("doctor", "--scheduler", cluster.scheduler_address)
    assert re.search(r"memory +no limit\n", ended.out), ended.out


@pytest.mark.parametrize("address", ["tcp://192.0.2.7:8786", "ws://192.0.2.7:8786", "tcp://[2001:db8::7]:8786"])
def test_a_scheduler_on_another_machine_without_certificates(address: str) -> None:
    (one,) = unencrypted(address)
    assert (one.where, one.wrong) == ("scheduler", False)
    assert f"on another machine, at {address} without TLS" in one.what


@pytest.mark.parametrize(
    "address", ["tls://192.0.2.7:8786", "tcp://127.0.0.1:1", f"tcp://{gethostname()}:1", "inproc://1/2"]
)
def test_a_scheduler_with_certificates_or_on_this_machine(address: str) -> None:
    assert list(unencrypted(address)) == []


def test_a_busy_worker_answers(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def work(until: Path) -> None:
        while not until.exists():
            time.sleep(0.05)

    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "memory_limit": "512MiB"}
    with LocalCluster(**options, dashboard_address=":0") as cluster, Client(cluster, set_as_default=False) as client:
        busy = client.submit(work, tmp_path / "enough")
        try:
            main(["doctor", str(store), "--scheduler", cluster.scheduler_address, "--json"])
            assert busy.status == "pending"
        finally:
            (tmp_path / "enough").touch()
        told = json.loads(capsys.readouterr().out)
    assert len(told["workers"]) == 1
    assert len(told["stores"][str(store)]) == 2


def test_a_cluster_without_workers(run: Any) -> None:
    with LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster:
        ended = run("doctor", "--scheduler", cluster.scheduler_address)
    assert ended.status == 7
    assert "WRONG: scheduler has no worker: start some: dask worker ADDRESS" in ended.out


def test_a_scheduler_that_does_not_answer(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlatent.cli.cluster.CONNECT_SECONDS", 1)
    ended = run("doctor", "--scheduler", "tcp://127.0.0.1:9")
    assert ended.status == 5
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in ended.err


def test_without_a_cluster_stores_are_read_here(run: Any, store: Path, model: Path, tmp_path: Path) -> None:
    assert run("doctor", store).status == 0
    (tmp_path / "file").write_text("")
    ended = run("doctor", model, tmp_path / "x.zarr", "--writable", tmp_path / "file" / "y", "--writable", "/proc/z")
    assert ended.status == 7
    for words in (f"cannot read {model}: .* saved result", "does not exist", "write to /proc/z: .*choose a place"):
        assert re.search(f"WRONG: this process .*{words}", ended.out)
    assert ended.out.count("WRONG") == 4
    damaged = tmp_path / "damaged.zarr"
    shutil.copytree(store, damaged)
    (damaged / "X" / "c" / "0" / "0").write_bytes(b"")
    assert "WRONG: this process cannot read" in run("doctor", damaged).out


@pytest.mark.slow
def test_no_credential_is_shown(run: Any) -> None:
    for words in (
        ["doctor", "s3://key:hunter2@bucket/x.zarr"],
        ["doctor", "https://ann:hunter2@127.0.0.1:9/x?s=hunter2"],
    ):
        ended = run(*words)
        assert "WRONG" in ended.out or ended.status == 3
        assert "hunter2" not in ended.out + ended.err


def test_versions_are_those_of_this_process(run: Any, store: Path) -> None:
    told = run("doctor", store, "--workers", "1", "--memory-limit", "512MiB", "--json").json
    (one,) = told["workers"].values()
    assert one["versions"]["dlatent"] == dlatent.__version__
    assert one["versions"]["numpy"] == np.__version__
    assert one["memory_limit"] == 512 * 2**20
