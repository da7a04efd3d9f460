from __future__ import annotations

import pytest
from distributed import Client, LocalCluster


def _workers(count, processes):
    with (
        LocalCluster(n_workers=count, threads_per_worker=1, processes=processes, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def one_worker():
    yield from _workers(1, processes=False)


@pytest.fixture(scope="module")
def two_workers():
    yield from _workers(2, processes=True)
