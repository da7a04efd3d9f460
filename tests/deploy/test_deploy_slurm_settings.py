"""What the recipes for Slurm make of their environment; no Slurm is needed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from deploy_cases import DEPLOY, environment, load

DASK = """#!/bin/sh
while [ "$1" != --scheduler-file ]; do shift; done
echo '{"address": "tcp://127.0.0.1:1"}' > "$2"
"""
SRUN = """#!/bin/sh
echo "$@" > srun.log
"""


def submitted(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The job script, as Slurm would run it, with nothing behind `dask` and `srun`."""
    for name in ("worker.env", "slurm/fit.sbatch"):
        shutil.copy(DEPLOY / name, folder)
    (folder / "bin").mkdir()
    for name, text in {"dask": DASK, "srun": SRUN}.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    job = {"SLURM_SUBMIT_DIR": str(folder), "SLURM_JOB_ID": "7", "SLURM_NTASKS": "5", "SLURM_JOB_USER": "me"}
    given = environment(**job, TMPDIR="/of/the/shell", **variables)
    given["PATH"] = f"{folder / 'bin'}:{given['PATH']}"
    words = ["bash", "fit.sbatch", "true"]
    return subprocess.run(words, cwd=folder, env=given, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("variables", "memory"),
    [
        ({"SLURM_MEM_PER_CPU": "8192", "SLURM_CPUS_PER_TASK": "2"}, "13926MiB"),
        ({"SLURM_MEM_PER_NODE": "40000", "SLURM_CPUS_PER_TASK": "1", "SLURM_TASKS_PER_NODE": "5"}, "6800MiB"),
        ({"SLURM_MEM_PER_NODE": "40000", "SLURM_TASKS_PER_NODE": "1,2(x2)"}, "17000MiB"),
        ({"MEMORY": "6GiB"}, "6GiB"),
    ],
    ids=["for each processor", "for each node", "tasks on three nodes", "as it is said"],
)
def test_the_memory_of_a_worker_is_its_part_of_that_of_the_job(
    tmp_path: Path, variables: dict[str, str], memory: str
) -> None:
    ended = submitted(tmp_path, **variables)
    assert ended.returncode == 0, ended.stderr
    words = (tmp_path / "srun.log").read_text().split()
    assert words[words.index("--memory-limit") + 1] == memory
    assert words[words.index("--local-directory") + 1] == "/tmp/dlatent-me"


def test_a_job_of_unknown_memory_says_what_to_give(tmp_path: Path) -> None:
    ended = submitted(tmp_path, SLURM_MEM_PER_NODE="0", SLURM_TASKS_PER_NODE="5")
    assert ended.returncode == 2
    assert "MEMORY=6GiB sbatch" in ended.stderr


def test_the_scratch_of_a_job_is_not_that_of_the_shell_that_submits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask_jobqueue")
    monkeypatch.setenv("TMPDIR", "/of/the/shell")
    monkeypatch.delenv("SCRATCH", raising=False)
    assert load(DEPLOY / "slurm" / "cluster.py").SCRATCH == "/tmp"
