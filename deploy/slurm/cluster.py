"""Workers as jobs of Slurm: start them, run COMMAND … --scheduler ADDRESS here, and end them.

    WORKERS=8 python cluster.py dlatent fit ppca data.zarr -k 50 -o model.zarr --checkpoint fit.checkpoint --resume

In a notebook: `from cluster import started`, then `with started() as cluster, Client(cluster): …`.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dask.utils import parse_bytes
from dask_jobqueue import SLURMCluster


def setting(name: str, default: str) -> str:
    """A setting from the environment."""
    return os.environ.get(name, default)


WORKERS = int(setting("WORKERS", "4"))  # jobs of one worker each
THREADS = int(setting("THREADS", "1"))  # of a worker; worker.env says what else to change
MEMORY = setting("MEMORY", "6GiB")  # what a worker may use; its job asks for 15 % more
MINUTES = int(setting("MINUTES", "240"))  # what a job may last
LIFETIME = setting("LIFETIME", f"{MINUTES * 51}s")  # at 85 % of it a worker hands over what it holds, and ends its job
STAGGER = setting("STAGGER", f"{MINUTES * 6}s")  # sooner or later by up to this, so that not all end at once
INTERFACE = setting("INTERFACE", "ib0")  # the fast network, as `ip address` names it
SCRATCH = setting("SCRATCH", "/tmp")  # a disk of each node; TMPDIR is that of this one
# sbatch takes partition and account from the environment: export SBATCH_PARTITION=… SBATCH_ACCOUNT=…


@contextmanager
def started() -> Iterator[SLURMCluster]:
    """A scheduler in this process, and its jobs; one that ends is submitted again."""
    environment = Path(__file__).resolve().parent / "worker.env"
    cluster = SLURMCluster(
        cores=THREADS,
        processes=1,
        memory=MEMORY,
        job_mem=f"{parse_bytes(MEMORY) * 115 // (100 * 2**20)}M",
        walltime=str(MINUTES),
        interface=INTERFACE,
        local_directory=f"{SCRATCH}/dlatent-$USER",
        log_directory="dlatent-jobs",
        job_script_prologue=[f"set -a; . {shlex.quote(str(environment))}; set +a"],
        worker_extra_args=["--lifetime", LIFETIME, "--lifetime-stagger", STAGGER, "--no-dashboard"],
        death_timeout=120,  # without a scheduler a job ends by itself
        scheduler_options={"dashboard_address": "127.0.0.1:0"},
    )
    with cluster:
        cluster.adapt(minimum_jobs=WORKERS, maximum_jobs=WORKERS)
        yield cluster


def main() -> int:
    """Run the command; its exit status is that of this one."""
    if len(sys.argv) == 1:
        raise SystemExit(__doc__)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with started() as cluster:
        command = subprocess.Popen([*sys.argv[1:], "--scheduler", cluster.scheduler_address])
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal tells the command, too
        try:
            return command.wait()
        except SystemExit:
            command.terminate()
            command.wait()
            raise


if __name__ == "__main__":
    raise SystemExit(main())
