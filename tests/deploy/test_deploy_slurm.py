"""deploy/slurm on a real Slurm of one node."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from deploy_cases import DEPLOY, OK, SMOKE
from slurm_cases import Slurm, missing

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "there is Slurm")]

SBATCH = ("fit.sbatch", *SMOKE, "--data", "x.zarr", "--size", "20MB", "--checkpoint", "kept")
SMALL = ("--ntasks=3", "--mem-per-cpu=1G", "--output=job.log")
HERE = {"INTERFACE": "lo"}


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    made = Slurm(tmp_path_factory.mktemp("slurm"))
    yield made
    made.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a user has the recipe."""
    for name in ("worker.env", "slurm/fit.sbatch"):
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
