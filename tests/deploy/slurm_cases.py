"""A real Slurm of one node, all of it below one folder."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from deploy_cases import environment, until

CONFIGURATION = """
ClusterName=dlatent
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=10
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={controller}
SlurmdPort={daemon}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=5
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
KillWait=3
MinJobAge=300
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=16000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
SlurmdParameters=config_overrides
"""
"""`cred_expire`: a job that is queued again begins when its credential is out of date, by default after two minutes."""


def missing() -> str:
    """Why there can be no Slurm here; "" where there can."""
    absent = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if not shutil.which(name, path=_path())]
    if absent:
        return f"no {', '.join(absent)}: apt-get install --no-install-recommends slurm-wlm munge slurm-client"
    return "" if os.geteuid() == 0 else "slurmd must be started by root"


def _path() -> str:
    return environment()["PATH"]


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Slurm:
    """Its daemons, and the commands of its users."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        host = socket.gethostname().partition(".")[0]
        for name in ("munge", "state", "spool", "log"):
            (folder / name).mkdir()
        key = folder / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        controller, daemon = _free_ports(2)
        configuration = CONFIGURATION.format(folder=folder, host=host, controller=controller, daemon=daemon)
        (folder / "slurm.conf").write_text(configuration)
        self.variables = {"SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: list[subprocess.Popen[bytes]] = []
        munge = folder / "munge"
        places = (f"--{kind}-file={munge / kind}" for kind in ("key", "pid", "log", "seed"))
        self._start("munged", "--foreground", "--force", f"--socket={munge / 'socket'}", *places)
        until((munge / "socket").exists, 30, self.log)
        self._start("slurmctld", "-D")
        self._start("slurmd", "-D", "-N", host)
        until(lambda: "idle" in self("sinfo", "-h", "-o", "%T", check=False), 60, self.log)

    def _start(self, name: str, *words: str) -> None:
        with (self._folder / "log" / name).open("wb") as log:
            command = [name, *words]
            self._daemons.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment(**self.variables)))

    def log(self) -> str:
        """What its daemons have said."""
        return "\n".join(path.read_text()[-3000:] for path in (self._folder / "log").iterdir())

    def __call__(self, *words: str, folder: Path | None = None, check: bool = True, **more: str) -> str:
        """What a command of Slurm says."""
        ended = subprocess.run(
            words,
            capture_output=True,
            text=True,
            cwd=folder or self._folder,
            timeout=60,
            env=environment(**self.variables, **more),
        )
        assert not check or ended.returncode == 0, ended.stderr + self.log()
        return ended.stdout.strip()

    def submit(self, folder: Path, *words: str, options: Sequence[str] = (), **more: str) -> str:
        """The number of a new job."""
        return self("sbatch", "--parsable", *options, *words, folder=folder, **more)

    def about(self, job: str) -> dict[str, str]:
        """What `scontrol` says of a job, by its words."""
        return dict(re.findall(r"(\w+)=(\S*)", self("scontrol", "show", "job", job)))

    def ended(self, job: str, log: Path, seconds: float = 300) -> str:
        """The state in which a job ends."""
        known = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        until(lambda: self.about(job)["JobState"] in known, seconds, lambda: _text(log) + self.log())
        return self.about(job)["JobState"]

    def stop(self) -> None:
        """End everything."""
        self("scancel", "--user=root", check=False)
        end = time.monotonic() + 30
        while self("squeue", "-h", check=False) and time.monotonic() < end:
            time.sleep(0.5)
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            daemon.wait(30)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
