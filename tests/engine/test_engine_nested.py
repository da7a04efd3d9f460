"""Fits inside tasks of Dask workers with one thread: they end, with the bits of a fit outside, and leave no task."""

from __future__ import annotations

import threading
import time

import dask.array as da
import joblib
import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster, get_client, worker_client
from engine_cases import drawn, gram, parameters, refuse_at, same, until
from sklearn.model_selection import GridSearchCV

from dlatent import PPCA, open_data
from dlatent.engine.connect import connect
from dlatent.errors import DataError
from dlatent.passes import Pass

SOON = 60
"""Seconds after which a fit hangs."""


@pytest.fixture(autouse=True)
def groups_as_of_large_data():
    """As many groups in this process as in the tasks, which know nothing of the tests."""


@pytest.fixture(scope="module", params=["processes", pytest.param("threads", marks=pytest.mark.slow)])
def client(request):
    """The default client of two workers with one thread each, in processes of their own or in this one."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": "2GiB"}
    with LocalCluster(processes=request.param == "processes", **options) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(0)
    return (random.normal(size=(600, 3)) @ random.normal(size=(3, 9)) + random.normal(size=(600, 9))).astype("f4")


def loadings(data, components, client=None):
    return PPCA(components).fit(data, client=client).components_


def loadings_by_the_cluster(data, components):
    return loadings(data, components, get_client())


def loadings_in_a_thread(data, components):
    """A thread of a task knows the client that its worker made, but is no task."""
    found = []
    get_client()
    thread = threading.Thread(target=lambda: found.append(loadings(data, components)))
    thread.start()
    thread.join()
    return found[0]


def loadings_twice(data, components):
    """A task that has left its thread already."""
    with worker_client() as client:
        return loadings(data, components, client)


@pytest.mark.slow
def test_a_thread_of_a_task_does_not_take_the_client_that_the_worker_made(client, rows):
    if not client.cluster.processes:
        pytest.skip("beside the driver, where nothing tells a thread of a task from one of the driver")
    found = client.submit(loadings_in_a_thread, rows, 2).result(timeout=SOON)
    assert np.array_equal(found, loadings(rows, 2, "serial"))


def resources(data, explicit=False):
    with connect(open_data(data), client=get_client() if explicit else None) as engine:
        return engine.resources


@pytest.mark.slow
@pytest.mark.parametrize("fit", [loadings, loadings_by_the_cluster, loadings_twice])
def test_several_fits_in_tasks_at_once_have_the_bits_of_fits_outside(client, rows, tmp_path, fit):
    path = str(tmp_path / "rows.zarr")
    zarr.create_array(path, data=rows, chunks=(50, 9))
    expected = {k: loadings(path, k, "serial") for k in (1, 2, 3)}
    futures = [(k, client.submit(fit, path, k, pure=False)) for k in (1, 2, 3, 1, 2)]
    for components, future in futures:
        assert np.array_equal(future.result(timeout=SOON), expected[components])


@pytest.mark.parametrize("fit", [loadings, pytest.param(loadings_by_the_cluster, marks=pytest.mark.slow)])
@pytest.mark.parametrize("persisted", [False, True], ids=["lazy", "persisted"])
def test_dask_arrays_can_be_fitted_in_tasks(client, rows, fit, persisted):
    array = da.from_array(rows, chunks=(100, 9))
    expected = loadings(array, 2, "serial")
    given = client.persist(array) if persisted else array
    futures = [client.submit(fit, given, 2, pure=False) for _ in range(3)]
    for future in futures:
        assert np.array_equal(future.result(timeout=SOON), expected)


@pytest.mark.parametrize("closed", [False, True])
def test_the_serial_engine_fetches_what_lies_on_a_cluster_or_says_that_it_is_gone(rows, closed):
    array = da.from_array(rows, chunks=(100, 5))
    expected = loadings(array, 2, "serial")
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            given = client.persist(array)
            if not closed:
                assert np.array_equal(loadings(given, 2, "serial"), expected)
                return
        with pytest.raises(DataError, match="rows 0:100 of the Dask array lie on a cluster to which there is no conn"):
            loadings(given, 2, "serial")


def test_a_grid_search_on_joblibs_dask_backend_ends(client, rows):
    def searched():
        return GridSearchCV(PPCA(1), {"n_components": [1, 2, 3]}, cv=3, refit=False).fit(rows).cv_results_

    expected = searched()
    done = []

    def search():
        with joblib.parallel_backend("dask", client=client):
            done.append(searched())

    thread = threading.Thread(target=search, daemon=True)
    thread.start()
    thread.join(SOON)
    assert not thread.is_alive(), "hangs"
    assert np.array_equal(done[0]["mean_test_score"], expected["mean_test_score"])


def test_a_task_has_the_threads_and_the_memory_of_its_worker(client, rows):
    found = client.submit(resources, rows).result(timeout=SOON)
    assert (found.kind, found.workers, found.threads, found.worker_memory) == ("threads", 1, 1, 2 * 2**30)
    found = client.submit(resources, rows, explicit=True).result(timeout=SOON)
    assert (found.kind, found.workers, found.threads) == ("cluster", 2, 1)
    with connect(open_data(rows), client=client) as engine:
        assert found == engine.resources
    assert client.submit(lambda: found.driver_memory).result(timeout=SOON) == 2 * 2**30


def test_a_fit_that_fails_in_a_task_says_so_and_the_worker_goes_on(client, rows):
    def refused(explicit):
        with connect(drawn([3] * 40), client=get_client() if explicit else None) as engine:
            return engine.run(Pass(refuse_at, 20))

    for explicit in (False, True):
        with pytest.raises(DataError, match=r"row 60, column 0 is NaN"):
            client.submit(refused, explicit).result(timeout=SOON)
    assert np.array_equal(client.submit(loadings, rows, 2).result(timeout=SOON), loadings(rows, 2, "serial"))


def slow_gram(block, weights):
    time.sleep(0.02)
    return gram(block, weights)


@pytest.mark.slow
@pytest.mark.parametrize("explicit", [False, True])
def test_workers_go_on_after_a_fit_in_a_task_is_cancelled(client, rows, explicit):
    def fitted():
        with connect(drawn([3] * 40), client=get_client() if explicit else None) as engine:
            return engine.run(Pass(slow_gram, parameters()))

    futures = [client.submit(fitted, pure=False) for _ in range(3)]
    until(lambda: client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) >= (6 if explicit else 3))
    client.cancel(futures[:2])
    with connect(drawn([3] * 40), client="serial") as engine:
        assert same(futures[2].result(timeout=SOON), engine.run(Pass(gram, parameters())))
    assert np.array_equal(client.submit(loadings, rows, 2).result(timeout=SOON), loadings(rows, 2, "serial"))
