"""Scheduler, command and workers as the processes of one MPI program: COMMAND … --scheduler ADDRESS runs in the second.

    mpirun -n 6 python mpi.py dlatent fit ppca data.zarr -k 50 -o model.zarr

Two of the processes are not workers.  It works wherever MPI does: under Slurm, PBS, LSF, or none of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

MEMORY = os.environ.get("MEMORY", "6GiB")  # what a worker may use
INTERFACE = os.environ.get("INTERFACE", "ib0")  # the fast network, as `ip address` names it
SCRATCH = os.environ.get("SCRATCH", "/tmp")  # a disk of each node; TMPDIR is that of the shell that submits


def main() -> None:
    """Run the command; its exit status is that of this program."""
    if len(sys.argv) == 1:
        raise SystemExit(__doc__)
    lines = (Path(__file__).resolve().parent / "worker.env").read_text().splitlines()
    os.environ.update(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    # Dask reads the environment when it is imported.  Where a connection ends it shows tracebacks as information.
    os.environ["DASK_LOGGING"] = "{'distributed.batched': 'warning'}"
    from dask_mpi import initialize, send_close_signal
    from distributed import Client
    from mpi4py import MPI

    # A nanny starts the worker in a process of its own, which has the environment from the beginning.
    commands = initialize(
        interface=INTERFACE,
        nthreads=1,
        memory_limit=MEMORY,
        local_directory=SCRATCH,
        worker_class="distributed.Nanny",
        dashboard_address="127.0.0.1:0",
        exit=False,
    )
    if commands:
        with Client(set_as_default=False) as client:
            client.wait_for_workers(MPI.COMM_WORLD.Get_size() - 2)  # one that starts behind the end would wait for ever
            status = subprocess.call([*sys.argv[1:], "--scheduler", client.scheduler.address])
            client.run(_end, nanny=True, on_error="ignore")  # before the scheduler, of whose end they complain
        send_close_signal()
        sys.exit(status)


async def _end(dask_worker: Any) -> None:
    """Let a nanny end its worker, and start no other."""
    dask_worker.close_gracefully()
    await dask_worker.kill()


if __name__ == "__main__":
    main()
