"""Clusters whose workers read stores, for the tests of what becomes of a read that fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from distributed import Client, LocalCluster

from dlatent.engine.session import Session
from dlatent.order import ENOUGH_GROUPS


@pytest.fixture(scope="module")
def two_processes() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit="1GiB") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(params=["cluster", "threads", "serial"])
def client(request: pytest.FixtureRequest) -> Any:
    if request.param == "cluster":
        return request.getfixturevalue("two_processes")
    return None if request.param == "threads" else "serial"


@pytest.fixture
def nothing_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """And small data make as many tasks as large ones, so that every worker has some."""
    keep = Session.keep
    monkeypatch.setattr(Session, "keep", lambda session, _: keep(session, 0))
    monkeypatch.setattr("dlatent.order.FEWEST_GROUPS", ENOUGH_GROUPS)
