"""A cluster that grows in the middle of a pass and shrinks between passes, by itself, while a model is fitted."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from deploy_cases import until
from distributed import Client, LocalCluster

from dlatent import PPCA, Callback, SupervisedPPCA

CHUNKS, ROWS, COLUMNS = 40, 500, 60


def slowly(block: np.ndarray) -> np.ndarray:
    """A block that takes a while to come."""
    time.sleep(0.15)
    return block


class Watch(threading.Thread):
    """How many workers a cluster has had, each time that changed."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self._client, self._ended, self.counts = client, threading.Event(), [self.now(client)]

    @staticmethod
    def now(client: Client) -> int:
        return len(client.scheduler_info(n_workers=-1)["workers"])

    def run(self) -> None:
        while not self._ended.wait(0.05):
            if (count := self.now(self._client)) != self.counts[-1]:
                self.counts.append(count)

    def end(self) -> list[int]:
        """All that was seen."""
        self._ended.set()
        self.join()
        return self.counts


def bits(model: Any) -> bytes:
    """All that was fitted."""
    values = (model.components_, model.mean_, model.noise_variance_, model.log_likelihood_)
    return b"".join(np.asarray(value).tobytes() for value in values)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*converge")
@pytest.mark.parametrize("name", ["ppca", "missing", "semi-supervised"])
def test_one_worker_becomes_four_and_one_again(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(CHUNKS * ROWS, 4)) @ rng.normal(size=(4, COLUMNS)) + rng.normal(size=(CHUNKS * ROWS, COLUMNS))
    targets: tuple[np.ndarray, ...] = ()
    if name == "missing":
        X[::3, ::5] = np.nan
    if name == "semi-supervised":
        y = X[:, 0] + rng.normal(size=len(X))
        y[::2] = np.nan
        targets = (y,)
    chunked = da.from_array(X, chunks=(ROWS, COLUMNS))

    def model() -> Any:
        if name == "semi-supervised":
            return SupervisedPPCA(4, max_iter=3)
        return PPCA(4, missing="nan", max_iter=3) if name == "missing" else PPCA(4, solver="krylov")

    here = model().fit(chunked, *targets, client="serial")
    options = {"threads_per_worker": 1, "memory_limit": "1GiB", "dashboard_address": ":0"}
    with LocalCluster(n_workers=1, **options) as cluster, Client(cluster, set_as_default=False) as client:
        cluster.adapt(minimum=1, maximum=4, interval="100ms", target_duration="10ms", wait_count=2)
        watch = Watch(client)
        watch.start()
        alone = Callback(on_pass=lambda record: until(lambda: watch.now(client) == 1, 60))
        there = model().fit(chunked.map_blocks(slowly), *targets, client=client, callbacks=[alone])
        counts = watch.end()
    assert bits(there) == bits(here)
    assert counts[0] == counts[-1] == 1
    assert max(counts) == 4, counts
