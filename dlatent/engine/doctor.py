"""Whether the processes of a cluster are fit for work: what each of them has beside what it should have.

Laws (tested in tests/cli/test_cli_doctor.py): nothing is asked of the threads in which a worker computes, so that one
that is busy answers, too; and nobody is waited for without end, so that one that is stopped is a finding.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dask
import psutil
from distributed.versions import get_versions

from dlatent.engine.machine import NO_HANGS, granted, worker_environment
from dlatent.errors import number_of

PACKAGES = ("dlatent", "dask", "distributed", "numpy", "scipy", "zarr", "xarray")
SCHEDULER = "scheduler"
OF_SCHEDULERS = ("python", "dask", "distributed")
"""Packages that a scheduler needs, which does not compute."""
ANSWER_SECONDS = 15.0
"""How long a process has for an answer."""
READ_SECONDS = 120.0
"""How long a worker has to open a store and read a little of it."""
CLOCK_SECONDS = 60.0
"""How far clocks may differ."""
FILES, FILES_PER_WORKER = 256, 4
"""Open files that a process needs by itself, and for each worker that it talks to."""
PLAIN = ("tcp", "ws")
"""Protocols of Dask without TLS."""
IN_MEMORY = ("tmpfs", "ramfs")
NETWORKS = ("9p", "afs", "beegfs", "ceph", "cifs", "gpfs", "glusterfs", "lustre", "nfs", "smb", "sshfs")
"""Parts of the names of file systems that lie on other machines."""


@dataclass(frozen=True)
class Finding:
    """A problem, or a thing that is merely slow: where it is, and how to fix it."""

    where: str
    what: str
    mend: str
    wrong: bool = True


def everywhere(
    client: Any, workers: Sequence[str], function: Callable[..., Any], *args: Any, seconds: float = ANSWER_SECONDS
) -> dict[str, Any]:
    """Results of `function(worker, *args)` in a thread of each worker process; an exception where it raised one, and
    TimeoutError where no answer came."""

    async def ask(address: str) -> Any:
        return (await client.run(_aside, function, *args, workers=[address], on_error="return"))[address]

    return _answers(client, workers, ask, seconds)


def _answers(
    client: Any, asked: Sequence[str], ask: Callable[[str], Awaitable[Any]], seconds: float = ANSWER_SECONDS
) -> dict[str, Any]:
    """Their answers to a call of all at once; an exception where there is no answer in time."""

    async def answers() -> list[Any]:
        return await asyncio.gather(*(asyncio.wait_for(ask(each), seconds) for each in asked), return_exceptions=True)

    return dict(zip(asked, client.sync(answers), strict=True))


async def _aside(function: Callable[..., Any], *args: Any, dask_worker: Any) -> Any:
    return await asyncio.to_thread(function, dask_worker, *args)


def worker_state(worker: Any) -> dict[str, Any]:
    """Return threads, memory, versions and disks of a worker."""
    from threadpoolctl import threadpool_info

    import dlatent.blas  # noqa: F401  (loads what is asked for)

    clock, threads, group = time.time(), worker.state.nthreads, ""
    scratch = Path(worker.local_directory)
    with suppress(OSError):
        group = Path("/proc/self/cgroup").read_text()
    mounted = {Path(one.mountpoint): one.fstype for one in psutil.disk_partitions(all=True)}
    above = (scratch.resolve(), *scratch.resolve().parents)
    return {
        "name": str(worker.name),
        "host": socket.gethostname(),
        "group": group,
        "threads": threads,
        "memory_limit": worker.memory_manager.memory_limit,
        "granted": granted(),
        "blas_threads": max(
            (blas["num_threads"] for blas in threadpool_info() if blas["user_api"] == "blas"), default=1
        ),
        "unset": [name for name in worker_environment(threads) if name not in os.environ],
        "can_hang": sys.version_info < (3, 12) and bool(dask.config.get("distributed.worker.profile.enabled", True)),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "scratch": str(scratch),
        "scratch_kind": next((mounted[folder] for folder in above if folder in mounted), ""),
        "scratch_free": shutil.disk_usage(scratch).free,
        "clock": clock,
    }


def examine(client: Any) -> tuple[dict[str, dict[str, Any]], list[Finding]]:
    """The facts of each worker that can work, with its versions, and what is to be said of the cluster."""
    told = partial(get_versions, packages=PACKAGES)  # a function of Dask's, as a worker may lack dlatent

    async def ask(address: str) -> Any:
        if address == SCHEDULER:
            return _versions_of(await client.run_on_scheduler(told))
        return _versions_of((await client.run(told, workers=[address]))[address])

    ours, addresses = _versions_of(told()), sorted(client.nthreads())
    versions, able, findings = _answers(client, [SCHEDULER, *addresses], ask), list[str](), list[Finding]()
    for address, one in versions.items():
        if isinstance(one, Exception):
            findings.append(_silent(address, one))
            continue
        differing = [name for name in (OF_SCHEDULERS if address == SCHEDULER else ours) if one[name] != ours[name]]
        if differing:
            there, here = (", ".join(f"{name} {of[name] or 'not'}" for name in differing) for of in (one, ours))
            findings.append(Finding(address, f"has {there}, and this process {here}", "install the same everywhere"))
        if address != SCHEDULER and one["dlatent"] == ours["dlatent"]:
            able.append(address)
    if not addresses:
        findings.append(Finding(SCHEDULER, "has no worker", "start some: dask worker ADDRESS"))
    before, workers = time.time(), dict[str, dict[str, Any]]()
    findings += unencrypted(client.scheduler.address)
    limit = partial(client.run_on_scheduler, resource.getrlimit, resource.RLIMIT_NOFILE)
    for one in _answers(client, [SCHEDULER], lambda _: limit()).values():
        if not isinstance(one, Exception):  # of a scheduler that does not answer it is said above
            findings += _few_files(SCHEDULER, one[0], len(addresses))
    answers = everywhere(client, able, worker_state)
    interval = before - CLOCK_SECONDS, time.time() + CLOCK_SECONDS
    for address, one in answers.items():
        if isinstance(one, Exception):
            findings.append(_silent(address, one))
        else:
            workers[address] = one | {"versions": versions[address]}
            findings += [*_of_worker(address, one, interval), *_few_files(address, one["open_files"], len(addresses))]
    return workers, [*findings, *_of_machines(workers)]


def _versions_of(told: Mapping[str, Any]) -> dict[str, str]:
    """Of what matters: of Python the first two numbers, as its tasks travel."""
    packages = told["packages"]
    return {"python": ".".join(told["host"]["python"].split(".")[:2])} | {name: packages.get(name) for name in PACKAGES}


def _silent(address: str, error: Exception) -> Finding:
    if isinstance(error, TimeoutError):
        what = f"gave no answer in {ANSWER_SECONDS:.0f} s: it is stopped, swapping or out of reach"
        return Finding(address, what, "look at its machine, and end it; its work begins anew elsewhere")
    return Finding(address, f"cannot answer ({type(error).__name__}: {error})", "look into its log, and start it anew")


def _of_worker(address: str, one: Mapping[str, Any], clock: tuple[float, float]) -> Iterator[Finding]:
    """Yield the problems of one worker."""
    limit, off = one["memory_limit"], max(clock[0] - one["clock"], one["clock"] - clock[1])
    if not limit:
        yield Finding(address, "has no limit of memory, so that no plan can hold", "say --memory-limit where it starts")
    if off > 0:
        what = f"has a clock that differs by {off + CLOCK_SECONDS:.0f} s or more"
        yield Finding(address, what, "let its machine set its clock, as object stores and certificates go by it")
    if one["can_hang"]:
        (name,) = NO_HANGS
        what = "runs Dask's profiler on Python 3.11, which can make it hang for ever"
        there, here = f"DASK_{name.upper().replace('.', '__')}=False", f"dask.config.set({{{name!r}: False}})"
        yield Finding(address, what, f"set {there} where it starts, or call {here} before a LocalCluster is made")
    if one["blas_threads"] > 1:
        what = f"lets BLAS use {one['blas_threads']} threads beside {one['threads']} of Dask; fits hold it to one"
        names = "OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1"
        yield Finding(address, what, f"for other work set {names} where it starts", wrong=False)
    if one["unset"]:
        values = worker_environment(one["threads"])
        what = "clears memory anew for each block, for up to half as much time again with dense data"
        mend = f"set {' '.join(f'{name}={values[name]}' for name in one['unset'])} where it starts"
        yield Finding(address, what, mend, wrong=False)
    kind, elsewhere = one["scratch_kind"], "give it --local-directory on a local disk"
    if kind in IN_MEMORY or any(name in kind for name in NETWORKS):
        where = "in memory" if kind in IN_MEMORY else "on a network"
        yield Finding(address, f"has its scratch directory {one['scratch']} {where} ({kind})", elsewhere, wrong=False)
    elif limit and one["scratch_free"] < limit:
        what = f"has {one['scratch_free'] / 2**30:.1f} GiB free in {one['scratch']}, less than its memory"
        yield Finding(address, what, f"make room, or {elsewhere}", wrong=False)


def _few_files(where: str, files: int, workers: int) -> Iterator[Finding]:
    """Whether a process may open fewer files than it needs beside so many workers."""
    needed = FILES + FILES_PER_WORKER * workers
    if files != resource.RLIM_INFINITY and files < needed:
        what = f"may open {files} files, and connections to {number_of(workers, 'worker', 'workers')} are files, too"
        yield Finding(where, what, f"say ulimit -n {max(needed, 65536)} where it starts (or LimitNOFILE=, or nofile)")


def unencrypted(address: str) -> Iterator[Finding]:
    """Yield what is to be said of a scheduler without TLS on another machine, by its address."""
    protocol, _, host = address.partition("://")
    if protocol not in PLAIN:
        return
    own = {one.address.partition("%")[0] for ones in psutil.net_if_addrs().values() for one in ones}
    with suppress(OSError):
        addresses = {str(one[4][0]) for one in socket.getaddrinfo(host.rpartition(":")[0].strip("[]"), None)}
        if addresses & own:
            return
    what = (
        f"is on another machine, at {address} without TLS: whoever reaches it runs code, and whoever is between reads"
    )
    mend = "give the cluster certificates (docs/howto/cluster.md, Certificates), where the network is not yours alone"
    yield Finding(SCHEDULER, what, mend, wrong=False)


def _of_machines(workers: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Where workers may use more memory than their machine, or control group, has for them together."""
    together = dict[tuple[str, str], list[Mapping[str, Any]]]()
    for one in workers.values():
        together.setdefault((one["host"], one["group"]), []).append(one)
    for (host, _), members in together.items():
        limits, has = sum(one["memory_limit"] or 0 for one in members), members[0]["granted"]
        if limits > has:
            whom = number_of(len(members), "worker that may use", "workers that may use")
            what = f"grants {has / 2**30:.1f} GiB to {whom} {limits / 2**30:.1f} GiB"
            mend = f"start fewer there, or each with --memory-limit {has // len(members) // 2**20}MiB"
            yield Finding(host, what, mend)
