"""deploy/slurm on a real Slurm of one node, and on a real MPI."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from deploy_cases import DEPLOY, OK, SMOKE, Command, until
from slurm_cases import Slurm, missing

pytestmark = pytest.mark.slow
needs_mpi = pytest.mark.skipif(not shutil.which("mpirun"), reason="no mpirun: apt-get install openmpi-bin")

SBATCH = ("fit.sbatch", *SMOKE, "--data", "x.zarr", "--size", "20MB", "--checkpoint", "kept")
SMALL = ("--ntasks=3", "--mem-per-cpu=1G", "--output=job.log")
HERE = {"INTERFACE": "lo", "MEMORY": "900MiB"}


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if missing():
        pytest.skip(missing())
    made = Slurm(tmp_path_factory.mktemp("slurm"))
    yield made
    made.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a user has the recipe."""
    for name in ("worker.env", "slurm/fit.sbatch", "slurm/cluster.py", "slurm/mpi.py"):
        shutil.copy(DEPLOY / name, tmp_path)
    return tmp_path


def said(folder: Path) -> str:
    log = folder / "job.log"
    return log.read_text() if log.exists() else ""


def test_sbatch_runs_the_smoke_command(slurm: Slurm, folder: Path) -> None:
    job = slurm.submit(folder, *SBATCH, options=SMALL, **HERE)
    assert slurm.ended(job, folder / "job.log") == "COMPLETED", said(folder)
    assert "2 workers, 2 threads" in said(folder)
    assert OK in said(folder)
    assert sorted(path.name for path in folder.glob("dlatent-*")) == []


def test_the_status_of_the_command_is_that_of_the_job(slurm: Slurm, folder: Path) -> None:
    words = ("fit.sbatch", "bash", "-c", "exit 3")
    job = slurm.submit(folder, *words, options=SMALL, **HERE)
    assert slurm.ended(job, folder / "job.log") == "FAILED"
    assert slurm.about(job)["ExitCode"] == "3:0"
    assert slurm.about(job)["Restarts"] == "0"


def test_the_time_limit_ends_the_command_and_the_job_goes_on(slurm: Slurm, folder: Path) -> None:
    options = (*SMALL, "--time=1", "--signal=B:USR1@30")
    job = slurm.submit(folder, *SBATCH, "--pause", "9", options=options, **HERE)
    assert slurm.ended(job, folder / "job.log", 600) == "COMPLETED", said(folder)
    assert int(slurm.about(job)["Restarts"]) >= 1, said(folder)
    assert re.search(r"The time of the job is over.*kept is there: goes on behind \d passes", said(folder), re.DOTALL)
    assert OK in said(folder)


def started(slurm: Slurm, folder: Path, *words: str, **more: str) -> Command:
    """A command on workers that are jobs."""
    command = ["python", "cluster.py", *SMOKE, "--data", "x.zarr", "--size", "20MB", "--checkpoint", "kept", *words]
    return Command(command, folder, **slurm.variables, **HERE, WORKERS="2", SCRATCH=str(folder), **more)


def running(slurm: Slurm) -> set[str]:
    """The numbers of the jobs that run."""
    return set(slurm("squeue", "-h", "-t", "R", "-o", "%A").split())


def test_a_cancelled_job_is_replaced_in_the_middle_of_a_fit(slurm: Slurm, folder: Path) -> None:
    command = started(slurm, folder, "--pause", "9")
    command.wait_for(r"products .*\n")
    until(lambda: len(running(slurm)) == 2, 60, lambda: command.said)
    before = running(slurm)
    slurm("scancel", min(before))
    until(lambda: len(running(slurm)) == 2, 60, lambda: command.said)
    assert len(running(slurm) - before) == 1
    assert command.end() == 0, command.said
    assert OK in command.said
    assert "2 workers, 2 threads" in command.said
    until(lambda: not slurm("squeue", "-h"), 30, lambda: slurm("squeue"))


def test_a_fit_outlives_its_workers(slurm: Slurm, folder: Path) -> None:
    command = started(slurm, folder, "--pause", "16", LIFETIME="18s", STAGGER="3s")
    assert command.end(seconds=300) == 0, command.said
    assert OK in command.said
    ends = [path for path in (folder / "dlatent-jobs").iterdir() if "lifetime-reached" in path.read_text()]
    assert len(ends) >= 2, command.said


def test_a_terminated_cluster_leaves_no_job_and_goes_on(slurm: Slurm, folder: Path) -> None:
    command = started(slurm, folder, "--pause", "4")
    command.wait_for(r"products .*\n  products")
    assert command.end(signal.SIGTERM) == 143, command.said
    until(lambda: not slurm("squeue", "-h"), 30, lambda: slurm("squeue"))
    again = started(slurm, folder)
    assert again.end() == 0, again.said
    assert "kept is there: goes on behind 2 passes" in again.said
    assert OK in again.said


def test_the_jobs_of_a_killed_driver_end_by_themselves(slurm: Slurm, folder: Path) -> None:
    command = started(slurm, folder, "--pause", "4")
    command.wait_for(r"products .*\n  products")
    assert command.end(signal.SIGKILL) < 0, command.said
    until(lambda: not slurm("squeue", "-h"), 200, lambda: slurm("squeue"))
    again = started(slurm, folder)
    assert again.end() == 0, again.said
    assert OK in again.said


def under_mpi(folder: Path, *words: str) -> Command:
    """A command beside a scheduler and two workers, all of them processes of an MPI program."""
    launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4"]
    return Command([*launch, "python", "mpi.py", *words], folder, **HERE, SCRATCH=str(folder))


@needs_mpi
def test_mpi_runs_the_smoke_command_in_the_environment_of_workers(folder: Path) -> None:
    (folder / "ask.py").write_text(
        "import os, subprocess, sys\n"
        "from distributed import Client\n"
        "with Client(sys.argv[-1]) as client:\n"
        "    print(client.run(os.getenv, 'MALLOC_MMAP_THRESHOLD_').values())\n"
        "raise SystemExit(subprocess.call(sys.argv[1:]))\n"
    )
    command = under_mpi(folder, "python", "ask.py", *SMOKE, "--data", "x.zarr", "--size", "20MB")
    assert command.end() == 0, command.said
    assert "dict_values(['33554432', '33554432'])" in command.said
    assert "2 workers, 2 threads" in command.said
    assert OK in command.said
    assert not re.search("Traceback|Error|ERROR", command.said)  # of workers that end


@needs_mpi
@pytest.mark.parametrize("status", [0, 7])
def test_the_status_of_the_command_is_that_of_mpirun(folder: Path, status: int) -> None:
    command = under_mpi(folder, "bash", "-c", f"exit {status}")
    assert command.end() == status, command.said
    assert "Traceback" not in command.said
