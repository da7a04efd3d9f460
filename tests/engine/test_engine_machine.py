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
from dlatent.engine import machine, remote
from dlatent.engine.connect import connect
from dlatent.engine.machine import control_group_limit, local_workers, memory
from dlatent.solvers.costs import WORKER_BASE

MIB, GIB = 2**20, 2**30
NONE_V1 = 9223372036854771712
"""What version 1 says where there is no limit."""


def process(folder, *groups):
    """A folder like /proc/self."""
    made = folder / "proc"
    made.mkdir(parents=True)
    (made / "cgroup").write_text("".join(f"{line}\n" for line in groups))
    return made


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
    made = process(tmp_path, "0::/user.slice/user-1000.slice/session.scope")
    assert control_group_limit(made, top) == 3 * GIB
    limited(own, GIB)
    assert control_group_limit(made, top) == GIB


def test_the_group_of_a_user_is_seen_in_version_1(tmp_path):
    """Dask looks at the root of the hierarchy alone, which has no limit."""
    top = tmp_path / "sys" / "memory"
    limited(top, NONE_V1, V1)
    limited(top / "users" / "anna", 2 * GIB, V1)
    limited(top / "users" / "anna" / "job", NONE_V1, V1)
    limited(tmp_path / "sys" / "cpu" / "users", MIB, V1)
    made = process(tmp_path, "9:cpu,cpuacct:/users", "4:hugetlb,memory:/users/anna/job", "1:name=systemd:/", "0::/")
    assert control_group_limit(made, tmp_path / "sys") == 2 * GIB


@pytest.mark.parametrize("path", ["/docker/4f01/inner", "/../../other"])
def test_a_group_that_is_not_seen_has_the_limit_of_the_top(tmp_path, path):
    """A container sees its own group as the top."""
    limited(tmp_path / "sys" / "memory", GIB, V1)
    limited(tmp_path / "cgroup", GIB)
    limited(tmp_path / "other", MIB)
    assert control_group_limit(process(tmp_path / "1", f"4:memory:{path}"), tmp_path / "sys") == GIB
    assert control_group_limit(process(tmp_path / "2", f"0::{path}"), tmp_path / "cgroup") == GIB


@pytest.mark.parametrize(
    ("groups", "folder", "name"),
    [("0::/a", "a", "memory.high"), ("4:memory:/a", "memory/a", "memory.soft_limit_in_bytes")],
)
def test_soft_limits_count(tmp_path, groups, folder, name):
    top = tmp_path / "sys"
    limited(top / folder, GIB, name)
    assert control_group_limit(process(tmp_path, groups), top) == GIB


def test_without_control_groups_or_limits_there_is_none(tmp_path):
    assert control_group_limit(tmp_path / "nowhere") is None
    top = tmp_path / "cgroup"
    limited(top, "max")
    assert control_group_limit(process(tmp_path / "a", "0::/"), top) is None
    assert control_group_limit(process(tmp_path / "b", "3:cpu:/"), top) is None


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
    monkeypatch.setattr(remote, "granted", lambda: 2 * GIB)
    workers = {f"tcp://{host}:{port}": {"memory_limit": 12 * GIB, "nthreads": 1} for port in (4001, 4002)}
    client = SimpleNamespace(scheduler_info=lambda n_workers: {"workers": workers}, nthreads=dict, status="running")
    monkeypatch.setattr(remote, "threads_of", lambda client: dict.fromkeys(workers, 1))
    assert remote.resources_of(client, None).worker_memory == expected


def test_memory_is_never_more_than_that_of_the_machine(monkeypatch):
    monkeypatch.setattr(machine, "control_group_limit", lambda: 2**59)
    assert memory() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_a_fit_in_memory_does_not_import_what_connects_to_clusters():
    """It costs a third of a second."""
    script = (
        "import sys; import numpy as np; from dlatent import PPCA; "
        "PPCA(1).fit(np.random.default_rng(0).normal(size=(30, 4))); sys.exit('distributed' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_memory_is_no_more_than_a_batch_system_allows():
    script = (
        "import resource; from dlatent.engine.machine import memory; "
        "resource.setrlimit(resource.RLIMIT_RSS, (2**28, 2**28)); print(memory())"
    )
    told = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert int(told) <= 2**28


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
