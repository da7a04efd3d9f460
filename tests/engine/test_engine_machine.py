"""The memory that a process may use, by the control groups of Linux, of both versions."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from dlatent import PPCA, PlanError, open_data
from dlatent.engine import cluster, machine
from dlatent.engine.connect import connect
from dlatent.engine.local import local_workers
from dlatent.engine.machine import control_group_limit, memory
from dlatent.fitting.costs import WORKER_BASE

MIB, GIB = 2**20, 2**30
NONE_V1 = 9223372036854771712
"""What version 1 says where there is no limit."""


def process(folder, groups, mounts):
    """A folder like /proc/self, with mount points inside of the folder."""
    made = folder / "proc"
    made.mkdir(parents=True)
    (made / "cgroup").write_text("".join(f"{line}\n" for line in groups))
    (made / "mountinfo").write_text("".join(f"{line}\n" for line in mounts))
    return made


def mount(root, top, system, options="rw"):
    return f"36 31 0:33 {root} {str(top).replace(' ', chr(92) + '040')} rw,nosuid shared:12 - {system} cgroup {options}"


def limited(folder, value, name="memory.max"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"{value}\n")


V1 = "memory.limit_in_bytes"


def test_the_least_limit_on_the_way_up_counts_in_version_2(tmp_path):
    top = tmp_path / "cgroup"
    own = top / "user.slice" / "user-1000.slice" / "session.scope"
    limited(own, "max")
    limited(own.parent, 3 * GIB)
    limited(own.parent.parent, 8 * GIB)
    made = process(tmp_path, ["0::/user.slice/user-1000.slice/session.scope"], [mount("/", top, "cgroup2")])
    assert control_group_limit(made) == 3 * GIB
    limited(own, GIB)
    assert control_group_limit(made) == GIB


def test_the_group_of_a_user_is_seen_in_version_1(tmp_path):
    """Dask looks at the root of the hierarchy alone, which has no limit."""
    top = tmp_path / "sys" / "memory"
    limited(top, NONE_V1, V1)
    limited(top / "users" / "anna", 2 * GIB, V1)
    limited(top / "users" / "anna" / "job", NONE_V1, V1)
    other = tmp_path / "sys" / "cpu"
    limited(other / "users", MIB, V1)
    made = process(
        tmp_path,
        ["9:cpu,cpuacct:/users", "4:hugetlb,memory:/users/anna/job", "1:name=systemd:/", "0::/"],
        [
            "22 27 0:21 / /proc rw,relatime - proc proc rw",
            mount("/", other, "cgroup", "rw,cpu,cpuacct"),
            mount("/", top, "cgroup", "rw,hugetlb,memory"),
            mount("/", tmp_path / "sys" / "unified", "cgroup2"),
        ],
    )
    assert control_group_limit(made) == 2 * GIB


def test_a_container_sees_its_own_group_as_the_root_of_the_mount(tmp_path):
    top = tmp_path / "with space"
    limited(top, GIB, V1)
    limited(top / "inner", 2 * GIB, V1)
    path = "/docker/4f01/inner"
    made = process(tmp_path, [f"4:memory:{path}"], [mount("/docker/4f01", top, "cgroup", "rw,memory")])
    assert control_group_limit(made) == GIB
    limited(top / "inner", 512 * MIB, V1)
    assert control_group_limit(made) == 512 * MIB


@pytest.mark.parametrize("path", ["/elsewhere/group", "/../../other"])
def test_a_group_outside_of_the_mount_has_the_limit_of_the_mount(tmp_path, path):
    limited(tmp_path / "cgroup", GIB)
    limited(tmp_path / "other", MIB)
    made = process(
        tmp_path, [f"0::{path}"], [mount("/docker/4f01" if "else" in path else "/", tmp_path / "cgroup", "cgroup2")]
    )
    assert control_group_limit(made) == GIB


def test_without_control_groups_or_limits_there_is_none(tmp_path):
    assert control_group_limit(tmp_path / "nowhere") is None
    top = tmp_path / "cgroup"
    limited(top, "max")
    assert control_group_limit(process(tmp_path / "a", ["0::/"], [mount("/", top, "cgroup2")])) is None
    assert control_group_limit(process(tmp_path / "b", ["3:cpu:/"], [mount("/", top, "cgroup", "rw,cpu")])) is None


def test_the_limit_of_a_real_group_is_the_memory_of_its_processes():
    from benchmarks.capped import CapUnavailable, make_cap

    try:
        cap = make_cap(768 * MIB)
    except CapUnavailable as error:
        pytest.skip(str(error))
    program = "from dlatent.engine.machine import memory; print(memory())"
    try:
        found = subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, text=True, preexec_fn=cap.join
        )
        assert int(found.stdout) == 768 * MIB
    finally:
        cap.remove()


def test_local_workers_share_the_memory_of_the_process(monkeypatch):
    monkeypatch.setattr("dlatent.engine.machine.granted", lambda: 2 * GIB)
    with local_workers(2) as client:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        assert [info["memory_limit"] for info in workers] == [GIB, GIB]


def test_local_workers_are_reached_from_this_machine_only():
    """Their ports, and the one of the dashboard that shows what they do."""
    already = listeners()
    with local_workers(1):
        opened = listeners() - already
    assert len(opened) >= 3, "the scheduler, its dashboard, a worker"
    assert {host for host, _ in opened} == {"127.0.0.1"}


def listeners():
    """Addresses at which this process and its children take connections."""
    this = psutil.Process()
    mine = {this.pid, *(child.pid for child in this.children(recursive=True))}
    every = psutil.net_connections("tcp")
    return {tuple(one.laddr) for one in every if one.status == psutil.CONN_LISTEN and one.pid in mine}


@pytest.mark.parametrize(("host", "expected"), [("127.0.0.1", GIB), ("10.0.0.7", 12 * GIB)])
def test_workers_on_this_machine_have_no_more_than_their_share_of_it(monkeypatch, host, expected):
    """Dask tells workers the memory of the machine where it does not see the limit of the container."""
    monkeypatch.setattr(cluster, "granted", lambda: 2 * GIB)
    workers = {f"tcp://{host}:{port}": {"memory_limit": 12 * GIB, "nthreads": 1} for port in (4001, 4002)}
    client = SimpleNamespace(scheduler_info=lambda n_workers: {"workers": workers}, nthreads=dict, status="running")
    monkeypatch.setattr(cluster, "threads_of", lambda client: dict.fromkeys(workers, 1))
    assert cluster._resources(client, None).worker_memory == expected


def test_memory_is_never_more_than_that_of_the_machine(monkeypatch):
    monkeypatch.setattr(machine, "control_group_limit", lambda process: 2**59)
    assert memory() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_a_plan_may_use_what_is_left_before_dask_pauses_a_worker(two_processes):
    """As each worker is configured, less what its process holds; the fullest one counts."""
    source = open_data(np.zeros((20, 3)))

    def left():
        with connect(source, client=two_processes) as session:
            assert session.resources.worker_memory == GIB
            return session.available.worker_memory

    def configure(part, of=None, hold=0):
        def change(dask_worker):
            dask_worker.memory_manager.memory_pause_fraction, dask_worker.held = part, np.ones(hold // 8)

        two_processes.run(change, workers=of)

    try:
        configure(0.8)  # tests have no worker paused
        fresh = left()
        assert 0.8 * GIB - 100 * MIB < fresh <= 0.8 * GIB
        configure(0.6)
        assert left() == pytest.approx(fresh - 0.2 * GIB, abs=10 * MIB)
        configure(False)
        assert left() == pytest.approx(fresh + 0.15 * GIB, abs=10 * MIB), "its nanny ends it at 95 %"
        one = next(iter(two_processes.nthreads()))
        configure(0.85, [one], hold=300 * MIB)
        assert 0.85 * GIB - 300 * MIB < left() < 0.85 * GIB - 100 * MIB
        configure(0.8)
        assert left() == pytest.approx(fresh, abs=20 * MIB), "as before"
        configure(0.6, [one], hold=600 * MIB)
        with pytest.raises(PlanError, match="left before Dask pauses it"):
            PPCA(1).fit(np.eye(20, 3), client=two_processes)
    finally:
        configure(False)


def test_a_fit_within_a_task_is_planned_with_what_its_worker_may_hold(two_processes):
    def available():
        with connect(open_data(np.zeros((20, 3)))) as session:
            return session.available.worker_memory

    assert two_processes.submit(available, pure=False).result() == int(0.95 * GIB), "its nanny ends it there"


def test_what_a_fresh_worker_holds_is_what_plans_count_for_it():
    assert machine.FRESH_WORKER == WORKER_BASE
