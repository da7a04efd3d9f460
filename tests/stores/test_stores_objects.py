"""Open stores of Zarr as places."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from zarr.storage import LoggingStore, MemoryStore

from dlatent import PPCA, load
from dlatent.stores.objects import url_of


def test_a_copy_for_reading_is_the_same_place_and_other_stores_are_not():
    one, other = MemoryStore(), MemoryStore()
    zarr.create_array(one, data=np.ones(3))
    assert url_of(one.with_read_only(True)) == url_of(one) != url_of(other)


def test_one_bucket_of_two_servers_is_two_places():
    obstore = pytest.importorskip("obstore.store", reason="obstore is not installed")
    stores = [
        zarr.storage.ObjectStore(obstore.S3Store("bucket", region="us-east-1", **server))
        for server in ({}, {"endpoint": "https://a.example"})
    ]
    assert url_of(stores[0]) != url_of(stores[1])


def test_a_node_in_an_open_store_is_a_place_of_its_own():
    store, results, x = MemoryStore(), MemoryStore(), np.random.default_rng(0).normal(size=(30, 4))
    for name, values in {"X": x, "other": -x}.items():
        zarr.create_array(store, name=name, data=values)
    model = PPCA(2).fit(f"{url_of(store)}/X")
    np.testing.assert_array_equal(model.mean_, PPCA(2).fit(x).mean_)
    zarr.create_array(results, name="other", data=x)
    model.save(f"{url_of(results)}/model")
    np.testing.assert_array_equal(load(f"{url_of(results)}/model").mean_, model.mean_)
    np.testing.assert_array_equal(zarr.open_array(results, path="other", mode="r")[...], x)


def test_a_store_in_a_wrapper_is_read_through_it():
    x, memory = np.random.default_rng(0).normal(size=(30, 4)), MemoryStore()
    zarr.create_array(memory, data=x, chunks=(10, 4))
    wrapper = LoggingStore(memory.with_read_only(True), log_level="CRITICAL")
    array = zarr.open_array(wrapper, mode="r")
    opened = wrapper.counter["get"]
    PPCA(2).fit(array)
    assert wrapper.counter["get"] >= opened + 3
