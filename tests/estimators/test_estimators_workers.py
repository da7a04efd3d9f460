"""Plans for workers that are not there are those of workers that are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import scipy.sparse as sp
import zarr
from distributed import Client, LocalCluster

from dlatent import (
    PPCA,
    CorrespondencePPCA,
    FactorAnalysis,
    KernelPPCA,
    PPCAMixture,
    RelationalPPCA,
    SupervisedPPCA,
    Workers,
)

ROWS, COLUMNS = 600, 12


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Models by name, each with what it is fitted to."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    X, other = rng.normal(size=(ROWS, COLUMNS)), rng.normal(size=(ROWS, 5))
    for name, values in (("x", X), ("other", other)):
        zarr.create_array(str(folder / f"{name}.zarr"), data=values, chunks=(25, values.shape[1]))
    edges = sp.random_array((ROWS, ROWS), density=0.01, rng=rng)
    path, views = str(folder / "x.zarr"), {"one": str(folder / "x.zarr"), "two": str(folder / "other.zarr")}
    return {
        "ppca": (PPCA(3), (path,), {}),
        "krylov": (PPCA(3, solver="krylov"), (path,), {}),
        "in memory": (PPCA(3), (X,), {}),
        "factor analysis": (FactorAnalysis(3), (path,), {}),
        "supervised": (SupervisedPPCA(2), (path, X[:, 0]), {}),
        "mixture": (PPCAMixture(2, 2), (path,), {}),
        "kernel": (KernelPPCA(2, kernel="rbf"), (path,), {}),
        "views": (CorrespondencePPCA(2), (views,), {"correspondence": np.arange(2 * ROWS).reshape(2, ROWS).T % ROWS}),
        "graph": (RelationalPPCA(2), (path,), {"graph": edges + edges.T}),
        "graph, krylov": (RelationalPPCA(2, solver="krylov"), (path,), {"graph": edges + edges.T}),
    }


@pytest.fixture(scope="module")
def cluster() -> Any:
    options = {"n_workers": 3, "threads_per_worker": 2, "processes": False, "dashboard_address": ":0"}
    with LocalCluster(memory_limit="1GiB", **options) as made, Client(made, set_as_default=False) as client:
        yield client


NAMES = ["ppca", "krylov", "in memory", "factor analysis", "supervised", "mixture", "kernel", "views", "graph"]


@pytest.mark.parametrize("name", [*NAMES, "graph, krylov"])
def test_the_plan_is_that_of_a_cluster_of_such_workers(given: Any, cluster: Client, name: str) -> None:
    model, data, more = given[name]
    imagined = model.plan(*data, **more, client=Workers(3, "1GiB", threads=2))
    there = model.plan(*data, **more, client=cluster)
    # These workers are threads of this process, which holds more than a fresh worker, and Dask does not pause them.
    assert imagined.figures() == there.figures() | {"worker_limit": imagined.worker_limit}


@pytest.mark.parametrize("name", [*NAMES, "graph, krylov"])
def test_a_duration_has_its_parts(given: Any, name: str) -> None:
    model, data, more = given[name]
    slow, fast = (
        model.plan(*data, **more, client=Workers(4, "1GiB", bandwidth=bandwidth, price=0.5)).duration
        for bandwidth in ("1MB", "100MB")
    )
    assert fast.reading == pytest.approx(slow.reading / 100)
    assert fast.moving == pytest.approx(slow.moving / 100)
    assert fast.seconds < slow.seconds == max(slow.reading, slow.computing) + slow.moving + slow.solving
    assert slow.worker_hours == pytest.approx(4 * slow.seconds / 3600)
    assert slow.price == pytest.approx(slow.worker_hours / 2)
    parts = {part: getattr(slow, part) for part in ("reading", "computing", "moving", "solving")}
    assert parts[slow.bottleneck] == max(parts.values())
    assert slow.moving > 0
    assert (slow.reading > 0) == (name != "in memory")


def test_without_a_bandwidth_there_is_no_duration_and_without_a_price_none(given: Any) -> None:
    model, data, _ = given["ppca"]
    assert model.plan(*data, client=Workers(2, "1GiB")).duration is None
    assert "time" not in str(model.plan(*data, client=Workers(2, "1GiB")))
    plan = model.plan(*data, client=Workers(2, 2**30, bandwidth=1e6))
    assert plan.duration.price is None
    assert f"time      about {plan.duration.seconds:.2g} s (reading" in str(plan)
    assert "price" not in str(plan)


def test_a_bandwidth_may_say_that_it_is_one_of_seconds() -> None:
    plain, said = (Workers(4, "8GB", bandwidth=bandwidth).resources() for bandwidth in ("200MB", "200MB/s"))
    assert plain == said
    assert said.bandwidth == 2e8


def test_one_worker_moves_nothing(given: Any) -> None:
    model, data, _ = given["krylov"]
    assert model.plan(*data, client=Workers(1, "1GiB", bandwidth="1MB")).duration.moving == 0


def test_memory_is_that_of_the_workers_and_of_their_driver(given: Any) -> None:
    model, data, _ = given["ppca"]
    plan = model.plan(*data, client=Workers(2, "3GiB", driver_memory="5GiB"))
    assert (plan.worker_limit, plan.driver_limit) == (int(0.8 * 3 * 2**30), 5 * 2**30)
    plan = model.plan(*data, client=Workers(2, "3GiB", pause=0.85))
    assert plan.worker_limit == int(0.85 * 3 * 2**30)
    with pytest.raises(Exception, match=r"of a worker's 80\.0 MiB left before Dask pauses it"):
        model.plan(*data, client=Workers(2, "100MiB"))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"number": 0}, "number of Workers must be above 0; got 0"),
        ({"memory": "many"}, "memory of Workers is 'many'; give bytes, or a text such as '8GiB'"),
        ({"memory": 8}, "memory of Workers is 8, which is 8 bytes; give a text such as '8GiB'"),
        ({"driver_memory": "16B"}, "driver_memory of Workers is '16B', which is 16 bytes"),
        ({"bandwidth": "200MB/min"}, "bandwidth of Workers is '200MB/min'"),
        ({"threads": -1}, "threads of Workers"),
        ({"bandwidth": "0MB"}, "bandwidth of Workers must be above 0; got '0MB'"),
        ({"price": 0.0}, "price of Workers"),
        ({"driver_memory": -5}, "driver_memory of Workers"),
        ({"pause": 0.0}, "pause of Workers"),
    ],
)
def test_what_no_worker_can_have_is_refused(given: Any, wrong: dict[str, Any], said: str) -> None:
    model, data, _ = given["ppca"]
    with pytest.raises(ValueError, match=said):
        model.plan(*data, client=Workers(**{"number": 2, "memory": "1GiB", **wrong}))


@pytest.mark.parametrize("name", ["ppca", "mixture", "kernel", "views", "graph"])
def test_they_fit_nothing(given: Any, name: str) -> None:
    model, data, more = given[name]
    with pytest.raises(ValueError, match=r"Workers are to plan for.*distributed.Client"):
        model.fit(*data, **more, client=Workers(2, "1GiB"))
    fitted = PPCA(3).fit(given["ppca"][1][0])
    with pytest.raises(ValueError, match="Workers are to plan for"):
        fitted.score(given["ppca"][1][0], client=Workers(2, "1GiB"))


def test_nothing_of_the_matrix_is_read_and_no_process_started(tmp_path: Path) -> None:
    path = str(tmp_path / "empty.zarr")
    zarr.create_array(path, shape=(10**8, 10**3), chunks=(10**4, 10**3), dtype="f4")  # 372 GiB, of which none is there
    before = psutil.Process().children(recursive=True)
    plan = PPCA(20).plan(path, client=Workers(500, "16GiB", bandwidth="125MB"))
    assert plan.task.data.nbytes == 4 * 10**11
    assert plan.machine == "cluster, 500 workers × 1 thread"
    assert plan.figures()["duration"]["reading"] == pytest.approx(4 * 10**11 / (500 * 125e6))
    assert psutil.Process().children(recursive=True) == before
