from __future__ import annotations

import dask
import pytest
from distributed import Client, LocalCluster

from dlatent.order import ENOUGH_GROUPS


def _cluster(**options):
    with dask.config.set({"distributed.scheduler.allowed-failures": 1}):
        cluster = LocalCluster(threads_per_worker=1, dashboard_address=":0", memory_limit="1GiB", **options)
    with cluster, Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture(scope="session")
def one_worker():
    yield from _cluster(n_workers=1, processes=False)


@pytest.fixture(scope="session")
def two_processes():
    yield from _cluster(n_workers=2, processes=True)


@pytest.fixture(scope="session")
def seven_workers():
    yield from _cluster(n_workers=7, processes=False)


@pytest.fixture(autouse=True)
def groups_as_of_large_data(monkeypatch):
    """Small test data get as many groups, and so as deep a tree, as large data."""
    monkeypatch.setattr("dlatent.order.FEWEST_GROUPS", ENOUGH_GROUPS)
