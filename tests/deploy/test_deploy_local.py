"""deploy/local and the smoke command: a cluster of processes, which leaves none of them behind."""

from __future__ import annotations

import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import zarr
from deploy_cases import DEPLOY, OK, SMOKE, Command, load, variables
from distributed import Client, LocalCluster
from s3_server import s3_server

from dlatent import ingest, open_data
from dlatent.engine.machine import NO_HANGS, recommended

CLUSTER = str(DEPLOY / "local" / "cluster.sh")


def test_the_environment_of_workers_is_what_dlatent_gives_its_own() -> None:
    given = variables(DEPLOY / "worker.env")
    spawned = "distributed.nanny.pre-spawn-environ."
    own = {name.removeprefix(spawned): value for name, value in recommended(1).items() if spawned in name}
    assert own.items() <= given.items()
    for name, value in NO_HANGS.items():
        assert given["DASK_" + name.upper().replace(".", "__")] == str(value)


def test_what_workers_import_when_they_start_is_all_that_they_need_to_read_a_store(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.eye(3))
    ingest(tmp_path / "a.npy", tmp_path / "a.zarr")
    (tmp_path / "source").write_bytes(pickle.dumps(open_data(tmp_path / "a.zarr")))
    program = (
        "import importlib, pickle, sys; importlib.import_module(sys.argv[1]); before = set(sys.modules)\n"
        "pickle.load(open(sys.argv[2], 'rb')).blocks[0].load()\n"
        "print(*sorted(name for name in set(sys.modules) - before if name.startswith(('dlatent.stores', 'zarr'))))"
    )
    preload = variables(DEPLOY / "worker.env")["DASK_DISTRIBUTED__WORKER__PRELOAD"]
    done = subprocess.run(
        [sys.executable, "-c", program, preload, str(tmp_path / "source")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def logs_in(scratch: Path) -> list[str]:
    """The files that a run has left, in its folder."""
    (run,) = scratch.iterdir()
    return sorted(path.name for path in run.iterdir())


@pytest.mark.slow
def test_cluster_sh_keeps_its_logs_and_says_where(tmp_path: Path) -> None:
    (tmp_path / "ask.py").write_text(
        "import sys\n"
        "from distributed import Client\n"
        "with Client(sys.argv[-1]) as client:\n"
        "    client.wait_for_workers(1)\n"
        "raise SystemExit(3)\n"
    )
    command = Command([CLUSTER, "python", "ask.py"], tmp_path, SCRATCH=str(tmp_path), MEMORY="1GiB", WORKERS="1")
    assert command.end() == 3
    (run,) = tmp_path.glob("dlatent-??????")
    assert f"The logs are in {run}" in command.said
    assert sorted(path.name for path in run.iterdir()) == ["scheduler.log", "workers.log"]
    assert "Scheduler at" in (run / "scheduler.log").read_text()


@pytest.mark.slow
def test_cluster_sh_runs_the_smoke_command(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    words = [CLUSTER, *SMOKE, "--data", str(tmp_path / "x.zarr"), "--size", "20MB", "--checkpoint", "kept"]
    command = Command(words, tmp_path, SCRATCH=str(scratch), MEMORY="1GiB", WORKERS="2")
    command.wait_for("fit on the cluster")
    assert len(command.family) >= 5  # the driver, the scheduler, the parent of the nannies, two workers
    assert command.end() == 0, command.said
    assert OK in command.said
    assert "2 workers, 2 threads" in command.said
    assert command.said.count("MB/s read") == 2  # the first pass of both fits
    assert logs_in(scratch) == ["scheduler.log", "workers.log"]
    assert not (tmp_path / "kept").exists()


@pytest.mark.slow
def test_a_terminated_cluster_sh_leaves_no_process_and_goes_on(tmp_path: Path) -> None:
    words = [CLUSTER, *SMOKE, "--data", "x.zarr", "--size", "20MB", "--checkpoint", "kept", "--pause", "3"]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    more = {"SCRATCH": str(scratch), "MEMORY": "1GiB"}
    command = Command(words, tmp_path, **more)
    command.wait_for(r"products .*\n  products")
    assert command.end(signal.SIGTERM) == 143, command.said
    assert logs_in(scratch) == ["scheduler.log", "workers.log"]
    again = Command(words, tmp_path, **more)
    assert again.end() == 0, again.said
    assert "kept is there: goes on behind 2 passes" in again.said
    assert "x.zarr is there" in again.said
    assert OK in again.said


@pytest.mark.slow
def test_the_status_of_the_command_and_the_environment_of_its_workers(tmp_path: Path) -> None:
    (tmp_path / "ask.py").write_text(
        "import os, sys, dask\n"
        "from distributed import Client\n"
        "def told():\n"
        "    limits = [dask.config.get(f'distributed.worker.memory.{x}') for x in ('target', 'spill', 'terminate')]\n"
        "    return os.environ['MALLOC_MMAP_THRESHOLD_'], os.environ['OPENBLAS_NUM_THREADS'], limits\n"
        "with Client(sys.argv[-1]) as client:\n"
        "    client.wait_for_workers(1)\n"
        "    print(client.submit(told).result())\n"
        "raise SystemExit(7)\n"
    )
    command = Command([CLUSTER, "python", "ask.py"], tmp_path, WORKERS="1", OPENBLAS_NUM_THREADS="3")
    assert command.end() == 7
    assert "('33554432', '1', [False, 0.7, 0.95])" in command.said


def test_cluster_sh_without_a_command_says_how(tmp_path: Path) -> None:
    ended = subprocess.run([CLUSTER], capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 2
    assert "cluster.sh dlatent fit" in ended.stderr


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    options = {"threads_per_worker": 1, "memory_limit": "1GiB", "dashboard_address": ":0"}
    with LocalCluster(n_workers=1, processes=False, **options) as cluster:
        yield cluster.scheduler_address


def smoke(address: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The smoke command as a module, with the words that it was given."""
    words = ["smoke.py", "--scheduler", address, "--data", str(place), "--size", "16MiB"]
    monkeypatch.setattr("sys.argv", words)
    return load(DEPLOY / "smoke.py")


@pytest.mark.parametrize("fault", ["bits", "planted"])
def test_the_smoke_command_fails_where_something_is_wrong(
    scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    module = smoke(scheduler, tmp_path / "x.zarr", monkeypatch)
    if fault == "bits":
        fit = module.fit

        def other(place: str, client: Client | str, **options: object) -> object:
            model = fit(place, client, **options)
            if client != "serial":
                model.mean_[:] = np.nextafter(model.mean_, np.inf)
            return model

        monkeypatch.setattr(module, "fit", other)
        said = "FAILED: the cluster gave other bits than this process\n"
    else:
        module.make(str(tmp_path / "x.zarr"), 16384)
        monkeypatch.setattr(module, "loadings", lambda: np.random.default_rng(9).normal(size=(8, 256)))
        said = "FAILED: the planted directions were missed by 1.000\n"
    assert module.main() == 1
    assert capsys.readouterr().out.endswith(said)


def test_half_a_store_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load(DEPLOY / "smoke.py")
    place = str(tmp_path / "x.zarr")
    module.make(place, 16384)
    expected = zarr.open_array(place)[:]
    zarr.open_array(place, mode="r+").attrs["whole"] = False
    shutil.rmtree(tmp_path / "x.zarr" / "c" / "1")
    module.make(place, 16384)
    assert np.array_equal(zarr.open_array(place)[:], expected)


@pytest.mark.slow
def test_the_smoke_command_with_data_and_checkpoint_on_s3(tmp_path: Path) -> None:
    with s3_server(tmp_path) as s3:
        words = [CLUSTER, *SMOKE, "--data", "s3://stores/x.zarr", "--size", "20MB", "--pause", "3"]
        words += ["--checkpoint", "s3://stores/kept"]
        first = Command(words, tmp_path, **s3.environment)
        first.wait_for(r"products .*\n  products")
        assert first.end(signal.SIGTERM) == 143
        again = Command(words, tmp_path, **s3.environment)
        assert again.end() == 0, again.said
        assert "s3://stores/kept is there: goes on behind 2 passes" in again.said
        assert OK in again.said
        s3.files.invalidate_cache()
        assert s3.files.ls("stores") == ["stores/x.zarr"]
