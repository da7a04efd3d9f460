"""Many fits on one cluster, sixteen at a time: all bits are right, and nothing grows."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask.array as da
import numpy as np
import psutil
import pytest
import scipy.sparse as sp
from distributed import Client, LocalCluster
from distributed.deploy.subprocess import SubprocessCluster

from dlatent import PPCA, FactorAnalysis, KernelPPCA, PPCAMixture, RelationalPPCA, SupervisedPPCA

pytestmark = pytest.mark.slow

FITS = int(os.environ.get("DLATENT_TEST_FITS", "60"))
"""How many fits; 1,000 take some minutes."""
AT_ONCE = 16
FREE = 30 * 2**20
"""Bytes by which a process may grow all the same, from a fifth of the fits to all: what its allocator holds."""

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3)) @ RNG.normal(size=(3, 20)) + 0.3 * RNG.normal(size=(300, 20))
HOLES = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
PATH = sp.csr_array(sp.diags_array([np.ones(299), np.ones(299)], offsets=[-1, 1]))
KINDS = [
    lambda client: PPCA(3).fit(X, client=client),
    lambda client: PPCA(3, solver="krylov").fit(da.from_array(X, chunks=(50, 20)), client=client),
    lambda client: PPCA(2, missing="nan", tol=1e-4).fit(HOLES, client=client),
    lambda client: FactorAnalysis(1).fit(X[:, :6], client=client),
    lambda client: SupervisedPPCA(2).fit(X, np.arange(300) % 3, client=client),
    lambda client: RelationalPPCA(2, solver="krylov").fit(X, graph=PATH, client=client),
    lambda client: KernelPPCA(2, kernel="rbf", gamma=0.01).fit(X, client=client),
    lambda client: PPCAMixture(2, n_mixtures=2, n_init=1, tol=1e-4).fit(X, client=client),
]


def number(model: Any) -> bytes:
    return np.float64(model.log_likelihood_).tobytes()


@pytest.fixture(params=["scheduler here", "scheduler apart"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    options: dict[str, Any] = {"n_workers": 2, "worker_kwargs": {"nthreads": 1, "memory_limit": "1GiB"}}
    if request.param == "scheduler here":
        here = LocalCluster(n_workers=2, threads_per_worker=1, memory_limit="1GiB", dashboard_address=":0")
        with here as cluster, Client(cluster, set_as_default=False) as made:
            yield made
    else:
        with SubprocessCluster(**options) as cluster, Client(cluster, set_as_default=False) as made:
            yield made


def close_idle_connections(client: Client) -> None:
    """Dask keeps connections for later use: as many as were ever needed at once, whatever the number of fits."""

    async def of_driver() -> None:
        client.rpc.collect()

    client.sync(of_driver)
    client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.rpc.collect())
    client.run(lambda dask_worker: dask_worker.rpc.collect())


def used(client: Client) -> dict[str, tuple[int, int]]:
    """Resident bytes and open files of all processes of a cluster and of this one, idle connections closed."""
    close_idle_connections(client)
    gc.collect()
    ids: dict[str, int] = {"driver": os.getpid(), "scheduler": client.run_on_scheduler(os.getpid)}
    ids |= {f"worker {at}": pid for at, pid in enumerate(sorted(client.run(os.getpid).values()))}
    each = {name: psutil.Process(pid) for name, pid in ids.items()}
    return {name: (process.memory_info().rss, process.num_fds()) for name, process in each.items()}


def tasks(client: Client) -> int:
    return client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))


@pytest.mark.filterwarnings("ignore")
def test_nothing_grows_with_the_number_of_fits(client: Client) -> None:
    expected = [number(kind("serial")) for kind in KINDS]

    def fit(at: int) -> bool:
        return number(KINDS[at % len(KINDS)](client)) == expected[at % len(KINDS)]

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in range(5):  # until both workers have had work: one that has not is small, and grows
            assert all(pool.map(fit, range(max(FITS // 5, 2 * len(KINDS)))))
            before = used(client)
            workers = [size for name, (size, _) in before.items() if name.startswith("worker")]
            if min(workers) > 0.8 * max(workers):
                break
        assert all(pool.map(fit, range(FITS)))
    after = used(client)
    said = {
        name: [f"{size / 2**20:.0f} MiB, {files} files" for size, files in (before[name], after[name])]
        for name in after
    }
    print(said)
    assert not client.futures
    assert tasks(client) == 0
    for name, (size, files) in after.items():
        assert size <= before[name][0] + FREE, said
        assert files <= before[name][1] + 8, said
